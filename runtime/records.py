"""The records that a run puts into its journal, and the state that they add up to again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runtime.errors import JournalError
from runtime.events import PendingApproval
from runtime.history import interrupted
from runtime.items import Item, ItemKind
from runtime.schema import JSON
from runtime.state import (
    ANY_JOURNAL,
    SCHEMA_VERSION,
    Decision,
    Outcome,
    ResponseRecord,
    RunState,
    check_version,
)

Record = dict[str, JSON]

_ITEMS = TypeAdapter(list[Item])
_OUTCOME = TypeAdapter(Outcome)
_RESPONSE = TypeAdapter(ResponseRecord)
_DECISIONS = TypeAdapter(dict[str, Decision])
_APPROVALS = TypeAdapter(list[PendingApproval])


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
        "decisions": _plain(_DECISIONS, state.decisions),
        "pending_input": _plain(_ITEMS, state.pending_input),
    }


def input_record(items: Sequence[Item]) -> Record:
    """Input joined the conversation."""
    return {"record": "input", "items": _plain(_ITEMS, items)}


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


def paused_record(approvals: Sequence[PendingApproval]) -> Record:
    """The run waits for a person."""
    return {"record": "paused", "approvals": _plain(_APPROVALS, list(approvals))}


def completed_record(final_output: str, stopped_early: bool) -> Record:
    """The run ended with an answer."""
    return {"record": "completed", "final_output": final_output, "stopped_early": stopped_early}


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
        state.interruptions = []
        state.completed = False

    def _on_input(self, record: Mapping[str, Any]) -> None:
        self._answer_lost_calls()
        self._state.items.extend(_ITEMS.validate_python(record["items"]))
        self._state.pending_input = []
        self._state.settled = True

    def _on_response(self, record: Mapping[str, Any]) -> None:
        self._answer_lost_calls()
        response = _RESPONSE.validate_python(record["response"])
        self._state.items.extend(_ITEMS.validate_python(record["items"]))
        self._state.responses.append(response)
        self._state.usage += response.usage
        self._state.turn += 1
        self._state.settled = False

    def _on_call_started(self, record: Mapping[str, Any]) -> None:
        call_id = str(record["call_id"])
        if call_id not in self._state.started and self._is_open(call_id):
            self._state.started.append(call_id)

    def _on_output(self, record: Mapping[str, Any]) -> None:
        outcome = _OUTCOME.validate_python(record)
        if self._is_open(outcome.item.call_id):
            self._state.finished.setdefault(outcome.item.call_id, outcome)

    def _on_paused(self, record: Mapping[str, Any]) -> None:
        self._state.interruptions = _APPROVALS.validate_python(record["approvals"])

    def _on_completed(self, record: Mapping[str, Any]) -> None:
        self._close_batch()
        self._state.completed = True

    def _is_open(self, call_id: str) -> bool:
        # Ids may come again in a later answer: what belongs to no call of this one must not wait for it.
        return any(item.call_id == call_id for item in last_answer(self._state))

    def _close_batch(self) -> None:
        close_batch(self._state)

    def _answer_lost_calls(self) -> None:
        # The run went on, so every call had its output; one whose record is lost gets one that says so.
        for item in last_answer(self._state):
            if item.kind == ItemKind.TOOL_CALL and item.call_id not in self._state.finished:
                lost = Outcome(item=interrupted(item.call_id), failed=None)
                self._state.finished[item.call_id] = lost
        close_batch(self._state)


def close_batch(state: RunState) -> list[Item]:
    """If every call of the last answer has its output, let the outputs join the conversation, in order.

    The valve's counter moves with them. Returns what joined; nothing while a call is still without an output.
    """
    calls = [item.call_id for item in last_answer(state) if item.kind == ItemKind.TOOL_CALL]
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
    state.settled = True
    return outputs


def last_answer(state: RunState) -> list[Item]:
    """The items of the model's last answer while it is not settled; they end the conversation then."""
    if state.settled or not state.responses:
        return []
    return state.items[len(state.items) - state.responses[-1].item_count :]


def _plain(adapter: TypeAdapter[Any], value: object) -> Any:
    return json.loads(adapter.dump_json(value))
