"""JSON with comments and trailing commas, as devcontainer.json is written."""

from __future__ import annotations

import json
import re
from typing import Any

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_LAST_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_VISIBLE = re.compile(r"[^\n]")


class JsoncError(ValueError):
    """The text is not JSON with comments. `line` and `column` count from 1."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


def loads(text: str) -> Any:
    """Read a text; positions in it stay as they are, so that an error can name one. Raises JsoncError."""
    text = text.removeprefix("\ufeff")
    plain = _COMMENTS.sub(lambda found: _blank(text, found), text)
    plain = _LAST_COMMAS.sub(lambda found: " " if found[0] == "," else found[0], plain)
    try:
        return json.loads(plain, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise JsoncError(error.msg[:1].lower() + error.msg[1:], error.lineno, error.colno) from None
    except RecursionError:
        raise JsoncError("nested too deeply", 1, 1) from None
    except _Unfit as error:
        at = plain.find(error.word)
        raise JsoncError(str(error), *_position(plain, max(at, 0))) from None


class _Unfit(ValueError):
    def __init__(self, problem: str, word: str) -> None:
        super().__init__(problem)
        self.word = word


def _blank(text: str, found: re.Match[str]) -> str:
    if found[0] == "/*":
        raise JsoncError("a comment begins here and does not end", *_position(text, found.start()))
    return found[0] if found[0].startswith('"') else _VISIBLE.sub(" ", found[0])


def _position(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Unfit(f"{key!r} is given twice in one object", json.dumps(key))
        found[key] = value
    return found


def _no_constant(word: str) -> Any:
    raise _Unfit(f"{word} is no JSON value", word)
