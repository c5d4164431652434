"""The cells of a terminal's screen, its cursor, its margins and its two pages. Pure.

Rows are as long as what was written in them, so an empty screen costs nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace

from sandbox.values import PtySize

_MARKS_LIMIT = 16
# The line drawing set that `ESC ( 0` selects, from "`" to "~".
_LINES = dict(zip(range(0x60, 0x7F), "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·", strict=True))

Row = list[str]
"""Cells from the left; "" is the second half of a wide character. What is missing on the right is blank."""


@dataclass(slots=True)
class Cursor:
    """Where the next character goes, and what is saved and restored with that.

    wrap     the last column was written: the next character goes to the next line
    origin   lines that a program names count from the top margin
    drawing  whether G0 and G1 are the line drawing set
    shifted  G1 is in use
    """

    x: int = 0
    y: int = 0
    wrap: bool = False
    origin: bool = False
    drawing: tuple[bool, bool] = (False, False)
    shifted: bool = False


@dataclass(slots=True)
class Page:
    """The normal or the alternate screen."""

    rows: list[Row]
    saved: Cursor = field(default_factory=Cursor)


class Grid:
    """A screen that is written on. Counts from 0; what is out of bounds is moved to the nearest place."""

    def __init__(self, size: PtySize) -> None:
        self.size = size
        self._page = Page(self._blank(size.rows))
        self._normal: Page | None = None
        self.cursor = Cursor()
        self._tabs = set(range(8, 1000, 8))
        self._last = " "
        self.soft_reset()

    def soft_reset(self) -> None:
        """Margins and modes as they are at the start."""
        self._top, self._bottom = 0, self.size.rows - 1
        self.insert, self.autowrap = False, True
        self.cursor.origin, self.cursor.drawing = False, (False, False)

    @staticmethod
    def _blank(count: int) -> list[Row]:
        return [[] for _ in range(count)]

    @property
    def is_alternate(self) -> bool:
        """Whether the alternate screen is shown."""
        return self._normal is not None

    def text(self) -> str:
        """The screen's lines, without blanks at their ends and without empty lines at the end."""
        return "\n".join("".join(row).rstrip() for row in self._page.rows).rstrip("\n")

    def resize(self, size: PtySize) -> None:
        """Another size. Lines are cut, not wrapped again; the cursor's line stays on the screen."""
        lost = max(0, self.cursor.y - (size.rows - 1))
        for page in (self._page, self._normal):
            if page is not None:
                rows = page.rows[lost if page is self._page else 0 :][: size.rows]
                page.rows = rows + self._blank(size.rows - len(rows))
        self.size = size
        for page in (self._page, self._normal):
            for row in page.rows if page is not None else []:
                self._cut(row)
        self.cursor.y -= lost
        self._top, self._bottom = 0, size.rows - 1
        self.move(self.cursor.x, self.cursor.y)

    # Characters

    def print(self, text: str) -> None:
        """Write characters, no control characters among them, at the cursor."""
        if self.cursor.drawing[self.cursor.shifted]:
            text = text.translate(_LINES)
        self._last = text[-1]
        if text.isascii():
            self._print_narrow(text)
            return
        for char in text:
            width = _width(char)
            if width == 0:
                self._combine(char)
            else:
                self._print_cells([char] if width == 1 else [char, ""])

    def _print_narrow(self, text: str) -> None:
        at = 0
        while at < len(text):
            self._wrap()
            room = self.size.columns - self.cursor.x
            self._print_cells(list(text[at : at + room]))
            at += room

    def _print_cells(self, cells: Row) -> None:
        """Cells that fit on one line."""
        self._wrap()
        cursor, columns = self.cursor, self.size.columns
        if cursor.x + len(cells) > columns:
            if columns < len(cells):
                return
            if self.autowrap:
                cursor.wrap = True
                self._wrap()
            else:
                cursor.x = columns - len(cells)
        if self.insert:
            self.insert_blanks(len(cells))
        row = self._row(cursor.y, cursor.x)
        self._overwrite(row, cursor.x, cells)
        cursor.x += len(cells)
        if cursor.x >= columns:
            cursor.x, cursor.wrap = columns - 1, self.autowrap

    def _wrap(self) -> None:
        if self.cursor.wrap:
            self.cursor.x, self.cursor.wrap = 0, False
            self.index()

    def _row(self, y: int, length: int) -> Row:
        """A row, at least so long."""
        row = self._page.rows[y]
        row.extend(" " * (length - len(row)))
        return row

    @staticmethod
    def _overwrite(row: Row, x: int, cells: Row) -> None:
        end = x + len(cells)
        # Half of a wide character is no character.
        if x < len(row) and row[x] == "":
            row[x - 1] = " "
        if end < len(row) and row[end] == "":
            row[end] = " "
        row[x:end] = cells

    def _combine(self, char: str) -> None:
        cursor = self.cursor
        row = self._page.rows[cursor.y]
        x = cursor.x if cursor.wrap else cursor.x - 1
        while 0 < x < len(row) and row[x] == "":
            x -= 1
        if 0 <= x < len(row) and len(row[x]) < _MARKS_LIMIT:
            row[x] += char

    def repeat(self, count: int) -> None:
        """Write the last character again, at most a line's width of it."""
        self.print(self._last * min(count, self.size.columns))

    def tab(self, count: int) -> None:
        """To the next tab stop, so many times; back if the count is negative."""
        edge = self.size.columns - 1 if count > 0 else 0
        x = self.cursor.x
        while count and x != edge:
            if count > 0:
                x, count = min((stop for stop in self._tabs if stop > x), default=edge), count - 1
            else:
                x, count = max((stop for stop in self._tabs if stop < x), default=edge), count + 1
        self.move(x, self.cursor.y)

    # Lines

    def index(self) -> None:
        """Down one line; at the bottom margin, the lines move up."""
        self.cursor.wrap = False
        if self.cursor.y == self._bottom:
            self.scroll(1)
        elif self.cursor.y < self.size.rows - 1:
            self.cursor.y += 1

    def reverse_index(self) -> None:
        """Up one line; at the top margin, the lines move down."""
        self.cursor.wrap = False
        if self.cursor.y == self._top:
            self.scroll(-1)
        elif self.cursor.y > 0:
            self.cursor.y -= 1

    def scroll(self, count: int, top: int | None = None) -> None:
        """Move the lines from `top` (None: the top margin) to the bottom margin up; negative: down."""
        top = self._top if top is None else top
        rows, height = self._page.rows, self._bottom + 1 - top
        lines = min(abs(count), height)
        if count > 0:
            rows[top : self._bottom + 1] = rows[top + lines : self._bottom + 1] + self._blank(lines)
        else:
            rows[top : self._bottom + 1] = self._blank(lines) + rows[top : self._bottom + 1 - lines]

    def scroll_here(self, count: int) -> None:
        """Delete so many lines at the cursor, or insert them if the count is negative."""
        if self._top <= self.cursor.y <= self._bottom:
            self.scroll(count, self.cursor.y)
            self.move(0, self.cursor.y)

    def move(self, x: int, y: int) -> None:
        """The cursor to a cell of the screen."""
        self.cursor.x = max(0, min(x, self.size.columns - 1))
        self.cursor.y = max(0, min(y, self.size.rows - 1))
        self.cursor.wrap = False

    def go_to(self, x: int, y: int) -> None:
        """To a place that a program names; its lines may count from the top margin."""
        if self.cursor.origin:
            y = max(self._top, min(self._top + y, self._bottom))
        self.move(x, y)

    def up_or_down(self, lines: int) -> None:
        """The cursor down, or up if the number is negative; not over a margin."""
        y = self.cursor.y
        if lines < 0:
            stop = self._top if y >= self._top else 0
            self.move(self.cursor.x, max(y + lines, stop))
        else:
            stop = self._bottom if y <= self._bottom else self.size.rows - 1
            self.move(self.cursor.x, min(y + lines, stop))

    # Erasing and shifting

    def erase_cells(self, start: int, end: int) -> None:
        """Blanks in the cursor's line, from one column up to another."""
        row = self._page.rows[self.cursor.y]
        if start < len(row):
            self._overwrite(row, start, [" "] * (min(end, len(row)) - start))

    def erase_line(self, how: int) -> None:
        """0: from the cursor on; 1: up to it; 2: all."""
        x = self.cursor.x
        self.erase_cells(x if how == 0 else 0, x + 1 if how == 1 else self.size.columns)

    def erase_screen(self, how: int) -> None:
        """0: from the cursor on; 1: up to it; 2: all."""
        rows, y = self._page.rows, self.cursor.y
        if how == 0:
            rows[y + 1 :] = self._blank(len(rows) - y - 1)
        elif how == 1:
            rows[:y] = self._blank(y)
        elif how == 2:
            rows[:] = self._blank(len(rows))
        if how in (0, 1):
            self.erase_line(how)

    def insert_blanks(self, count: int) -> None:
        """Blanks at the cursor; what stood there moves to the right."""
        x = self.cursor.x
        row = self._row(self.cursor.y, x)
        self._overwrite(row, x, [])
        row[x:x] = [" "] * min(count, self.size.columns - x)
        self._cut(row)

    def delete_cells(self, count: int) -> None:
        """Take cells out at the cursor; what follows moves to the left."""
        x = self.cursor.x
        row = self._page.rows[self.cursor.y]
        end = min(x + count, len(row))
        if x < end:
            self._overwrite(row, x, [" "] * (end - x))
            del row[x:end]

    def _cut(self, row: Row) -> None:
        if len(row) > self.size.columns and row[self.size.columns] == "":
            row[self.size.columns - 1] = " "
        del row[self.size.columns :]

    # Modes and pages

    def fill(self, char: str) -> None:
        """Every cell the same."""
        self._page.rows = [[char] * self.size.columns for _ in range(self.size.rows)]

    def save_cursor(self) -> None:
        """Remember the cursor, for `restore_cursor`."""
        self._page.saved = replace(self.cursor)

    def restore_cursor(self) -> None:
        """The cursor as it was saved on this page, or as it was at the start."""
        self.cursor = replace(self._page.saved)
        wrap = self.cursor.wrap
        self.move(self.cursor.x, self.cursor.y)
        self.cursor.wrap = wrap

    def choose_set(self, second: bool, drawing: bool) -> None:
        """Make G0, or G1, the line drawing set or plain characters."""
        first_is, second_is = self.cursor.drawing
        self.cursor.drawing = (first_is, drawing) if second else (drawing, second_is)

    def set_margins(self, top: int, bottom: int) -> None:
        """Which lines scroll; those of one line or less are not set."""
        if top < bottom:
            self._top, self._bottom = top, bottom
            self.go_to(0, 0)

    def set_tab(self) -> None:
        """A tab stop at the cursor."""
        self._tabs.add(self.cursor.x)

    def clear_tabs(self, how: int) -> None:
        """3: all; else the one at the cursor."""
        self._tabs = set() if how == 3 else self._tabs - {self.cursor.x}

    def show_alternate(self, on: bool, with_cursor: bool) -> None:
        """Go to an empty alternate screen, or back to the normal one as it was left.

        with_cursor  the cursor is saved before, and restored afterwards"""
        if on == self.is_alternate:
            return
        if on:
            if with_cursor:
                self.save_cursor()
            self._normal, self._page = self._page, Page(self._blank(self.size.rows))
        elif self._normal is not None:
            self._page, self._normal = self._normal, None
            if with_cursor:
                self.restore_cursor()


def _width(char: str) -> int:
    """How many cells a character takes; 0 for one that is added to the character before it."""
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
