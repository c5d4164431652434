"""The bytes of one exec: the hijacked connection, and the frames that Docker puts around output."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 64 * 1024
_HEADER_BYTES = 8
_STDERR = 2


@dataclass(slots=True)
class Demux:
    """Takes Docker's stream apart: frames of an 8-byte header (stream, 3 zeros, length) and as many bytes.

    Frames may come cut anywhere, also inside the header, and may be empty. What is there of a
    frame is handed on at once, so a huge frame needs no memory of its own."""

    _header: bytearray = field(default_factory=bytearray)
    _stream: int = 0
    _left: int = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The stdout and the stderr bytes in the next piece of the stream."""
        out: list[memoryview] = []
        err: list[memoryview] = []
        view = memoryview(data)
        while view:
            if not self._left:
                view = self._take_header(view)
                continue
            part, view = view[: self._left], view[self._left :]
            self._left -= len(part)
            (err if self._stream == _STDERR else out).append(part)
        return b"".join(out), b"".join(err)

    def _take_header(self, view: memoryview) -> memoryview:
        missing = _HEADER_BYTES - len(self._header)
        self._header += view[:missing]
        if len(self._header) == _HEADER_BYTES:
            self._stream = self._header[0]
            self._left = int.from_bytes(self._header[4:], "big")
            self._header.clear()
        return view[missing:]


class Wire:
    """The raw connection under an HTTP response that was upgraded to a byte stream.

    All knowledge of how the HTTP libraries wrap a socket is here. The sockets may be a Unix or TCP
    socket, a TLS socket, or an SSH channel. Nothing here blocks for longer than it is told to, and the
    HTTP client's own read timeout no longer applies. Not thread-safe but for `interrupt`."""

    def __init__(self, response: Any) -> None:
        self._response = response
        reader = response.raw._fp.fp
        # Any: a socket, or paramiko's channel, which only looks like one.
        self._socket: Any = getattr(reader, "channel", None) or reader.raw._sock
        self._socket.setblocking(False)
        self._early = _buffered(reader)
        self._ended = False

    def receive(self, timeout_s: float) -> bytes | None:
        """What is there within the time; None if nothing is, b"" at the end.

        Raises OSError if the connection broke."""
        if self._early:
            early, self._early = self._early, b""
            return early
        if self._ended:
            return b""
        data = self._receive_now()
        if data is None and timeout_s > 0 and self._readable(timeout_s):
            data = self._receive_now()
        self._ended = data == b""
        return data

    def pending(self) -> bool:
        """Whether bytes or the end wait to be received."""
        return bool(self._early) or self._readable(0)

    def send(self, data: bytes, timeout_s: float) -> int:
        """Send what is taken within the time; the number of bytes. OSError if the connection broke."""
        sent = self._send_now(data)
        if sent == 0 and timeout_s > 0 and self._writable(timeout_s):
            sent = self._send_now(data)
        return sent

    def end_sending(self) -> None:
        """Close the sending half; the other half goes on."""
        with contextlib.suppress(OSError):
            if isinstance(self._socket, ssl.SSLSocket):
                # TLS has no half-close that Go's server understands other than the alert that unwrap sends.
                with contextlib.suppress(ssl.SSLError, ValueError):
                    self._socket.unwrap()
            else:
                self._socket.shutdown(socket.SHUT_WR)

    def interrupt(self) -> None:
        """Wake whoever waits in receive or send; both find the connection at its end. From any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; nobody may be inside receive or send."""
        self._early = b""
        self._ended = True
        with contextlib.suppress(OSError):
            self._response.close()
        self._socket.close()

    def _receive_now(self) -> bytes | None:
        try:
            return bytes(self._socket.recv(_READ_BYTES))
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _send_now(self, data: bytes) -> int:
        try:
            return int(self._socket.send(data[:_WRITE_BYTES]))
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def _readable(self, timeout_s: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return _wait(self._socket, select.POLLIN, timeout_s)

    def _writable(self, timeout_s: float) -> bool:
        # An SSH channel's descriptor tells of input only: let the caller come again after a moment.
        if hasattr(self._socket, "send_ready") and not self._socket.send_ready():
            _wait(self._socket, select.POLLIN, min(timeout_s, 0.01))
            return bool(self._socket.send_ready())
        return _wait(self._socket, select.POLLOUT, timeout_s)


def _wait(waitable: Any, event: int, timeout_s: float) -> bool:
    descriptor = waitable.fileno()
    if descriptor < 0:
        return True
    poller = select.poll()
    poller.register(descriptor, event)
    return bool(poller.poll(timeout_s * 1000))


def _buffered(reader: Any) -> bytes:
    """Bytes of the stream that came with the HTTP header and wait in the HTTP library's buffer."""
    if not hasattr(reader, "peek"):
        return bytes(getattr(reader, "_rbuffer", b""))
    try:
        # Without a buffer this is one read that does not block; its bytes are the stream's as well.
        return bytes(reader.peek() or b"")
    except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
        return b""
