"""The entry points: run, resume, and the stream that a run is read from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, Self

from runtime.agent import Agent, AnyAgent
from runtime.budget import error_turn_limit, turn_limit
from runtime.context import Context, Output, RunContext
from runtime.control import RunControl, inbox_of
from runtime.errors import UserError
from runtime.guards import Unguarded
from runtime.handoffs import agents_of
from runtime.history import repair
from runtime.items import Item, user_message
from runtime.live import Channel, LiveRun, RunEvent
from runtime.loop import cancelled, drive
from runtime.options import RunOptions
from runtime.records import begin_anew, resumed_record, state_record
from runtime.saving import load
from runtime.snapshot import model_of
from runtime.state import RunCompleted, RunResult, RunState

Input = str | Sequence[Item]


class RunStream(Generic[Output]):
    """The events of one run. Nothing happens until it is read, and no further than it is read.

    Read it once, with `async for`; the last event is RunCompleted, unless RunError is raised. Whoever leaves
    early calls `aclose` (or uses `async with`): the model call and the tools in flight are cancelled then,
    and what they still return is dropped.
    """

    def __init__(self, live: LiveRun, *, resumed: bool) -> None:
        self._live = live
        self._resumed = resumed
        self._events: AsyncGenerator[RunEvent, None] | None = None

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        if self._events is not None:
            raise UserError("this run has been read already; a stream is read once")
        self._events = self._read()
        return self._events

    async def result(self) -> RunResult[Output]:
        """Read the run to its end, for those who want no events. Raises RunError if the run fails."""
        result: RunResult[Output] | None = None
        async with self:
            async for event in self:
                if isinstance(event, RunCompleted):
                    result = event.result
        if result is None:
            raise UserError("the run was closed before it ended")
        return result

    async def aclose(self) -> None:
        """Stop the run, if it is not over. It cannot be read afterwards."""
        if self._events is None:
            self._events = self._read()
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _read(self) -> AsyncGenerator[RunEvent, None]:
        live = self._live
        if not self._resumed:
            await load(live)
        self._begin()
        # The run has a task of its own, so that ending it never cancels the reader's.
        task = asyncio.create_task(drive(live))
        task.add_done_callback(lambda _: live.channel.wake())
        live.inbox.attach(asyncio.get_running_loop(), task)
        complete = False
        try:
            while (event := await live.channel.take(task)) is not None:
                complete = isinstance(event, RunCompleted)
                yield event
            if not complete:
                if task.cancelled():
                    raise cancelled(live)
                await task
        finally:
            live.inbox.detach()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # looked at, so that asyncio does not report it a second time
            live.inbox.roll_back()

    def _begin(self) -> None:
        state, journal = self._live.state, self._live.options.observe.journal
        self._live.record(resumed_record if self._resumed and state.is_in(journal) else state_record, state)
        state.mark_as_in(journal)


def run(
    agent: Agent[Context, Output],
    input: Input,
    options: RunOptions | None = None,
    *,
    control: RunControl | None = None,
) -> tuple[RunStream[Output], RunControl]:
    """Set a run up. Nothing happens before the stream is read.

    `input` is what a person says, or a conversation as items; an empty list answers from nothing new, or from
    what the session holds. `control` is one that exists already: what was said to it is delivered. Raises
    UserError at once for options that do not fit.
    """
    options = options or RunOptions()
    items = [user_message(input)] if isinstance(input, str) else _whole(input)
    state = RunState(
        agent=agent.name, items=items, first_new=len(items), max_turns=turn_limit(options.exec.max_turns)
    )
    return _stream(agent, agents_of(agent), state, options, control or RunControl(), resumed=False)


def resume_run(
    agent: Agent[Context, Output],
    state: RunState,
    options: RunOptions | None = None,
    *,
    input: Input | None = None,
    agents: Iterable[AnyAgent] = (),
    control: RunControl | None = None,
) -> tuple[RunStream[Output], RunControl]:
    """Set up the rest of a run: one that paused, failed, was killed, or ended (then with new input).

    The state is copied, not changed; its own `max_turns` wins over the options'. `agent` is the one that the
    run began with; whoever works now is found among those that it can hand over to, and among `agents`. Calls
    of the last answer that have no output are settled first, then `input` joins. A run that had ended begins
    to count its turns anew. What was said to the run and not delivered comes before what is said to
    `control`. Raises UserError for a state of an agent that is not there.
    """
    known = {**{other.name: other for other in agents}, **agents_of(agent)}
    if state.agent not in known:
        raise UserError(
            f"the state is of the agent {state.agent!r}, not of {agent.name!r} or one that it hands over to"
        )
    options = options or RunOptions()
    state = state.copied()
    state.max_turns = state.max_turns or turn_limit(options.exec.max_turns)
    control = control or RunControl()
    inbox_of(control).seed(state.queued, state.delivered)
    state.queued = []
    if input is not None:
        state.pending_input.extend([user_message(input)] if isinstance(input, str) else _whole(input))
        if state.completed:
            begin_anew(state)
            state.first_input = len(state.items)
            state.first_new = len(state.items) + len(state.pending_input)
    return _stream(known[state.agent], known, state, options, control, resumed=True)


def run_sync(
    agent: Agent[Context, Output],
    input: Input,
    options: RunOptions | None = None,
    *,
    control: RunControl | None = None,
) -> RunResult[Output]:
    """Run to the end, blocking. Raises RunError, and UserError inside a running event loop."""
    stream, _ = run(agent, input, options, control=control)
    return _block(stream)


def resume_run_sync(
    agent: Agent[Context, Output],
    state: RunState,
    options: RunOptions | None = None,
    *,
    input: Input | None = None,
    agents: Iterable[AnyAgent] = (),
    control: RunControl | None = None,
) -> RunResult[Output]:
    """Resume to the end, blocking. Raises as `run_sync` and `resume_run` do."""
    stream, _ = resume_run(agent, state, options, input=input, agents=agents, control=control)
    return _block(stream)


def _block(stream: RunStream[Output]) -> RunResult[Output]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(stream.result())
    raise UserError("inside a running event loop, await `stream.result()` instead")


def _whole(items: Sequence[Item]) -> list[Item]:
    repaired = repair(items)
    repaired.close()
    return repaired.items


def _stream(
    agent: Agent[Any, Any],
    agents: dict[str, AnyAgent],
    state: RunState,
    options: RunOptions,
    control: RunControl,
    *,
    resumed: bool,
) -> tuple[RunStream[Any], RunControl]:
    model_of(agent, options)
    error_turn_limit(options.exec.max_consecutive_error_turns)
    settings = options.model.settings or agent.settings
    if options.conversation.session is not None and (settings.chain or settings.conversation is not None):
        raise UserError(
            "a session and a conversation that the service keeps exclude each other: give the session, or "
            "ModelSettings(chain=..., conversation=...)"
        )
    live = LiveRun(
        agent=agent,
        agents=agents,
        options=options,
        state=state,
        inbox=inbox_of(control),
        channel=Channel(),
        guards=Unguarded(),
        context=RunContext(value=options.context, agent=agent.name, turn=state.turn, usage=state.usage),
    )
    return RunStream(live, resumed=resumed), control
