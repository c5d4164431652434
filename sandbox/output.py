"""Bounded capture of a stream: its head, its tail, and an exact count of what fell between."""

from __future__ import annotations

from dataclasses import replace

from sandbox.errors import RequestError
from sandbox.spill import Spill, SpillStore
from sandbox.values import DEFAULT_LIMIT_BYTES, MAX_LIMIT_BYTES, Output, unfinished_bytes

HEAD_SHARE = 0.6


def checked_limit(limit_bytes: int) -> int:
    """The limit to use: the default for 0 or less; RequestError for what is not a sane number of bytes."""
    if isinstance(limit_bytes, bool) or not isinstance(limit_bytes, int):
        raise RequestError(f"limit_bytes must be a whole number of bytes, not {limit_bytes!r}")
    if limit_bytes > MAX_LIMIT_BYTES:
        raise RequestError(
            f"limit_bytes is {limit_bytes}; at most {MAX_LIMIT_BYTES} bytes of a stream are kept in memory: "
            "a spill store keeps the whole of a longer one"
        )
    return limit_bytes if limit_bytes > 0 else DEFAULT_LIMIT_BYTES


def checked_spill(store: SpillStore | None) -> None:
    """RequestError for what is no spill store; a path would be noticed in the middle of the output only."""
    if store is not None and not isinstance(store, SpillStore):
        raise RequestError(f"spill must be a SpillStore, not {store!r}: make one with SpillStore(directory)")


def split_end(output: Output) -> tuple[Output, bytes]:
    """An output without the beginning of a character of UTF-8 that it ends with, and that beginning."""
    last = output.tail or output.head
    count = unfinished_bytes(last)
    if not count:
        return output, b""
    kept, half = last[:-count], last[-count:]
    return (replace(output, tail=kept) if output.tail else replace(output, head=kept)), half


class Keeper:
    """Keeps the first 60 % and the last 40 % of a limit, whatever passes through.

    limit_bytes  as `checked_limit` gives it; no more than this is held, and each byte is copied once
    store        takes the whole stream as soon as something has to be dropped here; None: it is lost
    """

    def __init__(self, limit_bytes: int, store: SpillStore | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.store = store
        self._head_limit = int(limit_bytes * HEAD_SHARE)
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        # Grows to its limit, then is a ring: the oldest byte stands at _at.
        self._tail = bytearray()
        self._at = 0
        self._dropped = 0
        self._spill: Spill | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream. Blocks as long as the disk of the spill store does."""
        if self._spill is not None:
            self._spill.write(data)
        elif self.store is not None and self._held + len(data) > self.limit_bytes:
            self._spill = self.store.begin()
            for part in (self._head, self._tail, data):
                self._spill.write(part)
        rest = memoryview(data)
        if (room := self._head_limit - len(self._head)) > 0:
            self._head += rest[:room]
            rest = rest[room:]
        if (room := self._tail_limit - len(self._tail)) > 0 and rest:
            self._tail += rest[:room]
            rest = rest[room:]
        if rest:
            self._dropped += len(rest)
            self._overwrite(rest)

    @property
    def _held(self) -> int:
        return len(self._head) + len(self._tail)

    def _overwrite(self, rest: memoryview) -> None:
        rest = rest[max(0, len(rest) - self._tail_limit) :]
        first = min(len(rest), self._tail_limit - self._at)
        self._tail[self._at : self._at + first] = rest[:first]
        self._tail[: len(rest) - first] = rest[first:]
        self._at = (self._at + len(rest)) % self._tail_limit

    def take(self) -> Output:
        """What is kept so far. Feeding may go on afterwards."""
        with memoryview(self._tail) as tail:
            last = b"".join((tail[self._at :], tail[: self._at]))
        spilled = self._spill.state() if self._spill is not None else None
        return Output(bytes(self._head), last, self._dropped, spilled)

    def close(self) -> None:
        """Let go of the spilled file; nothing is fed any more. Idempotent; `take` still works."""
        if self._spill is not None:
            self._spill.close()
