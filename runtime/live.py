"""What one run holds while it runs, and the channel over which its events go to whoever reads them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec

from runtime.agent import Agent
from runtime.control import RunControl
from runtime.events import (
    ApprovalRequested,
    ItemCreated,
    ModelStreamed,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from runtime.models.model import Model, ModelSettings, ToolSpec
from runtime.options import RunOptions
from runtime.schema import JSON
from runtime.state import RunCompleted, RunState
from runtime.tools import AnyTool

RunEvent = (
    TurnStarted
    | ItemCreated
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
    """One run: what it was given, and where it stands."""

    agent: Agent
    model: Model
    settings: ModelSettings
    options: RunOptions
    tools: Mapping[str, AnyTool]
    specs: Sequence[ToolSpec]
    state: RunState
    control: RunControl
    channel: Channel

    def record(self, make: Callable[P, Mapping[str, JSON]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make a step durable, where the run has a journal; else the record is not even made."""
        if self.options.journal is not None:
            self.options.journal.append(make(*args, **kwargs))
