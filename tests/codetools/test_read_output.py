"""read_output, and how a result leads to it: in a real sandbox, with outputs in real files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from codetools_bench import Bench
from places import Place

from codetools import code_tools
from codetools.read_output import PAGE_LIMIT_BYTES, ReadOutputArguments, parse_arguments
from runtime.tools import BadArguments
from sandbox import LocalSandbox, SpillStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SpillStore]:
    with SpillStore(tmp_path / "outputs") as opened:
        yield opened


@pytest.fixture
def bench(box: LocalSandbox, store: SpillStore) -> Bench:
    return Bench(box, {tool.name: tool for tool in code_tools(box, spill=store)})


def handle_in(text: str) -> str:
    """The one handle that a result names."""
    (handle,) = re.findall(r"handle ([0-9a-f]{12})", text)
    return str(handle)


# -- from a result to the rest of it --------------------------------------------------------------


@pytest.mark.spec("OE-40")
def test_what_a_result_leaves_out_is_read_by_the_handle_that_it_names(
    place: Place, store: SpillStore
) -> None:
    tools = Bench(place.box, {tool.name: tool for tool in code_tools(place.box, spill=store)})
    # One is cut for the model only, the other was too long for memory as well.
    for count in (5_000, 300_000):
        for session in ("", "numbers"):
            result = tools.result("exec_command", cmd=f"seq 1 {count}", session_id=session)
            handle = handle_in(result.text)
            assert result.details is not None
            assert result.details["outputs"] == [handle]
            assert tools.call("read_output", handle=handle, offset=count // 2, count=2) == (
                f"lines {count // 2}-{count // 2 + 1} of {count}; go on with offset {count // 2 + 2}\n"
                f"{count // 2}\t{count // 2}\n{count // 2 + 1}\t{count // 2 + 1}"
            )
    place.box.shell("numbers").close()


@pytest.mark.spec("OE-40")
def test_both_streams_have_a_handle_of_their_own_and_a_short_one_has_none(bench: Bench) -> None:
    text = bench.call("exec_command", cmd="seq 1 9000; seq 9001 18000 >&2")
    first, second = re.findall(r"handle ([0-9a-f]{12})", text)
    assert bench.call("read_output", handle=first, mode="tail", count=1).endswith("\n9000\t9000")
    assert bench.call("read_output", handle=second, mode="tail", count=1).endswith("\n9000\t18000")
    result = bench.result("exec_command", cmd="seq 1 90")
    assert "handle" not in result.text
    assert result.details is not None and result.details["outputs"] == []


@pytest.mark.spec("OE-40")
def test_progress_that_shrinks_to_what_fits_needs_no_handle(bench: Bench, store: SpillStore) -> None:
    text = bench.call(
        "exec_command", cmd=r"i=0; while [ $i -lt 9000 ]; do i=$((i+1)); printf '\r%d%%' $i; done"
    )
    assert text == "exit code: 0\nstdout:\n9000%"
    assert store.handles() == []


@pytest.mark.spec("OE-40")
def test_without_a_store_there_is_no_tool_and_no_handle(box: LocalSandbox) -> None:
    tools = Bench(box, {tool.name: tool for tool in code_tools(box)})
    assert "read_output" not in tools.tools
    assert re.search(r"\n\[\.\.\. \d+ bytes dropped \.\.\.]\n", tools.call("exec_command", cmd="seq 1 5000"))


@pytest.mark.spec("OE-40")
def test_a_disk_that_refuses_is_told_and_the_command_is_not_disturbed(
    box: LocalSandbox, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    tools = Bench(box, {tool.name: tool for tool in code_tools(box, spill=SpillStore(tmp_path / "file/x"))})
    for count in (5_000, 300_000):
        text = tools.call("exec_command", cmd=f"seq 1 {count}; exit 3")
        assert text.startswith("exit code: 3\nstdout:\n1\n2\n")
        assert "they could not be kept: no file could be made in" in text
        assert text.endswith(f"\n{count}")
    full = SpillStore(tmp_path / "full", max_bytes=100)
    tools = Bench(box, {tool.name: tool for tool in code_tools(box, spill=full)})
    assert (
        "read_output shows the first 100 bytes (the spill store is full (100 bytes)), handle"
        in tools.call("exec_command", cmd="seq 1 5000")
    )


@pytest.mark.spec("OE-40")
def test_it_only_reads(bench: Bench) -> None:
    assert bench.tools["read_output"].read_only


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.spec("OE-41")
def test_what_is_not_given_has_defaults() -> None:
    expected = ReadOutputArguments("abc")
    assert parse_arguments('{"handle": "abc"}') == expected
    given = {"mode": None, "offset": 0, "count": None, "pattern": "", "context": 0}
    assert parse_arguments(json.dumps({"handle": " abc ", **given})) == expected
    assert parse_arguments('{"handle": "abc", "pattern": false, "offset": -3.0}') == ReadOutputArguments(
        "abc", offset=-3
    )


@pytest.mark.spec("OE-41")
@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("handle", {}),
        ("handle", {"handle": ""}),
        ("handle", {"handle": 7}),
        ("handle", {"handle": None}),
        ("mode", {"handle": "x", "mode": "all"}),
        ("mode", {"handle": "x", "mode": 1}),
        ("offset", {"handle": "x", "offset": "1"}),
        ("offset", {"handle": "x", "offset": 1.5}),
        ("offset", {"handle": "x", "mode": "search", "pattern": "p", "offset": -1}),
        ("count", {"handle": "x", "count": -1}),
        ("count", {"handle": "x", "count": True}),
        ("context", {"handle": "x", "context": []}),
        ("pattern", {"handle": "x", "pattern": "p"}),
        ("pattern", {"handle": "x", "mode": "search"}),
        ("pattern", {"handle": "x", "mode": "regex", "pattern": ""}),
        ("pattern", {"handle": "x", "mode": "regex", "pattern": "a("}),
        ("pattern", {"handle": "x", "mode": "search", "pattern": "a\nb"}),
        ("extra", {"handle": "x", "extra": 1}),
    ],
)
def test_other_arguments_are_refused_by_name(field: str, arguments: dict[str, object]) -> None:
    with pytest.raises(BadArguments, match=field) as raised:
        parse_arguments(json.dumps(arguments))
    assert len(str(raised.value)) <= 1024


@pytest.mark.spec("OE-41")
@pytest.mark.parametrize("handle", ["0123456789ab", "nonsense", "../../etc/passwd", "x" * 10_000])
@pytest.mark.parametrize("mode", ["lines", "tail", "bytes", "search"])
def test_an_unknown_handle_is_a_clear_error(bench: Bench, handle: str, mode: str) -> None:
    text = bench.call("read_output", handle=handle, mode=mode, pattern="x" if mode == "search" else "")
    assert (
        text == f"ToolFailed: read output {handle[:100]}: there is no such output; it may have been removed"
    )


# -- what is shown --------------------------------------------------------------------------------


def numbered(count: int) -> bytes:
    return b"".join(b"line %d of a log\n" % number for number in range(1, count + 1))


@pytest.mark.spec("OE-42")
def test_pages_of_lines_lead_through_a_whole_output(bench: Bench, store: SpillStore) -> None:
    data = numbered(3000)
    handle, offset, rows = store.add(data).handle, 1, []
    for _ in range(100):
        text = bench.call("read_output", handle=handle, offset=offset)
        assert len(text.encode()) <= PAGE_LIMIT_BYTES
        header, *page = text.split("\n")
        rows += page
        more = re.search(r"go on with offset (\d+)", header)
        if more is None:
            break
        offset = int(more[1])
    assert rows == [f"{n}\t{line}" for n, line in enumerate(data.decode().splitlines(), 1)]


@pytest.mark.spec("OE-42")
def test_pages_of_bytes_lead_through_a_whole_output(bench: Bench, store: SpillStore) -> None:
    data = ("漢字 and é\n" * 5000).encode()
    handle, offset, got = store.add(data).handle, 0, ""
    for _ in range(100):
        text = bench.call("read_output", handle=handle, mode="bytes", offset=offset)
        assert len(text.encode()) <= PAGE_LIMIT_BYTES
        header, _, page = text.partition("\n")
        got += page
        more = re.search(r"go on with offset (\d+)", header)
        if more is None:
            break
        offset = int(more[1])
    assert got.encode() == data


@pytest.mark.spec("OE-42")
def test_what_is_past_the_end_or_empty_is_said(bench: Bench, store: SpillStore) -> None:
    handle, empty = store.add(b"a\nb\n").handle, store.add(b"").handle
    assert (
        bench.call("read_output", handle=handle, offset=3) == "line 3 is past the end; the output has 2 lines"
    )
    assert bench.call("read_output", handle=handle, mode="bytes", offset=9) == (
        "byte 9 is past the end; the output has 4 bytes"
    )
    for mode in ("lines", "tail", "bytes"):
        assert bench.call("read_output", handle=empty, mode=mode) == "the output is empty"
    assert bench.call("read_output", handle=empty, mode="search", pattern="x") == "no line matches"


@pytest.mark.spec("OE-42")
def test_counting_from_the_end(bench: Bench, store: SpillStore) -> None:
    handle = store.add(numbered(3000)).handle
    assert bench.call("read_output", handle=handle, offset=-2, count=1) == (
        "lines 2999-2999 of 3000; go on with offset 3000\n2999\tline 2999 of a log"
    )
    tail = bench.call("read_output", handle=handle, mode="tail")
    assert tail.endswith("\n3000\tline 3000 of a log")
    assert len(tail.encode()) <= PAGE_LIMIT_BYTES
    first, last = re.findall(r"\d+", tail.split("\n")[0])[:2]
    assert (int(first), last) == (3000 - tail.count("\n") + 1, "3000")
    assert bench.call("read_output", handle=handle, mode="bytes", offset=-4, count=3).endswith("\nlog")


@pytest.mark.spec("OE-42")
def test_a_line_that_is_too_long_for_a_page_is_cut_and_says_so(bench: Bench, store: SpillStore) -> None:
    handle = store.add(b"first\n" + b"x" * 3_000_000 + b"\nlast\n").handle
    page = bench.call("read_output", handle=handle, offset=2)
    assert page.startswith("lines 2-2 of 3; go on with offset 3\n2\txxx")
    assert len(page.encode()) <= PAGE_LIMIT_BYTES
    assert re.search(r"x \[\.\.\. \d+ bytes \.\.\.]$", page)
    assert bench.call("read_output", handle=handle, offset=3) == "lines 3-3 of 3\n3\tlast"
    end = store.add(b"x" * 100_000 + b"END").handle
    assert bench.call("read_output", handle=end, mode="tail").endswith("xxxEND")


@pytest.mark.spec("OE-42")
def test_lines_are_shown_as_a_person_would_see_them(bench: Bench, store: SpillStore) -> None:
    frames = b"".join(b"\r%d%%" % number for number in range(20_000))
    handle = store.add(frames + b"\n\x1b[31mred\x1b[0m\r\nbin\x00\xff\n").handle
    assert bench.call("read_output", handle=handle) == (
        "lines 1-3 of 3\n1\t19999%\n2\tred\n3\tbin\ufffd\ufffd"
    )
    raw = bench.call("read_output", handle=handle, mode="bytes", offset=-20, count=20)
    assert raw.endswith("\ufffd[31mred\ufffd[0m\nbin\ufffd\ufffd\n")


# -- search ---------------------------------------------------------------------------------------


@pytest.mark.spec("OE-43")
def test_a_search_shows_numbers_and_context_and_goes_on(bench: Bench, store: SpillStore) -> None:
    handle = store.add(numbered(3000)).handle
    text = bench.call("read_output", handle=handle, mode="search", pattern="line 77", count=2, context=1)
    assert text == (
        "2 lines match; there are more, go on with offset 771\n"
        "76-\tline 76 of a log\n77:\tline 77 of a log\n78-\tline 78 of a log\n"
        "769-\tline 769 of a log\n770:\tline 770 of a log\n771-\tline 771 of a log"
    )
    more = bench.call("read_output", handle=handle, mode="search", pattern="line 77", count=1, offset=771)
    assert more == "1 line matches; there are more, go on with offset 772\n771:\tline 771 of a log"
    regex = bench.call("read_output", handle=handle, mode="regex", pattern=r"^line (5|6)00 ")
    assert regex == "2 lines match\n500:\tline 500 of a log\n600:\tline 600 of a log"
    assert bench.call("read_output", handle=handle, mode="search", pattern="^line") == "no line matches"
    assert bench.call("read_output", handle=handle, mode="search", pattern="line 1 ", offset=2) == (
        "no line matches from line 2 on"
    )


@pytest.mark.spec("OE-43")
def test_pages_of_a_search_find_every_line_once(bench: Bench, store: SpillStore) -> None:
    handle = store.add(b"".join(b"%d hit %s\n" % (n, b"x" * (n % 900)) for n in range(1, 500))).handle
    offset, numbers = 0, []
    for _ in range(300):
        text = bench.call("read_output", handle=handle, mode="search", pattern="hit", offset=offset, count=40)
        assert len(text.encode()) <= PAGE_LIMIT_BYTES
        header, *rows = text.split("\n")
        numbers += [int(row.split(":")[0]) for row in rows]
        more = re.search(r"go on with offset (\d+)", header)
        if more is None:
            break
        offset = int(more[1])
    assert numbers == [*range(1, 500)]


@pytest.mark.spec("OE-43")
def test_a_search_finds_what_the_model_has_seen(bench: Bench, store: SpillStore) -> None:
    handle = store.add(b"\x1b[32mFAI\x1b[1mLED\x1b[0m test_a\n\r10%\r20%\r100%\nok\r\n").handle
    assert bench.call("read_output", handle=handle, mode="search", pattern="FAILED test_a").endswith(
        "\n1:\tFAILED test_a"
    )
    assert bench.call("read_output", handle=handle, mode="regex", pattern="^(100%|ok)$").endswith(
        "\n2:\t100%\n3:\tok"
    )
    assert bench.call("read_output", handle=handle, mode="search", pattern="20%") == "no line matches"
