"""Commands that start at once: shells that wait in the place before there is anything to run.

A waiting shell is the launcher of `shell.py`, started ahead: it says who it is, and then waits for the line
that tells what to run. Where starting a program is cheap, each waits for one command. Where it is dear (a
round trip, a container's exec), a lane (`lane.py`) starts them one after the other in the place.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sandbox import shell
from sandbox.backend import Backend, Process
from sandbox.errors import BackendError, Closed, SandboxError, TooManyPrograms
from sandbox.lane import HEAD, Lane, let_go
from sandbox.values import START_TIMEOUT_S, Deadline, SpawnRequest

IDLE_S = 60.0
"""How long what waits may go unused before it is ended."""
PAUSE_S = 10.0
"""How long nothing is started ahead after the place refused to."""
_FREED_S = 2.0
_FEED_LIMIT_BYTES = 1 << 20

_Kind = Literal["plain", "feed"]


@dataclass(frozen=True, slots=True)
class Launcher:
    """A shell that is ready for the line of one command.

    token   what its first words begin with
    head    what it has to get before the command's line
    waited  it was started ahead: if it ended before the command began, nothing is lost
    """

    process: Process
    token: str
    head: bytes
    waited: bool


class GivingBack:
    """A backend that ends what only waits when the place refuses one more program."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.ahead = backend.ahead
        self.give_back: Callable[[], bool] = lambda: False

    def spawn(self, request: SpawnRequest) -> Process:
        """See Backend.spawn."""
        try:
            return self._backend.spawn(request)
        except TooManyPrograms:
            if request.spare or not self.give_back():
                raise
        # A server counts a channel until it has seen it closed.
        deadline = Deadline.after(_FREED_S)
        while True:
            try:
                return self._backend.spawn(request)
            except TooManyPrograms:
                if deadline.passed:
                    raise
                time.sleep(0.02)

    def close(self) -> None:
        """See Backend.close."""
        self._backend.close()


