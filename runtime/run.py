"""The entry points: run, resume, and the stream that a run is read from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from runtime.agent import Agent
from runtime.budget import error_turn_limit, turn_limit
from runtime.control import RunControl
from runtime.errors import UserError
from runtime.history import repair
from runtime.items import Item, user_message
from runtime.live import Channel, LiveRun, RunEvent
from runtime.loop import cancelled, drive
from runtime.models.model import ToolSpec
from runtime.options import RunOptions
from runtime.records import resumed_record, state_record
from runtime.state import RunCompleted, RunResult, RunState

Input = str | Sequence[Item]


class RunStream:
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

    async def result(self) -> RunResult:
        """Read the run to its end, for those who want no events. Raises RunError if the run fails."""
        result: RunResult | None = None
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
        self._begin()
        # The run has a task of its own, so that ending it never cancels the reader's.
        task = asyncio.create_task(drive(live))
        task.add_done_callback(lambda _: live.channel.wake())
        live.control.attach(asyncio.get_running_loop(), task)
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
            live.control.detach()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # looked at, so that asyncio does not report it a second time

    def _begin(self) -> None:
        state, journal = self._live.state, self._live.options.journal
        self._live.record(resumed_record if self._resumed and state.is_in(journal) else state_record, state)
        state.mark_as_in(journal)


def run(agent: Agent, input: Input, options: RunOptions | None = None) -> tuple[RunStream, RunControl]:
    """Set a run up. Nothing happens before the stream is read.

    `input` is what a person says, or a conversation as items; an empty list answers from nothing new. Raises
    UserError at once for options that do not fit.
    """
    options = options or RunOptions()
    items = [user_message(input)] if isinstance(input, str) else _whole(input)
    state = RunState(
        agent=agent.name, items=items, first_new=len(items), max_turns=turn_limit(options.max_turns)
    )
    return _stream(agent, state, options, resumed=False)


def resume_run(
    agent: Agent, state: RunState, options: RunOptions | None = None, *, input: Input | None = None
) -> tuple[RunStream, RunControl]:
    """Set up the rest of a run: one that paused, failed, was killed, or ended (then with new input).

    The state is copied, not changed; its own `max_turns` wins over the options'. Calls of the last answer
    that have no output are settled first, then `input` joins. A run that had ended begins to count its turns
    anew. Raises UserError for a state of another agent.
    """
    if state.agent != agent.name:
        raise UserError(f"the state is of the agent {state.agent!r}, not of {agent.name!r}")
    options = options or RunOptions()
    state = state.copied()
    state.max_turns = state.max_turns or turn_limit(options.max_turns)
    if input is not None:
        state.pending_input.extend([user_message(input)] if isinstance(input, str) else _whole(input))
        if state.completed:
            state.turn, state.error_turns, state.completed = 0, 0, False
            state.first_new = len(state.items) + len(state.pending_input)
    return _stream(agent, state, options, resumed=True)


def run_sync(agent: Agent, input: Input, options: RunOptions | None = None) -> RunResult:
    """Run to the end, blocking. Raises RunError, and UserError inside a running event loop."""
    stream, _ = run(agent, input, options)
    return _block(stream)


def resume_run_sync(
    agent: Agent, state: RunState, options: RunOptions | None = None, *, input: Input | None = None
) -> RunResult:
    """Resume to the end, blocking. Raises as `run_sync` and `resume_run` do."""
    stream, _ = resume_run(agent, state, options, input=input)
    return _block(stream)


def _block(stream: RunStream) -> RunResult:
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
    agent: Agent, state: RunState, options: RunOptions, *, resumed: bool
) -> tuple[RunStream, RunControl]:
    model = options.model or agent.model
    if model is None:
        raise UserError("no model: give the agent one, or RunOptions(model=...)")
    error_turn_limit(options.max_consecutive_error_turns)
    control = RunControl()
    live = LiveRun(
        agent=agent,
        model=model,
        settings=options.settings or agent.settings,
        options=options,
        tools={tool.name: tool for tool in agent.tools},
        specs=[
            ToolSpec(
                name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
            )
            for tool in agent.tools
        ],
        state=state,
        control=control,
        channel=Channel(),
    )
    return RunStream(live, resumed=resumed), control
