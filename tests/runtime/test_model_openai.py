"""What is peculiar to the Responses wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from model_kit import hear
from runtime_kit import Bench, calls, play, play_on
from wire_kit import ask, call, check_params, do, item, model, output, said
from wire_server import Call, Reply, WireServer

from runtime import (
    ContextOverflowError,
    ModelError,
    ModelRefusalError,
    ModelSettings,
    OutputSchema,
    RunError,
    RunState,
    ScriptedModel,
    ToolSpec,
    UserError,
    resume_run_sync,
    run_sync,
    user_message,
)
from runtime.models.openai_wire import can_be_strict
from runtime.models.stream import EventType
from runtime.schema import JSON

SCHEMA: dict[str, JSON] = {
    "type": "object",
    "properties": {"cmd": {"type": "string"}, "why": {"type": ["string", "null"]}},
    "required": ["cmd", "why"],
    "additionalProperties": False,
}


@pytest.mark.spec("MD-10")
def test_a_full_request_is_what_the_vendors_own_types_allow() -> None:
    items = [
        user_message("go"),
        item(
            type="message",
            role="user",
            content=[
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ],
        ),
        item(type="reasoning", id="rs_1", summary=[], encrypted_content="gAAAA"),
        call("c1", arguments='{"a":1}', id="fc_1", status="completed"),
        output("c1", [{"type": "input_text", "text": "x"}, {"type": "input_file", "file_url": "http://a/b"}]),
        said("developer", "be careful"),
    ]
    tools = [ToolSpec(name="t", description="does it", parameters=SCHEMA)]
    request = {"tools": tools, "output": OutputSchema(name="result", schema=SCHEMA)}
    _, body = ask(
        "openai",
        "x",
        items,
        request,
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        effort="low",
        tool_choice="t",
        parallel_tool_calls=False,
        store=False,
        include=["reasoning.encrypted_content"],
        truncation="auto",
    )
    check_params("openai", body)
    assert body["input"] == [each.wire for each in items]
    assert body["tools"][0]["strict"] is True
    assert body["text"] == {
        "format": {"type": "json_schema", "name": "result", "schema": SCHEMA, "strict": True}
    }
    assert (body["store"], body["truncation"]) == (False, "auto")
    assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.spec("MD-11")
def test_an_output_schema_that_cannot_be_strict_is_asked_for_without() -> None:
    loose: dict[str, JSON] = {"type": "object", "properties": {"a": {"type": "string"}}}
    _, body = ask("openai", "x", request={"output": OutputSchema(name="r", schema=loose)})
    assert body["text"]["format"]["strict"] is False
    lax = OutputSchema(name="r", schema=SCHEMA, strict=False)
    _, body = ask("openai", "x", request={"output": lax})
    assert body["text"]["format"]["strict"] is False


@pytest.mark.spec("RX-50")
@pytest.mark.parametrize(
    ("part", "strict"),
    [
        ({"type": "string", "minLength": 1, "pattern": "a"}, True),
        ({"type": "string", "default": "a"}, False),
        ({"allOf": [{"type": "string"}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, False),
        ({"$ref": "#/$defs/a"}, True),
        ({"$ref": "#/$defs/a", "description": "b"}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, True),
        ({"type": "object", "patternProperties": {}}, False),
    ],
)
def test_keywords_that_strict_mode_refuses_are_known(part: JSON, strict: bool) -> None:
    for name in ("a", "default", "not"):  # names of members are no keywords
        schema: JSON = {
            "type": "object",
            "properties": {name: part},
            "required": [name],
            "additionalProperties": False,
            "$defs": {"a": {"type": "string"}},
        }
        assert can_be_strict(schema) is strict


@pytest.mark.spec("MD-12")
@pytest.mark.parametrize("stream", [True, False])
def test_chained_answers_send_only_what_is_new_and_the_service_keeps_the_rest(stream: bool) -> None:
    bench = Bench()
    with WireServer([do("ls", "cat a"), do("cat b"), "done", "more"]) as server:
        settings = ModelSettings(chain=True, stream=stream)
        agent = bench.agent(model("openai", server), settings=settings)
        result = run_sync(agent, "go")
        kept = RunState.from_json(result.state.to_json())
        assert resume_run_sync(agent, kept, input="and?").final_output == "more"
        assert server.refused == []
        sent = [request.body for request in server.requests]
    assert [body.get("previous_response_id") for body in sent] == [None, "resp_1", "resp_2", "resp_3"]
    assert [[each["type"] for each in body["input"]] for body in sent] == [
        ["message"],
        ["function_call_output"] * 2,
        ["function_call_output"],
        ["message"],
    ]


@pytest.mark.spec("MD-12")
def test_an_answer_that_the_service_no_longer_has_is_an_error_that_says_so() -> None:
    with WireServer(["x"]) as server, pytest.raises(ModelError, match="resp_gone"):
        ask_again = {"previous_response_id": "resp_gone", "previous_length": 1}
        ask("openai", "x", [user_message("go"), user_message("on")], ask_again, chain=True)
    assert server.requests == []


@pytest.mark.spec("MD-13")
def test_a_conversation_that_the_service_keeps_gets_only_what_is_new() -> None:
    bench = Bench()
    with WireServer([do("ls"), "done", "more"]) as server:
        settings = ModelSettings(conversation="conv_1")
        agent = bench.agent(model("openai", server), settings=settings)
        result = run_sync(agent, "go")
        kept = RunState.from_json(result.state.to_json())
        assert resume_run_sync(agent, kept, input="and?").final_output == "more"
        assert server.refused == []
        sent = [request.body for request in server.requests]
    assert [body["conversation"] for body in sent] == ["conv_1"] * 3
    assert [[each["type"] for each in body["input"]] for body in sent] == [
        ["message"],
        ["function_call_output"],
        ["message"],
    ]
    with pytest.raises(UserError, match="chain"):
        ask("openai", "x", conversation="conv_1", chain=True)


@pytest.mark.spec("MD-14", "PV-10")
def test_reasoning_that_the_service_could_not_read_stays_behind() -> None:
    mine = item(type="reasoning", id="rs_1", summary=[], encrypted_content="gAAAA")
    bare = item(type="reasoning", id="rs_2", summary=[])
    open_ = item(type="reasoning", id="rs_3", summary=[], content=[{"type": "reasoning_text", "text": "hm"}])
    other = item(type="reasoning", id="rs_4", summary=[], encrypted_content="thinking_signature:c2ln")
    cut = item(type="reasoning", id="msg_5", model="of another provider", summary=[], content=[])
    items = [user_message("go"), mine, bare, open_, other, cut, said("assistant", "ok"), user_message("on")]

    def ids(**settings: Any) -> list[str]:
        _, body = ask("openai", "x", items, **settings)
        return [each["id"] for each in body["input"] if each["type"] == "reasoning"]

    assert ids() == ["rs_1", "rs_2", "rs_3"]
    assert ids(store=False) == ids(extra_body={"store": False}) == ["rs_1", "rs_3"]


@pytest.mark.spec("MD-14")
def test_reasoning_that_nothing_follows_stays_behind() -> None:
    thought = item(type="reasoning", id="rs_1", summary=[])
    again = item(type="reasoning", id="rs_2", summary=[])
    for items in (
        [user_message("go"), thought, again, user_message("on")],
        [user_message("go"), thought],
        [user_message("go"), call("c"), thought, output("c"), user_message("on")],
    ):
        _, body = ask("openai", "x", items)
        assert "reasoning" not in [each["type"] for each in body["input"]]
    _, body = ask("openai", "x", [user_message("go"), thought, again, call("c"), output("c")])
    assert [each["type"] for each in body["input"]].count("reasoning") == 2


@pytest.mark.spec("MD-14")
def test_a_run_that_keeps_nothing_at_the_service_brings_its_sealed_reasoning_back() -> None:
    bench = Bench()
    sealed = json.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA=="})
    with WireServer([do("ls", raw=[sealed]), "done"]) as server:
        settings = ModelSettings(store=False, include=["reasoning.encrypted_content"])
        result = play("blocking", bench.agent(model("openai", server), settings=settings))
        assert server.refused == [] and sealed.encode() in server.requests[1].raw
    assert result.final_output == "done"


@pytest.mark.spec("PV-09")
def test_a_content_block_of_the_other_wire_is_a_user_error_that_names_it() -> None:
    block = item(type="anthropic_block", block={"type": "server_tool_use"})
    with pytest.raises(UserError, match="server_tool_use"):
        ask("openai", "x", [user_message("go"), block])


@pytest.mark.spec("MD-15")
def test_an_answer_without_its_items_at_the_end_is_made_of_those_that_were_told() -> None:
    body = (
        'event: response.created\ndata: {"type":"response.created","response":{"id":"r","output":[]}}\n\n'
        'data: {"type":"response.output_item.done","output_index":0,"item":'
        '{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"hi"}]}}\n\n'
        'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}\n\n'
    )
    reply = Reply(body=body.encode(), headers={"content-type": "text/event-stream"})
    answer, _ = ask("openai", reply)
    assert [each.text for each in answer.items] == ["hi"] and answer.response_id == "r"


@pytest.mark.spec("MD-16", "PV-07")
def test_events_that_are_not_known_are_passed_on_and_others_are_not_told() -> None:
    queued = 'data: {"type":"response.queued","response":{"id":"r"}}\n\n'
    odd = 'event: x\ndata: {"type":"response.web_search_call.searching","item_id":"w"}\n\n'
    noise = ': comment\n\ndata: {"type":"rate_limits.updated"}\n\nevent: ping\n\n'
    with WireServer([Reply(text="x", inject={1: queued + odd + noise})]) as server:
        heard = hear(model("openai", server))
    kinds = [event.type for event in heard.events]
    assert kinds[:3] == [EventType.CREATED, EventType.QUEUED, "response.web_search_call.searching"]
    assert all(kind.startswith("response.") for kind in kinds) and heard.response.items[0].text == "x"


@pytest.mark.spec("MD-17")
@pytest.mark.parametrize(
    ("told", "transient"),
    [
        ({"code": "server_error", "message": "oops"}, True),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, True),
        ({"code": "invalid_prompt", "message": "no"}, False),
        ({"code": "insufficient_quota", "message": "pay"}, False),
        ({"code": "context_length_exceeded", "message": "too long"}, False),
    ],
)
def test_a_response_that_failed_is_an_error_that_says_whether_it_may_pass(
    told: dict[str, str], transient: bool
) -> None:
    failed = {"type": "response.failed", "response": {"id": "r", "status": "failed", "error": told}}
    streamed = Reply(text="x", inject={2: f"data: {json.dumps(failed)}\n\n"})
    alone = Reply(text="x", inject={0: f"data: {json.dumps({'type': 'error', **told})}\n\n"})
    nested = Reply(text="x", inject={0: f"data: {json.dumps({'type': 'error', 'error': told})}\n\n"})
    whole = Reply(body=json.dumps(failed["response"]).encode())
    for reply in (streamed, alone, nested, whole):
        with WireServer([reply]) as server, pytest.raises(ModelError, match=told["message"]) as error:
            hear(model("openai", server))
        assert error.value.transient is transient
        overflow = told["code"] == "context_length_exceeded"
        assert isinstance(error.value, ContextOverflowError) is overflow


@pytest.mark.spec("FO-02")
@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_is_told_as_one_and_ends_the_run(stream: bool) -> None:
    with WireServer([Reply(text="I will not", stop="refusal")]) as server, pytest.raises(RunError) as failed:
        run_sync(Bench().agent(model("openai", server), settings=ModelSettings(stream=stream)), "go")
    assert isinstance(failed.value.__cause__, ModelRefusalError)
    assert str(failed.value.__cause__) == "I will not"


@pytest.mark.spec("TU-03", "TU-04")
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_incomplete_for_another_reason_fails(stream: bool) -> None:
    bench = Bench()
    reply = Reply(calls=[Call("exec_command", {"cmd": "ls"})], stop="content_filter")
    with WireServer([reply]) as server, pytest.raises(RunError, match="content_filter"):
        run_sync(bench.agent(model("openai", server), settings=ModelSettings(stream=stream)), "go")
    assert bench.ran == []


@pytest.mark.spec("MD-18")
def test_a_server_that_answers_in_one_piece_though_a_stream_was_asked_for_is_understood() -> None:
    body = json.dumps({"id": "r", "status": "completed", "output": [dict(said("assistant", "hi").wire)]})
    with WireServer([Reply(body=body.encode())]) as server:
        heard = hear(model("openai", server))
    assert heard.response.items[0].text == "hi" and heard.events == []


@pytest.mark.spec("RB-09")
def test_a_state_of_a_script_goes_on_at_the_service() -> None:
    bench = Bench(ask={"rm x"})
    paused = run_sync(bench.agent(ScriptedModel([calls("rm x")])), "go")
    paused.state.approve(paused.interruptions[0])
    with WireServer(["done"]) as server:
        result = play_on("read", bench.agent(model("openai", server)), paused.state)
        assert server.refused == []
    assert result.final_output == "done" and bench.ran == ["rm x"]
