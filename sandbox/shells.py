"""A named shell: one command at a time, reopened when it has ended. `shell_pool.py` holds them by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from sandbox.errors import BackendError, Cancelled, Closed, NotFound, RequestError
from sandbox.execute import checked_timeout
from sandbox.output import checked_limit, checked_spill
from sandbox.shell import check_text
from sandbox.spill import SpillStore
from sandbox.terminal import NotBegun, Terminal
from sandbox.values import (
    DEFAULT_LIMIT_BYTES,
    DEFAULT_TIMEOUT_S,
    MAX_TIMEOUT_S,
    Deadline,
    OnOutput,
    PtySize,
    ShellResult,
)

MAX_SHELLS = 64
"""How many shells of one sandbox may be open at once."""
MAX_COLUMNS = MAX_ROWS = 1000
WRITE_TIMEOUT_S = 5.0
"""How long `write` waits for a terminal that takes no more."""
_TURN_S = 0.05


@dataclass(frozen=True, slots=True)
class ShellInfo:
    """One shell of a sandbox. `age_s`: seconds since its command began, or since it was opened."""

    name: str
    state: Literal["idle", "running", "closed"]
    command: str
    age_s: float


class Shell:
    """A named shell. State (directory, variables, functions, options) lasts from one run to the next.

    It is opened by its first use, and again by the first use after it ended, in the last known
    working directory; the result's `notice` then says so. Thread-safe: `run` and `poll` take turns,
    everything else may be called meanwhile."""

    def __init__(self, name: str, open_terminal: Callable[[Shell], Terminal]) -> None:
        self.name = name
        self.cwd: str | None = None
        """The last known working directory there; None before the first command."""
        self.size: PtySize | None = None
        """The size that was set; None: the default."""
        self.is_opening = False
        """Whether a shell process is being started; the pool sets it, as it counts those."""
        self._open_terminal = open_terminal
        self._turn = threading.Lock()
        self._turn_of = 0
        self._state = threading.Lock()
        self._terminal: Terminal | None = None
        self._lost = ""
        self._since_s = self._used_s = time.monotonic()
        self._closed = False

    def run(
        self,
        command: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        spill: SpillStore | None = None,
        stdin_tty: bool = False,
        on_output: OnOutput | None = None,
        cancel: threading.Event | None = None,
        yield_s: float | None = None,
    ) -> ShellResult:
        """Run one command and wait for its end.

        timeout_s    seconds from the command's beginning; then it is interrupted, terminated, killed,
                     in that order, until the shell is back; 0 or less: the default of 30
        limit_bytes  how much output is kept, head and tail; 0 or less: the default of 1 MiB; more than
                     4 GiB is a RequestError
        spill        keeps the whole of an output that is longer than that; each result of a command
                     that was left running has a file of its own
        stdin_tty    the command reads from the terminal (see `write`); else from /dev/null
        yield_s      leave the command running after so many seconds; `poll` gives the rest; None: never
        cancel       set by the caller to end the command; raises Cancelled

        While another call waits for a command of this shell, it waits for its turn. Raises RequestError
        if a command that was left running still runs, if called from the shell's own `on_output`, at the
        limit of open shells, or for arguments that make no sense; Closed after `close`; BackendError with
        the output so far if the place failed."""
        if not isinstance(command, str):
            raise RequestError(
                f"the command of a shell must be text, not {command!r:.80}; `exec` takes lists"
            )
        check_text("the command", command)
        timeout, limit = checked_timeout(timeout_s), checked_limit(limit_bytes)
        checked_spill(spill)
        check_callbacks(on_output, cancel)
        leave_s = None if yield_s is None else checked_seconds("yield_s", yield_s)
        with self._taking_turn(None, cancel):
            for attempt in (1, 2):
                terminal, notice = self._ready()
                try:
                    with self._forgetting_the_dead(terminal):
                        result = terminal.run(
                            command,
                            deadline=Deadline.after(timeout, cancel),
                            limit_bytes=limit,
                            spill=spill,
                            stdin_tty=stdin_tty,
                            on_output=on_output,
                            yield_s=leave_s,
                        )
                    return self._note(result, notice)
                except NotBegun as error:
                    # Nothing ran: a new shell may run it.
                    if self._closed:
                        raise Closed(f"shell {self.name!r} was closed; the command was not run") from None
                    if attempt == 2:
                        raise BackendError(f"shell {self.name!r}: {error}; the command was not run") from None
            raise AssertionError("unreachable")

    def poll(self, timeout_s: float = 0.0, cancel: threading.Event | None = None) -> ShellResult:
        """Wait up to timeout_s for a command that was left running; its new output, or its end.

        timeout_s  seconds; 0 or less: only look, and take what is there
        cancel     set by the caller to end the waiting; raises Cancelled; the command and its output stay

        Raises RequestError if no command is running, or if another call waits for it all that time."""
        check_callbacks(None, cancel)
        wait = Deadline.after(checked_seconds("timeout_s", timeout_s), cancel)
        with self._taking_turn(wait, cancel):
            terminal = self._busy()
            with self._forgetting_the_dead(terminal):
                result = terminal.poll(wait)
            return self._note(result, "")

    def write(self, data: bytes, timeout_s: float = WRITE_TIMEOUT_S) -> int:
        """Type bytes into the terminal, as a person would; returns how many it took.

        timeout_s  how long to wait for a program that does not read; 0 or less: not at all

        Fewer than all were taken if the program does not read, or has ended: what it did not read is
        dropped at its end. Over SSH and in a container, what was taken may still be on its way.

        A terminal that hands over whole lines holds 4,095 bytes of one (n_tty(4) of Linux) and drops the
        rest. A longer line is therefore a RequestError there, before anything is typed; a program that
        takes keys one by one (an editor, a REPL at its prompt) gets lines of any length. Raises
        RequestError if no command is running."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise RequestError(f"write takes bytes, not {data!r:.80}; text is made bytes by .encode()")
        wait_s = checked_seconds("timeout_s", timeout_s)
        return self._busy().write(bytes(data), wait_s)

    def interrupt(self) -> None:
        """Ctrl-C. Raises RequestError if no command is running; `poll` or the waiting `run` tells its end."""
        self._busy().interrupt()

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size in character cells, each 1 to 1,000, also for when it is opened again."""
        size = checked_size(columns, rows)
        with self._state:
            self.size = size
            terminal = self._terminal
        if terminal is not None:
            terminal.resize(size)

    def screen(self) -> str:
        """The terminal's screen as a person would see it, from the output of the last command.

        "" if the shell is not open. Output that nobody has polled yet is seen, and stays to be polled."""
        terminal = self._terminal
        return terminal.screen() if terminal is not None else ""

    def info(self) -> ShellInfo:
        """Name, state, command and age, for a list."""
        terminal = self._terminal
        if terminal is None:
            return ShellInfo(self.name, "closed", "", 0.0)
        command = terminal.command
        since = terminal.began_s or self._since_s
        return ShellInfo(self.name, "running" if command else "idle", command or "", time.monotonic() - since)

    @property
    def is_open(self) -> bool:
        """Whether a shell process stands behind the name."""
        return self._terminal is not None

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Hang up; a running command is ended. Idempotent; this object cannot be used again.

        The sandbox gives a new shell for the same name."""
        with self._state:
            self._closed = True
            terminal, self._terminal = self._terminal, None
        if terminal is not None:
            terminal.close()

    def close_if_idle(self, idle_s: float) -> None:
        """Hang up if no command runs and nothing was asked of it for so long; the next use says so."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            with self._state:
                terminal = self._terminal
                used = terminal is None or terminal.command is not None
                if terminal is None or used or time.monotonic() - self._used_s < idle_s:
                    return
                self._terminal = None
                self._lost = f"the shell was closed after {idle_s:g} s without use"
            terminal.close()
        finally:
            self._turn.release()

    @contextmanager
    def _taking_turn(self, wait: Deadline | None, cancel: threading.Event | None) -> Iterator[None]:
        """One call at a time. Waits for the others: as long as they take, or until the deadline."""
        if self._turn_of == threading.get_ident():
            raise RequestError(
                f"shell {self.name!r} was called from its own on_output; it can run something else afterwards"
            )
        if not self._turn.acquire(blocking=False):
            self._wait_for_turn(wait, cancel)
        self._turn_of = threading.get_ident()
        try:
            if self._closed:
                raise Closed(f"shell {self.name!r} is closed")
            yield
        finally:
            self._used_s = time.monotonic()
            self._turn_of = 0
            self._turn.release()

    def _wait_for_turn(self, wait: Deadline | None, cancel: threading.Event | None) -> None:
        while not self._turn.acquire(timeout=_TURN_S if wait is None else min(_TURN_S, wait.remaining_s())):
            if cancel is not None and cancel.is_set():
                raise Cancelled(
                    f"cancelled while another command ran in shell {self.name!r}; nothing was run"
                )
            if wait is not None and wait.passed:
                raise RequestError(
                    f"shell {self.name!r}: another call waits for the command there, and gets its output"
                )

    @contextmanager
    def _forgetting_the_dead(self, terminal: Terminal) -> Iterator[None]:
        """A shell that did not outlive a cancellation, or whose place failed, is not used again."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, BackendError):
                error.stdout = error.stdout or terminal.unread()
            if isinstance(error, BackendError | NotBegun) or not terminal.is_alive:
                self._let_go(terminal, f"the shell was lost before ({error})")
            raise

    def _let_go(self, terminal: Terminal, why: str) -> None:
        with self._state:
            self._terminal, self._lost = None, why
        terminal.close()

    def _busy(self) -> Terminal:
        terminal = self._terminal
        if terminal is None or terminal.command is None:
            raise RequestError(f"shell {self.name!r}: no command is running in this shell")
        return terminal

    def _ready(self) -> tuple[Terminal, str]:
        terminal = self._terminal
        if terminal is not None and terminal.command is not None:
            command = repr(terminal.command[:60])
            if terminal.has_finished():
                raise RequestError(
                    f"shell {self.name!r}: {command} has ended, but nobody polled its end: poll"
                )
            raise RequestError(f"shell {self.name!r} still runs {command}: poll, write or interrupt")
        if terminal is not None:
            return terminal, ""
        notice = (
            f"{self._lost}; a new shell was opened, its variables and functions are gone"
            if self._lost
            else ""
        )
        try:
            terminal = self._open_terminal(self)
            with self._state:
                if not self._closed:
                    self._terminal, self._since_s = terminal, time.monotonic()
        finally:
            self.is_opening = False
        if self._closed:
            terminal.close()
            raise Closed(f"shell {self.name!r} was closed while it was being opened")
        if terminal.cwd_refused:
            if self.cwd is None:
                self._let_go(terminal, "")
                raise NotFound(
                    "enter working directory", self.name, "the sandbox's directory cannot be entered"
                )
            notice += f"; its directory {self.cwd} cannot be entered"
        self._lost = ""
        return terminal, notice

    def _note(self, result: ShellResult, notice: str) -> ShellResult:
        self.cwd = result.cwd or self.cwd
        terminal = self._terminal
        if result.ended and terminal is not None:
            self._let_go(terminal, f"the shell ended before (exit {result.exit_code})")
        if result.ended and self._closed:
            result = replace(result, notice="the shell was closed while the command ran")
        words = "; ".join(word for word in (notice, result.notice) if word)
        return result if words == result.notice else replace(result, notice=words)


