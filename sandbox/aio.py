"""The async face: the same sandbox and shells, for people whose own code is async.

    async with AsyncSandbox(LocalSandbox()) as box:
        result = await box.exec("make", timeout_s=600)
        async for stream, data in box.stream("make test"):
            ...

Every method means what it means in `Sandbox` and `Shell`, and takes the same arguments. What differs:

- Cancelling the task that waits for a command (`task.cancel()`, `asyncio.timeout`) ends the command, its
  whole tree, before CancelledError is raised, or after CANCEL_LIMIT_S at the latest. That holds for `poll`
  too: to stop waiting only, give it a short timeout. A file call is not cut short, its result is dropped.
- `on_output` is a plain function, called on the event loop's thread; the program waits while it runs.
- A call that runs has a thread of its sandbox's own, so no sandbox waits for another, and shells, files
  and one-shot commands do not wait for each other. Beyond MAX_COMMANDS, MAX_FILE_CALLS, and one command
  in each shell, calls wait for their turn; their timeout counts from when their command begins.

An AsyncSandbox belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sandbox.backends.limits import limit_words
from sandbox.errors import BackendError, Closed
from sandbox.sandbox import Sandbox
from sandbox.shells import MAX_SHELLS, Shell, ShellInfo
from sandbox.values import ExecRequest, ExecResult, OnOutput, StreamName

MAX_COMMANDS = 128
"""How many one-shot commands of one sandbox run at once; more wait for their turn."""
MAX_FILE_CALLS = 32
"""How many file calls of one sandbox run at once; more wait for their turn."""
CANCEL_LIMIT_S = 15.0
"""How long a cancelled call waits for its command to be ended, at most."""
_MAX_SHORT_CALLS = 32
_LOOK_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
Deliver = Callable[[StreamName, bytes, "Future[None]"], None]


class _Cancel(threading.Event):
    """The event that goes down with a call; set as well when the caller's own one is."""

    def __init__(self, other: threading.Event | None = None) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        return super().is_set() or (self._other is not None and self._other.is_set())


class _Calls:
    """Blocking calls of one sandbox, on threads of its own."""

    def __init__(self) -> None:
        self.commands = asyncio.Semaphore(MAX_COMMANDS)
        self.files = asyncio.Semaphore(MAX_FILE_CALLS)
        self.short = asyncio.Semaphore(_MAX_SHORT_CALLS)
        self.closing = asyncio.Semaphore(1)
        self._of_shells: weakref.WeakKeyDictionary[Shell, asyncio.Semaphore] = weakref.WeakKeyDictionary()
        # As many as may run by the semaphores, so that nothing waits in the pool; they start when needed.
        most = MAX_COMMANDS + MAX_FILE_CALLS + _MAX_SHORT_CALLS + MAX_SHELLS + 1
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="coderig-aio")
        self._closed = False

    def of_shell(self, shell: Shell) -> asyncio.Semaphore:
        """What commands of this shell wait for: one at a time."""
        return self._of_shells.setdefault(shell, asyncio.Semaphore(1))

    async def run(self, turn: asyncio.Semaphore, work: Callable[[], T], cancel: _Cancel | None = None) -> T:
        """Do the work on a thread. If the task is cancelled, `cancel` is set and the work's end awaited."""
        await turn.acquire()
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
        if self._closed:
            raise Closed("the sandbox is closed")
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
            raise BackendError(f"the call cannot begin: {error}; {limit_words(error)}") from error

    def close(self) -> None:
        """Take no more calls; threads end with what they do."""
        self._closed = True
        self._pool.shutdown(wait=False)


def _announce(done: asyncio.Future[None], turn: asyncio.Semaphore, _: object) -> None:
    def on_loop() -> None:
        turn.release()
        if not done.done():
            done.set_result(None)

    # A loop that is closed has nobody who waits.
    with contextlib.suppress(RuntimeError):
        done.get_loop().call_soon_threadsafe(on_loop)


async def _wait_bounded(done: asyncio.Future[None]) -> None:
    """Wait for what ends a cancelled call; being cancelled again changes nothing."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + CANCEL_LIMIT_S
    while not done.done() and loop.time() < until_s:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({done}, timeout=until_s - loop.time())


def _on_loop(deliver: Deliver, cancel: threading.Event) -> OnOutput:
    """A callback for the thread of a call, that hands output to the loop and waits until it was taken."""
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
                if cancel.is_set() or loop.is_closed():
                    return None

    return relay


def _calling(on_output: OnOutput) -> Deliver:
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


class _Face(Generic[S]):
    """What the async sandbox and the async shell share.

    target  the synchronous one
    turn    what its commands wait for
    """

    def __init__(self, target: S, calls: _Calls, turn: asyncio.Semaphore) -> None:
        self._target = target
        self._calls = calls
        self._turn = turn

    async def _command(self, work: Callable[..., T], deliver: Deliver | None, given: dict[str, Any]) -> T:
        """A command that a cancellation ends; `given` may hold the caller's own cancel event."""
        cancel = _Cancel(given.get("cancel"))
        if deliver is not None:
            given = {**given, "on_output": _on_loop(deliver, cancel)}
        return await self._calls.run(self._turn, functools.partial(work, **given, cancel=cancel), cancel)


# The wrappers keep a method's parameters, so that both faces have the same ones.


