"""One bench: a place, its shell, a directory that is made anew for each run, and the comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fuzz.grammar import Dialect
from fuzz.normal import Contender, excluded, is_substitutions_error, normal, runs_side_by_side
from fuzz.seen import Difference, Seen
from fuzz.shells import Observer, Outcome, Runner
from fuzz.yard import Yard
from sandbox import Sandbox

TIMEOUT_S = 5.0
_MAX_ARGUMENT_BYTES = 120_000
_TRIES = 6


def decode(data: bytes) -> str:
    """A script as the text that callers hand over."""
    return data.decode("utf-8", "surrogateescape")


class Lab:
    """Compares what a sandbox does with scripts to what `shell` does with them from a file.

    shell    the program of the references: bash, dash, or sh where that is the one shell
    box      the sandbox under test; its directory is the yard's
    runner   runs the references
    yard     where both run
    like_c   scripts that did what `shell -c` does, where that is not what a file does
    """

    def __init__(self, shell: str, dialect: Dialect, box: Sandbox, runner: Runner, yard: Yard) -> None:
        self.shell = shell
        self.dialect: Dialect = dialect
        self.box = box
        self.like_c: list[bytes] = []
        self._runner = runner
        self._yard = yard
        self._opened = 0

    def judge(self, contender: Contender, scripts: Sequence[bytes]) -> tuple[str, list[Difference]]:
        """same, different, racy (the shell itself does not always do the same), or excluded.

        A difference that a further try does not show is one all the same, if the reference is steady and no
        parts of the script run side by side."""
        if self.excludes(contender, scripts):
            return "excluded", []
        found = self.differences(contender, scripts)
        if not found:
            return "same", []
        always = all([self.differences(contender, scripts) for _ in range(_TRIES - 1)])
        merged = contender != "exec"
        runs = {self.reference(b"\n".join(scripts), merged=merged) for _ in range(_TRIES)}
        steady = len(runs) == 1 and not runs_side_by_side(b"\n".join(scripts))
        never_twice = len(runs) == _TRIES
        return ("different" if steady or (always and not never_twice) else "racy"), found

    def excludes(self, contender: Contender, scripts: Sequence[bytes]) -> bool:
        """Whether a rule of `normal` keeps these scripts away from a contender."""
        script = b"\n".join(scripts)
        return b"\0" in script or excluded(contender, self.dialect, decode(script)) is not None

    def differences(self, contender: Contender, scripts: Sequence[bytes]) -> list[Difference]:
        """What is not the same, from one try."""
        if contender == "exec":
            return self._one_shot(b"\n".join(scripts))
        return self._in_shell(contender, scripts)

    def _one_shot(self, script: bytes) -> list[Difference]:
        got = self.exec(script)
        found = self._compare("exec", script, self.reference(script, merged=False), got)
        if not found or len(script) > _MAX_ARGUMENT_BYTES:
            return found
        if self._compare("exec", script, self.reference_c(script, merged=False), got):
            return found
        self.like_c.append(script)
        return []

    def _compare(self, contender: Contender, script: bytes, expected: Seen, got: Seen) -> list[Difference]:
        found = expected.differs(contender, got, self.dialect)
        if found and runs_side_by_side(script):
            return expected.unordered().differs(contender, got.unordered(), self.dialect)
        return found

    def reference(self, script: bytes, *, merged: bool) -> Seen:
        """The script in a file, run by the shell itself."""
        self._yard.fresh()
        self._yard.write_script(script)
        return self._reference([self.shell, self._yard.script], merged)

    def reference_c(self, script: bytes, *, merged: bool) -> Seen:
        """The script as the argument of the shell's `-c`."""
        self._yard.fresh()
        return self._reference([self.shell, "-c", decode(script), self.shell], merged)

    def _reference(self, argv: Sequence[str], merged: bool) -> Seen:
        return self._seen(self._runner.run(argv, self._yard.start, merged, TIMEOUT_S), lines=not merged)

    def runs_through(self, script: bytes) -> bool:
        """Whether a file that begins with this script goes on behind it as if it were one command.

        Not if it set an EXIT trap; nor if it has no command at all: alone, that has the status 0; nor if the
        shell does something else with it as `-c`, which gives up a whole text where a file loses a line."""
        if b"EXIT" in script or not re.search(rb"^[ \t]*[^#\s]", script, re.MULTILINE):
            return False
        after, whole = self._handed_on(script), self.reference(script, merged=True)
        if after is None or not _same_end(after, whole, script):
            return False
        return len(script) > _MAX_ARGUMENT_BYTES or _same_end(
            whole, self.reference_c(script, merged=True), script
        )

    def exec(self, script: bytes) -> Seen:
        """The script as a one-shot command."""
        self._yard.fresh()
        result = self.box.exec(decode(script), cwd=self._yard.start, timeout_s=TIMEOUT_S)
        outcome = Outcome(
            result.exit_code, result.stdout_output.data, result.stderr_output.data, result.timed_out
        )
        return self._seen(outcome, lines=True)

    def _seen(self, outcome: Outcome, *, lines: bool) -> Seen:
        lines = lines and self.dialect != "ash"  # counts from 0 in `eval`
        return Seen(
            outcome.code,
            normal(outcome.stdout, self.dialect, lines=lines),
            normal(outcome.stderr, self.dialect, lines=lines),
            outcome.timed_out,
            self._yard.files(),
        )

    def _in_shell(self, contender: Contender, scripts: Sequence[bytes]) -> list[Difference]:
        """Scripts one after another in one named shell, against one file that holds them all."""
        script = b"\n".join(scripts)
        whole = self.reference(script, merged=True)
        said = whole.stdout + repr(whole.files).encode()
        if is_substitutions_error(self.dialect, script, said):
            return []
        after = self._handed_on(script)
        if after is not None and not (b"EXIT" in script or _same_end(after, whole, script)):
            # The further line became part of the script (a comment, a backslash, a trace).
            after = None
        leave = after is None and b"EXIT" in script
        got, ended = self._run_in_shell(scripts, ask=after is not None, leave=leave)
        if contender == "session" and after is None and not ended:
            return []  # a script ended the file, by what does not end a named shell: nothing to compare
        if after is None or ended or got.timed_out:
            # The shell ended, or the file's rest was never reached: what the script said and how it
            # ended is all that there is.
            found = self._compare(contender, script, whole, got)
            if ended and after is not None and not found:
                found.append(Difference(contender, "shell", "goes on", "ended"))
        else:
            found = self._compare(contender, script, after, got)
        # `-c` hands no state on, so it is no excuse for one that differs.
        only_state = all(each.what == "state" for each in found)
        if only_state or contender == "session" or len(script) > _MAX_ARGUMENT_BYTES:
            return found
        if self._compare(contender, script, self.reference_c(script, merged=True), replace(got, state=None)):
            return found
        self.like_c.append(script)
        return []

    def _handed_on(self, script: bytes) -> Seen | None:
        """The script in a file, then a line that writes the shell's state; None if it was not reached.

        The shell is killed then: what it does at its end (an EXIT trap) a named shell does not yet."""
        if script.endswith(b"\\"):
            return None
        self._yard.fresh()
        self._yard.write_script(script + f"\n{self._yard.observer.line()}\nkill -KILL $$\n".encode())
        seen = self._reference([self.shell, self._yard.script], True)
        state = Observer.parse(self._yard.take_state())
        if state is None or seen.timed_out or not state.status.isdigit():
            return None
        return Seen(int(state.status), seen.stdout, b"", False, seen.files, state)

    def _run_in_shell(self, scripts: Sequence[bytes], *, ask: bool, leave: bool) -> tuple[Seen, bool]:
        """ask: look at the state afterwards; leave: then end the shell, so that its EXIT trap is seen too."""
        self._yard.fresh()
        self._opened += 1
        shell = self.box.shell(f"fuzz-{self._opened}")
        output, state = b"", None
        try:
            for script in scripts:
                result = shell.run(decode(script), timeout_s=TIMEOUT_S)
                output += result.captured.data
                if result.ended or result.timed_out:
                    break
            if leave and not result.ended and not result.timed_out:
                result = shell.run(
                    f"\\{'builtin' if self.dialect == 'bash' else 'command'} exit {result.exit_code}",
                    timeout_s=TIMEOUT_S,
                )
                output += result.captured.data
            files = self._yard.files()
            if ask and not result.ended and not result.timed_out:
                # Killed, since ending all that a shell left takes its time.
                shell.run(f"{self._yard.observer.line()}; kill -KILL $$", timeout_s=TIMEOUT_S)
                state = Observer.parse(self._yard.take_state())
        finally:
            shell.close()
        out = normal(output, self.dialect, lines=False)
        return Seen(result.exit_code, out, b"", result.timed_out, files, state), result.ended


def _same_end(one: Seen, other: Seen, script: bytes) -> bool:
    if runs_side_by_side(script):
        one, other = one.unordered(), other.unordered()
    return (one.code, one.stdout) == (other.code, other.stdout)
