"""One program to its end: start, input, output, deadline."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from sandbox import shell
from sandbox.backend import Backend, Process
from sandbox.errors import (
    BackendError,
    Cancelled,
    Closed,
    FileError,
    NotADirectory,
    NotFound,
    PermissionDenied,
    RequestError,
)
from sandbox.lane import LaneLost
from sandbox.output import Keeper, checked_limit, checked_spill
from sandbox.sweep import end_tree
from sandbox.values import (
    DEFAULT_TIMEOUT_S,
    GRACE_S,
    MAX_TIMEOUT_S,
    START_TIMEOUT_S,
    Chunk,
    Deadline,
    ExecRequest,
    ExecResult,
    StreamName,
    Survivor,
)
from sandbox.warm import GivingBack, Launchers

_WAIT_MIN_S = 0.005
_WAIT_MAX_S = 0.25
_CANCEL_WAIT_S = 0.05
# A child in the background may hold the pipes for ever: after the command itself has ended, only what
# is already under way is read.
_DRAIN_QUIET_S = 0.1
_DRAIN_MAX_S = 2.0
_MARKER = "CODERIG_EXEC"


class Executor:
    """Runs commands on one backend. Thread-safe.

    env      set for every command
    warm     start the shells of commands ahead (see `warm.py`)
    backend  the backend, as everything that starts programs there should use it
    """

    def __init__(self, backend: Backend, env: Mapping[str, str], *, warm: bool = True) -> None:
        self.backend = GivingBack(backend)
        self._launchers = Launchers(self.backend, prelude=shell.prelude(env), warm=warm)
        self.backend.give_back = self._launchers.give_back
        self._closing = threading.Event()
        self._active = 0
        self._changed = threading.Condition()

    def close(self) -> None:
        """End the commands that run, and start no other. They raise Closed in their callers."""
        self._closing.set()
        with self._changed:
            self._changed.wait_for(lambda: self._active == 0, timeout=5 * GRACE_S)
        self._launchers.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            if self._closing.is_set():
                raise Closed("the sandbox is closed")
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def run(self, request: ExecRequest, *, cwd: str | None) -> ExecResult:
        """Run one request to its end; `cwd` is already complete. See ExecRequest, ExecResult.

        Raises RequestError before anything ran, NotFound or NotADirectory if the working directory
        cannot be entered (nothing ran), Cancelled after the tree was killed, BackendError with the
        output so far."""
        timeout_s = checked_timeout(request.timeout_s)
        checked_limit(request.limit_bytes)
        checked_spill(request.spill)
        marker = secrets.token_hex(12)
        line = shell.launch_line(
            request.command,
            cwd=cwd,
            env={**request.env, _MARKER: marker},
            has_stdin=request.stdin is not None,
        )
        with self._counted():
            return self._run(request, line, f"{_MARKER}={marker}", str(cwd), timeout_s)

    def _run(self, request: ExecRequest, line: bytes, marker: str, cwd: str, timeout_s: float) -> ExecResult:
        launcher = self._launchers.take(len(line) + len(request.stdin or b""), request.stdin is not None)
        while True:
            call = _Call(self.backend, launcher.process, request, marker, self._closing)
            try:
                started = call.start(launcher.token, line)
                self._launchers.learn(started.shell)
                if started.cwd_error is not None:
                    raise cwd_failure(cwd, started.cwd_error)
                return call.finish(timeout_s)
            except _NotBegun as error:
                if not launcher.waited:
                    raise BackendError(str(error), stderr=call.kept("stderr")) from None
            except BackendError as error:
                error.stdout, error.stderr = call.kept("stdout"), call.kept("stderr")
                if isinstance(error, LaneLost):
                    call.abandon()
                raise
            except FileError:
                raise
            except BaseException:
                # A callback that raised, Ctrl-C, a cancellation while the command was starting.
                call.abandon()
                raise
            finally:
                launcher.process.close()
                call.close_keepers()
            launcher = self._launchers.new()


def checked_timeout(timeout_s: float) -> float:
    """The timeout to use: the default for 0 or less; RequestError for what is not a sane number."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s != timeout_s:
        raise RequestError(f"timeout_s must be a number of seconds, not {timeout_s!r}")
    if timeout_s > MAX_TIMEOUT_S:
        raise RequestError(f"timeout_s is {timeout_s:g}; at most {MAX_TIMEOUT_S:g} seconds are allowed")
    return float(timeout_s) if timeout_s > 0 else DEFAULT_TIMEOUT_S


def cwd_failure(cwd: str, why: str) -> FileError:
    """The error for a working directory that a shell could not enter; nothing ran."""
    operation = "enter working directory"
    if why == "denied":
        return PermissionDenied(operation, cwd, "permission denied; nothing was run")
    if why == "file":
        return NotADirectory(operation, cwd, "not a directory; nothing was run")
    return NotFound(operation, cwd, "no such directory; nothing was run")


