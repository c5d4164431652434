"""An HTTP server on loopback that speaks the Responses and the Messages wire from a script.

It is as strict as the real services about what breaks agents: pairing of calls and outputs, order of results,
shapes, characters. What it refuses it answers with 400 and the reason, and the script does not move on.

    with WireServer([Reply(calls=(Call("ls", {}),)), "done"]) as server:
        OpenAIModel("any", base_url=server.openai_url, api_key="key")
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Call:
    """One tool call of an answer. `arguments` as text goes out as it is; Messages needs an object there."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True)
class Reply:
    """One answer, for either wire.

    stop      "end", "max_tokens", "refusal", "content_filter" or "overflow"
    raw       JSON texts of output items (Responses) or content blocks (Messages), sent first and as they are
    status    another HTTP status than 200 makes it a failure with `message`
    gate      the answer waits until this is set
    body      instead of everything else: these bytes
    """

    text: str | None = None
    calls: Sequence[Call] = ()
    stop: str = "end"
    raw: Sequence[str] = ()
    usage: Mapping[str, Any] | None = None
    status: int = 200
    message: str = "the server failed on demand"
    headers: Mapping[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    body: bytes | None = None


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Json


class Refused(Exception):
    """A real service would answer 400 to this."""


class WireServer:
    """Serves a script. `requests` has what was accepted, `refused` why something was not.

    `arrived` is released for each request; `on_connect` is told each client's port.
    """

    def __init__(self, script: Iterable[Reply | str] = ()) -> None:
        self.replies = deque(Reply(text=reply) if isinstance(reply, str) else reply for reply in script)
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self.arrived = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._count = 0
        self.on_connect: Callable[[int], None] = lambda port: None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.block_on_close = False  # a client may keep its connection for ever
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """The server's root; what the anthropic client wants as its base URL."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

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

    def answer(
        self, path: str, headers: Mapping[str, str], raw: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body for a request."""
        wires: dict[str, _Responses | _Messages] = {
            "/v1/responses": _Responses(),
            "/v1/messages": _Messages(),
        }
        wire = wires.get(path)
        if wire is None:
            return 404, {}, _error("not_found_error", f"no such path: {path}")
        try:
            body = _read(raw)
            wire.check(headers, body)
        except Refused as reason:
            with self._lock:
                self.refused.append(str(reason))
            return 400, {}, _error("invalid_request_error", str(reason))
        with self._lock:
            self.requests.append(Request(path, headers, raw, body))
            reply = (
                self.replies.popleft() if self.replies else Reply(status=500, message="the script is over")
            )
            self._count += 1
            number = self._count
        self.arrived.release()
        if reply.gate is not None:
            reply.gate.wait(30)
        if reply.body is not None:
            return reply.status, reply.headers, reply.body
        if reply.status != 200:
            return reply.status, reply.headers, _error("api_error", reply.message)
        return 200, reply.headers, wire.reply(reply, number, body).encode()


def _handler(server: WireServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.on_connect(self.client_address[1])

        def do_POST(self) -> None:  # noqa: N802 (the name that http.server looks for)
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = self.path.partition("?")[0]
            status, headers, body = server.answer(path, {k.lower(): v for k, v in self.headers.items()}, raw)
            try:
                self.send_response(status)
                sent = {"content-type": "application/json", "x-request-id": "req_1", "request-id": "req_1"}
                for name, value in {**sent, **headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client left before its answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message, "code": None}}).encode()


