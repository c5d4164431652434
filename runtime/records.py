"""The records that a run puts into its journal, and the state that they add up to again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runtime.errors import JournalError
from runtime.events import PendingApproval
from runtime.history import interrupted
from runtime.items import Item
from runtime.schema import JSON
from runtime.state import (
    ANY_JOURNAL,
    SCHEMA_VERSION,
    Decision,
    Outcome,
    Queued,
    ResponseRecord,
    Rewritten,
    RunState,
    check_version,
)
from runtime.usage import Usage

Record = dict[str, JSON]

_ITEMS = TypeAdapter(list[Item])
_OUTCOME = TypeAdapter(Outcome)
_RESPONSE = TypeAdapter(ResponseRecord)
_DECISIONS = TypeAdapter(dict[str, Decision])
_APPROVALS = TypeAdapter(list[PendingApproval])
_OUTCOMES = TypeAdapter(list[Outcome])
_NESTED = TypeAdapter(dict[str, RunState])
_QUEUED = TypeAdapter(list[Queued])
_REWRITTEN = TypeAdapter(Rewritten | None)
_USAGE = TypeAdapter(Usage)


def state_record(state: RunState) -> Record:
    """The whole state: a journal begins with it."""
    return {"record": "state", "schema": SCHEMA_VERSION, "state": state.model_dump(mode="json")}


def resumed_record(state: RunState) -> Record:
    """A run goes on, with these decisions and this new input."""
    return {
        "record": "resumed",
        "first_new": state.first_new,
        "turn": state.turn,
        "max_turns": state.max_turns,
        "error_turns": state.error_turns,
        "first_input": state.first_input,
        "decisions": _plain(_DECISIONS, state.decisions),
        "nested": _plain(_NESTED, state.nested),
        "pending_input": _plain(_ITEMS, state.pending_input),
        "queued": _plain(_QUEUED, state.queued),
    }


def input_record(items: Sequence[Item], delivered: Sequence[str] = ()) -> Record:
    """Input joined the conversation. `delivered` are the ids of what came through the control."""
    return {"record": "input", "items": _plain(_ITEMS, items), "delivered": list(delivered)}


def joined_record(items: Sequence[Item]) -> Record:
    """Items of the runner's own joined the conversation."""
    return {"record": "joined", "items": _plain(_ITEMS, items)}


def rewritten_record(rewritten: Rewritten | None) -> Record:
    """The model sees something else instead of older items."""
    return {"record": "rewritten", "rewritten": _plain(_REWRITTEN, rewritten)}


def handoff_record(agent: str, outcomes: Sequence[Outcome], rewritten: Rewritten | None) -> Record:
    """The run was handed over; with it come the outputs of the handoffs' calls, the last of their answer."""
    return {
        "record": "handoff",
        "agent": agent,
        "outcomes": _plain(_OUTCOMES, list(outcomes)),
        "rewritten": _plain(_REWRITTEN, rewritten),
    }


def saved_record(length: int) -> Record:
    """The session holds this many of the run's items."""
    return {"record": "saved", "length": length}


def response_record(response: ResponseRecord, items: Sequence[Item]) -> Record:
    """The model answered; none of its calls has begun."""
    return {
        "record": "response",
        "response": _plain(_RESPONSE, response),
        "items": _plain(_ITEMS, list(items)),
    }


def call_started_record(call_id: str, tool: str) -> Record:
    """A call is about to run."""
    return {"record": "call_started", "call_id": call_id, "tool": tool}


def output_record(outcome: Outcome) -> Record:
    """A call has its output."""
    return {"record": "output", **_plain(_OUTCOME, outcome)}


def paused_record(state: RunState) -> Record:
    """The run waits for a person."""
    return {
        "record": "paused",
        "approvals": _plain(_APPROVALS, state.interruptions),
        "nested": _plain(_NESTED, state.nested),
        "usage": _plain(_USAGE, state.usage),
        "nested_usage": _plain(_USAGE, state.nested_usage),
        "elapsed_s": state.elapsed_s,
        "queued": _plain(_QUEUED, state.queued),
    }


