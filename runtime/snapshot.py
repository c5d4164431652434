"""What one turn works with, frozen before the model is asked: a later change of the agent is not seen."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.agent import AnyAgent, check_names
from runtime.context import RunContext
from runtime.errors import UserError
from runtime.handoffs import Handoff, as_handoff
from runtime.items import Item
from runtime.models.model import Model, ModelSettings, ToolSpec
from runtime.options import RunOptions
from runtime.output_type import OutputType
from runtime.state import RunState
from runtime.tools import AnyTool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSnapshot:
    """One turn: who works, with which model, tools and words. `prepare_next_turn` may give another.

    input  what the model sees of the conversation; the run sets it, whatever a snapshot says
    """

    agent: AnyAgent
    model: Model
    settings: ModelSettings
    instructions: str
    tools: Mapping[str, AnyTool]
    handoffs: Mapping[str, Handoff[Any]]
    output: OutputType[Any] | None
    input: Sequence[Item] = ()

    def specs(self) -> list[ToolSpec]:
        """Tools and handoffs as the model sees them."""
        tools = [
            ToolSpec(
                name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
            )
            for tool in self.tools.values()
        ]
        return tools + [way.spec() for way in self.handoffs.values()]


async def resolve(
    agent: AnyAgent, options: RunOptions, state: RunState, context: RunContext[Any]
) -> TurnSnapshot:
    """The agent as it is now. Raises UserError without a model, and for names that are used twice."""
    tools = offered(agent, state, context)
    handoffs = [as_handoff(way) for way in agent.handoffs]
    check_names(tools, handoffs)
    instructions = agent.instructions
    if callable(instructions):
        made = instructions(context)
        instructions = await made if inspect.isawaitable(made) else made
    return TurnSnapshot(
        agent=agent,
        model=model_of(agent, options),
        settings=options.model.settings or agent.settings,
        instructions=instructions,
        tools={tool.name: tool for tool in tools},
        handoffs={way.tool_name: way for way in handoffs},
        output=agent.output_type,
    )


def offered(agent: AnyAgent, state: RunState, context: RunContext[Any]) -> list[AnyTool]:
    """The tools that the model may call in this turn. `state.disclosed` names deferred ones that it may."""
    return list(agent.tools)


def model_of(agent: AnyAgent, options: RunOptions) -> Model:
    """The model that an agent's turns are asked of. Raises UserError if nobody names one."""
    model = options.model.model or agent.model
    if model is None:
        raise UserError("no model: give the agent one, or RunOptions(model=ModelOptions(model=...))")
    return model
