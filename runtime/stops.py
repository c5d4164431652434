"""Whether a turn after which the run would go on ends it, and with what.

There are two ways besides the control: every call of the answer asks for the end, or the run's own hook says
so. An agent has no such setting: where a run stops is the business of the run.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence

from runtime.items import Item, ItemKind
from runtime.live import LiveRun
from runtime.options import TurnResult
from runtime.state import Outcome


async def stop_after(run: LiveRun, turn: TurnResult, outcomes: Sequence[Outcome]) -> str | None:
    """The answer of a run that ends after this turn, or None if it goes on."""
    if run.inbox.stop_requested:
        return early_output(turn.items)
    if outcomes and not turn.handed and all(outcome.terminate for outcome in outcomes):
        return outcomes[-1].item.output
    hook = run.options.exec.should_stop_after_turn
    if hook is None:
        return None
    stop = hook(private(turn))
    stop = await stop if inspect.isawaitable(stop) else stop
    return early_output(turn.items) if stop else None


def private(turn: TurnResult) -> TurnResult:
    """A turn for one hook: what it changes there, nobody else sees."""
    return TurnResult(
        turn=turn.turn,
        agent=turn.agent,
        items=list(turn.items),
        handed=turn.handed,
        context=copy.copy(turn.context),
    )


def early_output(turn_items: Sequence[Item]) -> str:
    """What a run stopped after a turn with calls has to say: its last message, else its last output."""
    for kind in (ItemKind.MESSAGE, ItemKind.TOOL_OUTPUT):
        for item in reversed(turn_items):
            if item.kind == kind:
                return item.text if kind == ItemKind.MESSAGE else item.output
    return ""
