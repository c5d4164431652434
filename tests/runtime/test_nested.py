"""Calls that run an agent and pause, failures of several calls at once, and what states carry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from runtime_kit import Bench, How, calls, outputs, play, play_on, script, shape

from runtime import (
    Agent,
    ErrorCode,
    ExecOptions,
    GuardrailRecord,
    MemoryJournal,
    ModelOptions,
    ModelSettings,
    NestedPaused,
    ObserveOptions,
    RunError,
    RunOptions,
    RunState,
    Scripted,
    ScriptedCall,
    Tool,
    ToolContext,
    UserError,
    classify,
    code_of,
    find_cause,
    resume_run,
    run,
    run_sync,
    state_from_records,
)
from runtime.scheduler import is_concurrent, run_jobs

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


def delegate(inner: Agent) -> Tool[str]:
    """A tool that runs an agent, and pauses with it."""

    async def work(context: ToolContext, arguments: str) -> str:
        options = RunOptions(context=context.run.value)
        if context.paused is None:
            stream, _ = run(inner, "inside", options)
        else:
            stream, _ = resume_run(inner, context.paused, options)
        before = context.paused.usage if context.paused else None
        result = await stream.result()
        context.report(
            replace(result.usage, requests=result.usage.requests - (before.requests if before else 0))
        )
        if result.interruptions:
            raise NestedPaused(result.state)
        return f"inside: {result.final_output}"

    return Tool(name="delegate", description="", parameters={}, parse=str, run=work)


@pytest.mark.spec("SE-06", "AT-05", "RS-01", "RS-02", "AT-01")
@BOTH
@pytest.mark.parametrize("kept", ["live", "json", "journal"])
def test_a_nested_run_that_asks_pauses_the_outer_one_and_siblings_keep_their_results(
    how: How, kept: str
) -> None:
    inside, outside, journal = Bench(ask={"rm", "rm x"}), Bench(), MemoryJournal()
    inner = inside.agent(script(calls("rm", "rm x"), "cleaned"))
    both = Scripted(
        calls=(
            ScriptedCall(name="delegate", arguments={}),
            ScriptedCall(name="exec_command", arguments={"cmd": "ls"}),
        )
    )
    model = script(both, "done")
    agent = Agent(name="outer", model=model, tools=[delegate(inner), outside.tool()])
    options = RunOptions(observe=ObserveOptions(journal=journal))
    state = play(how, agent, options=options).state
    if kept == "json":
        state = RunState.from_json(state.to_json())
    elif kept == "journal":
        state = state_from_records(journal.records)
    assert outside.ran == ["ls"] and inside.ran == []
    assert [(ask.call_id, ask.parents) for ask in state.interruptions] == [
        ("call_0_0", ("call_0_0",)),
        ("call_0_1", ("call_0_0",)),
    ]
    assert list(state.finished) == ["call_0_1"]
    first, second = state.interruptions
    state.approve(first)
    state.reject(second, "keep it")
    result = play_on(how, agent, state, options)
    assert result.final_output == "done" and inside.ran == ["rm"] and outside.ran == ["ls"]
    assert outputs(result.items) == {"call_0_0": "inside: cleaned", "call_0_1": "ran ls"}
    assert result.usage.requests == 4 and result.state.nested_usage.requests == 2
    assert [item.output for item in inner.model.requests[1].items[3:]] == ["ran rm", "keep it"]  # type: ignore[union-attr]
    assert state_from_records(journal.records).to_json() == result.state.to_json()


@pytest.mark.spec("SE-06")
@BOTH
def test_a_nested_run_that_is_not_decided_asks_again_and_a_decision_by_id_has_to_be_clear(how: How) -> None:
    inside = Bench(ask={"rm"})
    answers: list[Scripted | str] = [calls("rm"), calls("rm"), "x", "y"]
    inner = inside.agent(script(*answers))
    twice = Scripted(calls=(ScriptedCall(name="delegate", id="a"), ScriptedCall(name="delegate", id="b")))
    agent = Agent(name="outer", model=script(twice, "done"), tools=[delegate(inner)])
    state = play(how, agent).state
    again = play_on(how, agent, state)
    assert len(again.interruptions) == 2 and inside.ran == []
    for ask in again.interruptions:
        again.state.approve(ask)
    assert play_on(how, agent, again.state).final_output == "done" and inside.ran == ["rm", "rm"]
    waiting = [replace(ask, call_id="same") for ask in state.interruptions]
    state.interruptions = waiting
    with pytest.raises(UserError, match="2 calls"):
        state.approve("same")


@pytest.mark.spec("SE-12", "SE-13")
def test_of_several_failures_the_first_in_order_is_raised_and_a_cancellation_never_hides_one() -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def late() -> None:
            await begun.wait()
            raise ValueError("the first in order")

        async def early() -> None:
            begun.set()
            await asyncio.sleep(0)
            raise KeyError("the first in time")

        async def cancelled() -> None:
            await asyncio.Event().wait()

        with pytest.raises((ValueError, KeyError)) as failed:
            await run_jobs([cancelled, late, early], concurrent=True)
        assert not isinstance(failed.value, asyncio.CancelledError)

        async def both(error: Exception) -> None:
            raise error

        jobs: list[Callable[[], Any]] = [lambda: both(ValueError("0")), lambda: both(KeyError("1"))]
        for _ in range(3):
            with pytest.raises(ValueError, match="0"):
                await run_jobs([cancelled, *jobs], concurrent=True)

        waiting = asyncio.create_task(run_jobs([cancelled, cancelled], concurrent=True))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


@pytest.mark.spec("RI-09", "RI-07")
def test_a_batch_is_concurrent_when_every_call_can_be() -> None:
    assert is_concurrent([False, False])
    assert not is_concurrent([]) and not is_concurrent([False, True]) and not is_concurrent([False, None])


@pytest.mark.spec("RI-08")
@BOTH
def test_calls_of_one_answer_get_their_arguments_as_they_were_written(how: How) -> None:
    bench = Bench()
    play(how, bench.agent(script(calls("make", "use $output of call 1"), "done")))
    assert sorted(bench.ran) == ["make", "use $output of call 1"]


@pytest.mark.spec("RI-19")
def test_the_loop_is_apart_from_what_surrounds_it() -> None:
    package = Path(__file__).parents[2] / "runtime"
    loop = (package / "loop.py").read_text("utf-8")
    assert len(loop.splitlines()) < 200
    for other in ("models.http", "sqlite3", "json.loads", "threading"):
        assert other not in loop


@pytest.mark.spec("SE-07")
@BOTH
def test_a_tool_that_does_not_exist_ends_the_run_where_the_caller_wants_it(how: How) -> None:
    unknown = Scripted(calls=(ScriptedCall(name="nope"),))
    with pytest.raises(RunError, match="nope") as failed:
        play(
            how,
            Bench().agent(script(unknown)),
            options=RunOptions(exec=ExecOptions(unknown_tool_is_fatal=True)),
        )
    assert code_of(failed.value) == "model_behavior"


@pytest.mark.spec("RS-03", "RS-04")
@BOTH
@pytest.mark.parametrize("kept", ["live", "json"])
def test_after_a_pause_a_service_that_keeps_the_conversation_gets_every_output_once(
    how: How, kept: str
) -> None:
    inside = Bench(ask={"rm"})
    inner = inside.agent(script(calls("rm"), "cleaned"))
    both = Scripted(
        calls=(ScriptedCall(name="exec_command", arguments={"cmd": "ls"}), ScriptedCall(name="delegate"))
    )
    model = script(calls("a"), both, "done")
    agent = Agent(name="outer", model=model, tools=[delegate(inner), Bench().tool()])
    options = RunOptions(model=ModelOptions(settings=ModelSettings(chain=True)))
    state = play(how, agent, options=options).state
    if kept == "json":
        state = RunState.from_json(state.to_json())
    state.approve(state.interruptions[0])
    play_on(how, agent, state, options)
    last = model.requests[2]
    assert last.previous_response_id == "resp_1"
    assert shape(last.items[last.previous_length :]) == ["tool_output call_1_0", "tool_output call_1_1"]


@pytest.mark.spec("RS-08", "RS-09", "RS-12")
@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "states").glob("*.json")), ids=str)
def test_a_state_of_every_version_that_can_be_read_still_goes_on(path: Path) -> None:
    state = RunState.from_json(path.read_text("utf-8"))
    assert state.extra == {"ticket": 7} and len(state.interruptions) == 1
    result = resume_on(state)
    assert result.final_output == "done" and outputs(result.items)["call_1_1"] == "leave it"
    values = json.loads(path.read_text("utf-8"))
    assert set(values) <= set(RunState.model_fields)


def resume_on(state: RunState) -> Any:
    """Go on with the test's agent."""
    return play_on("blocking", Bench(ask={"rm"}).agent(script("done")), state)


