"""read_file, write_file and list_files in a real sandbox."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from codetools_bench import Bench, MakeBench
from hypothesis import given
from hypothesis import strategies as st

from codetools import PathRule, Policy
from codetools.files import page
from runtime.tools import BadArguments


@pytest.mark.spec("FT-01")
def test_the_tools_are_there_and_some_only_read(bench: Bench) -> None:
    shells = {"write_stdin", "poll", "interrupt"}
    files = {"read_file", "write_file", "list_files", "apply_patch"}
    assert set(bench.tools) == {"exec_command"} | files | shells
    reading = {name for name, tool in bench.tools.items() if tool.read_only}
    assert reading == {"read_file", "list_files", "poll"}


@pytest.mark.spec("FT-01")
def test_what_is_written_is_read_and_listed(bench: Bench) -> None:
    assert bench.call("write_file", path="d/a.txt", content="one\ntwo\n") == "wrote 8 bytes to d/a.txt"
    assert bench.call("read_file", path="d/a.txt") == "lines 1-2 of 2\n1\tone\n2\ttwo"
    assert bench.call("list_files", path="d") == "a.txt\tfile\t8 bytes"
    assert bench.call("list_files", path="") == "d/\tdirectory"


@pytest.mark.spec("XT-20")
@pytest.mark.parametrize(
    ("data", "offset", "limit", "shown"),
    [
        (b"a\nb\nc\n", 1, 0, "lines 1-3 of 3\n1\ta\n2\tb\n3\tc"),
        (b"a\nb\nc\n", 2, 1, "lines 2-2 of 3; go on with offset 3\n2\tb"),
        (b"a\nb\nc\n", 2, 99, "lines 2-3 of 3\n2\tb\n3\tc"),
        (b"a\nb\nc\n", 4, 0, "lines 0-0 of 3: line 4 is past the end"),
        (b"a\nb", 1, 0, "lines 1-2 of 2 (no line end at the end of the file)\n1\ta\n2\tb"),
        (b"a\n\n", 1, 0, "lines 1-2 of 2\n1\ta\n2\t"),
        (b"", 1, 0, "the file is empty (0 bytes)"),
        (b"\n" * 10, 9, 0, "lines 9-10 of 10\n 9\t\n10\t"),
    ],
)
def test_a_page_of_numbered_lines(data: bytes, offset: int, limit: int, shown: str) -> None:
    assert page(data, offset, limit) == shown


@pytest.mark.spec("XT-21")
@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xef\xbb\xbffirst\nsecond\n", "lines 1-2 of 2\n1\tfirst\n2\tsecond"),
        (b"a\r\nb\r\n", "lines 1-2 of 2 (lines end with CRLF)\n1\ta\n2\tb"),
        (b"a\r\nb\n", "lines 1-2 of 2 (some lines end with CRLF)\n1\ta\n2\tb"),
        (b"a\rb\n", "lines 1-1 of 1\n1\ta\ufffdb"),
        (
            b"caf\xe9 = False\n",
            "lines 1-1 of 1 (not UTF-8: 1 bytes are shown as U+FFFD)\n1\tcaf\ufffd = False",
        ),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary (10 bytes)"),
        ("\ufefftext".encode("utf-16-le"), "binary (10 bytes)"),
        (b"\x1b[31mred\n", "lines 1-1 of 1\n1\t\ufffd[31mred"),
    ],
)
def test_what_is_no_plain_text_is_marked(data: bytes, shown: str) -> None:
    assert page(data) == shown


@pytest.mark.spec("XT-21")
def test_a_bad_byte_far_into_a_file_does_not_stop_reading() -> None:
    text = page(b"x\n" * 40_000 + b"\x80\n", 40_001)
    assert text.endswith("40001\t\ufffd")
    assert "not UTF-8: 1 bytes" in text


@pytest.mark.spec("XT-22")
@given(
    st.lists(st.text(alphabet="a漢🙂\t ", max_size=60), min_size=1, max_size=80),
    st.integers(min_value=120, max_value=1500),
)
def test_pages_fit_their_budget_and_together_show_every_line(lines: list[str], budget: int) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    offset, seen = 1, []
    while offset <= len(lines):
        text = page(data, offset, 0, budget)
        assert len(text.encode()) <= budget
        header, *rows = text.split("\n")
        match = re.match(r"lines (\d+)-(\d+) of (\d+)", header)
        assert match is not None
        first, last, total = map(int, match.groups())
        assert (first, total, last - first + 1) == (offset, len(lines), len(rows))
        seen += [row.split("\t", 1)[1] for row in rows]
        assert (f"offset {last + 1}" in header) is (last < total)
        offset = last + 1
    assert len(seen) == len(lines)
    assert all(a == b or a.endswith("[... line cut ...]") for a, b in zip(seen, lines, strict=True))


@pytest.mark.spec("XT-22")
def test_a_first_line_over_the_budget_is_cut_and_the_page_goes_on_behind_it() -> None:
    data = b"x" * 1_000_000 + b"\nshort\n"
    text = page(data)
    assert len(text.encode()) <= 16 << 10
    assert text.startswith("lines 1-1 of 2; the page is full, go on with offset 2\n1\txxx")
    assert text.endswith(" [... line cut ...]")
    assert page(data, 2) == "lines 2-2 of 2\n2\tshort"


@pytest.mark.spec("XT-20", "FT-09")
@pytest.mark.parametrize(
    "fields",
    [{"offset": -1}, {"limit": -5}, {"offset": "1"}, {"offset": True}, {"offset": 1.5}, {"path": ""}],
)
def test_wrong_page_numbers_are_refused(bench: Bench, fields: dict[str, object]) -> None:
    with pytest.raises(BadArguments):
        bench.result("read_file", **{"path": "a", **fields})


@pytest.mark.spec("XT-20")
def test_null_and_0_mean_the_whole_file(bench: Bench) -> None:
    bench.call("write_file", path="a", content="x\n")
    assert bench.call("read_file", path="a", offset=None, limit=None) == "lines 1-1 of 1\n1\tx"
    assert bench.call("read_file", path="a", offset=0, limit=0) == "lines 1-1 of 1\n1\tx"
    assert bench.call("read_file", path="a", offset=1.0) == "lines 1-1 of 1\n1\tx"


@pytest.mark.spec("FT-09", "XT-23")
def test_failures_are_words_with_the_path_that_was_asked_for(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_text("x")
    for name, arguments in [
        ("read_file", {"path": "missing"}),
        ("read_file", {"path": "d"}),
        ("list_files", {"path": "missing"}),
        ("list_files", {"path": "f"}),
        ("write_file", {"path": "d", "content": "x"}),
        ("write_file", {"path": "f/x", "content": "x"}),
    ]:
        text = bench.call(name, **arguments)
        assert text.startswith("ToolFailed: ")
        assert arguments["path"] in text
        assert str(tmp_path) not in text


@pytest.mark.spec("XT-24")
@pytest.mark.parametrize("content", ["", "no end", "a\r\nb\n", "\ufeffbom", "漢\U0001f642\n", "\x1b[0m"])
def test_write_file_writes_exactly_what_it_is_given(bench: Bench, tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfold\r\n")
    bench.call("write_file", path="a", content=content)
    assert (tmp_path / "a").read_bytes() == content.encode()


@pytest.mark.spec("XT-23")
def test_a_file_that_is_too_large_is_told_with_a_way_to_see_a_part(bench: Bench, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.truncate(3 << 30)
    text = bench.call("read_file", path="log")
    assert text.startswith("ToolFailed: ")
    assert "log" in text and "sed -n" in text


@pytest.mark.spec("XT-13")
def test_a_verdict_is_given_though_the_place_cannot_be_asked(make_bench: MakeBench) -> None:
    bench = make_bench(Policy(paths=(PathRule(decision="deny", pattern="secret"),)))
    bench.box.close()
    tool = bench.tools["read_file"]
    assert tool.check is not None
    assert tool.check(tool.parse('{"path": "secret"}')).decision == "deny"


@pytest.mark.spec("XT-25")
@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600])
def test_write_file_keeps_the_mode(bench: Bench, tmp_path: Path, mode: int) -> None:
    target = tmp_path / "a.sh"
    target.write_text("old")
    target.chmod(mode)
    bench.call("write_file", path="a.sh", content="new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o7777 == mode


@pytest.mark.spec("XT-24")
def test_a_large_file_can_be_written(bench: Bench, tmp_path: Path) -> None:
    bench.call("write_file", path="big", content="y" * 5_000_000)
    assert (tmp_path / "big").stat().st_size == 5_000_000


@pytest.mark.spec("XT-26")
def test_a_listing_is_sorted_and_bounded(bench: Bench, tmp_path: Path) -> None:
    assert bench.call("list_files", path=".") == "(the directory is empty)"
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("xyz")
    (tmp_path / "c").symlink_to("a")
    os.mkfifo(tmp_path / "d")
    (tmp_path / "bad\nname").write_text("")
    assert bench.call("list_files") == (
        "a\tfile\t3 bytes\nb/\tdirectory\nbad\ufffdname\tfile\t0 bytes\nc\tlink\nd\tother"
    )
    for n in range(2000):
        (tmp_path / f"file-{n:05}").write_text("")
    text = bench.call("list_files", path=".")
    assert len(text.encode()) < 9000
    assert "bytes dropped" in text
    assert text.endswith("file-01999\tfile\t0 bytes")


@pytest.mark.spec("PO-16", "FT-09")
def test_the_policy_holds_for_files_too(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench(
        Policy(
            paths=(
                PathRule(decision="deny", pattern="secret", reason="keys"),
                PathRule(decision="deny", pattern="locked/*", access="write"),
            )
        )
    )
    (tmp_path / "secret").write_text("s3cret")
    for path in ["secret", "./secret", "x/../secret", str(tmp_path / "secret")]:
        assert "is refused by the rule 'deny any secret': keys" in bench.call("read_file", path=path)
    assert "is refused" in bench.call("write_file", path="locked/a", content="")
    patch = "*** Begin Patch\n*** Add File: ok\n+x\n*** Add File: locked/b\n+x\n*** End Patch"
    assert "is refused" in bench.call("apply_patch", patch=patch)
    move = "*** Begin Patch\n*** Update File: secret2\n*** Move to: locked/c\n*** End Patch"
    assert "is refused" in bench.call("apply_patch", patch=move)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["secret"]


@pytest.mark.spec("XT-13")
def test_a_closed_place_is_told_in_words(bench: Bench) -> None:
    bench.box.close()
    assert "the sandbox is unavailable" in bench.call("read_file", path="a")
    assert "the sandbox is unavailable" in bench.call("write_file", path="a", content="")
    assert "the sandbox is unavailable" in bench.call("list_files", path=".")


@pytest.mark.spec("FT-09")
@pytest.mark.parametrize("name", ["read_file", "write_file", "list_files", "apply_patch"])
def test_each_tool_refuses_what_it_does_not_know(bench: Bench, name: str) -> None:
    tool = bench.tools[name]
    for text in ['{"colour": 1}', "[]", '{"path": 5}', '{"path": "a", "content": "a\\u0000b"}']:
        with pytest.raises(BadArguments):
            tool.parse(text)
    schema = json.loads(json.dumps(tool.parameters))
    assert schema["required"] == list(schema["properties"])
