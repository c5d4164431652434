"""Named shells: one command at a time in each, many at once, reopened when they have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from sandbox.backend import Backend
from sandbox.errors import BackendError, Closed, NotFound, RequestError
from sandbox.execute import checked_timeout
from sandbox.output import checked_limit, checked_spill
from sandbox.spill import SpillStore
from sandbox.sweeper import Sweeper
from sandbox.terminal import NotBegun, Terminal
from sandbox.values import (
    DEFAULT_LIMIT_BYTES,
    DEFAULT_TIMEOUT_S,
    Deadline,
    OnOutput,
    PtySize,
    ShellResult,
)

MAX_SHELLS = 64
"""How many shells of one sandbox may be open at once."""
_IDLE = "no command is running in this shell"


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
    working directory; the result's `notice` then says so."""

    def __init__(self, name: str, open_terminal: Callable[[str | None], Terminal]) -> None:
        self.name = name
        self._open_terminal = open_terminal
        self._lock = threading.Lock()
        self._terminal: Terminal | None = None
        self._cwd: str | None = None
        self._size: PtySize | None = None
        self._lost = ""
        self._since_s = time.monotonic()
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
        yield_s      leave the command running after so many seconds; `poll` gives the rest
        cancel       set by the caller to end the command; raises Cancelled

        Raises RequestError if a command that was left running still runs, Closed after `close`."""
        timeout = checked_timeout(timeout_s)
        limit = checked_limit(limit_bytes)
        checked_spill(spill)
        with self._using():
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
                            yield_s=yield_s,
                        )
                    return self._note(result, notice)
                except NotBegun as error:
                    # Nothing ran: a new shell may run it.
                    if attempt == 2 or self._closed:
                        raise BackendError(f"shell {self.name!r}: {error}; the command was not run") from None
            raise AssertionError("unreachable")

    def poll(self, timeout_s: float = 0.0, cancel: threading.Event | None = None) -> ShellResult:
        """Wait up to timeout_s for a command that was left running; its new output, or its end."""
        with self._using():
            terminal = self._busy()
            # The far deadline never passes: polling leaves the command alone.
            with self._forgetting_the_dead(terminal):
                result = terminal.wait(Deadline.after(1e9, cancel), max(0.0, timeout_s))
            return self._note(result, "")

    def write(self, data: bytes) -> int:
        """Type bytes into the terminal; returns how many it took. Needs a running command."""
        return self._busy().write(data)

    def interrupt(self) -> None:
        """Ctrl-C. Needs a running command; `poll` or the waiting `run` reports its end."""
        self._busy().interrupt()

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size, also for when the shell is opened again."""
        self._size = PtySize(columns, rows)
        if self._terminal is not None:
            self._terminal.resize(self._size)

    def screen(self) -> str:
        """The terminal's screen as a person would see it, rendered from the output of the last command."""
        from sandbox.screen import render  # pyte is an extra

        terminal = self._terminal
        return render(terminal.seen() if terminal else b"", self._size or PtySize())

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

    def close(self) -> None:
        """Hang up; a running command is ended. Idempotent; the shell cannot be used again."""
        self._closed = True
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            terminal.close()

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise Closed(f"shell {self.name!r} is closed")
            yield

    @contextmanager
    def _forgetting_the_dead(self, terminal: Terminal) -> Iterator[None]:
        """A shell that did not outlive a cancellation, or whose place failed, is not used again."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, BackendError | NotBegun) or not terminal.is_alive:
                self._terminal = None
                self._lost = f"the shell was lost before ({error})"
                terminal.close()
            raise

    def _busy(self) -> Terminal:
        terminal = self._terminal
        if terminal is None or terminal.command is None:
            raise RequestError(f"shell {self.name!r}: {_IDLE}")
        return terminal

    def _ready(self) -> tuple[Terminal, str]:
        terminal = self._terminal
        if terminal is not None and terminal.command is not None:
            raise RequestError(
                f"shell {self.name!r} still runs {terminal.command[:60]!r}: poll, write or interrupt"
            )
        if terminal is not None:
            return terminal, ""
        notice = (
            f"{self._lost}; a new shell was opened, its variables and functions are gone"
            if self._lost
            else ""
        )
        terminal = self._open_terminal(self._cwd)
        if terminal.cwd_refused:
            if self._cwd is None:
                terminal.close()
                raise NotFound(
                    "enter working directory", self.name, "the sandbox's directory cannot be entered"
                )
            notice += f"; its directory {self._cwd} cannot be entered"
        if self._size is not None:
            terminal.resize(self._size)
        self._terminal, self._lost, self._since_s = terminal, "", time.monotonic()
        return terminal, notice

    def _note(self, result: ShellResult, notice: str) -> ShellResult:
        self._cwd = result.cwd or self._cwd
        if result.ended and self._terminal is not None:
            terminal, self._terminal = self._terminal, None
            terminal.close()
            self._lost = f"the shell ended before (exit {result.exit_code})"
        if result.ended and self._closed:
            result = replace(result, notice="the shell was closed while the command ran")
        words = "; ".join(word for word in (notice, result.notice) if word)
        return replace(result, notice=words)


class ShellPool:
    """The shells of one sandbox, by name. Opening one never waits for another."""

    def __init__(
        self, backend: Backend, sweeper: Sweeper, env: Mapping[str, str], cwd: Callable[[], str | None]
    ) -> None:
        self._backend = backend
        self._sweeper = sweeper
        self._env = env
        self._cwd = cwd
        self._lock = threading.Lock()
        self._shells: dict[str, Shell] = {}
        self._closed = False

    def get(self, name: str) -> Shell:
        """The shell of that name; not opened yet if it is new."""
        with self._lock:
            if self._closed:
                raise Closed("the sandbox is closed")
            found = self._shells.get(name)
            if found is None:
                self._make_room()
                found = self._shells[name] = Shell(name, self._open)
            return found

    def list(self) -> list[ShellInfo]:
        """What is open, by name."""
        with self._lock:
            shells = list(self._shells.values())
        return [found.info() for found in sorted(shells, key=lambda each: each.name) if found.is_open]

    def close(self) -> None:
        """Close all, during running commands too. Final."""
        with self._lock:
            self._closed = True
            shells, self._shells = list(self._shells.values()), {}
        # At once: one that obeys no signal takes seconds.
        with ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(Shell.close, shells))

    def _make_room(self) -> None:
        if len(self._shells) < MAX_SHELLS:
            return
        for name, found in list(self._shells.items()):
            if not found.is_open:
                del self._shells[name]
        if len(self._shells) >= MAX_SHELLS:
            raise RequestError(f"cannot open another shell ({len(self._shells)} open): close one first")

    def _open(self, cwd: str | None) -> Terminal:
        return Terminal(self._backend, self._sweeper, cwd=cwd or self._cwd(), env=self._env)
