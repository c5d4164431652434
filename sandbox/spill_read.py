"""Ranged reads of an output in a file: bytes, lines, the tail. In bounded memory, however long the output, or
one line of it, is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.errors import RequestError

BLOCK_BYTES = 1 << 20
MAX_READ_BYTES = 64 << 20
"""How much one read gives at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an output, without its line end.

    number      counted from 1
    data        the line, or a part of it
    cut_before  how many bytes of it come before `data`
    cut_after   how many bytes of it come after `data`; -1: an unknown number
    matches     whether a search has found it; else it is context
    """

    number: int
    data: bytes
    cut_before: int = 0
    cut_after: int = 0
    matches: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines in a row. `total`: how many lines the output has."""

    lines: tuple[Line, ...]
    total: int


def at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RequestError(f"{name} must be a whole number of at least {least}, not {value!r}")


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} must be a whole number, not {value!r}")


# -- bytes and lines ------------------------------------------------------------------------------


def read_bytes(fd: int, offset: int, count: int) -> bytes:
    """See SpillStore.read_bytes."""
    _whole("offset", offset)
    at_least("count", count, 1)
    size = os.fstat(fd).st_size
    start = offset if offset >= 0 else max(0, size + offset)
    return pread(fd, start, min(count, MAX_READ_BYTES)) if start < size else b""


def read_lines(fd: int, first: int, count: int, limit_bytes: int) -> Lines:
    """See SpillStore.read_lines."""
    _whole("first", first)
    if first == 0:
        raise RequestError("first is 0; lines count from 1, and from -1 back from the end")
    at_least("count", count, 1)
    at_least("limit_bytes", limit_bytes, 1)
    total = _total(fd)
    number = first if first > 0 else max(1, total + first + 1)
    if number > total:
        return Lines((), total)
    return Lines(tuple(_page(fd, start_of(fd, number), number, count, limit_bytes)), total)


def tail(fd: int, count: int, limit_bytes: int) -> Lines:
    """See SpillStore.tail."""
    at_least("count", count, 1)
    at_least("limit_bytes", limit_bytes, 1)
    total, size = _total(fd), os.fstat(fd).st_size
    start = max(0, size - min(limit_bytes, MAX_READ_BYTES) - 1)
    data = pread(fd, start, size - start)
    pieces = data.removesuffix(b"\n").split(b"\n") if data else []
    if start and len(pieces) > 1:
        # The byte before the limit tells whether the first line is whole: then its piece is empty.
        del pieces[0]
    elif start:
        kept, ends = pieces[0][1:], size - data.endswith(b"\n")
        return Lines((Line(total, kept, ends - len(kept) - start_of(fd, total)),), total)
    pieces = pieces[-count:]
    first = total - len(pieces) + 1
    return Lines(tuple(Line(first + index, piece) for index, piece in enumerate(pieces)), total)


def _page(fd: int, start: int, number: int, count: int, limit_bytes: int) -> Iterator[Line]:
    """Lines from an offset that begins one, as many as the bounds let through."""
    data = pread(fd, start, min(limit_bytes, MAX_READ_BYTES) + 1)
    at = 0
    for index in range(count):
        end = data.find(b"\n", at)
        if end < 0 and start + len(data) >= os.fstat(fd).st_size:
            if at < len(data):
                yield Line(number + index, data[at:])
            return
        if end < 0 and index:
            return
        if end < 0:
            length = end_of(fd, start + len(data)) - start
            kept = data[:-1]
            yield Line(number, kept, cut_after=length - len(kept))
            return
        yield Line(number + index, data[at:end])
        at = end + 1


def blocks(fd: int, offset: int = 0) -> Iterator[bytes]:
    while block := pread(fd, offset, BLOCK_BYTES):
        yield block
        offset += len(block)


def _total(fd: int) -> int:
    """How many lines there are; a last one without a line end counts."""
    ends, last = 0, b"\n"
    for block in blocks(fd):
        ends += block.count(b"\n")
        last = block[-1:]
    return ends + (last != b"\n")


def start_of(fd: int, number: int) -> int:
    """The offset of a line that is there."""
    missing, offset = number - 1, 0
    for block in blocks(fd):
        if missing == 0:
            return offset
        ends = block.count(b"\n")
        if ends >= missing:
            return offset + nth_end(block, missing) + 1
        missing -= ends
        offset += len(block)
    return offset


def nth_end(block: bytes, number: int, start: int = 0) -> int:
    """Where the line end of that number after `start` stands; halving, so that it costs a few counts."""
    low, high = start, len(block)
    while high - low > 64:
        middle = (low + high) // 2
        ends = block.count(b"\n", low, middle)
        if ends >= number:
            high = middle
        else:
            low, number = middle, number - ends
    at = low - 1
    for _ in range(number):
        at = block.find(b"\n", at + 1)
    return at


def end_of(fd: int, offset: int) -> int:
    """Where the line ends that goes on at an offset."""
    for block in blocks(fd, offset):
        end = block.find(b"\n")
        if end >= 0:
            return offset + end
        offset += len(block)
    return offset


def pread(fd: int, offset: int, count: int) -> bytes:
    data = os.pread(fd, count, offset)
    if not data or len(data) == count:
        return data
    parts, got = [data], len(data)
    while got < count and (data := os.pread(fd, count - got, offset + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)
