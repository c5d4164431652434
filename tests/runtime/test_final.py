"""Structured answers, error handlers, and the one way in which every run ends."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from runtime_kit import Bench, How, calls, play, play_on, script

from runtime import (
    Agent,
    BudgetError,
    ErrorHandlers,
    ExecOptions,
    Failure,
    MaxTurnsError,
    ModelBehaviorError,
    OutputType,
    Role,
    RunError,
    RunOptions,
    Scripted,
    Source,
    UserError,
    output_of,
    output_of_schema,
    run_sync,
)

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])
REFUSED: Any = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "refusal", "refusal": "I will not"}],
}


class Weather(BaseModel):
    """An answer."""

    city: str
    degrees: int


def handling(**handlers: Any) -> RunOptions:
    """Options with error handlers."""
    return RunOptions(exec=ExecOptions(error_handlers=ErrorHandlers(**handlers)))


@pytest.mark.spec("FO-03", "FO-05")
@BOTH
def test_a_structured_answer_is_a_value_of_its_type(how: How) -> None:
    model = script('{"city":"Bern","degrees":7}')
    agent = Agent[None, Weather](name="w", model=model, output=Weather)
    result = play(how, agent)
    assert result.final_output == Weather(city="Bern", degrees=7)
    asked = model.requests[0].output
    assert asked is not None and asked.name == "Weather" and asked.schema["additionalProperties"] is False
    again = play_on(how, agent, result.state)
    assert again.final_output == result.final_output and len(model.requests) == 1


@pytest.mark.spec("FO-03", "RX-167")
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (list[int], '{"value":[1,2]}', [1, 2]),
        (int, '{"value":4}', 4),
        (list[Weather], '{"value":[{"city":"B","degrees":1}]}', [Weather(city="B", degrees=1)]),
        (dict[str, int], '{"a":1}', {"a": 1}),
    ],
)
def test_what_is_no_object_travels_inside_one(kind: Any, text: str, value: object) -> None:
    read = output_of(kind)
    assert read.schema.schema["type"] == "object" and read.parse(text) == value
    with pytest.raises(ModelBehaviorError, match="does not fit"):
        read.parse('{"value":{}}')
    with pytest.raises(UserError):
        output_of(object())


@pytest.mark.spec("FO-03", "SC-01", "SC-02")
def test_an_answer_may_have_to_follow_a_json_schema() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
        "required": ["list"],
    }
    read: OutputType[Any] = output_of_schema("numbers", schema)
    assert run_sync(Agent(name="n", model=script('{"list":[1,2]}'), output=read), "go").final_output == {
        "list": [1, 2]
    }
    with pytest.raises(ModelBehaviorError, match="/list/1: 0 is less than"):
        read.parse('{"list":[1,0]}')
    with pytest.raises(ModelBehaviorError, match="it is not valid JSON"):
        read.parse("no")
    assert output_of_schema("odd", {"type": 5}).parse('{"a":1}') == {"a": 1}


@pytest.mark.spec("FO-03", "ER-11", "ER-12", "ER-13", "ER-14", "PC-01", "PC-02")
@BOTH
def test_an_answer_that_does_not_fit_fails_the_run_or_goes_to_the_handler(how: How) -> None:
    ended: list[Any] = []
    agent = Agent(
        name="w",
        model=script("warm", "warm", "warm"),
        output=Weather,
        on_end=lambda context, output: ended.append(output),
    )
    with pytest.raises(RunError) as failed:
        play(how, agent)
    assert isinstance(failed.value.__cause__, ModelBehaviorError) and ended == []
    seen: list[Failure] = []

    async def give(failure: Failure) -> Weather:
        seen.append(failure)
        return Weather(city="?", degrees=0)

    result = play(how, agent, options=handling(invalid_final_output=give))
    assert [result.final_output] == ended == [Weather(city="?", degrees=0)]
    assert result.items[-1].source == Source.ERROR_HANDLER and not result.items[-1].is_external
    failure = seen[0]
    assert isinstance(failure.error, ModelBehaviorError) and failure.agent == "w"
    assert [item.text for item in failure.input] == ["go"]
    assert [item.text for item in failure.items] == ["warm"] and len(failure.responses) == 1
    with pytest.raises(RunError):
        play(how, agent, options=handling(invalid_final_output=lambda failure: None))


@pytest.mark.spec("FO-04", "PC-06")
@BOTH
def test_a_structured_answer_without_text_asks_the_model_again_unless_a_handler_has_one(how: How) -> None:
    empty = Scripted(items=({"type": "reasoning", "id": "r", "summary": []},))
    agent = Agent(name="w", model=script(empty, '{"city":"Bern","degrees":7}', empty), output=Weather)
    result = play(how, agent)
    assert result.final_output == Weather(city="Bern", degrees=7) and result.turns == 2
    result = play(how, agent, options=handling(invalid_final_output=lambda failure: "none"))
    assert result.final_output == "none" and result.turns == 1


@pytest.mark.spec("FO-02", "ER-11", "PC-01")
@BOTH
def test_a_refusal_goes_to_its_handler(how: How) -> None:
    agent = Bench().agent(script(Scripted(items=(REFUSED,))))
    result = play(how, agent, options=handling(refusal=lambda failure: f"It said: {failure.error}"))
    assert result.final_output == "It said: I will not"
    assert play_on(how, agent, result.state).final_output == "It said: I will not"


@pytest.mark.spec("LP-07", "VL-04", "ER-11")
@BOTH
def test_after_the_last_turn_a_run_may_close_in_words_or_hand_to_its_handler_or_fail(how: How) -> None:
    def options(**more: Any) -> RunOptions:
        return RunOptions(exec=ExecOptions(max_turns=2, **more))

    model = script(calls("a"), calls("b"), "in short")
    other = Agent(name="other")
    result = play(how, Bench().agent(model, handoffs=[other]), options=options(final_turn_without_tools=True))
    assert result.final_output == "in short" and result.turns == 3
    assert model.requests[2].tools == [] and len(model.requests[1].tools) == 2
    stubborn = Bench().agent(script(calls("a"), calls("b"), calls("c"), "never"))
    with pytest.raises(RunError) as failed:
        play(how, stubborn, options=options(final_turn_without_tools=True))
    assert isinstance(failed.value.__cause__, MaxTurnsError)
    handlers = ErrorHandlers(max_turns=lambda failure: f"{len(failure.items)} items")
    result = play(
        how, Bench().agent(script(calls("a"), calls("b"))), options=options(error_handlers=handlers)
    )
    assert result.final_output == "4 items"


@pytest.mark.spec("PC-05", "VL-03")
@BOTH
def test_the_valve_has_no_handler(how: How) -> None:
    def never(failure: Failure) -> str:
        raise AssertionError

    bench = Bench(deny={"x"})
    options = handling(max_turns=never, refusal=never, invalid_final_output=never)
    with pytest.raises(RunError, match="3 turns in a row"):
        play(how, bench.agent(script(*[calls("x") for _ in range(4)])), options=options)


@pytest.mark.spec("RI-11", "RI-12", "RI-02", "RI-01", "RI-03", "SE-09")
@BOTH
def test_what_is_said_beside_calls_is_a_working_message_and_the_answer_a_final_response(how: How) -> None:
    phased: Any = {
        "type": "message",
        "role": "assistant",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "Looking.", "annotations": []}],
    }
    first = Scripted(items=(phased,), calls=calls("ls").calls)
    model = script(first, "done")
    result = play(how, Bench().agent(model))
    said, *_, answer = [item for item in result.new_items if item.kind == "message"]
    assert (said.role, said.wire["phase"]) == (Role.WORKING_MESSAGE, "commentary")
    assert answer.role == Role.FINAL_RESPONSE
    call, output = result.new_items[0], result.new_items[2]
    assert call.call.name == "exec_command" and call.call.arguments == '{"cmd":"ls"}'
    assert output.call_id == call.call_id and not output.is_error
    sent = model.requests[1].items[2].raw
    assert sent == said.raw and "working_message" not in sent


@pytest.mark.spec("RI-17")
@BOTH
def test_the_same_call_with_the_same_output_ends_a_run_that_has_this_guard(how: How) -> None:
    answers = [calls("ls") for _ in range(6)]
    options = RunOptions(exec=ExecOptions(max_repeats=3))
    with pytest.raises(RunError, match="4 times") as failed:
        play(how, Bench().agent(script(*answers)), options=options)
    assert failed.value.result.items[-1].call_id == "call_3_0"
    assert play(how, Bench().agent(script(*answers, "done"))).final_output == "done"
    counted = Bench()
    counted.acts["ls"] = lambda context: f"{len(counted.ran)} files"
    assert play(how, counted.agent(script(*answers, "done")), options=options).final_output == "done"


@pytest.mark.spec("BG-04")
def test_the_error_of_the_turns_is_one_of_the_budgets() -> None:
    error = MaxTurnsError("over")
    assert isinstance(error, BudgetError) and error.dimension == "turns"
