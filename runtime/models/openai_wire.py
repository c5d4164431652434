"""Requests of the Responses wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.errors import UserError
from runtime.items import Item, ItemKind
from runtime.models import wire
from runtime.models.model import ModelRequest, ModelSettings, OutputSchema, ToolSpec
from runtime.schema import JSON, clean_text, dump


def parts(model: str, request: ModelRequest) -> dict[str, str]:
    """The members of the request body, as JSON text. Raises UserError for what this wire cannot say."""
    settings = request.settings
    found = {"model": dump(model), "input": "[" + ",".join(_input(request)) + "]"}
    if request.instructions:
        found["instructions"] = dump(clean_text(request.instructions))
    if request.tools:
        found["tools"] = dump([_tool(tool) for tool in request.tools])
    if request.output is not None:
        found["text"] = dump({"format": _format(request.output)})
    if settings.chain and request.previous_response_id:
        found["previous_response_id"] = dump(request.previous_response_id)
    found.update((key, dump(value)) for key, value in _settings(settings).items() if value is not None)
    return found


def _input(request: ModelRequest) -> list[str]:
    settings = request.settings
    if settings.chain and settings.conversation is not None:
        raise UserError("`chain` and `conversation` do not go together: a service keeps a conversation once")
    known = 0
    if settings.conversation is not None or (settings.chain and request.previous_response_id):
        known = request.previous_length
    kept = settings.extra_body.get("store", settings.store) is not False
    sent: list[str] = []
    followed = False
    # From the end: reasoning is refused where nothing of the model's follows it.
    for place in range(len(request.items) - 1, known - 1, -1):
        item = request.items[place]
        if item.kind == ItemKind.REASONING and not (followed and _goes_back(item, kept)):
            continue
        followed = item.kind not in (ItemKind.TOOL_OUTPUT, ItemKind.INJECTED_INPUT) and (
            item.kind != ItemKind.MESSAGE or item.wire.get("role") == "assistant"
        )
        sent.append(_sendable(item))
    sent.reverse()
    return sent


def _goes_back(item: Item, kept: bool) -> bool:
    """Whether the service can read reasoning: its own, and kept there or sealed or open in the item."""
    sealed = wire.text(item.wire, "encrypted_content")
    if sealed.startswith((wire.SIGNATURE, wire.REDACTED)) or "model" in item.wire:
        return False
    return kept or bool(sealed or item.wire.get("content"))


def _sendable(item: Item) -> str:
    if item.kind == ItemKind.UNKNOWN and item.type == wire.FOREIGN_BLOCK:
        block = wire.text(item.wire, "block", "type")
        raise UserError(f"the Responses API has no place for a content block of the type {block!r}")
    if item.kind != ItemKind.TOOL_CALL:
        return item.raw
    name = item.call.name
    accepted = wire.sendable_name(name)
    return item.raw if accepted == name else dump({**item.wire, "name": accepted})


def _settings(settings: ModelSettings) -> dict[str, JSON]:
    choice: JSON = settings.tool_choice
    if choice not in (None, "auto", "required", "none"):
        choice = {"type": "function", "name": settings.tool_choice}
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_output_tokens,
        "reasoning": {"effort": settings.effort} if settings.effort else None,
        "tool_choice": choice,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "store": settings.store,
        "include": list(settings.include) or None,
        "truncation": settings.truncation,
        "conversation": settings.conversation,
        "stream": True if settings.stream else None,
    }


def _tool(tool: ToolSpec) -> dict[str, JSON]:
    return {
        "type": "function",
        "name": tool.name,
        "description": clean_text(tool.description),
        "parameters": tool.parameters,
        "strict": tool.strict and can_be_strict(tool.parameters),
    }


def _format(output: OutputSchema) -> dict[str, JSON]:
    strict = output.strict and can_be_strict(output.schema)
    return {"type": "json_schema", "name": output.name, "schema": output.schema, "strict": strict}


_MAPS = ("properties", "$defs", "definitions")
_NESTED = ("items", "additionalProperties", "anyOf", "prefixItems")
_REFUSED = frozenset(
    {"default", "allOf", "oneOf", "not", "if", "then", "else", "contains", "minContains", "maxContains"}
    | {"dependentRequired", "dependentSchemas", "patternProperties", "propertyNames", "uniqueItems"}
    | {"unevaluatedProperties", "unevaluatedItems", "minProperties", "maxProperties"}
)
"""Keywords that make the service refuse a schema in strict mode."""


def can_be_strict(schema: JSON) -> bool:
    """Whether the service can hold a model to a schema: every object closed, and all its members required.

    It refuses a request that asks for it with any other schema, or with keywords that it does not know.
    """
    if isinstance(schema, Mapping):
        return _is_strict(schema)
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return all(can_be_strict(part) for part in schema)
    return True


def _is_strict(schema: Mapping[str, JSON]) -> bool:
    if _REFUSED & set(schema) or ("$ref" in schema and len(schema) > 1):
        return False
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        names = set(properties) if isinstance(properties, Mapping) else set()
        required = schema.get("required", [])
        closed = schema.get("additionalProperties") is False
        if not closed or not isinstance(required, Sequence) or names != set(required):
            return False
    maps = [schema.get(key) for key in _MAPS]
    nested = [part for each in maps if isinstance(each, Mapping) for part in each.values()]
    return all(can_be_strict(part) for part in (*nested, *(schema.get(key) for key in _NESTED)))
