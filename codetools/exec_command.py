"""exec_command: runs a shell command in the sandbox, alone or in a named shell that stays."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable
from dataclasses import dataclass

from codetools.arguments import Arguments, object_schema
from codetools.failures import backend_failures, directory_of
from codetools.policy import Policy
from codetools.render import clean, exec_text, exit_words, shell_text
from codetools.shells import in_directory
from runtime.schema import JSON
from runtime.tools import BadArguments, Tool, ToolContext, ToolFailed, ToolResult, Verdict
from sandbox import ExecResult, FileError, Sandbox, ShellResult
from sandbox.values import StreamName

DEFAULT_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 600.0
CAPTURE_LIMIT_BYTES = 1 << 20
LINE_LIMIT = 4096
"""How many characters of an unfinished line are held back from those who watch."""

DESCRIPTION = """\
Run a shell command and return its exit code and output. Runs under bash where the place has it, else sh. \
Long output loses its middle. A command that reads input finds it empty."""
SESSION_DESCRIPTION = """ \
With session_id, the command runs in a shell of that name that keeps its directory, variables and functions \
for the next command; without, each command starts fresh."""


@dataclass(frozen=True, slots=True)
class ExecArguments:
    """One call. `timeout_note` tells of a timeout that was lowered."""

    cmd: str
    workdir: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    session_id: str = ""
    timeout_note: str = ""


def exec_command(sandbox: Sandbox, policy: Policy, shells: bool) -> Tool[ExecArguments]:
    """The tool. `policy` is asked about each command; `shells` offers named shells."""

    def check(arguments: ExecArguments) -> Verdict:
        elsewhere = bool(arguments.workdir or arguments.session_id)
        return policy.check(arguments.cmd, directory_of(sandbox) if policy.paths else "", elsewhere)

    def run(context: ToolContext, arguments: ExecArguments) -> ToolResult:
        verdict = check(arguments)
        if verdict.decision == "deny":
            return ToolResult(
                text=verdict.reason, is_error=True, details={**_details(arguments), "refused": True}
            )
        return _run(sandbox, context, arguments)

    return Tool(
        name="exec_command",
        description=DESCRIPTION + (SESSION_DESCRIPTION if shells else ""),
        parameters=_schema(shells),
        parse=lambda text: parse_arguments(text, shells),
        run=run,
        check=check,
        preview=_preview,
    )


def parse_arguments(text: str, shells: bool) -> ExecArguments:
    """Decode a call's arguments, or BadArguments. Without shells a session_id is decoded and ignored."""
    arguments = Arguments(
        text,
        ("cmd", "workdir", "timeout_seconds", "session_id")
        if shells
        else ("cmd", "workdir", "timeout_seconds"),
        ignored=("session_id",),
    )
    cmd = arguments.text("cmd")
    if not cmd.strip():
        raise BadArguments("cmd is empty; give a command to run")
    session_id = arguments.optional_text("session_id")
    timeout_s, note = arguments.seconds("timeout_seconds", DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)
    return ExecArguments(
        cmd, arguments.optional_text("workdir"), timeout_s, session_id if shells else "", note
    )


def _schema(shells: bool) -> dict[str, JSON]:
    properties: dict[str, JSON] = {
        "cmd": {"type": "string", "description": "The command, as text for the shell."},
        "workdir": {
            "type": "string",
            "description": "Directory to run in; empty for the working directory of the place.",
        },
        "timeout_seconds": {
            "type": "number",
            "description": f"Seconds until it is killed; 0: {DEFAULT_TIMEOUT_S:g}, at most {MAX_TIMEOUT_S:g}",
        },
    }
    if shells:
        properties["session_id"] = {
            "type": "string",
            "description": "Name of a shell to run in, opened on first use; empty for a fresh one.",
        }
    return object_schema(properties)


def _preview(arguments: ExecArguments) -> str:
    lines = [arguments.cmd]
    if arguments.workdir:
        lines.append(f"in {arguments.workdir}")
    if arguments.session_id:
        lines.append(f"shell {arguments.session_id}")
    return clean("\n".join(lines))


def _run(sandbox: Sandbox, context: ToolContext, arguments: ExecArguments) -> ToolResult:
    progress = LineProgress(context.emit)
    notes = [arguments.timeout_note] if arguments.timeout_note else []
    with backend_failures():
        try:
            result = _execute(sandbox, context, arguments, progress)
        except FileError as error:
            raise ToolFailed(f"workdir {arguments.workdir}: {error.reason}") from error
        finally:
            progress.flush()
    if isinstance(result, ShellResult):
        text = shell_text(result, arguments.session_id, arguments.timeout_s, notes)
    else:
        text = exec_text(result, arguments.timeout_s, notes)
    return ToolResult(
        text=text,
        details={**_details(arguments), **_facts(result)},
        title=_title(arguments.cmd),
        summary=_summary(result),
    )


def _execute(
    sandbox: Sandbox, context: ToolContext, arguments: ExecArguments, progress: LineProgress
) -> ExecResult | ShellResult:
    if arguments.session_id:
        return sandbox.shell(arguments.session_id).run(
            in_directory(arguments.cmd, arguments.workdir),
            timeout_s=arguments.timeout_s,
            limit_bytes=CAPTURE_LIMIT_BYTES,
            on_output=progress,
            cancel=context.cancelled,
        )
    return sandbox.exec(
        arguments.cmd,
        cwd=arguments.workdir or None,
        timeout_s=arguments.timeout_s,
        limit_bytes=CAPTURE_LIMIT_BYTES,
        on_output=progress,
        cancel=context.cancelled,
    )


def _details(arguments: ExecArguments) -> dict[str, JSON]:
    return {"command": arguments.cmd, "session_id": arguments.session_id}


def _facts(result: ExecResult | ShellResult) -> dict[str, JSON]:
    return {
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "duration_s": round(result.duration_s, 3),
        "survivors": [survivor.pid for survivor in result.survivors],
    }


def _title(command: str) -> str:
    first, _, rest = clean(command).strip().partition("\n")
    return first[:120] + (" ..." if rest or len(first) > 120 else "")


def _summary(result: ExecResult | ShellResult) -> str:
    if result.timed_out:
        return f"timed out after {result.duration_s:.1f} s"
    code = "still running" if result.exit_code is None else f"exit {exit_words(result.exit_code)}"
    return f"{code} in {result.duration_s:.1f} s"


class LineProgress:
    """Passes output on to those who watch, in whole lines, cleaned; one lock for both streams."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._decoders: dict[StreamName, codecs.IncrementalDecoder] = {}
        self._rest: dict[StreamName, str] = {}

    def __call__(self, stream: StreamName, data: bytes) -> None:
        """Take the next bytes of a stream."""
        with self._lock:
            decoder = self._decoders.setdefault(stream, codecs.getincrementaldecoder("utf-8")("replace"))
            text = self._rest.get(stream, "") + decoder.decode(data)
            end = text.rfind("\n") + 1
            # A line that never ends must not grow without a bound, nor hide from those who watch.
            if not end and len(text) > LINE_LIMIT:
                end = len(text)
            self._rest[stream] = text[end:]
            self._send(text[:end])

    def flush(self) -> None:
        """Send what is left of unfinished lines."""
        with self._lock:
            for stream, decoder in self._decoders.items():
                self._send(self._rest.pop(stream, "") + decoder.decode(b"", final=True))
                decoder.reset()

    def _send(self, text: str) -> None:
        shown = clean(text)
        if shown:
            self._emit(shown)
