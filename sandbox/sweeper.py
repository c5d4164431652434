"""The one sweep program of a sandbox, kept running, and what it is used for: the end of process trees.

Told over its input (see `sweep.py`), it needs no new process in a place where a command has used up all
that may be had, and no descriptor here. It also holds a dead man's handle: when this process dies, its
input ends, and it ends the commands that were being watched.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox import sweep
from sandbox.backend import Backend
from sandbox.errors import BackendError, Closed, ConnectionLost, PlaceUnavailable, SandboxError
from sandbox.sweep_link import SweepLink
from sandbox.values import GRACE_S, Deadline, Survivor

IDLE_S = 300.0
"""How long a sweep program is kept without any command."""
_LOOK_S = 1.0
_RETRY_S = 5.0
_PAUSE_S = 10.0
_PASS_S = 0.005
_PASS_MAX_S = 0.05
_HARD_S = 5.0
# More would not fit a line that is read in reasonable time; the marks find the rest.
_KNOWN_MAX = 4096
# So many processes are no crowd.
_FEW = 8
_LOOKS = 4

Pump = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a tree was ended.

    survivors  what is still there, though it was told to die
    gone       the root was no more when its time came: nothing was signalled
    """

    survivors: tuple[Survivor, ...] = ()
    gone: bool = False


@dataclass
class _Tree:
    """A tree that is being ended."""

    root: int
    mark: str
    part: sweep.Part
    pump: Pump
    born: int = 0
    known: set[str] = field(default_factory=set)

    def ask(self, signal: str) -> sweep.Ask:
        known = frozenset(sorted(self.known)[-_KNOWN_MAX:])
        return sweep.Ask(self.root, self.part, self.mark, self.born, signal, known)

    def goes_on(self, done: Callable[[], bool], empty: int) -> bool:
        """Whether to look again, though nobody was found the last times.

        The root may be about to end; a shell may be about to begin the next command of a list."""
        return not done() and (self.part == "tree" or empty < _LOOKS)

    def note(self, seen: sweep.Seen) -> dict[str, Survivor]:
        self.born = seen.born
        self.known.update(seen.members)
        return seen.members


