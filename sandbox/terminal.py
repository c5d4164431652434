"""One shell on one terminal: open it, run a command in it, go on waiting, type, interrupt, close.

One thread runs or polls; `shells.py` sees to that, and gives it a name. Others may type, interrupt, resize
and look at the screen meanwhile. How a command or the shell is
ended is in `ending.py`, the bytes on the terminal in `line.py`.
"""

from __future__ import annotations

import posixpath
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from sandbox import ending, framing
from sandbox.backend import Backend
from sandbox.errors import BackendError, Cancelled
from sandbox.keyboard import Keyboard
from sandbox.line import Line, Running
from sandbox.marks import Mark, MarkReader
from sandbox.output import Keeper, split_end
from sandbox.shell import check_env, check_text
from sandbox.spill import SpillStore
from sandbox.sweep import new_mark
from sandbox.sweeper import Sweeper
from sandbox.values import GRACE_S, START_TIMEOUT_S, Deadline, OnOutput, PtySize, ShellResult, Survivor

_WAIT_MIN_S = 0.005
_WAIT_S = 0.25
_CANCEL_WAIT_S = 0.05
_MOMENT_S = 0.00025
"""For how long a shell that has answered is taken to live; less than it takes to end one from outside."""
_CATCH_UP = 64
"""How many reads a look takes at most, so that endless output does not hold it."""


class NotBegun(Exception):
    """The shell was gone or stuck before the command began; nothing ran, so it may be run elsewhere."""


