"""Bounded capture: cut at random, in bounded memory; what is left of it as text."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Place

from sandbox import LocalSandbox, Output, RequestError
from sandbox.output import Keeper, split_end
from sandbox.values import DEFAULT_LIMIT_BYTES, MAX_LIMIT_BYTES

MIB = 1 << 20


@pytest.mark.spec("OE-01")
@settings(deadline=None)
@given(st.lists(st.binary(max_size=400), max_size=40), st.integers(min_value=1, max_value=500))
def test_head_tail_and_count_are_exact_however_the_stream_is_cut(pieces: list[bytes], limit: int) -> None:
    keeper = Keeper(limit)
    for piece in pieces:
        keeper.feed(piece)
    whole = b"".join(pieces)
    kept = keeper.take()
    head = int(limit * 0.6)
    if len(whole) <= limit:
        assert (kept.data, kept.dropped_bytes) == (whole, 0)
    else:
        assert kept.head == whole[:head]
        assert kept.tail == whole[len(whole) - (limit - head) :]
        assert kept.dropped_bytes == len(whole) - limit


@pytest.mark.spec("OE-01")
def test_looking_does_not_change_what_is_kept() -> None:
    keeper = Keeper(10)
    for digit in range(10):
        keeper.feed(str(digit).encode() * 3)
        keeper.take()
    assert keeper.take().data == b"000111" + b"8999"


@pytest.mark.spec("OE-02")
@pytest.mark.parametrize("limit", [True, 1.5, "4096", None, MAX_LIMIT_BYTES + 1, 10**30])
def test_a_limit_that_is_no_sane_number_is_refused_before_anything_runs(
    limit: object, tmp_path: Path
) -> None:
    with LocalSandbox(tmp_path) as box:
        with pytest.raises(RequestError, match="limit_bytes"):
            box.exec("touch ran", limit_bytes=limit)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="limit_bytes"):
            box.shell("a").run("touch ran", limit_bytes=limit)  # type: ignore[arg-type]
    assert not (tmp_path / "ran").exists()


@pytest.mark.spec("OE-02")
@pytest.mark.parametrize("limit", [0, -1, -(10**30)])
def test_a_limit_of_0_or_less_is_the_default(limit: int, tmp_path: Path) -> None:
    with LocalSandbox(tmp_path) as box:
        result = box.exec(f"head -c {DEFAULT_LIMIT_BYTES + 5} /dev/zero", limit_bytes=limit)
        assert (len(result.stdout_output.data), result.stdout_output.dropped_bytes) == (
            DEFAULT_LIMIT_BYTES,
            5,
        )


@pytest.mark.spec("OE-03")
@pytest.mark.parametrize("size", [777, 4096, 65_536, 3 * MIB])
def test_a_flood_is_kept_in_no_more_than_its_limit(size: int) -> None:
    data = b"x" * size
    tracemalloc.start()
    try:
        keeper = Keeper(MIB)
        for _ in range(20 * MIB // size):
            keeper.feed(data)
        _, while_fed = tracemalloc.get_traced_memory()
        kept = keeper.take()
        _, with_result = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert while_fed < 1.5 * MIB
    assert with_result < 2.5 * MIB
    assert kept.dropped_bytes == 20 * MIB // size * size - MIB


@pytest.mark.spec("OE-03")
def test_a_large_limit_costs_nothing_until_it_is_used() -> None:
    tracemalloc.start()
    try:
        keeper = Keeper(MAX_LIMIT_BYTES)
        keeper.feed(b"short")
        _, held = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 64 * 1024
    assert keeper.take().data == b"short"


@pytest.mark.spec("OE-04")
@settings(deadline=None)
@given(st.text(alphabet="a漢é🙂\n", max_size=200), st.integers(min_value=1, max_value=60))
def test_text_with_a_gap_holds_no_half_character_and_counts_it_as_dropped(text: str, limit: int) -> None:
    keeper = Keeper(limit)
    keeper.feed(text.encode())
    shown = keeper.take().text
    assert "\ufffd" not in shown
    if len(text.encode()) > limit:
        head, rest = shown.split("\n[... ")
        count, tail = rest.split(" bytes dropped ...]\n")
        assert text.startswith(head) and text.endswith(tail)
        assert len((head + tail).encode()) + int(count) == len(text.encode())
    else:
        assert shown == text


@pytest.mark.spec("OE-04")
def test_bytes_that_are_no_text_are_shown_as_such_also_at_a_gap() -> None:
    assert Output(b"a\xff", b"\xf8b", 3).text == "a\ufffd\n[... 3 bytes dropped ...]\n\ufffdb"
    assert Output(b"a\xe6\xbc").text == "a\ufffd"


@pytest.mark.spec("OE-05")
@settings(deadline=None)
@given(st.text(alphabet="a漢é🙂", max_size=30), st.lists(st.integers(0, 90), max_size=6), st.integers(1, 40))
def test_parts_that_are_cut_anywhere_are_whole_characters(text: str, cuts: list[int], limit: int) -> None:
    data, half, parts = text.encode(), b"", []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        keeper = Keeper(1000)
        keeper.feed(half + data[start:end])
        part, half = split_end(keeper.take())
        parts.append(part)
    assert "".join(part.text for part in parts) == text
    assert half == b""
    keeper = Keeper(limit)
    keeper.feed(data)
    assert split_end(keeper.take()) == (keeper.take(), b"")


@pytest.mark.spec("OE-05")
def test_a_character_that_is_printed_in_two_halves_is_one_in_the_second_part(place: Place) -> None:
    shell = place.box.shell("halves")
    try:
        first = shell.run(
            r"printf 'a\344\270'; until [ -e go ]; do sleep 0.05; done; printf '\255b\n'", yield_s=0.3
        )
        parts = [first]
        place.box.write_file("go", b"")
        while parts[-1].running:
            parts.append(shell.poll(10))
    finally:
        place.box.remove("go")
        shell.close()
    assert "".join(part.output for part in parts) == "a中b\n"
    assert first.output in ("", "a")
    assert parts[-1].exit_code == 0
