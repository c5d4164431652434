"""Handoffs: who takes over, what the next agent sees, and what stays the run's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from runtime_kit import Bench, How, calls, play, play_on, read_events, script, shape

from runtime import (
    Agent,
    ConversationOptions,
    ExecOptions,
    Handoff,
    HandoffHistory,
    HandoffRequested,
    Item,
    ItemCreated,
    ItemKind,
    MaxTurnsError,
    MemoryJournal,
    ModelBehaviorError,
    ObserveOptions,
    RunContext,
    RunError,
    RunOptions,
    RunState,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    UserError,
    agents_of,
    resume_run,
    run,
    run_sync,
    state_from_records,
    user_message,
)

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


def over(*more: ScriptedCall, to: str = "writer", arguments: Any = "{}") -> Scripted:
    """An answer that hands over, after other calls."""
    return Scripted(calls=(*more, ScriptedCall(name=f"transfer_to_{to}", arguments=arguments)))


def ls() -> ScriptedCall:
    """A call of the test's tool."""
    return ScriptedCall(name="exec_command", arguments={"cmd": "ls"})


def pair(
    first: Sequence[Scripted | str], second: Sequence[Scripted | str], bench: Bench | None = None, **way: Any
) -> tuple[Agent, ScriptedModel]:
    """An agent that hands over to a writer, and the writer's model."""
    model = script(*second)
    writer = Agent(name="writer", model=model, handoff_description="Writes.")
    bench = bench or Bench()
    return bench.agent(script(*first), handoffs=[Handoff(target=writer, **way)]), model


@pytest.mark.spec("HO-01", "HO-02", "IT-12", "HO-10")
@BOTH
def test_a_handoff_is_a_call_that_switches_the_agent_in_the_same_run(how: How) -> None:
    agent, writer = pair([over()], ["written"])
    result = play(how, agent)
    assert result.final_output == "written" and result.last_agent == "writer"
    assert result.usage.requests == 2 and result.turns == 2
    specs = {spec.name: spec for spec in agent.model.requests[0].tools}  # type: ignore[union-attr]
    assert "Writes." in specs["transfer_to_writer"].description
    assert shape(result.new_items) == ["handoff_call call_0_0", "handoff_output call_0_0", "message"]
    made, acknowledged, _ = result.new_items
    assert made.is_handoff and made.kind != ItemKind.TOOL_CALL and not acknowledged.is_external
    assert [item.kind for item in result.items].count(ItemKind.TOOL_OUTPUT) == 0
    assert shape(writer.requests[0].items)[1:] == ["tool_call call_0_0", "tool_output call_0_0"]


@pytest.mark.spec("HO-02")
def test_a_handoff_is_told_as_a_call_and_as_a_request() -> None:
    agent, _ = pair([over()], ["written"])
    events = read_events(run(agent, "go")[0])
    assert any(isinstance(event, ItemCreated) and event.item.is_handoff for event in events)
    assert [event for event in events if isinstance(event, HandoffRequested)] == [
        HandoffRequested("call_0_0", "tester", "writer", "{}")
    ]


@pytest.mark.spec("HO-03")
@BOTH
def test_on_invoke_picks_who_takes_over_and_wins_over_the_target(how: How) -> None:
    chosen = Agent(name="chosen", model=script("from the chosen one"))

    async def pick(context: RunContext, arguments: Mapping[str, Any]) -> Agent:
        assert arguments == {"language": "fr"} and context.agent == "tester"
        return chosen

    agent, _ = pair([over(arguments={"language": "fr"})], ["x"], on_invoke=pick)
    assert play(how, agent).final_output == "from the chosen one"
    lost = Bench().agent(script(over()), handoffs=[Handoff(name="transfer_to_writer")])
    with pytest.raises(RunError) as failed:
        play(how, lost)
    assert isinstance(failed.value.__cause__, UserError)


@pytest.mark.spec("HO-04")
def test_who_can_be_handed_over_to_is_known_without_calling_anything() -> None:
    def never(context: RunContext, arguments: Mapping[str, Any]) -> Agent:
        raise AssertionError

    ways: list[Any] = []
    first, second = Agent(name="a", handoffs=ways), Agent(name="b")
    ways += [second, Handoff(name="somewhere", on_invoke=never)]
    third = Agent(name="c", handoffs=[first])
    assert sorted(agents_of(third)) == ["a", "b", "c"]
    with pytest.raises(UserError, match="two agents"):
        agents_of(Agent(name="b", handoffs=[first]))


@pytest.mark.spec("HO-05")
@BOTH
def test_of_two_handoffs_the_first_counts(how: How) -> None:
    other = Agent(name="other", model=script("wrong"))
    writer = Agent(name="writer", model=script("written"))
    both = Scripted(calls=(ScriptedCall(name="transfer_to_writer"), ScriptedCall(name="transfer_to_other")))
    result = play(how, Bench().agent(script(both), handoffs=[writer, other]))
    assert result.final_output == "written"
    assert [item.output for item in result.items if item.is_output][1].startswith("Ignored")


