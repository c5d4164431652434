"""The Responses wire of the offline server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from runtime.items import Item, ItemKind
from runtime.models import wire
from runtime.models.model import ModelResponse
from runtime.models.narration import narrate, response_text
from runtime.models.server_wire import (
    NAME,
    Json,
    Refused,
    Reply,
    check_strict_schema,
    require,
    words,
)
from runtime.models.stream import EventType, read_usage, usage_on_wire
from runtime.usage import Usage

_KNOWN = words(
    "model input instructions tools tool_choice temperature top_p max_output_tokens reasoning store include "
    "parallel_tool_calls metadata user stream stream_options truncation text previous_response_id "
    "conversation background max_tool_calls prompt prompt_cache_key prompt_cache_retention safety_identifier "
    "service_tier top_logprobs context_management moderation"
)
_KINDS: Mapping[str, ItemKind] = {
    "message": ItemKind.MESSAGE,
    "function_call": ItemKind.TOOL_CALL,
    "reasoning": ItemKind.REASONING,
}
_ID_PREFIX = {"function_call": "fc", "message": "msg", "reasoning": "rs"}
_INPUT_PARTS = {"input_text", "input_image", "input_file"}
_REASONS = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}


class Responses:
    """See Wire. It keeps answers for `previous_response_id`, and conversations whose ids begin with conv_."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Json]] = {}
        self._conversations: dict[str, list[Json]] = {}

    def check(self, headers: Mapping[str, str], body: Json) -> None:
        """See Wire."""
        require(headers.get("authorization", "").startswith("Bearer "), "no bearer token", 401)
        require(isinstance(body.get("model"), str), "model is missing")
        for key in body:
            require(key in _KNOWN, f"Unknown parameter: '{key}'.")
        require(body.get("truncation") in (None, "auto", "disabled"), "Invalid value for 'truncation'.")
        for tool in body.get("tools", []):
            self._check_tool(tool)
        form = body.get("text", {}).get("format", {})
        if form.get("type") == "json_schema" and form.get("strict"):
            check_strict_schema(form["schema"], f"response_format '{form['name']}'")
        _check_ids(_input(body))
        _check_items(self._conversation(body), stored=body.get("store") is not False)

    def _check_tool(self, tool: Json) -> None:
        if tool.get("type") != "function":
            return
        require(tool.get("name"), "Missing required parameter: 'tools[0].name'.")
        if tool.get("strict"):
            check_strict_schema(tool["parameters"], f"function '{tool['name']}'")

    def _conversation(self, body: Json) -> list[Json]:
        before: list[Json] = []
        previous, conversation = body.get("previous_response_id"), _conversation_id(body)
        require(
            previous is None or conversation is None,
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
        )
        if previous is not None:
            require(previous in self._kept, f"Previous response with id '{previous}' not found.")
            before = self._kept[previous]
        if conversation is not None:
            known = conversation in self._conversations or conversation.startswith("conv_")
            require(known, f"Conversation with id '{conversation}' not found.", 404)
            before = self._conversations.get(conversation, [])
        return [*before, *_input(body)]

    def answered(self, body: Json) -> int:
        """See Wire."""
        count, within = 0, False
        for item in self._conversation(body):
            by_model = _by_model(item)
            count += by_model and not within
            within = by_model
        return count

    def whole(self, reply: Reply, number: int, body: Json) -> str:
        """See Wire."""
        response = self._answer(reply, number, body)
        output = "[" + ", ".join(item.raw for item in response.items) + "]"
        return response_text(
            response.response_id,
            body["model"],
            response.status,
            output,
            usage=usage_on_wire(response.usage),
            reason=response.incomplete_reason,
        )

    def events(self, reply: Reply, number: int, body: Json) -> Iterator[tuple[str, str]]:
        """See Wire."""
        response = self._answer(reply, number, body)
        for event in narrate(response, body["model"]):
            yield event.type, event.raw
            if event.type == EventType.CREATED:
                yield "keepalive", '{"type":"keepalive","sequence_number":0}'

    def _answer(self, reply: Reply, number: int, body: Json) -> ModelResponse:
        raws = [*reply.raw, *_said(reply, number), *_called(reply, number), *filter(_is_ours, reply.items)]
        items = tuple(Item(kind=_KINDS.get(_type(raw), ItemKind.UNKNOWN), raw=raw) for raw in raws)
        response = ModelResponse(
            items=items,
            usage=reply.usage if isinstance(reply.usage, Usage) else read_usage(reply.usage or _USAGE),
            response_id=f"resp_{number}",
            status="incomplete" if reply.stop in _REASONS else "completed",
            incomplete_reason=_REASONS.get(reply.stop, ""),
        )
        if body.get("store") is not False:
            known = [*self._conversation(body), *(json.loads(item.raw) for item in items)]
            self._kept[response.response_id] = known
            conversation = _conversation_id(body)
            if conversation is not None:
                self._conversations[conversation] = known
        return response


