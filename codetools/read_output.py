"""read_output: shows parts of an output that was too long to be shown whole, and searches in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from codetools.arguments import Arguments, object_schema
from codetools.failures import backend_failures
from codetools.render import clean, printed
from runtime.tools import BadArguments, Tool, ToolContext, ToolResult
from sandbox import Output, RequestError, Spilled, SpillStore
from sandbox.spill_read import Line
from sandbox.spill_search import compiled
from sandbox.values import unfinished_bytes

PAGE_LIMIT_BYTES = 16 << 10
"""How much one result shows, as UTF-8, its first line included."""
RAW_LIMIT_BYTES = 1 << 20
"""How much of an output is looked at for one page of lines: progress bars shrink to almost nothing."""
MATCHES = 50
"""How many matching lines a search shows unless the call says otherwise."""
CONTEXT_LIMIT = 50
_HEADER_BYTES = 256
_MANY = 1 << 40

Mode = Literal["lines", "tail", "bytes", "search", "regex"]
MODES: tuple[Mode, ...] = get_args(Mode)

DESCRIPTION = """\
Show a part of a long output by the handle that a result names. Modes: lines (numbered, from offset on), \
tail (the last lines), bytes (a range of bytes), search (the lines that hold a text), regex (the lines that \
match a regular expression, RE2). The first line of the result tells how to go on."""


@dataclass(frozen=True, slots=True)
class ReadOutputArguments:
    """One call. 0 stands for the default of `offset`, `count` and `context`."""

    handle: str
    mode: Mode = "lines"
    offset: int = 0
    count: int = 0
    pattern: str = ""
    context: int = 0


class Outputs:
    """Keeps the whole of what a result shows in part (see render.Keep), and the handles that it told."""

    def __init__(self, store: SpillStore | None) -> None:
        self.handles: list[str] = []
        self._store = store

    def __call__(self, output: Output) -> Spilled | None:
        spilled = output.spilled
        if spilled is None and self._store is not None and not output.dropped_bytes:
            spilled = self._store.add(output.data)
        if spilled is not None and spilled.handle:
            self.handles.append(spilled.handle)
        return spilled


def read_output(store: SpillStore) -> Tool[ReadOutputArguments]:
    """The tool over one store."""

    def run(_context: ToolContext, arguments: ReadOutputArguments) -> ToolResult:
        with backend_failures():
            text = _SHOWN[arguments.mode](store, arguments)
        return ToolResult(
            text=text,
            details={"handle": arguments.handle, "mode": arguments.mode},
            title=f"read output {clean(arguments.handle)}",
        )

    return Tool(
        name="read_output",
        description=DESCRIPTION,
        parameters=object_schema(
            {
                "handle": {"type": "string", "description": "The handle, as a result named it."},
                "mode": {"type": "string", "enum": list(MODES), "description": "What to show; see above."},
                "offset": {
                    "type": "integer",
                    "description": "lines, search, regex: first line, from 1; bytes: first byte, from 0. "
                    "lines, bytes: negative counts from the end. 0 for the start.",
                },
                "count": {"type": "integer", "description": "How many lines, bytes, matches; 0: what fits."},
                "pattern": {"type": "string", "description": "search, regex: what to look for; else empty."},
                "context": {"type": "integer", "description": "search, regex: lines around each; 0: none."},
            }
        ),
        parse=parse_arguments,
        run=run,
        read_only=True,
    )


def parse_arguments(text: str) -> ReadOutputArguments:
    """Decode a call's arguments, or BadArguments."""
    arguments = Arguments(text, ("handle", "mode", "offset", "count", "pattern", "context"))
    handle = arguments.text("handle").strip()
    if not handle:
        raise BadArguments("handle is empty; give the handle that a result named")
    mode = arguments.optional_text("mode") or "lines"
    if mode not in MODES:
        raise BadArguments(f"mode must be one of {', '.join(MODES)}, not {mode[:80]!r}")
    pattern = arguments.optional_text("pattern")
    offset = arguments.integer("offset")
    if mode in ("search", "regex"):
        if offset < 0:
            raise BadArguments(f"offset must be 0 or more for mode {mode}: the line that it begins with")
        try:
            compiled(pattern, regex=mode == "regex", ignore_case=False)
        except RequestError as error:
            raise BadArguments(str(error)) from None
    elif pattern:
        raise BadArguments(f"pattern is for the modes search and regex, not for {mode}; leave it empty")
    context = min(arguments.whole_number("context"), CONTEXT_LIMIT)
    return ReadOutputArguments(handle, mode, offset, arguments.whole_number("count"), pattern, context)


# -- lines ----------------------------------------------------------------------------------------


def _lines(store: SpillStore, arguments: ReadOutputArguments) -> str:
    count = arguments.count or _MANY
    got = store.read_lines(arguments.handle, arguments.offset or 1, count, limit_bytes=RAW_LIMIT_BYTES)
    if not got.lines:
        return _past_the_end(arguments.offset, got.total)
    rows = _filled(_numbered(got.lines), cut_at="end")
    last = got.lines[len(rows) - 1].number
    more = "" if last == got.total else f"; go on with offset {last + 1}"
    return "\n".join([f"lines {got.lines[0].number}-{last} of {got.total}{more}", *rows])


def _past_the_end(offset: int, total: int) -> str:
    if not total:
        return "the output is empty"
    return f"line {offset} is past the end; the output has {total} lines"


