"""read_file, write_file and list_files."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from codetools.arguments import Arguments, object_schema
from codetools.failures import backend_failures, directory_of
from codetools.patch_plan import BOM, FileLine, split_lines
from codetools.policy import Policy
from codetools.render import bounded, clean, visible
from codetools.write_lock import holding
from runtime.tools import BadArguments, Tool, ToolContext, ToolResult, Verdict
from sandbox import FileEntry, Sandbox

PAGE_LIMIT_BYTES = 16 << 10
"""How much of a file one page holds, its header included."""
BINARY_LOOK_BYTES = 8192
"""A NUL among the first bytes makes a file binary."""
PREVIEW_LIMIT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """One call of read_file. `offset` counts lines from 1; a `limit` of 0 means to the end."""

    path: str
    offset: int = 1
    limit: int = 0


@dataclass(frozen=True, slots=True)
class WriteArguments:
    """One call of write_file."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class ListArguments:
    """One call of list_files."""

    path: str = "."


def read_file(sandbox: Sandbox, policy: Policy) -> Tool[ReadArguments]:
    """The tool that shows a file, page by page, with line numbers."""

    def parse(text: str) -> ReadArguments:
        arguments = Arguments(text, ("path", "offset", "limit"))
        offset = arguments.whole_number("offset") or 1
        return ReadArguments(_path(arguments), offset, arguments.whole_number("limit"))

    def check(arguments: ReadArguments) -> Verdict:
        return policy.check_paths([arguments.path], "read", lambda: directory_of(sandbox))

    def run(_context: ToolContext, arguments: ReadArguments) -> ToolResult:
        if refusal := _refusal(check(arguments)):
            return refusal
        with backend_failures():
            data = sandbox.read_file(arguments.path)
        return ToolResult(
            text=page(data, arguments.offset, arguments.limit), title=f"read {visible(arguments.path)}"
        )

    return Tool(
        name="read_file",
        description="Show a text file with line numbers, page by page. The first line tells how to go on.",
        parameters=object_schema(
            {
                "path": {"type": "string", "description": "The file; relative to the working directory."},
                "offset": {"type": "integer", "description": "First line to show, from 1; 0 for the first."},
                "limit": {"type": "integer", "description": "How many lines; 0 for as many as fit."},
            }
        ),
        parse=parse,
        run=run,
        check=check,
        read_only=True,
    )


def write_file(sandbox: Sandbox, policy: Policy, lock: threading.Lock) -> Tool[WriteArguments]:
    """The tool that replaces or makes a file; it writes exactly what it is given."""

    def parse(text: str) -> WriteArguments:
        arguments = Arguments(text, ("path", "content"))
        return WriteArguments(_path(arguments), arguments.text("content"))

    def check(arguments: WriteArguments) -> Verdict:
        return policy.check_paths([arguments.path], "write", lambda: directory_of(sandbox))

    def run(context: ToolContext, arguments: WriteArguments) -> ToolResult:
        if refusal := _refusal(check(arguments)):
            return refusal
        data = arguments.content.encode()
        with holding(lock, context.cancelled), backend_failures():
            sandbox.write_file(arguments.path, data)
        done = f"wrote {len(data)} bytes to {visible(arguments.path)}"
        return ToolResult(text=done, details={"path": arguments.path, "bytes": len(data)}, title=done)

    return Tool(
        name="write_file",
        description="Replace a file with exactly this text, or make it, with its parent directories.",
        parameters=object_schema(
            {
                "path": {"type": "string", "description": "The file; relative to the working directory."},
                "content": {"type": "string", "description": "The whole new content."},
            }
        ),
        parse=parse,
        run=run,
        check=check,
        preview=lambda a: f"write {visible(a.path)}:\n{bounded(clean(a.content), PREVIEW_LIMIT_BYTES)}",
    )


