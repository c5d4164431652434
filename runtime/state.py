"""The state of a run, whole: what a live run works on, and what is kept when it pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Self

from pydantic import BaseModel, Field, JsonValue, PrivateAttr, ValidationError

from runtime.context import Output
from runtime.errors import UserError
from runtime.events import Diagnostic, GuardrailRecord, PendingApproval
from runtime.items import Item
from runtime.schema import JsonError, clean_text
from runtime.usage import Usage

SCHEMA_VERSION = "1.1"
OLDEST_MINOR = 0
"""The oldest minor version that can still be read. A version that gives a field a new meaning raises it."""

ANY_JOURNAL = object()
"""Stands for the journal that a state was read from: whoever resumes it goes on with that one."""

REJECTED_TEXT = "The call was not approved, so it did not run. Do not repeat it as it is."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """One answer of the model, without its items: they are the next `item_count` of the run's items."""

    response_id: str = ""
    status: str = "completed"
    incomplete_reason: str = ""
    request_id: str = ""
    usage: Usage = field(default_factory=Usage)
    item_count: int = 0
    agent: str = ""
    model: str = ""
    cost_micros: int = 0

    @property
    def truncated(self) -> bool:
        """Cut off by the token limit, so that its calls may be incomplete."""
        return self.status == "incomplete" and self.incomplete_reason == "max_output_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decided about one call, and about which act exactly."""

    approved: bool
    fingerprint: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A call's output, and what else it means to the run.

    failed       it counts as a failure of the model's; None: it counts as neither
    terminate    the tool asks for the end of the run
    usage        tokens that the call itself spent, on models of its own
    added_tools  deferred tools that the model may use from now on
    """

    item: Item
    failed: bool | None
    terminate: bool = False
    usage: Usage = field(default_factory=Usage)
    added_tools: tuple[str, ...] = ()


QueueKind = Literal["steer", "next_turn", "follow_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Input that was given to the run's control. `id` keeps it from being delivered twice."""

    id: str
    kind: QueueKind
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What the model sees instead of the first `length` items of the run."""

    items: tuple[Item, ...]
    length: int


class RunState(BaseModel):
    """Everything that a resume needs. Plain data; `to_json` and `from_json` are exact inverses.

    agent             who works now
    agent_started     its `on_start` was called
    items             the whole conversation; only an answer that is not settled has calls without an output
    first_new         where this run's own items begin; what stands before is its input
    first_input       where its input begins; what stands before was loaded from the session
    saved             how many of the items the session holds
    rewritten         what a handoff's filter, a guardrail or a compaction made of older items, or None
    settled           what the last answer asked for is done, and its outputs are among the items
    usage             tokens of all model calls, `nested_usage` included
    nested_usage      the part that calls spent on models of their own
    elapsed_s         seconds that the run has worked; a pause does not count
    cost_micros       what its model calls cost by the caller's prices, in millionths of their unit
    finished          outputs of the last answer's calls, held until all are there
    started           calls that have begun; without an output their outcome is unknown
    nested            nested runs that paused, by the id of the call that runs them
    decisions         by call id; used once
    interruptions     the calls that wait for a person
    pending_input     joins the conversation when the open calls have their outputs
    queued            given to the control and not delivered yet, in the order in which it came
    delivered         ids of what was given to the control and is in `items`
    disclosed         deferred tools that the model may use
    repeats           how often a call (by its fingerprint) gave the same output; only with that guard
    last_call_given   the call without tools, after the last turn, was made
    completed         the run ended with an answer
    replaced_output   what a guardrail put in place of the answer; None: nothing
    guardrails        what the guardrails said
    diagnostics       trouble that the run survived
    extra             the caller's; carried as it is and never read. It covers pause to resume, not a crash
    """

    schema_version: str = SCHEMA_VERSION
    agent: str
    agent_started: bool = False
    items: list[Item] = Field(default_factory=list)
    first_new: int = 0
    first_input: int = 0
    saved: int = 0
    rewritten: Rewritten | None = None
    responses: list[ResponseRecord] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    nested_usage: Usage = Field(default_factory=Usage)
    elapsed_s: float = 0.0
    cost_micros: int = 0
    turn: int = 0
    max_turns: int = 0
    error_turns: int = 0
    settled: bool = True
    finished: dict[str, Outcome] = Field(default_factory=dict)
    started: list[str] = Field(default_factory=list)
    nested: dict[str, RunState] = Field(default_factory=dict)
    decisions: dict[str, Decision] = Field(default_factory=dict)
    interruptions: list[PendingApproval] = Field(default_factory=list)
    pending_input: list[Item] = Field(default_factory=list)
    queued: list[Queued] = Field(default_factory=list)
    delivered: list[str] = Field(default_factory=list)
    disclosed: list[str] = Field(default_factory=list)
    repeats: dict[str, int] = Field(default_factory=dict)
    last_call_given: bool = False
    completed: bool = False
    replaced_output: JsonValue = None
    guardrails: list[GuardrailRecord] = Field(default_factory=list)
    diagnostics: list[Diagnostic] = Field(default_factory=list)
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    _journal: object = PrivateAttr(default=None)

    def approve(self, call: PendingApproval | str) -> None:
        """Let a waiting call run, once, as it was shown. Raises UserError if no such call waits."""
        waiting = self._waiting(call)
        self._decide(waiting, Decision(approved=True, fingerprint=waiting.fingerprint))

    def reject(self, call: PendingApproval | str, message: str | None = None) -> None:
        """Refuse a waiting call. The model reads the message word for word; None: a fixed sentence."""
        waiting = self._waiting(call)
        text = REJECTED_TEXT if message is None else clean_text(message)
        self._decide(waiting, Decision(approved=False, fingerprint=waiting.fingerprint, message=text))

    def to_json(self) -> str:
        """The state as JSON text."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a state. Raises UserError for a version that this one cannot read, and for broken data."""
        try:
            check_version(_Versioned.model_validate_json(text).schema_version)
            state = cls.model_validate_json(text)
            for item in state.items:
                if not item.type:
                    raise JsonError("an item needs a `type`")
        except (ValidationError, JsonError) as error:
            raise UserError(f"this is not the state of a run: {error}") from None
        return state

    def copied(self) -> Self:
        """A state that shares nothing that changes with this one."""
        changing: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, list):
                changing[name] = list(value)
            elif isinstance(value, dict):
                changing[name] = dict(value)
        changing["nested"] = {call: state.copied() for call, state in self.nested.items()}
        return self.model_copy(update=changing)

    def __repr__(self) -> str:
        return f"RunState(agent={self.agent!r}, turn={self.turn}, items={len(self.items)} items)"

    __str__ = __repr__

    def is_in(self, journal: object) -> bool:
        """Whether a journal holds the past of this run, so that it needs only what happens from here on."""
        return self._journal is ANY_JOURNAL or (journal is not None and self._journal is journal)

    def mark_as_in(self, journal: object) -> None:
        """For what writes or reads a journal: the past of this run is in it."""
        self._journal = journal

    def _waiting(self, call: PendingApproval | str) -> PendingApproval:
        if isinstance(call, str):
            found = [waiting for waiting in self.interruptions if waiting.call_id == call]
        else:
            place = (call.call_id, call.parents)
            found = [waiting for waiting in self.interruptions if (waiting.call_id, waiting.parents) == place]
        call_id = call if isinstance(call, str) else call.call_id
        if not found:
            raise UserError(f"no call {call_id!r} waits for a decision in this state")
        if len(found) > 1:
            raise UserError(f"{len(found)} calls {call_id!r} wait, in nested runs: give the approval itself")
        return found[0]

    def _decide(self, waiting: PendingApproval, decision: Decision) -> None:
        if not waiting.parents:
            self.decisions[waiting.call_id] = decision
            return
        outer, *inner = waiting.parents
        self.nested[outer]._decide(replace(waiting, parents=tuple(inner)), decision)


