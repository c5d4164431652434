"""Blocking calls for async code: threads, turns, cancellation, and output handed to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sandbox.errors import BackendError, Closed
from sandbox.limits import with_limit
from sandbox.shells import MAX_SHELLS, Shell
from sandbox.values import OnOutput, StreamName

MAX_COMMANDS = 128
"""How many one-shot commands of one sandbox run at once; more wait for their turn."""
MAX_FILE_CALLS = 32
"""How many file calls of one sandbox run at once; more wait for their turn."""
CANCEL_LIMIT_S = 15.0
"""How long a cancelled call waits for its command to be ended, at most."""
_MAX_SHORT_CALLS = 32
_LOOK_S = 0.05

T = TypeVar("T")
Deliver = Callable[[StreamName, bytes, "Future[None]"], None]
"""Takes one piece of output on the loop's thread, and settles the future when the next may come."""


_Turns = tuple[asyncio.Semaphore, asyncio.Semaphore]


class Cancel(threading.Event):
    """The event that goes down with a call; set as well when the caller's own one is."""

    def __init__(self, other: threading.Event | None = None) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        return super().is_set() or (self._other is not None and self._other.is_set())


class Calls:
    """Blocking calls of one sandbox, on threads of its own.

    closed  no more calls are taken, and output that nobody takes holds no call
    """

    def __init__(self) -> None:
        self.commands = asyncio.Semaphore(MAX_COMMANDS)
        self.files = asyncio.Semaphore(MAX_FILE_CALLS)
        self.short = asyncio.Semaphore(_MAX_SHORT_CALLS)
        self.closed = threading.Event()
        self._of_shells: weakref.WeakKeyDictionary[Shell, _Turns] = weakref.WeakKeyDictionary()
        # As many as may run by the semaphores, so that nothing waits in the pool; they start when needed.
        most = MAX_COMMANDS + MAX_FILE_CALLS + _MAX_SHORT_CALLS + 2 * MAX_SHELLS + 1
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="coderig-aio")
        self._closing = asyncio.Semaphore(1)
        self._shut = False

    def of_shell(self, shell: Shell) -> _Turns:
        """What `run` and what `poll` of this shell wait for: one of each at a time."""
        return self._of_shells.setdefault(shell, (asyncio.Semaphore(1), asyncio.Semaphore(1)))

    async def run(self, turn: asyncio.Semaphore, work: Callable[[], T], cancel: Cancel | None = None) -> T:
        """Do the work on a thread. If the task is cancelled, `cancel` is set and the work's end awaited."""
        await turn.acquire()
        if self.closed.is_set():
            turn.release()
            raise Closed("the sandbox is closed")
        return await self._on_thread(turn, work, cancel)

    async def close(self, work: Callable[[], None]) -> None:
        """Take no more calls, then do the work, once. Threads end with the calls that they run."""
        self.closed.set()
        await self._closing.acquire()
        if self._shut:
            self._closing.release()
            return
        try:
            await self._on_thread(self._closing, work, None)
        finally:
            self._shut = True
            self._pool.shutdown(wait=False)

    async def _on_thread(self, turn: asyncio.Semaphore, work: Callable[[], T], cancel: Cancel | None) -> T:
        """The turn is given back when the work has ended, whatever becomes of the task."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            call = self._submit(work)
        except BaseException:
            turn.release()
            raise
        call.add_done_callback(functools.partial(_announce, done, turn))
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            if cancel is not None:
                cancel.set()
            await _wait_bounded(done)
            raise
        return call.result()

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        refused = False

        def unless_refused() -> T:
            if refused:
                raise AssertionError("the caller was told that nothing ran")
            return work()

        try:
            return self._pool.submit(contextvars.copy_context().run, unless_refused)
        except RuntimeError as error:
            # No thread could be started, yet the pool keeps the work for a later one.
            refused = True
            raise BackendError(with_limit(f"the call cannot begin: {error}", error)) from error


def _announce(done: asyncio.Future[None], turn: asyncio.Semaphore, _: object) -> None:
    def settle() -> None:
        turn.release()
        if not done.done():
            done.set_result(None)

    # A loop that is closed has nobody who waits.
    with contextlib.suppress(RuntimeError):
        done.get_loop().call_soon_threadsafe(settle)


async def _wait_bounded(done: asyncio.Future[None]) -> None:
    """Wait for what ends a cancelled call; being cancelled again changes nothing."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + CANCEL_LIMIT_S
    while not done.done() and loop.time() < until_s:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({done}, timeout=until_s - loop.time())


def on_loop(deliver: Deliver, cancel: threading.Event, closed: threading.Event) -> OnOutput:
    """A callback for the thread of a call, that hands output to the loop and waits until it was taken.

    cancel, closed  set when nobody will take it any more"""
    loop = asyncio.get_running_loop()

    def unless_cancelled(stream: StreamName, data: bytes, taken: Future[None]) -> None:
        if not cancel.is_set():
            deliver(stream, data, taken)

    def relay(stream: StreamName, data: bytes) -> None:
        taken: Future[None] = Future()
        loop.call_soon_threadsafe(unless_cancelled, stream, data, taken)
        while True:
            try:
                return taken.result(_LOOK_S)
            except TimeoutError:
                if taken.done():
                    raise  # the callback's own
                if cancel.is_set() or closed.is_set() or loop.is_closed():
                    return None

    return relay


def calling(on_output: OnOutput) -> Deliver:
    """Hands output to a plain function of the caller's."""

    def deliver(stream: StreamName, data: bytes, taken: Future[None]) -> None:
        try:
            on_output(stream, data)
        except BaseException as error:
            taken.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            taken.set_result(None)

    return deliver