def completed_record(final_output: str, stopped_early: bool, state: RunState) -> Record:
    """The run ended with an answer. `replaced` is what was put in place of the model's own, or None."""
    return {
        "record": "completed",
        "final_output": final_output,
        "stopped_early": stopped_early,
        "replaced": state.replaced_output,
        "elapsed_s": state.elapsed_s,
        "queued": _plain(_QUEUED, state.queued),
    }


def failed_record(code: str, message: str) -> Record:
    """The run ended without an answer. It can be resumed."""
    return {"record": "failed", "code": code, "message": message}


def state_from_records(records: Iterable[Mapping[str, JSON]]) -> RunState:
    """The state of the run that wrote these records, at the moment after the last of them.

    A call with an output keeps it; a call that had begun is in `started`, so that a resume answers it with
    "outcome unknown"; a call that had not begun may still run. Outputs without a call, and second ones, are
    dropped. Records of kinds that are not known here are skipped. Raises JournalError for records that do not
    begin with a state or cannot be read, and UserError for a schema that this version does not read.
    """
    rebuilt: _Rebuilt | None = None
    for number, record in enumerate(records, 1):
        try:
            if record.get("record") == "state":
                check_version(str(record.get("schema")))
                rebuilt = _Rebuilt(RunState.model_validate(record.get("state")))
            elif rebuilt is not None:
                rebuilt.add(record)
        except (ValidationError, KeyError, TypeError) as error:
            raise JournalError(f"record {number} of the journal cannot be read: {error}") from None
    if rebuilt is None:
        raise JournalError("the journal holds no run: its first record is missing")
    return rebuilt.finish()


