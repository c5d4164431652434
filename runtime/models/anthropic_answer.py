"""Answers of the Messages wire as Responses items. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.errors import ContextOverflowError, ModelError
from runtime.items import Item, from_wire
from runtime.models import failures, wire
from runtime.models.anthropic_parts import Block
from runtime.models.model import ModelResponse
from runtime.schema import JSON, JsonError, dump, elements, members
from runtime.usage import Usage

REFUSAL_TEXT = "The model declined to answer."
_STOPS = ("end_turn", "tool_use", "stop_sequence", "max_tokens", "refusal")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which model was asked, and the provider's id of the HTTP request."""

    model: str
    request_id: str = ""

    @property
    def service(self) -> str:
        """The name for errors."""
        return f"anthropic:{self.model}"


@dataclass(frozen=True, slots=True)
class Content:
    """One content block: its value, its text as it came, and the text of a call's input."""

    value: JSON
    raw: str
    arguments: str = "{}"

    @property
    def type(self) -> str:
        """The block's type."""
        return wire.text(self.value, "type")


def whole(text: str, asked: Asked) -> ModelResponse:
    """An answer that came in one piece. Raises ModelError for an answer that cannot be used."""
    found = wire.answer(text, asked.service)
    values: dict[str, JSON] = {key: value for key, (value, _) in found.items()}
    if values.get("error") is not None:
        raise failures.from_event(asked.service, values["error"])
    try:
        blocks = [
            _content(value, raw)
            for value, raw in elements(found["content"][1] if "content" in found else "[]")
        ]
    except JsonError as error:
        raise ModelError(f"{asked.service}: the answer cannot be read: {error}", transient=True) from None
    return finished(values, blocks, asked)


def _content(value: JSON, raw: str) -> Content:
    if wire.text(value, "type") != "tool_use":
        return Content(value, raw)
    return Content(value, raw, next((part for key, _, part in members(raw) if key == "input"), "{}"))


def finished(head: Mapping[str, JSON], blocks: Sequence[Content], asked: Asked) -> ModelResponse:
    """An answer whose blocks are all there. Raises ModelError for an answer that cannot be used."""
    message_id = wire.text(head, "id")
    stop = wire.text(head, "stop_reason")
    if stop == "model_context_window_exceeded":
        raise ContextOverflowError(f"{asked.service}: the answer did not fit: model_context_window_exceeded")
    if stop not in _STOPS:
        raise ModelError(f"{asked.service}: the model stopped for a reason that is not supported: {stop!r}")
    raws = (
        [_refusal(head, blocks, message_id)] if stop == "refusal" else _items(blocks, message_id, asked.model)
    )
    try:
        items: tuple[Item, ...] = tuple(from_wire(raw) for raw in raws)
    except JsonError as error:
        raise ModelError(f"{asked.service}: the answer cannot be read: {error}", transient=True) from None
    truncated = stop == "max_tokens"
    return ModelResponse(
        items=items,
        usage=usage(head.get("usage")),
        response_id=message_id,
        status="incomplete" if truncated else "completed",
        incomplete_reason="max_output_tokens" if truncated else "",
        request_id=asked.request_id,
    )


def item_id(message_id: str, number: int) -> str:
    """The id of the item that the block of this number begins; the first may have the message's."""
    return f"{message_id}_{number}" if number else message_id


def _items(blocks: Sequence[Content], message_id: str, model: str) -> list[str]:
    items: list[str] = []
    said: list[Block] = []
    begun = 0
    for number, block in enumerate(blocks):
        if block.type == "text":
            begun = begun if said else number
            said.append({"type": "output_text", "text": wire.text(block.value, "text"), "annotations": []})
            continue
        if said:
            items.append(_message(said, item_id(message_id, begun)))
            said = []
        items.append(_item(block, item_id(message_id, number), model))
    if said:
        items.append(_message(said, item_id(message_id, begun)))
    return items


def _message(content: list[Block], id: str) -> str:
    return dump({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content})


def _item(block: Content, id: str, model: str) -> str:
    value = block.value
    if block.type == "tool_use":
        call_id, name = wire.text(value, "id"), wire.text(value, "name")
        return dump({"type": "function_call", "call_id": call_id, "name": name, "arguments": block.arguments})
    if block.type == "thinking":
        signature = wire.text(value, "signature")
        return dump(
            {
                "type": "reasoning",
                "id": id,
                "model": model,
                "summary": [],
                "content": [{"type": "reasoning_text", "text": wire.text(value, "thinking")}],
                "encrypted_content": wire.SIGNATURE + signature if signature else None,
            }
        )
    if block.type == "redacted_thinking":
        sealed = wire.REDACTED + wire.text(value, "data")
        return dump(
            {"type": "reasoning", "id": id, "model": model, "summary": [], "encrypted_content": sealed}
        )
    return f'{{"type":{dump(wire.FOREIGN_BLOCK)},"block":{block.raw}}}'


def _refusal(head: Mapping[str, JSON], blocks: Sequence[Content], message_id: str) -> str:
    said = "".join(wire.text(block.value, "text") for block in blocks if block.type == "text")
    words = said.strip() and said or wire.text(head, "stop_details", "explanation")
    return _message([{"type": "refusal", "refusal": words or REFUSAL_TEXT}], message_id)


def usage(value: JSON) -> Usage:
    """Tokens of an answer. The wire counts what was read from the cache, or written to it, apart."""
    read = wire.count(value, "cache_read_input_tokens")
    written = wire.count(value, "cache_creation_input_tokens")
    return Usage(
        requests=1,
        input_tokens=wire.count(value, "input_tokens") + read + written,
        output_tokens=wire.count(value, "output_tokens"),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=wire.count(value, "output_tokens_details", "thinking_tokens"),
    )
