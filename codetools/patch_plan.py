"""What a patch does to the bytes of a file. Pure: old bytes and hunks in, new bytes out.

A file is a list of lines, each with its own line end. Bytes that are not UTF-8 travel as surrogate escapes,
so whatever a hunk does not touch comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codetools.patch import Hunk, PatchError
from codetools.render import visible

BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class FileLine:
    """One line of a file: its text without the line end, and the end: `\\n`, `\\r\\n` or nothing."""

    text: str
    end: str
    added: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """The new content of a file, and remarks about how the hunks were made to fit."""

    data: bytes
    notes: tuple[str, ...] = ()


def apply_hunks(path: str, data: bytes, hunks: Sequence[Hunk]) -> Edited:
    """The file's bytes with all hunks applied. Raises PatchError: which hunk does not fit, and why."""
    text = data.decode("utf-8", "surrogateescape")
    bom = BOM if text.startswith(BOM) else ""
    lines = list(split_lines(text.removeprefix(BOM)))
    editor = _Editor(path, lines)
    for hunk in hunks:
        editor.apply(hunk)
    edited = _with_ends(editor.result(), lines)
    joined = bom + "".join(line.text + line.end for line in edited)
    return Edited(joined.encode("utf-8", "surrogateescape"), tuple(editor.notes))


def split_lines(text: str) -> Iterator[FileLine]:
    """The lines of a text. A carriage return that is not before a line feed is part of its line."""
    pieces = text.split("\n")
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        if last and not piece:
            return
        if last:
            yield FileLine(piece, "")
        elif piece.endswith("\r"):
            yield FileLine(piece[:-1], "\r\n")
        else:
            yield FileLine(piece, "\n")


