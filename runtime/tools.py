"""The Tool seam: what a tool is, and the one bridge from the asyncio loop to tools that block.

A tool takes the raw argument text of a call and gives text for the model. Three things can go wrong in it,
and each has one way out: `BadArguments` from `parse`, `ToolFailed` from `run`, a verdict other than "allow"
from `check`. Anything else that is raised is a crash; it becomes an error result too, so that a call always
has one.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from runtime.context import RunContext
from runtime.schema import JSON, JsonError, clean_text, load_object
from runtime.state import RunState
from runtime.usage import Usage

A = TypeVar("A")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

ERROR_LIMIT_BYTES = 1024
"""The longest text with which wrong arguments are answered."""
MAX_THREADS = 64
"""How many blocking calls run at once in this process; more wait for a free thread."""
CANCEL_GRACE_S = 5.0
"""How long a cancelled call may take to return before it is left to itself."""


class BadArguments(Exception):
    """The arguments of a call could not be read; `str(error)` is the text for the model."""


class ToolFailed(Exception):
    """The tool could not do what was asked; `str(error)` is the text for the model."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's answer about one call.

    decision  "allow": run it; "ask": a person decides first; "deny": refuse it, ask nobody
    reason    words for a person, and for the model when the call is denied
    rule      the name of the rule that decided, for logs and people
    """

    decision: Literal["allow", "ask", "deny"]
    reason: str = ""
    rule: str = ""


ALLOW = Verdict("allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call gave.

    text      what the model reads
    is_error  the call failed; the text says how
    details   facts for user interfaces; never shown to the model; JSON
    title     one line for people that names the call; "": the tool's name
    summary   one line for people that tells the outcome
    terminate  asks for the end of the run; it ends when every call of the answer asks for it
    """

    text: str
    is_error: bool = False
    terminate: bool = False
    details: Mapping[str, JSON] | None = None
    title: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What goes down with a call besides its arguments.

    cancelled  set when the run no longer wants the result; a blocking tool must look at it
    emit       progress text for those who watch; from any thread; slows the tool down when nobody reads;
               ignored after the tool has returned; never shown to the model
    run        the run that makes the call
    paused     for a tool that runs an agent: that run, paused in this very call and to be resumed
    report     tells tokens that the call spends on models of its own, as they are spent; on the event loop
    """

    call_id: str
    tool_name: str
    cancelled: threading.Event
    emit: Callable[[str], None]
    run: RunContext = field(default_factory=lambda: RunContext(value=None))
    paused: RunState | None = None
    report: Callable[[Usage], None] = lambda usage: None


@dataclass(frozen=True, kw_only=True)
class Tool(Generic[A]):
    """One tool that a model can call.

    parameters  the JSON schema of the arguments, as the model is shown it
    parse       raw argument text to arguments, or BadArguments; the only validation
    run         does the work: a blocking function (it gets a thread) or an async one
    check       asked before a person is, and again right before running; None: always allowed
    preview     what a person is shown when asked; None: the arguments as they came
    read_only   changes nothing, so it may be repeated
    sequential  never beside another call: a batch that holds one runs call by call
    strict      the provider is asked to hold the model to the schema where it can
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]
    parse: Callable[[str], A]
    run: Callable[[ToolContext, A], ToolResult | str | Awaitable[ToolResult | str]]
    check: Callable[[A], Verdict] | None = None
    preview: Callable[[A], str] | None = None
    read_only: bool = False
    sequential: bool = False
    strict: bool = True


AnyTool: TypeAlias = Tool[Any]
"""A tool whose argument type does not matter here."""


def pydantic_parse(model: type[M]) -> Callable[[str], M]:
    """A `parse` for a pydantic model.

    Text that is no JSON object, has a key twice, or holds NaN, and values that the model refuses, are
    BadArguments that name the field in at most 1 KiB. Empty text and `null` read as `{}`.
    """

    def parse(text: str) -> M:
        try:
            return model.model_validate(load_object(text))
        except JsonError as error:
            raise BadArguments(
                bounded(f"The arguments are {error}. Send one JSON object.", ERROR_LIMIT_BYTES)
            ) from None
        except ValidationError as error:
            raise BadArguments(bounded(_field_errors(error), ERROR_LIMIT_BYTES)) from None

    return parse


@dataclass(frozen=True, slots=True)
class BoundCall(Generic[A]):
    """A tool together with the arguments of one call, read and valid."""

    tool: Tool[A]
    arguments: A

    async def check(self) -> Verdict:
        """The tool's verdict. Raises what the tool's own check raises."""
        if self.tool.check is None:
            return ALLOW
        check, arguments = self.tool.check, self.arguments
        verdict = await in_thread(lambda: check(arguments))
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a check gives a Verdict, not {type(verdict).__name__}")
        return verdict

    async def preview(self, raw: str) -> str:
        """What a person is shown; the raw argument text where the tool has no better words."""
        if self.tool.preview is None:
            return raw
        preview, arguments = self.tool.preview, self.arguments
        return await in_thread(lambda: str(preview(arguments)))

    async def run(self, context: ToolContext) -> ToolResult:
        """Run the tool. Raises what the tool raises; cancelling sets the event and drops a late result."""
        run, arguments = self.tool.run, self.arguments
        if inspect.iscoroutinefunction(run):
            try:
                return _as_result(await run(context, arguments))
            except asyncio.CancelledError:
                context.cancelled.set()
                raise
        value = await in_thread(lambda: run(context, arguments), context.cancelled)
        return _as_result(await value if inspect.isawaitable(value) else value)


def bind(tool: Tool[A], raw: str) -> BoundCall[A]:
    """Read the argument text of a call. Raises BadArguments, and whatever a broken `parse` raises."""
    return BoundCall(tool, tool.parse(raw))


async def in_thread(function: Callable[[], T], cancelled: threading.Event | None = None) -> T:
    """Run a blocking function on the tools' own threads.

    When the waiting task is cancelled, the event is set, the function gets a bounded time to return, and what
    it returns or raises is dropped.
    """
    future = _threads().submit(contextvars.copy_context().run, _finite, function)
    waiter = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waiter)
    except asyncio.CancelledError:
        if cancelled is not None:
            cancelled.set()
        await _let_go(future, waiter)
        raise


def _finite(function: Callable[[], T]) -> T:
    try:
        return function()
    except (StopIteration, asyncio.CancelledError, CancelledError) as error:
        # A future does not take StopIteration (who waits for it would wait for ever), and a cancellation that
        # comes out of it would be taken for the waiting task's own.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


async def _let_go(future: Future[T], waiter: asyncio.Future[T]) -> None:
    if future.cancel():
        return
    # Looked at, so that asyncio does not report a failure that is dropped on purpose.
    waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait([waiter], timeout=CANCEL_GRACE_S)
    finally:
        waiter.cancel()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="tool")


def _as_result(value: object) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(text=value)
    raise TypeError(f"a tool returns text or a ToolResult, not {type(value).__name__}")


def _field_errors(error: ValidationError) -> str:
    lines = [
        f"- {_path(part['loc'])}: {part['msg']}"
        for part in error.errors(include_url=False, include_input=False)
    ]
    return "The arguments do not fit the tool's schema:\n" + "\n".join(lines)


def _path(location: tuple[int | str, ...]) -> str:
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in location)


def bounded(text: str, limit_bytes: int) -> str:
    """The text, cut at a character so that it has at most this many bytes of UTF-8."""
    data = clean_text(text).encode()
    if len(data) <= limit_bytes:
        return data.decode()
    return data[: limit_bytes - 3].decode("utf-8", "ignore") + "\u2026"
