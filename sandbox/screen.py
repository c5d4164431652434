"""The screen of a terminal, rendered from the bytes a program printed. The one user of pyte."""

from __future__ import annotations

import pyte

from sandbox.values import PtySize


class _Screen(pyte.Screen):
    """pyte passes `private` to handlers that do not take it (CSI > 4 ; 2 m, which vim sends)."""

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


def render(data: bytes, size: PtySize) -> str:
    """What a person would see after these bytes, without trailing blanks; a lone newline is a whole one."""
    screen = _Screen(size.columns, size.rows)
    screen.set_mode(pyte.modes.LNM)
    pyte.ByteStream(screen).feed(data)
    return "\n".join(line.rstrip() for line in screen.display).rstrip("\n")
