"""An HTTP server on loopback that speaks the Responses and the Messages wire from a script, without a model.

It is as strict as the real services about what breaks agents: pairing of calls and outputs, order of results,
signatures, shapes, characters. What it refuses it answers with the reason, and the script does not move on.

    with WireServer([Reply(calls=(Call("ls", {}),)), "done"]) as server:
        OpenAIModel("any", base_url=server.openai_url, api_key="key")
"""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from runtime.models.server_messages import Messages
from runtime.models.server_responses import Responses
from runtime.models.server_wire import Call, Refused, Reply, Request, Wire, read_body, sse

__all__ = ["Call", "Reply", "Request", "WireServer"]

_GATE_S = 30.0
"""The longest that an answer waits for its gate, in seconds."""


@dataclass(frozen=True)
class Answer:
    """What goes back: a body, or the pieces of a stream."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: Iterator[bytes] | None = None
    broken: bool = False
    words: str = ""


class WireServer:
    """Serves a script. `requests` has what was accepted, `refused` why something was not.

    script   the answers, in order; or with `follow` the answer that has as many before it as the request's
             conversation holds
    port     0: a free one

    `arrived` is released for each request; `on_connect` is told each client's port, `on_write` each piece of
    a stream before it is written, and `on_answer` each request's path and status, with the reason of a
    refusal; all on the threads of the server.
    """

    def __init__(
        self,
        script: Iterable[Reply | str] = (),
        *,
        follow: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.replies = deque(Reply(text=reply) if isinstance(reply, str) else reply for reply in script)
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self.arrived = threading.Semaphore(0)
        self.on_connect: Callable[[int], None] = lambda port: None
        self.on_write: Callable[[bytes], None] = lambda piece: None
        self.on_answer: Callable[[str, int, str], None] = lambda path, status, words: None
        self._follow = follow
        self._lock = threading.Lock()
        self._count = 0
        self._wires: Mapping[str, Wire] = {"/v1/responses": Responses(), "/v1/messages": Messages()}
        self._http = ThreadingHTTPServer((host, port), type("_Bound", (_Handler,), {"served": self}))
        self._http.block_on_close = False  # a client may keep its connection for ever
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """The server's root; what the anthropic client wants as its base URL."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def openai_url(self) -> str:
        """What the openai client wants as its base URL."""
        return self.url + "/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        for reply in self.replies:
            if reply.gate is not None:
                reply.gate.set()
        self._http.server_close()
        self._thread.join(5)

    def answer(self, path: str, headers: Mapping[str, str], raw: bytes) -> Answer:
        """What goes back for a request."""
        wire = self._wires.get(path)
        if wire is None:
            words = f"no such path: {path}"
            return Answer(404, {}, _error("not_found_error", words), words=words)
        try:
            body = read_body(raw)
            with self._lock:
                wire.check(headers, body)
                reply, number = self._next(wire.answered(body))
                self.requests.append(Request(path, headers, raw, body))
        except Refused as reason:
            with self._lock:
                self.refused.append(str(reason))
            words = str(reason)
            return Answer(reason.status, {}, _error("invalid_request_error", words), words=words)
        self.arrived.release()
        if reply.gate is not None and reply.stall_at is None:
            reply.gate.wait(_GATE_S)
        if reply.body is not None:
            return Answer(reply.status, reply.headers, reply.body)
        if reply.status != 200:
            error = _error("api_error", reply.message, reply.code)
            return Answer(reply.status, reply.headers, error, words=reply.message)
        with self._lock:
            if not body.get("stream"):
                return Answer(200, reply.headers, wire.whole(reply, number, body).encode())
            events = list(wire.events(reply, number, body))
        kind = {"content-type": "text/event-stream; charset=utf-8"}
        broken = reply.cut_at is not None and reply.cut == "break"
        return Answer(200, {**kind, **reply.headers}, stream=_pieces(reply, events), broken=broken)

    def _next(self, answered: int) -> tuple[Reply, int]:
        over = Reply(status=500, message="the script is over")
        self._count += 1
        if self._follow:
            return (self.replies[answered] if answered < len(self.replies) else over), self._count
        return (self.replies.popleft() if self.replies else over), self._count


def _pieces(reply: Reply, events: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    """A stream as it is written: in slices, up to where it is cut, with a pause where it stalls."""
    texts = []
    for number, (name, data) in enumerate(events):
        texts.append(reply.inject.get(number, "").encode() + sse(name, data))
    whole = b"".join(texts)
    if reply.cut_at is not None:
        whole = whole[: reply.cut_at]
    stall = len(whole) if reply.stall_at is None else min(reply.stall_at, len(whole))
    if reply.keepalive_s:  # a comment can only stand between events
        stall = whole.rfind(b"\n\n", 0, stall) + 2
    if reply.slice or reply.cut_at is not None or reply.stall_at is not None:
        size = reply.slice or len(whole) or 1
        yield from (whole[start : min(start + size, stall)] for start in range(0, stall, size))
        if stall < len(whole):
            yield from _pause(reply)
            yield whole[stall:]
    else:
        yield from texts


def _pause(reply: Reply) -> Iterator[bytes]:
    gate = reply.gate or threading.Event()
    if not reply.keepalive_s:
        gate.wait(_GATE_S)
        return
    for _ in range(int(_GATE_S / reply.keepalive_s)):
        if gate.wait(reply.keepalive_s):
            return
        yield b": still here\n\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: WireServer

    def setup(self) -> None:
        super().setup()
        self.served.on_connect(self.client_address[1])

    def do_POST(self) -> None:  # noqa: N802 (the name that http.server looks for)
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        answer = self.served.answer(path, {k.lower(): v for k, v in self.headers.items()}, raw)
        self.served.on_answer(path, answer.status, answer.words)
        try:
            self._send(answer)
        except OSError:
            self.close_connection = True  # the client left before its answer

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        sent = {"content-type": "application/json", "x-request-id": "req_1", "request-id": "req_1"}
        sent.update(answer.headers)
        if answer.stream is None:
            sent["content-length"] = str(len(answer.body))
        else:
            sent["transfer-encoding"] = "chunked"
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.stream is None:
            self.wfile.write(answer.body)
            return
        for piece in filter(None, answer.stream):
            self.served.on_write(piece)
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if answer.broken:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


def _error(kind: str, message: str, code: str | None = None) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message, "code": code}}).encode()
