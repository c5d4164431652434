"""Pause and resume: approvals, rejections, and a state that travels."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from runtime_kit import Bench, How, calls, outputs, play, play_on, read_events, script, shape, wire

from runtime import (
    Display,
    ExecOptions,
    Item,
    ItemCreated,
    ItemKind,
    JournalError,
    MaxTurnsError,
    MemoryJournal,
    ObserveOptions,
    RunError,
    RunOptions,
    RunResult,
    RunState,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    Source,
    UserError,
    resume_run,
    run_state_version_supported,
    run_sync,
    state_from_records,
    user_message,
)
from runtime.state import REJECTED_TEXT, check_version

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])
KEPT = pytest.mark.parametrize("kept", ["live", "json"])


def travelled(result: RunResult, kept: str) -> RunState:
    """The state as the test wants it: the live object, or one that went through JSON."""
    return result.state if kept == "live" else RunState.from_json(result.state.to_json())


@pytest.mark.spec("RB-09", "RS-02", "RS-18", "SE-02", "SE-03")
@BOTH
@KEPT
def test_after_a_pause_each_call_has_exactly_one_output_in_order_and_nothing_ran_twice(
    how: How, kept: str
) -> None:
    bench = Bench(ask={"rm x", "ls"})
    model = script(calls("rm x", "cat a", "ls"), "done")
    agent = bench.agent(model)
    paused = play(how, agent)
    assert [waiting.arguments for waiting in paused.interruptions] == ['{"cmd":"rm x"}', '{"cmd":"ls"}']
    state = travelled(paused, kept)
    first, second = state.interruptions
    state.reject(first, "use trash instead")
    state.approve(second)
    result = play_on(how, agent, state)
    assert result.final_output == "done"
    assert sorted(bench.ran) == ["cat a", "ls"]
    assert shape(model.requests[1].items) == [
        "message",
        "tool_call call_0_0",
        "tool_call call_0_1",
        "tool_call call_0_2",
        "tool_output call_0_0",
        "tool_output call_0_1",
        "tool_output call_0_2",
    ]
    said = outputs(result.items)
    assert said == {"call_0_0": "use trash instead", "call_0_1": "ran cat a", "call_0_2": "ran ls"}


@pytest.mark.spec("RB-17", "RS-16")
@BOTH
@KEPT
@pytest.mark.parametrize("context", [None, {"a": 1}, object()])
def test_a_decision_is_honoured_once_whatever_is_passed_along(how: How, kept: str, context: object) -> None:
    bench = Bench(ask={"rm"})
    agent = bench.agent(script(calls("rm"), "done"))
    state = travelled(play(how, agent), kept)
    state.approve("call_0_0")
    result = play_on(how, agent, state, RunOptions(context=context))
    assert result.final_output == "done" and bench.ran == ["rm"]


@pytest.mark.spec("RS-16")
def test_a_rejection_without_words_gets_fixed_ones_and_empty_words_stay_empty() -> None:
    for message, said in ((None, REJECTED_TEXT), ("", "")):
        agent = Bench(ask={"rm"}).agent(script(calls("rm"), "done"))
        state = run_sync(agent, "go").state
        state.reject("call_0_0", message)
        result = play_on("blocking", agent, state)
        assert outputs(result.items) == {"call_0_0": said}


@pytest.mark.spec("RX-14", "FO-01")
def test_a_rejection_does_not_move_the_valve() -> None:
    agent = Bench(ask={"rm"}).agent(script(*[calls("rm") for _ in range(5)], "I give up"))
    result = run_sync(agent, "go")
    for _ in range(5):
        result.state.reject(result.interruptions[0])
        result = play_on("blocking", agent, result.state)
    assert result.final_output == "I give up"


@pytest.mark.spec("RB-59", "RX-15")
@KEPT
@pytest.mark.parametrize("change", ["arguments", "tool", "preview", "place"])
def test_an_approval_holds_for_the_act_that_was_shown_and_for_nothing_else(kept: str, change: str) -> None:
    bench, other = Bench(ask={"ls", "rm -rf x"}), Bench(ask={"ls"})
    model = script(calls("ls"), "done")
    agent = bench.agent(model)
    agent = type(agent)(name="tester", tools=[bench.tool(), other.tool("other")], model=model)
    paused = run_sync(agent, "go", RunOptions(exec=ExecOptions(environment_id="here")))
    paused.state.approve("call_0_0")
    state = travelled(paused, kept)
    options = RunOptions(exec=ExecOptions(environment_id="here"))
    if change == "arguments":
        state.items[-1] = changed(state.items[-1], arguments='{"cmd":"rm -rf x"}')
    elif change == "tool":
        state.items[-1] = changed(state.items[-1], name="other")
    elif change == "preview":
        bench.previews["ls"] = "$ ls  (now a link to somewhere else)"
    else:
        options = RunOptions(exec=ExecOptions(environment_id="there"))
    again = play_on("blocking", agent, state, options)
    assert bench.ran == [] and other.ran == []
    assert len(again.interruptions) == 1


def changed(item: Item, **values: Any) -> Item:
    """An item with other wire values."""
    return Item(kind=item.kind, raw=json.dumps({**item.wire, **values}), source=item.source)


@pytest.mark.spec("RB-59")
def test_an_approval_survives_another_spelling_of_the_same_arguments() -> None:
    bench = Bench(ask={"ls"})
    agent = bench.agent(script(calls("ls"), "done"))
    state = run_sync(agent, "go").state
    state.approve("call_0_0")
    state.items[-1] = changed(state.items[-1], arguments='{ "cmd" : "ls" }')
    assert play_on("blocking", agent, state).final_output == "done"


@pytest.mark.spec("RB-59")
def test_an_approval_is_used_up_by_its_call() -> None:
    bench = Bench(ask={"rm"})
    twice = Scripted(calls=(ScriptedCall(name="exec_command", arguments={"cmd": "rm"}, id="same"),))
    agent = bench.agent(script(twice, twice, "done"))
    paused = run_sync(agent, "go")
    paused.state.approve("same")
    again = play_on("blocking", agent, paused.state)
    assert bench.ran == ["rm"] and len(again.interruptions) == 1


@pytest.mark.spec("RX-16")
@KEPT
def test_calls_can_be_decided_one_after_the_other_over_several_pauses(kept: str) -> None:
    bench = Bench(ask={"a", "b"})
    agent = bench.agent(script(calls("a", "b"), "done"))
    result = run_sync(agent, "go")
    result.state.approve("call_0_0")
    result = play_on("blocking", agent, travelled(result, kept))
    assert bench.ran == [] and [waiting.call_id for waiting in result.interruptions] == ["call_0_1"]
    result.state.approve("call_0_1")
    result = play_on("blocking", agent, travelled(result, kept))
    assert result.final_output == "done" and sorted(bench.ran) == ["a", "b"]


@pytest.mark.spec("RX-17")
def test_a_decision_about_a_call_that_does_not_wait_is_a_user_error() -> None:
    state = run_sync(Bench(ask={"rm"}).agent(script(calls("rm"))), "go").state
    with pytest.raises(UserError, match="nope"):
        state.approve("nope")
    with pytest.raises(UserError):
        state.reject("nope")


@pytest.mark.spec("RX-18")
def test_a_call_that_is_denied_by_the_time_it_was_approved_is_refused() -> None:
    bench = Bench(ask={"rm"})
    agent = bench.agent(script(calls("rm"), "done"))
    state = run_sync(agent, "go").state
    state.approve("call_0_0")
    bench.deny.add("rm")
    result = play_on("blocking", agent, state)
    assert bench.ran == [] and "it is forbidden" in outputs(result.items)["call_0_0"]


@pytest.mark.spec("RX-65")
def test_a_rejection_stands_though_the_policy_would_allow_the_call_by_now() -> None:
    bench = Bench(ask={"rm"})
    agent = bench.agent(script(calls("rm"), "done"))
    state = run_sync(agent, "go").state
    state.reject("call_0_0", "no")
    bench.ask.clear()
    result = play_on("blocking", agent, state)
    assert bench.ran == [] and outputs(result.items) == {"call_0_0": "no"}


@pytest.mark.spec("RS-05")
@KEPT
def test_a_paused_run_ends_with_the_results_of_one_that_never_paused(kept: str) -> None:
    def answers() -> ScriptedModel:
        return ScriptedModel(
            [
                Scripted(text="x", calls=calls("ls").calls, input_tokens=7, output_tokens=3),
                Scripted(calls=calls("rm").calls, input_tokens=11, output_tokens=2),
                Scripted(text="done", input_tokens=13, output_tokens=1),
            ]
        )

    whole = run_sync(Bench().agent(answers()), "go")
    agent = Bench(ask={"rm"}).agent(answers())
    state = travelled(run_sync(agent, "go"), kept)
    state.approve("call_1_0")
    paused = play_on("blocking", agent, state)
    assert wire(paused.items) == wire(whole.items)
    assert paused.new_items == whole.new_items
    assert paused.usage == whole.usage and paused.usage.input_tokens == 31
    assert paused.state.responses == whole.state.responses
    assert paused.turns == whole.turns


@pytest.mark.spec("RS-18")
def test_a_resumed_stream_does_not_tell_the_paused_turn_again() -> None:
    agent = Bench(ask={"rm"}).agent(script(calls("rm", text="hm"), "done"))
    state = run_sync(agent, "go").state
    state.approve("call_0_0")
    events = read_events(resume_run(agent, state)[0])
    created = [event.item.kind for event in events if isinstance(event, ItemCreated)]
    assert created == [ItemKind.TOOL_OUTPUT, ItemKind.MESSAGE]


@pytest.mark.spec("LP-10", "BG-01")
def test_turns_go_on_counting_after_a_resume_and_the_states_own_limit_wins() -> None:
    agent = Bench(ask={"rm"}).agent(script(calls("ls"), calls("rm"), calls("ls"), "done"))
    state = run_sync(agent, "go", RunOptions(exec=ExecOptions(max_turns=2))).state
    state.approve("call_1_0")
    with pytest.raises(RunError) as failed:
        play_on("blocking", agent, state, RunOptions(exec=ExecOptions(max_turns=50)))
    assert isinstance(failed.value.__cause__, MaxTurnsError)


@pytest.mark.spec("TU-06", "RS-14")
def test_another_process_also_declines_the_calls_of_an_answer_that_was_cut_off() -> None:
    bench = Bench()
    cut = Scripted(calls=calls("ls").calls, status="incomplete", incomplete_reason="max_output_tokens")
    agent = bench.agent(script(cut, "done"))
    stopped = _stopped_before_the_calls(agent)
    result = play_on("blocking", agent, RunState.from_json(stopped.to_json()))
    assert bench.ran == [] and "cut off" in outputs(result.items)["call_0_0"]


class _Full(MemoryJournal):
    """A journal that has no room for outputs."""

    def append(self, record: Any) -> None:
        if record["record"] == "output":
            raise JournalError("the disk is full")
        super().append(record)


def _stopped_before_the_calls(agent: Any) -> RunState:
    journal = _Full()
    with pytest.raises(RunError):
        run_sync(agent, "go", RunOptions(observe=ObserveOptions(journal=journal)))
    return state_from_records(journal.records)


@pytest.mark.spec("RX-19")
@KEPT
def test_a_finished_run_that_is_resumed_gives_its_answer_again_without_a_model_call(kept: str) -> None:
    model = script("done")
    agent = Bench().agent(model)
    result = run_sync(agent, "go")
    again = play_on("blocking", agent, travelled(result, kept))
    assert again.final_output == "done" and len(model.requests) == 1


@pytest.mark.spec("RX-20")
@BOTH
@KEPT
def test_a_finished_run_goes_on_with_new_input_and_counts_its_turns_anew(how: How, kept: str) -> None:
    model = script("done", calls("ls"), "done too")
    agent = Bench().agent(model)
    first = play(how, agent, options=RunOptions(exec=ExecOptions(max_turns=2)))
    second = play_on(how, agent, travelled(first, kept), input="and now this")
    assert second.final_output == "done too" and second.turns == 2
    assert [item.text for item in model.requests[1].items] == ["go", "done", "and now this"]
    assert shape(second.new_items) == ["tool_call call_1_0", "tool_output call_1_0", "message"]


@pytest.mark.spec("RX-21")
@KEPT
def test_input_that_comes_with_a_decision_joins_after_the_outputs(kept: str) -> None:
    bench = Bench(ask={"rm", "ls"})
    model = script(calls("rm"), "done")
    agent = bench.agent(model)
    result = run_sync(agent, "go")
    result = play_on("blocking", agent, travelled(result, kept), input="be quick")
    assert len(result.interruptions) == 1
    state = travelled(result, kept)
    state.approve("call_0_0")
    result = play_on("blocking", agent, state)
    assert [item.kind for item in model.requests[1].items] == [
        "message",
        "tool_call",
        "tool_output",
        "message",
    ]
    assert model.requests[1].items[3].text == "be quick"
    assert result.final_output == "done"


@pytest.mark.spec("RX-22")
def test_the_state_that_is_resumed_is_not_changed_by_the_run() -> None:
    bench = Bench(ask={"rm"})
    agent = bench.agent(script(calls("rm"), "done", "done"))
    state = run_sync(agent, "go").state
    state.approve("call_0_0")
    before = state.to_json()
    play_on("blocking", agent, state)
    assert state.to_json() == before


@pytest.mark.spec("RS-13")
def test_a_state_of_another_agent_is_refused() -> None:
    agent = Bench().agent(script("done"))
    state = run_sync(agent, "go").state
    other = type(agent)(name="someone else", model=script("done"))
    with pytest.raises(UserError, match="someone else"):
        resume_run(other, state)


@pytest.mark.spec("RS-01", "RS-11", "IT-07", "IT-08")
def test_every_field_of_a_state_survives_json() -> None:
    state = run_sync(Bench(ask={"rm"}).agent(script(calls("ls", "rm"))), "go").state
    state.approve("call_0_1")
    state.extra = {"mine": [1, None, {"deep": True}]}
    state.pending_input = [user_message("more")]
    state.started = ["call_0_0"]
    shown = Display(title="t", summary="s", details={"a": [1]})
    state.items.append(
        Item(kind="of the future", raw='{"type": "x",  "n": 1.0}', source=Source.RUNNER, display=shown)
    )
    again = RunState.from_json(state.to_json())
    for name in RunState.model_fields:
        assert getattr(again, name) == getattr(state, name), name
    for kept, item in zip(again.items, state.items, strict=True):
        for field in fields(Item):
            assert getattr(kept, field.name) == getattr(item, field.name), field.name


@pytest.mark.spec("RS-06", "RS-07", "RS-10")
def test_a_version_outside_the_window_is_refused_with_the_direction_it_misses() -> None:
    check_version("1.3", current="1.4", oldest_minor=2)
    check_version("1.2", current="1.4", oldest_minor=2)
    for version, words in (("1.5", "newer"), ("1.1", "older"), ("2.0", "only"), ("0.9", "only")):
        with pytest.raises(UserError, match=words):
            check_version(version, current="1.4", oldest_minor=2)
    assert run_state_version_supported("1.0")
    assert run_state_version_supported("1.1")
    assert not run_state_version_supported("1.2") and not run_state_version_supported("one")


@pytest.mark.spec("RS-09")
def test_fields_that_an_older_writer_did_not_have_get_their_defaults() -> None:
    state = RunState.from_json('{"schema_version": "1.0", "agent": "tester"}')
    assert state.max_turns == 0 and state.settled and state.usage.requests == 0
    agent = Bench().agent(script(*[calls("ls") for _ in range(20)]))
    with pytest.raises(RunError, match="10 turns"):
        play_on("blocking", agent, state, input="go")


@pytest.mark.spec("RX-23", "IT-11")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema_version": "1.0"}',
        '{"schema_version": 1, "agent": "a"}',
        '{"schema_version": "9.0", "agent": "a"}',
        '{"schema_version": "1.0", "agent": "a", "items": [{"kind": "message", "raw": "{}"}]}',
        '{"schema_version": "1.0", "agent": "a", "items": [{"kind": "message", "raw": "nonsense"}]}',
        '{"schema_version": "1.0", "agent": "a", "turn": "many"}',
    ],
)
def test_what_is_not_a_state_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        RunState.from_json(text)
