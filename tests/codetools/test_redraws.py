"""What is left to see of output that draws over itself, compared with a terminal emulator of its own."""

from __future__ import annotations

import time

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codetools.redraws import SCREEN_ROWS, settled

COLUMNS = 400


class _Screen(pyte.HistoryScreen):
    """pyte's own, on which a line end is a whole one and nothing that scrolls off is lost."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, SCREEN_ROWS, history=10_000, ratio=0.5)
        self.set_mode(pyte.modes.LNM)

    def delete_lines(self, count: int | None = None) -> None:
        """pyte leaves a row as it is if the one that takes its place was never written to."""
        for y in range(self.lines):
            self.buffer[y]
        super().delete_lines(count)


def on_a_terminal(text: str) -> list[str]:
    """The rows that a person could see, by scrolling up too, without blanks at their ends."""
    screen = _Screen()
    pyte.Stream(screen).feed(text)
    above = ["".join(row[x].data for x in range(COLUMNS)) for row in screen.history.top]
    return trimmed([*above, *screen.display])


def trimmed(rows: list[str]) -> list[str]:
    rows = [row.rstrip() for row in rows]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def rows_of(text: str) -> list[str]:
    return trimmed(settled(text).expandtabs(8).split("\n"))


WORDS = st.text(alphabet="abcdefgh .%#[]", min_size=1, max_size=8)
NUMBERS = st.sampled_from(["", "0", "1", "2", "3", "7", "30"])
MOVES = st.builds("\x1b[{}{}".format, NUMBERS, st.sampled_from("ABCDEFGdLMPX@"))
ERASES = st.builds("\x1b[{}{}".format, st.sampled_from(["", "0", "1", "2"]), st.sampled_from("JK"))
PLACES = st.builds("\x1b[{};{}H".format, st.integers(0, 30), st.integers(0, 20))
OTHERS = st.sampled_from(
    ["\n", "\n", "\n\n\n", "\r", "\r", "\b", "\b\b", "\t", "\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bE"]
)
COLOURS = st.sampled_from(
    ["\x1b[31m", "\x1b[0m", "\x1b[1;38;5;9m", "\x1b[?25l", "\x1b]0;title\x07", "\x1b(B"]
)
PIECES = st.one_of(WORDS, WORDS, MOVES, ERASES, PLACES, OTHERS, COLOURS)


@pytest.mark.spec("OE-30")
@settings(deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
@example("a\n" * 30 + "\x1b[2A\x1b[Kx\n\ny")
@example("one\ntwo\nthree\n\x1b[3A\x1b[2Kone: done\n\x1b[2Ktwo: done\n\x1b[2B")
def test_what_is_left_is_what_a_terminal_shows_in_the_end(text: str) -> None:
    assert rows_of(text) == on_a_terminal(text)


@pytest.mark.spec("OE-30")
@settings(deadline=None)
@given(st.lists(st.sampled_from(["漢字", "a", "é", "\x1b[3C", "\r", "\n", "🙂"]), max_size=20).map("".join))
def test_wide_characters_take_two_columns(text: str) -> None:
    # What half a wide character leaves when something is drawn over it is for each terminal to say.
    for row in (text.replace("\r", "\n"), text.replace("\r", "\n\x1b[A\x1b[K")):
        assert "".join(rows_of(row)).replace(" ", "") == "".join(on_a_terminal(row)).replace(" ", "")
    assert settled("漢字\rab") == "ab字"
    assert settled("漢字\ra") == "a 字"
    assert settled("a漢字\r\x1b[2Cb") == "a b字"


@pytest.mark.spec("OE-30")
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        # pip, curl and tqdm: a carriage return before or after each frame.
        ("  0% |      |\r 50% |###   |\r100% |######|\n", "100% |######|\n"),
        ("\r  0 10M\r 50 10M\r100 10M\nok\n", "100 10M\nok\n"),
        ("progress 100%\rdone\n", "doneress 100%\n"),
        ("working...\r\x1b[Kdone\n", "done\n"),
        ("working...\r          \rdone\n", "done\n"),
        ("10%\b\b\b20%\b\b\b30%\n", "30%\n"),
        # docker pull: up to the line of a layer, and down again.
        (
            "a: Waiting\nb: Waiting\n\x1b[2A\x1b[2K\ra: Pulling\x1b[2B\r\x1b[1A\x1b[2K\rb: Done\x1b[1B\r"
            "\x1b[2A\x1b[2K\ra: Done\x1b[2B\rDigest: x\n",
            "a: Done\nb: Done\nDigest: x\n",
        ),
        # apt: a bar on the last row, outside the region that scrolls.
        (
            "Reading\n\x1b7\x1b[1;23r\x1b8"
            + "".join(f"\x1b7\x1b[24;1f[{n}%]\x1b8Unpacking {n}\n" for n in range(30))
            + "\x1b7\x1b[1;24r\x1b8\x1b[J",
            "Reading\n" + "".join(f"Unpacking {n}\n" for n in range(30)),
        ),
        # A full-screen program that has ended leaves the screen as it was.
        ("before\n\x1b[?1049h\x1b[H\x1b[2Jan editor\n~\n\x1b[?1049lafter\n", "before\nafter\n"),
        ("before\n\x1b[?1049h\x1b[Hstill open\n", "before\n\nstill open\n"),
        ("old\n\x1b[H\x1b[2J\x1b[3Jnew\n", "new\n"),
    ],
)
def test_the_ways_of_programs_that_redraw(raw: str, shown: str) -> None:
    assert settled(raw) == shown


@pytest.mark.spec("OE-31")
@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab c\t", max_size=10), max_size=60), st.integers(0, 3), st.booleans())
def test_lines_that_nothing_goes_back_to_stay_as_they_are(lines: list[str], end: int, redraws: bool) -> None:
    text = "\n".join(lines) + "\n" * end
    assert settled(text) == text
    assert settled(text.replace("\n", "\r\n")) == text
    assert settled(f"\x1b[1m{text}\x1b[0m") == text
    # Drawing somewhere else changes nothing about them, their blanks at the end included.
    if redraws:
        assert settled(f"{text}\nx\ry") == f"{text}\ny"
        assert settled(f"x\ry\n{text}") == f"y\n{text}"


@pytest.mark.spec("OE-31")
def test_what_has_scrolled_off_stays() -> None:
    lines = [f"line {number}" for number in range(100)]
    text = "\n".join(lines)
    for erase in ("\x1b[2J", "\x1b[H\x1b[J", "\x1b[999A\r\x1b[J", "\x1bc", "\x1b[3J"):
        rows = settled(text + erase).split("\n")
        assert rows[: 100 - SCREEN_ROWS] == lines[: 100 - SCREEN_ROWS]


@pytest.mark.spec("OE-31")
@settings(deadline=None)
@given(st.text(alphabet="ab\r\n\b\t\x1b[]0;19?hlmJKHAr\x07\x9c", max_size=60))
def test_nothing_that_moves_a_cursor_is_left(text: str) -> None:
    shown = settled(text)
    assert not set(shown) & set("\r\b\x1b\x07")
    assert settled(shown) == shown


@pytest.mark.spec("OE-32")
@pytest.mark.parametrize(
    "piece",
    [
        "\r",
        "\r\n",
        "\x1b",
        "\x1b[",
        "\x1b]",
        "\x1b[1;",
        "\b",
        "a\b",
        "\x1b[A",
        "\x1b[J",
        "\x1b[2Ky",
        "\x1b[1K",
        "\r\x1b[P",
        "\r\x1b[@",
        "\r\x1b[400X",
        "\x1b[2L",
        "\x1b7\x1b8\x1b[Ay\x1b[2K",
        "\x1b[500Cx\x1b[1K\r",
        "\u0301",
        "\t",
        "漢\r",
        " 50% [##########          ]\r",
        "\x1b[3A\x1b[2K\rlayer\x1b[3B\r",
    ],
)
def test_it_takes_linear_time_whatever_is_printed(piece: str) -> None:
    """Behind a long line, so that anything which touches all of it each time would take minutes."""
    text = "x" * 1_000_000 + piece * (1_000_000 // len(piece))
    began = time.process_time()
    settled(text)
    assert time.process_time() - began < 20