def _tail(store: SpillStore, arguments: ReadOutputArguments) -> str:
    got = store.tail(arguments.handle, arguments.count or _MANY, limit_bytes=RAW_LIMIT_BYTES)
    if not got.lines:
        return _past_the_end(0, got.total)
    rows = _filled(_numbered(got.lines[::-1]), cut_at="start")[::-1]
    return "\n".join([f"lines {got.total - len(rows) + 1}-{got.total} of {got.total}", *rows])


def _numbered(lines: Iterable[Line]) -> Iterable[str]:
    return (f"{line.number}\t{_shown(line)}" for line in lines)


def _shown(line: Line) -> str:
    """A line as the model sees it, with what is missing of it."""
    text = _one_line(line.data)
    before = f"[... {line.cut_before} bytes ...] " if line.cut_before else ""
    after = "" if not line.cut_after else " [... more ...]" if line.cut_after < 0 else _more(line.cut_after)
    return f"{before}{text}{after}"


def _more(count: int) -> str:
    return f" [... {count} bytes ...]"


def _one_line(data: bytes) -> str:
    """What is left to see of one line; rows that a cursor made below it follow behind it."""
    rows = printed(data.decode("utf-8", "replace")).split("\n")
    return " ".join([rows[0], *(row.strip() for row in rows[1:] if row.strip())])


def _filled(rows: Iterable[str], cut_at: Literal["start", "end"]) -> list[str]:
    """As many rows as a page holds; one that is too long for it alone is cut."""
    room = PAGE_LIMIT_BYTES - _HEADER_BYTES
    taken: list[str] = []
    for row in rows:
        data = row.encode()
        if len(data) + 1 > room and not taken:
            number, _, text = row.partition("\t")
            kept = text.encode()[: room - 64] if cut_at == "end" else text.encode()[64 - room :]
            shown = kept.decode("utf-8", "ignore")
            missing = len(text.encode()) - len(shown.encode())
            part = f"{shown}{_more(missing)}" if cut_at == "end" else f"[... {missing} bytes ...] {shown}"
            return [f"{number}\t{part}"]
        if len(data) + 1 > room:
            return taken
        taken.append(row)
        room -= len(data) + 1
    return taken


# -- bytes ----------------------------------------------------------------------------------------


def _bytes(store: SpillStore, arguments: ReadOutputArguments) -> str:
    size = store.size_bytes(arguments.handle)
    most = PAGE_LIMIT_BYTES - _HEADER_BYTES
    start = arguments.offset if arguments.offset >= 0 else max(0, size + arguments.offset)
    data = store.read_bytes(arguments.handle, start, min(arguments.count or most, most))
    if not data:
        return f"byte {start} is past the end; the output has {size} bytes" if size else "the output is empty"
    start, data = _at_characters(start, data, size)
    text = clean(data.decode("utf-8", "replace"))
    if len(text.encode()) > most:
        # What is no text takes three bytes a byte.
        start, data = _at_characters(start, data[: most // 3], size)
        text = clean(data.decode("utf-8", "replace"))
    end = start + len(data)
    more = "" if end >= size else f"; go on with offset {end}"
    return f"bytes {start}-{end - 1} of {size}{more}\n{text}"


def _at_characters(start: int, data: bytes, size: int) -> tuple[int, bytes]:
    """The same range without halves of characters at its ends, unless there is nothing else in it."""
    first = 0
    while start and first < min(3, len(data)) and 0x80 <= data[first] < 0xC0:
        first += 1
    last = len(data) - (unfinished_bytes(data) if start + len(data) < size else 0)
    return (start + first, data[first:last]) if first < last else (start, data)


# -- search ---------------------------------------------------------------------------------------


def _search(store: SpillStore, arguments: ReadOutputArguments) -> str:
    found = store.search(
        arguments.handle,
        arguments.pattern,
        regex=arguments.mode == "regex",
        first=max(1, arguments.offset),
        context=arguments.context,
        most=arguments.count or MATCHES,
        limit_bytes=4 * PAGE_LIMIT_BYTES,
        view=_as_seen,
    )
    if not found.lines:
        where = f" from line {arguments.offset} on" if arguments.offset > 1 else ""
        return f"no line matches{where}"
    rows = _filled(_grepped(found.lines), cut_at="end")
    shown = found.lines[: len(rows)]
    matches = sum(line.matches for line in shown)
    next_line = found.next_line
    if len(shown) < len(found.lines):
        next_line = next(line.number for line in found.lines[len(shown) :] if line.matches)
    lines = "1 line matches" if matches == 1 else f"{matches} lines match"
    more = f"; there are more, go on with offset {next_line}" if next_line else ""
    return "\n".join([f"{lines}{more}", *rows])


def _grepped(lines: Sequence[Line]) -> Iterable[str]:
    return (f"{line.number}{':' if line.matches else '-'}\t{_shown(line)}" for line in lines)


_REDRAWN = re.compile(rb"[\x08\x1b]|\r(?!\n)|\xc2\x9b")


def _as_seen(block: bytes) -> bytes:
    """Lines as the model is shown them, so that it finds what it has seen."""
    if _REDRAWN.search(block) is None:
        return block
    lines = block.split(b"\n")
    return b"\n".join(_one_line(line).encode() if _REDRAWN.search(line) else line for line in lines)


_SHOWN = {"lines": _lines, "tail": _tail, "bytes": _bytes, "search": _search, "regex": _search}