def list_files(sandbox: Sandbox, policy: Policy) -> Tool[ListArguments]:
    """The tool that shows what is in a directory."""

    def parse(text: str) -> ListArguments:
        return ListArguments(Arguments(text, ("path",)).optional_text("path") or ".")

    def check(arguments: ListArguments) -> Verdict:
        return policy.check_paths([arguments.path], "read", lambda: directory_of(sandbox))

    def run(_context: ToolContext, arguments: ListArguments) -> ToolResult:
        if refusal := _refusal(check(arguments)):
            return refusal
        with backend_failures():
            entries = sandbox.list_dir(arguments.path)
        return ToolResult(text=listing(entries), title=f"list {visible(arguments.path)}")

    return Tool(
        name="list_files",
        description="Show what is in a directory: name, kind and size, one entry a line.",
        parameters=object_schema(
            {"path": {"type": "string", "description": "The directory; empty for '.'."}}
        ),
        parse=parse,
        run=run,
        check=check,
        read_only=True,
    )


def page(data: bytes, offset: int = 1, limit: int = 0, budget_bytes: int = PAGE_LIMIT_BYTES) -> str:
    """Lines offset to offset+limit-1 of a file, numbered, in at most budget_bytes of UTF-8 with the header.

    The header tells which lines these are and where to go on. A BOM is not shown. A NUL near the start makes
    a file "binary (n bytes)". A single line that is too long is cut, and the page ends with it.
    """
    if b"\0" in data[:BINARY_LOOK_BYTES]:
        return f"binary ({len(data)} bytes)"
    if not data:
        return "the file is empty (0 bytes)"
    text = data.decode("utf-8", "surrogateescape")
    lines = list(split_lines(text.removeprefix(BOM)))
    total = len(lines)
    if offset > total:
        return f"lines 0-0 of {total}: line {offset} is past the end"
    last = total if limit <= 0 else min(total, offset + limit - 1)
    remarks = _remarks(text, lines)
    return _filled(lines, offset, last, remarks, budget_bytes)


def _filled(lines: list[FileLine], offset: int, last: int, remarks: str, budget_bytes: int) -> str:
    total, width = len(lines), len(str(last))
    # The longest header that this page can get is set aside before any line is taken.
    room = budget_bytes - len(_header(last, last, total, "budget", remarks).encode())
    taken: list[str] = []
    for number in range(offset, last + 1):
        row = f"{number:>{width}}\t{visible(lines[number - 1].text)}"
        size = len(row.encode()) + 1
        if size > room and not taken:
            kept = row.encode()[: max(room - len(_CUT) - 1, 0)].decode("utf-8", "ignore")
            taken.append(kept + _CUT.decode())
            room = 0
        elif size > room:
            break
        else:
            taken.append(row)
            room -= size
        if room <= 0:
            break
    end = offset + len(taken) - 1
    why = "" if end == total else "limit" if end == last else "budget"
    return "\n".join([_header(offset, end, total, why, remarks), *taken])


_CUT = b" [... line cut ...]"


def _header(first: int, last: int, total: int, why: str, remarks: str) -> str:
    more = {
        "": "",
        "limit": f"; go on with offset {last + 1}",
        "budget": f"; the page is full, go on with offset {last + 1}",
    }[why]
    return f"lines {first}-{last} of {total}{more}{remarks}"


def _remarks(text: str, lines: list[FileLine]) -> str:
    """What the lines do not show: line ends, and bytes that are no text."""
    crlf = sum(line.end == "\r\n" for line in lines)
    said = ""
    if crlf:
        every = crlf >= sum(bool(line.end) for line in lines)
        said += " (lines end with CRLF)" if every else " (some lines end with CRLF)"
    strange = sum("\udc80" <= char <= "\udcff" for char in text) if not text.isascii() else 0
    if strange:
        said += f" (not UTF-8: {strange} bytes are shown as U+FFFD)"
    if lines and not lines[-1].end:
        said += " (no line end at the end of the file)"
    return said


def listing(entries: list[FileEntry]) -> str:
    """Entries by name, one a line, bounded."""
    if not entries:
        return "(the directory is empty)"
    rows = [_row(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    return bounded("\n".join(rows))


def _row(entry: FileEntry) -> str:
    name = visible(entry.name)
    if entry.kind == "file":
        return f"{name}\tfile\t{entry.size_bytes} bytes"
    return f"{name}{'/' if entry.kind == 'directory' else ''}\t{entry.kind}"


def _path(arguments: Arguments) -> str:
    path = arguments.text("path")
    if not path:
        raise BadArguments("path is empty; give the name of a file")
    return path


def _refusal(verdict: Verdict) -> ToolResult | None:
    if verdict.decision != "deny":
        return None
    return ToolResult(text=verdict.reason, is_error=True, details={"refused": True})
