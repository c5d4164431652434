"""One turn: one model call and all that follows from it, in a fixed order.

The order is the promise: the answer is durable before its calls run, a call is before it begins, its output
is before the next answer is asked for. A pause comes before any call of the turn has run, unless a nested run
pauses. All calls run before a handoff takes effect, and a handoff comes before an answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runtime.budget import sane
from runtime.errors import ModelBehaviorError, ModelRefusalError, UserError
from runtime.events import ApprovalRequested, HandoffRequested, ItemCreated, PendingApproval, TurnStarted
from runtime.final import NoText, check_status, final_output, finish, recover
from runtime.handoffs import IGNORED_TEXT, HandoffHistory, agents_of, handoff_output
from runtime.history import View, repair
from runtime.items import Item, ItemKind, Role, Source, ToolCall, user_message
from runtime.live import LiveRun
from runtime.models.model import ModelRequest, ModelResponse
from runtime.options import ModelInput, TurnResult
from runtime.records import (
    close_batch,
    handoff_record,
    last_answer,
    paused_record,
    response_record,
    rewritten_record,
    state_record,
)
from runtime.save_point import save_point
from runtime.saving import flush, go_on_for
from runtime.snapshot import TurnSnapshot, resolve
from runtime.state import Outcome, ResponseRecord, RunResult
from runtime.tool_batch import plan_batch, run_batch


async def ask_model(run: LiveRun) -> None:
    """The first half: ask the model and keep its answer."""
    state, context = run.state, run.context
    turn = context.turn = state.turn + 1
    context.agent = run.agent.name
    await run.channel.put(TurnStarted(turn, run.agent.name))
    await _start_agent(run)
    snapshot = run.prepared or await resolve(run.agent, run.options, state, context)
    run.prepared = None
    given = state.items[state.first_input : state.first_new] if state.turn == 0 else []
    if given and (text := await run.guards.before(run, given)) is not None:
        _replace_input(run, text)
        given = state.items[state.first_input : state.first_new]
    run.snapshot = snapshot = replace(snapshot, input=View(run.view))
    request = await _request(run, snapshot)
    await flush(run)
    response, text = await _answer(run, snapshot, request, given)
    record = _record(run, snapshot, response)
    run.spend(record.usage)
    state.cost_micros += record.cost_micros
    check_status(record)
    items = _classified(response, snapshot)
    _check_calls(items, snapshot, truncated=record.truncated)
    run.record(response_record, record, items)
    state.turn = turn
    run.join(items)
    state.responses.append(record)
    state.settled = False
    if text is not None:
        _replace_sent_input(run, snapshot, text)
    for item in items:
        await run.channel.put(ItemCreated(item))


async def settle(run: LiveRun) -> RunResult[Any] | None:
    """The second half: do what the last answer asks for. A result if the run ends or pauses here.

    Also the entry of a resumed run, whose last answer may be settled in part.
    """
    state = run.state
    if state.settled or not state.responses:
        return None
    last = state.responses[-1]
    answer = last_answer(state)
    calls = [item.call for item in answer if item.is_call]
    if not calls:
        return await _conclude(run, last, answer)
    handoffs = [item.call for item in answer if item.is_handoff]
    snapshot = await run.current()
    plan = await plan_batch(
        run, [call for call in calls if last.truncated or call not in handoffs], truncated=last.truncated
    )
    if plan.asks:
        return await _paused(run, plan.asks)
    await run_batch(run, plan)
    if state.nested:
        return await _paused(run, _nested_asks(run))
    before = len(run.view) - len(answer)
    handed = "" if last.truncated or not handoffs else await _hand_over(run, snapshot, handoffs)
    outcomes = [state.finished[call.call_id] for call in calls]
    outputs = close_batch(state)
    run.show(outputs)
    turn = TurnResult(
        turn=state.turn,
        agent=snapshot.agent.name,
        items=[*answer, *outputs],
        handed=handed,
        context=run.context,
    )
    if handed:
        way = snapshot.handoffs[handoffs[0].name]
        chosen = way.input_filter or run.options.conversation.handoff_filter
        if chosen is not None:
            seen = chosen(
                HandoffHistory(before=run.view[:before], turn=run.view[before:], context=run.context)
            )
            run.rewrite(_whole(seen), len(state.items))
        made = {
            call.call_id: outcome for call, outcome in zip(calls, outcomes, strict=True) if call in handoffs
        }
        run.record(handoff_record, handed, list(made.values()), state.rewritten)
        state.agent, state.agent_started = handed, False
        run.agent = run.agents[handed]
    for item in outputs:
        await run.channel.put(ItemCreated(item))
    return await save_point(run, turn, outcomes)


async def _start_agent(run: LiveRun) -> None:
    if not run.state.agent_started:
        run.state.agent_started = True
        if run.agent.on_start is not None:
            started = run.agent.on_start(run.context)
            if inspect.isawaitable(started):
                await started


async def _request(run: LiveRun, snapshot: TurnSnapshot) -> ModelRequest:
    known = _known_length(run)
    instructions, items = snapshot.instructions, snapshot.input
    edit = run.options.model.input_filter
    if edit is not None:
        edited = edit(ModelInput(instructions=instructions, items=items, context=run.context))
        edited = await edited if inspect.isawaitable(edited) else edited
        # What the service was sent before is not what stands in an edited list at the same place.
        known = known if edited.items is items else 0
        instructions, items = edited.instructions, edited.items
    run.context.turn_input = items[known:] if _kept_by_service(snapshot) else items
    return ModelRequest(
        instructions=instructions,
        items=items,
        tools=snapshot.specs(),
        settings=snapshot.settings,
        output=snapshot.output.schema if snapshot.output else None,
        previous_response_id=run.state.responses[-1].response_id if known else "",
        previous_length=known,
    )


async def _answer(
    run: LiveRun, snapshot: TurnSnapshot, request: ModelRequest, given: Sequence[Item]
) -> tuple[ModelResponse, str | None]:
    async def ask() -> ModelResponse:
        return await snapshot.model.respond(request, run.channel.tell)

    run.connect(snapshot.model)
    budget = run.options.exec.budget
    left_s = None if budget.deadline_s is None else budget.deadline_s - run.tick()
    try:
        async with asyncio.timeout(left_s) as limit:
            return await run.guards.beside(run, given, ask) if given else (await ask(), None)
    except TimeoutError as error:
        if limit.expired():
            raise budget.too_late() from error
        raise


def _record(run: LiveRun, snapshot: TurnSnapshot, response: ModelResponse) -> ResponseRecord:
    usage, model = sane(response.usage), snapshot.model.name
    return ResponseRecord(
        response_id=response.response_id,
        status=response.status,
        incomplete_reason=response.incomplete_reason,
        request_id=response.request_id,
        usage=usage,
        item_count=len(response.items),
        agent=snapshot.agent.name,
        model=model,
        cost_micros=run.options.exec.budget.cost_micros(model, usage),
    )


def _kept_by_service(snapshot: TurnSnapshot) -> bool:
    return snapshot.settings.chain or snapshot.settings.conversation is not None


def _replace_input(run: LiveRun, text: str) -> None:
    state = run.state
    state.items[state.first_input : state.first_new] = [user_message(text)]
    state.first_new = state.first_input + 1
    run.see()
    run.record(state_record, state)


def _replace_sent_input(run: LiveRun, snapshot: TurnSnapshot, text: str) -> None:
    if _kept_by_service(snapshot):
        raise UserError("a guardrail replaces input that the service keeps already; make it a blocking one")
    state = run.state
    run.rewrite([*state.items[: state.first_input], user_message(text)], state.first_new)
    run.record(rewritten_record, state.rewritten)


def _known_length(run: LiveRun) -> int:
    """How much of what the model sees the last answer ends; 0 where it cannot be told."""
    state = run.state
    if not state.responses or not state.responses[-1].item_count:
        return 0
    base = len(state.rewritten.items) if state.rewritten else 0
    place = len(run.view)
    while place > base and run.view[place - 1].source != Source.MODEL:
        place -= 1
    return place if place > base else 0


def _classified(response: ModelResponse, snapshot: TurnSnapshot) -> list[Item]:
    items = [
        replace(item, kind=ItemKind.HANDOFF_CALL)
        if item.kind == ItemKind.TOOL_CALL and item.call.name in snapshot.handoffs
        else item
        for item in response.items
    ]
    role = Role.WORKING_MESSAGE if any(item.is_call for item in items) else Role.FINAL_RESPONSE
    return [replace(item, role=role) if item.kind == ItemKind.MESSAGE else item for item in items]


def _check_calls(items: Sequence[Item], snapshot: TurnSnapshot, *, truncated: bool) -> None:
    seen: set[str] = set()
    for item in items:
        if not item.is_call:
            continue
        if not item.call_id or item.call_id in seen:
            raise ModelBehaviorError(
                f"the model made a call whose id is empty or used twice: {item.call_id!r}"
            )
        seen.add(item.call_id)
    first = next((item.call for item in items if item.is_handoff), None)
    if first is not None and not truncated:
        snapshot.handoffs[first.name].read(first)


async def _conclude(run: LiveRun, last: ResponseRecord, answer: Sequence[Item]) -> RunResult[Any] | None:
    state = run.state
    if state.pending_input:
        return None
    handlers = run.options.exec.error_handlers
    snapshot = await run.current()
    try:
        output = final_output(answer, snapshot.output)
    except ModelRefusalError as error:
        if (result := await recover(run, handlers.refusal, error)) is not None:
            return result
        raise
    except ModelBehaviorError as error:
        if (result := await recover(run, handlers.invalid_final_output, error)) is not None:
            return result
        if not isinstance(error, NoText):
            raise
        state.settled = True
        turn = TurnResult(
            turn=state.turn, agent=snapshot.agent.name, items=list(answer), handed="", context=run.context
        )
        return await save_point(run, turn, [])
    if state.completed:
        return RunResult(state=state, final_output=output, truncated=last.truncated)
    if await go_on_for(run, ("steer", "follow_up")):
        return None
    return await finish(run, output, truncated=last.truncated)


async def _hand_over(run: LiveRun, snapshot: TurnSnapshot, calls: Sequence[ToolCall]) -> str:
    first = calls[0]
    target = await snapshot.handoffs[first.name].resolve(run.context, first)
    run.agents = {**agents_of(target), **run.agents, target.name: target}
    await run.channel.put(HandoffRequested(first.call_id, run.agent.name, target.name, first.arguments))
    for call in calls:
        text = f"Handed over to {target.name}." if call is first else IGNORED_TEXT
        run.state.finished[call.call_id] = Outcome(item=handoff_output(call.call_id, text), failed=None)
    return target.name


def _whole(items: Sequence[Item]) -> list[Item]:
    repaired = repair(items)
    repaired.close()
    return repaired.items


def _nested_asks(run: LiveRun) -> list[PendingApproval]:
    return [
        replace(ask, parents=(call_id, *ask.parents))
        for call_id, nested in run.state.nested.items()
        for ask in nested.interruptions
    ]


async def _paused(run: LiveRun, asks: list[PendingApproval]) -> RunResult[Any]:
    approvals = tuple(asks)
    state = run.state
    await flush(run)
    # The state holds what was said from here on, and what still waits to be delivered too.
    run.inbox.commit()
    run.tick()
    state.interruptions, state.queued = asks, run.inbox.pending()
    run.record(paused_record, state)
    await run.channel.put(ApprovalRequested(approvals))
    return RunResult(state=state, interruptions=approvals)
