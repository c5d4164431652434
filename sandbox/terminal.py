"""One shell on one terminal: open it, run a command in it, go on waiting, type, interrupt, close.

Not thread-safe; `shells.py` puts the lock and the name around it.
"""

from __future__ import annotations

import posixpath
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sandbox import framing
from sandbox.backend import Backend, Process
from sandbox.errors import BackendError, Cancelled, Closed
from sandbox.output import Keeper
from sandbox.shell import check_env
from sandbox.sweep import end_tree, front_processes
from sandbox.values import (
    GRACE_S,
    START_TIMEOUT_S,
    Deadline,
    OnOutput,
    PtySize,
    ShellResult,
    SpawnRequest,
    Survivor,
)

TERMINAL_ENV = {"TERM": "xterm-256color", "PS1": "", "PS2": "", "ENV": ""}
_WAIT_MIN_S = 0.005
_WAIT_S = 0.25
_CANCEL_WAIT_S = 0.05
_PROBE_AFTER_S = 0.3
_SCREEN_BYTES = 256 * 1024


class NotBegun(Exception):
    """The shell was gone or stuck before the command began; nothing ran, so it may be run elsewhere."""


@dataclass
class _Running:
    """The command that a shell is running."""

    command: str
    nonce: str
    reader: framing.MarkReader
    keeper: Keeper
    on_output: OnOutput | None
    began_s: float
    sane: bool
    interrupted: bool = False
    probed: bool = False
    shown: bytes = b""
    """Output that earlier results gave out already; kept for the screen."""


