"""The frames of Docker's output, cut anywhere, and the bytes that came with the HTTP header."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.docker_stream import Demux, Wire

Frame = tuple[int, bytes]


def framed(frames: list[Frame]) -> bytes:
    return b"".join(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for stream, data in frames)


@pytest.mark.spec("DKB-18")
@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=20),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
)
def test_frames_cut_anywhere_and_empty_ones_give_the_same_bytes(frames: list[Frame], cuts: list[int]) -> None:
    stream, demux = framed(frames), Demux()
    out, err, position, turn = b"", b"", 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        more_out, more_err = demux.feed(stream[position : position + size])
        out, err, position, turn = out + more_out, err + more_err, position + size, turn + 1
    assert out == b"".join(data for kind, data in frames if kind == 1)
    assert err == b"".join(data for kind, data in frames if kind == 2)


@pytest.mark.spec("DKB-18")
def test_a_part_of_a_frame_is_handed_on_before_the_rest_has_come() -> None:
    demux = Demux()
    assert demux.feed(bytes([1, 0, 0, 0, 0, 0, 0, 9]) + b"first") == (b"first", b"")
    assert demux.feed(b"last" + bytes([2, 0, 0])) == (b"last", b"")
    assert demux.feed(bytes([0, 0, 0, 0, 1]) + b"e") == (b"", b"e")


@pytest.fixture
def ends() -> Iterator[tuple[Any, socket.socket]]:
    """A connection, and an HTTP response above its near end, as the HTTP libraries nest them."""
    near, far = socket.socketpair()
    reader = near.makefile("rb")

    def close() -> None:
        reader.close()
        near.close()

    yield SimpleNamespace(raw=SimpleNamespace(_fp=SimpleNamespace(fp=reader)), close=close), far
    close()
    far.close()


@pytest.mark.spec("DKB-18")
def test_bytes_that_came_with_the_http_header_are_not_lost(ends: tuple[Any, socket.socket]) -> None:
    response, far = ends
    far.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\nearly")
    assert response.raw._fp.fp.readline().startswith(b"HTTP/1.1 101")
    assert response.raw._fp.fp.readline() == b"\r\n"
    far.sendall(b" and late")
    far.shutdown(socket.SHUT_WR)
    wire, got = Wire(response), io.BytesIO()
    while data := wire.receive(5):
        got.write(data)
    assert got.getvalue() == b"early and late"
    assert wire.receive(0) == b""
    wire.close()


def test_a_wire_with_nothing_to_read_says_so_and_an_interrupt_ends_the_wait(
    ends: tuple[Any, socket.socket],
) -> None:
    wire = Wire(ends[0])
    assert wire.receive(0) is None
    assert wire.receive(0.01) is None
    assert not wire.pending()
    got: list[bytes | None] = []
    waiting = threading.Thread(target=lambda: got.append(wire.receive(30)))
    waiting.start()
    wire.interrupt()
    waiting.join(5)
    assert got == [b""]
    wire.close()


def test_a_peer_that_does_not_read_takes_no_more_than_its_buffer(ends: tuple[Any, socket.socket]) -> None:
    wire, taken = Wire(ends[0]), 0
    while sent := wire.send(b"x" * 100_000, 0):
        taken += sent
        assert taken < 50_000_000
    assert wire.send(b"x", 0.01) == 0
    ends[1].recv(1 << 20)
    assert wire.send(b"x", 5) == 1
    wire.close()


@pytest.mark.spec("DKB-19")
def test_the_sending_half_closes_alone(ends: tuple[Any, socket.socket]) -> None:
    response, far = ends
    wire = Wire(response)
    assert wire.send(b"all", 5) == 3
    wire.end_sending()
    assert far.recv(100) == b"all"
    assert far.recv(100) == b""
    far.sendall(b"answer")
    assert wire.receive(5) == b"answer"
    wire.close()