@pytest.mark.spec("HO-06", "SE-08")
@BOTH
def test_tools_beside_a_handoff_run_before_the_switch_and_nothing_is_an_answer_yet(how: How) -> None:
    bench = Bench()
    first = over(ls()).model_copy(update={"text": "I hand over."})
    agent, _ = pair([first], ["written"], bench)
    result = play(how, agent)
    assert bench.ran == ["ls"] and result.final_output == "written"
    assert [item.output for item in result.items if item.is_output] == ["ran ls", "Handed over to writer."]


@pytest.mark.spec("HO-07")
@BOTH
def test_turns_are_counted_across_a_handoff(how: How) -> None:
    agent, writer = pair([calls("a"), over()], ["never"])
    with pytest.raises(RunError) as failed:
        play(how, agent, options=RunOptions(exec=ExecOptions(max_turns=2)))
    assert isinstance(failed.value.__cause__, MaxTurnsError) and writer.requests == []


def last_words(history: HandoffHistory[Any]) -> list[Item]:
    """A filter: what the user said, and a note."""
    assert shape(history.turn) == ["tool_call call_0_0", "tool_output call_0_0"]
    return [history.before[0], user_message("in short")]


@pytest.mark.spec("HO-08", "HO-12", "LP-11")
@BOTH
@pytest.mark.parametrize("where", ["handoff", "run"])
def test_a_filter_changes_what_the_next_agent_sees_and_nothing_else(how: How, where: str) -> None:
    journal = MemoryJournal()
    options = RunOptions(
        conversation=ConversationOptions(handoff_filter=last_words if where == "run" else None),
        observe=ObserveOptions(journal=journal),
    )
    way: dict[str, Any] = {"input_filter": last_words} if where == "handoff" else {}
    agent, writer = pair([over()], ["written"], **way)
    result = play(how, agent, options=options)
    assert [item.text for item in writer.requests[0].items] == ["go", "in short"]
    assert shape(result.items) == ["message", "handoff_call call_0_0", "handoff_output call_0_0", "message"]
    assert state_from_records(journal.records).to_json() == result.state.to_json()


@pytest.mark.spec("HO-09")
@BOTH
def test_an_agent_is_told_that_it_begins_when_its_first_turn_does(how: How) -> None:
    told: list[tuple[str, int]] = []

    def begin(context: RunContext) -> None:
        told.append((context.agent, context.turn))

    writer = Agent(name="writer", model=script("written"), on_start=begin)
    agent = Bench().agent(script(calls("a"), over()), handoffs=[writer], on_start=begin)
    play(how, agent)
    assert told == [("tester", 1), ("writer", 3)]


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "default": 3}, "why": {"type": "string"}},
    "required": ["why"],
}


@pytest.mark.spec("HO-11", "SC-08", "SC-11", "SC-12")
@BOTH
def test_the_arguments_of_a_handoff_are_checked_and_wrong_ones_end_the_run(how: How) -> None:
    for arguments in ("[1]", {"n": 1}, {"why": 5}, "{"):
        bench = Bench()
        agent, _ = pair([over(ls(), arguments=arguments)], ["x"], bench, parameters=PARAMETERS)
        with pytest.raises(RunError) as failed:
            play(how, agent)
        assert isinstance(failed.value.__cause__, ModelBehaviorError) and bench.ran == []
    seen: list[Mapping[str, Any]] = []
    target = Agent(name="t", model=script("ok"))

    def pick(context: RunContext, arguments: Mapping[str, Any]) -> Agent:
        seen.append(arguments)
        return target

    agent, _ = pair([over(arguments={"why": "x"})], ["x"], parameters=PARAMETERS, on_invoke=pick)
    assert play(how, agent).final_output == "ok" and seen == [{"why": "x"}]
    assert Handoff(target=target).spec().strict
    assert not Handoff(target=target, non_strict_schema=True).spec().strict


@pytest.mark.spec("RS-13", "HO-10")
@BOTH
def test_a_run_that_paused_after_a_handoff_goes_on_with_the_agent_that_works(how: How) -> None:
    bench = Bench(ask={"rm"})
    writer = Agent(name="writer", model=script(calls("rm"), "written"), tools=[bench.tool()])
    agent = bench.agent(script(over()), handoffs=[writer])
    state = RunState.from_json(play(how, agent).state.to_json())
    assert state.agent == "writer"
    state.approve(state.interruptions[0])
    assert play_on(how, agent, state).final_output == "written" and bench.ran == ["rm"]
    with pytest.raises(UserError, match="writer"):
        resume_run(bench.agent(script()), state)
    alone = bench.agent(script())
    other = Agent(name="writer", model=script("again"), tools=[bench.tool()])
    assert play_on(how, alone, state, agents=[other]).final_output == "again"


@pytest.mark.spec("LP-12", "SN-01")
def test_an_agent_that_is_changed_during_a_turn_works_that_turn_as_it_was() -> None:
    tools: list[Any] = []
    bench = Bench(acts={"a": lambda context: tools.clear() or "cleared"})  # type: ignore[func-returns-value]
    tools.append(bench.tool())
    bench.sequential = True
    model = script(calls("a", "b"), "done")
    run_sync(Agent(name="x", tools=tools, model=model), "go")
    assert bench.ran == ["a", "b"]
    assert [len(request.tools) for request in model.requests] == [1, 0]
