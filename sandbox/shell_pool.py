"""The shells of one sandbox, by name: how many may be open, and for how long without use."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sandbox.backend import Backend
from sandbox.errors import Closed, RequestError
from sandbox.shells import MAX_SHELLS as MAX_SHELLS
from sandbox.shells import Shell, ShellInfo
from sandbox.sweeper import Sweeper
from sandbox.terminal import Terminal

MAX_NAME_CHARACTERS = 200
_REMEMBERED = 1024
"""How many shells that nobody holds and that are not open are known by their last directory and their end."""


class ShellPool:
    """The shells of one sandbox, by name. Opening one never waits for another.

    idle_s  a shell that was not used for so many seconds is closed; None: never
    """

    def __init__(
        self,
        backend: Backend,
        sweeper: Sweeper,
        env: Mapping[str, str],
        cwd: Callable[[], str | None],
        idle_s: float | None = None,
    ) -> None:
        self._backend = backend
        self._sweeper = sweeper
        self._env = env
        self._cwd = cwd
        self._idle_s = checked_idle(idle_s)
        self._lock = threading.Lock()
        # Every shell that somebody holds, and those that are kept because they are open or were lately.
        self._known: weakref.WeakValueDictionary[str, Shell] = weakref.WeakValueDictionary()
        self._kept: dict[str, Shell] = {}
        self._closing = threading.Event()
        self._idle_watch: threading.Thread | None = None

    def get(self, name: str) -> Shell:
        """The shell of that name; not opened yet if it is new. A closed one is replaced."""
        check_name(name)
        with self._lock:
            if self._closing.is_set():
                raise Closed("the sandbox is closed")
            found = self._known.get(name)
            if found is None or found.is_closed:
                found = self._known[name] = Shell(name, self._open)
            self._keep(found)
            return found

    def list(self) -> list[ShellInfo]:
        """What is open, by name."""
        with self._lock:
            shells = list(self._known.values())
        return [found.info() for found in sorted(shells, key=lambda each: each.name) if found.is_open]

    def close(self) -> None:
        """Close all, during running commands too. Final."""
        self._closing.set()
        with self._lock:
            shells = list(self._known.values())
            self._kept.clear()
        # At once: one that obeys no signal takes seconds.
        with ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(Shell.close, shells))

    def _keep(self, shell: Shell) -> None:
        self._kept.pop(shell.name, None)
        self._kept[shell.name] = shell
        if len(self._kept) > _REMEMBERED:
            for name, old in list(self._kept.items()):
                if not old.is_open and not old.is_opening:
                    del self._kept[name]
                    break

    def _open(self, shell: Shell) -> Terminal:
        with self._lock:
            if self._closing.is_set():
                raise Closed("the sandbox is closed")
            if sum(each.is_open or each.is_opening for each in self._known.values()) >= MAX_SHELLS:
                raise RequestError(
                    f"cannot open shell {shell.name!r}: {MAX_SHELLS} shells are open, the most there may be; "
                    "close one that is not needed any more"
                )
            shell.is_opening = True
            self._keep(shell)
            self._watch()
        return Terminal(
            self._backend, self._sweeper, cwd=shell.cwd or self._cwd(), env=self._env, size=shell.size
        )

    def _watch(self) -> None:
        if self._idle_s is not None and self._idle_watch is None:
            self._idle_watch = threading.Thread(
                target=_close_idle,
                args=(weakref.ref(self), self._closing, self._idle_s),
                daemon=True,
                name="coderig-idle",
            )
            self._idle_watch.start()

    def close_idle(self, idle_s: float) -> None:
        """Close the shells that were not used for so long."""
        with self._lock:
            shells = list(self._known.values())
        for shell in shells:
            shell.close_if_idle(idle_s)


def _close_idle(pool: weakref.ref[ShellPool], closing: threading.Event, idle_s: float) -> None:
    # A pool that nobody holds any more ends its watch.
    while not closing.wait(min(max(idle_s / 10, 0.02), 10.0)):
        found = pool()
        if found is None:
            return
        found.close_idle(idle_s)
        del found


def check_name(name: str) -> None:
    """RequestError for what cannot name a shell."""
    if not isinstance(name, str) or not name.strip():
        raise RequestError(f"a shell's name must be text that is not blank, not {name!r:.80}")
    if len(name) > MAX_NAME_CHARACTERS:
        raise RequestError(
            f"a shell's name has at most {MAX_NAME_CHARACTERS} characters; this one has {len(name)}"
        )
    if not name.isprintable():
        raise RequestError(f"a shell's name is printable text, without control characters: not {name!r}")


def checked_idle(idle_s: float | None) -> float | None:
    """Seconds without use until a shell is closed. RequestError for what is no number above 0."""
    if idle_s is None:
        return None
    if isinstance(idle_s, bool) or not isinstance(idle_s, int | float) or not idle_s > 0:
        raise RequestError(f"shell_idle_s must be a number of seconds above 0, or None, not {idle_s!r:.80}")
    return float(idle_s)