class _Rebuilt:
    def __init__(self, state: RunState) -> None:
        self._state = state

    def add(self, record: Mapping[str, JSON]) -> None:
        step = getattr(self, f"_on_{record.get('record')}", None)
        if step is not None:
            step(record)

    def finish(self) -> RunState:
        self._close_batch()
        self._state.mark_as_in(ANY_JOURNAL)
        return self._state

    def _on_resumed(self, record: Mapping[str, Any]) -> None:
        self._close_batch()
        state = self._state
        state.first_new = int(record["first_new"])
        state.turn, state.max_turns = int(record["turn"]), int(record["max_turns"])
        state.error_turns = int(record.get("error_turns", state.error_turns))
        state.decisions = _DECISIONS.validate_python(record["decisions"])
        state.pending_input = _ITEMS.validate_python(record["pending_input"])
        state.first_input = int(record.get("first_input", state.first_input))
        state.nested = _NESTED.validate_python(record.get("nested", {}))
        state.queued = _QUEUED.validate_python(record.get("queued", []))
        state.interruptions = []
        if state.completed and state.pending_input:
            begin_anew(state)
        state.completed = False

    def _on_input(self, record: Mapping[str, Any]) -> None:
        delivered = [str(one) for one in record.get("delivered", ())]
        self._on_joined(record)
        self._state.delivered += delivered
        if not delivered:
            self._state.pending_input = []

    def _on_joined(self, record: Mapping[str, Any]) -> None:
        self._answer_lost_calls()
        self._state.items.extend(_ITEMS.validate_python(record["items"]))
        self._state.settled = True

    def _on_rewritten(self, record: Mapping[str, Any]) -> None:
        self._close_batch()
        self._state.rewritten = _REWRITTEN.validate_python(record["rewritten"])

    def _on_handoff(self, record: Mapping[str, Any]) -> None:
        for outcome in _OUTCOMES.validate_python(record["outcomes"]):
            self._state.finished[outcome.item.call_id] = outcome
        self._answer_lost_calls()
        self._state.agent, self._state.agent_started = str(record["agent"]), False
        self._state.rewritten = _REWRITTEN.validate_python(record["rewritten"])

    def _on_saved(self, record: Mapping[str, Any]) -> None:
        self._close_batch()
        self._state.saved = int(record["length"])

    def _on_response(self, record: Mapping[str, Any]) -> None:
        self._answer_lost_calls()
        response = _RESPONSE.validate_python(record["response"])
        self._state.items.extend(_ITEMS.validate_python(record["items"]))
        self._state.responses.append(response)
        self._state.usage += response.usage
        self._state.cost_micros += response.cost_micros
        self._state.turn += 1
        self._state.agent_started = True
        self._state.settled = False

    def _on_call_started(self, record: Mapping[str, Any]) -> None:
        call_id = str(record["call_id"])
        self._state.nested.pop(call_id, None)
        if call_id not in self._state.started and self._is_open(call_id):
            self._state.started.append(call_id)

    def _on_output(self, record: Mapping[str, Any]) -> None:
        outcome = _OUTCOME.validate_python(record)
        if self._is_open(outcome.item.call_id):
            if outcome.item.call_id not in self._state.finished:
                self._state.usage += outcome.usage
                self._state.nested_usage += outcome.usage
            self._state.finished.setdefault(outcome.item.call_id, outcome)

    def _on_paused(self, record: Mapping[str, Any]) -> None:
        state = self._state
        state.interruptions = _APPROVALS.validate_python(record["approvals"])
        state.nested = _NESTED.validate_python(record.get("nested", {}))
        state.queued = _QUEUED.validate_python(record.get("queued", []))
        state.elapsed_s = float(record.get("elapsed_s", state.elapsed_s))
        if "usage" in record:
            state.usage = _USAGE.validate_python(record["usage"])
            state.nested_usage = _USAGE.validate_python(record["nested_usage"])

    def _on_completed(self, record: Mapping[str, Any]) -> None:
        self._close_batch()
        self._state.completed = True
        self._state.replaced_output = record.get("replaced")
        self._state.queued = _QUEUED.validate_python(record.get("queued", []))
        self._state.elapsed_s = float(record.get("elapsed_s", 0.0))

    def _is_open(self, call_id: str) -> bool:
        # Ids may come again in a later answer: what belongs to no call of this one must not wait for it.
        return any(item.call_id == call_id for item in last_answer(self._state))

    def _close_batch(self) -> None:
        close_batch(self._state)

    def _answer_lost_calls(self) -> None:
        # The run went on, so every call had its output; one whose record is lost gets one that says so.
        for item in last_answer(self._state):
            if item.is_call and item.call_id not in self._state.finished:
                lost = Outcome(item=interrupted(item.call_id), failed=None)
                self._state.finished[item.call_id] = lost
        close_batch(self._state)


def close_batch(state: RunState) -> list[Item]:
    """If every call of the last answer has its output, let the outputs join the conversation, in order.

    The valve's counter moves with them. Returns what joined; nothing while a call is still without an output.
    """
    calls = [item.call_id for item in last_answer(state) if item.is_call]
    if not calls or any(call not in state.finished for call in calls):
        return []
    outcomes = [state.finished[call] for call in calls]
    outputs = [outcome.item for outcome in outcomes]
    state.items.extend(outputs)
    if any(outcome.failed is False for outcome in outcomes):
        state.error_turns = 0
    elif all(outcome.failed for outcome in outcomes):
        state.error_turns += 1
    state.finished, state.started, state.decisions, state.interruptions = {}, [], {}, []
    state.nested = {}
    state.disclosed += [name for outcome in outcomes for name in outcome.added_tools]
    state.settled = True
    return outputs


def begin_anew(state: RunState) -> None:
    """A run that had its answer gets new input: what is counted per run is counted from zero."""
    state.turn, state.error_turns, state.completed = 0, 0, False
    state.elapsed_s, state.last_call_given, state.replaced_output = 0.0, False, None
    state.repeats = {}


def last_answer(state: RunState) -> list[Item]:
    """The items of the model's last answer while it is not settled; they end the conversation then."""
    if state.settled or not state.responses:
        return []
    return state.items[len(state.items) - state.responses[-1].item_count :]


def _plain(adapter: TypeAdapter[Any], value: object) -> Any:
    return json.loads(adapter.dump_json(value))
