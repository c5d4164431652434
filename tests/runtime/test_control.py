"""Steering a run from outside: what is said when, what survives, and what is put back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from runtime_kit import Bench, How, calls, play_on, read, read_events, script, shape

from runtime import (
    ExecOptions,
    InjectedInputCreated,
    Item,
    ItemKind,
    MemoryJournal,
    ObserveOptions,
    RunControl,
    RunError,
    RunOptions,
    RunState,
    Scripted,
    ScriptedFailure,
    Source,
    ToolContext,
    resume_run,
    run,
    run_sync,
    state_from_records,
)

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


def end(how: How, stream: Any) -> Any:
    """The result of a run, in one of the two ways."""
    return read(stream) if how == "read" else asyncio.run(stream.result())


@pytest.mark.spec("CT-03", "CT-04", "CT-05", "CT-06", "IT-13", "SP-07", "PC-07")
@BOTH
def test_what_is_said_joins_at_its_own_place_in_the_order_in_which_it_was_said(how: How) -> None:
    model = script(calls("ls"), "first answer", "second answer")
    stream, control = run(Bench().agent(model), "go")
    control.follow_up("after that")
    control.steer("look there")
    control.next_turn("by the way")
    result = end(how, stream)
    assert [item.text for item in model.requests[1].items][3:] == ["look there", "by the way"]
    assert [item.text for item in model.requests[2].items][5:] == ["first answer", "after that"]
    assert result.final_output == "second answer" and control.pending() == []
    said = [item for item in result.new_items if item.kind == ItemKind.INJECTED_INPUT]
    assert len(said) == 3 and all(item.source == Source.USER for item in said)


@pytest.mark.spec("IT-13")
def test_what_was_said_has_an_event_of_its_own() -> None:
    stream, control = run(Bench().agent(script(calls("ls"), "done")), "go")
    control.steer("look there")
    told = [event for event in read_events(stream) if isinstance(event, InjectedInputCreated)]
    assert [event.item.text for event in told] == ["look there"]


@pytest.mark.spec("CT-03", "CT-04", "CT-11", "CT-12", "PC-07")
@BOTH
def test_a_steer_keeps_a_run_going_that_would_end_and_a_next_turn_does_not(how: How) -> None:
    model = script("an answer", "a better one")
    stream, control = run(Bench().agent(model), "go")
    control.next_turn("too late")
    assert end(how, stream).final_output == "an answer"
    assert [item.text for item in control.pending()] == ["too late"]
    stream, control = run(Bench().agent(script("an answer", "a better one")), "go")
    control.steer("think again")
    result = end(how, stream)
    assert result.final_output == "a better one" and result.turns == 2 and result.usage.requests == 2


@pytest.mark.spec("PC-07")
@BOTH
def test_turns_are_counted_on_when_a_finished_run_goes_on(how: How) -> None:
    options = RunOptions(exec=ExecOptions(max_turns=1))
    stream, control = run(Bench().agent(script("an answer", "never")), "go", options)
    control.follow_up("more")
    with pytest.raises(RunError, match="1 turns"):
        end(how, stream)


@pytest.mark.spec("CT-02", "CT-01")
def test_a_control_can_do_six_things_from_any_thread_before_the_run_begins_too() -> None:
    assert sorted(name for name in vars(RunControl) if not name.startswith("_")) == [
        "cancel",
        "follow_up",
        "next_turn",
        "pending",
        "steer",
        "stop_after_turn",
    ]
    stream, control = run(Bench().agent(script("a", "b")), "go")
    threads = [threading.Thread(target=control.steer, args=(str(number),)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(control.pending()) == 20
    result = asyncio.run(stream.result())
    assert sorted(int(item.text) for item in result.new_items[1:-1]) == list(range(20))


@pytest.mark.spec("CT-07", "CT-08")
@BOTH
def test_what_a_failed_attempt_took_waits_again_in_its_old_place(how: How) -> None:
    overloaded = Scripted(error=ScriptedFailure(message="overloaded", status=529))
    control = RunControl()
    control.steer("one")
    control.follow_up("two")
    stream, _ = run(Bench().agent(script(calls("ls"), overloaded)), "go", control=control)
    with pytest.raises(RunError) as failed:
        end(how, stream)
    assert [item.text for item in control.pending()] == ["one", "two"]
    again = script(calls("ls"), "a", "b")
    stream, _ = run(Bench().agent(again), "go", control=control)
    end(how, stream)
    assert control.pending() == [] and "one" in [item.text for item in again.requests[1].items]

    stream, resumed = resume_run(Bench().agent(script("a", "b")), failed.value.result.state)
    result = end(how, stream)
    texts = [item.text for item in result.items]
    assert texts.count("one") == 1 and texts.count("two") == 1 and resumed.pending() == []


@pytest.mark.spec("CT-08", "EP-20")
@BOTH
def test_a_resume_on_the_same_control_delivers_nothing_twice(how: How) -> None:
    overloaded = Scripted(error=ScriptedFailure(message="overloaded", status=529))
    stream, control = run(Bench().agent(script(calls("ls"), overloaded)), "go")
    control.steer("one")
    with pytest.raises(RunError) as failed:
        end(how, stream)
    stream, same = resume_run(Bench().agent(script("done")), failed.value.result.state, control=control)
    assert same is control
    assert [item.text for item in end(how, stream).items].count("one") == 1
    assert control.pending() == []


@pytest.mark.spec("CT-08")
def test_what_an_abandoned_run_took_waits_again() -> None:
    async def scenario() -> RunControl:
        stream, control = run(Bench().agent(script(calls("ls"), "done")), "go")
        control.steer("one")
        async for event in stream:
            if isinstance(event, InjectedInputCreated):
                assert control.pending() == []
                break
        await stream.aclose()
        return control

    assert [item.text for item in asyncio.run(scenario()).pending()] == ["one"]


class Kept:
    """A session in memory that may refuse."""

    def __init__(self, refuse: bool = False) -> None:
        self.items: list[Item] = []
        self.refuse = refuse

    async def read(self) -> list[Item]:
        return list(self.items)

    async def append(self, items: Any) -> None:
        if self.refuse and len(self.items) > 1:
            raise OSError("no room")
        self.items += items


@pytest.mark.spec("CT-09")
@BOTH
def test_a_save_that_comes_before_or_fails_does_not_count_as_delivery(how: How) -> None:
    from runtime import ConversationOptions

    options = RunOptions(conversation=ConversationOptions(session=Kept(refuse=True)))
    stream, control = run(Bench().agent(script("an answer", "x")), "go", options)
    control.steer("one")
    with pytest.raises(RunError, match="no room"):
        end(how, stream)
    assert [item.text for item in control.pending()] == ["one"]
    kept = Kept()
    overloaded = Scripted(error=ScriptedFailure(message="overloaded", status=529))
    options = RunOptions(conversation=ConversationOptions(session=kept))
    stream, control = run(Bench().agent(script(calls("ls"), overloaded)), "go", options)
    control.steer("one")
    with pytest.raises(RunError):
        end(how, stream)
    assert control.pending() == [] and kept.items[-1].text == "one"


@pytest.mark.spec("CT-10", "CT-13", "RS-15", "RS-01")
@BOTH
@pytest.mark.parametrize("kept", ["live", "json", "journal"])
def test_what_waits_survives_a_pause_and_comes_before_what_is_said_later(how: How, kept: str) -> None:
    bench, journal = Bench(ask={"rm"}), MemoryJournal()
    model = script(calls("rm"), "a", "b")
    options = RunOptions(observe=ObserveOptions(journal=journal))
    stream, control = run(bench.agent(model), "go", options)
    control.steer("said first")
    control.follow_up("and then")
    state = end(how, stream).state
    if kept == "json":
        state = RunState.from_json(state.to_json())
    elif kept == "journal":
        state = state_from_records(journal.records)
    assert [(entry.kind, entry.item.text) for entry in state.queued] == [
        ("steer", "said first"),
        ("follow_up", "and then"),
    ]
    state.approve("call_0_0")
    stream, resumed = resume_run(bench.agent(model), state, options)
    assert [item.text for item in resumed.pending()] == ["said first", "and then"]
    resumed.steer("said later")
    result = end(how, stream)
    assert [item.text for item in model.requests[1].items][3:] == ["said first", "said later"]
    assert result.final_output == "b" and resumed.pending() == []


@pytest.mark.spec("CT-07")
def test_a_steer_from_a_tools_thread_is_heard_with_its_output() -> None:
    bench = Bench()
    model = script(calls("ls"), "done")
    stream, control = run(bench.agent(model), "go")

    def act(context: ToolContext) -> str:
        control.steer("from inside")
        return "listed"

    bench.acts["ls"] = act
    asyncio.run(stream.result())
    assert shape(model.requests[1].items) == [
        "message",
        "tool_call call_0_0",
        "tool_output call_0_0",
        "message",
    ]


@pytest.mark.spec("CT-12", "ST-10")
@BOTH
def test_a_stop_wins_over_what_was_said(how: How) -> None:
    stream, control = run(Bench().agent(script("an answer", "never")), "go")
    control.steer("more")
    control.stop_after_turn()
    result = end(how, stream)
    assert result.final_output == "an answer" and result.stopped_early
    assert [item.text for item in control.pending()] == ["more"]
    assert play_on(how, Bench().agent(script("never")), result.state).final_output == "an answer"
    assert run_sync(Bench().agent(script("x")), "go").final_output == "x"