class _Versioned(BaseModel):
    schema_version: str


def run_state_version_supported(version: str) -> bool:
    """Whether a state of this schema version can be read here."""
    try:
        check_version(version)
    except UserError:
        return False
    return True


def check_version(version: str, current: str = SCHEMA_VERSION, oldest_minor: int = OLDEST_MINOR) -> None:
    """Raise UserError, saying which way it misses, if a schema version is outside the window."""
    major, minor = _parts(version)
    our_major, our_minor = _parts(current)
    if major != our_major:
        raise UserError(f"the run state has schema {version}; this version reads only schema {our_major}.x")
    if minor > our_minor:
        raise UserError(f"the run state has schema {version}, newer than {current}: update to read it")
    if minor < oldest_minor:
        oldest = f"{our_major}.{oldest_minor}"
        raise UserError(f"the run state has schema {version}, older than {oldest}, the oldest that is read")


def _parts(version: str) -> tuple[int, int]:
    major, dot, minor = version.partition(".")
    if not dot or not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise UserError(f"the run state's schema version {version[:40]!r} is not of the form major.minor")
    return int(major), int(minor)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[Output]):
    """How a run ended, or how far it came.

    final_output   the answer; None when it paused, or when it failed (see RunError.result)
    interruptions  the calls that wait for a person; empty unless it paused
    state          resumes the run
    stopped_early  ended because its control, a hook or its tools asked for it
    truncated      the answer was cut off by the token limit
    """

    state: RunState
    final_output: Output | None = None
    interruptions: tuple[PendingApproval, ...] = ()
    stopped_early: bool = False
    truncated: bool = False

    @property
    def items(self) -> Sequence[Item]:
        """The whole conversation, input included."""
        return self.state.items

    @property
    def input_items(self) -> Sequence[Item]:
        """What the run began with."""
        return self.state.items[: self.state.first_new]

    @property
    def new_items(self) -> Sequence[Item]:
        """What the run added, before and after pauses."""
        return self.state.items[self.state.first_new :]

    @property
    def responses(self) -> Sequence[ResponseRecord]:
        """The model's answers, each with its usage."""
        return self.state.responses

    @property
    def usage(self) -> Usage:
        """Tokens of all model calls of the run, and of nested runs."""
        return self.state.usage

    @property
    def turns(self) -> int:
        """How many model calls the run made."""
        return self.state.turn

    @property
    def last_agent(self) -> str:
        """Who worked last."""
        return self.state.agent

    @property
    def guardrails(self) -> Sequence[GuardrailRecord]:
        """What the guardrails said."""
        return self.state.guardrails

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """Trouble that the run survived."""
        return self.state.diagnostics


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The last event of a run that did not fail: it has an answer, or it paused."""

    result: RunResult[Any]


class NestedPaused(Exception):
    """A tool that runs an agent raises this when that run pauses: the run that called it pauses too.

    No error: the call has no output yet. When the outer run is resumed, the tool is called again with
    `ToolContext.paused`, the same state with the decisions in it.
    """

    def __init__(self, state: RunState) -> None:
        super().__init__(f"the nested run of {state.agent} waits for a person")
        self.state = state
