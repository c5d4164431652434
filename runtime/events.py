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
    """

    call_id: str
    tool: str
    arguments: str
    preview: str
    reason: str = ""
    rule: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """The run pauses: nothing of this turn's calls has run, and these need a decision."""

    approvals: tuple[PendingApproval, ...]
