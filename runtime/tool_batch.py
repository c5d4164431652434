"""The calls of one answer: which run, which wait for a person, which are answered without running."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import re
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from runtime.errors import ModelBehaviorError, UserError
from runtime.events import PendingApproval, ToolFinished, ToolProgress, ToolStarted
from runtime.history import interrupted
from runtime.items import Display, ToolCall, function_output
from runtime.live import LiveRun
from runtime.records import call_started_record, output_record
from runtime.scheduler import is_concurrent, run_jobs
from runtime.schema import canonical, clean, clean_text, dump, load_object
from runtime.state import Decision, NestedPaused, Outcome
from runtime.tools import (
    ERROR_LIMIT_BYTES,
    BadArguments,
    BoundCall,
    ToolContext,
    ToolFailed,
    ToolResult,
    Verdict,
    bind,
    bounded,
)
from runtime.usage import Usage

TRUNCATED_TEXT = (
    "The answer was cut off by the token limit, so this call may be incomplete and did not run. "
    "Send it again, shorter or in parts."
)
LATE_ASK_TEXT = (
    "The call did not run: it now needs an approval that it did not need when it was looked at. "
    "Send it again."
)

TOOL_FAILURES = (Exception, SystemExit)
"""What a tool's own code may raise: it is the failure of its call, never of the run."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that may run."""

    call: ToolCall
    bound: BoundCall[Any]
    approved: bool


@dataclass(slots=True)
class Plan:
    """What becomes of the calls of one answer. While `asks` is not empty, nothing of it may run."""

    to_run: list[Ready] = field(default_factory=list)
    asks: list[PendingApproval] = field(default_factory=list)
    answered: list[tuple[ToolCall, Outcome]] = field(default_factory=list)


async def plan_batch(run: LiveRun, calls: Sequence[ToolCall], *, truncated: bool) -> Plan:
    """Sort the calls. Those that have an output already are left out; nothing runs here."""
    plan = Plan()
    for call in calls:
        if call.call_id in run.state.finished:
            continue
        if call.call_id in run.state.nested:
            plan.to_run.append(await _again(run, call))
        elif call.call_id in run.state.started:
            plan.answered.append((call, Outcome(item=interrupted(call.call_id), failed=None)))
        elif truncated:
            plan.answered.append((call, _failure(call, TRUNCATED_TEXT)))
        else:
            await _sort(run, call, plan)
    return plan


async def _sort(run: LiveRun, call: ToolCall, plan: Plan) -> None:
    tools = (await run.current()).tools
    tool = tools.get(call.name)
    if tool is None:
        text = _no_such_tool(call.name, list(tools))
        if run.options.exec.unknown_tool_is_fatal:
            raise ModelBehaviorError(text)
        plan.answered.append((call, _failure(call, text)))
        return
    try:
        bound = bind(tool, call.arguments)
        verdict = await bound.check()
        preview = await bound.preview(call.arguments) if verdict.decision == "ask" else ""
    except BadArguments as error:
        plan.answered.append((call, _failure(call, str(error))))
    except ToolFailed as error:
        plan.answered.append((call, _failure(call, str(error))))
    except TOOL_FAILURES as error:
        plan.answered.append((call, _crash(call, error)))
    else:
        _judge(run, Ready(call, bound, approved=False), verdict, preview, plan)


async def _again(run: LiveRun, call: ToolCall) -> Ready:
    # The call runs an agent that paused: it was judged when it began, and goes on where it stopped.
    tool = (await run.current()).tools.get(call.name)
    if tool is None:
        raise UserError(f"the tool {call.name!r}, which runs an agent that paused, is not there any more")
    return Ready(call, bind(tool, call.arguments), approved=True)


def _judge(run: LiveRun, ready: Ready, verdict: Verdict, preview: str, plan: Plan) -> None:
    call = ready.call
    if verdict.decision == "deny":
        plan.answered.append((call, _denied(call, verdict)))
        return
    decision = run.state.decisions.get(call.call_id)
    if verdict.decision == "allow":
        # A rejection stands, though nobody would be asked any more.
        if decision is None or decision.approved:
            plan.to_run.append(ready)
        else:
            plan.answered.append((call, _rejected(call, decision)))
        return
    act = fingerprint(run.options.exec.environment_id, call, preview)
    if decision is None or decision.fingerprint != act:
        plan.asks.append(
            PendingApproval(
                call_id=call.call_id,
                tool=call.name,
                arguments=call.arguments,
                preview=clean_text(preview),
                reason=clean_text(verdict.reason),
                rule=clean_text(verdict.rule),
                fingerprint=act,
            )
        )
    elif decision.approved:
        plan.to_run.append(Ready(call, ready.bound, approved=True))
    else:
        plan.answered.append((call, _rejected(call, decision)))


def fingerprint(environment_id: str, call: ToolCall, preview: str) -> str:
    """What a decision is bound to: the place, the tool, the meaning of the arguments, and what was shown."""
    try:
        arguments = canonical(load_object(call.arguments))
    except ValueError:
        arguments = call.arguments
    parts = [environment_id, call.name, arguments, preview]
    return hashlib.sha256(canonical([clean_text(part) for part in parts]).encode()).hexdigest()


