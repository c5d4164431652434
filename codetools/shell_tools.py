"""write_stdin, poll and interrupt: a model at work with a program that was left running in a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codetools.arguments import Arguments, object_schema
from codetools.failures import backend_failures, directory_of
from codetools.policy import Policy
from codetools.read_output import Outputs
from codetools.render import bounded, clean, exit_words, shell_text
from runtime.schema import JSON
from runtime.tools import BadArguments, Tool, ToolContext, ToolFailed, ToolResult, Verdict
from sandbox import RequestError, Sandbox, Shell, ShellResult, SpillStore

MAX_WAIT_S = 600.0
WRITE_WAIT_S = 1.0
POLL_WAIT_S = 5.0
INTERRUPT_WAIT_S = 3.0

_SESSION = "Name of the shell that the command was left running in."
WRITE_DESCRIPTION = """\
Type into a command that exec_command left running (yield_seconds), then return what it printed. The text is \
typed as it is: end a line with \\n. \\u0003 is Ctrl-C, \\u0004 at the start of a line is end of input."""
POLL_DESCRIPTION = """\
Return what a command that was left running has printed since the last look, or its exit code once it has \
ended. With screen, show the terminal's screen as well: for programs that fill it."""
INTERRUPT_DESCRIPTION = """\
Press Ctrl-C for a command that was left running, and return what it printed and whether it ended. The shell \
stays."""

_UNSURE = "what is typed into a running program means what that program makes of it"


@dataclass(frozen=True, slots=True)
class SessionArguments:
    """One call about a shell. `note` tells of a wait that was lowered."""

    session_id: str
    wait_s: float
    text: str = ""
    screen: bool = False
    note: str = ""


def shell_tools(
    sandbox: Sandbox, policy: Policy, spill: SpillStore | None = None
) -> list[Tool[SessionArguments]]:
    """The three tools. `policy` is asked about what is typed; `spill` keeps what is too long to be shown."""
    look = _Look(spill)
    return [_write_stdin(sandbox, policy, look), _poll(sandbox, look), _interrupt(sandbox, look)]


