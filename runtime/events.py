"""What a run tells while it runs. `RunCompleted`, the last event unless the run fails, is in state.py."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.items import Item


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A model call is about to be made. Turns count from 1 and go on after a resume."""

    turn: int
    agent: str


@dataclass(frozen=True, slots=True)
class ItemCreated:
    """An item joined the conversation: of the model, or an output, in the order of the conversation."""

    item: Item


@dataclass(frozen=True, slots=True)
class InjectedInputCreated:
    """Input that was given to the run's control joined the conversation."""

    item: Item


@dataclass(frozen=True, slots=True)
class HandoffRequested:
    """The model hands the run over; the next turn is the other agent's. `arguments` is the raw text."""

    call_id: str
    source: str
    target: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ItemsSaved:
    """Every item that was told before this event is in the session."""

    count: int


@dataclass(frozen=True, slots=True)
class ModelStreamed:
    """One `response.*` event of the provider, as wire JSON, from models that stream."""

    type: str
    raw: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call begins to run. `arguments` is the raw text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """What a running tool has to tell meanwhile."""

    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call has its output, in the order in which calls end. Also sent for calls that never ran."""

    call_id: str
    name: str
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A call that waits for a person.

    preview      what it would do, in the tool's words
    reason       why the policy asks
    rule         the rule that asks
    fingerprint  binds a decision to this very act: place, tool, arguments and preview
    parents      for a call inside a nested run: the ids of the calls that run it, outermost first
    """

    call_id: str
    tool: str
    arguments: str
    preview: str
    reason: str = ""
    rule: str = ""
    fingerprint: str = ""
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """The run pauses: nothing of this turn's calls has run, and these need a decision."""

    approvals: tuple[PendingApproval, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailRecord:
    """What one guardrail said, "allow" too.

    stage     "input", "output", "tool_input" or "tool_output"
    decision  "allow", "replace" or "trip"
    message   what it puts in place, or its reason
    call_id   the call, for the stages of tools
    """

    guardrail: str
    stage: str
    decision: str
    message: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Trouble that the run survived. The set of types is open."""

    type: str
    message: str
    turn: int = 0
