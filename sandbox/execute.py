"""Commands that run to their end, each in a shell of its own; see `call.py` for one of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sandbox import shell
from sandbox.backend import Backend
from sandbox.call import Call, NotBegun
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
from sandbox.output import checked_limit, checked_spill
from sandbox.sweep import MARKER, new_mark
from sandbox.sweeper import Sweeper
from sandbox.values import (
    DEFAULT_TIMEOUT_S,
    GRACE_S,
    MAX_TIMEOUT_S,
    ExecRequest,
    ExecResult,
    OnOutput,
)
from sandbox.warm import GivingBack, Launchers


class Executor:
    """Runs commands on one backend. Thread-safe.

    env      set for every command
    warm     start the shells of commands ahead (see `warm.py`)
    backend  the backend, as everything that starts programs there should use it
    sweeper  what ends process trees there; `close` leaves it running, for the shells
    """

    def __init__(self, backend: Backend, env: Mapping[str, str], *, warm: bool = True) -> None:
        self.backend = GivingBack(backend)
        self._launchers = Launchers(self.backend, prelude=shell.prelude(env), warm=warm)
        self.sweeper = Sweeper(self.backend)
        self.backend.give_back = lambda: self._launchers.give_back() or self.sweeper.give_back()
        self._closing = threading.Event()
        self._active = 0
        self._changed = threading.Condition()

    def close(self) -> None:
        """End the commands that run, and start no other. They raise Closed in their callers."""
        self._closing.set()
        with self._changed:
            bound_s = 5 * GRACE_S + 0.5 * self._active
            self._changed.wait_for(lambda: self._active == 0, timeout=bound_s)
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
        check_kinds(request.stdin, request.on_output, request.cancel)
        shell.check_env(request.env)
        mark = new_mark()
        line = shell.launch_line(
            request.command,
            cwd=cwd,
            env={**request.env, MARKER: mark},
            mark=mark,
            has_stdin=request.stdin is not None,
        )
        with self._counted():
            if request.cancel is not None and request.cancel.is_set():
                raise Cancelled("cancelled before the command began; nothing was run")
            self.sweeper.prepare()
            return self._run(request, line, mark, str(cwd), timeout_s)

    def _run(self, request: ExecRequest, line: bytes, mark: str, cwd: str, timeout_s: float) -> ExecResult:
        launcher = self._launchers.take(len(line) + len(request.stdin or b""), request.stdin is not None)
        while True:
            call = Call(self.sweeper, launcher.process, request, mark, self._closing)
            try:
                started = call.start(launcher.token, launcher.head + line)
                self._launchers.learn(started.shell)
                if started.cwd_error is not None:
                    raise cwd_failure(cwd, started.cwd_error)
                return call.finish(timeout_s)
            except NotBegun as error:
                if not launcher.waited:
                    raise error.failure(call.kept("stderr")) from None
            except BackendError as error:
                error.stdout, error.stderr = call.kept("stdout"), call.kept("stderr")
                if isinstance(error, LaneLost) or error is call.raised:
                    call.abandon()
                raise
            except FileError as error:
                if error is call.raised:
                    call.abandon()
                raise
            except BaseException:
                # A callback that raised, Ctrl-C, a cancellation while the command was starting.
                call.abandon()
                raise
            finally:
                self.sweeper.forget(call.pid)
                launcher.process.close()
                call.close_keepers()
            launcher = self._launchers.new()


def check_kinds(
    stdin: bytes | None = None, on_output: OnOutput | None = None, cancel: threading.Event | None = None
) -> None:
    """RequestError for an argument of a wrong kind; a place would meet it in the middle of a command."""
    if not isinstance(stdin, bytes | bytearray | memoryview | None):
        raise RequestError(f"stdin must be bytes, not {shell.shown(stdin)}")
    if on_output is not None and not callable(on_output):
        raise RequestError(f"on_output must be a function, not {shell.shown(on_output)}")
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise RequestError(f"cancel must be a threading.Event, not {shell.shown(cancel)}")


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
