"""What is left to see of output that draws over itself: progress bars, counters, whole screens. Pure.

A line that nothing goes back to is passed on as it is. The others are drawn as a terminal would, but on rows
without a right edge, and the cursor goes up no further than a screen's height: what has scrolled off stays.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

SCREEN_ROWS = 24
"""How far up the cursor goes: the height of the terminal that a command has unless it is resized."""
_COLUMNS = 512
"""How far to the right the cursor goes without writing."""
_LONG_ROW = 1024
"""Beyond it, what shifts or blanks a row is ignored: no terminal is so wide, and it would cost the square."""
_MARKS = 16
"""How many combining characters a cell takes."""

_PASSIVE = re.compile(
    r"\x1b\[(?!\?(?:1049|1047|47)[hl])[0-?]*[ -/]*[INOQRUVWYZ\[-_b-ceg-qtv-~]"  # colours, modes
    r"|\x1b\[[<->][0-?]*[ -/]*[@-~]"  # private sequences that only look like movements
    r"|\x1b[\]PX^_][^\n\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links; never over a line's end
    r"|\x1b(?![\[\]PX^_78DEMc])[ -/]*[0-~]"  # other short escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
    r"|\x07"
)
_LINE_END = re.compile(r"(?<!\r)\r+\n")
_ACTIVE = re.compile(
    r"(?P<return>\r+)|(?P<back>\x08+)"
    r"|\x1b\[(?P<numbers>[0-9;:]*)[ -/]*(?P<kind>[@A-HJ-MPSTX`ad-frsu])"
    r"|\x1b\[(?P<alternate>\?(?:1049|1047|47)[hl])"
    r"|\x1b(?P<short>[78DEMc])"
    r"|(?P<other>\x1b(?:\[[0-?]*[ -/]*[@-~]?)?)"  # what is left of others, or cut off
)


def settled(text: str) -> str:
    """Text as a person would see it in the end; no escape sequence, carriage return or backspace is left.

    Takes time in proportion to the text, whatever it holds."""
    text = _LINE_END.sub("\n", _PASSIVE.sub("", text))
    if not ("\r" in text or "\x08" in text or "\x1b" in text):
        return text
    sheet = _Sheet()
    at = 0
    for token in _ACTIVE.finditer(text):
        if token.start() > at:
            sheet.write(text[at : token.start()])
        at = token.end()
        sheet.act(token)
    sheet.write(text[at:])
    return sheet.text()


class _Row:
    """One row: what was appended to it, or its cells once something was drawn over.

    A cell holds a character; "" stands for the rest of one that takes several: a wide one, or a tab."""

    __slots__ = ("cells", "parts", "width")

    def __init__(self, text: str = "") -> None:
        self.parts = [text]
        self.width = _width(text, 0)
        self.cells: list[str] | None = None

    def put(self, x: int, text: str) -> int:
        """Write at a column; the column behind it."""
        if self.cells is None and x == self.width:
            self.parts.append(text)
            self.width = _width(text, x)
            return self.width
        for index, part in enumerate(text.split("\t")):
            if index:
                x = self._tab(x)
            if part:
                x = self._over(x, part)
        return x

    def _over(self, x: int, text: str) -> int:
        cells = self.opened()
        if x > len(cells):
            cells.extend(" " * (x - len(cells)))
        new: list[str] | str = text if text.isascii() else _cells(text, x)
        end = x + len(new)
        self._split(x)
        self._split(end)
        cells[x:end] = new
        return end

    def _tab(self, x: int) -> int:
        """A tab goes over what is there without a change, and is one behind it."""
        cells, stop = self.opened(), x // 8 * 8 + 8
        behind = x >= len(cells)
        cells.extend(" " * ((x if behind else stop) - len(cells)))
        if behind:
            cells += ["\t", *[""] * (stop - x - 1)]
        return stop

    def opened(self) -> list[str]:
        """The cells, to change them."""
        if self.cells is None:
            self.cells = _cells("".join(self.parts), 0)
        return self.cells

    def _split(self, at: int) -> None:
        """A character that lies across a column gives blanks."""
        cells = self.opened()
        if at >= len(cells) or cells[at]:
            return
        first = at
        while first > 0 and not cells[first]:
            first -= 1
        last = at
        while last < len(cells) and not cells[last]:
            last += 1
        cells[first:last] = " " * (last - first)

    def cut(self, x: int) -> None:
        """Erase from a column on."""
        if self.cells is None and x >= self.width:
            return
        self._split(x)
        del self.opened()[x:]

    def blank(self, x: int, count: int) -> None:
        """Erase so many columns."""
        cells = self.opened()
        end = min(x + count, len(cells))
        if x < end and end - x <= _LONG_ROW:
            self._split(x)
            self._split(end)
            cells[x:end] = " " * (end - x)

    def shift(self, x: int, count: int) -> None:
        """Put blanks in at a column, or take columns out if the count is negative."""
        cells = self.opened()
        if x < len(cells) <= _LONG_ROW:
            self._split(x)
            self._split(x - count)
            cells[x : x + max(0, -count)] = " " * max(0, count)

    def text(self) -> str:
        """The row; blanks at the end of one that was drawn over are nothing that can be seen."""
        return "".join(self.parts) if self.cells is None else "".join(self.cells).rstrip(" ")


class _Sheet:
    """The rows on the screen, with the cursor, and those that have scrolled off."""

    def __init__(self) -> None:
        self._above: _Sheet | None = None
        self._saved = (0, 0)
        self._clear()

    def _clear(self) -> None:
        self._done: list[str] = []
        self._rows = [_Row()]
        self._x = self._y = 0
        self._top, self._bottom = 0, SCREEN_ROWS - 1

    def text(self) -> str:
        """All rows, down to the cursor or the last that shows something."""
        rows = [row.text() for row in self._rows]
        while len(rows) > self._y + 1 and not rows[-1]:
            rows.pop()
        text = "\n".join(self._done + rows)
        return text if self._above is None else f"{self._above.text()}\n{text}"

    def write(self, text: str) -> None:
        """Text with line ends, and with nothing that moves the cursor otherwise."""
        first, *lines = text.split("\n")
        self._put(first)
        for index, line in enumerate(lines):
            if self._y == len(self._rows) - 1 and self._bottom == SCREEN_ROWS - 1:
                self._append(lines[index:])
                return
            self._feed()
            self._put(line)

    def _put(self, text: str) -> None:
        if text:
            self._x = self._rows[self._y].put(self._x, text)

    def _append(self, lines: list[str]) -> None:
        """Lines below the last row; all but the last few scroll off at once."""
        passing = max(0, len(lines) - SCREEN_ROWS)
        scrolled = max(0, len(self._rows) + len(lines) - SCREEN_ROWS)
        self._done += [row.text() for row in self._rows[:scrolled]]
        self._done += lines[: max(0, scrolled - len(self._rows))]
        self._rows = self._rows[scrolled:] + [_Row(line) for line in lines[passing:]]
        self._y, self._x = len(self._rows) - 1, self._rows[-1].width

    def _feed(self) -> None:
        """A line end."""
        self._x = 0
        if self._y == self._bottom:
            self._scroll(1)
        else:
            self._down(1)

    def _scroll(self, count: int) -> None:
        """Move the region up so many rows, or down; what leaves the top of the screen has scrolled off."""
        self._fill(self._bottom)
        for _ in range(min(abs(count), SCREEN_ROWS)):
            if count > 0:
                gone = self._rows.pop(self._top)
                if self._top == 0:
                    self._done.append(gone.text())
                self._rows.insert(self._bottom, _Row())
            else:
                del self._rows[self._bottom]
                self._rows.insert(self._top, _Row())

    def _fill(self, y: int) -> None:
        while len(self._rows) <= y:
            self._rows.append(_Row())

    def _go(self, x: int, y: int) -> None:
        self._y = max(0, min(y, SCREEN_ROWS - 1))
        self._x = max(0, min(x, _COLUMNS))
        self._fill(self._y)

    def _down(self, count: int) -> None:
        self._go(self._x, self._y + count)

    def act(self, token: re.Match[str]) -> None:
        """Do what one control asks for."""
        kind = token.lastgroup
        if kind == "return":
            self._x = 0
        elif kind == "kind":
            text = token["numbers"]
            numbers = [int(each[:4] or "0") for each in re.split("[;:]", text)] if text else [0]
            _ACTIONS[token["kind"]](self, numbers)
        elif kind == "back":
            self._x = max(0, self._x - len(token[0]))
        elif kind == "alternate":
            self._alternate(token["alternate"].endswith("h"))
        elif kind == "short":
            self._short(token["short"])

    def _alternate(self, enter: bool) -> None:
        if enter and self._above is None:
            above = _Sheet()
            above._done, above._rows, above._x, above._y = self._done, self._rows, self._x, self._y
            self._clear()
            self._above = above
        elif not enter and self._above is not None:
            above, self._above = self._above, None
            self._clear()
            self._done, self._rows, self._x, self._y = above._done, above._rows, above._x, above._y

    def _short(self, kind: str) -> None:
        if kind == "7":
            self._saved = (self._x, self._y)
        elif kind == "8":
            self._go(*self._saved)
        elif kind == "c":
            self._erase_rows([2])
            self._top, self._bottom = 0, SCREEN_ROWS - 1
            self._go(0, 0)
        elif kind == "M" and self._y == self._top:
            self._scroll(-1)
        elif kind == "M":
            self._go(self._x, self._y - 1)
        else:
            column = self._x if kind == "D" else 0
            self._feed()
            self._go(column, self._y)

    def _erase_rows(self, numbers: list[int]) -> None:
        kind = numbers[0]
        if kind in (0, 1):
            self._erase(numbers)
        first, last = {0: (self._y + 1, SCREEN_ROWS), 1: (0, self._y), 2: (0, SCREEN_ROWS)}.get(kind, (0, 0))
        for index in range(first, min(last, len(self._rows))):
            self._rows[index] = _Row()
        self._go(self._x, self._y)

    def _erase(self, numbers: list[int]) -> None:
        row = self._rows[self._y]
        if numbers[0] == 0:
            row.cut(self._x)
        elif numbers[0] == 1:
            row.blank(0, self._x + 1)
        elif numbers[0] == 2:
            self._rows[self._y] = _Row()
            self._x = min(self._x, _COLUMNS)

    def _rows_in(self, count: int) -> None:
        """Put empty rows in at the cursor, or take rows out if the count is negative."""
        if self._top <= self._y <= self._bottom:
            top, self._top = self._top, self._y
            done = len(self._done)
            self._scroll(-count)
            del self._done[done:]
            self._top, self._x = top, 0

    def _region(self, numbers: list[int]) -> None:
        top = max(1, numbers[0]) - 1
        bottom = min((numbers[1] if len(numbers) > 1 else 0) or SCREEN_ROWS, SCREEN_ROWS) - 1
        if top < bottom:
            self._top, self._bottom = top, bottom
            self._go(0, 0)

    def _position(self, numbers: list[int]) -> None:
        self._go((numbers[1] if len(numbers) > 1 else 1) - 1, max(1, numbers[0]) - 1)

    def _sideways(self, count: int) -> None:
        self._x = max(0, self._x + count if count < 0 else max(self._x, min(self._x + count, _COLUMNS)))

    def _save(self, _numbers: list[int]) -> None:
        self._short("7")

    def _restore(self, _numbers: list[int]) -> None:
        self._short("8")


def _many(action: Callable[[_Sheet, int], None]) -> Callable[[_Sheet, list[int]], None]:
    """An action that takes a number of times; none and 0 are 1."""
    return lambda sheet, numbers: action(sheet, max(1, numbers[0]))


def _row(sheet: _Sheet) -> _Row:
    return sheet._rows[sheet._y]


_ACTIONS: dict[str, Callable[[_Sheet, list[int]], None]] = {
    "A": _many(lambda sheet, n: sheet._go(sheet._x, sheet._y - n)),
    "B": _many(_Sheet._down),
    "e": _many(_Sheet._down),
    "C": _many(_Sheet._sideways),
    "a": _many(_Sheet._sideways),
    "D": _many(lambda sheet, n: sheet._sideways(-n)),
    "E": _many(lambda sheet, n: sheet._go(0, sheet._y + n)),
    "F": _many(lambda sheet, n: sheet._go(0, sheet._y - n)),
    "G": _many(lambda sheet, n: sheet._go(n - 1, sheet._y)),
    "`": _many(lambda sheet, n: sheet._go(n - 1, sheet._y)),
    "d": _many(lambda sheet, n: sheet._go(sheet._x, n - 1)),
    "H": _Sheet._position,
    "f": _Sheet._position,
    "J": _Sheet._erase_rows,
    "K": _Sheet._erase,
    "L": _many(lambda sheet, n: sheet._rows_in(n)),
    "M": _many(lambda sheet, n: sheet._rows_in(-n)),
    "S": _many(_Sheet._scroll),
    "T": _many(lambda sheet, n: sheet._scroll(-n)),
    "P": _many(lambda sheet, n: _row(sheet).shift(sheet._x, -n)),
    "@": _many(lambda sheet, n: _row(sheet).shift(sheet._x, min(n, _COLUMNS))),
    "X": _many(lambda sheet, n: _row(sheet).blank(sheet._x, n)),
    "r": _Sheet._region,
    "s": _Sheet._save,
    "u": _Sheet._restore,
}


def _is_plain(text: str) -> bool:
    return text.isascii() and "\t" not in text


def _width(text: str, x: int) -> int:
    """The column behind a text that is written at column x."""
    return x + len(text) if _is_plain(text) else x + len(_cells(text, x))


def _cells(text: str, x: int) -> list[str]:
    """Text as cells, written at column x."""
    if _is_plain(text):
        return list(text)
    cells: list[str] = []
    for char in text:
        if char == "\t":
            cells += ["\t", *[""] * (7 - (x + len(cells)) % 8)]
        elif char < "\u0300":
            cells.append(char)
        elif unicodedata.category(char) in ("Mn", "Me", "Cf"):
            _join(cells, char)
        elif unicodedata.east_asian_width(char) in "WF":
            cells += [char, ""]
        else:
            cells.append(char)
    return cells


def _join(cells: list[str], mark: str) -> None:
    """A combining character belongs to the cell before it."""
    last = len(cells) - 1
    while last >= 0 and not cells[last]:
        last -= 1
    if last < 0:
        cells.append(mark)
    elif len(cells[last]) <= _MARKS:
        cells[last] += mark