def _short(
    method: Callable[Concatenate[S, P], T], turn: str
) -> Callable[Concatenate[_Face[S], P], Coroutine[Any, Any, T]]:
    """A call that is not cut short."""

    async def call(self: _Face[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        semaphore = getattr(self._calls, turn)
        return await self._calls.run(semaphore, lambda: method(self._target, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _command(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Face[S], P], Coroutine[Any, Any, T]]:
    """A command that a cancellation ends."""

    async def call(self: _Face[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        given: dict[str, Any] = dict(kwargs)
        on_output = given.get("on_output")
        work: Callable[..., T] = functools.partial(method, self._target, *args)
        return await self._command(work, _calling(on_output) if on_output else None, given)

    functools.update_wrapper(call, method)
    return call


def _streaming(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Face[S], P], AsyncStream[T]]:
    """The same command, with its output to iterate over; `on_output` is not used."""

    def call(self: _Face[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncStream[T]:
        given: dict[str, Any] = dict(kwargs)
        work: Callable[..., T] = functools.partial(method, self._target, *args)
        return AsyncStream(lambda deliver: self._command(work, deliver, given))

    functools.update_wrapper(call, method)
    return call


class AsyncStream(Generic[T]):
    """The output of one command while it runs: `async for stream, data in …`.

    The command begins when iteration does, and waits while nobody takes its output. Leaving `async with`,
    `aclose`, or letting go of the object ends it. `result` waits for its end."""

    def __init__(self, start: Callable[[Deliver], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._task: asyncio.Task[T] | None = None
        self._inbox = _Inbox()

    async def result(self) -> T:
        """The command's result, once all output has been taken; the rest of it is passed over."""
        async for _ in self:
            pass
        return await self._begun()

    async def aclose(self) -> None:
        """End the command if it still runs. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _begun(self) -> asyncio.Task[T]:
        if self._task is None:
            self._task = asyncio.ensure_future(self._start(self._inbox.offer))
            self._task.add_done_callback(self._inbox.end)
        return self._task

    def __aiter__(self) -> AsyncIterator[tuple[StreamName, bytes]]:
        return self

    async def __anext__(self) -> tuple[StreamName, bytes]:
        task = self._begun()
        item = await self._inbox.next()
        if item is None:
            if task.cancelled():
                raise StopAsyncIteration
            task.result()
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)


class _Inbox:
    """One piece of output at a time, on the loop's thread; the next is let in when one more is asked for."""

    def __init__(self) -> None:
        self._item: tuple[StreamName, bytes] | None = None
        self._taken: Future[None] | None = None
        self._news = asyncio.Event()
        self._ended = False

    def offer(self, stream: StreamName, data: bytes, taken: Future[None]) -> None:
        self._item, self._taken = (stream, data), taken
        self._news.set()

    def end(self, _: object) -> None:
        self._ended = True
        self._news.set()

    async def next(self) -> tuple[StreamName, bytes] | None:
        if self._item is None and self._taken is not None:
            taken, self._taken = self._taken, None
            taken.set_result(None)
        while self._item is None:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        item, self._item = self._item, None
        return item


class AsyncSandbox(_Face[Sandbox]):
    """A sandbox for async code; see the module's words. `async with` closes the sandbox.

    box  the sandbox, open; closing this closes it
    """

    def __init__(self, box: Sandbox) -> None:
        calls = _Calls()
        super().__init__(box, calls, calls.commands)

    @property
    def name(self) -> str:
        """What people read in messages."""
        return self._target.name

    @property
    def sync(self) -> Sandbox:
        """The sandbox itself, for code on threads."""
        return self._target

    async def cwd(self) -> str:
        """The working directory, absolute. Asks the place once if it was not given as absolute."""
        return await self._calls.run(self._calls.files, lambda: self._target.cwd)

    async def run(self, request: ExecRequest) -> ExecResult:
        """See Sandbox.run."""

        def work(**changes: Any) -> ExecResult:
            return self._target.run(replace(request, **changes))

        deliver = _calling(request.on_output) if request.on_output else None
        return await self._command(work, deliver, {"cancel": request.cancel})

    exec = _command(Sandbox.exec)
    stream = _streaming(Sandbox.exec)

    def shell(self, name: str) -> AsyncShell:
        """See Sandbox.shell."""
        return AsyncShell(self._target.shell(name), self._calls)

    def shells(self) -> list[ShellInfo]:
        """See Sandbox.shells."""
        return self._target.shells()

    read_file = _short(Sandbox.read_file, "files")
    write_file = _short(Sandbox.write_file, "files")
    create_exclusive = _short(Sandbox.create_exclusive, "files")
    list_dir = _short(Sandbox.list_dir, "files")
    stat = _short(Sandbox.stat, "files")
    remove = _short(Sandbox.remove, "files")
    rename = _short(Sandbox.rename, "files")
    make_dirs = _short(Sandbox.make_dirs, "files")
    upload = _short(Sandbox.upload, "files")
    download = _short(Sandbox.download, "files")

    async def close(self) -> None:
        """See Sandbox.close. Calls that run or wait raise Closed in their tasks."""
        try:
            await self._calls.run(self._calls.closing, self._target.close)
        except Closed:
            return  # it was closed before
        finally:
            self._calls.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncShell(_Face[Shell]):
    """A named shell for async code. See Shell, and the module's words."""

    def __init__(self, shell: Shell, calls: _Calls) -> None:
        super().__init__(shell, calls, calls.of_shell(shell))

    @property
    def name(self) -> str:
        """The shell's name."""
        return self._target.name

    @property
    def is_open(self) -> bool:
        """See Shell.is_open."""
        return self._target.is_open

    def info(self) -> ShellInfo:
        """See Shell.info."""
        return self._target.info()

    run = _command(Shell.run)
    stream = _streaming(Shell.run)
    poll = _command(Shell.poll)
    write = _short(Shell.write, "short")
    interrupt = _short(Shell.interrupt, "short")
    resize = _short(Shell.resize, "short")
    screen = _short(Shell.screen, "short")
    close = _short(Shell.close, "short")
