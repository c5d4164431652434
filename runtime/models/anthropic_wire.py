"""Requests of the Messages wire, made of Responses items. Pure.

What the Messages wire asks for and this keeps: turns alternate; the results of calls come first in the user
turn that follows the calls; ids of calls are never used twice; a call's input is an object; thinking goes
back with its signature, byte for byte, and an answer that ends the request does not end with it; system text
in the middle stands after a user turn and before the assistant's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.errors import UserError
from runtime.items import Item, ItemKind
from runtime.models import anthropic_parts, wire
from runtime.models.anthropic_parts import Block
from runtime.models.model import ModelRequest, ModelSettings, ToolSpec
from runtime.schema import JSON, clean, clean_text, dump

DEFAULT_MAX_TOKENS = 8192
THINKING_BUDGETS: Mapping[str, int] = {"minimal": 1024, "low": 4096, "medium": 16384, "high": 32768}
THOUGHTS = ("thinking", "redacted_thinking")

_EPHEMERAL: Mapping[str, JSON] = {"type": "ephemeral"}
_CACHED_TURNS = 2
"""User turns that end with a mark: what the request before wrote to the cache is found by the second last."""

Turn = tuple[str, list[Block]]


def parts(model: str, request: ModelRequest) -> dict[str, str]:
    """The members of the request body, as JSON text. Raises UserError for what this wire cannot say."""
    settings = request.settings
    _check_supported(settings)
    leading, rest = _split_system(request)
    turns = _turns(rest, model)
    thinks = settings.effort is not None
    _end_acceptably(turns, thinks=thinks)
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", anthropic_parts.silence()))
    thinks = thinks and not _in_a_thoughtless_loop(turns)
    system: list[Block] = [{"type": "text", "text": clean_text(text)} for text in leading if text]
    if settings.prompt_cache:
        _mark_cacheable(system, turns)
    values: dict[str, JSON] = {
        "model": model,
        "messages": [{"role": role, "content": blocks} for role, blocks in turns],
    }
    if system:
        values["system"] = system
    if request.tools:
        values["tools"] = [_tool(tool) for tool in request.tools]
    if request.output is not None:
        values["output_config"] = {"format": {"type": "json_schema", "schema": request.output.schema}}
    values.update(_settings(settings, thinks=thinks, with_tools=bool(request.tools)))
    return {key: dump(value) for key, value in values.items()}


def _check_supported(settings: ModelSettings) -> None:
    for name in ("store", "truncation", "conversation"):
        if getattr(settings, name) is not None:
            raise UserError(f"the Messages API has no setting `{name}`")
    for name in ("include", "chain"):
        if getattr(settings, name):
            raise UserError(f"the Messages API has no setting `{name}`")


def _tool(tool: ToolSpec) -> Block:
    return {
        "name": tool.name,
        "description": clean_text(tool.description),
        "input_schema": tool.parameters,
    }


def _split_system(request: ModelRequest) -> tuple[list[str], Sequence[Item]]:
    texts = [request.instructions]
    for place, item in enumerate(request.items):
        if item.kind != ItemKind.MESSAGE or item.wire.get("role") not in ("system", "developer"):
            return texts, request.items[place:] if place else request.items
        texts.append(item.text)
    return texts, []


def _mark_cacheable(system: list[Block], turns: list[Turn]) -> None:
    if system:
        system[-1]["cache_control"] = _EPHEMERAL
    marked = 0
    for role, blocks in reversed(turns):
        if marked == _CACHED_TURNS:
            return
        if role == "user" and blocks:
            blocks[-1]["cache_control"] = _EPHEMERAL
            marked += 1


def _turns(items: Sequence[Item], model: str) -> list[Turn]:
    made = _Turns()
    ids = _Ids()
    for item in items:
        role, blocks = _blocks(item, ids, model)
        if blocks:
            made.add(role, blocks)
    return made.finished()


class _Turns:
    """Puts blocks into turns. What others say between calls and their results stands behind the results."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._system: list[Block] = []
        self._open: set[JSON] = set()
        self._deferred: list[Turn] = []

    def add(self, role: str, blocks: list[Block]) -> None:
        """Take the blocks of one item."""
        results = {block.get("tool_use_id") for block in blocks} - {None}
        if self._open and role != "assistant" and not results:
            self._deferred.append((role, blocks))
            return
        self._put(role, blocks)
        self._open |= {block.get("id") for block in blocks if block.get("type") == "tool_use"}
        self._open -= results
        if results and not self._open:
            self._catch_up()

    def finished(self) -> list[Turn]:
        """All turns."""
        self._catch_up()
        self._place_system()
        for role, blocks in self._turns:
            if role == "user":
                blocks.sort(key=lambda block: block.get("type") != "tool_result")
        return self._turns

    def _catch_up(self) -> None:
        deferred, self._deferred = self._deferred, []
        for role, blocks in deferred:
            self._put(role, blocks)

    def _put(self, role: str, blocks: list[Block]) -> None:
        if role == "system":
            self._system.extend(blocks)
            return
        if role == "assistant":
            self._place_system()
        if not self._turns or self._turns[-1][0] != role:
            self._turns.append((role, []))
        self._turns[-1][1].extend(blocks)

    def _place_system(self) -> None:
        # It stands after a user turn; where there is none, it can only be said as a user.
        if self._system:
            after_user = bool(self._turns) and self._turns[-1][0] == "user"
            self._turns.append(("system" if after_user else "user", self._system))
            self._system = []


