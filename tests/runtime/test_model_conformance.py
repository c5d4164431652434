"""What every model keeps, whichever provider it is of and whatever is wrapped around it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_kit import DECORATORS, SEALED, SUBJECTS, Answer, check_story, hear, subject
from runtime_kit import Bench, play
from wire_kit import WIRES
from wire_kit import model as wired
from wire_server import WireServer

from runtime import ItemKind, Model, ModelRequest, ModelSettings, ScriptedModel, UserError, user_message
from runtime.models.stream import EventType

LONG = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. \U0001f980 " * 3

ANSWERS: Mapping[str, Answer] = {
    "text": Answer(text=LONG),
    "nothing": Answer(),
    "thought": Answer(thought="Let me see. \u00e9", text="So."),
    "call": Answer(text="Looking.", calls=[("exec_command", {"cmd": "ls -l", "n": 1.5, "s": 'a"b\\'})]),
    "parallel": Answer(thought="Two.", calls=[("exec_command", {"cmd": "a"}), ("exec_command", {})]),
    "truncated": Answer(text="It was a dark and", stop="max_tokens"),
    "cached": Answer(text="x", usage=(110, 80, 9)),
    "refusal": Answer(text="I would rather not.", stop="refusal"),
}


@pytest.fixture(params=SUBJECTS, ids=["-".join(which) for which in SUBJECTS])
def which(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each model in turn."""
    found: tuple[str, str] = request.param
    return found


@pytest.mark.spec("CF-01", "CF-02", "CF-03", "PV-04", "PV-05")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_the_same_streamed_and_whole(
    which: tuple[str, str], name: str, stream: bool, tmp_path: Path
) -> None:
    answer = ANSWERS[name]
    with subject(which, [answer], tmp_path) as model:
        heard = hear(model, stream=stream)
    response = heard.response
    assert (response.status, response.incomplete_reason) == (
        ("incomplete", "max_output_tokens") if name == "truncated" else ("completed", "")
    )
    calls = [item.call for item in response.items if item.kind == ItemKind.TOOL_CALL]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        (called, dict(arguments)) for called, arguments in answer.calls
    ]
    assert [call.call_id for call in calls] == [f"c{n}" for n in range(len(answer.calls))]
    messages = [item for item in response.items if item.kind == ItemKind.MESSAGE]
    if name == "refusal":
        assert [item.refusal for item in messages] == [answer.text]
    else:
        assert [item.text for item in messages] == ([] if answer.text is None else [answer.text])
    thoughts = [item for item in response.items if item.kind == ItemKind.REASONING]
    assert [item.text for item in thoughts] == ([] if answer.thought is None else [answer.thought])
    assert all(str(item.wire["encrypted_content"]).endswith(SEALED) for item in thoughts)
    usage = response.usage
    assert usage.requests == 1 and usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == answer.usage
    assert response.response_id
    if stream:
        check_story(heard)
    else:
        assert heard.events == []


@pytest.mark.spec("CF-02", "PV-10")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_what_a_model_thought_goes_back_to_it_byte_for_byte(
    which: tuple[str, str], stream: bool, tmp_path: Path
) -> None:
    bench = Bench()
    first = Answer(thought="Hm, \u00e9.", calls=[("exec_command", {"cmd": "ls"})])
    with subject(which, [first, Answer(text="done")], tmp_path) as model:
        result = play("blocking", bench.agent(model, settings=ModelSettings(stream=stream)))
    # A server that checks signatures has accepted the second request.
    assert result.final_output == "done" and bench.ran == ["ls"]


@pytest.mark.spec("MD-01")
@pytest.mark.parametrize("which", [which for which in SUBJECTS if which[0] in WIRES], ids="-".join)
def test_a_model_that_is_cancelled_ends_at_once_and_tells_nothing_more(
    which: tuple[str, str], tmp_path: Path
) -> None:
    async def scenario(model: Model, server: WireServer) -> None:
        events: list[str] = []
        request = ModelRequest(instructions="", items=[user_message("go")])
        asking = asyncio.create_task(model.respond(request, lambda event: events.append(event.type)))
        assert await asyncio.to_thread(server.arrived.acquire, timeout=10)
        asking.cancel()
        done, _ = await asyncio.wait([asking], timeout=5)
        assert done and asking.cancelled()
        told = len(events)
        gate.set()
        await asyncio.sleep(0.05)
        assert len(events) == told and EventType.COMPLETED not in events

    gate = threading.Event()
    reply = replace(Answer(text=LONG).reply(which[0]), gate=gate, stall_at=400)
    with WireServer([reply]) as server:
        asyncio.run(scenario(DECORATORS[which[1]](wired(which[0], server), tmp_path), server))


@pytest.mark.spec("PV-09")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store", False),
        ("truncation", "auto"),
        ("conversation", "conv_1"),
        ("include", ["x"]),
        ("chain", True),
    ],
)
def test_settings_that_the_messages_wire_does_not_have_are_refused_by_name(name: str, value: Any) -> None:
    with WireServer(["never"]) as server:
        with pytest.raises(UserError, match=name):
            hear(wired("anthropic", server), **{name: value})
        assert server.requests == []


@pytest.mark.spec("PV-06")
def test_the_names_of_events_are_those_of_the_wire() -> None:
    assert {kind.value for kind in EventType} == {
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.refusal.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    }


@pytest.mark.spec("MD-02")
def test_a_script_streams_only_where_it_is_told_to() -> None:
    assert hear(ScriptedModel(["a"])).events == []
    assert hear(ScriptedModel(["a"], stream=True), stream=False).events == []
    assert hear(ScriptedModel(["a"], stream=True)).events != []
