"""What is peculiar to the Messages wire, beyond its first rules (test_anthropic_wire.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from model_kit import check_story, hear
from runtime_kit import Bench, play
from wire_kit import ask, call, check_params, do, item, model, output, said
from wire_server import Call, Reply, WireServer

from runtime import (
    ContextOverflowError,
    Item,
    ModelError,
    ModelSettings,
    OutputSchema,
    RunOptions,
    ToolSpec,
    UserError,
    run_sync,
    user_message,
)
from runtime.models.stream import EventType

THOUGHT = '{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}'
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def kinds(body: dict[str, Any]) -> list[list[str]]:
    return [[block["type"] for block in message["content"]] for message in body["messages"]]


@pytest.mark.spec("MD-10")
def test_a_full_request_is_what_the_vendors_own_types_allow() -> None:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    pictures: list[dict[str, Any]] = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    ]
    items = [
        item(type="message", role="user", content=pictures),
        said("assistant", "ok"),
        call("c1", arguments='{"cmd": "ls"}'),
        output("c1", pictures),
        said("developer", "be careful"),
    ]
    tools = [ToolSpec(name="t", description="does it", parameters=schema)]  # type: ignore[arg-type]
    request = {"tools": tools, "output": OutputSchema(name="r", schema=schema)}  # type: ignore[arg-type]
    choices: dict[str, Any] = {"tool_choice": "t", "parallel_tool_calls": False, "prompt_cache": False}
    _, body = ask("anthropic", "x", items, request, **choices)
    check_params("anthropic", body)
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert body["tools"] == [{"name": "t", "description": "does it", "input_schema": schema}]
    assert body["tool_choice"] == {"type": "tool", "name": "t", "disable_parallel_tool_use": True}
    result = body["messages"][2]["content"][0]["content"]
    assert result == body["messages"][0]["content"]
    assert [block.get("source", {}).get("type") for block in result] == [
        None,
        "base64",
        "url",
        "base64",
        "url",
    ]
    assert result[3] == {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
        "title": "a.pdf",
    }


@pytest.mark.spec("PV-09")
@pytest.mark.parametrize(
    "part", [{"type": "input_image", "file_id": "f"}, {"type": "input_file", "file_id": "f"}, {"type": "odd"}]
)
def test_content_that_this_wire_cannot_carry_is_a_user_error(part: dict[str, Any]) -> None:
    for items in ([item(type="message", role="user", content=[part])], [call("c"), output("c", [part])]):
        with pytest.raises(UserError, match="Messages API has no place"):
            ask("anthropic", "x", items)


SYSTEM = said("system", "later")
ON = user_message("on")
OK = said("assistant", "ok")


@pytest.mark.spec("AN-01")
@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([user_message("go"), SYSTEM], ["user", "system"]),
        ([user_message("go"), SYSTEM, SYSTEM, ON], ["user", "system"]),
        ([user_message("go"), SYSTEM, OK, ON], ["user", "system", "assistant", "user"]),
        ([user_message("go"), OK, SYSTEM, ON], ["user", "assistant", "user", "system"]),
        ([user_message("go"), OK, SYSTEM], ["user", "assistant", "user"]),
        ([user_message("go"), OK, SYSTEM, OK, ON], ["user", "assistant", "user", "assistant", "user"]),
        ([user_message("go"), call("c"), output("c"), SYSTEM], ["user", "assistant", "user", "system"]),
        ([user_message("go"), call("c"), SYSTEM, output("c")], ["user", "assistant", "user", "system"]),
    ],
)
def test_system_text_in_the_middle_stands_where_the_service_takes_it(
    items: list[Item], expected: list[str]
) -> None:
    _, body = ask("anthropic", "x", items)
    assert roles(body) == expected
    assert json.dumps(body["messages"]).count('"later"') == items.count(SYSTEM)


@pytest.mark.spec("AN-10")
def test_only_message_stop_ends_an_answer() -> None:
    events = [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "all of it"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]

    def play_events(count: int) -> Any:
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events[:count]).encode()
        return ask("anthropic", Reply(body=body, headers={"content-type": "text/event-stream"}))[0]

    assert play_events(6).items[0].text == "all of it"
    for count in range(6):
        with pytest.raises(ModelError, match="ended before the answer was complete") as failed:
            play_events(count)
        assert failed.value.transient


@pytest.mark.spec("MD-20")
@pytest.mark.parametrize(
    "events",
    [
        [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}],
        [{"type": "message_start", "message": {"id": "m"}}] * 2,
        [
            {"type": "message_start", "message": {"id": "m"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
        ],
        [
            {"type": "message_start", "message": {"id": "m"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        ],
        [
            {"type": "message_start", "message": {"id": "m"}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ],
        ["{broken"],
        ["[]"],
        ['"text"'],
    ],
)
def test_a_stream_that_makes_no_sense_is_an_error_that_may_pass(events: list[Any]) -> None:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    body = "".join(f"data: {text}\n\n" for text in texts).encode()
    with pytest.raises(ModelError) as failed:
        ask("anthropic", Reply(body=body, headers={"content-type": "text/event-stream"}))
    assert failed.value.transient


@pytest.mark.spec("MD-17")
@pytest.mark.parametrize(
    ("kind", "status", "transient"),
    [
        ("overloaded_error", 529, True),
        ("api_error", 500, True),
        ("rate_limit_error", 429, True),
        ("timeout_error", 504, True),
        ("invalid_request_error", 400, False),
        ("authentication_error", 401, False),
        ("some_new_error", None, False),
    ],
)
def test_an_error_inside_a_stream_has_the_status_it_would_have_had_before(
    kind: str, status: int | None, transient: bool
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "not now"}}
    told = f"event: error\ndata: {json.dumps(error)}\n\n"
    with (
        WireServer([Reply(text="x", inject={3: told})]) as server,
        pytest.raises(ModelError, match="not now") as e,
    ):
        hear(model("anthropic", server))
    assert (e.value.status, e.value.transient) == (status, transient)


@pytest.mark.spec("AN-04")
def test_what_was_said_before_a_refusal_is_taken_back_by_it() -> None:
    reply = Reply(text="Well, one", calls=[Call("exec_command", {"cmd": "ls"})], stop="refusal")
    with WireServer([reply]) as server:
        heard = hear(model("anthropic", server))
    check_story(heard)
    assert [each.refusal for each in heard.response.items] == ["Well, one"]
    told = [event.type for event in heard.events]
    assert EventType.TEXT_DELTA in told and told.count(EventType.ITEM_DONE) == 1


@pytest.mark.spec("AN-05", "OV-13", "OV-14", "OV-15")
@BOTH
def test_an_overflow_is_told_by_its_marks_and_a_cut_answer_is_none(stream: bool) -> None:
    with pytest.raises(ContextOverflowError):
        ask("anthropic", Reply(text="x", stop="overflow"), stream=stream)
    for words in (
        "prompt is too long: 9 tokens > 8 maximum",
        "input length and `max_tokens` exceed context limit",
    ):
        with pytest.raises(ContextOverflowError):
            ask("anthropic", Reply(status=400, message=words), stream=stream)
    with pytest.raises(ModelError) as failed:
        ask("anthropic", Reply(status=400, message="max_tokens: too large"), stream=stream)
    assert not isinstance(failed.value, ContextOverflowError)
    answer, _ = ask("anthropic", Reply(text="x", stop="max_tokens"), stream=stream)
    assert answer.incomplete_reason == "max_output_tokens"


@pytest.mark.spec("MD-21")
@BOTH
def test_a_reason_to_stop_that_is_not_known_is_an_error_that_names_it(stream: bool) -> None:
    with pytest.raises(ModelError, match="pause_turn"):
        ask("anthropic", Reply(text="x", stop="pause_turn"), stream=stream)


@pytest.mark.spec("AN-08")
def test_what_the_request_before_wrote_to_the_cache_is_marked_too() -> None:
    bench = Bench()
    with WireServer([do("a"), do("b"), "done"]) as server:
        run_sync(bench.agent(model("anthropic", server)), "go")
        assert server.refused == []
        marked = [
            [
                any("cache_control" in block for block in message["content"])
                for message in request.body["messages"]
            ]
            for request in server.requests
        ]
    assert marked == [[True], [True, False, True], [False, False, True, False, True]]


@pytest.mark.spec("MD-23")
def test_ids_of_calls_that_come_again_are_told_apart() -> None:
    items = [
        user_message("go"),
        call("call_0", arguments='{"n": 1}'),
        output("call_0", "first"),
        call("call_0", arguments='{"n": 2}'),
        call("call_0#2"),
        output("call_0", "second"),
        output("call_0#2", "third"),
    ]
    _, body = ask("anthropic", "x", items)
    blocks = [block for message in body["messages"] for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == 3 and ids[0] == "call_0"
    results = [(b["tool_use_id"], b["content"]) for b in blocks if b["type"] == "tool_result"]
    assert results == list(zip(ids, ["first", "second", "third"], strict=True))


@pytest.mark.spec("RB-26")
@BOTH
def test_a_call_cut_off_in_the_middle_of_its_arguments_does_not_run_and_does_not_spoil_the_rest(
    stream: bool,
) -> None:
    if stream:
        events = [
            {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "tool_use", "id": "c", "name": "exec_command", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": '{"cmd": "rm -rf /tm'},
            },
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        data = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        cut = Reply(body=data.encode(), headers={"content-type": "text/event-stream"})
    else:
        cut = do("rm -rf /tm", stop="max_tokens")
    bench = Bench()
    with WireServer([cut, "done"]) as server:
        result = play("read", bench.agent(model("anthropic", server), settings=ModelSettings(stream=stream)))
        assert server.refused == []
    assert bench.ran == [] and result.final_output == "done"


@pytest.mark.spec("RX-40")
def test_a_block_that_is_not_known_is_told_and_kept_when_it_is_streamed() -> None:
    raw = '{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"n": 1.50}}'
    with WireServer(
        [Reply(raw=[raw], text="found", calls=[Call("exec_command", {"cmd": "ls"})]), "done"]
    ) as server:
        result = play("read", Bench().agent(model("anthropic", server)), options=RunOptions())
        assert server.refused == [] and raw.encode() not in server.requests[0].raw
        assert json.loads(raw) in server.requests[1].body["messages"][1]["content"]
    assert raw in result.items[1].raw


@pytest.mark.spec("RX-40")
def test_a_block_that_is_not_known_and_comes_in_pieces_is_put_together() -> None:
    events = [
        {"type": "message_start", "message": {"id": "m"}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in ('{"q":', " 1.50}")
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    answer, _ = ask("anthropic", Reply(body=data.encode(), headers={"content-type": "text/event-stream"}))
    assert '"input":{"q": 1.50}' in answer.items[0].raw
