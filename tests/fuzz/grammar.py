"""Writes nasty shell: templates that hold templates, then a few accidents of a careless writer.

A script is made from a `random.Random` alone, so a seed and a number name it for ever. Nothing in it
depends on time, process ids or the order of background output; it writes only below the directory
that it starts in, and ends by itself (but for rare accidents, which end at the timeout on both sides).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Literal

from fuzz import templates

Dialect = Literal["bash", "dash", "ash"]

_HOLE = re.compile("«([a-z]+)»")
_DEPTH = 5
_CONTROLS = "".join(chr(n) for n in (*range(1, 10), *range(11, 13), *range(14, 32), 127))
_ACCIDENT_TEXTS = (
    "'", '"', "`", "$(", ")", "(", "{", "}", "((", "))", "[[", "]]", ";", ";;", "&", "&&", "||", "|", "|&",
    "<<E", "<<<", "<(", ">(", ">&", "\\", "\\\n", "\n", "\t", "\r", "#", " # ", "!", "$", "${", "fi", "done",
    "esac", "then", "do", "in", "if ", "case x in", "for i", "function ", "\x1b]0;x\x07", "\u00e9", "\u2028",
    "\udcff", "\udcc3", "\x01", "\x04", "\x0c", "\x7f", "=", "x=", "*", "~", "@", "^", "exit", "return ",
)  # fmt: skip


def script(rng: random.Random, dialect: Dialect) -> str:
    """One script. Bytes that are not UTF-8 stand in it as lone surrogates, as Python reads them."""
    return Writer(rng, dialect).script()


class Writer:
    """Fills templates of one dialect from one source of choices."""

    def __init__(self, rng: random.Random, dialect: Dialect) -> None:
        self._rng = rng
        self._tables = templates.tables(dialect)
        self._depth = 0
        self._special: dict[str, Callable[[], str]] = {
            "int": lambda: str(rng.choice((0, 1, 2, 3, 7, 8, 10, 42, 127, 128, 255, 256, -1))),
            "bytes": self._bytes,
            "long": lambda: rng.choice(("x", "ab ", "'", "\\\\", "é")) * rng.choice((1, 500, 5_000, 12_000)),
            "block": lambda: self._statements(rng.randint(1, 3)),
            "ctl": lambda: rng.choice(_CONTROLS),
        }

    def script(self) -> str:
        """A script of a few statements, sometimes none, sometimes very many, with accidents."""
        rng = self._rng
        shape = rng.random()
        if shape < 0.02:
            return rng.choice(("", "\n", "#", "# only a comment", " \t\n\n", "\\", "\\\n", ";", "\r\n", ":"))
        if shape < 0.03:
            text = "\n".join(f"echo {n} «word»" for n in range(rng.choice((200, 1_500))))
            return self.fill(text)
        text = self._statements(rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12)))
        text += rng.choice(("", "\n", "\n", "\n\n", " ", ";", "\n# end", " # end", "\n\t"))
        while rng.random() < 0.22:
            text = self._accident(text)
        return text

    def fill(self, template: str) -> str:
        """The template with every hole filled."""
        return _HOLE.sub(lambda found: self._hole(found[1]), template)

    def _hole(self, name: str) -> str:
        if name in self._special and (name != "block" or self._depth < _DEPTH):
            return self._nested(self._special[name])
        table = self._tables.get(name, [":"])
        if self._depth >= _DEPTH:
            table = [each for each in table if "«" not in each] or [":"]
        return self._nested(lambda: self.fill(self._rng.choice(table)))

    def _nested(self, make: Callable[[], str]) -> str:
        self._depth += 1
        try:
            return make()
        finally:
            self._depth -= 1

    def _statements(self, count: int) -> str:
        parts = [self._hole("stmt") for _ in range(count)]
        out = parts[0]
        for part in parts[1:]:
            # A heredoc's end must stand alone, and a comment hides what follows.
            joint = (
                "\n"
                if "<<" in out or "#" in out
                else self._rng.choice(("\n", "\n", "\n", "; ", "\n\n", " \n"))
            )
            out += joint + part
        return out

    def _bytes(self) -> str:
        rng = self._rng
        raw = bytes(
            rng.choice((rng.randint(1, 255), rng.randint(128, 255))) for _ in range(rng.randint(1, 6))
        )
        # Kept out: a newline, quotes and what could join into an option or a path of other files.
        return raw.translate(None, b"\n'\"`$\\/;&|()<>*?[]~").decode("utf-8", "surrogateescape")

    def _accident(self, text: str) -> str:
        rng = self._rng
        if "kill" in text:  # a damaged `kill` may name another process
            return text + rng.choice(("\\", " #", "\n)", "\r\n", "\n'", "\nfi"))
        at = rng.randint(0, len(text))
        kind = rng.randrange(8)
        if kind == 0:
            return text[:at]
        if kind == 1:
            return text[:at] + text[at + rng.choice((1, 1, 2, 5)) :]
        if kind == 2:
            return text.replace("\n", "\r\n")
        if kind == 3:
            return text + rng.choice(
                ("\\", "\\\n", "\n\\", " &", "\n&", " |", " &&", "\n}", "\n)", "\n;;", "\n<<E")
            )
        if kind == 4:
            return text.replace(" ", "\t") if rng.random() < 0.5 else text.replace("\n", "\n\n")
        return text[:at] + rng.choice(_ACCIDENT_TEXTS) + text[at:]
