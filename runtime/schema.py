"""JSON values as text: strict reading, one canonical form, and text that any wire accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias

JSON: TypeAlias = "None | bool | int | float | str | Sequence[JSON] | Mapping[str, JSON]"
"""A JSON value. NaN and the infinities are floats that JSON does not have; `dump` refuses them."""

QUOTE_LIMIT_BYTES = 200
"""How much of a wrong text an error message repeats."""


class JsonError(ValueError):
    """The text is not the JSON that is asked for. The message is short and fit for a model."""


def clean_text(text: str) -> str:
    """The same text without what strict services and stores refuse.

    NUL becomes U+2400, the picture of it; a lone surrogate becomes U+FFFD. Pairs of surrogates that belong
    together become the character they stand for.
    """
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(value: JSON) -> JSON:
    """`clean_text` on every string and key of a JSON value."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean_text(key): clean(part) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [clean(part) for part in value]
    return value


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dump(value: JSON) -> str:
    """Compact JSON text in the order given. Raises ValueError for NaN and TypeError for what is not JSON."""
    return _ENCODER.encode(value)


def canonical(value: JSON) -> str:
    """The one text of a value: keys sorted, no spaces, ASCII. Equal values have equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def load_object(text: str) -> dict[str, JSON]:
    """Read one JSON object strictly. Empty text and `null` read as `{}`.

    Raises JsonError for anything else that is not an object, for duplicate keys, for NaN and the infinities,
    for nesting that is too deep, and for trailing text.
    """
    if text.strip() in ("", "null"):
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise JsonError(
            f"not valid JSON: {error.msg} at character {error.pos}, near {_near(text, error.pos)}"
        ) from None
    except RecursionError:
        raise JsonError("not valid JSON: nested too deep") from None
    except JsonError:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise JsonError(f"not valid JSON: {error}") from None
    if "\\ud" in text.lower() and clean(value) != value:
        raise JsonError("not valid JSON: a string holds half a surrogate pair, or NUL beside one")
    if not isinstance(value, dict):
        raise JsonError(f"a JSON object is needed, not {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """What JSON calls a value: "an array", "a string", ..."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "an array"


def members(text: str, start: int = 0) -> Iterator[tuple[str, JSON, str]]:
    """Each member of the JSON object at `start`: key, value, and the value's text exactly as it stands there.

    Raises JsonError if no object starts there or it is broken.
    """
    position = _expect(text, start, "{")
    if text[position : position + 1] == "}":
        return
    while True:
        key, _, position = _value(text, position)
        if not isinstance(key, str):
            raise JsonError("not valid JSON: a key is not a string")
        value, raw, position = _value(text, _expect(text, position, ":"))
        yield key, value, raw
        if text[position : position + 1] == "}":
            return
        position = _expect(text, position, ",")


def elements(text: str, start: int = 0) -> Iterator[tuple[JSON, str]]:
    """Each element of the JSON array at `start`: value, and its text exactly as it stands there."""
    position = _expect(text, start, "[")
    if text[position : position + 1] == "]":
        return
    while True:
        value, raw, position = _value(text, position)
        yield value, raw
        if text[position : position + 1] == "]":
            return
        position = _expect(text, position, ",")


_DECODER = json.JSONDecoder()


def _value(text: str, position: int) -> tuple[JSON, str, int]:
    try:
        value, end = _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        raise JsonError(f"not valid JSON near {_near(text, position)}: {error}") from None
    return value, text[position:end], _skip(text, end)


def _expect(text: str, position: int, token: str) -> int:
    position = _skip(text, position)
    if text[position : position + 1] != token:
        raise JsonError(f"not valid JSON: {token!r} is missing near {_near(text, position)}")
    return _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\n", "\r"):
        position += 1
    return position


def _near(text: str, position: int) -> str:
    piece = text[max(0, position - 20) : position + 20]
    return repr(clean_text(piece))[:QUOTE_LIMIT_BYTES]


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JsonError(f"the key {clean_text(double[:QUOTE_LIMIT_BYTES])!r} is given twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"not valid JSON: {name} is not a JSON number")
