"""The state of a run, whole: what a live run works on, and what is kept when it pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic import BaseModel, Field, JsonValue, PrivateAttr, ValidationError

from runtime.errors import UserError
from runtime.events import PendingApproval
from runtime.items import Item
from runtime.schema import JsonError, clean_text
from runtime.usage import Usage

SCHEMA_VERSION = "1.0"
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
    """A call's output, and whether it counts as a failure of the model's (`None`: it counts as neither)."""

    item: Item
    failed: bool | None


class RunState(BaseModel):
    """Everything that a resume needs. Plain data; `to_json` and `from_json` are exact inverses.

    items          the whole conversation; only an answer that is not settled has calls without an output
    first_new      where this run's own items begin; what stands before is its input
    settled        what the last answer asked for is done, and its outputs are among the items
    finished       outputs of the last answer's calls, held until all are there
    started        calls that have begun; without an output their outcome is unknown
    decisions      by call id; used once
    interruptions  the calls that wait for a person
    pending_input  joins the conversation when the open calls have their outputs
    completed      the run ended with an answer
    extra          the caller's; carried as it is and never read. It covers pause to resume, not a crash
    """

    schema_version: str = SCHEMA_VERSION
    agent: str
    items: list[Item] = Field(default_factory=list)
    first_new: int = 0
    responses: list[ResponseRecord] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    turn: int = 0
    max_turns: int = 0
    error_turns: int = 0
    settled: bool = True
    finished: dict[str, Outcome] = Field(default_factory=dict)
    started: list[str] = Field(default_factory=list)
    decisions: dict[str, Decision] = Field(default_factory=dict)
    interruptions: list[PendingApproval] = Field(default_factory=list)
    pending_input: list[Item] = Field(default_factory=list)
    completed: bool = False
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    _journal: object = PrivateAttr(default=None)

    def approve(self, call: PendingApproval | str) -> None:
        """Let a waiting call run, once, as it was shown. Raises UserError if no such call waits."""
        waiting = self._waiting(call)
        self.decisions[waiting.call_id] = Decision(approved=True, fingerprint=waiting.fingerprint)

    def reject(self, call: PendingApproval | str, message: str | None = None) -> None:
        """Refuse a waiting call. The model reads the message word for word; None: a fixed sentence."""
        waiting = self._waiting(call)
        text = REJECTED_TEXT if message is None else clean_text(message)
        self.decisions[waiting.call_id] = Decision(
            approved=False, fingerprint=waiting.fingerprint, message=text
        )

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
        lists = {
            "items": list(self.items),
            "responses": list(self.responses),
            "finished": dict(self.finished),
            "started": list(self.started),
            "decisions": dict(self.decisions),
            "interruptions": list(self.interruptions),
            "pending_input": list(self.pending_input),
            "extra": dict(self.extra),
        }
        return self.model_copy(update=lists)

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
        call_id = call if isinstance(call, str) else call.call_id
        for waiting in self.interruptions:
            if waiting.call_id == call_id:
                return waiting
        raise UserError(f"no call {call_id!r} waits for a decision in this state")


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
class RunResult:
    """How a run ended, or how far it came.

    final_output   the answer; None when it paused, or when it failed (see RunError.result)
    interruptions  the calls that wait for a person; empty unless it paused
    state          resumes the run
    stopped_early  ended because its control asked for it
    truncated      the answer was cut off by the token limit
    """

    state: RunState
    final_output: str | None = None
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
    def usage(self) -> Usage:
        """Tokens of all model calls of the run."""
        return self.state.usage

    @property
    def turns(self) -> int:
        """How many model calls the run made."""
        return self.state.turn


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The last event of a run that did not fail: it has an answer, or it paused."""

    result: RunResult
