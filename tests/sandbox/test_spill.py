"""Outputs in files: what is in them, how they are read, what the disk refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Place

from sandbox import FileError, LocalSandbox, NotFound, RequestError, SpillStore
from sandbox.spill_read import BLOCK_BYTES, Lines
from sandbox.values import Spilled

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def store(tmp_path: Path) -> SpillStore:
    return SpillStore(tmp_path / "outputs")


def handle_of(spilled: Spilled | None) -> str:
    """The handle of an output that is wholly in its file."""
    assert spilled is not None
    assert spilled.problem == ""
    assert spilled.handle
    return spilled.handle


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))


def texts(lines: Lines) -> list[bytes]:
    return [line.data for line in lines.lines]


# -- when and where -------------------------------------------------------------------------------


@pytest.mark.spec("OE-10")
def test_a_stream_over_its_limit_is_in_a_file_from_its_first_byte(place: Place, store: SpillStore) -> None:
    result = place.box.exec("seq 1 60000; echo short >&2", limit_bytes=1000, spill=store, timeout_s=40)
    spilled = result.stdout_output.spilled
    expected = b"".join(b"%d\n" % number for number in range(1, 60_001))
    handle = handle_of(spilled)
    assert store.read_bytes(handle, 0, 10**9) == expected
    assert spilled is not None and spilled.size_bytes == len(expected)
    assert result.stdout_output.dropped_bytes == len(expected) - 1000
    assert result.stderr_output.spilled is None
    assert store.handles() == [handle]


@pytest.mark.spec("OE-10")
def test_a_shells_output_over_its_limit_is_in_a_file(place: Place, store: SpillStore) -> None:
    shell = place.box.shell("spills")
    try:
        result = shell.run("seq 1 60000", limit_bytes=1000, spill=store, timeout_s=40)
        short = shell.run("echo short", limit_bytes=1000, spill=store)
    finally:
        shell.close()
    expected = b"".join(b"%d\n" % number for number in range(1, 60_001))
    assert store.read_bytes(handle_of(result.captured.spilled), 0, 10**9) == expected
    assert (short.output, short.captured.spilled) == ("short\n", None)


@pytest.mark.spec("OE-10")
@settings(deadline=None)
@given(pieces=st.lists(st.binary(min_size=1, max_size=50), max_size=12), limit=st.integers(1, 60))
def test_the_file_is_there_exactly_if_something_was_dropped(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int
) -> None:
    from sandbox.output import Keeper

    with SpillStore(tmp_path_factory.mktemp("spill")) as store:
        keeper = Keeper(limit, store)
        for piece in pieces:
            keeper.feed(piece)
        keeper.close()
        output, whole = keeper.take(), b"".join(pieces)
        assert (output.spilled is not None) == (output.dropped_bytes > 0) == (len(whole) > limit)
        if output.spilled is not None:
            assert store.read_bytes(output.spilled.handle) == whole


@pytest.mark.spec("OE-11")
def test_each_part_of_a_command_that_was_left_running_has_a_file_of_its_own(
    tmp_path: Path, store: SpillStore
) -> None:
    with LocalSandbox(tmp_path) as box:
        shell = box.shell("a")
        first = shell.run(
            "seq 1 500; until [ -e go ]; do sleep 0.02; done; seq 501 900",
            limit_bytes=100,
            spill=store,
            yield_s=0.5,
        )
        (tmp_path / "go").touch()
        parts = [first, *([shell.poll(20)] if first.running else [])]
    whole = b"".join(store.read_bytes(handle_of(part.captured.spilled)) for part in parts)
    assert whole == b"".join(b"%d\n" % number for number in range(1, 901))
    assert len({handle_of(part.captured.spilled) for part in parts}) == len(parts) == 2


@pytest.mark.spec("OE-12")
def test_only_the_owner_can_read_an_output(store: SpillStore) -> None:
    before = os.umask(0)
    try:
        handle = handle_of(store.add(b"secret"))
    finally:
        os.umask(before)
    assert store.directory.stat().st_mode & 0o777 == 0o700
    (path,) = store.directory.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"[0-9a-f]{12}", handle)
    assert handle in path.name


@pytest.mark.spec("OE-12")
def test_another_process_reads_an_output_by_its_handle(store: SpillStore) -> None:
    handle = handle_of(store.add(b"kept\n"))
    code = (
        "import sys; from sandbox import SpillStore; print(SpillStore(sys.argv[1]).read_bytes(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.directory), handle],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "b'kept\\n'\n", done.stderr


@pytest.mark.spec("OE-12")
@pytest.mark.parametrize(
    "handle", ["", "0123456789ab", "../../etc/passwd", "0123456789ab\0", "/etc/passwd", 7]
)
def test_an_unknown_handle_is_said_to_be_unknown(store: SpillStore, handle: str) -> None:
    store.add(b"another")
    for read in (store.size_bytes, store.read_bytes, store.read_lines, store.tail, store.remove):
        with pytest.raises(NotFound, match="no such output"):
            read(handle)
    with pytest.raises(NotFound):
        store.search(handle, "x")


@pytest.mark.spec("OE-12")
def test_a_link_or_a_pipe_in_place_of_a_file_is_not_followed(store: SpillStore, tmp_path: Path) -> None:
    store.add(b"x")
    (tmp_path / "elsewhere").write_bytes(b"not an output")
    (store.directory / f"{'a' * 12}.out").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(store.directory / f"{'b' * 12}.out")
    for name in "ab":
        with pytest.raises(FileError):
            store.read_bytes(name * 12)


# -- what the disk refuses ------------------------------------------------------------------------


@pytest.mark.spec("OE-13")
def test_a_directory_that_cannot_be_made_leaves_the_command_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with LocalSandbox(tmp_path) as box:
        result = box.exec("seq 1 5000; exit 3", limit_bytes=100, spill=SpillStore(tmp_path / "file/outputs"))
    assert (result.exit_code, len(result.stdout_output.data)) == (3, 100)
    spilled = result.stdout_output.spilled
    assert spilled is not None
    assert (spilled.handle, spilled.size_bytes) == ("", 0)
    assert spilled.problem.startswith("no file could be made in")
    assert "Not a directory" in spilled.problem


@pytest.mark.spec("OE-13")
def test_a_full_disk_leaves_the_command_alone_and_the_beginning_in_the_file(tmp_path: Path) -> None:
    """A limit on the size of files refuses writes as a full disk does: the last one that fits is cut."""
    code = """
