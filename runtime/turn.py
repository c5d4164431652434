"""One turn: one model call and all that follows from it, in a fixed order.

The order is the promise: the answer is durable before its calls run, a call is before it begins, its output
is before the next answer is asked for. A pause comes before any call of the turn has run.
"""

from __future__ import annotations

from runtime.agent import RunContext
from runtime.budget import error_turn_limit
from runtime.errors import ModelBehaviorError, ToolLoopError
from runtime.events import ApprovalRequested, ItemCreated, PendingApproval, TurnStarted
from runtime.final import check_status, early_output, final_output
from runtime.history import View
from runtime.items import ItemKind, Source, ToolCall
from runtime.live import LiveRun
from runtime.models.model import ModelRequest, ModelResponse
from runtime.records import close_batch, last_answer, paused_record, response_record
from runtime.state import ResponseRecord, RunResult, RunState
from runtime.tool_batch import plan_batch, run_batch


async def ask_model(run: LiveRun) -> None:
    """The first half: ask the model and keep its answer."""
    state = run.state
    turn = state.turn + 1
    await run.channel.put(TurnStarted(turn, run.agent.name))
    response = await run.model.respond(_request(run, turn), run.channel.tell)
    record = ResponseRecord(
        response_id=response.response_id,
        status=response.status,
        incomplete_reason=response.incomplete_reason,
        request_id=response.request_id,
        usage=response.usage,
        item_count=len(response.items),
    )
    state.usage += response.usage
    check_status(record)
    _check_calls(response)
    run.record(response_record, record, response.items)
    state.turn = turn
    state.items.extend(response.items)
    state.responses.append(record)
    state.settled = False
    for item in response.items:
        await run.channel.put(ItemCreated(item))


async def settle(run: LiveRun) -> RunResult | None:
    """The second half: do what the last answer asks for. A result if the run ends or pauses here.

    Also the entry of a resumed run, whose last answer may be settled in part.
    """
    state = run.state
    if state.settled or not state.responses:
        return None
    last = state.responses[-1]
    calls = _open_calls(run)
    if not calls:
        return _finished(run, last)
    plan = await plan_batch(run, calls, truncated=last.truncated)
    if plan.asks:
        return await _paused(run, plan.asks)
    await run_batch(run, plan)
    outputs = close_batch(state)
    for item in outputs:
        await run.channel.put(ItemCreated(item))
    _check_valve(run)
    if run.control.stop_requested:
        count = last.item_count + len(outputs)
        return RunResult(state=state, final_output=early_output(state.items[-count:]), stopped_early=True)
    return None


def _request(run: LiveRun, turn: int) -> ModelRequest:
    instructions = run.agent.instructions
    if callable(instructions):
        instructions = instructions(RunContext(run.options.context, run.agent.name, turn))
    known = _known_length(run.state)
    return ModelRequest(
        instructions=instructions,
        items=View(run.state.items),
        tools=run.specs,
        settings=run.settings,
        previous_response_id=run.state.responses[-1].response_id if known else "",
        previous_length=known,
    )


def _known_length(state: RunState) -> int:
    """How much of the conversation the last answer ends; 0 where it cannot be told."""
    if not state.responses or not state.responses[-1].item_count:
        return 0
    place = len(state.items)
    while place and state.items[place - 1].source != Source.MODEL:
        place -= 1
    return place


def _check_calls(response: ModelResponse) -> None:
    seen: set[str] = set()
    for item in response.items:
        if item.kind != ItemKind.TOOL_CALL:
            continue
        if not item.call_id or item.call_id in seen:
            raise ModelBehaviorError(
                f"the model made a call whose id is empty or used twice: {item.call_id!r}"
            )
        seen.add(item.call_id)


def _open_calls(run: LiveRun) -> list[ToolCall]:
    return [item.call for item in last_answer(run.state) if item.kind == ItemKind.TOOL_CALL]


def _finished(run: LiveRun, last: ResponseRecord) -> RunResult | None:
    if run.state.pending_input:
        return None
    return RunResult(
        state=run.state,
        final_output=final_output(last_answer(run.state)),
        stopped_early=run.control.stop_requested,
        truncated=last.truncated,
    )


async def _paused(run: LiveRun, asks: list[PendingApproval]) -> RunResult:
    approvals = tuple(asks)
    run.record(paused_record, approvals)
    run.state.interruptions = asks
    await run.channel.put(ApprovalRequested(approvals))
    return RunResult(state=run.state, interruptions=approvals)


def _check_valve(run: LiveRun) -> None:
    limit = error_turn_limit(run.options.max_consecutive_error_turns)
    if limit is not None and run.state.error_turns >= limit:
        raise ToolLoopError(f"every call failed in {run.state.error_turns} turns in a row")
