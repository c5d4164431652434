"""Handoffs: one agent hands the run over to another. To the model a handoff is one more function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from runtime.context import Context, RunContext
from runtime.errors import ModelBehaviorError, UserError
from runtime.items import Item, ItemKind, Source, ToolCall, function_output
from runtime.models.model import ToolSpec
from runtime.output_type import misfits
from runtime.schema import JSON, JsonError, load_object

if TYPE_CHECKING:
    from runtime.agent import Agent

IGNORED_TEXT = "Ignored: an answer hands over to one agent only, and another handoff came first."
_NO_INPUT: Mapping[str, JSON] = {
    "type": "object",
    "properties": {},
    "required": [],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffHistory(Generic[Context]):
    """What the next agent would see: all that came before, then this turn.

    before   the conversation up to the answer that hands over
    turn     that answer, and the outputs of its calls
    context  the run
    """

    before: Sequence[Item]
    turn: Sequence[Item]
    context: RunContext[Context]


HandoffFilter = Callable[[HandoffHistory[Any]], Sequence[Item]]
"""Gives what the next agent sees instead. The run's own items stay as they are."""


@dataclass(frozen=True, kw_only=True)
class Handoff(Generic[Context]):
    """A way to another agent.

    target             who takes over; None: `on_invoke` says
    on_invoke          picks who takes over from the arguments; wins over `target`
    name               what the model calls; "": transfer_to_ and the target's name
    description        tells the model when to use it; "": the target's `handoff_description`
    parameters         JSON schema of the arguments; None: it takes none
    non_strict_schema  do not hold the model to the schema
    input_filter       what the next agent sees; None: the run's own filter, else everything
    """

    target: Agent[Context, Any] | None = None
    on_invoke: (
        Callable[
            [RunContext[Context], Mapping[str, JSON]], Agent[Context, Any] | Awaitable[Agent[Context, Any]]
        ]
        | None
    ) = None
    name: str = ""
    description: str = ""
    parameters: Mapping[str, JSON] | None = None
    non_strict_schema: bool = False
    input_filter: HandoffFilter | None = None

    @property
    def tool_name(self) -> str:
        """What the model calls. Raises UserError for a handoff that names neither itself nor a target."""
        if self.name:
            return self.name
        if self.target is None:
            raise UserError("a handoff without a target needs a name")
        return "transfer_to_" + re.sub(r"[^A-Za-z0-9_-]+", "_", self.target.name)[:51]

    def spec(self) -> ToolSpec:
        """The handoff as a model sees it."""
        target = self.target
        words = self.description or (
            f"Hand over to the agent {target.name}. {target.handoff_description}".strip() if target else ""
        )
        return ToolSpec(
            name=self.tool_name,
            description=words,
            parameters=_NO_INPUT if self.parameters is None else self.parameters,
            strict=not self.non_strict_schema,
        )

    def read(self, call: ToolCall) -> Mapping[str, JSON]:
        """The arguments of a call, as the model gave them. Raises ModelBehaviorError if they do not fit."""
        try:
            arguments = load_object(call.arguments)
        except JsonError as error:
            raise ModelBehaviorError(f"the arguments of the handoff {call.name} are {error}") from error
        wrong = misfits(arguments, self.parameters) if self.parameters is not None else []
        if wrong:
            raise ModelBehaviorError(
                f"the arguments of the handoff {call.name} do not fit: {'; '.join(wrong[:5])}"
            )
        return arguments

    async def resolve(self, context: RunContext[Context], call: ToolCall) -> Agent[Context, Any]:
        """Who takes over. Raises UserError for a handoff that has neither `on_invoke` nor a target."""
        if self.on_invoke is not None:
            chosen = self.on_invoke(context, self.read(call))
            return await chosen if inspect.isawaitable(chosen) else chosen
        if self.target is None:
            raise UserError(f"the handoff {call.name} has neither a target nor on_invoke")
        return self.target


def as_handoff(given: Handoff[Any] | Agent[Any, Any]) -> Handoff[Any]:
    """A handoff; an agent stands for the plain way to it."""
    return given if isinstance(given, Handoff) else Handoff(target=given)


def agents_of(agent: Agent[Any, Any]) -> dict[str, Agent[Any, Any]]:
    """An agent and all that it can hand over to, by name, without calling the caller's code.

    Agents that only `on_invoke` knows are not among them. Raises UserError if two have one name.
    """
    found: dict[str, Agent[Any, Any]] = {}
    todo = [agent]
    while todo:
        one = todo.pop(0)
        if found.setdefault(one.name, one) is not one:
            raise UserError(f"two agents are called {one.name!r}")
        ways = [as_handoff(way) for way in one.handoffs]
        todo.extend(
            way.target
            for way in ways
            if way.target is not None and found.get(way.target.name) is not way.target
        )
    return found


def handoff_output(call_id: str, text: str) -> Item:
    """What stands in the conversation for the output of a handoff's call."""
    item = function_output(call_id, text)
    return Item(kind=ItemKind.HANDOFF_OUTPUT, raw=item.raw, source=Source.RUNNER)
