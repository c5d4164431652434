"""What a caller may do to a run from outside, from any thread, also before it has begun."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace

from runtime.items import Item, ItemKind, Source, user_message
from runtime.state import Queued, QueueKind


class Inbox:
    """The run's side of a control: what was asked for, and the queue of what was said.

    What is taken stays in the inbox until it is kept somewhere: `commit` when it is, `roll_back` puts it
    back in the order in which it came.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = False
        self._cancel = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._queue: list[Queued] = []
        self._taken: list[Queued] = []

    @property
    def stop_requested(self) -> bool:
        """Whether the run has to end after this turn."""
        return self._stop

    @property
    def cancel_requested(self) -> bool:
        """Whether the run has to end now."""
        return self._cancel

    def stop(self) -> None:
        """See RunControl."""
        with self._lock:
            self._stop = True

    def cancel(self) -> None:
        """See RunControl."""
        with self._lock:
            self._cancel = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    def attach(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        """The task that a cancel ends."""
        with self._lock:
            self._running = (loop, task)
            cancelled = self._cancel
        if cancelled:
            task.cancel()

    def detach(self) -> None:
        """There is nothing left to cancel."""
        with self._lock:
            self._running = None

    def put(self, kind: QueueKind, item: Item) -> None:
        """Add to the queue."""
        with self._lock:
            self._queue.append(Queued(id=uuid.uuid4().hex, kind=kind, item=item))

    def seed(self, queued: Sequence[Queued], delivered: Collection[str]) -> None:
        """What a state holds comes first; what it holds already as delivered is not delivered again."""
        with self._lock:
            known = {entry.id for entry in queued}
            rest = [entry for entry in self._queue if entry.id not in known and entry.id not in delivered]
            self._queue = [*queued, *rest]

    def take(self, kinds: Collection[QueueKind]) -> list[Queued]:
        """Everything of these kinds, in the order in which it came."""
        with self._lock:
            found = [entry for entry in self._queue if entry.kind in kinds and entry not in self._taken]
            self._taken += found
            return found

    def commit(self) -> None:
        """What was taken is kept now."""
        with self._lock:
            done = {entry.id for entry in self._taken}
            self._queue = [entry for entry in self._queue if entry.id not in done]
            self._taken = []

    def roll_back(self) -> None:
        """What was taken was not kept: it waits again."""
        with self._lock:
            self._taken = []

    def pending(self) -> list[Queued]:
        """What waits, in the order in which it came."""
        with self._lock:
            return [entry for entry in self._queue if entry not in self._taken]


class RunControl:
    """Handle on one run. Every method may be called from any thread, before the run begins too."""

    def __init__(self) -> None:
        self._inbox = Inbox()

    def stop_after_turn(self) -> None:
        """End the run when the turn that runs now is complete. What it said last is the answer."""
        self._inbox.stop()

    def cancel(self) -> None:
        """End the run now: the model call and the tools are cancelled, and the stream raises RunError."""
        self._inbox.cancel()

    def steer(self, text: str | Item) -> None:
        """Say something as soon as it can be heard: after this turn. A run that would end goes on for it."""
        self._inbox.put("steer", _said(text))

    def next_turn(self, text: str | Item) -> None:
        """Say something with the next turn, if the run takes one anyway."""
        self._inbox.put("next_turn", _said(text))

    def follow_up(self, text: str | Item) -> None:
        """Say something when the run has its answer; it goes on for it."""
        self._inbox.put("follow_up", _said(text))

    def pending(self) -> Sequence[Item]:
        """What was said and is not part of the conversation yet, in the order in which it was said."""
        return [entry.item for entry in self._inbox.pending()]


def inbox_of(control: RunControl) -> Inbox:
    """The run's side of a control."""
    return control._inbox


def _said(text: str | Item) -> Item:
    item = user_message(text) if isinstance(text, str) else text
    return replace(item, kind=ItemKind.INJECTED_INPUT, source=Source.USER)