class Terminal:
    """A shell on a terminal. Opening waits until it is ready for a command."""

    def __init__(
        self,
        backend: Backend,
        sweeper: Sweeper,
        *,
        cwd: str | None,
        env: Mapping[str, str],
        size: PtySize | None = None,
    ) -> None:
        check_env(env)
        self.size = size or PtySize()
        self._line = Line(backend, sweeper, env, self.size)
        self._keyboard = Keyboard(self._line, backend)
        self._before: Mark | None = None
        self._traps = False
        self._jobs = False
        self._answered_s = -_MOMENT_S
        self.cwd = cwd or ""
        try:
            self._enter(cwd)
        except BaseException:
            ending.hang_up(self._line)
            raise

    def _enter(self, cwd: str | None) -> None:
        self._line.type(self._line.frame.setup(cwd))
        result = self.run(":", deadline=Deadline.after(START_TIMEOUT_S), limit_bytes=4096)
        if result.ended or result.running:
            raise BackendError(f"the shell did not get ready; it said {result.output[-500:]!r}")
        self.cwd_refused = cwd is not None and self.cwd != posixpath.normpath(cwd)

    @property
    def command(self) -> str | None:
        """The command that runs now, or None."""
        running = self._line.running
        return running.command if running else None

    @property
    def began_s(self) -> float:
        """When the running command began, on the monotonic clock; 0 when none runs."""
        running = self._line.running
        return running.began_s if running else 0.0

    def run(
        self,
        command: str,
        *,
        deadline: Deadline,
        limit_bytes: int,
        spill: SpillStore | None = None,
        stdin_tty: bool = False,
        on_output: OnOutput | None = None,
        yield_s: float | None = None,
    ) -> ShellResult:
        """Run one command. `deadline` counts from when the command begins (see Shell.run)."""
        check_text("the command", command)
        line, nonce = self._line, secrets.token_hex(8)
        # Only a command that uses the terminal itself changes its modes; putting them right costs a process.
        sane = stdin_tty or "tty" in command
        self._traps = self._traps or framing.may_set_traps(command)
        mark = new_mark() if framing.may_leave_behind(command) else ""
        self._jobs = self._jobs or mark != ""
        what = framing.Framed(
            text=command,
            nonce=nonce,
            before=self._before,
            stdin_tty=stdin_tty,
            sane=sane,
            traps=self._traps,
            announced=self._is_announced(stdin_tty or yield_s is not None),
            mark=mark,
        )
        typed = line.frame.command(what)
        prompts = self._before is not None and "R" in self._before.flags
        reader = MarkReader(nonce, line.frame.hint, typed, awaited=what.announced, prompts=prompts)
        keeper = Keeper(limit_bytes, spill)
        running = Running(command, nonce, reader, keeper, on_output, time.monotonic(), sane, mark)
        self._line.screen.restart()
        self._keyboard.restart()
        self._line.running = running
        try:
            with line.reading:
                line.feed(b"")
            line.type_command(typed)
            if what.announced:
                began = self._begin(running, typed)
                if began is not None:
                    return began
                shift_s = time.monotonic() - running.began_s
                deadline = Deadline(deadline.at_s + shift_s, deadline.cancel)
            return self._wait(running, deadline, yield_s)
        except (BackendError, Cancelled):
            raise
        except BaseException:
            # A callback that raises, or Ctrl-C here, ends the command there too.
            if line.running is not None:
                line.running.on_output = None
                self._timed_out()
            raise

    def _is_announced(self, is_watched: bool) -> bool:
        """Whether the next command has to say that it begins, which costs a message of its own.

        It tells a command that never ran from one that ended its shell, and what it prints from what the
        shell says of jobs that have ended. A shell that answered a moment ago was not lost unnoticed, unless
        a trap of the caller's can end it with any status."""
        before = self._before
        settled = before is not None and "R" not in before.flags and self._line.frame.may_be_silent
        late = time.monotonic() - self._answered_s > _MOMENT_S
        return is_watched or self._traps or self._jobs or not settled or late

    def _begin(self, running: Running, typed: bytes) -> ShellResult | None:
        """Wait for the command's start mark. A result only if the shell is gone or stuck."""
        reader = running.reader
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

    def _wait(self, running: Running, deadline: Deadline, yield_s: float | None) -> ShellResult:
        leave = None if yield_s is None else Deadline.after(yield_s)
        wait_s = _WAIT_MIN_S
        while True:
            if deadline.cancelled:
                result = self._timed_out()
                raise Cancelled("cancelled by the caller", stdout=result.captured.data)
            if running.reader.mark is not None:
                return self._finished()
            if leave is not None and leave.passed:
                return self._left_running(running)
            if deadline.passed:
                return self._timed_out()
            bound = min(wait_s, _CANCEL_WAIT_S) if deadline.cancel is not None else wait_s
            wait_s = min(wait_s * 2, _WAIT_S)
            if leave is not None:
                bound = min(bound, leave.remaining_s())
            ended = self._pump(min(bound, deadline.remaining_s()))
            if ended is not None:
                return ended

    def poll(self, wait: Deadline) -> ShellResult:
        """The new output of a command that was left running, or its end. Nothing ends the command here."""
        running = self._line.running
        assert running is not None
        wait_s = _WAIT_MIN_S
        while not wait.passed:
            if wait.cancelled:
                raise Cancelled("cancelled while waiting for a command; it runs on")
            bound = min(wait_s, _CANCEL_WAIT_S) if wait.cancel is not None else wait_s
            wait_s = min(wait_s * 2, _WAIT_S)
            ended = self._pump(min(bound, wait.remaining_s()))
            if ended is not None:
                return ended
            if running.reader.mark is not None:
                return self._finished()
        return self._look(running)

    def _look(self, running: Running) -> ShellResult:
        for _ in range(_CATCH_UP):
            chunk = self._line.read(0)
            if running.reader.mark is not None:
                return self._finished()
            if chunk.eof or (not chunk.stdout and not self._line.is_alive):
                return self._shell_ended()
            if not chunk.stdout:
                break
        return self._left_running(running)

    def write(self, data: bytes, timeout_s: float) -> int:
        """Type bytes (see Shell.write); returns how many the terminal took. 0 if the command has ended."""
        return self._keyboard.write(data, timeout_s)

    def interrupt(self) -> None:
        """Ctrl-C. If the command obeys, the next poll reports its end."""
        self._keyboard.interrupt()

    def has_finished(self) -> bool:
        """Whether the running command has ended, and only its end is still to be polled."""
        self._line.glance()
        return self._line.has_mark

    def screen(self) -> str:
        """What a person would see of the last command, as far as it has come."""
        if self._line.running is not None:
            self._line.glance()
        return self._line.screen.text()

    def unread(self) -> bytes:
        """What the running command has printed since its last result."""
        running = self._line.running
        return running.keeper.take().data if running is not None else b""

    def resize(self, size: PtySize) -> None:
        """Change the terminal's size."""
        self.size = size
        # Before the program knows: what it prints from then on is meant for the new size.
        self._line.screen.resize(size)
        self._line.process.resize(size.columns, size.rows)

    @property
    def is_alive(self) -> bool:
        """Whether the shell itself still runs."""
        return self._line.is_alive

    def close(self) -> None:
        """Hang up, and end what of the session does not obey."""
        running = self._line.running
        try:
            ending.hang_up(self._line)
        finally:
            if running is not None:
                running.keeper.close()

    def _pump(self, timeout_s: float) -> ShellResult | None:
        """Read once. A result only if the shell itself has ended."""
        chunk = self._line.read(timeout_s)
        running = self._line.running
        if running is not None and running.reader.mark is not None:
            return None
        # The shell's death is seen from its process: a background child keeps the terminal open.
        if chunk.eof or (not chunk.stdout and not self._line.is_alive):
            return self._shell_ended()
        if running is not None and running.stuck_s and time.monotonic() - running.stuck_s > GRACE_S:
            return self._abandon("the shell cannot answer any more (limits? set -n?) and was closed")
        return None

    def _finished(self) -> ShellResult:
        with self._line.reading:
            running = self._line.take_running()
        mark = running.reader.mark
        assert mark is not None
        self._before, self.cwd, self._answered_s = mark, mark.cwd, time.monotonic()
        with suppress(BackendError):  # the next use meets the same failure; this result is whole
            self._line.release(running)
        notice = "" if mark.cwd_exists else f"the working directory {mark.cwd} no longer exists"
        return self._result(running, mark.status, notice=notice)

    def _left_running(self, running: Running) -> ShellResult:
        with self._line.reading:
            result = self._result(running, None, left_running=True)
            # Half a character belongs to the next part, where its rest will be.
            captured, half = split_end(result.captured)
            running.keeper = Keeper(running.keeper.limit_bytes, running.keeper.store)
            running.keeper.feed(half)
        return replace(result, captured=captured)

    def _shell_ended(
        self, notice: str = "the shell ended", survivors: tuple[Survivor, ...] = ()
    ) -> ShellResult:
        status = ending.last_status(self._line)
        with self._line.reading:
            running = self._line.take_running()
        last = running.reader.flush()
        running.keeper.feed(last)
        self._line.screen.feed(last)
        return self._result(
            running, 137 if status is None else status, ended=True, notice=notice, survivors=survivors
        )

    def _timed_out(self) -> ShellResult:
        survivors, how = ending.stop_command(self._line)
        if self._line.running is None or self._line.running.reader.mark is None:
            result = self._abandon(
                "the command could not be ended without the shell; the shell was closed", survivors
            )
            return replace(result, timed_out=True)
        result = self._finished()
        return replace(result, timed_out=True, survivors=survivors, notice=result.notice or how)

    def _abandon(self, notice: str, survivors: tuple[Survivor, ...] = ()) -> ShellResult:
        left = ending.kill_shell(self._line)
        return self._shell_ended(notice, left or survivors)

    def _result(
        self,
        running: Running,
        status: int | None,
        *,
        left_running: bool = False,
        ended: bool = False,
        notice: str = "",
        survivors: tuple[Survivor, ...] = (),
    ) -> ShellResult:
        running.keeper.close()
        captured = running.keeper.take()
        if ended:
            as_typed = self._line.frame.as_typed
            head, tail = (as_typed(part, running.command) for part in (captured.head, captured.tail))
            captured = replace(captured, head=head, tail=tail)
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
