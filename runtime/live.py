"""What one run holds while it runs, and the channel over which its events go to whoever reads them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from runtime.agent import AnyAgent
from runtime.context import RunContext
from runtime.control import Inbox
from runtime.events import (
    ApprovalRequested,
    Diagnostic,
    HandoffRequested,
    InjectedInputCreated,
    ItemCreated,
    ItemsSaved,
    ModelStreamed,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from runtime.guards import Guards
from runtime.items import Item
from runtime.models.model import Connected, Model
from runtime.options import RunOptions
from runtime.schema import JSON
from runtime.snapshot import TurnSnapshot, model_of, resolve
from runtime.state import Rewritten, RunCompleted, RunState
from runtime.usage import Usage

RunEvent = (
    TurnStarted
    | ItemCreated
    | InjectedInputCreated
    | HandoffRequested
    | ItemsSaved
    | ModelStreamed
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalRequested
    | RunCompleted
)

P = ParamSpec("P")

MAX_UNREAD_PROGRESS = 256
"""Pieces of progress that may wait to be read; a tool that has more to tell waits in its own thread."""
_POLL_S = 0.05


class Channel:
    """Hands events to one reader. The run goes on from `put` only when the reader comes back for more."""

    def __init__(self) -> None:
        self._events: deque[tuple[RunEvent, Callable[[], None] | None]] = deque()
        self._taken: Callable[[], None] | None = None
        self._ready = asyncio.Event()
        self._room = threading.Semaphore(MAX_UNREAD_PROGRESS)

    async def put(self, event: RunEvent) -> None:
        """Hand over an event, and wait until it has been dealt with."""
        dealt_with = asyncio.Event()
        self._add(event, dealt_with.set)
        await dealt_with.wait()

    def tell(self, event: RunEvent) -> None:
        """Hand over an event without waiting; on the event loop only."""
        self._add(event, None)

    def progress(self, event: ToolProgress, unwanted: Callable[[], bool]) -> Callable[[], None] | None:
        """From a tool's thread: wait for room for a piece of progress, and give what hands it over.

        None: nobody wants it any more.
        """
        while not self._room.acquire(timeout=_POLL_S):
            if unwanted():
                return None
        return lambda: self._add(event, self._room.release)

    async def take(self, run: asyncio.Task[None]) -> RunEvent | None:
        """The next event, or None when the run is over and nothing is left."""
        if self._taken is not None:
            self._taken()
            self._taken = None
        while not self._events:
            if run.done():
                return None
            self._ready.clear()
            await self._ready.wait()
        event, self._taken = self._events.popleft()
        return event

    def wake(self) -> None:
        """Let the reader look again."""
        self._ready.set()

    def _add(self, event: RunEvent, taken: Callable[[], None] | None) -> None:
        self._events.append((event, taken))
        self._ready.set()


@dataclass(kw_only=True)
class LiveRun:
    """One run: what it was given, and where it stands.

    agents    who the run may be handed over to, and who it was, by name
    view      what the model sees of the conversation; grows with `state.items` unless it is rewritten
    snapshot  what this turn works with; None: before the first
    prepared  what the next turn works with; None: the agent as it is then
    """

    agent: AnyAgent
    agents: dict[str, AnyAgent]
    options: RunOptions
    state: RunState
    inbox: Inbox
    channel: Channel
    guards: Guards
    context: RunContext[Any]
    view: list[Item] = field(default_factory=list)
    snapshot: TurnSnapshot | None = None
    prepared: TurnSnapshot | None = None
    connected: list[Model] = field(default_factory=list)
    since_s: float = 0.0

    def __post_init__(self) -> None:
        self.see()

    def record(self, make: Callable[P, Mapping[str, JSON]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make a step durable, where the run has a journal; else the record is not even made."""
        journal = self.options.observe.journal
        if journal is not None:
            journal.append(make(*args, **kwargs))

    @property
    def model(self) -> Model:
        """Who is asked, unless a turn's snapshot names another."""
        return model_of(self.agent, self.options)

    async def current(self) -> TurnSnapshot:
        """What this turn works with."""
        if self.snapshot is None:
            self.snapshot = await resolve(self.agent, self.options, self.state, self.context)
        return self.snapshot

    def join(self, items: Iterable[Item]) -> None:
        """Items become part of the conversation."""
        added = list(items)
        self.state.items.extend(added)
        self.show(added)

    def show(self, items: Iterable[Item]) -> None:
        """The model sees items that are part of the conversation."""
        self.view.extend(item.for_model() for item in items)

    def see(self) -> None:
        """Make the view anew from the state."""
        rewritten = self.state.rewritten
        before, length = (rewritten.items, rewritten.length) if rewritten else ((), 0)
        self.view = [item.for_model() for item in (*before, *self.state.items[length:])]

    def rewrite(self, items: Sequence[Item], length: int) -> None:
        """The model sees `items` instead of the first `length` of the run's."""
        self.state.rewritten = Rewritten(items=tuple(items), length=length)
        self.see()

    def spend(self, usage: Usage, *, nested: bool = False) -> None:
        """Count tokens."""
        self.state.usage += usage
        if nested:
            self.state.nested_usage += usage
        self.context.usage = self.state.usage

    def note(self, kind: str, message: str) -> None:
        """Trouble that the run survives."""
        self.state.diagnostics.append(Diagnostic(type=kind, message=message, turn=self.state.turn))

    def connect(self, model: Model) -> None:
        """A model is about to be used; its connections are kept until the run is over."""
        if isinstance(model, Connected) and not any(model is other for other in self.connected):
            model.connect()
            self.connected.append(model)

    def tick(self) -> float:
        """Seconds that the run has worked, noted in its state."""
        now_s = time.monotonic()
        if self.since_s:
            self.state.elapsed_s += now_s - self.since_s
        self.since_s = now_s
        return self.state.elapsed_s
