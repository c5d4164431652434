"""What a person sees of a run while it goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.text import Text

from coderig.approvals import diff_style, show
from coderig.store import RunMeta
from coderig.terminal_io import Stream, console
from codetools.render import clean
from runtime import (
    ApprovalRequested,
    Item,
    ItemCreated,
    ItemKind,
    RunEvent,
    RunResult,
    RunState,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Usage,
)

SHOWN_LINES = 40
"""How many lines of one edit or one failure are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended for this process.

    status     "completed", "paused", "failed" or "interrupted"
    exit_code  of this process
    result     None if the run never began
    code       of the error, as runtime.ErrorCode; "" if there is none
    message    words for a person; "" if all is well
    resume     the command that goes on; "" if there is nothing to go on with
    """

    status: str
    exit_code: int
    result: RunResult | None = None
    code: str = ""
    message: str = ""
    resume: str = ""


class View(Protocol):
    """Shows one run. Raises OutputGone when nobody takes what it shows."""

    def begin(self, meta: RunMeta, state: RunState | None) -> None:
        """The run is about to start, or to go on from a state."""
        ...

    def event(self, event: RunEvent) -> None:
        """Something happened."""
        ...

    def end(self, ending: Ending) -> None:
        """Nothing more happens in this process."""
        ...


class TextView:
    """For people: the model's words, commands with their output as it comes, edits as patches.

    Standard output gets what the run does, standard error what is said about it.
    """

    def __init__(self, out: Stream, remarks: Stream) -> None:
        self._out = console(out)
        self._remarks = console(remarks)
        self._running: set[str] = set()
        self._made: dict[str, str] = {}
        self._shown = ""

    def begin(self, meta: RunMeta, state: RunState | None) -> None:
        """See View."""
        for item in state.items if state is not None else ():
            if item.kind == ItemKind.TOOL_CALL:
                self._made[item.call_id] = item.call.arguments
        word = "begins" if state is None else "goes on"
        self._say(f"run {meta.id} {word} in {short_place(meta.place)} with {meta.model}", "dim")

    def event(self, event: RunEvent) -> None:
        """See View."""
        match event:
            case ItemCreated():
                self._item(event.item)
            case ToolStarted():
                self._started(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                self._finished(event)
            case ApprovalRequested():
                pass  # each is shown when a person is asked, or when the run ends without one

    def end(self, ending: Ending) -> None:
        """See View."""
        result = ending.result
        if result is not None:
            if ending.status == "paused":
                for call in result.interruptions or result.state.interruptions:
                    show(call, self._remarks)
            self._say(f"{ending.status}: {_usage(result.usage, result.turns)}", "dim")
        if ending.message:
            self._remarks.print(Text(clean(ending.message), style="red" if ending.exit_code == 1 else ""))
        if ending.resume:
            self._remarks.print(Text(f"go on with: {ending.resume}"))

    # -- parts ------------------------------------------------------------------------------------

    def _say(self, text: str, style: str = "") -> None:
        self._out.print(Text(clean(text), style=style))

    def _item(self, item: Item) -> None:
        if item.kind == ItemKind.TOOL_CALL:
            self._made[item.call_id] = item.call.arguments
        words = item.refusal or item.text if item.kind == ItemKind.MESSAGE else ""
        if words:
            self._say(f"\n{words}", "bold")

    def _started(self, event: ToolStarted) -> None:
        self._running.add(event.call_id)
        self._shown = event.call_id
        _show_call(self._out, event.name, event.arguments)

    def _progress(self, event: ToolProgress) -> None:
        if self._shown != event.call_id:
            self._say(f"  [{event.call_id}]", "dim")
        self._shown = event.call_id
        # In one go: the command waits while this is written.
        lines = clean(event.text).removesuffix("\n").split("\n")
        self._out.print(Text("\n".join(f"  {line}" for line in lines)))

    def _finished(self, event: ToolFinished) -> None:
        ran = event.call_id in self._running
        self._running.discard(event.call_id)
        item = event.item
        summary = item.display.summary if item.display else ""
        label = f"[{event.call_id}] " if self._running else ""
        if not ran:
            _show_call(self._out, event.name, self._made.get(event.call_id, ""))
            self._say(f"  not run{': ' if summary else ''}{summary}", "yellow")
        if item.is_error:
            _show_lines(self._out, item.output, "yellow")
        elif summary:
            self._say(f"  {label}{summary}", "dim")


def short_place(text: str) -> str:
    """The name of a place without its options, for people."""
    return text if text.startswith("local") else text.partition("?")[0]


def _show_call(screen: Console, name: str, arguments: str) -> None:
    values = _object(arguments)
    if name == "exec_command" and isinstance(values.get("cmd"), str):
        shell = f" ({values['session_id']})" if values.get("session_id") else ""
        where = f" [{values['workdir']}]" if values.get("workdir") else ""
        lines = clean(str(values["cmd"])).split("\n")
        screen.print(Text(f"${clean(shell + where)} {lines[0]}", style="bold cyan"))
        for line in lines[1:]:
            screen.print(Text(f"> {line}", style="cyan"))
    elif name == "apply_patch" and isinstance(values.get("patch"), str):
        screen.print(Text("~ apply_patch", style="bold cyan"))
        _show_lines(screen, str(values["patch"]), None)
    elif name == "write_file" and isinstance(values.get("content"), str):
        screen.print(Text(clean(f"~ write_file {values.get('path')}"), style="bold cyan"))
        _show_lines(screen, "".join(f"+{line}\n" for line in str(values["content"]).splitlines()), None)
    else:
        shown = " ".join(f"{key}={value}" for key, value in values.items()) or arguments
        screen.print(Text(clean(f"- {name} {shown}")[:400], style="bold cyan"))


def _show_lines(screen: Console, text: str, style: str | None) -> None:
    lines = clean(text).splitlines()
    for line in lines[:SHOWN_LINES]:
        screen.print(Text(f"  {line}", style=diff_style(line) if style is None else style))
    if len(lines) > SHOWN_LINES:
        screen.print(Text(f"  ... {len(lines) - SHOWN_LINES} more lines", style="dim"))


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _usage(usage: Usage, turns: int) -> str:
    tokens = f", {usage.input_tokens} tokens in, {usage.output_tokens} out" if usage.input_tokens else ""
    return f"{turns} model call{'s' if turns != 1 else ''}{tokens}"
