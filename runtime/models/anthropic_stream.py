"""A stream of the Messages wire, told as events of the Responses wire, and its answer. Pure.

Deltas are passed on as they come. That an item is finished is told when the answer's reason to stop is known:
a refusal undoes what came before it, and none of its calls may be taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.errors import ModelError
from runtime.items import ItemKind
from runtime.models import failures, wire
from runtime.models.anthropic_answer import Asked, Content, finished, item_id
from runtime.models.model import Emit, ModelResponse
from runtime.models.narration import Narrator, narrate_item
from runtime.models.stream import EventType
from runtime.schema import JSON, JsonError, clean, clean_text, dump, members


@dataclass(slots=True)
class _Open:
    """A content block on its way. `index` and `id` are those of its item, `part` its place among texts."""

    value: dict[str, JSON]
    raw: str
    index: int
    id: str
    part: int = 0
    pieces: list[str] = field(default_factory=list)
    half: str = ""
    closed: bool = False

    @property
    def type(self) -> str:
        return wire.text(self.value, "type")

    def place(self) -> dict[str, JSON]:
        return {"item_id": self.id, "output_index": self.index}


class MessageStream:
    """Reads one stream (see StreamReader)."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._narrator = Narrator(asked.model)
        self._head: dict[str, JSON] = {}
        self._usage: dict[str, JSON] = {}
        self._blocks: dict[int, _Open] = {}
        self._items = 0
        self.heard = 0

    def take(self, data: str, emit: Emit) -> ModelResponse | None:
        """See StreamReader."""
        try:
            value = wire.load(data)
        except ValueError as error:
            raise self._broken(str(error)) from None
        kind = wire.text(value, "type")
        if kind == "error":
            raise failures.from_event(self._asked.service, wire.member(value, "error"))
        if kind == "message_stop":
            return self._end(emit)
        step = self._steps().get(kind)
        if step is not None:
            self.heard += 1
            step(value, data, emit)
        return None

    def _steps(self) -> Mapping[str, Callable[[JSON, str, Emit], None]]:
        return {
            "message_start": self._start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
        }

    def _start(self, value: JSON, data: str, emit: Emit) -> None:
        message = wire.member(value, "message")
        if not isinstance(message, Mapping) or self._head:
            raise self._broken("it does not begin with one message_start")
        self._head = _cleaned(message)
        self._add_usage(message.get("usage"))
        emit(self._narrator.created(wire.text(message, "id")))

    def _block_start(self, value: JSON, data: str, emit: Emit) -> None:
        block, number = wire.member(value, "content_block"), wire.member(value, "index")
        if not self._head or not isinstance(block, Mapping) or not isinstance(number, int):
            raise self._broken("a content block has no place")
        if number != len(self._blocks):
            raise self._broken(f"content block {number} is out of order")
        before = self._blocks.get(number - 1)
        if before is not None and before.type == "text" == wire.text(block, "type"):
            opened = _Open(_cleaned(block), "", before.index, before.id, part=before.part + 1)
        else:
            place = item_id(wire.text(self._head, "id"), number)
            opened = _Open(_cleaned(block), _raw_block(data), self._items, place)
            self._items += 1
            emit(self._narrator.item(EventType.ITEM_ADDED, opened.index, _begun(opened)))
        self._blocks[number] = opened
        if opened.type == "text":
            part: JSON = {"type": "output_text", "text": "", "annotations": []}
            values = {**opened.place(), "content_index": opened.part, "part": part}
            emit(self._narrator.event(EventType.PART_ADDED, values))

    def _block_delta(self, value: JSON, data: str, emit: Emit) -> None:
        block = self._open(value)
        delta = wire.member(value, "delta")
        match wire.text(delta, "type"):
            case "text_delta":
                self._say(block, wire.text(delta, "text"), emit)
            case "thinking_delta":
                self._say(block, wire.text(delta, "thinking"), emit)
            case "input_json_delta":
                self._say(block, wire.text(delta, "partial_json"), emit)
            case "signature_delta":
                sealed = wire.text(block.value, "signature") + wire.text(delta, "signature")
                block.value["signature"] = sealed

    def _say(self, block: _Open, piece: str, emit: Emit) -> None:
        if not piece:
            return
        # Two deltas may share a character; its halves are told together.
        piece = block.half + piece
        block.half = piece[-1] if "\ud800" <= piece[-1] <= "\udbff" else ""
        piece = clean_text(piece.removesuffix(block.half) if block.half else piece)
        if not piece:
            return
        block.pieces.append(piece)
        if block.type == "text":
            where: dict[str, JSON] = {**block.place(), "content_index": block.part, "logprobs": []}
            emit(self._narrator.event(EventType.TEXT_DELTA, {**where, "delta": piece}))
        elif block.type == "thinking":
            where = {**block.place(), "content_index": 0}
            emit(self._narrator.event(EventType.REASONING_DELTA, {**where, "delta": piece}))
        elif block.type == "tool_use":
            emit(self._narrator.event(EventType.ARGUMENTS_DELTA, {**block.place(), "delta": piece}))

    def _block_stop(self, value: JSON, data: str, emit: Emit) -> None:
        block = self._open(value)
        if block.half:
            block.half = ""
            self._say(block, "\ufffd", emit)
        block.closed = True
        said = "".join(block.pieces)
        if block.type == "text":
            block.value["text"] = text = wire.text(block.value, "text") + said
            where: dict[str, JSON] = {**block.place(), "content_index": block.part}
            emit(self._narrator.event(EventType.TEXT_DONE, {**where, "text": text, "logprobs": []}))
            part: JSON = {"type": "output_text", "text": text, "annotations": []}
            emit(self._narrator.event(EventType.PART_DONE, {**where, "part": part}))
        elif block.type == "thinking":
            block.value["thinking"] = text = wire.text(block.value, "thinking") + said
            where = {**block.place(), "content_index": 0}
            emit(self._narrator.event(EventType.REASONING_DONE, {**where, "text": text}))
        elif block.type == "tool_use":
            done: dict[str, JSON] = {"arguments": _arguments(block), "name": wire.text(block.value, "name")}
            emit(self._narrator.event(EventType.ARGUMENTS_DONE, {**block.place(), **done}))

    def _message_delta(self, value: JSON, data: str, emit: Emit) -> None:
        delta = wire.member(value, "delta")
        if isinstance(delta, Mapping):
            self._head.update(delta)
        self._add_usage(wire.member(value, "usage"))

    def _end(self, emit: Emit) -> ModelResponse:
        if not self._head or not all(block.closed for block in self._blocks.values()):
            raise self._broken("it ends in the middle of a content block")
        if not wire.text(self._head, "stop_reason"):
            raise self._broken("it does not tell why it ends")
        self._head["usage"] = self._usage
        blocks = [_content(block) for block in self._blocks.values()]
        response = finished(self._head, blocks, self._asked)
        if wire.text(self._head, "stop_reason") == "refusal":
            for event in narrate_item(self._narrator, self._items, response.items[0]):
                emit(event)
        else:
            for index, item in enumerate(response.items):
                emit(self._narrator.item(EventType.ITEM_DONE, index, item.raw))
        emit(self._narrator.ended(response))
        return response

    def _open(self, value: JSON) -> _Open:
        number = wire.member(value, "index")
        block = self._blocks.get(number) if isinstance(number, int) else None
        if block is None or block.closed:
            raise self._broken(f"content block {number!r} is not open")
        return block

    def _add_usage(self, value: JSON) -> None:
        # The counts of a later event are totals; what it leaves out, or leaves null, stays as it was.
        if isinstance(value, Mapping):
            self._usage.update((key, count) for key, count in value.items() if count is not None)

    def _broken(self, why: str) -> ModelError:
        return ModelError(f"{self._asked.service}: the stream is broken: {why}", transient=True)


