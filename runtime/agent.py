"""An agent: a frozen description of who works, with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runtime.errors import UserError
from runtime.models.model import Model, ModelSettings
from runtime.tools import AnyTool

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What instructions made per turn may look at. `value` is the caller's (`RunOptions.context`)."""

    value: object
    agent: str
    turn: int


Instructions = str | Callable[[RunContext], str]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Who works on a task.

    instructions  text, or a function that is asked before each model call
    tools         what the model may call; names are unique and fit every provider
    model         None: the run's options must name one
    settings      how the model is asked, unless the run's options say otherwise
    """

    name: str
    instructions: Instructions = ""
    tools: Sequence[AnyTool] = ()
    model: Model | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for tool in self.tools:
            if not _TOOL_NAME.fullmatch(tool.name):
                raise UserError(
                    f"the tool name {tool.name!r} has to match [A-Za-z0-9_-] and 1 to 64 characters"
                )
            if tool.name in seen:
                raise UserError(f"two tools are called {tool.name!r}")
            seen.add(tool.name)