import resource, sys
from sandbox import LocalSandbox, SpillStore
resource.setrlimit(resource.RLIMIT_FSIZE, (100_001, resource.RLIM_INFINITY))
store = SpillStore(sys.argv[1], keep=True)
with LocalSandbox("/tmp") as box:
    for run in (box.exec, box.shell("a").run):
        result = run("seq 1 100000; (exit 3)", limit_bytes=1000, spill=store)
        output = getattr(result, "stdout_output", None) or result.captured
        begins = store.read_bytes(output.spilled.handle)[-7:]
        print(result.exit_code, output.dropped_bytes, output.tail[-7:], output.spilled.size_bytes, begins)
        print(output.spilled.problem)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "o")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    line = f"3 {len(whole) - 1000} b'100000\\n' 100001 {whole[100_001 - 7 : 100_001]!r}\nFile too large\n"
    assert done.stdout == line * 2, done.stderr


@pytest.mark.spec("OE-13")
def test_a_directory_that_is_removed_meanwhile_leaves_the_command_alone(
    tmp_path: Path, store: SpillStore
) -> None:
    seen = 0

    def watch(_stream: str, data: bytes) -> None:
        nonlocal seen
        seen += len(data)
        if seen > 200_000:
            shutil.rmtree(store.directory, ignore_errors=True)

    with LocalSandbox(tmp_path) as box:
        result = box.exec("seq 1 200000; exit 3", limit_bytes=1000, spill=store, on_output=watch)
        again = box.exec("seq 1 2000", limit_bytes=1000, spill=store)
    assert (result.exit_code, result.stdout_output.tail[-7:]) == (3, b"200000\n")
    assert result.stdout_output.spilled == Spilled("", 0, "the file was removed while it was written")
    assert store.size_bytes(handle_of(again.stdout_output.spilled)) == 8893