def _cleaned(value: Mapping[str, JSON]) -> dict[str, JSON]:
    return {clean_text(key): clean(part) for key, part in value.items()}


def _begun(block: _Open) -> str:
    """The item that a block begins, as far as it is known then."""
    value = block.value
    kind = {"text": "message", "tool_use": "function_call", "thinking": "reasoning"}.get(block.type)
    if kind is None:
        kind = ItemKind.REASONING.value if block.type == "redacted_thinking" else wire.FOREIGN_BLOCK
    item: dict[str, JSON] = {"type": kind, "id": block.id}
    if kind == "message":
        item |= {"role": "assistant", "status": "in_progress", "content": []}
    elif kind == "function_call":
        call_id, name = wire.text(value, "id"), wire.text(value, "name")
        item |= {"call_id": call_id, "name": name, "arguments": "", "status": "in_progress"}
    elif kind == "reasoning":
        item |= {"summary": [], "content": []}
    else:
        item |= {"block": value}
    return dump(item)


def _arguments(block: _Open) -> str:
    said = "".join(block.pieces)
    if said.strip():
        return said
    given = block.value.get("input")
    return dump(given) if given else "{}"


def _content(block: _Open) -> Content:
    if block.type == "tool_use":
        return Content(block.value, "", _arguments(block))
    if block.type in ("text", "thinking", "redacted_thinking") or not block.pieces:
        return Content(block.value, block.raw)
    # A block that is not known here, whose input came in pieces.
    parts = {key: dump(part) for key, part in block.value.items()}
    try:
        wire.load("".join(block.pieces))
    except ValueError:
        return Content(block.value, block.raw)
    return Content(block.value, wire.object_text({**parts, "input": "".join(block.pieces)}))


def _raw_block(data: str) -> str:
    try:
        return next(raw for key, _, raw in members(data) if key == "content_block")
    except (JsonError, StopIteration):
        return "{}"