class Sweeper:
    """Ends process trees of one place. Thread-safe: each pass is short, and passes take turns."""

    def __init__(self, backend: Backend, *, idle_s: float = IDLE_S) -> None:
        """Starts nothing yet. `idle_s`: seconds without a command until the program is let go."""
        self._backend = backend
        self._idle_s = idle_s
        # Again by the same thread: the program's own start may ask for room.
        self._lock = threading.RLock()
        self._link: SweepLink | None = None
        self._untold: deque[bytes] = deque()
        self._watched: dict[int, tuple[str, str]] = {}
        self._used_s = 0.0
        self._looked_s = 0.0
        self._paused_until_s = 0.0
        self._given_s = -GRACE_S
        self._keeper: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False

    def prepare(self) -> None:
        """A command is about to begin: see to it, in the background, that the program runs."""
        now_s = time.monotonic()
        self._used_s = now_s
        if self._keeper is None:
            self._start_keeper(now_s)
        elif now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            self._wake.set()

    def watch(self, pid: int, *, mark: str = "", first: str = "TERM") -> None:
        """End this tree, beginning with this signal, if this process dies or loses the place.

        Never fails, never waits: where the program does not run yet, it is told when it does."""
        self._watched[pid] = (first, mark)
        self._untold.append(sweep.watch_line(pid, first, mark))
        self._pass_on()

    def forget(self, pid: int) -> None:
        """Take `watch` back; for one that is not watched: nothing."""
        if self._watched.pop(pid, None) is not None:
            self._untold.append(sweep.forget_line(pid))
            self._pass_on()

    def end(
        self,
        pid: int,
        *,
        pump: Pump,
        done: Callable[[], bool],
        mark: str = "",
        part: sweep.Part = "tree",
        first: str = "TERM",
        orphaned: bool = False,
    ) -> Ending:
        """End a process tree where it runs: the first signal, a grace, then KILL.

        pid         the tree's root, as seen in the place
        pump        called while waiting, to take output for up to so many seconds
        done        whether the root itself is known to have ended
        mark        see `sweep.new_mark`; "": found by group, session and parenthood only
        part        which part of the tree; see `sweep.Ask`
        orphaned    the root is known to be gone: end what it left

        Raises BackendError if no program can be started in the place for it; then the tree may live."""
        tree = _Tree(pid, mark, part, pump, born=1 if orphaned else 0)
        left = self._pass(tree, first)
        if left is None:
            return Ending(gone=True)
        left = self._grace(tree, left, done)
        survivors = self._kill(tree, left, done)
        if len(tree.known) > _FEW and not survivors:
            self._await_room(pid, pump)
        return Ending(survivors)

    def _await_room(self, pid: int, pump: Pump) -> None:
        """Let a crowd's dead be reaped: until then they count, and the next command might find no room."""
        until = Deadline.after(2 * GRACE_S)
        while not until.passed:
            tree = _Tree(pid, "", "tree", pump, born=1)
            self._pass(tree, "room")
            if not tree.born:
                return
            pump(min(_PASS_MAX_S, until.remaining_s()))

    def has_run_away(self, pid: int, mark: str) -> bool:
        """Whether what an ended command left uses up the processes that the place may have.

        That is where half of them are taken, and half of these by what it left. A place that does not
        answer, or has no program for this now, is not asked: the command itself is over."""
        for _ in range(_LOOKS):
            if self._link is None and time.monotonic() < self._paused_until_s:
                return False
            try:
                limit, left = self._crowd(pid, mark)
            except SandboxError:
                return False
            if not limit or left < _FEW:
                return False
            if 4 * left >= limit:
                return True
            # What starts others and ends comes and goes in waves.
            time.sleep(_PASS_MAX_S)
        return False

    def has_settled(self, pid: int, mark: str) -> bool:
        """Whether what had run away is no crowd any more."""
        return self._crowd(pid, mark)[1] < _FEW

    def _crowd(self, pid: int, mark: str) -> tuple[int, int]:
        """How many processes the place may have (0: no limit known), and how many a command left."""
        tree = _Tree(pid, mark, "tree", lambda _: None, born=1)
        left = self._pass(tree, "crowd") or {}
        limit, tree.born = tree.born, 1
        if limit and not left:
            left = self._pass(tree, "0") or {}
        return limit, len(left)

    def front_processes(self, pid: int) -> tuple[Survivor, ...]:
        """What runs in the foreground of the terminal whose shell is pid; empty: it is at its prompt."""
        return tuple((self._pass(_Tree(pid, "", "foreground", lambda _: None), "0") or {}).values())

    def give_back(self) -> bool:
        """Let the program go for a while, because a command needs its room; whether there was one.

        Until it is back, nobody ends what runs if this process dies."""
        if not self._lock.acquire(timeout=GRACE_S):
            return False
        try:
            now_s = time.monotonic()
            self._paused_until_s = now_s + _PAUSE_S
            link, self._link = self._link, None
            if link is not None and link.end():
                self._given_s = now_s
            # Two that need room at once, of which the other asked first.
            return now_s - self._given_s < GRACE_S
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let the program go. Idempotent; `end` raises Closed after it.

        Trees that are still watched are ended by the program without us."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
            if link is not None:
                link.close(farewell=not self._watched)
            keeper = self._keeper
        self._wake.set()
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join(GRACE_S)

    # ---- the passes ----------------------------------------------------------------------------

    def _grace(self, tree: _Tree, left: dict[str, Survivor], done: Callable[[], bool]) -> dict[str, Survivor]:
        until = Deadline.after(GRACE_S)
        wait_s, empty = _PASS_S, 0
        while not until.passed and (left or tree.goes_on(done, empty)):
            tree.pump(min(wait_s, until.remaining_s()))
            wait_s = min(wait_s * 2, _PASS_MAX_S)
            left = self._pass(tree, "0") or {}
            empty = 0 if left else empty + 1
        return left

    def _kill(self, tree: _Tree, left: dict[str, Survivor], done: Callable[[], bool]) -> tuple[Survivor, ...]:
        """KILL, again for whoever is found later, until nobody is left or those who are do not die."""
        struck: set[str] = set()
        bound, settle, wait_s, empty = Deadline.after(_HARD_S), Deadline.after(GRACE_S), _PASS_S, 0
        while (left or tree.goes_on(done, empty)) and not settle.passed and not bound.passed:
            if left.keys() - struck:
                left = self._pass(tree, "KILL") or {}
                struck |= left.keys() | tree.known
                settle, wait_s = Deadline.after(GRACE_S), _PASS_S
            tree.pump(wait_s)
            wait_s = min(wait_s * 2, _PASS_MAX_S)
            left = self._pass(tree, "0") or {}
            empty = 0 if left else empty + 1
        return tuple(left.values())

    def _pass(self, tree: _Tree, signal: str) -> dict[str, Survivor] | None:
        """One pass; whom it found alive, or None if the tree has no root any more (first pass only)."""
        retry: Deadline | None = None
        while True:
            while not self._lock.acquire(timeout=0.02):
                tree.pump(0)
            try:
                seen = self._ensure().ask(tree.ask(signal))
                return None if seen is None else tree.note(seen)
            except (Closed, ConnectionLost, PlaceUnavailable):
                self._drop()
                raise
            except BackendError as error:
                # It was killed, or stopped, or the place has no room for one just now.
                self._drop()
                retry = retry or Deadline.after(_RETRY_S)
                if retry.passed:
                    raise BackendError(
                        f"the command could not be ended: no program can be started beside it ({error})"
                    ) from error
            finally:
                self._lock.release()
                self._pass_on()
            tree.pump(0.05)

    def _pass_on(self) -> None:
        """Tell the program what it should know; whoever holds the lock now does it afterwards."""
        while self._untold and self._lock.acquire(blocking=False):
            try:
                self._tell()
            except BackendError:
                self._drop()  # the link to the place broke; the next program is told all that is watched
            finally:
                self._lock.release()

    # ---- the program; all under the lock ---------------------------------------------------------

    def _ensure(self, *, spare: bool = False) -> SweepLink:
        if self._closed:
            raise Closed("the sandbox is closed")
        if self._link is None:
            self._untold.clear()
            lines = [sweep.watch_line(pid, *told) for pid, told in list(self._watched.items())]
            self._link = SweepLink(self._backend, spare=spare)
            self._untold.extendleft(lines)
        self._tell()
        return self._link

    def _tell(self) -> None:
        while self._untold:
            line = self._untold.popleft()
            if self._link is not None:
                self._link.tell(line)

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    # ---- the thread that looks after it ----------------------------------------------------------

    def _start_keeper(self, now_s: float) -> None:
        with self._lock:
            if self._keeper is not None or self._closed:
                return
            self._keeper = threading.Thread(target=self._keep, daemon=True, name="coderig-sweeper")
            self._looked_s = now_s
            try:
                self._keeper.start()
            except RuntimeError:
                self._keeper = None  # no thread can be had: the kill starts the program itself

    def _keep(self) -> None:
        while True:
            self._wake.clear()
            with self._lock:
                idle_s = time.monotonic() - self._used_s
                if self._closed or (idle_s >= self._idle_s and not self._watched):
                    self._drop()
                    self._keeper = None
                    return
                try:
                    if self._link is not None and self._link.is_over():
                        self._drop()
                    if time.monotonic() >= self._paused_until_s:
                        self._ensure(spare=True)
                except (SandboxError, OSError):
                    self._drop()  # the kill that needs it tries again, and tells
            self._pass_on()
            self._wake.wait(self._idle_s)