@pytest.mark.spec("OE-13")
def test_a_path_in_place_of_a_store_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path) as box:
        with pytest.raises(RequestError, match="SpillStore"):
            box.exec("touch ran", spill=tmp_path)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="SpillStore"):
            box.shell("a").run("touch ran", spill=str(tmp_path))  # type: ignore[arg-type]
    assert not (tmp_path / "ran").exists()


# -- the bound, and removal -----------------------------------------------------------------------


@pytest.mark.spec("OE-14")
def test_at_the_bound_the_oldest_outputs_make_room(tmp_path: Path) -> None:
    store = SpillStore(tmp_path, max_bytes=1000)
    first, second, third = (handle_of(store.add(bytes([digit]) * 400)) for digit in b"123")
    assert set(store.handles()) == {second, third}
    with pytest.raises(NotFound):
        store.read_bytes(first)
    later = SpillStore(tmp_path, max_bytes=1000)
    fourth = handle_of(later.add(b"4" * 500))
    assert set(later.handles()) == {third, fourth}


@pytest.mark.spec("OE-14")
def test_an_output_that_is_longer_than_the_bound_keeps_its_beginning(tmp_path: Path) -> None:
    store = SpillStore(tmp_path / "outputs", max_bytes=100_000)
    with LocalSandbox(tmp_path) as box:
        result = box.exec("seq 1 100000", limit_bytes=1000, spill=store)
    spilled = result.stdout_output.spilled
    assert spilled is not None
    assert (spilled.size_bytes, spilled.problem) == (100_000, "the spill store is full (100000 bytes)")
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert store.read_bytes(spilled.handle) == whole[:100_000]
    assert result.stdout_output.tail.endswith(b"\n100000\n")


@pytest.mark.spec("OE-14")
def test_an_output_that_is_being_written_makes_room_for_none(tmp_path: Path) -> None:
    store = SpillStore(tmp_path, max_bytes=1000)
    running = store.begin()
    running.write(b"r" * 800)
    assert store.add(b"x" * 300).size_bytes == 200
    running.close()
    assert store.size_bytes(handle_of(running.state())) == 800
    handle_of(store.add(b"y" * 900))
    assert len(store.handles()) == 1


@pytest.mark.spec("OE-14")
@pytest.mark.parametrize("bound", [0, -1, True, 1.5, "1", None])
def test_a_bound_that_is_no_number_of_bytes_is_refused(tmp_path: Path, bound: object) -> None:
    with pytest.raises(RequestError, match="max_bytes"):
        SpillStore(tmp_path, max_bytes=bound)  # type: ignore[arg-type]


@pytest.mark.spec("OE-15")
def test_closing_removes_what_the_store_has_made_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "outputs"
    with SpillStore(directory, keep=True) as kept:
        old = handle_of(kept.add(b"old"))
    with SpillStore(directory) as store:
        handle_of(store.add(b"new"))
        (directory / "notes.txt").touch()
    assert store.handles() == [old]
    assert store.add(b"late") == Spilled("", 0, "the spill store is closed")
    store.close()
    kept.remove(old)
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    with SpillStore(tmp_path / "other") as other:
        other.add(b"x")
    assert not (tmp_path / "other").exists()