def checked_seconds(name: str, seconds: float) -> float:
    """A time to wait; 0 for less. RequestError for what is no number of seconds, or more than a day."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        raise RequestError(f"{name} must be a number of seconds, not {seconds!r:.80}")
    if seconds > MAX_TIMEOUT_S:
        raise RequestError(f"{name} is {seconds:g}; at most {MAX_TIMEOUT_S:g} seconds are allowed")
    return max(0.0, float(seconds))


def check_callbacks(on_output: OnOutput | None, cancel: threading.Event | None) -> None:
    """RequestError for what cannot be called with output, or cannot tell of a cancellation."""
    if on_output is not None and not callable(on_output):
        raise RequestError(
            f"on_output must be a function of a stream's name and bytes, not {on_output!r:.80}"
        )
    if cancel is not None and not isinstance(cancel, threading.Event):
        raise RequestError(f"cancel must be a threading.Event, not {cancel!r:.80}")


def checked_size(columns: int, rows: int) -> PtySize:
    """A terminal's size. RequestError for what is none."""
    for name, value, most in (("columns", columns, MAX_COLUMNS), ("rows", rows, MAX_ROWS)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise RequestError(f"{name} must be a whole number from 1 to {most}, not {value!r:.80}")
    return PtySize(columns, rows)
