"""The Messages wire of the offline server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runtime.models import wire
from runtime.models.server_wire import NAME, Json, Reply, pieces, require, words
from runtime.schema import members
from runtime.usage import Usage

_KNOWN = words(
    "model max_tokens messages system tools tool_choice temperature top_p top_k thinking metadata stream "
    "stop_sequences output_config service_tier cache_control container inference_geo diagnostics"
)
_THOUGHTS = ("thinking", "redacted_thinking")
_RESULT_PARTS = {"text", "image", "document", "search_result", "tool_reference"}


class Messages:
    """See Wire. It remembers the thinking that it signed."""

    def __init__(self) -> None:
        self._signed: dict[str, tuple[str, str]] = {}

    def check(self, headers: Mapping[str, str], body: Json) -> None:
        """See Wire."""
        # Older clients send a key in a header of its own, newer ones as a bearer token.
        require(headers.get("x-api-key") or headers.get("authorization"), "no key", 401)
        require(headers.get("anthropic-version"), "anthropic-version: header is required")
        require(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
        for key in body:
            require(key in _KNOWN, f"{key}: Extra inputs are not permitted")
        messages = _messages(body)
        require(messages, "messages: at least one message is required")
        require(messages[0]["role"] == "user", "messages: first message must use the user role")
        for message in messages:
            self._check_message(message, body["model"])
        _check_order(messages)
        _check_pairs(messages)
        _check_thinking(body, messages)
        marks = sum("cache_control" in block for block in _all_blocks(body, messages))
        require(marks <= 4, "A maximum of 4 blocks with cache_control may be provided.")

    def _check_message(self, message: Json, model: str) -> None:
        blocks = message["content"]
        require(blocks, "messages: content must not be empty")
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                said = block["text"].strip()
                require(said, "messages: text content blocks must contain non-whitespace text")
            elif kind == "tool_result":
                _check_result(block)
            elif kind == "tool_use":
                require(NAME.fullmatch(block["name"]), "tool_use.name: String should match pattern")
                require(NAME.fullmatch(block["id"]), "tool_use.id: String should match pattern")
                require(isinstance(block["input"], dict), "tool_use.input: must be a dictionary")
            elif kind in _THOUGHTS:
                self._check_thought(block, model)
            if kind in ("tool_use", *_THOUGHTS):
                require(message["role"] == "assistant", f"{kind} blocks may only appear in assistant turns")

    def _check_thought(self, block: Json, model: str) -> None:
        require("cache_control" not in block, "thinking blocks cannot be cached")
        if block["type"] == "redacted_thinking":
            known = self._signed.get(block["data"])
        else:
            require(block.get("signature"), "thinking.signature: Field required")
            known = self._signed.get(block["signature"])
        said = block.get("thinking", "")
        require(known == (model, said), "Invalid `signature` in `thinking` block")

    def answered(self, body: Json) -> int:
        """See Wire."""
        return sum(message["role"] == "assistant" for message in _messages(body))

    def whole(self, reply: Reply, number: int, body: Json) -> str:
        """See Wire."""
        blocks = self._blocks(reply, number, body)
        head = _head(reply, number, body, blocks)
        return json.dumps(head)[:-1] + ', "content": [' + ", ".join(blocks) + "]}"

    def events(self, reply: Reply, number: int, body: Json) -> Iterator[tuple[str, str]]:
        """See Wire."""
        blocks = self._blocks(reply, number, body)
        head = _head(reply, number, body, blocks)
        usage = head["usage"]
        stops = {key: head.pop(key) for key in ("stop_reason", "stop_sequence", "stop_details")}
        start = {**head, "stop_reason": None, "stop_sequence": None, "content": []}
        start["usage"] = {**usage, "output_tokens": 1}
        yield "message_start", json.dumps({"type": "message_start", "message": start})
        yield "ping", '{"type": "ping"}'
        for place, raw in enumerate(blocks):
            yield from _block_events(place, raw)
        end = {"type": "message_delta", "delta": stops, "usage": usage}
        yield "message_delta", json.dumps(end)
        yield "message_stop", '{"type": "message_stop"}'

    def _blocks(self, reply: Reply, number: int, body: Json) -> list[str]:
        blocks = list(reply.raw)
        if reply.text is not None:
            blocks.append(json.dumps({"type": "text", "text": reply.text}))
        for place, call in enumerate(reply.calls):
            block = {"type": "tool_use", "id": call.id or f"call_{number}_{place}", "name": call.name}
            blocks.append(f'{json.dumps(block)[:-1]}, "input": {call.text}}}')
        for raw in reply.items:
            blocks.extend(_blocks_of(raw))
        for raw in blocks:
            block = json.loads(raw)
            sealed = block.get("signature") or block.get("data")
            if block["type"] in _THOUGHTS and sealed:
                self._signed[sealed] = (body["model"], block.get("thinking", ""))
        return blocks


def _messages(body: Json) -> list[Json]:
    messages = body.get("messages")
    require(isinstance(messages, list), "messages: Field required")
    found = []
    for message in messages or []:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        require(isinstance(blocks, list), "messages: content must be text or a list")
        found.append({**message, "content": blocks})
    return found


def _check_result(block: Json) -> None:
    content = block.get("content", "")
    if block.get("is_error"):
        require(content, "tool_result: content cannot be empty if `is_error` is true")
    for part in content if isinstance(content, list) else []:
        require(part["type"] in _RESULT_PARTS, f"tool_result.content: unexpected type {part['type']}")
        if part["type"] == "text":
            require(part["text"].strip(), "tool_result: text blocks must contain non-whitespace text")


def _check_order(messages: Sequence[Json]) -> None:
    for before, message in zip(messages, messages[1:], strict=False):
        pair = (before["role"], message["role"])
        require(pair[0] != pair[1] or pair[0] == "assistant", "messages: roles must alternate")
        if pair[1] == "system":
            require(pair[0] == "user", "messages: a system message must follow a user turn")
        if pair[0] == "system":
            require(pair[1] == "assistant", "messages: a system message must precede an assistant turn")


def _check_pairs(messages: Sequence[Json]) -> None:
    seen: set[str] = set()
    for place, message in enumerate(messages):
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        require(len(set(calls)) == len(calls) and not seen & set(calls), "tool_use ids must be unique")
        seen.update(calls)
        following = messages[place + 1] if place + 1 < len(messages) else {"content": []}
        results = [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]
        for call in calls:
            require(call in results, f"tool_use ids were found without tool_result blocks: {call}")
        if message["role"] == "user":
            _check_results(message, messages[place - 1] if place else {"content": []})


def _check_results(message: Json, before: Json) -> None:
    asked = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
    kinds = [block["type"] == "tool_result" for block in message["content"]]
    require(kinds == sorted(kinds, reverse=True), "tool_result blocks must come first in the user turn")
    answered: list[str] = []
    for block in message["content"]:
        if block["type"] == "tool_result":
            call = block["tool_use_id"]
            require(call in asked, f"unexpected tool_use_id found in tool_result blocks: {call}")
            require(call not in answered, f"each tool_use must have a single result: {call}")
            answered.append(call)


def _check_thinking(body: Json, messages: Sequence[Json]) -> None:
    thinking = body.get("thinking", {})
    enabled = thinking.get("type") == "enabled"
    if enabled:
        require("temperature" not in body, "`temperature` may only be set to 1 when thinking is enabled.")
        budget = thinking["budget_tokens"]
        require(budget >= 1024, "thinking.budget_tokens: at least 1024")
        require(body["max_tokens"] > budget, "`max_tokens` must be greater than `thinking.budget_tokens`.")
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        require(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
        _check_loop(messages)
    last = messages[-1]
    if last["role"] == "assistant":
        said = last["content"][-1].get("text", "")
        require(said == said.rstrip(), "final assistant content cannot end with trailing whitespace")
        final = last["content"][-1]["type"]
        require(final not in _THOUGHTS, "The final block in an assistant message cannot be `thinking`.")
        thought = any(block["type"] in _THOUGHTS for block in last["content"])
        reason = "When thinking is disabled, a final `assistant` message cannot contain `thinking`."
        require(enabled or not thought, reason)


def _check_loop(messages: Sequence[Json]) -> None:
    first: Json | None = None
    for message in reversed(messages):
        if message["role"] == "user" and not any(
            block["type"] == "tool_result" for block in message["content"]
        ):
            break
        if message["role"] == "assistant":
            first = message
    if first is not None and messages[-1]["role"] != "assistant":
        kind = first["content"][0]["type"]
        require(
            kind in _THOUGHTS,
            f"Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, "
            "a final `assistant` message must start with a thinking block",
        )


def _all_blocks(body: Json, messages: Sequence[Json]) -> Iterable[Json]:
    system = body.get("system", [])
    yield from system if isinstance(system, list) else []
    for message in messages:
        yield from message["content"]
    yield from body.get("tools", [])


def _blocks_of(raw: str) -> list[str]:
    """What an item of the Responses wire is here; nothing for what this wire does not have."""
    item = json.loads(raw)
    kind = item.get("type")
    if kind == "message":
        texts = [wire.text(part, "text") or wire.text(part, "refusal") for part in item["content"]]
        return [json.dumps({"type": "text", "text": text}) for text in texts]
    if kind == "function_call":
        block = {"type": "tool_use", "id": item["call_id"], "name": item["name"]}
        return [f'{json.dumps(block)[:-1]}, "input": {item["arguments"]}}}']
    sealed = wire.text(item, "encrypted_content")
    if sealed.startswith(wire.SIGNATURE):
        thought = "".join(wire.text(part, "text") for part in item.get("content", []))
        signature = sealed.removeprefix(wire.SIGNATURE)
        return [json.dumps({"type": "thinking", "thinking": thought, "signature": signature})]
    if sealed.startswith(wire.REDACTED):
        return [json.dumps({"type": "redacted_thinking", "data": sealed.removeprefix(wire.REDACTED)})]
    if kind == wire.FOREIGN_BLOCK:
        return [part for key, _, part in members(raw) if key == "block"]
    return []


def _usage(usage: Mapping[str, Any] | Usage | None) -> Mapping[str, Any]:
    if not isinstance(usage, Usage):
        return usage or {"input_tokens": 10, "output_tokens": 5}
    read, written = usage.cached_input_tokens, usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _head(reply: Reply, number: int, body: Json, blocks: Sequence[str]) -> Json:
    calls = any(json.loads(raw)["type"] == "tool_use" for raw in blocks)
    stops = {"end": "tool_use" if calls else "end_turn", "overflow": "model_context_window_exceeded"}
    stop = stops.get(reply.stop, reply.stop)
    refusal = {"type": "refusal", "explanation": "not this"}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_reason": stop,
        "stop_sequence": None,
        "stop_details": refusal if stop == "refusal" else None,
        "usage": _usage(reply.usage),
    }


def _block_events(place: int, raw: str) -> Iterator[tuple[str, str]]:
    block = json.loads(raw)
    begun, deltas = _split(block, raw)
    start = json.dumps({"type": "content_block_start", "index": place})
    yield "content_block_start", f'{start[:-1]}, "content_block": {begun}}}'
    for delta in deltas:
        yield (
            "content_block_delta",
            json.dumps({"type": "content_block_delta", "index": place, "delta": delta}),
        )
    yield "content_block_stop", json.dumps({"type": "content_block_stop", "index": place})


def _split(block: Json, raw: str) -> tuple[str, list[Json]]:
    """How a block begins, and the deltas that complete it."""
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            return json.dumps({**block, "text": ""}), deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            if block.get("signature"):
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return json.dumps({**block, "thinking": "", "signature": ""}), deltas
        case "tool_use":
            given = next((part for key, _, part in members(raw) if key == "input"), "{}")
            told = [] if given == "{}" else pieces(given)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in told]
            return json.dumps({**block, "input": {}}), deltas
    return raw, []
