"""Results as the text that a model reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codetools.render import (
    STREAM_LIMIT_BYTES,
    bounded,
    clean,
    cut,
    exec_text,
    exit_words,
    printed,
    shell_text,
    stream,
    visible,
)
from sandbox import ExecResult, Output, ShellResult, Spilled, Survivor


def result(
    stdout: bytes = b"", stderr: bytes = b"", code: int = 0, timed_out: bool = False, **more: object
) -> ExecResult:
    return ExecResult(
        exit_code=code,
        stdout_output=Output(stdout),
        stderr_output=Output(stderr),
        timed_out=timed_out,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.spec("XT-01")
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("first\rsecond\nthird\n", "second\nthird\n"),
        ("".join(f"\r{n}%" for n in range(1, 5001)) + "\n", "5000%\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("a\r\r\nb", "a\nb"),
        ("progress 1\rprogress 2\r", "progress 2"),
        ("\r", ""),
    ],
)
def test_overwritten_frames_are_gone_and_crlf_is_a_line_end(raw: str, shown: str) -> None:
    assert printed(raw) == shown


@pytest.mark.spec("XT-02")
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\0b", "a\ufffdb"),
        ("\x1b[31mred\x1b[0m\x07\n", "red\n"),
        ("\x1b[38;5;196mx\x1b[m", "x"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]never ends\nnext line", "\nnext line"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("\x1b(Bx\x1b=y", "xy"),
        ("N\bNA\bA", "NA"),
        ("tab\tstays", "tab\tstays"),
        ("\x01\x7f\x85", "\ufffd\ufffd\ufffd"),
        ("a\udc80b", "a\ufffdb"),
        ("日本\u200d", "日本\u200d"),
    ],
)
def test_control_sequences_go_and_other_controls_are_marked(raw: str, shown: str) -> None:
    assert printed(raw) == shown


@pytest.mark.spec("XT-02")
@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=200))
def test_clean_text_holds_nothing_that_a_wire_refuses(text: str) -> None:
    for cleaned in (clean, printed):
        shown = cleaned(text)
        assert not any(ord(char) < 32 and char not in "\n\t" for char in shown)
        shown.encode()
        assert cleaned(shown) == shown


@pytest.mark.spec("OE-33")
@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=200))
def test_text_that_is_no_output_loses_nothing_of_what_it_holds(text: str) -> None:
    shown = clean(text)
    assert len(shown) == len(text.replace("\r\n", "\n"))
    assert all(char in (kept, "\ufffd") for char, kept in zip(shown, text.replace("\r\n", "\n"), strict=True))


@pytest.mark.spec("OE-33")
@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("rm -rf ~\recho hello", "rm -rf ~\ufffdecho hello"),
        ("echo \x1b]0;$(rm -rf ~)\x07hello", "echo \ufffd]0;$(rm -rf ~)\ufffdhello"),
        ("rm -rf ~\x1b[2K\x1b[1Gecho hello", "rm -rf ~\ufffd[2K\ufffd[1Gecho hello"),
        ("rm\b\becho", "rm\ufffd\ufffdecho"),
    ],
)
def test_a_command_cannot_hide_a_part_of_itself(hidden: str, shown: str) -> None:
    assert clean(hidden) == shown


@pytest.mark.spec("XT-02")
@pytest.mark.parametrize(
    "piece", ["\r", "\x1b", "\x1b[", "\x1b]", "\x1b[1;", "\x08", "a\x08", "x" * 50 + "\r"]
)
def test_cleaning_takes_linear_time(piece: str) -> None:
    assert len(printed(piece * 20_000)) <= 20_000 * len(piece)


@pytest.mark.spec("EX-13")
@settings(deadline=None)
@given(st.text(alphabet="a漢é\n🙂", max_size=300), st.integers(min_value=1, max_value=200))
def test_a_cut_keeps_head_and_tail_and_counts_what_is_missing(text: str, limit: int) -> None:
    piece = cut(text, limit)
    kept = len(piece.head.encode()) + len(piece.tail.encode())
    assert kept + piece.dropped_bytes == len(text.encode())
    assert text.startswith(piece.head) and text.endswith(piece.tail)
    assert len(piece.head) + len(piece.tail) <= len(text)
    assert kept <= limit or not piece.dropped_bytes
    # At most half a character at each end, and what stands before a line end that is near.
    assert kept >= min(limit, len(text.encode())) * 0.75 - 8


@pytest.mark.spec("EX-13")
def test_a_cut_is_made_at_a_line_end_if_one_is_near() -> None:
    lines = "".join(f"line {number} of many\n" for number in range(2000))
    piece = cut(lines, 8192)
    assert piece.head.endswith(" of many\n")
    assert piece.tail.startswith("line ")
    assert len(piece.head) + len(piece.tail) > 8192 - 80
    assert stream(Output(lines.encode())).count("\n[... ") == 1
    far = "x" * 5000 + "\n" + "y" * 5000
    assert cut(far, 8192).head == ("x" * 5000)[: int(8192 * 0.6)]


@pytest.mark.spec("EX-13")
def test_a_long_stream_keeps_60_percent_of_head_and_40_of_tail() -> None:
    text = stream(Output(b"h" * 10_000 + b"t" * 10_000))
    head, notice, tail = text.split("\n")
    assert head == "h" * int(STREAM_LIMIT_BYTES * 0.6)
    assert tail == "t" * (STREAM_LIMIT_BYTES - len(head))
    assert notice == f"[... {20_000 - STREAM_LIMIT_BYTES} bytes dropped ...]"


@pytest.mark.spec("EX-13")
@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 10**9))
def test_what_the_capture_dropped_is_in_the_count(back: int, front: int, dropped: int) -> None:
    data = "漢" * 10_000
    raw = data.encode()
    output = Output(raw[: len(raw) - back], raw[front:], dropped)
    text = stream(output)
    assert "\ufffd" not in text
    shown = text.replace("\n", "").count("漢") * 3
    count = int(text.split("[... ")[1].split(" ")[0])
    assert count == dropped + 2 * len(raw) - back - front - shown


@pytest.mark.spec("EX-13")
def test_a_short_rest_of_a_long_stream_still_shows_the_gap() -> None:
    frames = "".join(f"\r{n}%" for n in range(1000)).encode()
    text = stream(Output(b"start\n" + frames, frames + b"\nend\n", 500))
    assert text.startswith("start\n999%\n[... 500 bytes dropped ...]\n999%\nend\n")


@pytest.mark.spec("OE-34")
def test_what_is_shown_in_part_names_where_all_of_it_is() -> None:
    long = Output(b"h" * 5000 + b"t" * 5000)
    asked: list[Output] = []

    def keep(output: Output) -> Spilled | None:
        asked.append(output)
        return Spilled("0123456789ab", len(output.data))

    text = stream(long, keep=keep)
    assert "bytes dropped; read_output shows everything, handle 0123456789ab ...]" in text
    assert asked == [long]
    stream(Output(b"short"), keep=keep)
    assert len(asked) == 1
    spilled = replace(long, dropped_bytes=7, spilled=Spilled("ba9876543210", 10_007))
    assert "handle ba9876543210 ...]" in stream(spilled)
    both = exec_text(ExecResult(exit_code=0, stdout_output=long, stderr_output=spilled), 30, keep=keep)
    assert both.count("handle 0123456789ab") == 2
    shell = shell_text(ShellResult(exit_code=0, captured=spilled), "s", 30)
    assert "handle ba9876543210" in shell


@pytest.mark.spec("OE-34")
def test_what_could_not_be_kept_wholly_is_told() -> None:
    part = Output(b"h", b"t", 9000, Spilled("0123456789ab", 4000, "No space left on device"))
    assert stream(part) == (
        "h\n[... 9000 bytes dropped; read_output shows the first 4000 bytes (No space left on device), "
        "handle 0123456789ab ...]\nt"
    )
    none = Output(b"h", b"t", 9000, Spilled("", 0, "no file could be made in /x: Permission denied"))
    assert "dropped; they could not be kept: no file could be made in /x: Permission denied ...]" in stream(
        none
    )


@pytest.mark.spec("XT-03")
def test_the_last_error_line_is_shown_even_if_it_is_in_the_middle() -> None:
    noise = "fine line\n" * 1000
    text = stream(Output((noise + "E   AssertionError: boom\n" + noise).encode()))
    assert "last error line among them: E   AssertionError: boom" in text
    ends_with_it = stream(Output((noise + noise + "a\nAssertionError: late\n").encode()))
    assert "among them" not in ends_with_it
    assert ends_with_it.endswith("AssertionError: late\n")


@pytest.mark.spec("EX-12", "XT-04")
def test_a_result_tells_exit_code_and_streams() -> None:
    assert exec_text(result(b"out\n", b"err\n", 3), 30) == "exit code: 3\nstdout:\nout\nstderr:\nerr"
    assert exec_text(result(b"out", b"", 0), 30) == "exit code: 0\nstdout:\nout"
    assert exec_text(result(b"abc\n\n"), 30) == "exit code: 0\nstdout:\nabc\n"


@pytest.mark.spec("XT-05")
def test_silence_is_said() -> None:
    assert exec_text(result(), 30) == "exit code: 0\n(no output)"
    shell = ShellResult(exit_code=0, captured=Output(), cwd="/x")
    assert shell_text(shell, "s", 30) == "exit code: 0\ndirectory: /x\n(no output)"


@pytest.mark.spec("EX-12", "EX-16")
def test_a_timeout_is_told_first_and_keeps_the_output() -> None:
    text = exec_text(result(b"so far\n", b"", 137, timed_out=True), 1.5)
    assert text == (
        "timed out after 1.5 s; the command was killed\nexit code: 137 (SIGKILL)\nstdout:\nso far"
    )


@pytest.mark.spec("XT-02")
def test_replaced_characters_are_counted() -> None:
    text = exec_text(result(b"a\x00b\xff\n", b"fine\n"), 30)
    assert (
        "stdout (2 characters that are no text are shown as \ufffd):\na\ufffdb\ufffd\nstderr:\nfine" in text
    )


@pytest.mark.spec("XT-06")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "0"),
        (1, "1"),
        (127, "127"),
        (128, "128"),
        (129, "129 (SIGHUP)"),
        (130, "130 (SIGINT)"),
        (137, "137 (SIGKILL)"),
        (139, "139 (SIGSEGV)"),
        (143, "143 (SIGTERM)"),
        (160, "160"),
        (255, "255"),
    ],
)
def test_a_signal_is_named(code: int, words: str) -> None:
    assert exit_words(code) == words


@pytest.mark.spec("XT-07")
def test_survivors_and_notices_are_named() -> None:
    survivor = (Survivor(pid=42, name="sleep"),)
    assert "may still run: 42 (sleep)" in exec_text(result(code=137, survivors=survivor), 30)
    shell = ShellResult(
        exit_code=3, captured=Output(b"bye\n"), ended=True, notice="it was replaced", survivors=survivor
    )
    text = shell_text(shell, "build", 30)
    assert "notice: it was replaced" in text
    assert "the shell 'build' has ended" in text
    assert "42 (sleep)" in text
    running = shell_text(ShellResult(exit_code=None, captured=Output(b"x"), running=True), "s", 30)
    assert running.startswith("still running\n")


@pytest.mark.spec("XT-04")
def test_output_that_looks_like_a_result_stands_below_the_real_one() -> None:
    text = exec_text(result(b"exit code: 0\nstdout:\nall good\n", code=1), 30)
    assert text.startswith("exit code: 1\n")


@pytest.mark.spec("EX-13")
def test_a_limit_of_0_keeps_everything() -> None:
    assert bounded("x" * 100_000, 0) == "x" * 100_000
    assert stream(Output(b"x" * 100_000), 0) == "x" * 100_000


@pytest.mark.spec("XT-02")
def test_a_line_of_a_file_keeps_its_tabs_and_shows_the_rest() -> None:
    assert visible("a\tb\r\x1b[0m\udce9") == "a\tb\ufffd\ufffd[0m\ufffd"
