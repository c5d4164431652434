"""What a caller may do to a run from outside, from any thread, also before it has begun."""

from __future__ import annotations

import asyncio
import threading


class RunControl:
    """Handle on one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = False
        self._cancel = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def stop_after_turn(self) -> None:
        """End the run when the turn that runs now is complete. What it said last is the answer."""
        with self._lock:
            self._stop = True

    def cancel(self) -> None:
        """End the run now: the model call and the tools are cancelled, and the stream raises RunError."""
        with self._lock:
            self._cancel = True
            running = self._running
        if running is not None:
            loop, task = running
            loop.call_soon_threadsafe(task.cancel)

    @property
    def stop_requested(self) -> bool:
        """Whether `stop_after_turn` was called."""
        return self._stop

    @property
    def cancel_requested(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancel

    def attach(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        """For the stream: the task that a cancel ends."""
        with self._lock:
            self._running = (loop, task)
            cancelled = self._cancel
        if cancelled:
            task.cancel()

    def detach(self) -> None:
        """For the stream: there is nothing left to cancel."""
        with self._lock:
            self._running = None
