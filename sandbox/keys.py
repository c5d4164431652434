"""What a terminal can take of what is typed. A terminal that hands over whole lines holds so much of one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox.backend import Backend, Process
from sandbox.values import START_TIMEOUT_S, SpawnRequest

MAX_LINE_BYTES = 4095
"""How much of a line Linux keeps while a program reads whole lines (n_tty.c); what is more is dropped."""

_DRAIN_ENDS_S = 2.0
# The first of the shell's descriptors that is its terminal; bash keeps one for itself, as number 255.
_PROBE = "for fd in 0 1 2 255; do stty -a </proc/$1/fd/$fd 2>/dev/null && break; done"
_DRAIN = f"{_PROBE} >/dev/null; cat </proc/$1/fd/$fd >/dev/null & read -r line; kill $!"


@dataclass(frozen=True, slots=True)
class Mode:
    """How a terminal takes what is typed.

    whole_lines  it hands over whole lines (canonical mode); else bytes as they come
    ends         the bytes that end a line, or drop what was typed of it
    """

    whole_lines: bool = True
    ends: bytes = b"\n\r\x03\x04\x15\x1a\x1c"


def ask_mode(backend: Backend, pid: int) -> Mode:
    """The mode of the terminal of a shell, by its pid in its place; the usual one if it cannot tell."""
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", _PROBE, "sh", str(pid)]))
    try:
        return read_mode(_read_to_end(process, START_TIMEOUT_S).decode("utf-8", "replace"))
    finally:
        process.close()


@contextmanager
def drained(backend: Backend, pid: int) -> Iterator[None]:
    """Meanwhile, what was typed and is not read by the program is read beside it, and dropped.

    A terminal that is full of lines takes no key any more, Ctrl-C neither."""
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", _DRAIN, "sh", str(pid)]))
    try:
        yield
    finally:
        process.close_stdin()
        _read_to_end(process, _DRAIN_ENDS_S)
        process.close()


def _read_to_end(process: Process, limit_s: float) -> bytes:
    said, until_s = b"", time.monotonic() + limit_s
    while time.monotonic() < until_s:
        chunk = process.read(0.05)
        said += chunk.stdout
        if chunk.eof:
            break
    return said


def read_mode(said: str) -> Mode:
    """The mode from the words of `stty -a`."""
    words = set(re.findall(r"-?[a-z]+", said))
    if not words & {"icanon", "-icanon"}:
        return Mode()
    keys = {name: _key(text) for name, text in re.findall(r"(\w+) = ([^;]+);", said)}
    used = ["eof", "eol", "eol2", "kill"] + (["intr", "quit", "susp"] if "isig" in words else [])
    ends = b"\n" + (b"\r" if "icrnl" in words else b"") + b"".join(keys.get(name, b"") for name in used)
    return Mode("icanon" in words, ends)


def _key(text: str) -> bytes:
    if len(text) == 2 and text[0] == "^":
        return bytes([ord(text[1]) ^ 0x40])
    return text.encode() if len(text) == 1 and text.isascii() else b""


def after_interrupts(data: bytes) -> list[bytes]:
    """What is typed, cut behind each Ctrl-C: whether the program is still there then has to be seen."""
    return re.findall(rb"[^\x03]*\x03|[^\x03]+", data)


def lines(data: bytes, ends: bytes) -> list[bytes]:
    """The pieces of what is typed, each up to and with a byte that ends it; the last may have no end."""
    return re.findall(b"[^%b]*[%b]|[^%b]+" % ((re.escape(ends),) * 3), data)


def too_long(data: bytes, ends: bytes) -> int:
    """The length, in bytes and without its end, of the longest line; 0 if all can be held."""
    longest = max((len(line.rstrip(ends)) for line in lines(data, ends)), default=0)
    return longest if longest > MAX_LINE_BYTES else 0


def unfinished(data: bytes) -> bytes:
    """The line that is begun at the end of what was typed, as much of it as matters."""
    return data[data.rfind(b"\n") + 1 :][-MAX_LINE_BYTES - 1 :]


def before_long_line(data: bytes, ends: bytes) -> bytes:
    """What may be typed at once where bytes are handed over as they come.

    A program that gets a line may go over to whole lines while it works on that (a REPL does): a long line
    has to wait until it is known how the next one is read."""
    taken = b""
    for line in lines(data, ends):
        if taken and len(line) > MAX_LINE_BYTES:
            break
        taken += line
    return taken
