"""Server-sent events out of bytes that arrive in any slices."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
MARK_BYTES = 16
"""How many bytes tell a stream from something else."""


def is_stream(begun: bytes) -> bool:
    """Whether bytes begin as a stream of events does, whatever they are called."""
    return begun.removeprefix(_BOM).lstrip().startswith(_BEGINNINGS)


class Decoder:
    """Gives the data of each event once it is whole. What an interrupted event held is never given."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that these bytes complete."""
        if self._after_cr and chunk:
            # The second half of a line end whose first half ended the chunk before.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return []
        events: list[str] = []
        for line in chunk.splitlines(keepends=True):
            self._pieces.append(line)
            if line.endswith((b"\n", b"\r")):
                self._line(b"".join(self._pieces).rstrip(b"\r\n"), events)
                self._pieces.clear()
        self._after_cr = chunk.endswith(b"\r")
        return events

    def _line(self, line: bytes, events: list[str]) -> None:
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if not line:
            if self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data.clear()
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
