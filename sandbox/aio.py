"""The async face: the same sandbox and shells, for people whose own code is async.

    async with AsyncSandbox(LocalSandbox()) as box:
        result = await box.exec("make", timeout_s=600)
        async for stream, data in box.stream("make test"):
            ...

Every method means what it means in `Sandbox` and `Shell`, and takes the same arguments. What differs:

- Cancelling the task that waits for a command (`task.cancel()`, `asyncio.timeout`) ends the command, its
  whole tree, before CancelledError is raised, or after CANCEL_LIMIT_S at the latest. Cancelling a `poll`
  ends the waiting only. A file call is not cut short; its result is dropped.
- `on_output` is a plain function, called on the event loop's thread; the program waits while it runs.
- A call that runs has a thread of its sandbox's own, so no sandbox waits for another, and shells, files
  and one-shot commands do not wait for each other. Beyond MAX_COMMANDS, MAX_FILE_CALLS, and one command
  in each shell, calls wait for their turn; their timeout counts from when their command begins.

An AsyncSandbox belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sandbox.aio_calls import CANCEL_LIMIT_S as CANCEL_LIMIT_S
from sandbox.aio_calls import MAX_COMMANDS as MAX_COMMANDS
from sandbox.aio_calls import MAX_FILE_CALLS as MAX_FILE_CALLS
from sandbox.aio_calls import Calls, Cancel, Deliver, calling, on_loop
from sandbox.errors import Cancelled
from sandbox.sandbox import Sandbox
from sandbox.shells import Shell, ShellInfo
from sandbox.values import ExecRequest, ExecResult, StreamName

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


class _Face(Generic[S]):
    """What the async sandbox and the async shell share.

    target   the synchronous one
    running  what its commands wait for
    polling  what calls wait for that wait for a command
    """

    def __init__(
        self, target: S, calls: Calls, running: asyncio.Semaphore, polling: asyncio.Semaphore
    ) -> None:
        self._target = target
        self._calls = calls
        self._running = running
        self._polling = polling

    async def _command(
        self,
        work: Callable[..., T],
        deliver: Deliver | None,
        given: dict[str, Any],
        turn: asyncio.Semaphore,
    ) -> T:
        """A command that a cancellation ends; `given` may hold the caller's own cancel event."""
        cancel = Cancel(given.get("cancel"))
        given = {**given, "cancel": cancel}
        if deliver is not None:
            given["on_output"] = on_loop(deliver, cancel, self._calls.closed)
        return await self._calls.run(turn, functools.partial(work, **given), cancel)


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
    method: Callable[Concatenate[S, P], T], *, polls: bool = False
) -> Callable[Concatenate[_Face[S], P], Coroutine[Any, Any, T]]:
    """A command, or the waiting for one, that a cancellation ends."""

    async def call(self: _Face[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        given: dict[str, Any] = dict(kwargs)
        on_output = given.get("on_output")
        work: Callable[..., T] = functools.partial(method, self._target, *args)
        deliver = calling(on_output) if on_output else None
        return await self._command(work, deliver, given, self._polling if polls else self._running)

    functools.update_wrapper(call, method)
    return call


def _streaming(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Face[S], P], AsyncStream[T]]:
    """The same command, with its output to iterate over; `on_output` is not used."""

    def call(self: _Face[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncStream[T]:
        given: dict[str, Any] = dict(kwargs)
        work: Callable[..., T] = functools.partial(method, self._target, *args)
        return AsyncStream(lambda deliver: self._command(work, deliver, given, self._running))

    functools.update_wrapper(call, method)
    call.__name__ = "stream"
    call.__doc__ = f"`{method.__name__}`, with the output to iterate over while the command runs."
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
        """The command's result, once all output has been taken; the rest of it is passed over.

        Raises Cancelled if the stream was closed before the command had ended."""
        async for _ in self:
            pass
        task = self._begun()
        if task.cancelled():
            raise Cancelled("the stream was closed while the command ran; the command was ended")
        return task.result()

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
        if item is not None:
            return item
        if not task.cancelled():
            task.result()
        raise StopAsyncIteration

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

    def end(self, task: asyncio.Task[Any]) -> None:
        self._ended = True
        self._news.set()
        # Looked at here, so that a stream which nobody reads to its end is no warning.
        if not task.cancelled():
            task.exception()

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
        calls = Calls()
        super().__init__(box, calls, calls.commands, calls.commands)

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

        deliver = calling(request.on_output) if request.on_output else None
        return await self._command(work, deliver, {"cancel": request.cancel}, self._running)

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
        await self._calls.close(self._target.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncShell(_Face[Shell]):
    """A named shell for async code. See Shell, and the module's words."""

    def __init__(self, shell: Shell, calls: Calls) -> None:
        super().__init__(shell, calls, *calls.of_shell(shell))

    @property
    def name(self) -> str:
        """The shell's name."""
        return self._target.name

    @property
    def is_open(self) -> bool:
        """See Shell.is_open."""
        return self._target.is_open

    @property
    def is_closed(self) -> bool:
        """See Shell.is_closed."""
        return self._target.is_closed

    def info(self) -> ShellInfo:
        """See Shell.info."""
        return self._target.info()

    run = _command(Shell.run)
    stream = _streaming(Shell.run)
    poll = _command(Shell.poll, polls=True)
    write = _short(Shell.write, "short")
    interrupt = _short(Shell.interrupt, "short")
    resize = _short(Shell.resize, "short")
    screen = _short(Shell.screen, "short")
    close = _short(Shell.close, "short")
