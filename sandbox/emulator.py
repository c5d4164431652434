"""A terminal's screen, computed from the bytes that a program prints; text only, colours are dropped. Pure.

It does what programs for xterm use (ECMA-48, the DEC VT family, xterm's alternate screen) and never fails:
what it does not know, it passes over as a whole.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from sandbox.grid import Grid
from sandbox.values import PtySize

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<csi>[^@-~\x18\x1a\x1b]*[@-~])"
    r"|(?P<string>\x1b[\]PX^_])"
    r"|\x1b(?P<escape>[ -/]*[0-OQ-WYZ\\`-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
_BEGUN = re.compile(r"\x1b(?:\[[^@-~\x18\x1a\x1b]*|[ -/]*)")
_UNFINISHED_LIMIT = 1024
_CSI = re.compile(r"(?P<private>[<-?]?)(?P<numbers>[0-9:;]*)(?P<kind>[ -/]*[@-~])")
# Operating system commands and the like are text of any length up to one of these.
_STRING_END = re.compile(r"[\x07\x18\x1a\x9c]|\x1b(?!\Z)\\?")
_MOST = 9999


class Emulator:
    """One screen. Not thread-safe."""

    def __init__(self, size: PtySize) -> None:
        self._grid = Grid(size)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._in_string = False
        self._after_return = False
        self._own_returns = False

    def text(self) -> str:
        """The screen's lines, without blanks at their ends and without empty lines at the end."""
        return self._grid.text()

    def resize(self, size: PtySize) -> None:
        """Another size. Lines are cut, not wrapped again; the cursor's line stays on the screen."""
        self._grid.resize(size)

    def feed(self, data: bytes) -> None:
        """Take the next bytes that a program printed."""
        text, self._held = self._held + self._decoder.decode(data), ""
        at = 0
        while at < len(text):
            if self._in_string:
                end = _STRING_END.search(text, at)
                if end is None:
                    self._held = text[-1:] if text.endswith("\x1b") else ""
                    return
                self._in_string, at = False, end.end()
                continue
            token = _TOKEN.match(text, at)
            if token is not None:
                at = token.end()
                self._take(token)
                continue
            begun = _BEGUN.match(text, at)
            end_of_begun = begun.end() if begun else at + 1
            if end_of_begun == len(text) and end_of_begun - at <= _UNFINISHED_LIMIT:
                self._held = text[at:]
                return
            at = end_of_begun

    def _take(self, token: re.Match[str]) -> None:
        kind, value = token.lastgroup, token[token.lastgroup or 0]
        if kind == "text":
            self._grid.print(value)
        elif kind == "control":
            self._control(value)
        elif kind == "csi":
            self._sequence(value)
        elif kind == "escape":
            self._escape(value)
        else:
            self._in_string = True
        self._after_return = value == "\r"

    def _control(self, char: str) -> None:
        grid = self._grid
        if char in "\n\v\f":
            self._linefeed()
        elif char == "\r":
            grid.move(0, grid.cursor.y)
        elif char == "\b":
            grid.move(grid.cursor.x - 1, grid.cursor.y)
        elif char == "\t":
            grid.tab(1)
        elif char in "\x0e\x0f":
            grid.cursor.shifted = char == "\x0e"

    def _linefeed(self) -> None:
        # The terminal adds no carriage return to a line's end, so that output stays exact; a program that
        # fills the screen and writes its own returns wants none, all others count on one.
        if self._grid.is_alternate and self._after_return:
            self._own_returns = True
        if not self._own_returns:
            self._grid.cursor.x = 0
        self._grid.index()

    def _escape(self, sequence: str) -> None:
        if sequence == "c":
            self._grid, self._own_returns = Grid(self._grid.size), False
        elif sequence in _ESCAPES:
            _ESCAPES[sequence](self._grid)
        elif sequence[0] in "()" and len(sequence) == 2:
            self._grid.choose_set(second=sequence[0] == ")", drawing=sequence[1] == "0")

    def _sequence(self, sequence: str) -> None:
        # A control character inside a sequence takes effect as if it stood before it.
        for control in re.findall(r"[\x00-\x1f]", sequence):
            self._control(control)
        found = _CSI.fullmatch(re.sub(r"[\x00-\x1f\x7f-\x9f]", "", sequence))
        if found is None:
            return
        numbers = [_number(word) for word in found["numbers"].split(";")]
        kind = found["private"] + found["kind"]
        if kind in ("?h", "?l", "h", "l"):
            for number in numbers:
                self._set_mode(kind[:-1], number, kind[-1] == "h")
        elif kind in _ONE:
            _ONE[kind](self._grid, max(1, numbers[0]))
        elif kind in _OTHER:
            _OTHER[kind](self._grid, numbers[0], numbers[1] if len(numbers) > 1 else 0)

    def _set_mode(self, private: str, number: int, on: bool) -> None:
        grid = self._grid
        if not private:
            grid.insert = on if number == 4 else grid.insert
        elif number == 6:
            grid.cursor.origin = on
            grid.go_to(0, 0)
        elif number == 7:
            grid.autowrap = on
        elif number in (47, 1047, 1049):
            self._own_returns = self._own_returns and grid.is_alternate == on
            grid.show_alternate(on, with_cursor=number == 1049)
        elif number == 1048:
            (Grid.save_cursor if on else Grid.restore_cursor)(grid)


