"""The screen of a terminal: what a person would see. Pure; the real programs are in test_interactive.py.

The expected screens are those of tmux 3.3a (`capture-pane -p` of a pane in raw mode) for the same bytes,
but where a comment names the standard that says more.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.emulator import Emulator
from sandbox.screen import KEPT_BYTES, Screen
from sandbox.values import PtySize

SMALL = PtySize(20, 5)


def render(data: bytes, size: PtySize) -> str:
    screen = Screen(size)
    screen.feed(data)
    return screen.text()


CASES = {
    "text": ("one\r\ntwo", "one\ntwo"),
    "wrapped line": ("a" * 25 + "\r\nend", "a" * 20 + "\n" + "a" * 5 + "\nend"),
    "a full line does not wrap before the next character": ("a" * 20 + "\r\nend", "a" * 20 + "\nend"),
    "scrolling": ("1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7", "3\n4\n5\n6\n7"),
    "colours": ("\x1b[1;38;2;1;2;3mred\x1b[0m \x1b[4:3mcurly\x1b[m", "red curly"),
    "title": ("\x1b]0;a title\x07x\x1b]2;more\x1b\\y", "xy"),
    "device control": ("\x1bP+q436f\x1b\\x\x1bPq#0;2~~\x1b\\y", "xy"),
    "cursor": ("\x1b[3;5Hmid\x1b[HA\x1b[2BB\x1b[10GC", "A\n\n B  mid  C"),
    "erase": ("abcdef\x1b[3D\x1b[K\r\nabcdef\x1b[3D\x1b[1K\r\nabcdef\x1b[3D\x1b[2X", "abc\n    ef\nabc  f"),
    "clear": ("old\x1b[2J\x1b[Hnew", "new"),
    "insert and delete": ("abcdef\r\x1b[2@xy\x1b[2P\r\nabc\r\x1b[4hX\x1b[4lY", "xycdef\nXYbc"),
    "lines": ("1\r\n2\r\n3\x1b[2;1H\x1b[LA\x1b[1;1H\x1b[M", "A\n2\n3"),
    "margins": ("1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\r\nX\x1b[r", "1\n3\n4\nX\n5"),
    "reverse index": ("1\r\n2\x1b[H\x1bMtop", "top\n1\n2"),
    "tabs": ("a\tb\tc\x1b[Zd", "a       b       d"),
    "repeat": ("-\x1b[5bx", "------x"),
    "saved cursor": ("ab\x1b7cd\x1b8X", "abXd"),
    # xterm: half of a wide character that is overwritten takes the other half with it.
    "half of a wide character": ("漢字\x1b[2GX", " X字"),
    "wide at the edge": ("a" * 19 + "漢", "a" * 19 + "\n漢"),
    "combining": ("e\u0301x", "e\u0301x"),
    "alternate": ("main\x1b[?1049h\x1b[HALT\x1b[?1049lX", "mainX"),
    "no autowrap": ("\x1b[?7l" + "a" * 25 + "b", "a" * 19 + "b"),
    "origin": ("\x1b[2;4r\x1b[?6h\x1b[1;1HX", "\nX"),
    "unknown": ("\x1b[=1uA\x1b[<uB\x1b[!pC\x1b[?2004hD\x1b[>4;2mE\x1b[2 qF", "ABCDEF"),
    "broken": ("\x1b[12\x18A\x1b[3\x1b[1CB", "A B"),
    # ECMA-48 8.3.113 and 8.3.147: the screen moves by so many lines.
    "scroll up and down": ("1\r\n2\r\n3\x1b[2S\x1b[T", "\n3"),
    # VT100 user guide, "special graphics characters".
    "line drawing": ("\x1b(0lqk\x1b(Bx", "┌─┐x"),
    # xterm, "ctlseqs": an emoji with a variation selector is one character and loses nothing after it.
    "variation selector": ("\u26a0\ufe0f warning", "\u26a0\ufe0f warning"),
}


@pytest.mark.spec("IW-20")
@pytest.mark.parametrize(("printed", "shown"), CASES.values(), ids=CASES.keys())
def test_a_screen_is_what_a_person_would_see(printed: str, shown: str) -> None:
    assert render(printed.encode(), SMALL) == shown


@pytest.mark.spec("IW-20")
@given(
    st.lists(
        st.one_of(
            st.sampled_from([text for text, _ in CASES.values()]),
            st.text(max_size=30),
            st.from_regex(r"\x1b\[[?>]?[0-9]{0,4}(;[0-9]{0,4})?[@-~]", fullmatch=True),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_it_is_the_same_wherever_the_bytes_are_cut(pieces: list[str], cuts: list[int]) -> None:
    data = "".join(pieces).encode()
    whole, parts = Screen(SMALL), Emulator(SMALL)
    whole.feed(data)
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        parts.feed(data[at : max(at, cut)])
        at = max(at, cut)
    assert parts.text() == whole.text()
    lines = whole.text().split("\n")
    assert len(lines) <= SMALL.rows and all(line == line.rstrip() for line in lines)


@pytest.mark.spec("IW-20")
@given(st.binary(max_size=300), st.integers(1, 30), st.integers(1, 10))
def test_no_bytes_and_no_size_are_too_strange(data: bytes, columns: int, rows: int) -> None:
    screen = Screen(SMALL)
    screen.feed(data)
    screen.resize(PtySize(columns, rows))
    screen.feed(data)
    assert len(screen.text().split("\n")) <= rows


@pytest.mark.spec("IW-21")
def test_a_lone_newline_is_a_whole_one_but_for_a_program_that_writes_its_own_returns() -> None:
    assert render(b"one\ntwo\n", SMALL) == "one\ntwo"
    assert render(b"\x1b[?1049hone\ntwo", SMALL) == "one\ntwo"
    assert render(b"\x1b[?1049hone\r\ntwo\nthree", SMALL) == "one\ntwo\n   three"
    assert render(b"\x1b[?1049hone\r\ntwo\nthree\x1b[?1049lA\nB", SMALL) == "A\nB"


@pytest.mark.spec("IW-22")
def test_a_resize_cuts_lines_and_keeps_the_line_of_the_cursor() -> None:
    screen = Screen(PtySize(10, 4))
    screen.feed(b"1234567890\r\n2\r\n3\r\n4")
    screen.resize(PtySize(4, 2))
    assert screen.text() == "3\n4"
    screen.resize(PtySize(12, 4))
    screen.feed(b"\x1b[4;12HX")
    assert screen.text() == "3\n4\n\n           X"
    screen.restart()
    assert screen.text() == ""
    screen.feed(b"\x1b[4;12HX")
    assert screen.text() == "\n\n\n           X"


@pytest.mark.spec("IW-23")
def test_a_long_text_costs_neither_memory_nor_the_screen_its_end() -> None:
    screen = Screen(SMALL)
    for number in range(200_000):
        screen.feed(b"line number %d\n" % number)
        assert len(screen._kept) <= 3 * KEPT_BYTES
    assert screen.text() == "\n".join(f"line number {n}" for n in range(199_996, 200_000))


@pytest.mark.spec("IW-23")
def test_a_full_screen_program_loses_nothing_however_long_it_runs() -> None:
    screen = Screen(SMALL)
    screen.feed(b"\x1b[?1049h\x1b[2J\x1b[1;1Hpainted once")
    for number in range(40_000):
        screen.feed(b"\x1b[3;1H\x1b[32mcount %d\x1b[0m\x1b[K" % number)
        assert len(screen._kept) <= 3 * KEPT_BYTES
    assert screen.text() == "painted once\n\ncount 39999"
    screen.feed(b"\x1b[?1049l")
    assert screen.text() == ""


@pytest.mark.spec("IW-23")
def test_a_look_costs_what_was_printed_since_the_last_one() -> None:
    screen = Screen(PtySize(200, 50))
    screen.feed(b"x" * 100_000 + b"\x1b[H\x1b[2J")
    screen.text()
    seen: list[bytes] = []
    feed = screen._emulator.feed

    def watched(data: bytes) -> None:
        seen.append(data)
        feed(data)

    screen._emulator.feed = watched  # type: ignore[method-assign]
    for _ in range(3):
        screen.feed(b"more\r\n")
        screen.text()
    assert seen == [b"more\r\n"] * 3


@pytest.mark.spec("IW-24")
def test_it_needs_nothing_that_has_to_be_installed() -> None:
    code = (
        "import sys; sys.modules['pyte'] = None; from sandbox import LocalSandbox\n"
        "with LocalSandbox('/') as box:\n"
        "    box.shell('s').run(\"printf 'abc\\\\033[1;1HX'\"); print(box.shell('s').screen())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=20, check=False)
    assert (run.stdout, run.stderr) == (b"Xbc\n", b"")
