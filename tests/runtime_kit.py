"""What the runtime's tests share: a tool with a log, and one way to play a scenario, read or blocking."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from runtime import (
    Agent,
    Item,
    ItemKind,
    RunCompleted,
    RunEvent,
    RunOptions,
    RunResult,
    RunState,
    RunStream,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    Tool,
    ToolContext,
    ToolFailed,
    ToolResult,
    Verdict,
    pydantic_parse,
    resume_run,
    resume_run_sync,
    run,
    run_sync,
)

How = Literal["read", "blocking"]
WAIT_S = 10.0


class Command(BaseModel):
    """Arguments of the test's tool."""

    cmd: str


@dataclass
class Bench:
    """A tool `exec_command` that notes what it ran, and what happens for some commands.

    ask, deny  commands that the policy asks about, or refuses
    acts       what a command does instead of answering "ran CMD"
    """

    ask: set[str] = field(default_factory=set)
    deny: set[str] = field(default_factory=set)
    acts: dict[str, Callable[[ToolContext], ToolResult | str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    previews: dict[str, str] = field(default_factory=dict)
    sequential: bool = False

    def tool(self, name: str = "exec_command") -> Tool[Command]:
        """The tool."""
        return Tool(
            name=name,
            description="Run a command.",
            parameters=Command.model_json_schema(),
            parse=pydantic_parse(Command),
            run=self._run,
            check=self._check,
            preview=lambda arguments: self.previews.get(arguments.cmd, "$ " + arguments.cmd),
            sequential=self.sequential,
        )

    def agent(self, model: Any = None, **kwargs: Any) -> Agent:
        """An agent that has the tool."""
        return Agent(name="tester", instructions="Work.", tools=[self.tool()], model=model, **kwargs)

    def _check(self, arguments: Command) -> Verdict:
        if arguments.cmd in self.deny:
            return Verdict("deny", "it is forbidden", "no-such-command")
        if arguments.cmd in self.ask:
            return Verdict("ask", "it changes things", "ask-first")
        return Verdict("allow")

    def _run(self, context: ToolContext, arguments: Command) -> ToolResult | str:
        self.ran.append(arguments.cmd)
        act = self.acts.get(arguments.cmd)
        return act(context) if act else f"ran {arguments.cmd}"


def fails(context: ToolContext) -> str:
    """An act that fails on purpose."""
    raise ToolFailed("it does not work")


def calls(*commands: str, text: str | None = None) -> Scripted:
    """An answer that calls the tool with each command."""
    made = tuple(ScriptedCall(name="exec_command", arguments={"cmd": command}) for command in commands)
    return Scripted(text=text, calls=made)


def script(*answers: Scripted | str) -> ScriptedModel:
    """A model with these answers."""
    return ScriptedModel(answers)


def play(
    how: How, agent: Agent[Any, Any], input: str | Sequence[Item] = "go", options: RunOptions | None = None
) -> RunResult[Any]:
    """Run to the end, in one of the two ways."""
    if how == "blocking":
        return run_sync(agent, input, options)
    return read(run(agent, input, options)[0])


def play_on(
    how: How, agent: Agent[Any, Any], state: RunState, options: RunOptions | None = None, **kwargs: Any
) -> RunResult[Any]:
    """Resume to the end, in one of the two ways."""
    if how == "blocking":
        return resume_run_sync(agent, state, options, **kwargs)
    return read(resume_run(agent, state, options, **kwargs)[0])


def read(stream: RunStream[Any]) -> RunResult[Any]:
    """Read a stream event by event."""
    last = read_events(stream)[-1]
    assert isinstance(last, RunCompleted)
    return last.result


def read_events(stream: RunStream[Any]) -> list[RunEvent]:
    """All events of a stream."""
    return asyncio.run(events_of(stream))


async def events_of(stream: RunStream[Any]) -> list[RunEvent]:
    """All events of a stream, inside a loop."""
    return [event async for event in stream]


def outputs(items: Sequence[Item]) -> dict[str, str]:
    """The outputs by call id; fails on a second one for a call."""
    found: dict[str, str] = {}
    for item in items:
        if item.kind == ItemKind.TOOL_OUTPUT:
            assert item.call_id not in found
            found[item.call_id] = item.output
    return found


def shape(items: Sequence[Item]) -> list[str]:
    """The items in short: kinds, with the call id for calls and outputs."""
    return [f"{item.kind} {item.call_id}".strip() for item in items]


def wait_for(event: threading.Event) -> None:
    """Wait for something that is going to happen."""
    assert event.wait(WAIT_S), "it did not happen in time"


def wire(items: Sequence[Item]) -> list[Mapping[str, Any]]:
    """The items as a service gets them."""
    return [item.wire for item in items]
