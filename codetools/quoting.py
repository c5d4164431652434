"""What bash makes of quotes and escapes. Pure; nothing is expanded."""

from __future__ import annotations

import re

UNKNOWN = "${_}"
"""Stands for a piece that is known only when the command runs."""


def unquoted(source: str) -> tuple[str, bool, bool]:
    plain = re.sub(r"\\\n", "", source)
    bare = re.sub(r"\\.", "", plain, flags=re.DOTALL)
    text = re.sub(r"\\(.)", r"\1", plain, flags=re.DOTALL)
    dynamic = any(mark in bare for mark in "`\"'") or re.search(r"\$.", bare) is not None
    pattern = (
        bare.startswith("~")
        or any(mark in bare for mark in "*?[")
        or ("{" in bare and "}" in bare and len(bare) > 2)
    )
    return text, dynamic, pattern


def in_double_quotes(source: str) -> str:
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], source)


_ANSI_C = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|(?P<oct>[0-7]{1,3})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})"
    r"|c(?P<ctrl>.)|(?P<one>.))",
    re.DOTALL,
)
_ANSI_C_NAMES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def decode_ansi_c(body: str) -> tuple[str, bool]:
    """The text of `$'body'`, and whether it could not be told for certain (bytes above 127, NUL)."""
    doubtful = False

    def one(match: re.Match[str]) -> str:
        nonlocal doubtful
        digits = match["hex"] or match["u"] or match["U"]
        if match["ctrl"] is not None:
            doubtful = True
            return UNKNOWN
        if match["one"] is not None:
            return _ANSI_C_NAMES.get(match["one"], match[0])
        code = int(digits, 16) if digits else int(match["oct"], 8) & 0xFF
        if code == 0 or code > 127:
            doubtful = True
            return UNKNOWN
        return chr(code)

    return _ANSI_C.sub(one, body), doubtful
