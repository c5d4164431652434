"""The lock that keeps two tools from changing files at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from runtime.tools import ToolFailed

LOOK_S = 0.05
"""How often a waiting call looks whether it was cancelled, in seconds."""


@contextmanager
def holding(lock: threading.Lock, cancelled: threading.Event) -> Iterator[None]:
    """Hold the lock. Raises ToolFailed if the call is cancelled while it waits."""
    while not lock.acquire(timeout=LOOK_S):
        if cancelled.is_set():
            raise ToolFailed("cancelled while it waited for another change; nothing was changed")
    try:
        yield
    finally:
        lock.release()
