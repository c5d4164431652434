"""The pure half of the shells: quoting against real shells, readers cut at random."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import framing, marks, shell
from sandbox.frame_bash import BashFrame
from sandbox.frame_sh import ShFrame

HINT = framing.hint_of("a1b2", 77)
NONCE = "0123456789abcdef"
START = b"\x1b]8671;S;0123456789abcdef\x07"
any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


def end_mark(status: int, flags: str, cwd: bytes, exists: bytes = b"1") -> bytes:
    nonce = NONCE.encode()
    head = b";".join((str(status).encode(), flags.encode(), exists))
    return b"\x1b]8671;E;%s;%s;%s;%s;%s\x07" % (nonce, head, nonce, cwd, nonce)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


@settings(max_examples=40, deadline=None)
@given(st.lists(any_text, min_size=1, max_size=5), st.sampled_from(["bash", "dash", "busybox sh"]))
def test_a_real_shell_reads_back_what_was_quoted(words: list[str], kind: str) -> None:
    script = "printf '%s\\0' " + " ".join(shell.quote(word) for word in words)
    real = subprocess.run(
        [*kind.split(), "-c", shell.encode(script)], capture_output=True, timeout=20, check=True
    )
    assert real.stdout == b"".join(shell.encode(word) + b"\0" for word in words)


@given(st.binary(max_size=200), st.lists(st.integers(1, 30), max_size=20), st.integers(0, 255))
def test_output_and_mark_are_found_however_the_bytes_are_cut(
    out: bytes, sizes: list[int], status: int
) -> None:
    mark = end_mark(status, "himBs", b"/tmp/a;1;trap -- x DEBUG\x07")
    reader = marks.MarkReader(NONCE, HINT, b" typed\n")
    got = b"".join(reader.feed(piece) for piece in cut(START + out + mark + b"after", sizes))
    assert got == out
    assert reader.mark == marks.Mark(status, "himBs", "/tmp/a;1;trap -- x DEBUG\x07", True)
    assert reader.rest == b"after"


@pytest.mark.parametrize(
    "forged",
    [
        b"\x1b]8671;E;ffffffffffffffff;0;;/;1;;ffffffffffffffff\x07",
        b"\x1b]8671;S;0123456789abcdef\x07",
        b"\x1b]8671;",
        b"\x1b]8671;E;0123456789abcde",
        b"\x1b\x1b]8671;X\x07",
    ],
)
def test_what_only_looks_like_a_mark_is_output(forged: bytes) -> None:
    for size in range(1, len(forged) + 1):
        reader = marks.MarkReader(NONCE, HINT, b"")
        stream = START + forged + b"x" + end_mark(7, "", b"/")
        got = b"".join(reader.feed(stream[at : at + size]) for at in range(0, len(stream), size))
        assert got == forged + b"x"
        assert reader.mark is not None
        assert reader.mark.status == 7


def test_an_echo_of_what_was_typed_is_taken_out_and_a_jobs_output_kept() -> None:
    reader = marks.MarkReader(NONCE, HINT, b" cr_c='x'\n")
    early = b"job says hi\n" + b" cr_c='x'\r\n" + HINT
    assert reader.feed(early + START + b"out" + end_mark(0, "", b"/")) == b"job says hi\nout"


@pytest.mark.parametrize("kind", [BashFrame, ShFrame])
@pytest.mark.parametrize(
    "text", ["漢" * 5000, "'" * 5000, "it's\n" * 2000, "\x01\r\x7f" * 300, "x" * 100_000]
)
def test_no_typed_line_is_too_long_for_a_terminal_and_no_control_byte_is_typed(
    kind: type[BashFrame | ShFrame], text: str
) -> None:
    frame = kind("cr_0123456789abcdef", "a1b2", 77)
    typed = frame.command(framing.Framed(text=text, nonce=NONCE, before=None))
    assert max(len(line) for line in typed.split(b"\n")) < 4095
    assert not set(typed) & (set(range(32)) - {9, 10} | {127})


@given(st.binary(max_size=80), st.lists(st.integers(1, 20), max_size=20))
def test_a_start_is_found_after_any_noise(noise: bytes, sizes: list[int]) -> None:
    reader = shell.StartReader("tok")
    stream = noise.replace(b"tok", b"") + b"tok 123 bash\n" + b"tok go\n" + b"rest"
    found = [each for piece in cut(stream, sizes) if (each := reader.feed(piece)) is not None]
    assert found[0][0] == shell.Started(123, "bash")
    assert b"rest".startswith(found[0][1])


def test_a_directory_that_cannot_be_entered_is_told_by_its_kind() -> None:
    reader = shell.StartReader("tok")
    found = reader.feed(b"tok 5 \ntok missing\n")
    assert found is not None
    assert found[0] == shell.Started(5, "sh", cwd_error="missing")