@pytest.mark.spec("OE-15")
def test_a_store_that_is_closed_in_between_leaves_the_command_alone(
    tmp_path: Path, store: SpillStore
) -> None:
    with LocalSandbox(tmp_path) as box:
        result = box.exec(
            "seq 1 50000", limit_bytes=1000, spill=store, on_output=lambda _stream, _data: store.close()
        )
    assert result.exit_code == 0
    assert result.stdout_output.tail.endswith(b"\n50000\n")
    assert result.stdout_output.spilled is not None
    assert result.stdout_output.spilled.problem


@pytest.mark.spec("OE-15")
def test_many_threads_keep_their_outputs_apart(store: SpillStore) -> None:
    found: dict[int, str] = {}

    def work(number: int) -> None:
        for _ in range(20):
            found[number] = handle_of(store.add(b"%d " % number * 1000))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(store.handles()) == 160
    assert all(set(store.read_bytes(found[n]).split()) == {b"%d" % n} for n in range(8))


# -- ranged reads ---------------------------------------------------------------------------------


@pytest.mark.spec("OE-16")
@settings(deadline=None)
@given(data=st.binary(max_size=60), offset=st.integers(-100, 100), count=st.integers(1, 100))
def test_bytes_are_read_from_an_offset_or_from_the_end(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int, count: int
) -> None:
    with SpillStore(tmp_path_factory.mktemp("spill")) as store:
        start = offset if offset >= 0 else max(0, len(data) + offset)
        assert store.read_bytes(store.add(data).handle, offset, count) == data[start : start + count]


@pytest.mark.spec("OE-16")
def test_numbers_that_are_none_are_refused_and_huge_ones_are_past_the_end(store: SpillStore) -> None:
    handle = handle_of(store.add(b"ab\n"))
    assert store.read_bytes(handle, 10**30) == b""
    assert store.read_bytes(handle, -(10**30), 10**30) == b"ab\n"
    assert texts(store.read_lines(handle, 10**30)) == []
    assert texts(store.read_lines(handle, -(10**30), 10**30, limit_bytes=10**30)) == [b"ab"]
    assert texts(store.tail(handle, 10**30, limit_bytes=10**30)) == [b"ab"]
    for wrong in (0, -1, True, 1.5, "1", None):
        for read in (
            lambda: store.read_bytes(handle, 0, wrong),  # type: ignore[arg-type]  # noqa: B023
            lambda: store.read_lines(handle, 1, wrong),  # type: ignore[arg-type]  # noqa: B023
            lambda: store.read_lines(handle, limit_bytes=wrong),  # type: ignore[arg-type]  # noqa: B023
            lambda: store.tail(handle, wrong),  # type: ignore[arg-type]  # noqa: B023
            lambda: store.search(handle, "x", most=wrong),  # type: ignore[arg-type]  # noqa: B023
            lambda: store.search(handle, "x", first=wrong),  # type: ignore[arg-type]  # noqa: B023
        ):
            with pytest.raises(RequestError, match="whole number"):
                read()
    with pytest.raises(RequestError, match="count from 1"):
        store.read_lines(handle, 0)


@pytest.mark.spec("OE-17")
@settings(deadline=None)
@given(
    data=st.text(alphabet="ab\n", max_size=40),
    first=st.integers(-50, 50).filter(bool),
    count=st.integers(1, 50),
)
def test_lines_are_read_from_either_end(
    tmp_path_factory: pytest.TempPathFactory, data: str, first: int, count: int
) -> None:
    lines = data.encode().split(b"\n")
    if not lines[-1]:
        lines.pop()
    with SpillStore(tmp_path_factory.mktemp("spill")) as store:
        handle = store.add(data.encode()).handle
        start = first - 1 if first > 0 else max(0, len(lines) + first)
        got = store.read_lines(handle, first, count)
        assert texts(got) == lines[start : start + count]
        assert [line.number for line in got.lines] == [*range(start + 1, start + 1 + len(got.lines))]
        last = store.tail(handle, count)
        assert texts(last) == lines[-count:]
        assert [line.number for line in last.lines] == [*range(len(lines) + 1)][-len(last.lines) or 999 :]
        assert got.total == last.total == len(lines)