class Terminal:
    """A shell on a terminal. Opening waits until it is ready for a command."""

    def __init__(
        self, backend: Backend, *, cwd: str | None, env: Mapping[str, str], size: PtySize | None = None
    ) -> None:
        check_env(env)
        self.size = size or PtySize()
        token = secrets.token_hex(12)
        self._backend = backend
        self._process: Process = backend.spawn(
            SpawnRequest(argv=framing.shell_argv(token), env={**TERMINAL_ENV, **env}, pty=self.size)
        )
        self._before: framing.Mark | None = None
        self._traps = False
        self._typed_ahead = False
        self._pending = b""
        self._running: _Running | None = None
        self.last_output = b""
        self.cwd = cwd or ""
        try:
            self._pid, kind = self._await_start(token)
            self._frame = framing.Frame(kind, f"cr_{secrets.token_hex(8)}", secrets.token_hex(12))
            self._enter(cwd)
        except BaseException:
            self._process.close()
            raise

    def _await_start(self, token: str) -> tuple[int, str]:
        deadline = Deadline.after(START_TIMEOUT_S)
        said = b""
        while True:
            chunk = self._process.read(min(_WAIT_S, deadline.remaining_s()))
            said += chunk.stdout
            found = framing.read_shell_start(token, said)
            if found is not None:
                return found
            if chunk.eof or deadline.passed:
                why = "ended at once" if chunk.eof else f"did not start within {START_TIMEOUT_S:g} s"
                raise BackendError(f"the shell {why}; it said {said[-500:]!r}")

    def _enter(self, cwd: str | None) -> None:
        self._type(self._frame.setup(cwd))
        result = self.run(":", deadline=Deadline.after(START_TIMEOUT_S), limit_bytes=4096)
        if result.ended or result.running:
            raise BackendError(f"the shell did not get ready; it said {result.output[-500:]!r}")
        self.cwd_refused = cwd is not None and self.cwd != posixpath.normpath(cwd)

    @property
    def command(self) -> str | None:
        """The command that runs now, or None."""
        return self._running.command if self._running else None

    @property
    def began_s(self) -> float:
        """When the running command began, on the monotonic clock; 0 when none runs."""
        return self._running.began_s if self._running else 0.0

    def run(
        self,
        command: str,
        *,
        deadline: Deadline,
        limit_bytes: int,
        stdin_tty: bool = False,
        on_output: OnOutput | None = None,
        yield_s: float | None = None,
    ) -> ShellResult:
        """Run one command. `deadline` counts from when the command begins (see Shell.run)."""
        nonce = secrets.token_hex(8)
        # Only a command that uses the terminal itself changes its modes; putting them right costs a process.
        sane = stdin_tty or "tty" in command
        self._traps = self._traps or framing.may_set_traps(command)
        typed = self._frame.command(
            command, nonce=nonce, before=self._before, stdin_tty=stdin_tty, sane=sane, traps=self._traps
        )
        if self._typed_ahead:
            # What was typed after the last program had ended, and is no whole line: Ctrl-U takes it back.
            typed, self._typed_ahead = b"\x15" + typed, False
        reader = framing.MarkReader(self._frame, nonce, typed)
        self._running = _Running(
            command, nonce, reader, Keeper(limit_bytes), on_output, time.monotonic(), sane
        )
        with self._stopping_on_error():
            began = self._begin(typed)
        if began is not None:
            return began
        shift_s = time.monotonic() - self._running.began_s
        return self.wait(Deadline(deadline.at_s + shift_s, deadline.cancel), yield_s)

    @contextmanager
    def _stopping_on_error(self) -> Iterator[None]:
        """A callback that raises, or Ctrl-C here, ends the command there too."""
        try:
            yield
        except (BackendError, Cancelled):
            raise
        except BaseException:
            if self._running is not None:
                self._running.on_output = None
                self._timed_out()
            raise

    def _begin(self, typed: bytes) -> ShellResult | None:
        """Type the command and wait for its start mark. A result only if the shell is gone or stuck."""
        assert self._running is not None
        reader = self._running.reader
        self._feed(b"")
        self._type(typed)
        deadline = Deadline.after(START_TIMEOUT_S + len(typed) / 50_000)
        while not reader.started and reader.mark is None:
            ended = self._pump(min(_WAIT_S, deadline.remaining_s()))
            if ended is None and deadline.passed:
                ended = self._abandon("the shell took no command any more and was closed")
            if ended is not None and not reader.started:
                raise NotBegun(ended.notice)
            if ended is not None:
                return ended
        return None

    def wait(self, deadline: Deadline, yield_s: float | None = None) -> ShellResult:
        """Wait for the running command's end; interrupt it at the deadline, or leave it after yield_s."""
        running = self._running
        if running is None:
            raise Closed("no command is running in this shell")
        with self._stopping_on_error():
            return self._wait(running, deadline, yield_s)

    def _wait(self, running: _Running, deadline: Deadline, yield_s: float | None) -> ShellResult:
        leave = None if yield_s is None else Deadline.after(yield_s)
        wait_s = _WAIT_MIN_S
        while True:
            if deadline.cancelled:
                result = self._timed_out()
                raise Cancelled("cancelled by the caller", stdout=result.captured.data)
            if running.reader.mark is not None:
                return self._finished()
            if leave is not None and leave.passed:
                return self._left_running()
            if deadline.passed:
                return self._timed_out()
            bound = min(wait_s, _CANCEL_WAIT_S) if deadline.cancel is not None else wait_s
            wait_s = min(wait_s * 2, _WAIT_S)
            if leave is not None:
                bound = min(bound, leave.remaining_s())
            ended = self._pump(min(bound, deadline.remaining_s()))
            if ended is not None:
                return ended

    def write(self, data: bytes, timeout_s: float = 5.0) -> int:
        """Type bytes as a person would; returns how many the terminal took.

        0 if the command has ended by now: the shell would take them for commands."""
        self._feed(self._process.read(0).stdout)
        if self._has_mark:
            return 0
        self._typed_ahead = True
        if b"\x03" in data:
            self._expect_prompt()
        return self._type(data, timeout_s)

    def interrupt(self) -> None:
        """Ctrl-C. If the command obeys, the next wait or poll reports its end."""
        self._expect_prompt()
        self._type(b"\x03")

    def _expect_prompt(self) -> None:
        running = self._running
        if running is not None:
            running.interrupted, running.probed, running.reader.prompted = True, False, False

    def resize(self, size: PtySize) -> None:
        """Change the terminal's size."""
        self.size = size
        self._process.resize(size.columns, size.rows)

    @property
    def is_alive(self) -> bool:
        """Whether the shell itself still runs."""
        return self._process.poll() is None

    def seen(self) -> bytes:
        """The output of the running command so far, else of the last one."""
        running = self._running
        return running.shown + running.keeper.take().data if running else self.last_output

    def close(self) -> None:
        """Hang up, and end what of the session does not obey."""
        # While a command runs, the thread that waits for it reads the terminal.
        pump = self._drain if self._running is None else time.sleep
        try:
            if self.is_alive:
                end_tree(
                    self._backend,
                    self._pid,
                    pump=pump,
                    done=lambda: not self.is_alive,
                    first="HUP",
                )
        except BackendError:
            pass  # the place is gone, and the shell with it
        finally:
            self._process.close()

    def _type(self, data: bytes, timeout_s: float = START_TIMEOUT_S) -> int:
        view = memoryview(data)
        deadline = Deadline.after(timeout_s + len(data) / 50_000)
        while view and not deadline.passed:
            # While the terminal takes no more, what the shell prints must be read, or both would wait.
            taken = self._process.write(bytes(view[:4096]), 0.02)
            view = view[taken:]
            if not taken:
                self._feed(self._process.read(0).stdout)
        return len(data) - len(view)

    def _drain(self, timeout_s: float) -> None:
        chunk = self._process.read(timeout_s)
        self._feed(chunk.stdout)
        if chunk.eof:
            time.sleep(timeout_s)

    def _feed(self, data: bytes) -> None:
        running = self._running
        if running is None:
            self._pending = (self._pending + data)[-65_536:]
            return
        if self._pending:
            data, self._pending = self._pending + data, b""
        out = running.reader.feed(data)
        if out:
            running.keeper.feed(out)
            if running.on_output is not None:
                running.on_output("stdout", out)
        reader = running.reader
        if reader.prompted and reader.mark is None and running.interrupted and not running.probed:
            # A prompt before the mark: the shell dropped the rest of the command's line. Only after an
            # interrupt of ours, or a program that prints our prompt could read the probe.
            self._probe(running)

    def _probe(self, running: _Running) -> None:
        """Ask for the mark, if the shell is at its prompt: a program that reads there must not see it."""
        if not front_processes(self._backend, self._pid):
            running.probed = True
            self._type(self._frame.probe(running.nonce, running.sane))
        running.reader.prompted = False

    def _pump(self, timeout_s: float) -> ShellResult | None:
        """Read once. A result only if the shell itself has ended."""
        chunk = self._process.read(timeout_s)
        self._feed(chunk.stdout)
        running = self._running
        if running is not None and running.reader.mark is not None:
            return None
        # The shell's death is seen from its process: a background child keeps the terminal open.
        if chunk.eof or (not chunk.stdout and self._process.poll() is not None):
            return self._shell_ended()
        return None

    def _finished(self) -> ShellResult:
        running = self._take_running()
        mark = running.reader.mark
        assert mark is not None
        self._before, self._pending, self.cwd = mark, running.reader.rest, mark.cwd
        notice = "" if mark.cwd_exists else f"the working directory {mark.cwd} no longer exists"
        return self._result(running, mark.status, notice=notice)

    def _left_running(self) -> ShellResult:
        assert self._running is not None
        running = self._running
        result = self._result(running, None, left_running=True)
        running.shown = self.seen()[-_SCREEN_BYTES:]
        running.keeper = Keeper(running.keeper.limit_bytes)
        return result

    def _shell_ended(
        self, notice: str = "the shell ended", survivors: tuple[Survivor, ...] = ()
    ) -> ShellResult:
        until = Deadline.after(GRACE_S)
        while (status := self._process.poll()) is None and not until.passed:
            time.sleep(0.001)
        for _ in range(1000):
            chunk = self._process.read(0)
            self._feed(chunk.stdout)
            if chunk.eof or not chunk.stdout:
                break
        running = self._take_running()
        running.keeper.feed(running.reader.flush())
        return self._result(
            running, status if status is not None else 137, ended=True, notice=notice, survivors=survivors
        )

    def _timed_out(self) -> ShellResult:
        survivors, how = self._stop()
        if self._running is None or self._running.reader.mark is None:
            return self._replace(survivors)
        result = self._finished()
        return replace(result, timed_out=True, survivors=survivors, notice=result.notice or how)

    def _replace(self, survivors: tuple[Survivor, ...]) -> ShellResult:
        result = self._abandon(
            "the command could not be ended without the shell; the shell was closed", survivors
        )
        return replace(result, timed_out=True)

    def _abandon(self, notice: str, survivors: tuple[Survivor, ...] = ()) -> ShellResult:
        left = end_tree(
            self._backend,
            self._pid,
            pump=self._drain,
            done=lambda: self._process.poll() is not None,
            first="KILL",
        )
        return self._shell_ended(notice, left or survivors)

    def _stop(self) -> tuple[tuple[Survivor, ...], str]:
        """Interrupt, terminate, kill: whatever it takes to have the shell back at its prompt."""
        self.interrupt()
        if self._back_within(GRACE_S):
            return (), "interrupted"
        survivors = end_tree(
            self._backend, self._pid, foreground=True, pump=self._drain, done=lambda: self._has_mark
        )
        if not self._back_within(GRACE_S) and self._running is not None:
            self.interrupt()
            self._back_within(GRACE_S)
        return survivors, "terminated"

    @property
    def _has_mark(self) -> bool:
        return self._running is None or self._running.reader.mark is not None

    def _back_within(self, seconds: float) -> bool:
        """Whether the shell is back at its prompt in so many seconds, not counting what a probe takes.

        A probe starts a process in the place, which may take long there."""
        deadline = Deadline.after(seconds)
        probe = Deadline.after(_PROBE_AFTER_S)
        probed = False
        while not self._has_mark and not deadline.passed:
            chunk = self._process.read(min(_CANCEL_WAIT_S, deadline.remaining_s()))
            self._feed(chunk.stdout)
            if chunk.eof or self._process.poll() is not None:
                return False
            running = self._running
            if running is not None and probe.passed and not running.probed:
                # A prompt that the command changed gives no hint.
                self._probe(running)
                probe = Deadline.after(_PROBE_AFTER_S)
            if running is not None and running.probed and not probed:
                probed, deadline = True, Deadline.after(seconds)
        return self._has_mark

    def _take_running(self) -> _Running:
        running, self._running = self._running, None
        assert running is not None
        return running

    def _result(
        self,
        running: _Running,
        status: int | None,
        *,
        left_running: bool = False,
        ended: bool = False,
        notice: str = "",
        survivors: tuple[Survivor, ...] = (),
    ) -> ShellResult:
        captured = running.keeper.take()
        if ended:
            head, tail = (
                framing.without_frame(part, running.command) for part in (captured.head, captured.tail)
            )
            captured = replace(captured, head=head, tail=tail)
        self.last_output = running.shown + captured.data
        return ShellResult(
            exit_code=status,
            captured=captured,
            cwd=self.cwd,
            running=left_running,
            ended=ended,
            notice=notice,
            duration_s=time.monotonic() - running.began_s,
            survivors=survivors,
        )