class _Editor:
    """Applies hunks from the top of a file to its bottom."""

    def __init__(self, path: str, lines: list[FileLine]) -> None:
        self.path = path
        self.lines = lines
        self.shown = [visible(line.text) for line in lines]
        self.done: list[FileLine] = []
        self.at = 0
        self.notes: list[str] = []

    def result(self) -> list[FileLine]:
        return self.done + self.lines[self.at :]

    def error(self, hunk: Hunk, what: str) -> PatchError:
        return PatchError(f"{self.path}: the hunk at line {hunk.number} of the patch {what}")

    def apply(self, hunk: Hunk) -> None:
        start, anchored = self._anchor(hunk)
        find = self._find if hunk.old else self._insertion
        place = find(hunk, start, anchored)
        self.done += self.lines[self.at : place]
        self.at = place
        self._splice(hunk)

    def _splice(self, hunk: Hunk) -> None:
        removed_end = ""
        for line in hunk.lines:
            if line.mark == "+":
                end = removed_end or (self.done[-1].end if self.done else self._next_end())
                self.done.append(FileLine(line.text, end, added=True))
                continue
            old = self.lines[self.at]
            self.at += 1
            if line.mark == " ":
                self.done.append(old)
                removed_end = ""
            else:
                removed_end = old.end
                self._keep_bytes(hunk, old)

    def _next_end(self) -> str:
        return self.lines[self.at].end if self.at < len(self.lines) else ""

    def _keep_bytes(self, hunk: Hunk, old: FileLine) -> None:
        """An added U+FFFD beside a removed line with bytes that are no text would lose those bytes."""
        if visible(old.text) != old.text and any(
            line.mark == "+" and "\ufffd" in line.text for line in hunk.lines
        ):
            raise self.error(hunk, "would overwrite bytes that are no text; edit that line with a command")

    # -- finding the place ------------------------------------------------------------------------

    def _anchor(self, hunk: Hunk) -> tuple[int, int]:
        """(where the search starts, the line after the last anchor or -1)."""
        start, after = self.at, -1
        for anchor in hunk.anchors:
            found = self._anchor_line(anchor, max(start, after))
            if found is None and hunk.optional:
                continue
            if found is None:
                raise self.error(hunk, f"looks for the line {anchor!r} after '@@', which is not there")
            start, after = found, found + 1
        return start, after

    def _anchor_line(self, anchor: str, start: int) -> int | None:
        rest = range(start, len(self.shown))
        exact = next((i for i in rest if self.shown[i] == visible(anchor)), None)
        if exact is not None:
            return exact
        return next((i for i in rest if self.shown[i].strip() == visible(anchor).strip()), None)

    def _insertion(self, hunk: Hunk, start: int, after: int) -> int:
        if hunk.at_end:
            return len(self.lines)
        if after >= 0:
            return after
        if not self.lines:
            return start
        raise self.error(
            hunk, "only adds lines, so it needs context lines, or '@@' and the line to add them after"
        )

    def _find(self, hunk: Hunk, start: int, after: int) -> int:
        exact = self._places(hunk, start, strict=True)
        places = exact or self._places(hunk, start, strict=False)
        if not places:
            raise self.error(hunk, self._why_not(hunk, start))
        if not exact:
            if len(places) > 1:
                raise self.error(
                    hunk, f"fits no place exactly, and {_several(places)} but for blanks at line ends"
                )
            self.notes.append(
                f"{self.path}: the hunk at line {hunk.number} of the patch fits line {places[0] + 1} but for "
                "blanks at line ends"
            )
        if len(places) > 1 and after < 0:
            raise self.error(
                hunk, f"fits {_several(places)}; add context lines, or '@@' and a line before it"
            )
        return places[0]

    def _places(self, hunk: Hunk, start: int, *, strict: bool) -> list[int]:
        old = tuple(visible(text) if strict else visible(text).rstrip() for text in hunk.old)
        have = self.shown if strict else [text.rstrip() for text in self.shown]
        last = len(have) - len(old)
        first = max(start, last) if hunk.at_end else start
        return [
            i for i in range(first, last + 1) if have[i] == old[0] and tuple(have[i : i + len(old)]) == old
        ]

    def _why_not(self, hunk: Hunk, start: int) -> str:
        old = [visible(text) for text in hunk.old]
        if hunk.at_end and self._places(_anywhere(hunk), start, strict=True):
            return "does not fit at the end of the file, where '*** End of File' puts it"
        if self._places(_anywhere(hunk), 0, strict=True):
            return "fits only before its anchor or the hunk before it; hunks go from top to bottom"
        best, length = start, 0
        for i in range(start, len(self.shown)):
            fit = 0
            while fit < len(old) and i + fit < len(self.shown) and self.shown[i + fit] == old[fit]:
                fit += 1
            if fit > length:
                best, length = i, fit
        if not length:
            return f"does not fit: no line is {old[0]!r}"
        have = repr(self.shown[best + length]) if best + length < len(self.shown) else "the end of the file"
        return f"does not fit: after line {best + length} the patch has {old[length]!r}, the file has {have}"


def _anywhere(hunk: Hunk) -> Hunk:
    return Hunk((), hunk.lines, False, hunk.number)


def _several(places: Sequence[int]) -> str:
    shown = ", ".join(str(place + 1) for place in places[:5])
    return f"{len(places)} places (lines {shown}{', ...' if len(places) > 5 else ''})"


def _with_ends(lines: list[FileLine], before: Sequence[FileLine]) -> list[FileLine]:
    """Give every line but the last an end; an added last line ends as the file ended before."""
    usual = _usual_end(before)
    ends_open = bool(before) and not before[-1].end
    result = [line if line.end else FileLine(line.text, usual, line.added) for line in lines[:-1]]
    if lines:
        last = lines[-1]
        if last.added:
            last = FileLine(last.text, "" if ends_open else last.end or usual, added=True)
        result.append(last)
    return result


def _usual_end(lines: Sequence[FileLine]) -> str:
    crlf = sum(line.end == "\r\n" for line in lines)
    return "\r\n" if crlf > sum(line.end == "\n" for line in lines) else "\n"
