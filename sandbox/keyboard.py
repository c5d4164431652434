"""What is typed into a running command: all of it or a clear answer, and never into the shell itself."""

from __future__ import annotations

import time

from sandbox import keys
from sandbox.backend import Backend
from sandbox.errors import BackendError, RequestError
from sandbox.line import Line, Running
from sandbox.values import GRACE_S, START_TIMEOUT_S, Deadline

_OBEY_S = 0.2
"""How long a program has to end by an interrupt before it counts as one that goes on."""


class Keyboard:
    """Types into the command of one line. Several threads may; their texts do not mix.

    backend  where a terminal's mode is asked for, and its unread keys are taken away
    """

    def __init__(self, line: Line, backend: Backend) -> None:
        self._line = line
        self._backend = backend
        self.restart()

    def restart(self) -> None:
        """Another command."""
        self._line.unanswered = 0
        self._typed = b""
        # An interrupt was typed, and what it did is not known yet.
        self._unsettled = False

    def write(self, data: bytes, timeout_s: float) -> int:
        """Type bytes as a person would; returns how many the terminal took (see Shell.write).

        0 if the command has ended by now: the shell would take them for commands."""
        deadline = Deadline.after(timeout_s)
        running = self._line.running
        if running is None:
            return 0
        if not running.sane:
            raise RequestError(
                f"{running.command[:60]!r} does not read the terminal: its input is /dev/null; "
                "run it with stdin_tty=True to type to it"
            )
        if not self._begun_before(running, deadline):
            return 0
        data = self._holdable(data)
        taken = 0
        for piece in keys.after_interrupts(data):
            if self._unsettled and self._back_at_shell(running):
                break
            if piece.endswith(b"\x03"):
                self._line.expect_prompt()
                self._unsettled = True
            count = self._line.type_keys(running, piece, deadline.remaining_s())
            taken += count
            if count < len(piece):
                break
        self._typed = keys.unfinished(self._typed + data[:taken])
        return taken

    def _back_at_shell(self, running: Running) -> bool:
        """Whether the interrupt has ended the command: the shell would take what is typed for commands."""
        self._unsettled = False
        if self._obeyed_within(running, _OBEY_S):
            return True
        if self._line.sweeper.front_processes(self._line.pid):
            return False
        return self._obeyed_within(running, GRACE_S)

    def _begun_before(self, running: Running, deadline: Deadline) -> bool:
        """Until the shell has read its command, what is typed would become part of that."""
        self._line.glance()
        while not running.reader.started and running.reader.mark is None:
            if deadline.passed:
                return False
            time.sleep(0.001)
            self._line.glance()
        return True

    def _holdable(self, data: bytes) -> bytes:
        """What of the data the terminal can take without dropping any of it. Raises RequestError."""
        if not keys.too_long(self._typed + data, b"\n"):
            return data
        mode = keys.ask_mode(self._backend, self._line.pid)
        if not mode.whole_lines:
            self._typed = b""
            return keys.before_long_line(data, mode.ends)
        length = keys.too_long(self._typed + data, mode.ends)
        if not length:
            return data
        raise RequestError(
            f"nothing was typed: a line of {length} bytes (with what was typed of it before) is too long. "
            f"The program reads whole lines, of which a terminal holds {keys.MAX_LINE_BYTES} bytes and drops "
            "the rest: let it read a file instead"
        )

    def interrupt(self) -> None:
        """Ctrl-C. If the command obeys, the next poll reports its end."""
        running = self._line.running
        if running is None:
            return
        if not self._begun_before(running, Deadline.after(START_TIMEOUT_S)):
            raise BackendError("the shell has not begun its command; it was not interrupted")
        if running.reader.mark is not None:
            return
        self._unsettled = True
        taken = self._line.interrupt()
        if taken and self._line.unanswered <= keys.MAX_LINE_BYTES:
            return
        if not taken or not self._obeyed_within(running, _OBEY_S):
            self._drain(running, taken)

    def _drain(self, running: Running, taken: bool) -> None:
        """The key waits behind what the program does not read."""
        self._line.draining = True
        try:
            with keys.drained(self._backend, self._line.pid):
                if not taken:
                    self._line.interrupt()
                self._obeyed_within(running, GRACE_S)
        finally:
            self._line.draining = False
        if running.reader.prompted:
            self._line.probe(running)

    def _obeyed_within(self, running: Running, seconds: float) -> bool:
        """Whether the interrupt brings the shell back in that time."""
        deadline = Deadline.after(seconds)
        while not (found := running.reader.mark is not None or running.reader.prompted or running.probed):
            if deadline.passed:
                break
            self._line.glance()
            time.sleep(0.005)
        return found