def _require(condition: object, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def _read(raw: bytes) -> Json:
    try:
        text = raw.decode("utf-8")
        body = json.loads(text)
    except ValueError as error:
        raise Refused(f"the body is not UTF-8 JSON: {error}") from None
    _require(isinstance(body, dict), "the body is not an object")
    for part in _strings(body):
        _require("\0" not in part, "a string holds NUL")
        _require(not any("\ud800" <= char <= "\udfff" for char in part), "a string holds a lone surrogate")
    found: Json = body
    return found


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class _Responses:
    known = _words(
        "model input instructions tools tool_choice temperature top_p max_output_tokens reasoning store "
        "include parallel_tool_calls metadata user stream truncation text previous_response_id"
    )

    def check(self, headers: Mapping[str, str], body: Json) -> None:
        _require(headers.get("authorization", "").startswith("Bearer "), "no bearer token")
        _require(isinstance(body.get("model"), str), "model is missing")
        for key in body:
            _require(key in self.known, f"Unknown parameter: '{key}'.")
        _require(isinstance(body.get("input"), list), "input is not a list")
        for tool in body.get("tools", []):
            self._check_tool(tool)
        self._check_input(body["input"])

    def _check_tool(self, tool: Json) -> None:
        _require(tool.get("type") == "function" and tool.get("name"), "a tool needs a type and a name")
        if tool.get("strict"):
            schema = tool["parameters"]
            closed = schema.get("additionalProperties") is False
            whole = set(schema.get("required", [])) == set(schema.get("properties", {}))
            _require(closed and whole, f"Invalid schema for function '{tool['name']}' in strict mode")

    def _check_input(self, items: Sequence[Json]) -> None:
        calls: list[str] = []
        outputs: list[str] = []
        for item in items:
            kind = item.get("type", "message")
            if kind == "function_call":
                _require(isinstance(item.get("arguments"), str), "function_call.arguments is not a string")
                _require(NAME.fullmatch(item["name"]), "Invalid name: string does not match pattern")
                calls.append(item["call_id"])
            elif kind == "function_call_output":
                _require(item["call_id"] in calls, f"No tool call found for call_id {item['call_id']}.")
                _require(item["call_id"] not in outputs, f"Duplicate output for call_id {item['call_id']}.")
                outputs.append(item["call_id"])
            elif kind == "message":
                self._check_message(item)
        for call in calls:
            _require(call in outputs, f"No tool output found for function call {call}.")

    def _check_message(self, item: Json) -> None:
        role = item.get("role")
        _require(role in ("user", "assistant", "system", "developer"), f"Invalid role: {role}")
        kinds = (
            {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image", "input_file"}
        )
        for part in item["content"] if isinstance(item["content"], list) else []:
            _require(part.get("type") in kinds, f"Invalid value: '{part.get('type')}' for role {role}")

    def reply(self, reply: Reply, number: int, body: Json) -> str:
        items = list(reply.raw)
        if reply.stop == "refusal":
            items.append(self._message(number, {"type": "refusal", "refusal": reply.text or ""}))
        elif reply.text is not None:
            part = {"type": "output_text", "text": reply.text, "annotations": []}
            items.append(self._message(number, part))
        for place, call in enumerate(reply.calls):
            arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            item = {
                "type": "function_call",
                "id": f"fc_{number}_{place}",
                "call_id": call.id or f"call_{number}_{place}",
                "name": call.name,
                "arguments": arguments,
                "status": "completed",
            }
            items.append(json.dumps(item))
        reasons = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}
        cut = reply.stop in reasons
        head: Json = {
            "id": f"resp_{number}",
            "object": "response",
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": reasons[reply.stop]} if cut else None,
            "model": body["model"],
            "usage": reply.usage or {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }
        return json.dumps(head)[:-1] + ', "output": [' + ", ".join(items) + "]}"

    def _message(self, number: int, part: Json) -> str:
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        return json.dumps({**message, "content": [part]})


class _Messages:
    known = _words(
        "model max_tokens messages system tools tool_choice temperature top_p thinking metadata stream "
        "stop_sequences"
    )

    def check(self, headers: Mapping[str, str], body: Json) -> None:
        # Older clients send a key in a header of its own, newer ones as a bearer token.
        _require(headers.get("x-api-key") or headers.get("authorization"), "no key")
        _require(headers.get("anthropic-version"), "anthropic-version: header is required")
        _require(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
        for key in body:
            _require(key in self.known, f"{key}: Extra inputs are not permitted")
        self._check_thinking(body)
        messages = body.get("messages")
        _require(isinstance(messages, list) and messages, "messages: at least one message is required")
        assert isinstance(messages, list)
        _require(messages[0]["role"] == "user", "messages: first message must use the user role")
        for message in messages:
            self._check_message(message)
        self._check_pairs(messages)
        marks = sum("cache_control" in block for block in self._all_blocks(body))
        _require(marks <= 4, "A maximum of 4 blocks with cache_control may be provided.")

    def _check_thinking(self, body: Json) -> None:
        if "thinking" in body:
            _require(
                "temperature" not in body, "`temperature` may only be set to 1 when thinking is enabled."
            )
            budget = body["thinking"]["budget_tokens"]
            _require(budget >= 1024, "thinking.budget_tokens: at least 1024")
            _require(
                body["max_tokens"] > budget, "`max_tokens` must be greater than `thinking.budget_tokens`."
            )

    def _check_message(self, message: Json) -> None:
        blocks = message["content"]
        _require(isinstance(blocks, list) and blocks, "messages: content must not be empty")
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                _require(
                    block["text"].strip(), "messages: text content blocks must contain non-whitespace text"
                )
            if kind == "tool_result" and block.get("is_error"):
                _require(block["content"], "tool_result: content cannot be empty if `is_error` is true")
            if kind == "tool_use":
                _require(NAME.fullmatch(block["name"]), "tool_use.name: String should match pattern")
                _require(NAME.fullmatch(block["id"]), "tool_use.id: String should match pattern")
                _require(
                    isinstance(block["input"], dict), "tool_use.input: Input should be a valid dictionary"
                )
            if kind == "thinking":
                _require(block.get("signature"), "thinking.signature: Field required")
                _require("cache_control" not in block, "thinking blocks cannot be cached")
            if kind in ("tool_use", "thinking", "redacted_thinking"):
                _require(message["role"] == "assistant", f"{kind} blocks may only appear in assistant turns")

    def _check_pairs(self, messages: Sequence[Json]) -> None:
        seen: set[str] = set()
        for place, message in enumerate(messages):
            if place and message["role"] == "user":
                _require(messages[place - 1]["role"] != "user", "messages: roles must alternate")
            calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            _require(len(set(calls)) == len(calls) and not seen & set(calls), "tool_use ids must be unique")
            seen.update(calls)
            following = messages[place + 1] if place + 1 < len(messages) else {"content": []}
            results = [
                block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"
            ]
            for call in calls:
                _require(call in results, f"tool_use ids were found without tool_result blocks: {call}")
            if message["role"] == "user":
                self._check_results(message, messages[place - 1] if place else {"content": []})

    def _check_results(self, message: Json, before: Json) -> None:
        asked = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
        kinds = [block["type"] == "tool_result" for block in message["content"]]
        _require(kinds == sorted(kinds, reverse=True), "tool_result blocks must come first in the user turn")
        answered: list[str] = []
        for block in message["content"]:
            if block["type"] == "tool_result":
                call = block["tool_use_id"]
                _require(call in asked, f"unexpected tool_use_id found in tool_result blocks: {call}")
                _require(call not in answered, f"each tool_use must have a single result: {call}")
                answered.append(call)

    def _all_blocks(self, body: Json) -> Iterable[Json]:
        yield from body.get("system", [])
        for message in body["messages"]:
            yield from message["content"]

    def reply(self, reply: Reply, number: int, body: Json) -> str:
        stops = {"end": "end_turn", "overflow": "model_context_window_exceeded"}
        stop = stops.get(reply.stop, reply.stop)
        blocks = list(reply.raw)
        if reply.text is not None:
            blocks.append(json.dumps({"type": "text", "text": reply.text}))
        for place, call in enumerate(reply.calls):
            arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            block = {"type": "tool_use", "id": call.id or f"call_{number}_{place}", "name": call.name}
            blocks.append(f'{json.dumps(block)[:-1]}, "input": {arguments}}}')
            stop = "tool_use" if reply.stop == "end" else stop
        head: Json = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "stop_reason": stop,
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "explanation": "not this"} if stop == "refusal" else None,
            "usage": reply.usage or {"input_tokens": 10, "output_tokens": 5},
        }
        return json.dumps(head)[:-1] + ', "content": [' + ", ".join(blocks) + "]}"
