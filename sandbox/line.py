"""The bytes of one shell on a terminal: what is typed, what it prints, and the running command's share.

One thread waits for the command; others may type, interrupt and glance meanwhile. `terminal.py` gives the
bytes their meaning.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox import framing
from sandbox.backend import Backend, Process
from sandbox.errors import BackendError
from sandbox.frame_bash import BashFrame
from sandbox.frame_sh import ShFrame
from sandbox.framing import Frame
from sandbox.marks import MarkReader
from sandbox.output import Keeper
from sandbox.screen import Screen
from sandbox.sweeper import Sweeper
from sandbox.values import START_TIMEOUT_S, Chunk, Deadline, OnOutput, PtySize, SpawnRequest

TERMINAL_ENV = {"TERM": "xterm-256color", "ENV": ""}
_READ_S = 0.25
_INTERRUPT_S = 0.3
_WRITE_BYTES = 4096
_PENDING_BYTES = 64 * 1024


@dataclass
class Running:
    """The command that a shell is running."""

    command: str
    nonce: str
    reader: MarkReader
    keeper: Keeper
    on_output: OnOutput | None
    began_s: float
    sane: bool
    mark: str = ""
    interrupted: bool = False
    probed: bool = False
    stuck_s: float = 0.0


class Line:
    """A shell's process and its terminal. Opening waits until it has said which shell it is."""

    def __init__(self, backend: Backend, sweeper: Sweeper, env: Mapping[str, str], size: PtySize) -> None:
        """Raises BackendError if no shell can be started, or it says nothing in time."""
        self.sweeper = sweeper
        sweeper.prepare()
        self.running: Running | None = None
        self.screen = Screen(size)
        self.reading = threading.Lock()
        """Held while bytes are read and dealt with, so that they stay in order."""
        self._typing = threading.Lock()
        self.draining = False
        """What is typed is read by somebody else: a probe has to wait."""
        self.unanswered = 0
        """How many keys were typed since the command has printed something; they may all be unread."""
        self._pending = b""
        token = secrets.token_hex(12)
        self.process: Process = backend.spawn(
            SpawnRequest(argv=framing.shell_argv(token), env={**TERMINAL_ENV, **env}, pty=size)
        )
        try:
            self.pid, kind = self._await_start(token)
        except BaseException:
            self.process.close()
            raise
        sweeper.watch(self.pid, first="HUP")
        made = BashFrame if kind == "bash" else ShFrame
        self.frame: Frame = made(f"cr_{secrets.token_hex(8)}", secrets.token_hex(12), self.pid)

    def _await_start(self, token: str) -> tuple[int, str]:
        deadline = Deadline.after(START_TIMEOUT_S)
        said = b""
        while True:
            chunk = self.process.read(min(_READ_S, deadline.remaining_s()))
            said += chunk.stdout
            found = framing.read_shell_start(token, said)
            if found is not None:
                return found
            if chunk.eof or deadline.passed:
                why = "ended at once" if chunk.eof else f"did not start within {START_TIMEOUT_S:g} s"
                raise BackendError(f"the shell {why}; it said {said[-500:]!r}")

    @property
    def is_alive(self) -> bool:
        """Whether the shell itself still runs."""
        return self.process.poll() is None

    @property
    def has_mark(self) -> bool:
        """Whether the shell has come to the end of its command, or runs none."""
        return self.running is None or self.running.reader.mark is not None

    def type(self, data: bytes, timeout_s: float = START_TIMEOUT_S) -> int:
        """Type bytes; returns how many the terminal took within the time (more for long texts)."""
        taken = self.process.write(data[:_WRITE_BYTES], 0.02)
        if taken == len(data):
            return taken
        view = memoryview(data)[taken:]
        deadline = Deadline.after(timeout_s + len(data) / 50_000)
        while view and not deadline.passed:
            # While the terminal takes no more, what the shell prints must be read, or both would wait.
            taken = self.process.write(bytes(view[:_WRITE_BYTES]), 0.02)
            view = view[taken:]
            if not taken:
                self.glance()
        return len(data) - len(view)

    def type_command(self, data: bytes) -> None:
        """Type a command with its frame; keys that others type come behind it."""
        with self._typing:
            self.type(data)

    def type_keys(self, running: Running, data: bytes, timeout_s: float) -> int:
        """Type into a command, until it ends; returns how many bytes were taken in the time."""
        deadline = Deadline.after(timeout_s)
        if not self._typing.acquire(timeout=timeout_s):
            return 0
        try:
            view = memoryview(data)
            while view and self.running is running and running.reader.mark is None:
                taken = self.process.write(bytes(view[:_WRITE_BYTES]), min(0.02, deadline.remaining_s()))
                view = view[taken:]
                self.unanswered += taken
                if not taken and deadline.passed:
                    break
                self.glance()
            return len(data) - len(view)
        finally:
            self._typing.release()

    def read(self, timeout_s: float) -> Chunk:
        """Read once and deal with what came."""
        with self.reading:
            chunk = self.process.read(timeout_s)
            self.feed(chunk.stdout)
            return chunk

    def glance(self) -> None:
        """Deal with what has come, unless another thread is about to."""
        if self.reading.acquire(blocking=False):
            try:
                self.feed(self.process.read(0).stdout)
            finally:
                self.reading.release()

    def drain(self, timeout_s: float) -> None:
        """Let time pass, and read meanwhile."""
        if self.read(timeout_s).eof:
            time.sleep(timeout_s)

    def feed(self, data: bytes) -> None:
        """Take bytes of the terminal: the running command's, or else kept for the next one."""
        running = self.running
        if running is None:
            self._pending = (self._pending + data)[-_PENDING_BYTES:]
            return
        if self._pending:
            data, self._pending = self._pending + data, b""
        out = running.reader.feed(data)
        if out:
            running.keeper.feed(out)
            self.screen.feed(out)
            self.unanswered = 0
            if running.on_output is not None:
                running.on_output("stdout", out)
        reader = running.reader
        if reader.prompted and reader.mark is None and not self.draining:
            # It waits for a line before the mark: it has dropped the rest of its line (an interrupt, of ours
            # or not), or the command has taken away what prints the mark.
            if not running.probed:
                self.probe(running)
            elif not running.stuck_s:
                running.stuck_s = time.monotonic()

    def take_running(self) -> Running:
        """The command that is over; what other programs printed after its mark is kept for the next one."""
        running, self.running = self.running, None
        assert running is not None
        if running.reader.mark is not None:
            self._pending = running.reader.rest
        return running

    def release(self, running: Running) -> None:
        """The command is over: what was typed into it and not read is dropped, up to here."""
        if running.sane:
            # After the last key, or that would come after the end of what is dropped.
            with self._typing:
                self.type(self.frame.release(running.nonce))

    def interrupt(self) -> bool:
        """Ctrl-C. If the command obeys, its mark comes. False: the terminal takes no more keys."""
        self.expect_prompt()
        return self.type(b"\x03", _INTERRUPT_S) == 1

    def expect_prompt(self) -> None:
        """An interrupt is about to be typed: the next prompt tells that the shell obeyed."""
        running = self.running
        if running is not None:
            running.interrupted, running.probed, running.reader.prompted = True, False, False
            running.stuck_s = 0.0

    def probe(self, running: Running) -> None:
        """Ask for the mark, if the shell is at its prompt: a program that reads there must not see it."""
        if not self.sweeper.front_processes(self.pid):
            running.probed = True
            self.type(self.frame.probe(running.nonce, running.sane))
        running.reader.prompted = False
