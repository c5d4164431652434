"""Bounded capture of a stream: its head, its tail, and an exact count of what fell between; pure."""

from __future__ import annotations

from sandbox.values import Output

HEAD_SHARE = 0.6


class Keeper:
    """Keeps the first 60 % and the last 40 % of a limit, whatever passes through."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._head_limit = int(limit_bytes * HEAD_SHARE)
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        if len(data) >= self._tail_limit:
            cut = len(data) - self._tail_limit
            self._dropped += len(self._tail) + cut
            self._tail = bytearray(data[cut:])
            return
        self._tail += data
        # Trimming only when twice the limit is held keeps the cost per byte constant.
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    def _trim(self) -> None:
        over = len(self._tail) - self._tail_limit
        if over > 0:
            self._dropped += over
            del self._tail[:over]

    def take(self) -> Output:
        """What is kept so far. Feeding may go on afterwards."""
        self._trim()
        return Output(bytes(self._head), bytes(self._tail), self._dropped)
