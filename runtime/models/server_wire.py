"""What both wires of the offline server share: the script's answers, requests, and refusals."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from runtime.usage import Usage

Json = dict[str, Any]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
PIECE = 12
"""Characters of one delta."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Call:
    """One tool call of an answer. `arguments` as text goes out as it is."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer, for either wire, whole or as a stream, as the request asks.

    stop         "end", "max_tokens", "refusal", "content_filter" or "overflow"
    raw          JSON texts of output items (Responses) or content blocks (Messages), sent first, as they are
    items        JSON texts of output items, sent last, on either wire as far as it has them
    usage        as the wire tells it, or `Usage`; None: some small numbers
    status       another HTTP status than 200 makes it a failure with `message` and `code`
    gate         the answer waits until this is set; with `stall_at`, only the rest of the stream does
    body         instead of everything else: these bytes; a `content-type` in `headers` goes with them
    slice        bytes of a stream that are written at once; 0: event by event
    cut_at       so many bytes of a stream are written; then the connection breaks, or with `cut="clean"`
                 the stream ends as if it were complete
    stall_at     so many bytes of a stream are written; then nothing until the gate is set, or with
                 `keepalive_s` a comment each so many seconds
    inject       text put into a stream, by the number of the event that it comes before
    """

    text: str | None = None
    calls: Sequence[Call] = ()
    stop: str = "end"
    raw: Sequence[str] = ()
    items: Sequence[str] = ()
    usage: Mapping[str, Any] | Usage | None = None
    status: int = 200
    message: str = "the server failed on demand"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    body: bytes | None = None
    slice: int = 0
    cut_at: int | None = None
    cut: Literal["break", "clean"] = "break"
    stall_at: int | None = None
    keepalive_s: float = 0
    inject: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Json


class Refused(Exception):
    """A real service would refuse this, with this status."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Wire(Protocol):
    """One of the two wires. An instance serves one server, and remembers what it said."""

    def check(self, headers: Mapping[str, str], body: Json) -> None:
        """Raise Refused for a request that the real service would refuse."""
        ...

    def answered(self, body: Json) -> int:
        """How many answers the request's conversation holds."""
        ...

    def whole(self, reply: Reply, number: int, body: Json) -> str:
        """An answer in one piece."""
        ...

    def events(self, reply: Reply, number: int, body: Json) -> Iterator[tuple[str, str]]:
        """The same as a stream: names and data of events."""
        ...


def require(condition: object, reason: str, status: int = 400) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        raise Refused(reason, status)


def read_body(raw: bytes) -> Json:
    """A request's body. Refuses what is not JSON, NUL and lone surrogates."""
    try:
        body = json.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise Refused(f"the body is not UTF-8 JSON: {error}") from None
    require(isinstance(body, dict), "the body is not an object")
    for part in _strings(body):
        require("\0" not in part, "a string holds NUL")
        require(not _LONE_SURROGATE.search(part), "a string holds a lone surrogate")
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


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def pieces(text: str) -> list[str]:
    """A text in the pieces of which its deltas are made."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def sse(name: str, data: str) -> bytes:
    """One event of a stream. Half a surrogate pair is written as JSON escapes it."""
    data = _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", data)
    return f"event: {name}\ndata: {data}\n\n".encode()


def check_strict_schema(schema: Json, what: str) -> None:
    """What strict mode asks of a schema at its top: closed, and all members required."""
    closed = schema.get("additionalProperties") is False
    whole = set(schema.get("required", [])) == set(schema.get("properties", {}))
    require(closed and whole, f"Invalid schema for {what} in strict mode")
    for name, part in schema.get("properties", {}).items():
        require("default" not in part, f"In context=('properties', '{name}'), 'default' is not permitted.")
