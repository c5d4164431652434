"""An agent: a frozen description of who works, with what."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

from runtime.context import Context, Output, RunContext
from runtime.errors import UserError
from runtime.handoffs import Handoff, as_handoff
from runtime.models.model import Model, ModelSettings
from runtime.output_type import OutputType, output_of
from runtime.tools import AnyTool

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Agent(Generic[Context, Output]):
    """Who works on a task. `Context` is the type of the caller's value, `Output` that of the answer.

    instructions         text, or a function (async too) that is asked before each model call
    tools                what the model may call; names are unique and fit every provider
    handoffs             agents, and ways to agents, that the run may be handed over to
    handoff_description  tells other agents' models when to hand over to this one
    output               what the answer is: a type that pydantic reads, or an OutputType; None: text
    model                None: the run's options must name one
    settings             how the model is asked, unless the run's options say otherwise
    on_start             called when the agent begins to work, before its first turn
    on_end               called with the answer when it has one, before output guardrails and the last save
    """

    name: str
    instructions: str | Callable[[RunContext[Context]], str | Awaitable[str]] = ""
    tools: Sequence[AnyTool] = ()
    handoffs: Sequence[Handoff[Context] | Agent[Context, Any]] = ()
    handoff_description: str = ""
    output: type[Output] | OutputType[Output] | None = None
    model: Model | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    on_start: Callable[[RunContext[Context]], Awaitable[None] | None] | None = None
    on_end: Callable[[RunContext[Context], Output], Awaitable[None] | None] | None = None

    def __post_init__(self) -> None:
        check_names(self.tools, [as_handoff(way) for way in self.handoffs])
        read = self.output
        if read is not None and not isinstance(read, OutputType):
            read = None if read is str else output_of(read)
        object.__setattr__(self, "_output", read)

    @property
    def output_type(self) -> OutputType[Output] | None:
        """What reads the answer; None: it is the text."""
        return self.__dict__["_output"]  # type: ignore[no-any-return]


AnyAgent: TypeAlias = Agent[Any, Any]
"""An agent whose types do not matter here."""


def check_names(tools: Sequence[AnyTool], handoffs: Sequence[Handoff[Any]]) -> None:
    """Raise UserError for a name that a provider would refuse, or that two tools or handoffs have."""
    seen: set[str] = set()
    for name in [*(tool.name for tool in tools), *(way.tool_name for way in handoffs)]:
        if not _TOOL_NAME.fullmatch(name):
            raise UserError(f"the tool name {name!r} has to match [A-Za-z0-9_-] and 1 to 64 characters")
        if name in seen:
            raise UserError(f"two tools are called {name!r}")
        seen.add(name)