@pytest.mark.spec("OE-17")
def test_lines_far_into_a_long_output_are_found(store: SpillStore) -> None:
    handle = handle_of(store.add(numbered(400_000)))
    for number in (1, 2, 99_999, 250_000, 399_999, 400_000):
        (line,) = store.read_lines(handle, number, 1).lines
        assert (line.number, line.data) == (number, b"line %d" % number)
    assert texts(store.read_lines(handle, -2, 9)) == [b"line 399999", b"line 400000"]


@pytest.mark.spec("OE-17")
def test_lines_are_bounded_and_a_line_that_is_too_long_is_cut(store: SpillStore) -> None:
    long = b"x" * (3 * BLOCK_BYTES)
    handle = handle_of(store.add(b"one\n" + long + b"\nthree\n"))
    got = store.read_lines(handle, 1, 9, limit_bytes=100)
    assert texts(got) == [b"one"]
    (line,) = store.read_lines(handle, 2, 9, limit_bytes=100).lines
    assert (line.number, line.data, line.cut_before, line.cut_after) == (2, b"x" * 100, 0, len(long) - 100)
    assert texts(store.read_lines(handle, 3, 9)) == [b"three"]
    assert texts(store.tail(handle, 9, limit_bytes=100)) == [b"three"]
    assert [len(text) for text in texts(store.tail(handle, 2, limit_bytes=4 * BLOCK_BYTES))] == [len(long), 5]
    for end in (b"", b"\n"):
        handle = handle_of(store.add(b"one\n" + long + end))
        (line,) = store.tail(handle, 9, limit_bytes=100).lines
        assert line.number == 2
        assert line.cut_before + len(line.data) == len(long)
        assert 0 < len(line.data) <= 100
    exact = store.tail(handle_of(store.add(b"aaa\nbbb\nccc\n")), 9, limit_bytes=8)
    assert texts(exact) == [b"bbb", b"ccc"]


# -- search ---------------------------------------------------------------------------------------


@pytest.mark.spec("OE-18")
@settings(deadline=None)
@given(
    data=st.text(alphabet="abA\n\r", max_size=60),
    pattern=st.sampled_from(
        ["a", "ab", "^a", "b$", "a.b", "[^b]a", r"\Aa", r"b\z", "^$", "a|b", r"\bab", "(?i)A"]
    ),
    ignore_case=st.booleans(),
    first=st.integers(1, 5),
)
def test_a_regular_expression_finds_the_lines_that_match_alone(
    tmp_path_factory: pytest.TempPathFactory, data: str, pattern: str, ignore_case: bool, first: int
) -> None:
    lines = data.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    # These patterns mean the same to `re`, once a lone CR is no line end to either and \z has its name.
    there = re.compile(pattern.replace(r"\z", r"\Z"), re.IGNORECASE if ignore_case else 0)
    expected = [n for n, line in enumerate(lines, 1) if n >= first and there.search(line)]
    with SpillStore(tmp_path_factory.mktemp("spill")) as store:
        found = store.search(
            store.add(data.encode()).handle, pattern, regex=True, ignore_case=ignore_case, first=first
        )
    assert [line.number for line in found.lines] == expected
    assert [line.data.decode() for line in found.lines] == [lines[n - 1] for n in expected]
    assert (found.matches, found.next_line) == (len(expected), 0)


@pytest.mark.spec("OE-18")
@settings(deadline=None)
@given(data=st.text(alphabet="ab.*\n", max_size=60), text=st.text(alphabet="ab.*", min_size=1, max_size=3))
def test_a_plain_text_means_itself(tmp_path_factory: pytest.TempPathFactory, data: str, text: str) -> None:
    with SpillStore(tmp_path_factory.mktemp("spill")) as store:
        found = store.search(store.add(data.encode()).handle, text)
    assert [line.number for line in found.lines] == [
        number for number, line in enumerate(data.split("\n"), 1) if text in line
    ]


