"""exec_command: runs a shell command in the sandbox, alone or in a named shell that stays."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable
from dataclasses import dataclass

from codetools.arguments import Arguments, object_schema
from codetools.failures import backend_failures, directory_of
from codetools.policy import Policy
from codetools.read_output import Outputs
from codetools.render import clean, exec_text, exit_words, printed, shell_text
from codetools.shells import in_directory
from runtime.schema import JSON
from runtime.tools import BadArguments, Tool, ToolContext, ToolFailed, ToolResult, Verdict
from sandbox import ExecResult, FileError, Sandbox, ShellResult, SpillStore
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
for the next command; without, each command starts fresh. With yield_seconds as well, a command that has not \
ended by then is left running, its input is the terminal, and it has no timeout: go on with poll, \
write_stdin and interrupt. The shell takes its next command once its end was told."""


@dataclass(frozen=True, slots=True)
class ExecArguments:
    """One call. `yield_s` 0: the command is waited for. `note` tells of a time that was lowered."""

    cmd: str
    workdir: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    session_id: str = ""
    yield_s: float = 0.0
    note: str = ""


def exec_command(
    sandbox: Sandbox, policy: Policy, shells: bool, spill: SpillStore | None = None
) -> Tool[ExecArguments]:
    """The tool. `policy` is asked about each command; `shells` offers named shells; `spill` keeps what is
    too long to be shown, for read_output."""

    def check(arguments: ExecArguments) -> Verdict:
        elsewhere = bool(arguments.workdir or arguments.session_id)
        return policy.check(arguments.cmd, directory_of(sandbox) if policy.paths else "", elsewhere)

    def run(context: ToolContext, arguments: ExecArguments) -> ToolResult:
        verdict = check(arguments)
        if verdict.decision == "deny":
            return ToolResult(
                text=verdict.reason, is_error=True, details={**_details(arguments), "refused": True}
            )
        return _run(sandbox, context, arguments, spill)

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
    """Decode a call's arguments, or BadArguments. What is about shells is ignored without them."""
    names = ("cmd", "workdir", "timeout_seconds")
    about_shells = ("session_id", "yield_seconds")
    arguments = Arguments(text, (*names, *about_shells) if shells else names, ignored=about_shells)
    cmd = arguments.text("cmd")
    if not cmd.strip():
        raise BadArguments("cmd is empty; give a command to run")
    session_id = arguments.optional_text("session_id")
    timeout_s, note = arguments.seconds("timeout_seconds", DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)
    yield_s, yield_note = arguments.seconds("yield_seconds", 0.0, MAX_TIMEOUT_S, "yield")
    workdir = arguments.optional_text("workdir")
    if not shells:
        return ExecArguments(cmd, workdir, timeout_s, note=note)
    if yield_s and not session_id:
        raise BadArguments(
            "yield_seconds needs a session_id: only a shell keeps a command that is left running"
        )
    return ExecArguments(cmd, workdir, timeout_s, session_id, yield_s, yield_note if yield_s else note)


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
        properties["yield_seconds"] = {
            "type": "number",
            "description": f"Seconds until it is left running; 0: never, at most {MAX_TIMEOUT_S:g}",
        }
    return object_schema(properties)


def _preview(arguments: ExecArguments) -> str:
    lines = [arguments.cmd]
    if arguments.workdir:
        lines.append(f"in {arguments.workdir}")
    if arguments.session_id:
        lines.append(f"shell {arguments.session_id}")
    if arguments.yield_s:
        lines.append(f"left running after {arguments.yield_s:g} s")
    return clean("\n".join(lines))


def _run(
    sandbox: Sandbox, context: ToolContext, arguments: ExecArguments, spill: SpillStore | None
) -> ToolResult:
    progress, outputs = LineProgress(context.emit), Outputs(spill)
    notes = [arguments.note] if arguments.note else []
    with backend_failures():
        try:
            result = _execute(sandbox, context, arguments, progress, spill)
        except FileError as error:
            raise ToolFailed(f"workdir {arguments.workdir}: {error.reason}") from error
        finally:
            progress.flush()
    if isinstance(result, ShellResult):
        if result.running:
            notes.append(f"go on with poll, write_stdin or interrupt, session_id {arguments.session_id!r}")
        text = shell_text(result, arguments.session_id, arguments.timeout_s, notes, outputs)
    else:
        text = exec_text(result, arguments.timeout_s, notes, outputs)
    return ToolResult(
        text=text,
        details={**_details(arguments), **_facts(result), "outputs": list(outputs.handles)},
        title=_title(arguments.cmd),
        summary=_summary(result),
    )


def _execute(
    sandbox: Sandbox,
    context: ToolContext,
    arguments: ExecArguments,
    progress: LineProgress,
    spill: SpillStore | None,
) -> ExecResult | ShellResult:
    if arguments.session_id:
        return sandbox.shell(arguments.session_id).run(
            in_directory(arguments.cmd, arguments.workdir),
            # One that is left running has no timeout; until then, it is waited for.
            timeout_s=MAX_TIMEOUT_S + 1 if arguments.yield_s else arguments.timeout_s,
            stdin_tty=bool(arguments.yield_s),
            yield_s=arguments.yield_s or None,
            limit_bytes=CAPTURE_LIMIT_BYTES,
            spill=spill,
            on_output=progress,
            cancel=context.cancelled,
        )
    return sandbox.exec(
        arguments.cmd,
        cwd=arguments.workdir or None,
        timeout_s=arguments.timeout_s,
        limit_bytes=CAPTURE_LIMIT_BYTES,
        spill=spill,
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
        shown = printed(text)
        if shown:
            self._emit(shown)
