"""A search in an output in a file: line by line in meaning, block by block in cost, in bounded memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from sandbox.errors import RequestError
from sandbox.spill_read import BLOCK_BYTES, Line, at_least, blocks, end_of, nth_end, pread, start_of

OVERLAP_BYTES = 4096
SHOWN_LINE_BYTES = 4096
"""How much of a line is shown."""

View = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    lines      in order, each once, context among them
    matches    how many of them match
    next_line  0: the search came to the end; else a bound was met, and it goes on from this line
    """

    lines: tuple[Line, ...]
    matches: int
    next_line: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a search begins, and how much it shows. See SpillStore.search."""

    first: int
    context: int
    most: int
    limit_bytes: int

    def __post_init__(self) -> None:
        at_least("first", self.first, 1)
        at_least("context", self.context, 0)
        at_least("most", self.most, 1)
        at_least("limit_bytes", self.limit_bytes, 1)


def compiled(pattern: str, *, regex: bool, ignore_case: bool) -> Any:
    """A pattern that never matches beyond a line. Raises RequestError."""
    import re2  # costs more than the rest of this module together, and few searches are made

    if not isinstance(pattern, str) or not pattern:
        raise RequestError("the pattern is empty; give a text to look for")
    if "\n" in pattern:
        raise RequestError("the pattern holds a line end; a search looks at one line at a time")
    options = re2.Options()
    options.never_nl = True
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.literal = not regex
    try:
        text = f"(?m){_line_anchors(pattern)}" if regex else pattern
        return re2.compile(text.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0] if isinstance(error, re2.error) and error.args else "it is no text"
        if isinstance(words, bytes):
            words = words.decode("utf-8", "replace")
        words = words.replace("(?m)", "", 1)
        raise RequestError(f"the pattern {pattern[:200]!r} cannot be used: {words}") from None


def _line_anchors(pattern: str) -> str:
    r"""The pattern with \A and \z for the edges of a line, as if each line were searched alone."""
    edges = {r"\A": "^", r"\z": "$"}
    return re.sub(r"\\.", lambda pair: edges.get(pair[0], pair[0]), pattern)


def search(fd: int, pattern: Any, bounds: Bounds, view: View | None) -> Found:
    """See SpillStore.search."""
    start = start_of(fd, bounds.first) if bounds.first > 1 else 0
    collected = _Collected(bounds)
    for piece in _pieces(fd, start, bounds.first):
        for hit in _hits(piece, pattern, view):
            if not collected.take(fd, hit, view):
                return Found(tuple(collected.lines.values()), collected.matches, hit.number)
    return Found(tuple(collected.lines.values()), collected.matches)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Whole lines, or a part of one that is too long.

    before  how many bytes of the line come before this part
    ends    whether it ends where a line does
    """

    data: bytes
    offset: int
    number: int
    before: int = 0
    ends: bool = True


@dataclass(frozen=True, slots=True)
class _Hit:
    """A line that matches: where it, or this part of it, begins in the file; what is shown of it."""

    number: int
    offset: int
    line: Line


def _pieces(fd: int, offset: int, number: int) -> Iterator[_Piece]:
    rest, before = b"", 0
    for block in blocks(fd, offset):
        data = rest + block
        end = data.rfind(b"\n") + 1
        if not end and len(data) < BLOCK_BYTES:
            rest = data
            continue
        if not end:
            yield _Piece(data, offset, number, before, ends=False)
            step = len(data) - OVERLAP_BYTES
            offset, before, rest = offset + step, before + step, data[step:]
            continue
        first = 0
        if before:
            first = data.find(b"\n") + 1
            yield _Piece(data[:first], offset, number, before)
            number, before = number + 1, 0
        if end > first:
            yield _Piece(data[first:end], offset + first, number)
            number += data.count(b"\n", first, end)
        offset, rest = offset + end, data[end:]
    if rest:
        yield _Piece(rest, offset, number, before)


