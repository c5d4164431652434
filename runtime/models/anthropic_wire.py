"""The Messages wire and the Responses items, translated into each other. Pure.

What the Messages wire asks for and this keeps: turns alternate; the results of calls come first in the user
turn that follows the calls; a call's input is an object; thinking goes back with its signature, byte for
byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from runtime.errors import ContextOverflowError, ModelError, UserError
from runtime.items import Item, ItemKind, from_wire
from runtime.models import http
from runtime.models.model import ModelRequest, ModelResponse, ModelSettings
from runtime.schema import JSON, JsonError, clean, clean_text, dump, elements, members
from runtime.usage import Usage

DEFAULT_MAX_TOKENS = 8192
THINKING_BUDGETS: Mapping[str, int] = {"minimal": 1024, "low": 4096, "medium": 16384, "high": 32768}
SIGNATURE = "thinking_signature:"
REDACTED = "redacted_thinking:"
FOREIGN_BLOCK = "anthropic_block"
"""Wire type of an item that holds a content block which the Responses format has no item for, as it came."""

_EPHEMERAL: Mapping[str, JSON] = {"type": "ephemeral"}

Block = dict[str, JSON]


def parts(model: str, request: ModelRequest) -> dict[str, str]:
    """The members of the request body, as JSON text. Raises UserError for what this wire cannot say."""
    settings = request.settings
    leading, rest = _split_system(request)
    messages = _messages(rest)
    system: list[Block] = [{"type": "text", "text": clean_text(text)} for text in leading if text]
    if settings.prompt_cache:
        _mark_cacheable(system, messages)
    values: dict[str, JSON] = {"model": model, "messages": messages}
    if system:
        values["system"] = system
    if request.tools:
        values["tools"] = [
            {
                "name": tool.name,
                "description": clean_text(tool.description),
                "input_schema": tool.parameters,
            }
            for tool in request.tools
        ]
    values.update(_settings(settings, with_tools=bool(request.tools)))
    return {key: dump(value) for key, value in values.items()}


def _split_system(request: ModelRequest) -> tuple[list[str], Sequence[Item]]:
    texts = [request.instructions]
    for place, item in enumerate(request.items):
        if item.kind != ItemKind.MESSAGE or item.wire.get("role") not in ("system", "developer"):
            return texts, request.items[place:] if place else request.items
        texts.append(item.text)
    return texts, []


def _mark_cacheable(system: list[Block], messages: list[JSON]) -> None:
    if system:
        system[-1]["cache_control"] = _EPHEMERAL
    content = http.member(messages[-1], "content") if messages else None
    if isinstance(content, list) and isinstance(content[-1], dict):
        content[-1]["cache_control"] = _EPHEMERAL


def _messages(items: Sequence[Item]) -> list[JSON]:
    turns: list[tuple[str, list[Block]]] = []
    for item in items:
        role, blocks = _blocks(item)
        if not blocks:
            continue
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(blocks)
    for role, blocks in turns:
        if role == "user":
            blocks.sort(key=lambda block: block.get("type") != "tool_result")
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _blocks(item: Item) -> tuple[str, list[Block]]:
    wire = item.wire
    if item.kind == ItemKind.MESSAGE:
        return _message(wire)
    if item.kind == ItemKind.TOOL_CALL:
        call = item.call
        block: Block = {
            "type": "tool_use",
            "id": http.sendable_id(call.call_id),
            "name": http.sendable_name(call.name),
            "input": _object(call.arguments),
        }
        return "assistant", [block]
    if item.kind == ItemKind.TOOL_OUTPUT:
        return "user", [_tool_result(item)]
    if item.kind == ItemKind.REASONING:
        return "assistant", _thinking(wire)
    if wire.get("type") == FOREIGN_BLOCK and isinstance(wire.get("block"), Mapping):
        return "assistant", [dict(wire["block"])]  # type: ignore[arg-type]
    raise UserError(f"the Messages API has no place for an item of the type {wire.get('type')!r}")


def _message(wire: Mapping[str, JSON]) -> tuple[str, list[Block]]:
    role = {"developer": "system"}.get(str(wire.get("role")), str(wire.get("role")))
    content = wire.get("content")
    if isinstance(content, str):
        return role, [{"type": "text", "text": content}] if content.strip() else []
    if not isinstance(content, Sequence):
        return role, []
    return role, [block for part in content for block in _part(part)]


def _part(part: JSON) -> list[Block]:
    kind = http.text(part, "type")
    if kind in ("input_text", "output_text", "text"):
        words = http.text(part, "text")
    elif kind == "refusal":
        words = http.text(part, "refusal")
    elif kind == "input_image":
        return [{"type": "image", "source": _image(http.text(part, "image_url"))}]
    else:
        raise UserError(f"the Messages API has no place for content of the type {kind!r}")
    # Blank text is refused, and says nothing.
    return [{"type": "text", "text": words}] if words.strip() else []


def _image(url: str) -> Block:
    if url.startswith("data:"):
        media, _, data = url.removeprefix("data:").partition(";base64,")
        return {"type": "base64", "media_type": media, "data": data}
    if not url:
        raise UserError("the Messages API has no place for an image that is given as a file id")
    return {"type": "url", "url": url}


def _tool_result(item: Item) -> Block:
    content = _tool_content(item.wire)
    block: Block = {"type": "tool_result", "tool_use_id": http.sendable_id(item.call_id), "content": content}
    if item.is_error:
        # An error without words is refused.
        block.update(content=content or "(no reason was given)", is_error=True)
    return block


def _tool_content(wire: Mapping[str, JSON]) -> JSON:
    output = wire.get("output")
    if isinstance(output, str) or not isinstance(output, Sequence):
        return output if isinstance(output, str) else ""
    return [block for part in output for block in _part(part)]


def _thinking(wire: Mapping[str, JSON]) -> list[Block]:
    sealed = http.text(wire, "encrypted_content")
    if sealed.startswith(REDACTED):
        return [{"type": "redacted_thinking", "data": sealed.removeprefix(REDACTED)}]
    if not sealed.startswith(SIGNATURE):
        return []
    content = wire.get("content")
    pieces = content if isinstance(content, Sequence) and not isinstance(content, str) else []
    thought = "".join(http.text(piece, "text") for piece in pieces)
    return [{"type": "thinking", "thinking": thought, "signature": sealed.removeprefix(SIGNATURE)}]


def _object(arguments: str) -> JSON:
    # The wire takes an object alone. Arguments that are none were answered with an error that quotes them.
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return clean(value) if isinstance(value, dict) else {}


def _settings(settings: ModelSettings, *, with_tools: bool) -> dict[str, JSON]:
    limit = settings.max_output_tokens or DEFAULT_MAX_TOKENS
    values: dict[str, JSON] = {}
    if settings.effort is not None:
        _check_thinking(settings)
        budget = THINKING_BUDGETS[settings.effort]
        values["thinking"] = {"type": "enabled", "budget_tokens": budget}
        limit = limit if limit > budget else budget + DEFAULT_MAX_TOKENS
    values["max_tokens"] = limit
    if settings.temperature is not None:
        values["temperature"] = settings.temperature
    if settings.top_p is not None:
        values["top_p"] = settings.top_p
    choice = _tool_choice(settings)
    if choice and with_tools:
        values["tool_choice"] = choice
    return values


def _check_thinking(settings: ModelSettings) -> None:
    for name in ("temperature", "top_p"):
        if getattr(settings, name) is not None:
            raise UserError(f"thinking (effort={settings.effort!r}) does not go with {name}")
    if settings.tool_choice not in (None, "auto", "none"):
        raise UserError(f"thinking (effort={settings.effort!r}) does not go with a forced tool choice")


def _tool_choice(settings: ModelSettings) -> Block:
    names = {"auto": "auto", "required": "any", "none": "none"}
    choice: Block = {}
    if settings.tool_choice in names:
        choice = {"type": names[settings.tool_choice]}
    elif settings.tool_choice is not None:
        choice = {"type": "tool", "name": settings.tool_choice}
    if settings.parallel_tool_calls is not None and settings.tool_choice != "none":
        choice = {
            **(choice or {"type": "auto"}),
            "disable_parallel_tool_use": not settings.parallel_tool_calls,
        }
    return choice


def response(text: str, request_id: str) -> ModelResponse:
    """A Messages answer as items. Raises ModelError for an answer that cannot be used."""
    found = http.answer(text)
    values: dict[str, JSON] = {key: value for key, (value, _) in found.items()}
    message_id = http.text(values, "id")
    stop = http.text(values, "stop_reason")
    if stop == "model_context_window_exceeded":
        raise ContextOverflowError("the answer did not fit into the window: model_context_window_exceeded")
    if stop not in ("end_turn", "tool_use", "stop_sequence", "max_tokens", "refusal"):
        raise ModelError(f"the service stopped for a reason that is not supported: {stop!r}")
    try:
        blocks = list(elements(found["content"][1])) if "content" in found else []
        items = _refusal(values, blocks, message_id) if stop == "refusal" else _items(blocks, message_id)
    except JsonError as error:
        raise ModelError(f"the service's answer cannot be read: {error}") from None
    truncated = stop == "max_tokens"
    return ModelResponse(
        items=items,
        usage=_usage(values.get("usage")),
        response_id=message_id,
        status="incomplete" if truncated else "completed",
        incomplete_reason="max_output_tokens" if truncated else "",
        request_id=request_id,
    )


def _items(blocks: Sequence[tuple[JSON, str]], message_id: str) -> tuple[Item, ...]:
    items: list[str] = []
    said: list[Block] = []
    for number, (block, raw) in enumerate(blocks):
        if http.text(block, "type") == "text":
            said.append({"type": "output_text", "text": http.text(block, "text"), "annotations": []})
            continue
        if said:
            items.append(_said(said, f"{message_id}_{number}"))
            said = []
        items.append(_item(block, raw, f"{message_id}_{number}"))
    if said:
        items.append(_said(said, message_id))
    return tuple(from_wire(raw) for raw in items)


def _said(content: list[Block], item_id: str) -> str:
    return dump(
        {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content}
    )


def _item(block: JSON, raw: str, item_id: str) -> str:
    kind = http.text(block, "type")
    if kind == "tool_use":
        arguments = next((part for key, _, part in members(raw) if key == "input"), "{}")
        call_id, name = http.text(block, "id"), http.text(block, "name")
        return dump({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments})
    if kind == "thinking":
        return dump(
            {
                "type": "reasoning",
                "id": item_id,
                "summary": [],
                "content": [{"type": "reasoning_text", "text": http.text(block, "thinking")}],
                "encrypted_content": SIGNATURE + http.text(block, "signature"),
            }
        )
    if kind == "redacted_thinking":
        sealed = REDACTED + http.text(block, "data")
        return dump({"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": sealed})
    return f'{{"type":{dump(FOREIGN_BLOCK)},"block":{raw}}}'


def _refusal(
    values: Mapping[str, JSON], blocks: Sequence[tuple[JSON, str]], message_id: str
) -> tuple[Item, ...]:
    said = "".join(http.text(block, "text") for block, _ in blocks if http.text(block, "type") == "text")
    words = said.strip() and said or http.text(values, "stop_details", "explanation")
    content: list[Block] = [{"type": "refusal", "refusal": words or "The model declined to answer."}]
    return (from_wire(_said(content, message_id)),)


def _usage(value: JSON) -> Usage:
    read, written = (
        http.count(value, "cache_read_input_tokens"),
        http.count(value, "cache_creation_input_tokens"),
    )
    return Usage(
        requests=1,
        input_tokens=http.count(value, "input_tokens") + read + written,
        output_tokens=http.count(value, "output_tokens"),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=http.count(value, "output_tokens_details", "thinking_tokens"),
    )