def _in_a_thoughtless_loop(turns: Sequence[Turn]) -> bool:
    """Whether the calls that are being answered began without thinking: it is refused until they end."""
    first: list[Block] = []
    for role, blocks in reversed(turns):
        if role == "user" and not any(block.get("type") == "tool_result" for block in blocks):
            break
        if role == "assistant":
            first = blocks
    return bool(first) and turns[-1][0] != "assistant" and first[0].get("type") not in THOUGHTS


def _end_acceptably(turns: list[Turn], *, thinks: bool) -> None:
    if not turns or turns[-1][0] != "assistant":
        return
    blocks = turns[-1][1]
    if not thinks:
        blocks[:] = [block for block in blocks if block.get("type") not in THOUGHTS]
    while blocks and blocks[-1].get("type") in THOUGHTS:
        blocks.pop()
    if not blocks:
        turns.pop()
    elif blocks[-1].get("type") == "text":
        # What the model is to go on with must not end with a blank.
        blocks[-1]["text"] = str(blocks[-1]["text"]).rstrip()


class _Ids:
    """Ids of calls as the wire takes them: of its own characters, and never twice in a conversation."""

    def __init__(self) -> None:
        self._sent: dict[str, str] = {}
        self._used: set[str] = set()

    def call(self, call_id: str) -> str:
        """The id for a call."""
        sent = wire.sendable_id(call_id)
        number = 1
        while sent in self._used:
            number += 1
            sent = wire.sendable_id(f"{call_id}#{number}")
        self._used.add(sent)
        self._sent[call_id] = sent
        return sent

    def output(self, call_id: str) -> str:
        """The id for the output of the last call of this id."""
        return self._sent.get(call_id) or wire.sendable_id(call_id)


def _blocks(item: Item, ids: _Ids, model: str) -> Turn:
    if item.kind == ItemKind.MESSAGE:
        return anthropic_parts.message(item.wire)
    if item.kind == ItemKind.TOOL_CALL:
        call = item.call
        block: Block = {
            "type": "tool_use",
            "id": ids.call(call.call_id),
            "name": wire.sendable_name(call.name),
            "input": _object(call.arguments),
        }
        return "assistant", [block]
    if item.kind == ItemKind.TOOL_OUTPUT:
        return "user", [anthropic_parts.tool_result(item, ids.output(item.call_id))]
    if item.kind == ItemKind.REASONING:
        return "assistant", _thinking(item.wire, model)
    if item.type == wire.FOREIGN_BLOCK and isinstance(item.wire.get("block"), Mapping):
        return "assistant", [dict(item.wire["block"])]  # type: ignore[arg-type]
    raise UserError(f"the Messages API has no place for an item of the type {item.type!r}")


def _thinking(wire_item: Mapping[str, JSON], model: str) -> list[Block]:
    # A signature holds for the model that made it; an item that does not say which is taken at its word.
    if wire_item.get("model", model) != model:
        return []
    sealed = wire.text(wire_item, "encrypted_content")
    if sealed.startswith(wire.REDACTED):
        return [{"type": "redacted_thinking", "data": sealed.removeprefix(wire.REDACTED)}]
    if not sealed.startswith(wire.SIGNATURE) or sealed == wire.SIGNATURE:
        return []
    content = wire_item.get("content")
    pieces = content if isinstance(content, Sequence) and not isinstance(content, str) else []
    thought = "".join(wire.text(piece, "text") for piece in pieces)
    return [{"type": "thinking", "thinking": thought, "signature": sealed.removeprefix(wire.SIGNATURE)}]


def _object(arguments: str) -> JSON:
    # The wire takes an object alone. Arguments that are none were answered with an error that quotes them.
    try:
        value = wire.load(arguments)
    except ValueError:
        return {}
    return clean(value) if isinstance(value, dict) else {}


def _settings(settings: ModelSettings, *, thinks: bool, with_tools: bool) -> dict[str, JSON]:
    limit = settings.max_output_tokens or DEFAULT_MAX_TOKENS
    values: dict[str, JSON] = {}
    if settings.effort is not None:
        _check_thinking(settings)
    if settings.effort is not None and thinks:
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
    if settings.stream:
        values["stream"] = True
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
