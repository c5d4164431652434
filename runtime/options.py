"""What a caller may set for one run, grouped by what it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from runtime.budget import Budget
from runtime.context import RunContext
from runtime.errors import AgentError
from runtime.handoffs import HandoffFilter
from runtime.items import Item
from runtime.journal import Journal
from runtime.models.model import Model, ModelSettings
from runtime.state import ResponseRecord

if TYPE_CHECKING:
    from runtime.snapshot import TurnSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """What one model call is about to send."""

    instructions: str
    items: Sequence[Item]
    context: RunContext[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """A turn that is done and saved, and after which the run would go on. Each hook gets its own.

    items   the answer and the outputs of its calls
    handed  the name of the agent that was handed over to; "": none
    """

    turn: int
    agent: str
    items: list[Item]
    handed: str
    context: RunContext[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What an error handler gets: the error, and the run up to it."""

    error: AgentError
    agent: str
    input: Sequence[Item]
    items: Sequence[Item]
    responses: Sequence[ResponseRecord]
    context: RunContext[Any]


ErrorHandler = Callable[[Failure], Any]
"""Gives an answer to end the run with, or None to let it fail; async too."""


@dataclass(frozen=True, kw_only=True)
class ErrorHandlers:
    """What gives an answer instead of an error. The tool loop's valve has none: it always ends a run.

    max_turns             the turns are used up
    refusal               the model declined
    invalid_final_output  the answer is not what `Agent.output` asks for, or there is no text at all
    """

    max_turns: ErrorHandler | None = None
    refusal: ErrorHandler | None = None
    invalid_final_output: ErrorHandler | None = None


class ItemStore(Protocol):
    """Where a conversation is kept between runs: a session."""

    async def read(self) -> Sequence[Item]:
        """All items, oldest first."""
        ...

    async def append(self, items: Sequence[Item]) -> None:
        """Keep items behind those that are there; all or none of them."""
        ...


class Compactor(Protocol):
    """Makes a long conversation shorter for the model."""

    async def compact(self, items: Sequence[Item], context: RunContext[Any]) -> Sequence[Item] | None:
        """What the model sees instead of these items, or None if they may stay. Nothing else changes."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How models are asked.

    model         instead of the agents'
    settings      instead of the agents'
    input_filter  may change what one call sends; what is stored stays as it is
    """

    model: Model | None = None
    settings: ModelSettings | None = None
    input_filter: Callable[[ModelInput], ModelInput | Awaitable[ModelInput]] | None = None


@dataclass(frozen=True, kw_only=True)
class ConversationOptions:
    """Where the conversation comes from and goes to. A session excludes a service that keeps it
    (`ModelSettings.chain`, `ModelSettings.conversation`): they would be two truths.

    session         read once when the run begins, written at the end of each turn
    handoff_filter  for handoffs that have none
    """

    session: ItemStore | None = None
    handoff_filter: HandoffFilter | None = None


@dataclass(frozen=True, kw_only=True)
class ExecOptions:
    """How far a run goes, and what it does where it would fail.

    max_turns                    model calls; 0: the default of 10; -1: no limit; a resumed state's own wins
    budget                       other limits
    final_turn_without_tools     after the last turn, one more call without tools, to close in words
    max_consecutive_error_turns  turns in a row in which every call fails before ToolLoopError; 0: the default
                                 of 3; negative: no limit
    max_repeats                  how often a call may give the same output, else RepeatedCallError; 0: any
    max_tool_concurrency         calls at once; 0: no limit
    unknown_tool_is_fatal        a call of a tool that does not exist fails the run with ModelBehaviorError;
                                 else it is answered
    environment_id               names the place where tools act; an approval holds for this place alone
    should_stop_after_turn       asked after each turn that the run would go on from; True ends it
    prepare_next_turn            may change what the next turn works with, for that turn alone
    error_handlers               give an answer instead of an error
    """

    max_turns: int = 0
    budget: Budget = Budget()
    final_turn_without_tools: bool = False
    max_consecutive_error_turns: int = 0
    max_repeats: int = 0
    max_tool_concurrency: int = 0
    unknown_tool_is_fatal: bool = False
    environment_id: str = ""
    should_stop_after_turn: Callable[[TurnResult], bool | Awaitable[bool]] | None = None
    prepare_next_turn: (
        Callable[[TurnResult, TurnSnapshot], TurnSnapshot | None | Awaitable[TurnSnapshot | None]] | None
    ) = None
    error_handlers: ErrorHandlers = ErrorHandlers()


@dataclass(frozen=True, kw_only=True)
class ObserveOptions:
    """What is written down about a run.

    journal  gets a record of each step before the run goes on
    """

    journal: Journal | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; the default is a whole one, if the agent names a model.

    context     the caller's own value, for instructions, hooks and tools
    compaction  makes the conversation shorter for the model, between turns
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    conversation: ConversationOptions = field(default_factory=ConversationOptions)
    exec: ExecOptions = field(default_factory=ExecOptions)
    observe: ObserveOptions = field(default_factory=ObserveOptions)
    compaction: Compactor | None = None
    context: Any = None
