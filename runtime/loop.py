"""Turns until done."""

from __future__ import annotations

import asyncio

from runtime.budget import check_turns
from runtime.errors import AgentError, JournalError, RunCancelled, code_of
from runtime.live import LiveRun
from runtime.models.model import Connected
from runtime.records import completed_record, failed_record, input_record
from runtime.state import RunCompleted, RunResult
from runtime.turn import ask_model, settle


class RunError(AgentError):
    """A run that had started failed. The cause is chained; `code_of` tells its code.

    result  how far the run came; `result.state` resumes it
    """

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


async def drive(run: LiveRun) -> None:
    """The whole life of a run: its events, its last record, and RunError if it fails."""
    try:
        result = await _connected(run)
    except asyncio.CancelledError:
        if not run.control.cancel_requested:
            raise
        error = cancelled(run)
        raise error from error.__cause__
    except Exception as error:  # whatever stops a run, its progress is handed over with it
        raise _failed(run, error) from error
    if not result.interruptions:
        _complete(run, result)
    await run.channel.put(RunCompleted(result))


def _complete(run: LiveRun, result: RunResult) -> None:
    run.state.completed = True
    try:
        run.record(completed_record, result.final_output or "", result.stopped_early)
    except JournalError as error:
        raise RunError(f"the run has an answer, but the journal did not take it: {error}", result) from error


def cancelled(run: LiveRun) -> RunError:
    """What the stream of a run raises whose task was cancelled, by its control or from inside."""
    cause = RunCancelled("the run was cancelled")
    error = _failed(run, cause)
    error.__cause__ = cause
    return error


async def _connected(run: LiveRun) -> RunResult:
    model = run.model
    if not isinstance(model, Connected):
        return await _turns(run)
    model.connect()
    try:
        return await _turns(run)
    finally:
        await model.release()


async def _turns(run: LiveRun) -> RunResult:
    result = await settle(run)
    while result is None:
        _absorb_input(run)
        check_turns(run.state.turn, run.state.max_turns)
        await ask_model(run)
        result = await settle(run)
    return result


def _absorb_input(run: LiveRun) -> None:
    state = run.state
    if state.pending_input:
        run.record(input_record, state.pending_input)
        state.items.extend(state.pending_input)
        state.pending_input = []
        state.settled = True


def _failed(run: LiveRun, cause: Exception) -> RunError:
    if not isinstance(cause, JournalError):
        try:
            run.record(failed_record, code_of(cause), str(cause))
        except JournalError as error:
            cause.add_note(f"and the journal did not take it: {error}")
    return RunError(f"the run failed: {cause}", RunResult(state=run.state))
