"""Results as the text that a model reads. Pure.

The model's view is cleaned and bounded here, once: control sequences go, what was drawn over goes, and what
is too long loses its middle. The SDK's results keep every byte.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codetools.redraws import settled
from sandbox.values import ExecResult, Output, ShellResult, Spilled, Survivor

STREAM_LIMIT_BYTES = 8192
"""How much of one stream, as UTF-8, the model is shown."""
HEAD_SHARE = 0.6
"""Which part of that is taken from the front; the rest is from the end."""
LINE_END_CHARACTERS = 512
"""How near a line end must be for a cut to be made there; never more than a quarter of what is shown."""
ERROR_LINE_LIMIT = 300
"""How many characters of a dropped error line are shown."""

Keep = Callable[[Output], Spilled | None]
"""Tells where all of an output is that is shown in part, and keeps it if that is nowhere yet."""

_HIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ERROR_LINE = re.compile(
    r"error|fail|fatal|exception|panic|traceback|abort|denied|cannot|not found|no such|undefined|killed",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """Text that is no output, for a model or a person: nothing that it holds is acted on or left out.

    CRLF is a line end, tabs stay, and every other control character, escapes and lone carriage returns
    among them, is U+FFFD: what would be hidden on a terminal shows that it is there."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def printed(text: str) -> str:
    """Output for a model: what a person would see of it in the end, without colours; no control character."""
    return _CONTROLS.sub("\ufffd", settled(text))


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
    """Keep at most limit_bytes of UTF-8, head and tail, never half a character. 0 or less: keep all.

    A cut is made at a line end if one is near."""
    data = text.encode()
    if limit_bytes <= 0 or len(data) <= limit_bytes:
        return Cut(text)
    head_bytes = int(limit_bytes * HEAD_SHARE)
    head, tail = _first(text, head_bytes), _last(text, limit_bytes - head_bytes)
    return Cut(head, tail, len(data) - len(head.encode()) - len(tail.encode()))


def bounded(text: str, limit_bytes: int = STREAM_LIMIT_BYTES) -> str:
    """Clean text, cut to its limit, with a line that tells what is missing."""
    return _joined(cut(text, limit_bytes), [])


def stream(output: Output, limit_bytes: int = STREAM_LIMIT_BYTES, keep: Keep | None = None) -> str:
    """One captured stream as the model sees it: cleaned, bounded, with its last error line always in it.

    keep  asked for the whole of what is shown in part, so that the text can name it"""
    if output.dropped_bytes:
        piece, lost = _around_gap(output.at_characters(), limit_bytes)
    else:
        text = printed(_decode(output.data))
        piece = cut(text, limit_bytes)
        lost = text[len(piece.head) : len(text) - len(piece.tail)]
    if not piece.dropped_bytes:
        return piece.head
    spilled = keep(output) if keep is not None else output.spilled
    return _joined(piece, [*_whereabouts(spilled), *_lost_error(lost, piece)])


def _around_gap(output: Output, limit_bytes: int) -> tuple[Cut, str]:
    """What is shown of a stream that lost its middle when it was captured, and what else is dropped of it."""
    head, tail = printed(_decode(output.head)), printed(_decode(output.tail))
    head_limit = int(limit_bytes * HEAD_SHARE)
    front = _first(head, head_limit) if limit_bytes > 0 else head
    back = _last(tail, limit_bytes - head_limit) if limit_bytes > 0 else tail
    lost = head[len(front) :] + "\n" + tail[: len(tail) - len(back)]
    return Cut(front, back, output.dropped_bytes + len(lost.encode()) - 1), lost


def _whereabouts(spilled: Spilled | None) -> list[str]:
    if spilled is None:
        return []
    if not spilled.handle:
        return [f"they could not be kept: {clean(spilled.problem)}"]
    if spilled.problem:
        part = f"the first {spilled.size_bytes} bytes ({clean(spilled.problem)})"
        return [f"read_output shows {part}, handle {spilled.handle}"]
    return [f"read_output shows everything, handle {spilled.handle}"]


def exec_text(
    result: ExecResult, timeout_s: float, notes: Sequence[str] = (), keep: Keep | None = None
) -> str:
    """What the model reads about one program that was run to its end. `keep`: see `stream`."""
    lines = _status(result.exit_code, result.timed_out, timeout_s, result.survivors)
    lines += notes
    outputs = (("stdout", result.stdout_output), ("stderr", result.stderr_output))
    return _with_blocks(lines, [(name, stream(output, keep=keep)) for name, output in outputs])


def shell_text(
    result: ShellResult, name: str, timeout_s: float, notes: Sequence[str] = (), keep: Keep | None = None
) -> str:
    """What the model reads about one command in a named shell. `keep`: see `stream`."""
    lines = _status(result.exit_code, result.timed_out, timeout_s, result.survivors)
    if result.notice:
        lines.append(f"notice: {clean(result.notice)}")
    if result.ended:
        lines.append(f"the shell {name!r} has ended; its next use opens a new one")
    if result.cwd:
        lines.append(f"directory: {clean(result.cwd)}")
    lines += notes
    return _with_blocks(lines, [("output", stream(result.captured, keep=keep))])


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


def _first(text: str, limit_bytes: int) -> str:
    """The beginning of a text, at most so many bytes, up to a line end if one is near."""
    kept = text.encode()[:limit_bytes].decode("utf-8", "ignore")
    end = kept.rfind("\n", len(kept) - min(LINE_END_CHARACTERS, len(kept) // 4)) + 1
    return kept[:end] if 0 < end < len(kept) < len(text) else kept


def _last(text: str, limit_bytes: int) -> str:
    data = text.encode()
    kept = data[max(0, len(data) - limit_bytes) :].decode("utf-8", "ignore")
    if len(kept) == len(text) or text[-len(kept) - 1 :].startswith("\n"):
        return kept
    end = kept.find("\n", 0, min(LINE_END_CHARACTERS, len(kept) // 4)) + 1
    return kept[end:]


def _lost_error(lost: str, piece: Cut) -> list[str]:
    """The last line about an error, if it is among what was dropped."""
    if any(_ERROR_LINE.search(line) for line in piece.tail.split("\n")[1:]):
        return []
    found = [line for line in lost.split("\n") if _ERROR_LINE.search(line)]
    line = found[-1].strip() if found else ""
    shown = line if len(line) <= ERROR_LINE_LIMIT else line[:ERROR_LINE_LIMIT] + "..."
    return [f"last error line among them: {shown}"] if shown else []


def _joined(piece: Cut, remarks: Sequence[str]) -> str:
    if not piece.dropped_bytes:
        return piece.head + piece.tail
    about = "; ".join([f"{piece.dropped_bytes} bytes dropped", *remarks])
    head = piece.head + ("" if piece.head.endswith("\n") or not piece.head else "\n")
    return f"{head}[... {about} ...]\n{piece.tail}"
