"""`coderig exec`: one command in a place, its bytes passed through."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from coderig.guard import UsageError, complain
from coderig.place import parse_place
from coderig.signals import on_signals
from coderig.terminal_io import OutputGone, Stream
from sandbox import Cancelled
from sandbox.values import MAX_TIMEOUT_S, StreamName

TIMED_OUT = 124


def run_one(
    command: Sequence[str], place: str, timeout_s: float, cwd: str | None, env: Sequence[str], stdin: bool
) -> int:
    """Run it; returns its exit code, 124 if it timed out, 128+n if signal n stopped us.

    Raises PlaceError, UsageError, SandboxError, OutputGone."""
    if timeout_s < 0:
        raise UsageError("--timeout is a number of seconds, 0 or more")
    given = sys.stdin.buffer.read() if stdin else None
    passing = _Passing()
    # One command: nothing to start ahead for.
    with parse_place(place).open(warm=False) as sandbox:
        passing.listen()
        try:
            result = sandbox.exec(
                command[0] if len(command) == 1 else list(command),
                cwd=cwd,
                env=read_environment(env),
                stdin=given,
                timeout_s=timeout_s or MAX_TIMEOUT_S,
                limit_bytes=1,
                on_output=passing,
                cancel=passing.cancel,
            )
        except Cancelled:
            if passing.gone is not None:
                raise passing.gone from None
            return 128 + passing.signal
    if passing.gone is not None:
        raise passing.gone
    if result.timed_out:
        complain(f"timed out after {timeout_s:g} s; the command was killed")
        for left in result.survivors:
            complain(f"could not be killed and may still run: {left.pid} ({left.name})")
        return TIMED_OUT
    return result.exit_code


def read_environment(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE pairs. Raises UsageError for what is none."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--env {pair!r}: write NAME=VALUE")
        found[name] = value
    return found


class _Passing:
    """Passes output through, and ends the command when nobody takes it or a signal comes."""

    def __init__(self) -> None:
        self.cancel = threading.Event()
        self.gone: OutputGone | None = None
        self.signal = 0
        self._streams = {"stdout": Stream(1), "stderr": Stream(2)}

    def __call__(self, stream: StreamName, data: bytes) -> None:
        if self.gone is not None:
            return
        try:
            self._streams[stream].write_bytes(data)
        except OutputGone as error:
            self.gone = error
            self.cancel.set()

    def listen(self) -> None:
        """From now on, a signal ends the command first, and this process then."""
        on_signals(self._stop)

    def _stop(self, number: int) -> None:
        self.signal = number
        self.cancel.set()