class _NotBegun(Exception):
    """The launcher ended before the command began: nothing ran."""


@dataclass
class _Call:
    backend: Backend
    process: Process
    request: ExecRequest
    marker: str
    closing: threading.Event
    pid: int = 0
    started_s: float = 0.0
    reader: shell.StartReader | None = None
    keepers: dict[StreamName, Keeper] = field(init=False)

    def __post_init__(self) -> None:
        limit, spill = checked_limit(self.request.limit_bytes), self.request.spill
        self.keepers = {"stdout": Keeper(limit, spill), "stderr": Keeper(limit, spill)}

    def kept(self, stream: StreamName) -> bytes:
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
                raise _NotBegun(f"the place has no usable shell: {said[-500:] or 'sh ended at once'}")

    def _feed(self, line: bytes) -> None:
        """Write the launch line and the input; by a thread if the pipe does not take it at once."""
        stdin = self.request.stdin
        data = memoryview(line + (stdin or b""))
        data = data[self.process.write(bytes(data[:65_536]), 0) :]
        if not data:
            if stdin is not None:
                self.process.close_stdin()
            return
        threading.Thread(
            target=_feed_rest, args=(self.process, data, stdin is not None), daemon=True, name="coderig-stdin"
        ).start()

    def finish(self, timeout_s: float) -> ExecResult:
        """Read until the command has ended, or end it."""
        deadline = Deadline(self.started_s + timeout_s, self.request.cancel)
        wait_s = _WAIT_MIN_S
        while True:
            if self.closing.is_set():
                self._kill()
                raise Closed("the sandbox was closed while the command ran; it was ended")
            if deadline.cancelled:
                self._kill()
                raise Cancelled(
                    "cancelled by the caller", stdout=self.kept("stdout"), stderr=self.kept("stderr")
                )
            if deadline.passed and self.process.poll() is None:
                survivors = self._kill()
                return self._result(self.process.poll(), timed_out=True, survivors=survivors)
            chunk = self.process.read(self._bounded(wait_s, deadline))
            self._take(chunk)
            if chunk.eof:
                return self._result(self._wait(deadline))
            if chunk.stdout or chunk.stderr:
                wait_s = _WAIT_MIN_S
                continue
            wait_s = min(wait_s * 2, _WAIT_MAX_S)
            if self.process.poll() is not None:
                self._drain()
                return self._result(self.process.poll())

    def _bounded(self, wait_s: float, deadline: Deadline) -> float:
        cap = _CANCEL_WAIT_S if deadline.cancel is not None else wait_s
        return min(wait_s, cap, deadline.remaining_s())

    def _take(self, chunk: Chunk) -> None:
        for name, data in (("stdout", chunk.stdout), ("stderr", chunk.stderr)):
            if data:
                stream: StreamName = "stdout" if name == "stdout" else "stderr"
                self.keepers[stream].feed(data)
                if self.request.on_output is not None:
                    self.request.on_output(stream, data)

    def _wait(self, deadline: Deadline) -> int | None:
        """The streams are closed; the program may go on, or its status be a moment behind."""
        pause_s = 0.00005
        while (status := self.process.poll()) is None:
            if deadline.cancelled or deadline.passed:
                return None
            time.sleep(min(pause_s, deadline.remaining_s()))
            pause_s = min(pause_s * 2, _CANCEL_WAIT_S)
        return status

    def _drain(self) -> None:
        until = Deadline.after(_DRAIN_MAX_S)
        while not until.passed:
            chunk = self.process.read(_DRAIN_QUIET_S)
            self._take(chunk)
            if chunk.eof or not (chunk.stdout or chunk.stderr):
                return

    def _kill(self) -> tuple[Survivor, ...]:
        survivors = end_tree(
            self.backend,
            self.pid,
            marker=self.marker,
            pump=self._pump,
            done=self._has_ended,
        )
        self._drain()
        return survivors

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
            return self.process.poll() is not None
        except LaneLost:
            return False

    def _pump(self, timeout_s: float) -> None:
        """Take output that arrives while the tree is being ended; a full pipe would hold it up."""
        chunk = self.process.read(timeout_s)
        self._take(chunk)
        if chunk.eof:
            time.sleep(timeout_s)

    def _result(
        self, status: int | None, *, timed_out: bool = False, survivors: tuple[Survivor, ...] = ()
    ) -> ExecResult:
        if status is None and not timed_out:
            # The program closed its streams and lived on until its time or the caller's patience ended.
            survivors = self._kill()
            if self.request.cancel is not None and self.request.cancel.is_set():
                raise Cancelled(
                    "cancelled by the caller", stdout=self.kept("stdout"), stderr=self.kept("stderr")
                )
            status, timed_out = self.process.poll(), True
        return ExecResult(
            exit_code=status if status is not None else 137,
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
