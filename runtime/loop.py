"""Turns until done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from runtime.budget import check_turns
from runtime.errors import AgentError, JournalError, MaxTurnsError, RunCancelled, code_of
from runtime.final import recover
from runtime.live import LiveRun
from runtime.models.model import Connected
from runtime.records import completed_record, failed_record
from runtime.saving import absorb_pending
from runtime.snapshot import resolve
from runtime.state import RunCompleted, RunResult
from runtime.turn import ask_model, settle


class RunError(AgentError):
    """A run that had started failed. The cause is chained; `code_of` tells its code.

    result  how far the run came; `result.state` resumes it
    """

    def __init__(self, message: str, result: RunResult[Any]) -> None:
        super().__init__(message)
        self.result = result


async def drive(run: LiveRun) -> None:
    """The whole life of a run: its events, its last record, and RunError if it fails."""
    try:
        result = await _connected(run)
    except asyncio.CancelledError:
        if not run.inbox.cancel_requested:
            raise
        error = cancelled(run)
        raise error from error.__cause__
    except Exception as error:  # whatever stops a run, its progress is handed over with it
        raise _failed(run, error) from error
    if not result.interruptions:
        run.state.queued = run.inbox.pending()
        _complete(run, result)
    await run.channel.put(RunCompleted(result))


def _complete(run: LiveRun, result: RunResult[Any]) -> None:
    run.state.completed = True
    run.tick()
    output = result.final_output
    text = output if isinstance(output, str) else to_json(output, fallback=str).decode()
    try:
        run.record(completed_record, text, result.stopped_early, run.state)
    except JournalError as error:
        raise RunError(f"the run has an answer, but the journal did not take it: {error}", result) from error


def cancelled(run: LiveRun) -> RunError:
    """What the stream of a run raises whose task was cancelled, by its control or from inside."""
    cause = RunCancelled("the run was cancelled")
    error = _failed(run, cause)
    error.__cause__ = cause
    return error


async def _connected(run: LiveRun) -> RunResult[Any]:
    run.tick()
    run.connect(run.model)
    try:
        return await _turns(run)
    finally:
        for model in run.connected:
            if isinstance(model, Connected):
                await model.release()


async def _turns(run: LiveRun) -> RunResult[Any]:
    state = run.state
    if state.completed and state.replaced_output is not None:
        return RunResult(state=state, final_output=state.replaced_output)
    result = await settle(run)
    while result is None:
        await absorb_pending(run)
        if run.inbox.cancel_requested:
            raise asyncio.CancelledError
        try:
            run.options.exec.budget.check(state.usage, state.cost_micros, run.tick())
            check_turns(state.turn, state.max_turns)
        except MaxTurnsError as error:
            result = await _after_the_last_turn(run, error)
        else:
            await ask_model(run)
            result = await settle(run)
    return result


async def _after_the_last_turn(run: LiveRun, error: MaxTurnsError) -> RunResult[Any]:
    result = None
    if run.options.exec.final_turn_without_tools and not run.state.last_call_given:
        run.state.last_call_given = True
        snapshot = await resolve(run.agent, run.options, run.state, run.context)
        run.prepared = replace(snapshot, tools={}, handoffs={})
        await ask_model(run)
        result = await settle(run)
    if result is None:
        result = await recover(run, run.options.exec.error_handlers.max_turns, error)
    if result is None:
        raise error
    return result


def _failed(run: LiveRun, cause: Exception) -> RunError:
    if not isinstance(cause, JournalError):
        try:
            run.record(failed_record, code_of(cause), str(cause))
        except JournalError as error:
            cause.add_note(f"and the journal did not take it: {error}")
    run.inbox.roll_back()
    run.tick()
    delivered = set(run.state.delivered)
    run.state.queued = [entry for entry in run.inbox.pending() if entry.id not in delivered]
    return RunError(f"the run failed: {cause}", RunResult(state=run.state))