@pytest.mark.spec("OE-18")
def test_a_search_shows_line_numbers_context_and_where_to_go_on(store: SpillStore) -> None:
    handle = handle_of(store.add(numbered(300_000)))
    found = store.search(handle, r"^line 1\d{4}0$", regex=True, context=1, most=2)
    assert [(line.number, line.matches) for line in found.lines] == [
        (99_999, False),
        (100_000, True),
        (100_001, False),
        (100_009, False),
        (100_010, True),
        (100_011, False),
    ]
    assert (found.matches, found.next_line) == (2, 100_020)
    more = store.search(handle, r"^line 1\d{4}0$", regex=True, most=1, first=found.next_line)
    assert [line.number for line in more.lines] == [100_020]
    assert store.search(handle, "line 300000").lines[0].number == 300_000
    assert store.search(handle, "line 300001").lines == ()


@pytest.mark.spec("OE-18")
def test_lines_that_are_near_each_other_are_shown_once_and_in_order(store: SpillStore) -> None:
    handle = handle_of(store.add(b"1\n2 x\n3\n4 x\n5 x\n6\n7\n8\n9 x"))
    found = store.search(handle, "x", context=2)
    assert [(line.number, line.matches) for line in found.lines] == [
        (number, number in (2, 4, 5, 9)) for number in range(1, 10)
    ]
    assert found.matches == 4


@pytest.mark.spec("OE-18")
def test_what_a_search_shows_is_bounded(store: SpillStore) -> None:
    handle = handle_of(store.add(b"".join(b"x" * 1000 + b"\n" for _ in range(1000))))
    found = store.search(handle, "x", limit_bytes=5500, most=10**9)
    assert (found.matches, found.next_line) == (5, 6)
    assert sum(len(line.data) for line in found.lines) <= 5500


@pytest.mark.spec("OE-18")
def test_a_line_of_many_blocks_is_searched_in_bounded_pieces_and_found_once(store: SpillStore) -> None:
    filler = b"y" * (BLOCK_BYTES - 3)
    long = filler + b"needle" + filler + filler + b"needle-2" + b"z" * 9000
    handle = handle_of(store.add(b"first\n" + long + b"\nneedle-3\nlast"))
    found = store.search(handle, "needle")
    assert [line.number for line in found.lines] == [2, 3]
    line = found.lines[0]
    assert b"needle" in line.data
    assert long[line.cut_before :].startswith(line.data)
    (second,) = store.search(handle, "needle-2").lines
    assert long[second.cut_before :].startswith(second.data)
    assert second.cut_before + len(second.data) + second.cut_after == len(long)
    for anchored in ("^y*needle-2", "^needle-2", "y$", "^z"):
        assert store.search(handle, anchored, regex=True).lines == ()
    assert [line.number for line in store.search(handle, "z$", regex=True).lines] == [2]
    assert [line.number for line in store.search(handle, "last").lines] == [4]
    assert [line.number for line in store.search(handle, "last", context=1).lines] == [3, 4]


@pytest.mark.spec("OE-18")
def test_a_hostile_pattern_takes_linear_time(store: SpillStore) -> None:
    handle = handle_of(store.add(b"a" * 2_000_000 + b"\n" + b"a\n" * 500_000))
    assert store.search(handle, r"(a+)+b", regex=True).matches == 0
    assert store.search(handle, r"(?:[^b]*)*c", regex=True).matches == 0


