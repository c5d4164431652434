"""One command: handed over to a waiting shell, read to its end, or ended before."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sandbox import shell
from sandbox.backend import Process
from sandbox.errors import BackendError, Cancelled, Closed
from sandbox.lane import LaneLost
from sandbox.limits import with_limit
from sandbox.output import Keeper, checked_limit
from sandbox.sweeper import Ending, Sweeper
from sandbox.values import (
    GRACE_S,
    START_TIMEOUT_S,
    Chunk,
    Deadline,
    ExecRequest,
    ExecResult,
    StreamName,
    Survivor,
)

_WAIT_MIN_S = 0.005
_WAIT_MAX_S = 0.25
_CANCEL_WAIT_S = 0.05
# A child in the background may hold the pipes for ever: after the command itself has ended, only what
# is already under way is read.
_DRAIN_QUIET_S = 0.1
_DRAIN_MAX_S = 2.0
_DRAIN_MAX_BYTES = 32 << 20
# The status of a program follows the end of its streams at once.
_EOF_WAIT_S = 0.00005
# A command that has run for so long is ended if this process dies (see `Sweeper.watch`).
_WATCH_AFTER_S = 0.25
_KILLED = 137
_COUNT_EVERY_S = 0.5
# What a watcher of the output is told only after the command was ended; then no more is read until then.
_HELD_BYTES = 1 << 20


class NotBegun(Exception):
    """The launcher ended before the command began: nothing ran."""

    def failure(self, stderr: bytes) -> BackendError:
        """The error for the caller: that of the place if it had one."""
        if isinstance(self.__cause__, BackendError):
            return self.__cause__
        return BackendError(str(self), stderr=stderr)


@dataclass
class Call:
    """A command and the shell that it was handed to. Used by one thread.

    mark     what its descendants inherit (see `sweep.py`)
    closing  set when the sandbox is being closed
    pid      of its shell, as seen in the place; 0 until the shell has said it
    raised   what the caller's callback raised
    """

    sweeper: Sweeper
    process: Process
    request: ExecRequest
    mark: str
    closing: threading.Event
    pid: int = 0
    started_s: float = 0.0
    reader: shell.StartReader | None = None
    raised: BaseException | None = None
    eof: bool = False
    status: int | None = None
    ran_away: bool = False
    counted_s: float = 0.0
    held: list[Chunk] = field(default_factory=list)
    held_bytes: int = 0
    keepers: dict[StreamName, Keeper] = field(init=False)

    def __post_init__(self) -> None:
        limit, spill = checked_limit(self.request.limit_bytes), self.request.spill
        self.keepers = {"stdout": Keeper(limit, spill), "stderr": Keeper(limit, spill)}

    def kept(self, stream: StreamName) -> bytes:
        """What is kept of one stream so far."""
        return self.keepers[stream].take().data

    def close_keepers(self) -> None:
        """Nothing more comes: spilled files are complete."""
        for keeper in self.keepers.values():
            keeper.close()

    def start(self, token: str, line: bytes) -> shell.Started:
        """Hand the command over and wait until it begins."""
        reader = self.reader = shell.StartReader(token)
        deadline = Deadline.after(START_TIMEOUT_S + len(line) / 100_000, self.request.cancel)
        self._feed(line)
        while True:
            if deadline.cancelled:
                raise Cancelled("cancelled before the command began")
            if deadline.passed:
                raise BackendError(
                    f"no shell started within {START_TIMEOUT_S:g} s; it said {reader.unread!r}"
                )
            chunk = self.process.read(min(_CANCEL_WAIT_S, deadline.remaining_s()))
            if chunk.stderr:
                self._take(Chunk(stderr=chunk.stderr))
            found = reader.feed(chunk.stdout)
            self.pid = reader.pid or 0
            if found is not None:
                started, rest = found
                self.started_s = time.monotonic()
                if started.cwd_error is None:
                    self._take(Chunk(stdout=rest))
                return started
            if chunk.eof:
                said = (reader.unread + self.kept("stderr")).decode("utf-8", "replace").strip()
                raise NotBegun(f"the place has no usable shell: {said[-500:] or 'sh ended at once'}")

    def _feed(self, line: bytes) -> None:
        """Write the launch line and the input; by a thread if the pipe does not take it at once."""
        stdin = self.request.stdin
        data = memoryview(line + (stdin or b""))
        try:
            data = data[self.process.write(bytes(data[:65_536]), 0) :]
        except BackendError as error:
            raise NotBegun(str(error)) from error
        if not data:
            if stdin is not None:
                self.process.close_stdin()
            return
        feeder = threading.Thread(
            target=_feed_rest, args=(self.process, data, stdin is not None), daemon=True, name="coderig-stdin"
        )
        try:
            feeder.start()
        except RuntimeError as error:
            raise BackendError(with_limit("cannot give the command its input", error)) from error

    def finish(self, timeout_s: float) -> ExecResult:
        """Read until the command has ended, or end it."""
        deadline = Deadline(self.started_s + timeout_s, self.request.cancel)
        wait_s, asked_s, watched = _WAIT_MIN_S, self.started_s, False
        while True:
            self._check_wanted(deadline)
            chunk = self._read(self._bounded(wait_s, deadline))
            self._take(chunk)
            now_s = time.monotonic()
            if not watched and now_s - self.started_s > _WATCH_AFTER_S:
                watched = True
                self.sweeper.watch(self.pid, mark=self.mark)
            if chunk.eof and not self.eof:
                self.eof, wait_s = True, _EOF_WAIT_S
            elif chunk.stdout or chunk.stderr:
                wait_s = _WAIT_MIN_S
                # A child in the background may write for ever: now and then, ask about the program itself.
                if now_s - asked_s < _WAIT_MAX_S and now_s < deadline.at_s:
                    continue
            else:
                wait_s = min(wait_s * 2, _CANCEL_WAIT_S if self.eof else _WAIT_MAX_S)
            asked_s = now_s
            if self.status is None:
                self.status = self.process.poll()
                if self.status is not None:
                    self._drain()
            if self.status is not None and self._is_over(now_s):
                return self._result(self.status)
            if deadline.passed:
                self._check_wanted(deadline)  # the callback may have cancelled meanwhile
                return self._time_out()

    def _is_over(self, now_s: float) -> bool:
        """Whether the call is over, now that the command has ended.

        It is not if what it left multiplies until the place is full. One that ended at once and whose
        streams nobody holds is not asked about."""
        if self.ran_away:
            # Each look holds everything there still for a moment.
            if now_s - self.counted_s < _COUNT_EVERY_S:
                return False
            self.counted_s = now_s
            return self.sweeper.has_settled(self.pid, self.mark)
        if self.eof and now_s - self.started_s < _WATCH_AFTER_S:
            return True
        self.ran_away = self.sweeper.has_run_away(self.pid, self.mark)
        return not self.ran_away

    def _check_wanted(self, deadline: Deadline) -> None:
        """End the command if the sandbox is being closed or the caller cancelled."""
        if self.closing.is_set():
            self._kill()
            raise Closed("the sandbox was closed while the command ran; it was ended")
        if deadline.cancelled:
            self._kill()
            raise Cancelled("cancelled by the caller", stdout=self.kept("stdout"), stderr=self.kept("stderr"))

    def _bounded(self, wait_s: float, deadline: Deadline) -> float:
        cap = _CANCEL_WAIT_S if deadline.cancel is not None else wait_s
        return min(wait_s, cap, deadline.remaining_s())

    def _read(self, timeout_s: float) -> Chunk:
        """What came; once the streams are closed, only time passes: the program may go on without them."""
        if self.eof:
            time.sleep(timeout_s)
            return Chunk(eof=True)
        return self.process.read(timeout_s)

    def _take(self, chunk: Chunk) -> None:
        self._keep(chunk)
        self._tell(chunk)

    def _keep(self, chunk: Chunk) -> None:
        self.keepers["stdout"].feed(chunk.stdout)
        self.keepers["stderr"].feed(chunk.stderr)

    def _tell(self, chunk: Chunk) -> None:
        on_output = self.request.on_output
        if on_output is None:
            return
        try:
            if chunk.stdout:
                on_output("stdout", chunk.stdout)
            if chunk.stderr:
                on_output("stderr", chunk.stderr)
        except BaseException as error:
            self.raised = error
            raise

    def _drain(self) -> None:
        """Read what is under way. Only the reading is timed: a slow watcher loses nothing."""
        spent_s, size = 0.0, 0
        while not self.eof and spent_s < _DRAIN_MAX_S and size < _DRAIN_MAX_BYTES:
            began_s = time.monotonic()
            chunk = self.process.read(_DRAIN_QUIET_S)
            spent_s += time.monotonic() - began_s
            size += len(chunk.stdout) + len(chunk.stderr)
            self._take(chunk)
            self.eof = chunk.eof
            if not (chunk.stdout or chunk.stderr):
                return

    def _kill(self) -> Ending:
        ending = self.sweeper.end(
            self.pid,
            mark=self.mark,
            pump=self._pump,
            done=self._has_ended,
            orphaned=self.status is not None,
        )
        held, self.held, self.held_bytes = self.held, [], 0
        for chunk in held:
            self._tell(chunk)
        self._drain()
        return ending

    def _time_out(self) -> ExecResult:
        ending = self._kill()
        if ending.gone:
            # It had just ended by itself.
            until = Deadline.after(5 * GRACE_S)
            while self.status is None and not until.passed:
                time.sleep(_WAIT_MIN_S)
                self.status = self.process.poll()
            if self.status is not None and self._is_over(time.monotonic()):
                return self._result(self.status)
            ending = self._kill()
        status = _KILLED if self.status is not None else self._last_status()
        return self._result(status, timed_out=True, survivors=ending.survivors)

    def _last_status(self) -> int:
        try:
            status = self.process.poll()
        except LaneLost:
            status = None
        return _KILLED if status is None else status

    def abandon(self) -> None:
        """End what still runs, without the caller's callback."""
        self.request = replace(self.request, on_output=None, cancel=None)
        # What brought us here is what the caller is told; a place that fails now adds nothing.
        with suppress(BackendError):
            self._find_out_pid()
            if self.pid and not self._has_ended():
                self._kill()

    def _find_out_pid(self) -> None:
        """The command's line is on its way: without its pid, it would run after all."""
        deadline = Deadline.after(2 * GRACE_S)
        while self.reader is not None and not self.pid and not deadline.passed:
            chunk = self.process.read(deadline.remaining_s())
            self.reader.feed(chunk.stdout)
            self.pid = self.reader.pid or 0
            if chunk.eof:
                return

    def _has_ended(self) -> bool:
        try:
            return self.status is not None or self.process.poll() is not None
        except LaneLost:
            return False

    def _pump(self, timeout_s: float) -> None:
        """Let time pass while the tree is being ended, and keep its output: a full pipe would hold it up.

        The caller's callback is not called meanwhile: a slow one would hold it up, too."""
        until = Deadline.after(timeout_s)
        while True:
            if self.eof or self.held_bytes >= _HELD_BYTES:
                time.sleep(until.remaining_s())
                return
            chunk = self.process.read(until.remaining_s())
            self.eof = chunk.eof
            self._keep(chunk)
            if self.request.on_output is not None and (chunk.stdout or chunk.stderr):
                self.held.append(chunk)
                self.held_bytes += len(chunk.stdout) + len(chunk.stderr)
            if until.passed:
                return

    def _result(
        self, status: int, *, timed_out: bool = False, survivors: tuple[Survivor, ...] = ()
    ) -> ExecResult:
        self.close_keepers()
        return ExecResult(
            exit_code=status,
            stdout_output=self.keepers["stdout"].take(),
            stderr_output=self.keepers["stderr"].take(),
            timed_out=timed_out,
            duration_s=time.monotonic() - self.started_s,
            survivors=survivors,
        )


def _feed_rest(process: Process, data: memoryview, close: bool) -> None:
    try:
        while data and process.poll() is None:
            data = data[process.write(bytes(data[:262_144]), 0.25) :]
        if close:
            process.close_stdin()
    except (BackendError, OSError, ValueError):
        # The reader of the same process meets the same failure and reports it; ValueError: closed meanwhile.
        return