def _hits(piece: _Piece, pattern: Any, view: View | None) -> Iterator[_Hit]:
    """The matching lines of a piece, in order."""
    text = (view(piece.data) if view is not None else piece.data).replace(b"\r\n", b"\n")
    number, raw_at = piece.number, 0
    # At the edges of a part one byte is left as context, or they would pass for the edges of a line; the
    # parts overlap.
    at = 1 if piece.before else 0
    last = len(text) if piece.ends else len(text) - 1
    while at < last:
        match = pattern.search(text, at, last)
        if match is None or match.start() >= len(text):
            return
        begin = text.rfind(b"\n", 0, match.start()) + 1
        end = text.find(b"\n", match.start())
        end = len(text) if end < 0 else end
        if passed := text.count(b"\n", at, begin):
            number += passed
            raw_at = nth_end(piece.data, passed, raw_at) + 1
        yield _Hit(number, piece.offset + raw_at, _shown(text, begin, end, match.start(), number, piece))
        at, number = end + 1, number + 1
        raw_at = piece.data.find(b"\n", raw_at) + 1


def _shown(text: bytes, begin: int, end: int, at: int, number: int, piece: _Piece) -> Line:
    """A line with its match in it, however long it is."""
    first = begin
    if end - begin > SHOWN_LINE_BYTES:
        first = max(begin, min(at - SHOWN_LINE_BYTES // 4, end - SHOWN_LINE_BYTES))
    last = min(end, first + SHOWN_LINE_BYTES)
    after = end - last if piece.ends else -1
    return Line(number, text[first:last], piece.before + first - begin, after, matches=True)


@dataclass
class _Collected:
    """The lines of a search so far, by number."""

    bounds: Bounds
    lines: dict[int, Line] = field(default_factory=dict)
    matches: int = 0
    _bytes: int = 0

    def take(self, fd: int, hit: _Hit, view: View | None) -> bool:
        """Add a matching line and its context. False: a bound is met, and nothing was added."""
        known = self.lines.get(hit.number)
        if known is not None and known.matches:
            return True  # a long line, found again in its next piece
        if self.matches >= self.bounds.most:
            return False
        near = [hit.line] if not self.bounds.context else self._near(fd, hit, view)
        new = [line for line in near if line.number not in self.lines or line.matches]
        size = sum(len(line.data) for line in new)
        if self._bytes + size > self.bounds.limit_bytes and self.matches:
            return False
        self._bytes += size
        self.matches += 1
        # A line that was context before keeps its place in the order of the dictionary.
        for line in new:
            self.lines[line.number] = line
        return True

    def _near(self, fd: int, hit: _Hit, view: View | None) -> list[Line]:
        before = _around(fd, hit, self.bounds.context, "before", view)
        after = _around(fd, hit, self.bounds.context, "after", view)
        return [*before, hit.line, *after]


def _around(
    fd: int, hit: _Hit, count: int, where: Literal["before", "after"], view: View | None
) -> list[Line]:
    """The lines next to a hit, as far as 64 KiB reach."""
    reach = 16 * SHOWN_LINE_BYTES
    if where == "before":
        start = max(0, hit.offset - reach)
        data = pread(fd, start, hit.offset - start)
        pieces = data.split(b"\n")[:-1] if data else []
        if start and pieces:
            del pieces[0]
        pieces = pieces[-count:]
        first = hit.number - len(pieces)
    else:
        begin = end_of(fd, hit.offset) + 1
        data = pread(fd, begin, reach)
        ended = begin + len(data) >= os.fstat(fd).st_size
        pieces = data.split(b"\n")
        if not ended or not pieces[-1]:
            del pieces[-1]
        pieces = pieces[:count]
        first = hit.number + 1
    return [_context_line(first + index, piece, view) for index, piece in enumerate(pieces)]


def _context_line(number: int, data: bytes, view: View | None) -> Line:
    data = (view(data) if view is not None else data).removesuffix(b"\r")
    return Line(number, data[:SHOWN_LINE_BYTES], cut_after=max(0, len(data) - SHOWN_LINE_BYTES))