@pytest.mark.spec("OE-18")
@pytest.mark.parametrize(("pattern", "why"), [("", "empty"), ("a\nb", "line end"), ("a(", r"missing \)")])
def test_a_pattern_that_cannot_be_used_is_refused_in_words(store: SpillStore, pattern: str, why: str) -> None:
    handle = handle_of(store.add(b"a(\n"))
    with pytest.raises(RequestError, match=why) as raised:
        store.search(handle, pattern, regex=True)
    assert "(?m)" not in str(raised.value)


@pytest.mark.spec("OE-18")
def test_a_search_sees_lines_as_a_view_shows_them(store: SpillStore) -> None:
    handle = handle_of(store.add(b"x\r\nal\x1b[mpha\nbeta\n"))
    found = store.search(handle, "^alpha$", regex=True, context=1, view=lambda b: b.replace(b"\x1b[m", b""))
    assert [(line.number, line.data) for line in found.lines] == [(1, b"x"), (2, b"alpha"), (3, b"beta")]


# -- back-pressure and memory ---------------------------------------------------------------------


@pytest.mark.spec("OE-20")
def test_a_slow_reader_holds_the_program_and_loses_nothing(place: Place) -> None:
    directory = place.fresh()
    steps, size, total = 512, 65_536, 0
    held: list[int] = []

    def step() -> int:
        return int(place.box.exec(": >>count; wc -l <count", cwd=directory).stdout)

    def slow(_stream: str, data: bytes) -> None:
        nonlocal total
        if not held:
            before, now = -1, step()
            while now != before:  # each look takes a program's start, the writer much less per step
                threading.Event().wait(0.2)
                before, now = now, step()
            held.append(now)
        total += len(data)

    script = f"i=0; while [ $i -lt {steps} ]; do head -c {size} /dev/zero; i=$((i+1)); echo >>count; done"
    result = place.box.exec(script, cwd=directory, on_output=slow, timeout_s=50)
    assert (result.exit_code, total) == (0, steps * size)
    assert held[0] < steps // 2
    assert result.stdout_output.dropped_bytes == steps * size - (1 << 20)


@pytest.mark.spec("OE-22")
@pytest.mark.timeout(240)
def test_a_gigabyte_is_counted_to_the_byte_in_bounded_memory() -> None:
    code = """
import resource
from sandbox import LocalSandbox

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

with LocalSandbox("/tmp") as box:
    box.exec("echo warm")
    before = peak()
    output = box.exec("head -c 1000000000 /dev/zero; echo end", timeout_s=200).stdout_output
    print(len(output.data) + output.dropped_bytes, output.tail.endswith(b"end\\n"), peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=230, check=False
    )
    assert done.returncode == 0, done.stderr
    size, whole, grown = done.stdout.split()
    assert (size, whole) == ("1000000004", "True")
    assert int(grown) < 64 << 20


@pytest.mark.spec("OE-21")
@pytest.mark.timeout(240)
def test_long_output_grows_memory_by_less_than_64_mb(tmp_path: Path) -> None:
    code = """
import resource, sys
from sandbox import LocalSandbox, SpillStore

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

with LocalSandbox("/tmp") as box, SpillStore(sys.argv[1]) as store:
    shell = box.shell("a")
    shell.run("echo warm"), box.exec("echo warm")
    before = peak()
    for run, size in ((box.exec, 200_000_000), (shell.run, 100_000_000)):
        command = f"yes 'a line of output that goes on and on' | head -c {size}"
        result = run(command, timeout_s=100, spill=store)
        output = getattr(result, "stdout_output", None) or result.captured
        print(result.exit_code, len(output.data) + output.dropped_bytes, peak() - before)
        print(0, store.size_bytes(output.spilled.handle), peak() - before)
        found = store.search(output.spilled.handle, "nothing")
        print(found.matches, size, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "o")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=230,
    )
    rows = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(rows) == 6, done.stderr
    assert [row[:2] for row in rows] == [[0, 200_000_000]] * 3 + [[0, 100_000_000]] * 3
    assert max(row[2] for row in rows) < 64 << 20
