"""The end of a turn after which the run goes on: the next model call has not been made yet.

The order is fixed: what the turn made is saved, then the guards against endless loops look at it, then
somebody may stop the run, then what was said meanwhile joins, then the conversation may be compacted, then
the next turn may be prepared. A handoff takes no part in the last two: the next turn is another agent's.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from runtime.budget import error_turn_limit
from runtime.errors import ToolLoopError
from runtime.final import finish
from runtime.live import LiveRun
from runtime.options import TurnResult
from runtime.records import rewritten_record
from runtime.repeats import check_repeats
from runtime.saving import absorb, flush
from runtime.state import Outcome, RunResult
from runtime.stops import private, stop_after


async def save_point(run: LiveRun, turn: TurnResult, outcomes: Sequence[Outcome]) -> RunResult[Any] | None:
    """Go through the end of a turn. A result if the run ends here."""
    await flush(run)
    _check_valve(run)
    check_repeats(run, turn.items)
    output = await stop_after(run, turn, outcomes)
    if output is not None:
        return await finish(run, output, stopped_early=True)
    await absorb(run, run.inbox.take(("steer", "next_turn")))
    if not turn.handed:
        await _compact(run)
        await _prepare(run, turn)
    run.snapshot = None
    return None


async def _compact(run: LiveRun) -> None:
    compactor = run.options.compaction
    if compactor is None:
        return
    try:
        shorter = await compactor.compact(list(run.view), run.context)
    except Exception as error:  # a run can live with a long conversation
        run.note("compaction_failed", f"{type(error).__name__}: {error}")
        return
    if shorter is not None:
        run.rewrite(shorter, len(run.state.items))
        run.record(rewritten_record, run.state.rewritten)


async def _prepare(run: LiveRun, turn: TurnResult) -> None:
    hook = run.options.exec.prepare_next_turn
    if hook is not None:
        prepared = hook(private(turn), await run.current())
        run.prepared = await prepared if inspect.isawaitable(prepared) else prepared


def _check_valve(run: LiveRun) -> None:
    limit = error_turn_limit(run.options.exec.max_consecutive_error_turns)
    if limit is not None and run.state.error_turns >= limit:
        raise ToolLoopError(f"every call failed in {run.state.error_turns} turns in a row")