def check_typing(policy: Policy, text: str, directory: str = "") -> Verdict:
    """The verdict about typing a text into a program that may be a shell.

    A policy that says nothing allows it. Else a line that would be refused as a command is refused, and the
    rest is asked about, unless a rule names `write_stdin`, as if that were a program.
    """
    if policy.empty:
        return Verdict("allow")
    # Keys that edit the line may take away what stands before them: what follows is a line of its own here.
    as_command = policy.check(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\n", text), directory, elsewhere=True)
    if as_command.decision == "deny":
        return Verdict("deny", f"typed into a shell, {as_command.reason}", as_command.rule)
    named = policy.check("write_stdin", elsewhere=True)
    return named if named.rule else Verdict("ask", _UNSURE)


def _write_stdin(sandbox: Sandbox, policy: Policy, look: _Look) -> Tool[SessionArguments]:
    def check(arguments: SessionArguments) -> Verdict:
        return check_typing(policy, arguments.text, directory_of(sandbox) if policy.paths else "")

    def run(context: ToolContext, arguments: SessionArguments) -> ToolResult:
        verdict = check(arguments)
        if verdict.decision == "deny":
            details: dict[str, JSON] = {"session_id": arguments.session_id, "refused": True}
            return ToolResult(text=verdict.reason, is_error=True, details=details)
        with backend_failures():
            shell = _running(sandbox, arguments.session_id)
            notes = [arguments.note] if arguments.note else []
            notes += _type(shell, arguments.text.encode())
            return look(shell, context, arguments, notes, f"type into {arguments.session_id}")

    properties = _properties(WRITE_WAIT_S)
    properties["text"] = {"type": "string", "description": "What to type, with its line ends."}
    return Tool(
        name="write_stdin",
        description=WRITE_DESCRIPTION,
        parameters=object_schema(properties),
        parse=_parse_write,
        run=run,
        check=check,
        preview=lambda arguments: _preview(sandbox, arguments),
        sequential=True,
    )


def _poll(sandbox: Sandbox, look: _Look) -> Tool[SessionArguments]:
    def run(context: ToolContext, arguments: SessionArguments) -> ToolResult:
        with backend_failures():
            shell = _running(sandbox, arguments.session_id)
            notes = [arguments.note] if arguments.note else []
            return look(shell, context, arguments, notes, f"poll {arguments.session_id}")

    properties = _properties(POLL_WAIT_S)
    properties["screen"] = {"type": "boolean", "description": "Show the terminal's screen as well."}
    return Tool(
        name="poll",
        description=POLL_DESCRIPTION,
        parameters=object_schema(properties),
        parse=_parse_poll,
        run=run,
        read_only=True,
    )


def _interrupt(sandbox: Sandbox, look: _Look) -> Tool[SessionArguments]:
    def run(context: ToolContext, arguments: SessionArguments) -> ToolResult:
        with backend_failures():
            shell = _running(sandbox, arguments.session_id)
            shell.interrupt()
            notes = [arguments.note] if arguments.note else []
            return look(shell, context, arguments, notes, f"interrupt {arguments.session_id}")

    return Tool(
        name="interrupt",
        description=INTERRUPT_DESCRIPTION,
        parameters=object_schema(_properties(INTERRUPT_WAIT_S)),
        parse=lambda text: _parse(Arguments(text, ("session_id", "wait_seconds")), INTERRUPT_WAIT_S),
        run=run,
        sequential=True,
    )


def _properties(wait_s: float) -> dict[str, JSON]:
    return {
        "session_id": {"type": "string", "description": _SESSION},
        "wait_seconds": {
            "type": "number",
            "description": f"Seconds to wait for the command's end; 0: {wait_s:g}, at most {MAX_WAIT_S:g}",
        },
    }


def _parse(arguments: Arguments, wait_s: float, text: str = "", screen: bool = False) -> SessionArguments:
    session_id = arguments.text("session_id")
    if not session_id.strip():
        raise BadArguments("session_id is empty; give the name of the shell that the command runs in")
    seconds, note = arguments.seconds("wait_seconds", wait_s, MAX_WAIT_S, "wait")
    return SessionArguments(session_id, seconds, text, screen, note)


def _parse_write(text: str) -> SessionArguments:
    arguments = Arguments(text, ("session_id", "text", "wait_seconds"))
    typed = arguments.text("text")
    if not typed:
        raise BadArguments("text is empty; poll looks without typing")
    return _parse(arguments, WRITE_WAIT_S, typed)


def _parse_poll(text: str) -> SessionArguments:
    arguments = Arguments(text, ("session_id", "screen", "wait_seconds"))
    return _parse(arguments, POLL_WAIT_S, screen=arguments.flag("screen"))


def _preview(sandbox: Sandbox, arguments: SessionArguments) -> str:
    command = next((info.command for info in sandbox.shells() if info.name == arguments.session_id), "")
    into = f", into: {clean(command)}" if command else ""
    return f"type in shell {clean(arguments.session_id)}{into}\n{visible_keys(arguments.text)}"


def visible_keys(text: str) -> str:
    """Typed text for a person: keys that are no characters are shown as ^C and the like, lines as lines."""
    return clean(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", lambda key: f"^{chr(ord(key[0]) ^ 64)}", text))


def _running(sandbox: Sandbox, name: str) -> Shell:
    """The shell, if a command runs in it; a name that is not open makes no shell."""
    running = [info.name for info in sandbox.shells() if info.state == "running"]
    if name not in running:
        others = f"; commands run in: {', '.join(running)}" if running else ""
        raise ToolFailed(
            f"no command is running in shell {name!r}{others}. Leave one running with exec_command and "
            "yield_seconds."
        )
    return sandbox.shell(name)


def _type(shell: Shell, data: bytes) -> list[str]:
    """Type all of it, a long line by itself (see Shell.write); a note if not all was taken."""
    taken, why = 0, "the program does not read them"
    try:
        while taken < len(data) and (count := shell.write(data[taken:])):
            taken += count
    except RequestError as error:
        if not taken:
            raise
        why = str(error)
    return [] if taken == len(data) else [f"only {taken} of {len(data)} bytes were taken: {why}"]


@dataclass(frozen=True, slots=True)
class _Look:
    """Polls, and words what came."""

    spill: SpillStore | None

    def __call__(
        self, shell: Shell, context: ToolContext, arguments: SessionArguments, notes: list[str], title: str
    ) -> ToolResult:
        outputs = Outputs(self.spill)
        result = shell.poll(arguments.wait_s, context.cancelled)
        text = shell_text(result, shell.name, arguments.wait_s, notes, outputs)
        if arguments.screen:
            # A shell that ended took its screen along.
            shown = bounded(clean(shell.screen()))
            text += f"\nscreen:\n{shown}" if shown else "\n(the screen is empty)"
        details: dict[str, JSON] = {
            "session_id": shell.name,
            "exit_code": result.exit_code,
            "running": result.running,
            "duration_s": round(result.duration_s, 3),
            "outputs": list(outputs.handles),
        }
        return ToolResult(text=text, details=details, title=title, summary=_summary(result))


def _summary(result: ShellResult) -> str:
    if result.exit_code is None:
        return f"still running after {result.duration_s:.1f} s"
    return f"exit {exit_words(result.exit_code)} after {result.duration_s:.1f} s"
