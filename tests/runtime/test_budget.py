"""Limits of a run: tokens, time, money, and what comes first when several things end it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from runtime_kit import Bench, How, calls, play, play_on, read, script

from runtime import (
    Budget,
    BudgetError,
    ExecOptions,
    MaxTurnsError,
    ModelRequest,
    ModelResponse,
    Price,
    RunCancelled,
    RunError,
    RunOptions,
    Scripted,
    ToolContext,
    Usage,
    code_of,
    run,
)
from runtime.budget import sane

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


def within(**limits: Any) -> RunOptions:
    """Options with a budget."""
    return RunOptions(exec=ExecOptions(budget=Budget(**limits)))


def costly(*commands: str, tokens: int = 100) -> Scripted:
    """An answer that cost tokens."""
    return calls(*commands).model_copy(update={"input_tokens": tokens, "output_tokens": 10})


def ends(how: How, agent: Any, options: RunOptions) -> BudgetError:
    """The budget's error that ends a run."""
    with pytest.raises(RunError) as failed:
        play(how, agent, options=options)
    cause = failed.value.__cause__
    assert isinstance(cause, BudgetError) and code_of(failed.value) == "budget_exceeded"
    return cause


@pytest.mark.spec("BG-02", "BG-05", "BG-04")
@BOTH
def test_tokens_are_counted_those_of_calls_too_and_the_calls_of_an_answer_finish(how: How) -> None:
    bench = Bench()
    error = ends(how, bench.agent(script(costly("a"), costly("b", "c"), "no")), within(max_tokens=200))
    assert error.dimension == "tokens" and sorted(bench.ran) == ["a", "b", "c"]

    def spend(context: ToolContext) -> str:
        context.report(Usage(requests=1, input_tokens=500))
        return "done"

    nested = Bench(acts={"a": spend})
    assert ends(how, nested.agent(script(costly("a"), "no")), within(max_tokens=200)).dimension == "tokens"
    result = play(how, nested.agent(script(costly("a"), "yes")))
    assert result.usage.total_tokens == 610 and result.state.nested_usage.input_tokens == 500


@pytest.mark.spec("BG-03", "BG-05")
@BOTH
def test_time_is_work_without_pauses_and_ends_a_run_between_turns(
    how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def work(context: ToolContext) -> str:
        now_s[0] += 40
        return "worked"

    bench = Bench(acts={"work": work, "rm": work}, ask={"rm"})
    options = within(deadline_s=100)
    agent = bench.agent(script(calls("work"), calls("rm"), calls("work"), "never"))
    state = play(how, agent, options=options).state
    assert state.elapsed_s == 40
    now_s[0] += 10_000
    state.approve(state.interruptions[0])
    with pytest.raises(RunError) as failed:
        play_on(how, agent, state, options)
    assert isinstance(failed.value.__cause__, BudgetError)
    assert failed.value.__cause__.dimension == "deadline" and bench.ran == ["work", "rm", "work"]


class Slow:
    """A model that does not answer."""

    name = "slow"

    async def respond(self, request: ModelRequest, emit: object) -> ModelResponse:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.spec("BG-03")
@BOTH
def test_a_model_call_ends_with_the_time_of_the_run(how: How) -> None:
    error = ends(how, Bench().agent(Slow()), within(deadline_s=0.05))
    assert error.dimension == "deadline"


@pytest.mark.spec("BG-11", "BG-04", "US-07")
@BOTH
def test_money_is_counted_by_the_callers_prices_in_millionths(how: How) -> None:
    prices = {"script": Price(input=3_000_000, output=15_000_000, cached_input=300_000)}
    answer = costly("a", tokens=1000).model_copy(update={"cached_input_tokens": 400})
    limits = {"prices": prices, "max_cost_micros": 4000}
    result = play(how, Bench().agent(script(answer, "done")), options=within(**limits))
    assert result.state.cost_micros == 600 * 3 + 120 + 150
    error = ends(how, Bench().agent(script(answer, answer, answer, "no")), within(**limits))
    assert error.dimension == "cost"
    unpriced = ends(how, Bench().agent(script("x")), within(max_cost_micros=5))
    assert "no price" in str(unpriced)
    assert play(how, Bench().agent(script(answer, "x")), options=within(prices={})).state.cost_micros == 0
    assert Budget(prices={"m": Price(input=1, output=0)}).cost_micros("m", Usage(input_tokens=1)) == 1


@pytest.mark.spec("BG-10", "US-06")
def test_a_provider_that_reports_nonsense_is_not_believed() -> None:
    told = Usage(requests=1, input_tokens=5, output_tokens=-3, cached_input_tokens=9, reasoning_tokens=4)
    assert sane(told) == Usage(requests=1, input_tokens=5, cached_input_tokens=5)


@pytest.mark.spec("LP-04")
@BOTH
def test_a_cancel_comes_before_the_limits_they_before_a_pause_and_that_before_an_answer(how: How) -> None:
    def ending(stream: Any) -> Any:
        return read(stream) if how == "read" else asyncio.run(stream.result())

    one = RunOptions(exec=ExecOptions(max_turns=1))
    bench = Bench()
    stream, control = run(bench.agent(script(calls("a"))), "go", one)
    bench.acts["a"] = lambda context: control.cancel() or "x"  # type: ignore[func-returns-value]
    with pytest.raises(RunError) as failed:
        ending(stream)
    assert isinstance(failed.value.__cause__, RunCancelled)
    asking = Bench(ask={"rm"})
    with pytest.raises(RunError) as failed:
        play(how, asking.agent(script(calls("a"), calls("rm"))), options=one)
    assert isinstance(failed.value.__cause__, MaxTurnsError)
    result = play(how, asking.agent(script(calls("rm", text="Done, but for this."))))
    assert result.interruptions and result.final_output is None
