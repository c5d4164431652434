"""The events of an answer on the Responses wire: their names, and the answer that they add up to."""

from __future__ import annotations

from enum import StrEnum

from runtime.errors import ModelError
from runtime.events import ModelStreamed
from runtime.items import Item, ItemKind, from_wire
from runtime.models import failures, wire
from runtime.models.model import ModelResponse
from runtime.schema import JSON, JsonError, dump, elements, members
from runtime.usage import Usage


class EventType(StrEnum):
    """The events that are understood here. The set is open: other `response.*` events are passed on."""

    CREATED = "response.created"
    QUEUED = "response.queued"
    IN_PROGRESS = "response.in_progress"
    COMPLETED = "response.completed"
    INCOMPLETE = "response.incomplete"
    FAILED = "response.failed"
    ITEM_ADDED = "response.output_item.added"
    ITEM_DONE = "response.output_item.done"
    PART_ADDED = "response.content_part.added"
    PART_DONE = "response.content_part.done"
    TEXT_DELTA = "response.output_text.delta"
    TEXT_DONE = "response.output_text.done"
    REFUSAL_DELTA = "response.refusal.delta"
    REFUSAL_DONE = "response.refusal.done"
    REASONING_DELTA = "response.reasoning_text.delta"
    REASONING_DONE = "response.reasoning_text.done"
    SUMMARY_PART_ADDED = "response.reasoning_summary_part.added"
    SUMMARY_PART_DONE = "response.reasoning_summary_part.done"
    SUMMARY_DELTA = "response.reasoning_summary_text.delta"
    SUMMARY_DONE = "response.reasoning_summary_text.done"
    ARGUMENTS_DELTA = "response.function_call_arguments.delta"
    ARGUMENTS_DONE = "response.function_call_arguments.done"


PREFIX = "response."
PREAMBLE = frozenset({EventType.CREATED, EventType.QUEUED, EventType.IN_PROGRESS})
"""Events that tell of an answer of which nothing is there yet."""
TERMINAL = frozenset({EventType.COMPLETED, EventType.INCOMPLETE})
"""Events that end an answer, and hold it."""


class Assembler:
    """Adds events up to the answer. `service` is named in errors."""

    def __init__(self, service: str, request_id: str = "") -> None:
        self._service = service
        self._request_id = request_id
        self._done: dict[int, str] = {}

    def add(self, event: ModelStreamed) -> ModelResponse | None:
        """The answer, with the event that ends it; None before.

        Raises ModelError for an event that tells of a failure, or that cannot be read.
        """
        if event.type == EventType.ITEM_DONE:
            # An event that comes twice, as a broken proxy may tell it, is no second item.
            place = _place(event)
            self._done[len(self._done) if place is None else place] = _raw_member(event, "item")
        elif event.type in TERMINAL:
            told = [self._done[place] for place in sorted(self._done)]
            return read_response(_raw_member(event, "response"), self._service, self._request_id, told)
        elif event.type == EventType.FAILED:
            failed = wire.answer(_raw_member(event, "response"), self._service)
            raise failures.from_event(self._service, failed["error"][0] if "error" in failed else None)
        return None


def read_response(
    text: str, service: str, request_id: str = "", told: list[str] | None = None
) -> ModelResponse:
    """A response object of the wire as an answer; `told` stands in for an `output` that is empty.

    Raises ModelError for an answer that failed or that cannot be read.
    """
    found = wire.answer(text, service)
    values: dict[str, JSON] = {key: value for key, (value, _) in found.items()}
    status = wire.text(values, "status") or "completed"
    if values.get("error") is not None:
        raise failures.from_event(service, values["error"])
    if status not in ("completed", "incomplete"):
        raise ModelError(f"{service}: the answer has the status {status!r}")
    output = "" if values.get("output") is None else found["output"][1]
    if not output and not told:
        raise ModelError(f"{service}: the answer has no output", transient=True)
    items = _items(output or "[]", told or [], service)
    if status == "completed" and any(_half(item) for item in items):
        raise ModelError(f"{service}: a call of the answer is not complete", transient=True)
    return ModelResponse(
        items=items,
        usage=read_usage(values.get("usage")),
        response_id=wire.text(values, "id"),
        status=status,
        incomplete_reason=wire.text(values, "incomplete_details", "reason"),
        request_id=request_id,
    )


def _items(output: str, told: list[str], service: str) -> tuple[Item, ...]:
    try:
        raws = [raw for _, raw in elements(output)]
        return tuple(_with_text(from_wire(raw)) for raw in raws or told)
    except JsonError as error:
        raise ModelError(f"{service}: the answer cannot be read: {error}", transient=True) from None


def _half(item: Item) -> bool:
    return item.kind == ItemKind.TOOL_CALL and item.wire.get("status") == "incomplete"


def _with_text(item: Item) -> Item:
    """A call with its arguments as text: some servers tell them as an object, which no service takes."""
    if item.kind != ItemKind.TOOL_CALL or isinstance(item.wire.get("arguments"), str):
        return item
    given = item.wire.get("arguments")
    return from_wire(dump({**item.wire, "arguments": "{}" if given is None else dump(given)}))


def _place(event: ModelStreamed) -> int | None:
    try:
        found = next((value for key, value, _ in members(event.raw) if key == "output_index"), None)
    except JsonError:
        return None
    return found if isinstance(found, int) else None


def _raw_member(event: ModelStreamed, name: str) -> str:
    try:
        for key, _, raw in members(event.raw):
            if key == name:
                return raw
    except JsonError as error:
        raise ModelError(f"an event of the stream is broken: {error}", transient=True) from None
    raise ModelError(f"an event of the stream lacks its {name!r}: {event.type}", transient=True)


def read_usage(value: JSON) -> Usage:
    """Tokens as a response object tells them."""
    return Usage(
        requests=1,
        input_tokens=wire.count(value, "input_tokens"),
        output_tokens=wire.count(value, "output_tokens"),
        cached_input_tokens=wire.count(value, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=wire.count(value, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=wire.count(value, "output_tokens_details", "reasoning_tokens"),
    )


def usage_on_wire(usage: Usage) -> dict[str, JSON]:
    """Tokens, for a response object."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
