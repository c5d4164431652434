"""Decodes the arguments of a call: strict, but for the ways in which models say "unused". Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from runtime.schema import JSON, JsonError, load_object
from runtime.tools import BadArguments

QUOTE_LIMIT = 80
"""How many characters of a name or value a refusal repeats."""


class Arguments:
    """The JSON object of one call, read field by field. A refusal is BadArguments that names the field."""

    def __init__(self, text: str, known: Sequence[str], ignored: Sequence[str] = ()) -> None:
        try:
            self._fields = load_object(text)
        except JsonError as error:
            raise BadArguments(f"the arguments are {error}. Send one JSON object.") from None
        unknown = [name for name in self._fields if name not in known and name not in ignored]
        if unknown:
            raise BadArguments(
                f"{_quote(unknown[0])} is no argument of this tool; it takes {', '.join(known)}"
            )

    def text(self, name: str) -> str:
        """A string that must be there."""
        value = self._fields.get(name)
        if type(value) is not str:
            raise BadArguments(f"{name} must be a string, not {_kind(value)}")
        return _plain(name, value)

    def optional_text(self, name: str) -> str:
        """A string, or "" for what stands for "unused": nothing, null, 0 and false."""
        value = self._fields.get(name)
        if value is None or value is False or (type(value) is int and value == 0):
            return ""
        if type(value) is not str:
            raise BadArguments(
                f"{name} must be a string, not {_kind(value)}; leave it empty if it is not needed"
            )
        return _plain(name, value)

    def whole_number(self, name: str) -> int:
        """0 or more; null and nothing are 0."""
        value = self.integer(name)
        if value < 0:
            raise BadArguments(f"{name} must be 0 or more, not {_quote(str(value))}")
        return value

    def integer(self, name: str) -> int:
        """A whole number; null and nothing are 0."""
        value = self._fields.get(name)
        if value is None:
            return 0
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise BadArguments(f"{name} must be a whole number, not {_kind(value)}")
        return value

    def flag(self, name: str) -> bool:
        """True or false; null, 0 and nothing are false."""
        value = self._fields.get(name)
        if value is None or (type(value) is int and value == 0):
            return False
        if type(value) is not bool:
            raise BadArguments(f"{name} must be true or false, not {_kind(value)}")
        return value

    def seconds(self, name: str, default: float, most: float, what: str = "timeout") -> tuple[float, str]:
        """A time in seconds, and a sentence if it was changed. 0 or less, null, nothing: the default."""
        value = self._fields.get(name)
        if value is None:
            return default, ""
        if type(value) not in (int, float) or (isinstance(value, float) and not math.isfinite(value)):
            raise BadArguments(f"{name} must be a number of seconds, not {_kind(value)}")
        assert isinstance(value, int | float)
        if value <= 0:
            return default, ""
        if value > most:
            return most, f"the {what} was lowered to the limit of {most:g} s"
        return float(value), ""


def object_schema(properties: Mapping[str, JSON]) -> dict[str, JSON]:
    """A strict schema: every property is required, and no other is taken."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _plain(name: str, value: str) -> str:
    if "\0" in value:
        raise BadArguments(f"{name} must not hold a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadArguments(f"{name} holds half of a surrogate pair, which is no character") from None
    return value


def _kind(value: object) -> str:
    if value is None:
        return "missing or null"
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _quote(f"the number {value}")
    return {"str": "a string", "list": "an array", "dict": "an object"}.get(type(value).__name__, "this")


def _quote(text: str) -> str:
    return text if len(text) <= QUOTE_LIMIT else text[:QUOTE_LIMIT] + "..."
