"""Tells an answer as the events of the Responses wire, for models whose service does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runtime.events import ModelStreamed
from runtime.items import Item, ItemKind
from runtime.models import wire
from runtime.models.model import ModelResponse
from runtime.models.stream import EventType, usage_on_wire
from runtime.schema import JSON, dump

PIECE = 24
"""Characters of a delta, where a text is cut into deltas here."""


class Narrator:
    """Makes the events of one answer, numbered. Values are given as JSON values, items as their raw text."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._number = 0

    def event(
        self, kind: EventType, values: Mapping[str, JSON], raw: Mapping[str, str] | None = None
    ) -> ModelStreamed:
        """One event, with the members `values`, and with `raw`, whose values are JSON text."""
        text = dump({"type": kind.value, "sequence_number": self._number, **values})
        if raw:
            text = text[:-1] + "," + wire.object_text(raw)[1:]
        self._number += 1
        return ModelStreamed(kind.value, text)

    def created(self, response_id: str) -> ModelStreamed:
        """The first event."""
        return self.event(
            EventType.CREATED, {}, {"response": response_text(response_id, self._model, "in_progress", "[]")}
        )

    def item(self, kind: EventType, index: int, raw: str) -> ModelStreamed:
        """An item begins, or is finished."""
        return self.event(kind, {"output_index": index}, {"item": raw})

    def ended(self, response: ModelResponse) -> ModelStreamed:
        """The last event, which holds the whole answer."""
        kind = EventType.COMPLETED if response.status == "completed" else EventType.INCOMPLETE
        output = "[" + ",".join(item.raw for item in response.items) + "]"
        text = response_text(
            response.response_id,
            self._model,
            response.status,
            output,
            usage=usage_on_wire(response.usage),
            reason=response.incomplete_reason,
        )
        return self.event(kind, {}, {"response": text})


def response_text(
    response_id: str,
    model: str,
    status: str,
    output: str,
    *,
    usage: Mapping[str, JSON] | None = None,
    reason: str = "",
) -> str:
    """A response object of the wire; `output` is JSON text."""
    head: dict[str, JSON] = {
        "id": response_id,
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": usage,
    }
    return wire.object_text({**{key: dump(value) for key, value in head.items()}, "output": output})


def narrate(response: ModelResponse, model: str) -> Iterator[ModelStreamed]:
    """The events of an answer that is there already."""
    narrator = Narrator(model)
    yield narrator.created(response.response_id)
    for index, item in enumerate(response.items):
        yield from narrate_item(narrator, index, item)
    yield narrator.ended(response)


def narrate_item(narrator: Narrator, index: int, item: Item) -> Iterator[ModelStreamed]:
    """The events of one item, from its beginning to its end."""
    place: dict[str, JSON] = {
        "item_id": wire.text(item.wire, "id") or f"item_{index}",
        "output_index": index,
    }
    yield narrator.item(EventType.ITEM_ADDED, index, dump({**item.wire, **_UNFINISHED.get(item.kind, {})}))
    if item.kind == ItemKind.MESSAGE:
        for number, part in enumerate(_parts(item.wire.get("content"))):
            yield from _narrate_part(narrator, {**place, "content_index": number}, part)
    elif item.kind == ItemKind.TOOL_CALL:
        for piece in _pieces(item.call.arguments):
            yield narrator.event(EventType.ARGUMENTS_DELTA, {**place, "delta": piece})
        done: dict[str, JSON] = {"arguments": item.call.arguments, "name": item.call.name}
        yield narrator.event(EventType.ARGUMENTS_DONE, {**place, **done})
    elif item.kind == ItemKind.REASONING:
        yield from _narrate_reasoning(narrator, place, item)
    yield narrator.item(EventType.ITEM_DONE, index, item.raw)


_UNFINISHED: Mapping[str, dict[str, JSON]] = {
    ItemKind.MESSAGE: {"content": [], "status": "in_progress"},
    ItemKind.TOOL_CALL: {"arguments": "", "status": "in_progress"},
    ItemKind.REASONING: {"content": [], "summary": []},
}


def _narrate_part(
    narrator: Narrator, place: Mapping[str, JSON], part: Mapping[str, JSON]
) -> Iterator[ModelStreamed]:
    refusal = part.get("type") == "refusal"
    key = "refusal" if refusal else "text"
    words = wire.text(part, key)
    delta, done = (
        (EventType.REFUSAL_DELTA, EventType.REFUSAL_DONE)
        if refusal
        else (EventType.TEXT_DELTA, EventType.TEXT_DONE)
    )
    more: dict[str, JSON] = {} if refusal else {"logprobs": []}
    yield narrator.event(EventType.PART_ADDED, {**place, "part": {**part, key: ""}})
    for piece in _pieces(words):
        yield narrator.event(delta, {**place, "delta": piece, **more})
    yield narrator.event(done, {**place, key: words, **more})
    yield narrator.event(EventType.PART_DONE, {**place, "part": part})


def _narrate_reasoning(narrator: Narrator, place: Mapping[str, JSON], item: Item) -> Iterator[ModelStreamed]:
    for number, part in enumerate(_parts(item.wire.get("summary"))):
        where: dict[str, JSON] = {**place, "summary_index": number}
        words = wire.text(part, "text")
        yield narrator.event(EventType.SUMMARY_PART_ADDED, {**where, "part": {**part, "text": ""}})
        for piece in _pieces(words):
            yield narrator.event(EventType.SUMMARY_DELTA, {**where, "delta": piece})
        yield narrator.event(EventType.SUMMARY_DONE, {**where, "text": words})
        yield narrator.event(EventType.SUMMARY_PART_DONE, {**where, "part": part})
    for number, part in enumerate(_parts(item.wire.get("content"))):
        where = {**place, "content_index": number}
        words = wire.text(part, "text")
        for piece in _pieces(words):
            yield narrator.event(EventType.REASONING_DELTA, {**where, "delta": piece})
        yield narrator.event(EventType.REASONING_DONE, {**where, "text": words})


def _parts(content: JSON) -> list[Mapping[str, JSON]]:
    if isinstance(content, str):
        return [{"type": "output_text", "text": content, "annotations": []}]
    if not isinstance(content, Sequence):
        return []
    return [part for part in content if isinstance(part, Mapping)]


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]