@pytest.mark.spec("RS-08")
def test_there_is_a_stored_state_of_this_version() -> None:
    assert (Path(__file__).parent / "states" / f"{RunState(agent='a').schema_version}.json").exists()


@pytest.mark.spec("RS-19", "ER-05")
def test_what_guardrails_said_travels_with_the_state() -> None:
    bench = Bench(ask={"rm"})
    state = run_sync(bench.agent(script(calls("rm"))), "go").state
    said = GuardrailRecord(guardrail="g", stage="input", decision="allow")
    state.guardrails.append(said)
    state.approve("call_0_0")
    result = play_on("blocking", bench.agent(script("done")), RunState.from_json(state.to_json()))
    assert list(result.guardrails) == [said]
    failed = bench.agent(script(Scripted(status="failed")))
    with pytest.raises(RunError) as error:
        play_on("blocking", failed, state)
    assert list(error.value.result.guardrails) == [said] and list(error.value.result.diagnostics) == []


@pytest.mark.spec("RS-17")
def test_a_rejected_call_is_answered_without_a_further_question() -> None:
    bench = Bench(ask={"rm"})
    agent = bench.agent(script(calls("rm"), "done"))
    state = run_sync(agent, "go").state
    state.reject("call_0_0")
    assert play_on("blocking", agent, state).interruptions == ()


