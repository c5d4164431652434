"""A running sweep program: lines to it, answers from it."""

from __future__ import annotations

import secrets
import time

from sandbox import sweep
from sandbox.backend import Backend, Process
from sandbox.errors import BackendError
from sandbox.values import GRACE_S, START_TIMEOUT_S, Deadline, SpawnRequest

_ANSWER_S = 10.0
_TAKE_S = 1.0
_LOOK_S = 0.005


class SweepLink:
    """A running sweep program. Not thread-safe."""

    def __init__(self, backend: Backend, *, spare: bool) -> None:
        """Start one and wait until it is ready. Raises BackendError."""
        self._token = secrets.token_hex(8)
        self._buffer = b""
        self._number = 0
        self._over = False
        self._process: Process = backend.spawn(SpawnRequest(argv=sweep.sweep_argv(self._token), spare=spare))
        try:
            words = self._line(Deadline.after(START_TIMEOUT_S)).split()
            if words[:1] != [b"ready"]:
                raise BackendError(f"the sweep program said {words!r}")
        except BaseException:
            self._process.close()
            raise

    def ask(self, ask: sweep.Ask) -> sweep.Seen | None:
        """One pass. Raises BackendError if the program does not answer."""
        self._number += 1
        self.tell(ask.line(self._number))
        line = self._line(Deadline.after(_ANSWER_S))
        try:
            return sweep.read_answer(line, self._number)
        except ValueError as error:
            raise BackendError(str(error)) from error

    def tell(self, line: bytes) -> None:
        """Write a line. A program that does not take it has ended, or stands still: that is its end too."""
        until = Deadline.after(_TAKE_S)
        while line and not self._over:
            line = line[self._process.write(line, 0.1) :]
            if line and until.passed:
                self._over = True

    def is_over(self) -> bool:
        """Whether the program has ended by itself."""
        chunk = self._process.read(0)
        self._buffer += chunk.stdout
        self._over = self._over or chunk.eof
        return self._over

    def _line(self, deadline: Deadline) -> bytes:
        token = self._token.encode() + b" "
        while True:
            at = self._buffer.find(token)
            end = self._buffer.find(b"\n", at) if at >= 0 else -1
            if end >= 0:
                line, self._buffer = self._buffer[at + len(token) : end], self._buffer[end + 1 :]
                return line
            if self._over:
                raise BackendError("the program that ends others has ended itself")
            if deadline.passed:
                raise BackendError("the program that ends others does not answer")
            chunk = self._process.read(0.02)
            self._buffer += chunk.stdout
            self._over = chunk.eof

    def end(self) -> bool:
        """Say farewell and wait until the program has ended; whether it has within a second."""
        until = Deadline.after(GRACE_S)
        try:
            self.tell(sweep.BYE)
            while not self._over and not until.passed:
                self._over = self._process.read(until.remaining_s()).eof
            # Its room is free when it has ended, which is a little after it fell silent.
            while self._process.poll() is None and not until.passed:
                time.sleep(_LOOK_S)
        except BackendError:
            self._over = True
        finally:
            self._process.close()
        return self._over

    def close(self, *, farewell: bool = True) -> None:
        """Let go; without a farewell, the program ends what it watches. Never fails."""
        try:
            if farewell and not self._over:
                self._process.write(sweep.BYE, 0)
            self._process.close_stdin()
        except BackendError:
            pass  # the place is gone, and the program with it
        finally:
            self._process.close()