def _number(word: str) -> int:
    """A parameter of a sequence; nothing is 0, and what stands behind a colon is a detail of it."""
    digits = word.partition(":")[0]
    return min(int(digits), _MOST) if digits and len(digits) < 9 else _MOST * bool(digits)


def _to_line_start(grid: Grid, lines: int) -> None:
    grid.up_or_down(lines)
    grid.move(0, grid.cursor.y)


def _next_line(grid: Grid) -> None:
    grid.cursor.x = 0
    grid.index()


_ESCAPES: dict[str, Callable[[Grid], None]] = {
    "7": Grid.save_cursor,
    "8": Grid.restore_cursor,
    "D": Grid.index,
    "E": _next_line,
    "H": Grid.set_tab,
    "M": Grid.reverse_index,
    "#8": lambda grid: grid.fill("E"),
}

_ONE: dict[str, Callable[[Grid, int], None]] = {
    "@": Grid.insert_blanks,
    "A": lambda grid, n: grid.up_or_down(-n),
    "B": Grid.up_or_down,
    "e": Grid.up_or_down,
    "C": lambda grid, n: grid.move(grid.cursor.x + n, grid.cursor.y),
    "a": lambda grid, n: grid.move(grid.cursor.x + n, grid.cursor.y),
    "D": lambda grid, n: grid.move(grid.cursor.x - n, grid.cursor.y),
    "E": _to_line_start,
    "F": lambda grid, n: _to_line_start(grid, -n),
    "G": lambda grid, n: grid.move(n - 1, grid.cursor.y),
    "`": lambda grid, n: grid.move(n - 1, grid.cursor.y),
    "d": lambda grid, n: grid.go_to(grid.cursor.x, n - 1),
    "L": lambda grid, n: grid.scroll_here(-n),
    "M": Grid.scroll_here,
    "P": Grid.delete_cells,
    "S": Grid.scroll,
    "T": lambda grid, n: grid.scroll(-n),
    "X": lambda grid, n: grid.erase_cells(grid.cursor.x, grid.cursor.x + n),
    "I": Grid.tab,
    "Z": lambda grid, n: grid.tab(-n),
    "b": Grid.repeat,
}
"""Sequences with one number, which is 1 if it is missing or 0."""

_OTHER: dict[str, Callable[[Grid, int, int], None]] = {
    "H": lambda grid, y, x: grid.go_to(max(1, x) - 1, max(1, y) - 1),
    "f": lambda grid, y, x: grid.go_to(max(1, x) - 1, max(1, y) - 1),
    "J": lambda grid, how, _: grid.erase_screen(how),
    "?J": lambda grid, how, _: grid.erase_screen(how),
    "K": lambda grid, how, _: grid.erase_line(how),
    "?K": lambda grid, how, _: grid.erase_line(how),
    "g": lambda grid, how, _: grid.clear_tabs(how),
    "r": lambda grid, top, bottom: grid.set_margins(
        max(1, top) - 1, min(bottom or grid.size.rows, grid.size.rows) - 1
    ),
    "s": lambda grid, *_: grid.save_cursor(),
    "u": lambda grid, *_: grid.restore_cursor(),
    "!p": lambda grid, *_: grid.soft_reset(),
}
"""Sequences with one or two numbers, each 0 if it is missing."""
