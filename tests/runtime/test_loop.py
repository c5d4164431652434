"""The loop and its entry points: what runs when, how a run ends, and how it is stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic import JsonValue
from runtime_kit import Bench, How, calls, events_of, play, read_events, script, shape, wait_for, wire

from runtime import (
    MAX_TURNS_UNLIMITED,
    Agent,
    ApprovalRequested,
    ExecOptions,
    ItemCreated,
    ItemKind,
    MaxTurnsError,
    ModelBehaviorError,
    ModelError,
    ModelRefusalError,
    ModelRequest,
    ModelResponse,
    RunCancelled,
    RunCompleted,
    RunContext,
    RunError,
    RunEvent,
    RunOptions,
    Scripted,
    ScriptedCall,
    ScriptedFailure,
    ToolContext,
    ToolFinished,
    ToolLoopError,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    UserError,
    code_of,
    resume_run_sync,
    run,
    run_sync,
    user_message,
)
from runtime.models.model import Emit

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


@pytest.mark.spec("EP-01", "LP-01", "LP-11", "FO-05", "RI-04", "RI-05", "RI-06")
@BOTH
def test_a_run_takes_turns_until_the_model_answers_without_calls(how: How) -> None:
    bench = Bench()
    model = script(calls("ls", text="let me look"), calls("cat a"), "it is done")
    result = play(how, bench.agent(model))
    assert result.final_output == "it is done"
    assert bench.ran == ["ls", "cat a"]
    assert result.turns == 3
    assert [item.output for item in result.items if item.kind == ItemKind.TOOL_OUTPUT] == [
        "ran ls",
        "ran cat a",
    ]
    assert shape(result.new_items) == [
        "message",
        "tool_call call_0_0",
        "tool_output call_0_0",
        "tool_call call_1_0",
        "tool_output call_1_0",
        "message",
    ]
    assert [len(request.items) for request in model.requests] == [1, 4, 6]


@pytest.mark.spec("EP-09")
def test_reading_and_blocking_give_the_same_items_and_the_same_requests() -> None:
    played = []
    ways: list[How] = ["read", "blocking"]
    for how in ways:
        bench = Bench(deny={"rm"})
        model = script(calls("ls", "rm", text="hm"), calls("no-such-thing"), "done")
        result = play(how, bench.agent(model))
        played.append((wire(result.items), [wire(request.items) for request in model.requests], bench.ran))
    assert played[0] == played[1]


@pytest.mark.spec("EP-02", "LP-02")
def test_nothing_happens_before_the_stream_is_read_and_nothing_further_than_it_is_read() -> None:
    async def scenario() -> None:
        bench = Bench()
        model = script(calls("ls"), "done")
        stream, _ = run(bench.agent(model), "go")
        await asyncio.sleep(0)
        assert model.requests == []
        events = aiter(stream)
        assert await anext(events) == TurnStarted(1, "tester")
        for _ in range(5):
            await asyncio.sleep(0)
        assert model.requests == []
        call = await anext(events)
        assert isinstance(call, ItemCreated) and call.item.kind == ItemKind.TOOL_CALL
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.ran == []
        await stream.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("RX-01")
def test_events_come_in_the_order_of_what_happened() -> None:
    def act(context: ToolContext) -> str:
        context.emit("half way")
        return "listed"

    bench = Bench(acts={"ls": act})
    stream, _ = run(bench.agent(script(calls("ls"), "done")), "go")
    events = read_events(stream)
    assert [type(event) for event in events] == [
        TurnStarted,
        ItemCreated,
        ToolStarted,
        ToolProgress,
        ToolFinished,
        ItemCreated,
        TurnStarted,
        ItemCreated,
        RunCompleted,
    ]
    assert events[3] == ToolProgress("call_0_0", "exec_command", "half way")


@pytest.mark.spec("EP-14")
def test_the_usage_of_a_result_is_a_value_that_later_runs_do_not_change() -> None:
    agent = Bench().agent(script(Scripted(text="a", input_tokens=3), Scripted(text="b", input_tokens=4)))
    first = run_sync(agent, "go")
    kept = first.usage
    second = resume_run_sync(agent, first.state, input="more")
    assert kept.input_tokens == first.usage.input_tokens == 3
    assert second.usage.input_tokens == 7


@pytest.mark.spec("EP-06")
def test_a_stream_is_read_once() -> None:
    async def scenario() -> None:
        model = script("done", "again")
        stream, _ = run(Bench().agent(model), "go")
        await events_of(stream)
        with pytest.raises(UserError):
            await events_of(stream)
        assert len(model.requests) == 1

    asyncio.run(scenario())


@pytest.mark.spec("EP-07", "EP-08", "ER-04", "ER-05")
def test_a_run_ends_with_its_result_or_with_an_error_that_carries_its_progress() -> None:
    async def scenario() -> None:
        stream, _ = run(Bench().agent(script("done")), "go")
        completed = [event for event in await events_of(stream) if isinstance(event, RunCompleted)]
        assert [event.result.final_output for event in completed] == ["done"]

        failing = script(calls("ls"), Scripted(error=ScriptedFailure(message="overloaded", status=529)))
        stream, _ = run(Bench().agent(failing), "go")
        seen = []
        with pytest.raises(RunError) as failed:
            async for event in stream:
                seen.append(event)
        assert not any(isinstance(event, RunCompleted) for event in seen)
        cause = failed.value.__cause__
        assert isinstance(cause, ModelError) and cause.status == 529
        partial = failed.value.result
        assert partial.final_output is None
        assert shape(partial.new_items) == ["tool_call call_0_0", "tool_output call_0_0"]
        assert partial.usage.requests == 1

    asyncio.run(scenario())


@pytest.mark.spec("EP-15", "LP-06")
def test_a_run_without_a_model_or_with_wrong_options_fails_before_it_starts() -> None:
    with pytest.raises(UserError, match="no model"):
        run(Bench().agent(), "go")
    with pytest.raises(UserError, match="max_turns"):
        run(Bench().agent(script()), "go", RunOptions(exec=ExecOptions(max_turns=-2)))
    with pytest.raises(UserError, match="two tools"):
        Agent(name="a", tools=[Bench().tool(), Bench().tool()])
    with pytest.raises(UserError, match="tool name"):
        Agent(name="a", tools=[Bench().tool("a.b")])


@pytest.mark.spec("LP-09", "LP-10", "BG-01")
@BOTH
def test_turns_are_limited_to_ten_unless_the_caller_says_otherwise(how: How) -> None:
    for given, made in ((0, 10), (3, 3)):
        model = script(*[calls(f"step {number}") for number in range(30)])
        with pytest.raises(RunError) as failed:
            play(how, Bench().agent(model), options=RunOptions(exec=ExecOptions(max_turns=given)))
        assert isinstance(failed.value.__cause__, MaxTurnsError)
        assert code_of(failed.value) == "max_turns_exceeded"
        assert len(model.requests) == made
    model = script(*[calls(f"step {number}") for number in range(30)], "done")
    result = play(
        how, Bench().agent(model), options=RunOptions(exec=ExecOptions(max_turns=MAX_TURNS_UNLIMITED))
    )
    assert result.final_output == "done"


@pytest.mark.spec("FO-02")
@BOTH
def test_a_refusal_fails_the_run_whatever_stands_beside_it(how: How) -> None:
    parts: list[JsonValue] = [
        {"type": "output_text", "text": "hello", "annotations": []},
        {"type": "refusal", "refusal": "I will not"},
    ]
    refusing = Scripted(items=({"type": "message", "role": "assistant", "content": parts},))
    with pytest.raises(RunError, match="I will not") as failed:
        play(how, Bench().agent(script(refusing)))
    assert isinstance(failed.value.__cause__, ModelRefusalError)


@pytest.mark.spec("FO-06")
@BOTH
def test_a_blank_answer_is_an_answer(how: How) -> None:
    assert play(how, Bench().agent(script(""))).final_output == ""


@pytest.mark.spec("TU-01", "TU-02", "TU-03", "TU-05", "SE-15")
@BOTH
def test_no_call_of_an_answer_that_was_cut_off_runs_or_is_asked_about(how: How) -> None:
    bench = Bench(ask={"rm"})
    cut = Scripted(
        calls=(
            ScriptedCall(name="exec_command", arguments={"cmd": "rm"}),
            ScriptedCall(name="exec_command", arguments='{"cmd": "ls /'),
        ),
        status="incomplete",
        incomplete_reason="max_output_tokens",
    )
    result = play(how, bench.agent(script(cut, "shorter now")))
    assert bench.ran == []
    assert result.final_output == "shorter now"
    answered = [item for item in result.items if item.kind == ItemKind.TOOL_OUTPUT]
    assert len(answered) == 2
    assert all("cut off" in item.output and item.is_error for item in answered)


@pytest.mark.spec("TU-03", "RX-02")
@BOTH
def test_an_answer_that_was_cut_off_without_calls_is_marked_and_other_incomplete_answers_fail(
    how: How,
) -> None:
    cut = Scripted(text="half a sent", status="incomplete", incomplete_reason="max_output_tokens")
    result = play(how, Bench().agent(script(cut)))
    assert result.final_output == "half a sent" and result.truncated
    filtered = Scripted(text="x", status="incomplete", incomplete_reason="content_filter")
    with pytest.raises(RunError, match="content_filter") as failed:
        play(how, Bench().agent(script(filtered)))
    assert isinstance(failed.value.__cause__, ModelBehaviorError)


@pytest.mark.spec("VL-01", "VL-02", "VL-03")
@BOTH
def test_three_turns_in_which_every_call_fails_end_the_run(how: How) -> None:
    def failing(count: int) -> list[Scripted]:
        return [calls("forbidden", "forbidden") for _ in range(count)]

    bench = Bench(deny={"forbidden"})
    model = script(*failing(5))
    with pytest.raises(RunError) as failed:
        play(how, bench.agent(model))
    assert isinstance(failed.value.__cause__, ToolLoopError)
    assert len(model.requests) == 3
    one_good_call = script(*failing(2), calls("forbidden", "ls"), *failing(2), "done")
    assert play(how, bench.agent(one_good_call)).final_output == "done"
    unlimited = RunOptions(exec=ExecOptions(max_consecutive_error_turns=-1))
    assert play(how, bench.agent(script(*failing(6), "done")), options=unlimited).final_output == "done"


@pytest.mark.spec("EP-03", "EP-04")
def test_leaving_early_tells_the_tool_and_drops_what_it_still_returns() -> None:
    told, started = threading.Event(), threading.Event()

    def stubborn(context: ToolContext) -> str:
        started.set()
        wait_for(context.cancelled)
        told.set()
        return "too late"

    async def scenario() -> None:
        bench = Bench(acts={"sleep": stubborn})
        stream, _ = run(bench.agent(script(calls("sleep"), "done")), "go")
        async for event in stream:
            if isinstance(event, ToolStarted):
                await asyncio.to_thread(wait_for, started)
                break
        await stream.aclose()
        assert told.is_set()
        assert stream._live.state.finished == {}

    asyncio.run(scenario())


class _Hanging:
    """A model that never answers."""

    name = "hanging"

    def __init__(self) -> None:
        self.cancelled = False
        self.asked = asyncio.Event()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError


@pytest.mark.spec("EP-03", "RX-03")
def test_leaving_early_cancels_the_model_call_and_not_the_reader() -> None:
    async def scenario() -> None:
        model = _Hanging()
        stream, _ = run(Bench().agent(model), "go")
        reader = asyncio.create_task(events_of(stream))
        await asyncio.wait_for(model.asked.wait(), 5)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert model.cancelled

        model = _Hanging()
        stream, control = run(Bench().agent(model), "go")
        reader = asyncio.create_task(events_of(stream))
        await asyncio.wait_for(model.asked.wait(), 5)
        control.cancel()
        with pytest.raises(RunError) as failed:
            await reader
        assert isinstance(failed.value.__cause__, RunCancelled) and model.cancelled
        assert code_of(failed.value) == "cancelled"

    asyncio.run(scenario())


@pytest.mark.spec("CT-01", "LP-05")
def test_a_run_that_is_cancelled_from_a_thread_keeps_its_finished_turns() -> None:
    bench = Bench()
    stream, control = run(bench.agent(script(calls("ls"), calls("stop"), "done")), "go")

    def stop(context: ToolContext) -> str:
        control.cancel()
        wait_for(context.cancelled)
        return "late"

    bench.acts["stop"] = stop
    with pytest.raises(RunError) as failed:
        asyncio.run(stream.result())
    assert isinstance(failed.value.__cause__, RunCancelled)
    state = failed.value.result.state
    assert shape(state.items)[-1] == "tool_call call_1_0"
    assert state.started == ["call_1_0"] and state.finished == {}


@pytest.mark.spec("CT-01")
def test_a_run_that_is_cancelled_before_it_is_read_asks_no_model() -> None:
    model = script("done")
    stream, control = run(Bench().agent(model), "go")
    control.cancel()
    with pytest.raises(RunError):
        asyncio.run(stream.result())
    assert model.requests == []


@pytest.mark.spec("EP-08", "CT-01")
def test_a_cancel_that_comes_after_the_result_changes_nothing() -> None:
    async def scenario() -> list[RunEvent]:
        stream, control = run(Bench().agent(script("done")), "go")
        events = []
        async for event in stream:
            events.append(event)
            if isinstance(event, RunCompleted):
                control.cancel()
        return events

    assert isinstance(asyncio.run(scenario())[-1], RunCompleted)


@pytest.mark.spec("ST-03", "ST-10")
@pytest.mark.parametrize(("text", "said"), [("here", "here"), (None, "ran ls")])
def test_a_run_that_is_stopped_after_a_turn_ends_with_what_that_turn_said(
    text: str | None, said: str
) -> None:
    bench = Bench()
    model = script(calls("ls", text=text), "more")
    stream, control = run(bench.agent(model), "go")
    control.stop_after_turn()
    result = asyncio.run(stream.result())
    assert result.stopped_early and result.final_output == said
    assert bench.ran == ["ls"] and len(model.requests) == 1


@pytest.mark.spec("ST-10")
def test_a_stop_is_noted_on_a_turn_that_ends_the_run_anyway() -> None:
    stream, control = run(Bench().agent(script("done")), "go")
    control.stop_after_turn()
    result = asyncio.run(stream.result())
    assert result.stopped_early and result.final_output == "done"


@pytest.mark.spec("EP-13")
def test_instructions_may_be_made_for_each_turn_from_the_callers_value() -> None:
    def instructions(context: RunContext) -> str:
        return f"{context.value} {context.agent} {context.turn}"

    model = script(calls("ls"), "done")
    agent = Agent(name="tester", instructions=instructions, tools=[Bench().tool()], model=model)
    run_sync(agent, "go", RunOptions(context="hello"))
    assert [request.instructions for request in model.requests] == ["hello tester 1", "hello tester 2"]


@pytest.mark.spec("EP-21")
def test_an_empty_text_is_a_message_and_an_empty_list_is_none() -> None:
    model = script("a", "b")
    agent = Bench().agent(model)
    run_sync(agent, "")
    run_sync(agent, [])
    assert [len(request.items) for request in model.requests] == [1, 0]


@pytest.mark.spec("RX-04")
def test_a_conversation_goes_on_when_its_items_are_given_as_input() -> None:
    first = run_sync(Bench().agent(script(calls("ls"), "done")), "go")
    model = script("more")
    result = run_sync(Bench().agent(model), [*first.items, user_message("and now?")])
    assert result.final_output == "more"
    assert shape(result.input_items) == [*shape(first.items), "message"]
    assert [item.text for item in result.new_items] == ["more"]


@pytest.mark.spec("RX-05")
def test_the_blocking_form_refuses_to_run_inside_a_running_loop() -> None:
    async def scenario() -> None:
        with pytest.raises(UserError, match="running event loop"):
            run_sync(Bench().agent(script("done")), "go")

    asyncio.run(scenario())


@pytest.mark.spec("RX-06")
def test_a_call_id_that_is_empty_or_used_twice_in_one_answer_fails_the_run_before_a_call_runs() -> None:
    for ids in (("same", "same"), ("", "")):
        items = tuple(
            {"type": "function_call", "call_id": call_id, "name": "exec_command", "arguments": '{"cmd":"ls"}'}
            for call_id in ids
        )
        bench = Bench()
        with pytest.raises(RunError, match="id"):
            run_sync(bench.agent(script(Scripted(items=items))), "go")  # type: ignore[arg-type]
        assert bench.ran == []


@pytest.mark.spec("LP-08", "SE-04", "TL-12")
@BOTH
def test_one_call_that_needs_approval_pauses_the_run_before_any_call_has_run(how: How) -> None:
    bench = Bench(ask={"rm"})
    agent = bench.agent(script(calls("ls", "rm")))
    result = play(how, agent)
    assert bench.ran == []
    assert result.final_output is None
    assert [(waiting.tool, waiting.preview) for waiting in result.interruptions] == [("exec_command", "$ rm")]
    assert result.interruptions[0].reason == "it changes things"


@pytest.mark.spec("RX-07")
def test_a_pause_is_told_before_the_result() -> None:
    stream, _ = run(Bench(ask={"rm"}).agent(script(calls("rm"))), "go")
    events = read_events(stream)
    assert isinstance(events[-2], ApprovalRequested)
    assert isinstance(events[-1], RunCompleted)
    assert events[-1].result.interruptions == events[-2].approvals
