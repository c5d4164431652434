"""Bounded capture, cut at random."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.output import Keeper


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


def test_looking_does_not_change_what_is_kept() -> None:
    keeper = Keeper(10)
    for digit in range(10):
        keeper.feed(str(digit).encode() * 3)
        keeper.take()
    assert keeper.take().data == b"000111" + b"8999"


def test_a_flood_is_kept_in_bounded_memory() -> None:
    keeper = Keeper(1000)
    for _ in range(10_000):
        keeper.feed(b"x" * 777)
    assert keeper.take().dropped_bytes == 7_770_000 - 1000
    assert len(keeper._tail) <= 800
