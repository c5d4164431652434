"""Pieces of JSON as the adapters read and write them. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from runtime.errors import ModelError
from runtime.schema import JSON, dump, members

SIGNATURE = "thinking_signature:"
REDACTED = "redacted_thinking:"
FOREIGN_BLOCK = "anthropic_block"
"""Wire type of an item that holds a content block which the Responses format has no item for, as it came."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


_STRICT = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)


def load(text: str) -> Any:
    """A JSON value. Raises ValueError for what is none, NaN and numbers that are too large included.

    What is read with this can be written again.
    """
    try:
        return _STRICT.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def sendable_name(name: str) -> str:
    """A tool's name as services accept it: a model may call what does not exist, by any name."""
    return name if _NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name, flags=re.ASCII)[:64] or "_"


def sendable_id(call_id: str) -> str:
    """A call's id as services accept it; ids that differ stay different."""
    if _NAME.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def body(parts: Mapping[str, str], extra: Mapping[str, JSON]) -> bytes:
    """A JSON object from members whose values are JSON text already: what came verbatim leaves verbatim."""
    return object_text({**parts, **{key: dump(value) for key, value in extra.items()}}).encode()


def object_text(parts: Mapping[str, str]) -> str:
    """A JSON object from members whose values are JSON text already."""
    return "{" + ",".join(f"{dump(key)}:{value}" for key, value in parts.items()) + "}"


def answer(text: str, service: str) -> dict[str, tuple[JSON, str]]:
    """The members of the JSON object that a service answered with: value, and its text as it came."""
    try:
        found = {key: (value, raw) for key, value, raw in members(text)}
        load(text)  # in one piece, strictly: nothing behind the object, and no NaN
        return found
    except ValueError as error:
        raise ModelError(
            f"{service}: the service answered with something else than JSON: {error}", transient=True
        ) from None


def member(value: JSON, *path: str) -> JSON:
    """A value deep in JSON objects; None where the path leads nowhere."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def count(value: JSON, *path: str) -> int:
    """A whole number deep in JSON objects; 0 where there is none."""
    found = member(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def text(value: JSON, *path: str) -> str:
    """A string deep in JSON objects; "" where there is none."""
    found = member(value, *path)
    return found if isinstance(found, str) else ""
