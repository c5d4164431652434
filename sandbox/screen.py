"""What a terminal shows: what was printed on it since the last look is kept, and rendered when asked for."""

from __future__ import annotations

import threading

from sandbox.emulator import Emulator
from sandbox.values import PtySize

KEPT_BYTES = 256 * 1024
"""How much output is kept for a look at the screen. Of a text that scrolls, more is never needed."""
_ALTERNATE = tuple(f"\x1b[?{mode}".encode() for mode in (1049, 1047, 47))


class Screen:
    """The screen of one terminal. Thread-safe.

    Rendering is slow and output is fast, so output is only kept until somebody looks; what is older than the
    last 256 KiB is dropped then. A program that fills the whole screen changes it bit by bit, so nothing of
    its output may be missing: once that is so much, it is rendered instead.
    """

    def __init__(self, size: PtySize) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._emulator = Emulator(size)
        self._kept = bytearray()
        self._alternate = False
        self._blank = True

    def restart(self) -> None:
        """A new command: an empty screen."""
        with self._lock:
            if not self._blank:
                self._emulator, self._alternate, self._blank = Emulator(self._size), False, True
            self._kept.clear()

    def feed(self, data: bytes) -> None:
        """Take what was printed."""
        with self._lock:
            self._kept += data
            if len(self._kept) > 2 * KEPT_BYTES:
                self._shorten()

    def resize(self, size: PtySize) -> None:
        """The terminal has another size from here on."""
        with self._lock:
            self._render()
            self._size = size
            self._emulator.resize(size)

    def text(self) -> str:
        """What a person would see: no colours, no blanks at ends of lines, no empty lines at the end."""
        with self._lock:
            self._render()
            return self._emulator.text()

    def _shorten(self) -> None:
        end = len(self._kept) - 1  # the byte that says which way, too, must be there
        last = max((self._kept.rfind(start, 0, end), start) for start in _ALTERNATE)
        if last[0] >= 0:
            after = last[0] + len(last[1])
            self._alternate = self._kept[after : after + 1] == b"h"
            self._blank = False
        if self._alternate:
            self._render()
            return
        line = self._kept.find(b"\n", len(self._kept) - KEPT_BYTES) + 1
        del self._kept[: line or len(self._kept) - KEPT_BYTES]
        self._emulator = Emulator(self._size)

    def _render(self) -> None:
        self._blank = False
        self._emulator.feed(bytes(self._kept))
        self._kept.clear()