class ForeignError(Exception):
    """Somebody else's."""


@pytest.mark.spec("ER-06", "ER-07", "ER-08", "ER-10")
def test_a_foreign_error_is_given_a_code_and_stays_what_it_is() -> None:
    foreign = classify(ErrorCode.SANDBOX, ForeignError("gone"))
    assert isinstance(foreign, ForeignError) and code_of(foreign) == "sandbox_exec"
    assert code_of(classify("mcp", foreign)) == "sandbox_exec"
    outer = RuntimeError("outside")
    outer.__cause__ = foreign
    assert code_of(classify("mcp", outer)) == "sandbox_exec"
    assert code_of(classify("of_a_later_version", ForeignError())) == "of_a_later_version"
    assert find_cause(outer, ForeignError) is foreign and find_cause(outer, KeyError) is None
    assert find_cause(ExceptionGroup("two", [ValueError(), outer]), ForeignError) is foreign


@pytest.mark.spec("ER-06", "ER-10")
@BOTH
def test_the_code_of_a_foreign_error_is_that_of_the_run(how: How) -> None:
    def instructions(context: object) -> str:
        raise classify(ErrorCode.SANDBOX, ForeignError("gone"))

    with pytest.raises(RunError) as failed:
        play(how, Agent(name="a", instructions=instructions, model=script("x")))
    assert code_of(failed.value) == "sandbox_exec"
    assert find_cause(failed.value, ForeignError) is not None


@pytest.mark.spec("ER-09")
@BOTH
def test_what_a_tool_answers_in_words_has_no_code(how: How) -> None:
    def gone(context: ToolContext) -> str:
        raise FileNotFoundError("a.txt")

    result = play(how, Bench(acts={"cat": gone}).agent(script(calls("cat"), "done")))
    assert result.final_output == "done" and result.items[2].is_error


@dataclass
class Value:
    """What a caller brings along."""

    name: str


@pytest.mark.spec("EP-13")
def test_a_nested_run_has_the_callers_value_and_counts_for_itself() -> None:
    seen: list[tuple[object, int]] = []

    def note(context: Any) -> None:
        seen.append((context.value, context.usage.requests))

    inner = Agent(name="inner", model=script("ok"), on_start=note)
    outer = Agent(
        name="outer",
        model=script(Scripted(calls=(ScriptedCall(name="delegate"),)), "done"),
        tools=[delegate(inner)],
    )
    value = Value("v")
    run_sync(outer, "go", RunOptions(context=value))
    assert seen == [(value, 0)]
