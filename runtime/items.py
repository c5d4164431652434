"""Items: everything a run is made of, in the OpenAI Responses wire format, kept as the text that came."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from pydantic import JsonValue

from runtime.schema import JSON, JsonError, clean, clean_text, dump


class ItemKind(StrEnum):
    """What an item is. The set is open: an item may carry a kind that is not here, and is then opaque."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_OUTPUT = "tool_output"
    HANDOFF_CALL = "handoff_call"
    HANDOFF_OUTPUT = "handoff_output"
    REASONING = "reasoning"
    INJECTED_INPUT = "injected_input"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Who made an item."""

    MODEL = "model"
    USER = "user"
    RUNNER = "runner"
    ERROR_HANDLER = "error_handler"


class Role(StrEnum):
    """What an assistant's message is to the run. A provider's own phase stays in the wire JSON."""

    WORKING_MESSAGE = "working_message"
    FINAL_RESPONSE = "final_response"


_KINDS: Mapping[str, ItemKind] = {
    "message": ItemKind.MESSAGE,
    "function_call": ItemKind.TOOL_CALL,
    "function_call_output": ItemKind.TOOL_OUTPUT,
    "reasoning": ItemKind.REASONING,
}


_WIRE_KINDS: Mapping[str, ItemKind] = {
    ItemKind.HANDOFF_CALL: ItemKind.TOOL_CALL,
    ItemKind.HANDOFF_OUTPUT: ItemKind.TOOL_OUTPUT,
    ItemKind.INJECTED_INPUT: ItemKind.MESSAGE,
}


_SUSPECT = ("\\u0000", "\\ud", "\\uD")
"""Escapes that may stand for what strict services refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """Hints for people; rendering is right without them.

    title    one line that names the item; "": what it names itself
    summary  one line that tells the outcome
    details  facts for user interfaces, never for the model
    """

    title: str = ""
    summary: str = ""
    details: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model makes. `arguments` is the raw text, not yet read."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """One element of a run.

    kind      see ItemKind; text, so that kinds of later versions survive
    raw       the wire JSON as it came; this text is what goes back to a model
    source    who made it
    is_error  for a tool's output: the call failed
    display   hints for people
    role      for an assistant's message: said beside calls, or as the answer; "": it was not in a run
    """

    kind: str
    raw: str
    source: Source = Source.MODEL
    is_error: bool = False
    display: Display | None = None
    role: str = ""

    @cached_property
    def wire(self) -> Mapping[str, JSON]:
        """The wire JSON, read. Raises JsonError if the text is not an object."""
        return _read(self.raw)

    @property
    def type(self) -> str:
        """The wire type, as "function_call"."""
        return _text(self.wire.get("type"))

    @property
    def is_external(self) -> bool:
        """Made by the model or by the caller, not by the runner."""
        return self.source in (Source.MODEL, Source.USER)

    @property
    def is_call(self) -> bool:
        """A call of a tool or of a handoff: it needs an output."""
        return self.kind in (ItemKind.TOOL_CALL, ItemKind.HANDOFF_CALL)

    @property
    def is_output(self) -> bool:
        """The output of a call of a tool or of a handoff."""
        return self.kind in (ItemKind.TOOL_OUTPUT, ItemKind.HANDOFF_OUTPUT)

    @property
    def is_handoff(self) -> bool:
        """A call that hands the run over. No tool runs for it."""
        return self.kind == ItemKind.HANDOFF_CALL

    def for_model(self) -> Item:
        """The same item, of the kind that it has on the wire: models know no others."""
        kind = _WIRE_KINDS.get(self.kind)
        return self if kind is None else replace(self, kind=kind)

    @property
    def call_id(self) -> str:
        """The id that binds a call to its output; "" for other items."""
        return _text(self.wire.get("call_id"))

    @property
    def call(self) -> ToolCall:
        """The call that a TOOL_CALL or HANDOFF_CALL item holds."""
        return ToolCall(self.call_id, _text(self.wire.get("name")), _text(self.wire.get("arguments")))

    @property
    def output(self) -> str:
        """The text of a TOOL_OUTPUT item."""
        value = self.wire.get("output")
        return value if isinstance(value, str) else _joined(value, "text")

    @property
    def text(self) -> str:
        """The text of a message, without refusals; "" for other items."""
        content = self.wire.get("content")
        return content if isinstance(content, str) else _joined(content, "text")

    @property
    def refusal(self) -> str | None:
        """The words of a refusal in a message, or None."""
        content = self.wire.get("content")
        if self.kind != ItemKind.MESSAGE or isinstance(content, str) or not isinstance(content, Sequence):
            return None
        refusals = [part for part in content if isinstance(part, Mapping) and part.get("type") == "refusal"]
        return "\n".join(_text(part.get("refusal")) for part in refusals) if refusals else None


def from_wire(raw: str, source: Source = Source.MODEL) -> Item:
    """An item from wire JSON, kept as it is. Raises JsonError if it is no object or has no `type`.

    Only in a type that the runtime knows, NUL and lone surrogates are replaced: every strict service would
    refuse them in later requests.
    """
    value = _read(raw)
    kind = _KINDS.get(_text(value.get("type")), ItemKind.UNKNOWN)
    if not _text(value.get("type")):
        raise JsonError("an item needs a `type`")
    if kind != ItemKind.UNKNOWN and (any(mark in raw for mark in _SUSPECT) or clean_text(raw) != raw):
        raw = dump(clean(value))
    if clean_text(raw) != raw:
        raise JsonError("an item holds NUL or half a surrogate pair as it is, not as an escape")
    return Item(kind=kind, raw=raw, source=source)


def user_message(text: str) -> Item:
    """What a person says, as an item."""
    return _message("user", "input_text", text, Source.USER)


def assistant_message(text: str, source: Source = Source.MODEL) -> Item:
    """What an assistant says, as an item."""
    return _message("assistant", "output_text", text, source)


def function_call(call_id: str, name: str, arguments: str) -> Item:
    """A tool call, as an item. `arguments` is the raw text."""
    wire = {"type": "function_call", "call_id": call_id, "name": name, "arguments": clean_text(arguments)}
    return Item(kind=ItemKind.TOOL_CALL, raw=dump(wire))


def function_output(
    call_id: str, text: str, *, is_error: bool = False, display: Display | None = None
) -> Item:
    """A call's output, as an item. The one place where a tool's text becomes part of a conversation."""
    wire = {"type": "function_call_output", "call_id": call_id, "output": clean_text(text)}
    return Item(
        kind=ItemKind.TOOL_OUTPUT, raw=dump(wire), source=Source.RUNNER, is_error=is_error, display=display
    )


def _message(role: str, part: str, text: str, source: Source) -> Item:
    content = {"type": part, "text": clean_text(text)}
    if part == "output_text":
        content = {**content, "annotations": []}  # type: ignore[dict-item]
    raw = dump({"type": "message", "role": role, "content": [content]})
    return Item(kind=ItemKind.MESSAGE, raw=raw, source=source)


def _read(raw: str) -> Mapping[str, JSON]:
    # Read as the provider's own clients read it: an item is not ours to be strict about, arguments are.
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise JsonError(f"an item is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise JsonError("an item is not a JSON object")
    return value


def _joined(parts: object, key: str) -> str:
    if not isinstance(parts, Sequence) or isinstance(parts, str):
        return ""
    return "".join(_text(part.get(key)) for part in parts if isinstance(part, Mapping))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
