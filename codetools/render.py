"""Results as the text that a model reads. Pure.

The model's view is cleaned and bounded here, once: control sequences go, overwritten progress frames go, and
what is too long loses its middle. The SDK's results keep every byte.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.values import ExecResult, Output, ShellResult, Survivor

STREAM_LIMIT_BYTES = 8192
"""How much of one stream, as UTF-8, the model is shown."""
HEAD_SHARE = 0.6
"""Which part of that is taken from the front; the rest is from the end."""
ERROR_LINE_LIMIT = 300
"""How many characters of a dropped error line are shown."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\n\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC and other strings; never over a line's end
    r"|\x1b[ -/]*[0-~]"  # short escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
)
_OVERSTRIKE = re.compile(r"[^\n\x08]\x08")
_CONTROLS = re.compile(r"[\x00-\x06\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_HIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")
_ERROR_LINE = re.compile(
    r"error|fail|fatal|exception|panic|traceback|abort|denied|cannot|not found|no such|undefined|killed",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """Text for a model: no control sequences, no overwritten frames, no character that a wire refuses.

    CRLF is a line end. A carriage return elsewhere goes back to the start of its line, and what was there
    before is gone. Other control characters become U+FFFD, but tabs and line ends stay and bells vanish.
    """
    text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    text = text.replace("\x07", "")
    if "\x08" in text:
        text = _OVERSTRIKE.sub("", text)
    return _CONTROLS.sub("\ufffd", text)


def visible(line: str) -> str:
    """One line of a file for a model: tabs stay, other controls and undecodable bytes are U+FFFD."""
    return _HIDDEN.sub("\ufffd", line)


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that lost its middle: head, tail, and how many bytes of UTF-8 are missing between them."""

    head: str
    tail: str = ""
    dropped_bytes: int = 0


def cut(text: str, limit_bytes: int) -> Cut:
    """Keep at most limit_bytes of UTF-8, head and tail, never half a character. 0 or less: keep all."""
    data = text.encode()
    if limit_bytes <= 0 or len(data) <= limit_bytes:
        return Cut(text)
    head_bytes = int(limit_bytes * HEAD_SHARE)
    head = data[:head_bytes].decode("utf-8", "ignore")
    tail = data[len(data) - (limit_bytes - head_bytes) :].decode("utf-8", "ignore")
    return Cut(head, tail, len(data) - len(head.encode()) - len(tail.encode()))


def bounded(text: str, limit_bytes: int = STREAM_LIMIT_BYTES) -> str:
    """Clean text, cut to its limit, with a line that tells what is missing."""
    return _joined(cut(text, limit_bytes), "")


def stream(output: Output, limit_bytes: int = STREAM_LIMIT_BYTES) -> str:
    """One captured stream as the model sees it: cleaned, bounded, with its last error line always in it."""
    if not output.dropped_bytes:
        text = clean(_decode(output.data))
        piece = cut(text, limit_bytes)
        return _joined(piece, _lost_error(text[len(piece.head) : len(text) - len(piece.tail)], piece))
    head = clean(_decode(_whole_characters(output.head)))
    tail = clean(_decode(_from_character(output.tail)))
    head_limit = int(limit_bytes * HEAD_SHARE) if limit_bytes > 0 else 0
    front = _first(head, head_limit)
    back = _last(tail, limit_bytes - head_limit if limit_bytes > 0 else 0)
    lost = len(head.encode()) - len(front.encode()) + len(tail.encode()) - len(back.encode())
    piece = Cut(front, back, output.dropped_bytes + lost)
    return _joined(piece, _lost_error(head[len(front) :] + "\n" + tail[: len(tail) - len(back)], piece))


def exec_text(result: ExecResult, timeout_s: float, notes: Sequence[str] = ()) -> str:
    """What the model reads about one program that was run to its end."""
    lines = _status(result.exit_code, result.timed_out, timeout_s, result.survivors)
    lines += notes
    blocks = [("stdout", stream(result.stdout_output)), ("stderr", stream(result.stderr_output))]
    return _with_blocks(lines, blocks)


def shell_text(result: ShellResult, name: str, timeout_s: float, notes: Sequence[str] = ()) -> str:
    """What the model reads about one command in a named shell."""
    lines = _status(result.exit_code, result.timed_out, timeout_s, result.survivors)
    if result.notice:
        lines.append(f"notice: {clean(result.notice)}")
    if result.ended:
        lines.append(f"the shell {name!r} has ended; its next use opens a new one")
    if result.cwd:
        lines.append(f"directory: {clean(result.cwd)}")
    lines += notes
    return _with_blocks(lines, [("output", stream(result.captured))])


def exit_words(code: int) -> str:
    """An exit code, with the signal's name where it stands for one: `137 (SIGKILL)`."""
    if 128 < code < 128 + 32:
        try:
            return f"{code} ({signal.Signals(code - 128).name})"
        except ValueError:
            return str(code)
    return str(code)


def _status(code: int | None, timed_out: bool, timeout_s: float, survivors: Sequence[Survivor]) -> list[str]:
    lines = []
    if timed_out:
        lines.append(f"timed out after {timeout_s:g} s; the command was killed")
    lines.append("still running" if code is None else f"exit code: {exit_words(code)}")
    if survivors:
        names = ", ".join(f"{s.pid} ({clean(s.name)})" for s in survivors)
        lines.append(f"could not be killed and may still run: {names}")
    return lines


def _with_blocks(lines: list[str], blocks: Sequence[tuple[str, str]]) -> str:
    shown = [(name, text) for name, text in blocks if text]
    if not shown:
        lines.append("(no output)")
    for name, text in shown:
        strange = text.count("\ufffd")
        about = f" ({strange} characters that are no text are shown as \ufffd)" if strange else ""
        lines.append(f"{name}{about}:\n{text.removesuffix(chr(10))}")
    return "\n".join(lines)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _whole_characters(data: bytes) -> bytes:
    """Without the part of a character that the cut left at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < needed else data
        if byte < 0x80:
            break
    return data


def _from_character(data: bytes) -> bytes:
    """Without the part of a character that the cut left at the start."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]


def _first(text: str, limit_bytes: int) -> str:
    return text if limit_bytes <= 0 else text.encode()[:limit_bytes].decode("utf-8", "ignore")


def _last(text: str, limit_bytes: int) -> str:
    data = text.encode()
    return text if limit_bytes <= 0 else data[max(0, len(data) - limit_bytes) :].decode("utf-8", "ignore")


def _lost_error(lost: str, piece: Cut) -> str:
    """The last line about an error, if it is among what was dropped."""
    if not piece.dropped_bytes or any(_ERROR_LINE.search(line) for line in piece.tail.split("\n")[1:]):
        return ""
    found = [line for line in lost.split("\n") if _ERROR_LINE.search(line)]
    line = found[-1].strip() if found else ""
    return line if len(line) <= ERROR_LINE_LIMIT else line[:ERROR_LINE_LIMIT] + "..."


def _joined(piece: Cut, error_line: str) -> str:
    if not piece.dropped_bytes:
        return piece.head + piece.tail
    about = f"; last error line among them: {error_line}" if error_line else ""
    return f"{piece.head}\n[... {piece.dropped_bytes} bytes dropped{about} ...]\n{piece.tail}"