async def run_batch(run: LiveRun, plan: Plan) -> None:
    """Answer every call of a plan that asks nobody; the outputs are in `state.finished` afterwards."""
    for call, outcome in plan.answered:
        _finish(run, call, outcome)
    jobs = [partial(_run_call, run, ready) for ready in plan.to_run]
    concurrent = is_concurrent([ready.bound.tool.sequential for ready in plan.to_run])
    await run_jobs(jobs, concurrent=concurrent, limit=run.options.exec.max_tool_concurrency)


async def _run_call(run: LiveRun, ready: Ready) -> None:
    call = ready.call
    closed, cancelled = threading.Event(), threading.Event()
    spent: list[Usage] = []

    def report(usage: Usage) -> None:
        if not closed.is_set():
            spent.append(usage)
            run.spend(usage, nested=True)

    context = ToolContext(
        call_id=call.call_id,
        tool_name=call.name,
        cancelled=cancelled,
        emit=_progress(run, call, lambda: closed.is_set() or cancelled.is_set()),
        run=run.context,
        paused=run.state.nested.get(call.call_id),
        report=report,
    )
    try:
        outcome = await _outcome(run, ready, context)
    except NestedPaused as paused:
        run.state.nested[call.call_id] = paused.state
        return
    finally:
        closed.set()
    run.state.nested.pop(call.call_id, None)
    _finish(run, call, replace(outcome, usage=sum(spent, Usage())))


async def _outcome(run: LiveRun, ready: Ready, context: ToolContext) -> Outcome:
    call = ready.call
    refused = await _refused_now(ready)
    if refused is not None:
        return refused
    run.record(call_started_record, call.call_id, call.name)
    if call.call_id not in run.state.started:
        run.state.started.append(call.call_id)
    run.channel.tell(ToolStarted(call.call_id, call.name, call.arguments))
    return await _attempt(ready, context)


async def _refused_now(ready: Ready) -> Outcome | None:
    # What was allowed when the batch was sorted may be refused by now: a sibling ran, a person took time.
    try:
        verdict = await ready.bound.check()
    except TOOL_FAILURES as error:
        return _crash(ready.call, error)
    if verdict.decision == "deny":
        return _denied(ready.call, verdict)
    if verdict.decision != "allow" and not ready.approved:
        return _failure(ready.call, LATE_ASK_TEXT)
    return None


async def _attempt(ready: Ready, context: ToolContext) -> Outcome:
    call = ready.call
    try:
        return _result(call, await ready.bound.run(context))
    except NestedPaused:
        raise
    except (ToolFailed, BadArguments) as error:
        return _failure(call, str(error))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _crash(call, error)
    except TOOL_FAILURES as error:
        return _crash(call, error)


def _progress(run: LiveRun, call: ToolCall, unwanted: Callable[[], bool]) -> Callable[[str], None]:
    loop = asyncio.get_running_loop()
    home = threading.get_ident()

    def emit(text: str) -> None:
        if unwanted():
            return
        event = ToolProgress(call.call_id, call.name, text)
        if threading.get_ident() == home:
            run.channel.tell(event)
            return
        hand_over = run.channel.progress(event, unwanted)
        if hand_over is not None:
            loop.call_soon_threadsafe(hand_over)

    return emit


def _finish(run: LiveRun, call: ToolCall, outcome: Outcome) -> None:
    run.record(output_record, outcome)
    run.state.finished[call.call_id] = outcome
    run.channel.tell(ToolFinished(call.call_id, call.name, outcome.item))


def _result(call: ToolCall, result: ToolResult) -> Outcome:
    display = None
    if result.title or result.summary or result.details:
        # Read back from text: details are detached from the tool, and what is no JSON fails here.
        details = json.loads(dump(clean(result.details))) if result.details else None
        title, summary = clean_text(result.title), clean_text(result.summary)
        display = Display(title=title, summary=summary, details=details)
    item = function_output(call.call_id, result.text, is_error=result.is_error, display=display)
    return Outcome(item=item, failed=result.is_error, terminate=result.terminate)


def _failure(call: ToolCall, text: str) -> Outcome:
    return Outcome(item=function_output(call.call_id, text, is_error=True), failed=True)


def _denied(call: ToolCall, verdict: Verdict) -> Outcome:
    text = f"Refused by policy, and not run: {verdict.reason or 'no reason is given'}"
    display = Display(summary=clean_text(f"refused by {verdict.rule}") if verdict.rule else "refused")
    return Outcome(item=function_output(call.call_id, text, is_error=True, display=display), failed=True)


def _rejected(call: ToolCall, decision: Decision) -> Outcome:
    display = Display(summary="rejected")
    item = function_output(call.call_id, decision.message, is_error=True, display=display)
    return Outcome(item=item, failed=None)


def _crash(call: ToolCall, error: BaseException) -> Outcome:
    text = bounded(f"The tool {call.name} crashed: {type(error).__name__}: {error}", ERROR_LIMIT_BYTES)
    trace = clean_text("".join(traceback.format_exception(error)))
    display = Display(summary="crashed", details={"traceback": trace})
    return Outcome(item=function_output(call.call_id, text, is_error=True, display=display), failed=True)


def _no_such_tool(name: str, known: list[str]) -> str:
    short = re.sub(r"[^a-z0-9]+", "_", name.rsplit(".", 1)[-1].lower())
    near = difflib.get_close_matches(short, known, n=len(known), cutoff=0.5) if known else []
    ordered = near + [other for other in known if other not in near]
    tools = f"The tools are: {', '.join(ordered)}." if ordered else "There are no tools now."
    return bounded(f"There is no tool called {name[:100]!r}. {tools}", 4 * ERROR_LIMIT_BYTES)