class Launchers:
    """The launchers of one sandbox: those that wait, and new ones. Thread-safe.

    prelude  what each evaluates before its command
    warm     False: nothing is started ahead

    Nothing waits before a first command has shown which shell the place has. A place that bears no
    waiting programs gets none, nor one where they could not be had at the first try."""

    def __init__(self, backend: Backend, *, prelude: bytes, warm: bool) -> None:
        self._backend = backend
        self._prelude = prelude
        self._shared = backend.ahead.shared
        self._wanted: dict[_Kind, int] = {"plain": backend.ahead.programs if warm else 0, "feed": 0}
        self._has_feed = warm and self._shared and backend.ahead.programs > 0
        self._shell: str | None = None
        # What waits, and how many there are in all: lanes at work or being started are counted too.
        self._waiting: dict[_Kind, deque[Lane | Launcher]] = {"plain": deque(), "feed": deque()}
        self._count: dict[_Kind, int] = {"plain": 0, "feed": 0}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._used_s = self._paused_until_s = 0.0

    def take(self, size_bytes: int, has_stdin: bool) -> Launcher:
        """A launcher for a command whose line and input come to so many bytes."""
        kind: _Kind = "feed" if has_stdin and self._shared else "plain"
        if kind == "plain" or (self._has_feed and size_bytes <= _FEED_LIMIT_BYTES):
            found = self._pop(kind)
            if isinstance(found, Lane):
                process = found.begin(size_bytes + len(HEAD), self._returned)
                return Launcher(process, found.token, HEAD, waited=True)
            if found is not None:
                return found
        return self.new()

    def new(self) -> Launcher:
        """A launcher that is started now."""
        if self._closed:
            raise Closed("the sandbox is closed")
        return self._launcher(spare=False)

    def learn(self, kind: str) -> None:
        """The shell that the place has ("bash" or "sh"), as a command that began has told."""
        if self._shell is None:
            self._shell = kind
            with self._changed:
                self._wake()

    def give_back(self) -> bool:
        """End what only waits, and start no more for a while; whether there was anything."""
        with self._changed:
            self._paused_until_s = time.monotonic() + PAUSE_S
            idle = self._drop_waiting()
        return _end(idle)

    def close(self) -> None:
        """End what waits. Final."""
        with self._changed:
            self._closed = True
            idle = self._drop_waiting()
            thread = self._thread
            self._changed.notify_all()
        _end(idle)
        if thread is not None:
            thread.join(timeout=1.0)

    def _launcher(self, *, spare: bool) -> Launcher:
        token = secrets.token_hex(12)
        argv = shell.launcher_argv(self._shell, token)
        process = self._backend.spawn(SpawnRequest(argv=argv, spare=spare))
        if spare and process.write(self._prelude, START_TIMEOUT_S) < len(self._prelude):
            process.close()
            raise BackendError("a waiting shell takes no input")
        return Launcher(process, token, b"" if spare else self._prelude, waited=spare)

    def _pop(self, kind: _Kind) -> Lane | Launcher | None:
        if not self._wanted["plain"]:
            return None
        dead: list[Lane | Launcher] = []
        with self._changed:
            if kind == "feed":
                self._wanted["feed"] = 1
            waiting = self._waiting[kind]
            found = waiting.popleft() if waiting else None
            # A lane whose connection is lost is no reason for a command to fail: nothing has begun.
            while isinstance(found, Lane) and not found.is_there():
                dead.append(found)
                self._count[kind] -= 1
                found = waiting.popleft() if waiting else None
            if isinstance(found, Launcher):
                self._count[kind] -= 1
            self._wake()
        _end(dead)
        return found

    def _returned(self, lane: Lane, usable: bool) -> None:
        kind: _Kind = "feed" if lane.feed else "plain"
        with self._changed:
            if usable and not self._closed:
                self._waiting[kind].append(lane)
                return
            self._count[kind] -= 1
            self._changed.notify_all()
        if usable:
            lane.end()

    def _drop_waiting(self) -> list[Lane | Launcher]:
        idle: list[Lane | Launcher] = []
        for kind, waiting in self._waiting.items():
            self._count[kind] -= len(waiting)
            idle += waiting
            waiting.clear()
        return idle

    # ---- the thread that starts ahead --------------------------------------------------------------

    def _wake(self) -> None:
        """With the lock held: something is used, so more may be needed."""
        self._used_s = time.monotonic()
        if self._thread is not None:
            self._changed.notify_all()
        elif self._shell is not None and self._wanted["plain"] and not self._closed:
            thread = threading.Thread(target=self._work, daemon=True, name="coderig-ahead")
            # Where no thread can be started, commands start as they would without.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        while (kind := self._next()) is not None:
            made: Lane | Launcher | None = None
            try:
                made = self._start(kind)
            except (SandboxError, OSError):
                # A command that needs the place meets the same failure, and tells it.
                with self._changed:
                    self._paused_until_s = time.monotonic() + PAUSE_S
            with self._changed:
                if made is not None and not self._closed:
                    self._waiting[kind].append(made)
                    continue
                self._count[kind] -= 1
            if made is not None:
                _end([made])

    def _start(self, kind: _Kind) -> Lane | Launcher | None:
        if not self._shared:
            return self._launcher(spare=True)
        token = secrets.token_hex(12)
        argv = shell.launcher_argv(self._shell, token)
        lane = Lane.start(self._backend, argv, token, self._prelude, kind == "feed")
        if lane is None:
            with self._changed:
                self._wanted[kind] = 0
                self._has_feed = False
        return lane

    def _next(self) -> _Kind | None:
        """Wait until one more is needed and say which kind; None: the thread has ended."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                if now - self._used_s > IDLE_S:
                    break
                paused_s = self._paused_until_s - now
                short = [kind for kind, wanted in self._wanted.items() if self._count[kind] < wanted]
                if short and paused_s <= 0:
                    self._count[short[0]] += 1
                    return short[0]
                self._changed.wait(min(IDLE_S, paused_s) if short and paused_s > 0 else IDLE_S)
            self._thread = None
            idle = self._drop_waiting()
        _end(idle)
        return None


def _end(idle: list[Lane | Launcher]) -> bool:
    for each in idle:
        if isinstance(each, Lane):
            each.end()
        else:
            let_go(each.process)
    return bool(idle)
