"""One producer's events for many consumers, each at its own pace; what one of them misses, it is told."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

DEFAULT_REPLAY = 1024
DEFAULT_BUFFER = 1024


@dataclass(frozen=True, slots=True)
class Published(Generic[T]):
    """One event. Numbers begin at 1 and grow by 1."""

    number: int
    event: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events that a consumer does not get. It stands where they would have stood.

    last_good  the last number before the gap: subscribing again behind it gets what is still there; 0: from
               the start, because the numbers that the consumer knows are not of these events
    dropped    how many are missing
    next       the number of the event that follows; 0 with `at_end`
    at_end     nothing follows: the producer has ended
    """

    last_good: int
    dropped: int
    next: int
    at_end: bool = False


class Subscription(Generic[T]):
    """What one consumer reads, with `async for`, in one event loop. `cancel` ends it, from any thread."""

    def __init__(self, fanout: Fanout[T], buffer: int, last_good: int) -> None:
        self._fanout = fanout
        self._events: deque[Published[T]] = deque()
        self._buffer = buffer
        self._last_good = last_good
        self._dropped = 0
        self._reset: Gap | None = None
        self._over = False
        self._cancelled = False
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def cancel(self) -> None:
        """Read no more. Nothing is told about what is not read."""
        with self._fanout._lock:
            self._cancelled = True
            self._fanout._forget(self)
            self._wake()

    def __aiter__(self) -> AsyncIterator[Published[T] | Gap]:
        return self

    async def __anext__(self) -> Published[T] | Gap:
        while True:
            with self._fanout._lock:
                if self._cancelled:
                    raise StopAsyncIteration
                found = self._next()
                if found is not None:
                    return found
                if self._over:
                    raise StopAsyncIteration
                ready = asyncio.Event()
                self._waiting = (asyncio.get_running_loop(), ready)
            await ready.wait()

    def _next(self) -> Published[T] | Gap | None:
        if self._reset is not None:
            gap, self._reset = self._reset, None
            return gap
        if self._dropped and (self._events or self._over):
            gap = Gap(
                last_good=self._last_good,
                dropped=self._dropped,
                next=self._events[0].number if self._events else 0,
                at_end=not self._events,
            )
            self._dropped = 0
            return gap
        if not self._events:
            return None
        event = self._events.popleft()
        self._last_good = event.number
        return event

    def _put(self, event: Published[T]) -> None:
        # The newest are kept: what a slow consumer reads next is as near to the present as can be.
        if len(self._events) == self._buffer:
            self._dropped += 1
            if self._events:
                self._events.popleft()
        if self._buffer:
            self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            loop, ready = self._waiting
            self._waiting = None
            if not loop.is_closed():
                loop.call_soon_threadsafe(ready.set)


class Fanout(Generic[T]):
    """Publishes to all who subscribed, and keeps the last events for who comes late. Safe from any thread.

    replay  how many of the last events are kept
    """

    def __init__(self, replay: int = DEFAULT_REPLAY) -> None:
        self._lock = threading.RLock()
        self._kept: deque[Published[T]] = deque(maxlen=replay)
        self._number = 0
        self._closed = False
        self._subscriptions: list[Subscription[T]] = []

    def publish(self, event: T) -> int:
        """Hand an event to everyone, without waiting; its number. 0: it came after `close` and is dropped."""
        with self._lock:
            if self._closed:
                return 0
            self._number += 1
            published = Published(self._number, event)
            self._kept.append(published)
            for subscription in self._subscriptions:
                subscription._put(published)
            return self._number

    def close(self) -> None:
        """Nothing more will be published. What is buffered is still read."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription._over = True
                subscription._wake()
            self._subscriptions = []

    def subscribe(self, after: int | None = None, *, buffer: int = DEFAULT_BUFFER) -> Subscription[T]:
        """Read what is published from now on.

        after   also what is kept behind this number; 0: all that is kept. What is not kept any more is a gap.
                A number that was not given out yet is of another producer: a gap tells so at once, with
                `last_good` 0
        buffer  how many events may wait to be read; the oldest of more are dropped, with a gap
        """
        with self._lock:
            start = self._number if after is None else min(after, self._number)
            subscription: Subscription[T] = Subscription(self, max(1, buffer), start)
            if after is not None and after > self._number:
                subscription._reset = Gap(last_good=0, dropped=after, next=self._number + 1)
            first = self._kept[0].number if self._kept else self._number + 1
            if after is not None and start + 1 < first:
                subscription._dropped = first - start - 1
            # The backlog is complete, however small the buffer: it is behind the consumer's own number.
            subscription._events.extend(event for event in self._kept if event.number > start)
            subscription._buffer = max(subscription._buffer, len(subscription._events))
            subscription._over = self._closed
            if not self._closed:
                self._subscriptions.append(subscription)
            return subscription

    async def relay(self, events: AsyncIterable[T]) -> None:
        """Publish all of a stream, as a run's, and close; also when the stream fails, which is raised."""
        try:
            async for event in events:
                self.publish(event)
        finally:
            self.close()

    def _forget(self, subscription: Subscription[T]) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
