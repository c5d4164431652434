"""The end of a turn: what is saved when, who is asked in which order, and what the next turn works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from runtime_kit import Bench, How, calls, fails, play, play_on, read, read_events, script, shape

from runtime import (
    Agent,
    ConversationOptions,
    ExecOptions,
    GuardrailTripped,
    Item,
    ItemsSaved,
    ModelInput,
    ModelOptions,
    ModelResponse,
    ModelSettings,
    RunContext,
    RunError,
    RunOptions,
    RunResult,
    RunState,
    Scripted,
    ScriptedCall,
    ToolResult,
    TurnResult,
    TurnSnapshot,
    UserError,
    run,
    run_sync,
    user_message,
)
from runtime.guards import Unguarded

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


class Kept:
    """A session in memory that notes when it is written, and what the run stood at then."""

    def __init__(self, log: list[str] | None = None, items: Sequence[Item] = ()) -> None:
        self.items = list(items)
        self.log = [] if log is None else log
        self.batches: list[list[str]] = []

    async def read(self) -> Sequence[Item]:
        return list(self.items)

    async def append(self, items: Sequence[Item]) -> None:
        self.log.append("save")
        self.batches.append(shape(items))
        self.items += items


class Judge(Unguarded):
    """Guards that do what a test says."""

    def __init__(self, before: Any = None, beside: Any = None, after: Any = None) -> None:
        self._before, self._beside, self._after = before, beside, after

    async def before(self, run: Any, items: Sequence[Item]) -> str | None:
        return self._before() if self._before else None

    async def beside(self, run: Any, items: Sequence[Item], ask: Any) -> tuple[ModelResponse, str | None]:
        if self._beside is None:
            return await ask(), None
        return await self._beside(ask)  # type: ignore[no-any-return]

    async def after(self, run: Any, output: Any) -> Any:
        return self._after(output) if self._after else output


def judged(how: How, agent: Agent, judge: Judge, options: RunOptions | None = None) -> RunResult[Any]:
    """A run with guards."""
    stream, _ = run(agent, "go", options)
    stream._live.guards = judge
    return read(stream) if how == "read" else asyncio.run(stream.result())


def trip(*_: Any) -> Any:
    """A guard that refuses."""
    raise GuardrailTripped("not that")


def saving(session: Kept, **more: Any) -> RunOptions:
    """Options with a session."""
    return RunOptions(conversation=ConversationOptions(session=session), **more)


@pytest.mark.spec("SP-01", "SP-02", "SP-03", "SP-04", "SP-06", "PC-08", "SE-01", "EP-11")
@BOTH
def test_the_end_of_a_turn_saves_asks_to_stop_compacts_and_prepares_in_this_order(how: How) -> None:
    log: list[str] = []

    class Compacts:
        async def compact(self, items: Sequence[Item], context: RunContext) -> Sequence[Item] | None:
            log.append("compact")
            return [user_message("in short"), *items[1:]]

    def stop(turn: TurnResult) -> bool:
        log.append(f"stop? {turn.turn}")
        return False

    def prepare(turn: TurnResult, snapshot: TurnSnapshot) -> None:
        log.append("prepare")

    def sent(given: ModelInput) -> ModelInput:
        log.append("ask")
        return given

    model = script(calls("ls"), "done")
    options = saving(
        Kept(log),
        model=ModelOptions(input_filter=sent),
        exec=ExecOptions(should_stop_after_turn=stop, prepare_next_turn=prepare),
        compaction=Compacts(),
    )
    result = play(how, Bench().agent(model), options=options)
    assert log == ["ask", "save", "save", "stop? 1", "compact", "prepare", "ask", "save"]
    assert [item.text for item in model.requests[1].items][0] == "in short"
    assert result.items[0].text == "go"


@pytest.mark.spec("SP-05", "ST-04", "HO-06")
@BOTH
def test_a_handoff_is_saved_and_may_be_stopped_and_takes_no_part_in_the_rest(how: How) -> None:
    log: list[str] = []

    class Compacts:
        async def compact(self, items: Sequence[Item], context: RunContext) -> None:
            log.append("compact")

    def stop(turn: TurnResult) -> bool:
        log.append(f"stop? {turn.handed}")
        return turn.turn == 2

    other = Agent(name="other", model=script("never"))
    over = Scripted(text="over to you", calls=(ScriptedCall(name="transfer_to_other"),))
    agent = Bench().agent(script(calls("ls"), over), handoffs=[other])
    exec_ = ExecOptions(
        should_stop_after_turn=stop, prepare_next_turn=lambda turn, snapshot: log.append("prepare")
    )
    result = play(how, agent, options=saving(Kept(log), exec=exec_, compaction=Compacts()))
    assert log == ["save", "save", "stop? ", "compact", "prepare", "save", "stop? other"]
    assert result.final_output == "over to you" and result.stopped_early


@pytest.mark.spec("ST-01", "ST-02")
@BOTH
@pytest.mark.parametrize("asking", [("a", "b"), ("a",)])
def test_tools_end_a_run_only_when_all_of_an_answer_ask_for_it(how: How, asking: tuple[str, ...]) -> None:
    acts: Any = {
        name: lambda context, name=name: ToolResult(text=f"last {name}", terminate=name in asking)
        for name in ("a", "b")
    }
    result = play(how, Bench(acts=acts).agent(script(calls("a", "b"), "went on")))
    assert result.final_output == ("last b" if len(asking) == 2 else "went on")


@pytest.mark.spec("ST-05", "ST-06", "ST-07", "ST-03")
@BOTH
def test_a_stop_hook_answers_yes_or_no_about_a_copy_of_the_turn(how: How) -> None:
    asked: list[int] = []

    def stop(turn: TurnResult) -> Any:
        asked.append(turn.turn)
        turn.items.clear()
        turn.context.turn = 99
        return "this is no answer" if turn.turn == 2 else False

    options = RunOptions(exec=ExecOptions(should_stop_after_turn=stop))
    result = play(how, Bench().agent(script(calls("a"), calls("b"), "never")), options=options)
    assert result.final_output == "ran b" and asked == [1, 2]
    asked.clear()
    assert play(how, Bench().agent(script("at once")), options=options).final_output == "at once"
    assert asked == []


@pytest.mark.spec("ST-08")
@BOTH
def test_both_ways_to_stop_survive_a_pause(how: How) -> None:
    done: Any = {"rm": lambda context: ToolResult(text="removed", terminate=True)}
    bench = Bench(ask={"rm"}, acts=done)
    state = RunState.from_json(play(how, bench.agent(script(calls("rm")))).state.to_json())
    state.approve("call_0_0")
    assert play_on(how, bench.agent(script("never")), state).final_output == "removed"
    bench = Bench(ask={"rm"})
    options = RunOptions(exec=ExecOptions(should_stop_after_turn=lambda turn: True))
    state = play(how, bench.agent(script(calls("rm"))), options=options).state
    state.approve("call_0_0")
    assert play_on(how, bench.agent(script("never")), state, options).final_output == "ran rm"


@pytest.mark.spec("ST-09")
def test_an_agent_has_no_setting_that_ends_a_run_early() -> None:
    assert not [field.name for field in fields(Agent) if "stop" in field.name or "terminate" in field.name]


@pytest.mark.spec("SN-02", "SN-03", "SN-04")
@BOTH
def test_a_prepared_turn_may_have_another_model_and_fewer_tools_and_is_one_turn(how: How) -> None:
    cheap = script(calls("b"))
    model = script(calls("a"), "done")

    def prepare(turn: TurnResult, snapshot: TurnSnapshot) -> TurnSnapshot | None:
        return replace(snapshot, model=cheap, tools={}, instructions="Be cheap.") if turn.turn == 1 else None

    bench = Bench()
    agent = bench.agent(model)
    result = play(how, agent, options=RunOptions(exec=ExecOptions(prepare_next_turn=prepare)))
    assert result.final_output == "done" and bench.ran == ["a"]
    assert cheap.requests[0].tools == [] and cheap.requests[0].instructions == "Be cheap."
    assert len(cheap.requests[0].items) == 3
    assert len(model.requests[1].tools) == 1 and model.requests[1].instructions == "Work."
    assert len(agent.tools) == 1


@pytest.mark.spec("SN-05", "SN-06", "SE-01")
@BOTH
def test_an_input_filter_changes_one_call_and_not_what_is_kept(how: How) -> None:
    seen: list[list[str]] = []

    def edit(given: ModelInput) -> ModelInput:
        return replace(given, items=[*given.items, user_message("hint")], instructions="Edited.")

    def stop(turn: TurnResult) -> bool:
        seen.append([item.text for item in turn.context.turn_input])
        return False

    bench = Bench(ask={"rm"})
    model = script(calls("rm"), "done")
    options = RunOptions(model=ModelOptions(input_filter=edit), exec=ExecOptions(should_stop_after_turn=stop))
    state = play(how, bench.agent(model), options=options).state
    assert [item.text for item in model.requests[0].items] == ["go", "hint"]
    state.approve("call_0_0")
    result = play_on(how, bench.agent(model), state, options)
    assert len(model.requests) == 2 and model.requests[1].instructions == "Edited."
    assert "hint" not in [item.text for item in result.items]


@pytest.mark.spec("SE-01")
def test_the_input_of_a_turn_is_what_was_really_sent() -> None:
    for settings, expected in ((ModelSettings(), [1, 3]), (ModelSettings(chain=True), [1, 1])):
        sizes: list[int] = []
        contexts: list[RunContext] = []

        def stop(turn: TurnResult, sizes: list[int] = sizes) -> bool:
            sizes.append(len(turn.context.turn_input))
            return False

        agent = Bench().agent(script(calls("a"), calls("b"), "done"), on_start=contexts.append)
        options = RunOptions(
            model=ModelOptions(settings=settings), exec=ExecOptions(should_stop_after_turn=stop)
        )
        run_sync(agent, "go", options)
        assert sizes == expected


@pytest.mark.spec("PB-01", "PB-02", "PB-09")
@BOTH
def test_input_is_saved_before_the_first_model_call_and_a_turn_at_its_end(how: How) -> None:
    session = Kept(items=[user_message("before")])
    result = play(how, Bench().agent(script(calls("ls"), "done")), options=saving(session))
    assert session.batches == [
        ["message"],
        ["tool_call call_0_0", "tool_output call_0_0"],
        ["message"],
    ]
    assert shape(session.items) == shape(result.items) and result.items[0].text == "before"
    assert [item.text for item in result.input_items] == ["before", "go"]

    def broken(context: RunContext) -> str:
        raise RuntimeError("no instructions")

    untouched = Kept()
    with pytest.raises(RunError):
        play(how, Agent(name="x", instructions=broken, model=script("x")), options=saving(untouched))
    assert untouched.items == []


@pytest.mark.spec("PB-03", "PC-01", "PC-02")
@BOTH
def test_the_last_turn_is_saved_when_the_guardrails_have_let_it_pass(how: How) -> None:
    ended: list[Any] = []
    session = Kept()
    agent = Bench().agent(script(calls("ls"), "done"), on_end=lambda context, output: ended.append(output))
    with pytest.raises(RunError, match="not that") as failed:
        judged(how, agent, Judge(after=trip), saving(session))
    assert isinstance(failed.value.__cause__, GuardrailTripped) and ended == ["done"]
    assert shape(session.items)[-1] == "tool_output call_0_0"
    stop = ExecOptions(should_stop_after_turn=lambda turn: True)
    stopped = Bench().agent(script(calls("ls")), on_end=lambda context, output: ended.append(output))
    result = judged(how, stopped, Judge(after=lambda output: f"[{output}]"), saving(Kept(), exec=stop))
    assert result.final_output == "[ran ls]" and ended == ["done", "ran ls"]


@pytest.mark.spec("PB-04", "PB-05", "PB-06", "LP-02")
@BOTH
def test_what_refuses_input_before_the_call_saves_nothing_and_beside_it_leaves_the_input(how: How) -> None:
    session, model = Kept(), script("never")
    with pytest.raises(RunError, match="not that"):
        judged(how, Bench().agent(model), Judge(before=trip), saving(session))
    assert session.items == [] and model.requests == []

    async def beside(ask: Callable[[], Any]) -> Any:
        await ask()
        trip()

    with pytest.raises(RunError, match="not that") as failed:
        judged(how, Bench().agent(model), Judge(beside=beside), saving(session))
    assert shape(session.items) == ["message"] and len(model.requests) == 1
    assert failed.value.result.usage.requests == 0 and failed.value.result.new_items == []


@pytest.mark.spec("EP-05")
def test_leaving_a_run_ends_a_guardrail_that_returns_only_when_it_is_cancelled() -> None:
    async def scenario() -> None:
        waiting, told = asyncio.Event(), asyncio.Event()

        async def beside(ask: Callable[[], Any]) -> Any:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                told.set()

        stream, _ = run(Bench().agent(script("x")), "go")
        stream._live.guards = Judge(beside=beside)
        reader = asyncio.create_task(stream.result())
        await waiting.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert told.is_set()

    asyncio.run(scenario())


@pytest.mark.spec("PB-07", "PB-08")
def test_a_save_that_holds_nothing_back_is_told() -> None:
    bench = Bench(ask={"rm"})
    session = Kept()
    events = read_events(run(bench.agent(script(calls("ls"), calls("rm"))), "go", saving(session))[0])
    kinds = [type(event).__name__ for event in events]
    assert [event.count for event in events if isinstance(event, ItemsSaved)] == [1, 2]
    assert kinds.index("ItemsSaved", 3) > len(kinds) - 1 - kinds[::-1].index("ToolFinished")
    assert shape(session.items)[-1] == "tool_output call_0_0"
    without = read_events(run(Bench().agent(script("done")), "go")[0])
    assert not any(isinstance(event, ItemsSaved) for event in without)


@pytest.mark.spec("PB-09", "PB-08")
@BOTH
def test_calls_that_wait_are_saved_with_their_outputs(how: How) -> None:
    bench, session = Bench(ask={"rm"}), Kept()
    model = script(calls("rm", text="I want to"), "done")
    state = play(how, bench.agent(model), options=saving(session)).state
    assert shape(session.items) == ["message"]
    state.approve("call_0_0")
    result = play_on(how, bench.agent(model), RunState.from_json(state.to_json()), saving(session))
    assert shape(session.items) == shape(result.items)
    assert session.batches[1] == ["message", "tool_call call_0_0", "tool_output call_0_0"]


@pytest.mark.spec("EP-12")
@pytest.mark.parametrize("settings", [ModelSettings(chain=True), ModelSettings(conversation="conv_1")])
def test_a_session_and_a_conversation_of_the_service_exclude_each_other(settings: ModelSettings) -> None:
    model = script("never")
    options = saving(Kept(), model=ModelOptions(settings=settings))
    with pytest.raises(UserError, match="exclude"):
        run(Bench().agent(model), "go", options)
    assert model.requests == []


@pytest.mark.spec("PC-03", "PC-04", "PC-05", "VL-02")
@BOTH
def test_only_turns_with_calls_move_the_valve_and_it_saves_before_it_trips(how: How) -> None:
    session = Kept()
    bench = Bench(acts={"bad": fails})
    stream, control = run(
        bench.agent(script(calls("bad"), calls("bad"), "said", calls("bad"), "never")), "go", saving(session)
    )
    control.follow_up("go on")
    with pytest.raises(RunError, match="3 turns in a row"):
        read(stream) if how == "read" else asyncio.run(stream.result())
    assert shape(session.items)[-1] == "tool_output call_3_0"
