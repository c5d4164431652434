"""How input joins the conversation, and how the conversation reaches the session."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from runtime.events import InjectedInputCreated, ItemsSaved
from runtime.history import repair
from runtime.items import Item, user_message
from runtime.live import LiveRun
from runtime.records import input_record, saved_record
from runtime.state import Queued, QueueKind


async def load(run: LiveRun) -> None:
    """Put what the session holds before the input of a run that begins."""
    session, state = run.options.conversation.session, run.state
    if session is None:
        return
    repaired = repair(await session.read())
    repaired.close()
    state.items = [*repaired.items, *state.items]
    state.first_input = state.saved = len(repaired.items)
    state.first_new = len(state.items)
    run.see()


async def flush(run: LiveRun, *, closing: bool = False) -> None:
    """Save what the session does not hold yet, up to an answer whose calls are still open.

    closing  the last answer ends the run: it is saved too
    """
    state, session = run.state, run.options.conversation.session
    if session is None:
        return
    end = len(state.items)
    if not (closing or state.settled) and state.responses:
        end -= state.responses[-1].item_count
    new = state.items[state.saved : end]
    if new:
        await session.append(new)
        state.saved = end
        run.record(saved_record, end)
    if end == len(state.items):
        run.inbox.commit()
        if new:
            await run.channel.put(ItemsSaved(len(new)))


async def absorb(run: LiveRun, said: Sequence[Queued]) -> None:
    """What was given to the control joins the conversation."""
    if not said:
        return
    state = run.state
    items = [entry.item for entry in said]
    text = await run.guards.before(run, items)
    if text is not None:
        items = [_injected(text, items[0])]
    state.delivered += [entry.id for entry in said]
    run.record(input_record, items, [entry.id for entry in said])
    state.settled = True
    run.join(items)
    if run.options.observe.journal is not None:
        run.inbox.commit()
    for item in items:
        await run.channel.put(InjectedInputCreated(item))


async def go_on_for(run: LiveRun, kinds: Collection[QueueKind]) -> bool:
    """Whether something was said for which a run that has its answer goes on; it has joined then."""
    if run.inbox.stop_requested:
        return False
    if not any(entry.kind in kinds for entry in run.inbox.pending()):
        return False
    # Saved before anything is taken: a save that comes before what was said does not keep it.
    await flush(run, closing=True)
    await absorb(run, run.inbox.take(kinds))
    run.snapshot = None
    return True


async def absorb_pending(run: LiveRun) -> None:
    """Input that came with a resume joins the conversation."""
    state = run.state
    if not state.pending_input:
        return
    items = list(state.pending_input)
    # Input of a run that begins anew is judged by its first turn, as any run's.
    text = await run.guards.before(run, items) if state.turn else None
    if text is not None:
        items = [user_message(text)]
    run.record(input_record, items)
    state.pending_input = []
    state.settled = True
    run.join(items)


def _injected(text: str, like: Item) -> Item:
    item = user_message(text)
    return Item(kind=like.kind, raw=item.raw, source=item.source)