_USAGE: Json = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


def _conversation_id(body: Json) -> str | None:
    conversation = body.get("conversation")
    found = conversation.get("id") if isinstance(conversation, dict) else conversation
    return None if found is None else str(found)


def _input(body: Json) -> list[Json]:
    given = body.get("input", [])
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    require(isinstance(given, list), "input is not a list")
    return [dict(item) for item in given]


def _is_ours(raw: str) -> bool:
    """Whether an item is of this wire: made of a Messages answer it may be what only that wire has."""
    item = json.loads(raw)
    foreign = wire.text(item, "encrypted_content").startswith((wire.SIGNATURE, wire.REDACTED))
    return item.get("type") != wire.FOREIGN_BLOCK and not foreign


def _type(raw: str) -> str:
    return wire.text(json.loads(raw), "type")


def _by_model(item: Json) -> bool:
    kind = item.get("type", "message")
    return bool(item.get("role") == "assistant" if kind == "message" else not str(kind).endswith("_output"))


def _check_ids(items: Sequence[Json]) -> None:
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        prefix = _ID_PREFIX.get(kind)
        if item.get("id") and prefix:
            begins = str(item["id"]).startswith(prefix)
            require(begins, f"Invalid 'input[{place}].id': Expected an ID that begins with '{prefix}'.")


def _check_items(items: Sequence[Json], *, stored: bool) -> None:
    # An id may come again for a new call, once the one before has its output.
    calls: dict[str, bool] = {}
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            require(isinstance(item.get("arguments"), str), "function_call.arguments is not a string")
            require(NAME.fullmatch(item["name"]), "Invalid name: string does not match pattern")
            calls[item["call_id"]] = False
        elif kind == "function_call_output":
            _check_output(item)
            require(item["call_id"] in calls, f"No tool call found for call_id {item['call_id']}.")
            require(not calls[item["call_id"]], f"Duplicate output for call_id {item['call_id']}.")
            calls[item["call_id"]] = True
        elif kind == "message":
            _check_message(item)
        elif kind == "reasoning":
            _check_reasoning(item, items[place + 1 :], stored=stored)
        else:
            require(kind != wire.FOREIGN_BLOCK, f"Invalid value: '{kind}'.")
    for call, answered in calls.items():
        require(answered, f"No tool output found for function call {call}.")


def _check_output(item: Json) -> None:
    output = item.get("output")
    require(isinstance(output, str | list), "function_call_output.output is neither text nor a list")
    for part in output if isinstance(output, list) else []:
        require(part.get("type") in _INPUT_PARTS, f"Invalid value: '{part.get('type')}' in an output")


def _check_message(item: Json) -> None:
    role = item.get("role")
    require(role in ("user", "assistant", "system", "developer"), f"Invalid role: {role}")
    kinds = {"output_text", "refusal"} if role == "assistant" else _INPUT_PARTS
    for part in item["content"] if isinstance(item["content"], list) else []:
        require(part.get("type") in kinds, f"Invalid value: '{part.get('type')}' for role {role}")


def _check_reasoning(item: Json, following: Sequence[Json], *, stored: bool) -> None:
    name = item.get("id")
    require(name and isinstance(item.get("summary"), list), "a reasoning item lacks its id or its summary")
    sealed = item.get("encrypted_content") or ""
    if sealed.startswith((wire.SIGNATURE, wire.REDACTED)):
        raise Refused(f"The encrypted content for item {name} could not be verified.")
    if not stored:
        there = sealed or item.get("content")
        require(
            there, f"Item with id '{name}' not found. Items are not persisted when `store` is false.", 404
        )
    after = [each for each in following if each.get("type") != "reasoning"]
    require(
        after and _by_model(after[0]),
        f"Item '{name}' of type 'reasoning' was provided without its required following item.",
    )


def _said(reply: Reply, number: int) -> list[str]:
    if reply.stop == "refusal":
        part = {"type": "refusal", "refusal": reply.text or ""}
    elif reply.text is not None:
        part = {"type": "output_text", "text": reply.text, "annotations": []}  # type: ignore[dict-item]
    else:
        return []
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    return [json.dumps({**message, "content": [part]})]


def _called(reply: Reply, number: int) -> list[str]:
    return [
        json.dumps(
            {
                "type": "function_call",
                "id": f"fc_{number}_{place}",
                "call_id": call.id or f"call_{number}_{place}",
                "name": call.name,
                "arguments": call.text,
                "status": "completed",
            }
        )
        for place, call in enumerate(reply.calls)
    ]
