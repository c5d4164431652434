"""Services, proxies and users that get things wrong, and what is told of it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from model_kit import check_story, hear
from runtime_kit import Bench
from wire_kit import WIRES, ask, item, model, said
from wire_server import Reply, WireServer

from runtime import (
    AnthropicModel,
    Item,
    ModelError,
    ModelRequest,
    ModelStreamed,
    OpenAIModel,
    Retry,
    UserError,
    run_sync,
    user_message,
)
from runtime.models.stream import EventType
from runtime.schema import dump

KINDS: dict[str, Any] = {"openai": OpenAIModel, "anthropic": AnthropicModel}


@pytest.mark.spec("MD-25")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "::::",
        "not a url",
        "localhost:1",
        "ftp://x/",
        "http://",
        "http://[::1",
        "http://h:99999/",
        "http://h/\0",
    ],
)
def test_a_base_url_that_is_none_is_told_before_anything_runs(provider: str, url: str) -> None:
    with pytest.raises(UserError, match="base URL"):
        KINDS[provider]("m", base_url=url, api_key="k")


@pytest.mark.spec("MD-25", "MD-26")
@pytest.mark.parametrize(
    "key", ["secret-key\n", " secret-key", "secret\0key", "secret-k\u00e9y", "secret\ud800"]
)
def test_a_key_that_cannot_be_sent_is_told_before_anything_runs_and_not_shown(
    provider: str, key: str
) -> None:
    with pytest.raises(UserError, match="the key holds") as failed:
        KINDS[provider]("m", base_url="http://127.0.0.1:1", api_key=key)
    assert "secret" not in str(failed.value)


@pytest.mark.spec("MD-25", "MD-26")
@pytest.mark.parametrize(
    "headers", [{"x-team": "secret\nvalue"}, {"x-team": "secr\u00e9t"}, {"x team": "a"}, {"": "a"}]
)
def test_an_extra_header_that_cannot_be_sent_is_named_and_its_value_is_not_shown(
    provider: str, headers: dict[str, str]
) -> None:
    with WireServer(["never"]) as server:
        with pytest.raises(UserError, match="extra_headers") as failed:
            hear(model(provider, server), extra_headers=headers)
        assert server.requests == [] and "secr" not in str(failed.value)
        assert repr(next(iter(headers))) in str(failed.value)


@pytest.mark.spec("MD-26")
def test_no_error_shows_what_is_secret_in_an_address_or_a_header(provider: str) -> None:
    with WireServer() as server:
        address = server.url.replace("//", "//user:password@")
    options = {"default_headers": {"x-team": "hidden\n"}}
    for more in ({}, {"client_options": options}):
        gone = KINDS[provider]("m", base_url=address, api_key="secret-key", **more)
        with pytest.raises(ModelError) as failed:
            hear(gone, extra_query={"key": "in-the-query"})
        assert server.url in str(failed.value)
        for secret in ("password", "secret-key", "in-the-query", "hidden"):
            assert secret not in str(failed.value)


PAGE = b"<html><style>p{color:red}</style><h1>Bad\n Gateway</h1>" + b"<p>of the proxy</p>" * 5000


@pytest.mark.spec("MD-24")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "the model is gone"}', "the model is gone"),
        (b'{"detail": "not for you"}', "not for you"),
        (b'{"error": {"message": "a\\n  b"}}', "a b"),
        (b'{"error": {"message": {"odd": 1}}}', '{"message": {"odd": 1}}'),
        (b"plain words", "plain words"),
        (b"<b>no</b>", "no"),
    ],
)
def test_what_a_service_says_of_a_failure_is_told_in_whatever_form_it_comes(
    provider: str, body: bytes, words: str
) -> None:
    kind = {"content-type": "application/json" if body.startswith(b"{") else "text/html"}
    with (
        WireServer([Reply(status=403, body=body, headers=kind)]) as server,
        pytest.raises(ModelError) as failed,
    ):
        hear(model(provider, server))
    assert str(failed.value) == f"{provider}:test-model: HTTP 403: {words}"


@pytest.mark.spec("MD-24")
def test_a_page_of_a_proxy_does_not_fill_an_error(provider: str) -> None:
    kind = {"content-type": "text/html"}
    with (
        WireServer([Reply(status=502, body=PAGE, headers=kind)]) as server,
        pytest.raises(ModelError) as failed,
    ):
        hear(model(provider, server))
    told = str(failed.value)
    assert "HTTP 502: Bad Gateway of the proxy" in told and len(told) < 600 and failed.value.transient
    with WireServer([Reply(body=PAGE, headers=kind)]) as server, pytest.raises(ModelError) as failed:
        hear(model(provider, server))
    assert f"{provider}:test-model" in str(failed.value) and len(str(failed.value)) < 600


@pytest.mark.spec("MD-24")
def test_a_base_url_that_leads_nowhere_is_in_the_error(provider: str) -> None:
    with WireServer() as server:
        wrong = KINDS[provider]("m", base_url=server.url + "/elsewhere", api_key="k")
        with pytest.raises(ModelError, match=f"HTTP 404 at {server.url}/elsewhere/"):
            hear(wrong)


@pytest.mark.spec("MD-24")
@pytest.mark.parametrize("error", ['"too busy"', '{"detail": "too busy"}', '{"message": "too busy"}'])
def test_a_failure_inside_a_stream_is_told_in_whatever_form_it_comes(provider: str, error: str) -> None:
    told = f'event: error\ndata: {{"type": "error", "error": {error}}}\n\n'
    with (
        WireServer([Reply(text="x", inject={1: told})]) as server,
        pytest.raises(ModelError, match="too busy"),
    ):
        hear(model(provider, server))


@pytest.mark.spec("MD-19")
@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", ""])
@pytest.mark.parametrize("before", ["", "\ufeff", ": hello\n\n", "\n\n", "id: 1\n"])
def test_a_stream_of_a_wrong_type_is_read_as_one(provider: str, kind: str, before: str) -> None:
    reply = Reply(text="Gr\u00fc\u00dfe", headers={"content-type": kind}, slice=3, inject={0: before})
    with WireServer([reply]) as server:
        heard = hear(model(provider, server))
    assert heard.response.items[0].text == "Gr\u00fc\u00dfe"
    check_story(heard)


@pytest.mark.spec("MD-19")
def test_a_stream_of_a_wrong_type_is_told_as_it_comes(provider: str) -> None:
    gate = threading.Event()
    reply = Reply(text="x" * 500, headers={"content-type": "text/plain"}, gate=gate, stall_at=1500)

    async def scenario(server: WireServer) -> None:
        begun = asyncio.Event()

        def emit(event: ModelStreamed) -> None:
            if event.type == EventType.TEXT_DELTA:
                begun.set()

        request = ModelRequest(instructions="", items=[user_message("go")])
        asking = asyncio.create_task(model(provider, server).respond(request, emit))
        await asyncio.wait_for(begun.wait(), 10)
        gate.set()
        assert (await asking).items[0].text == "x" * 500

    with WireServer([reply]) as server:
        asyncio.run(scenario(server))


@pytest.mark.spec("MD-18", "MD-19")
@pytest.mark.parametrize("kind", ["text/plain", "application/json", ""])
def test_an_answer_in_one_piece_of_any_type_is_read_as_one(provider: str, kind: str) -> None:
    whole: dict[str, Any] = {
        "id": "r",
        "status": "completed",
        "output": [],
        "content": [],
        "stop_reason": "end_turn",
    }
    with WireServer([Reply(body=json.dumps(whole).encode(), headers={"content-type": kind})]) as server:
        assert hear(model(provider, server)).response.items == ()


@pytest.mark.spec("MD-06", "CF-03")
@pytest.mark.parametrize("cut", range(13))
def test_a_character_that_two_deltas_share_is_told_whole(cut: int) -> None:
    # The server cuts deltas every 12 units; the crab is two of them.
    text = "a" * cut + "\ud83e\udd80" + "b\ud800c" + "\ud83e"
    with WireServer([Reply(text=text)]) as server:
        heard = hear(model("anthropic", server))
    assert heard.response.items[0].text == "a" * cut + "\U0001f980b\ufffdc\ufffd"
    for event in heard.events:
        event.raw.encode()
    check_story(heard)


@pytest.mark.spec("MD-07")
def test_an_item_that_is_told_twice_is_one_item() -> None:
    call = '{"type":"function_call","call_id":"a","name":"exec_command","arguments":"{}"}'
    done = f'data: {{"type":"response.output_item.done","output_index":0,"item":{call}}}\n\n'
    other = done.replace(":0,", ":1,").replace('"a"', '"b"')
    end = 'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}\n\n'
    body = (other + done + done + end).encode()
    with WireServer([Reply(body=body, headers={"content-type": "text/event-stream"})]) as server:
        heard = hear(model("openai", server))
    assert [item.call_id for item in heard.response.items] == ["a", "b"]


@pytest.mark.spec("MD-27", "RX-64")
@pytest.mark.parametrize(
    ("items", "roles"),
    [
        ([], ["user"]),
        ([user_message(" \r")], ["user"]),
        ([said("system", "Be kind.")], ["user"]),
        ([said("assistant", "Hello?")], ["user", "assistant"]),
        ([said("assistant", "Hello?"), user_message("")], ["user", "assistant", "user"]),
        ([item(type="message", role="user", content=[])], ["user"]),
    ],
)
def test_a_turn_without_words_is_a_turn_all_the_same(items: list[Item], roles: list[str]) -> None:
    asked = ModelRequest(instructions="", items=items)
    with WireServer(["x"]) as server:
        asyncio.run(model("anthropic", server).respond(asked, lambda event: None))
        assert [message["role"] for message in server.requests[0].body["messages"]] == roles


@pytest.mark.spec("MD-27")
def test_what_the_model_is_to_go_on_with_does_not_end_with_a_blank() -> None:
    _, body = ask("anthropic", "x", [user_message("go"), said("assistant", "1, 2, \n")])
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "1, 2,"}]
    assert ask("anthropic", "x", [said("assistant", "a \n"), user_message("b")])[1]["messages"][1][
        "content"
    ] == [{"type": "text", "text": "a \n"}]


@pytest.mark.spec("MD-27")
@pytest.mark.parametrize("said", ["", " ", "\r"])
def test_a_run_that_is_asked_nothing_comes_to_its_end_on_every_wire(said: str) -> None:
    for provider in WIRES:
        with WireServer(["done"]) as server:
            assert run_sync(Bench().agent(model(provider, server)), said).final_output == "done"
            assert server.refused == []


SSE = {"content-type": "text/event-stream"}
START = '{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}'
STOP = '{"type":"message_stop"}'
CALL = '"type":"function_call","call_id":"a","name":"exec_command"'


def streamed(*data: str) -> Reply:
    """A stream of these events."""
    return Reply(body="".join(f"data: {each}\n\n" for each in data).encode(), headers=SSE)


def completed(*items: str) -> Reply:
    """A stream of the Responses wire that ends with these items."""
    output = ",".join(items)
    return streamed(
        f'{{"type":"response.completed","response":{{"id":"r","status":"completed","output":[{output}]}}}}'
    )


@pytest.mark.spec("MD-08")
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_an_error_that_may_pass(provider: str, number: str) -> None:
    odd = f'{{"type":"odd","id":"x","n":{number}}}'
    block = f'{{"type":"content_block_start","index":0,"content_block":{odd}}}'
    replies = {"openai": completed(odd), "anthropic": streamed(START, block)}
    whole = {"id": "r", "status": "completed", "stop_reason": "end_turn", "output": ["?"], "content": ["?"]}
    for reply in (replies[provider], Reply(body=json.dumps(whole).replace('"?"', odd).encode())):
        with WireServer([reply]) as server, pytest.raises(ModelError) as failed:
            hear(model(provider, server))
        assert failed.value.transient


@pytest.mark.spec("MD-08", "RB-26")
@pytest.mark.parametrize("arguments", ['{"cmd": NaN}', '{"cmd": 1e999}', '{"cmd": "a", "n": -Infinity}'])
def test_arguments_with_such_numbers_do_not_run_and_do_not_spoil_later_requests(
    provider: str, arguments: str
) -> None:
    bench = Bench()
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta"}}
    delta["delta"]["partial_json"] = arguments  # type: ignore[index]
    begun = '{"type":"tool_use","id":"a","name":"exec_command","input":{}}'
    replies = {
        "openai": completed(f'{{{CALL},"arguments":{dump(arguments)}}}'),
        "anthropic": streamed(
            START,
            f'{{"type":"content_block_start","index":0,"content_block":{begun}}}',
            dump(delta),  # type: ignore[arg-type]
            '{"type":"content_block_stop","index":0}',
            '{"type":"message_delta","delta":{"stop_reason":"tool_use"}}',
            STOP,
        ),
    }
    with WireServer([replies[provider], "done"]) as server:
        assert run_sync(bench.agent(model(provider, server)), "go").final_output == "done"
        assert server.refused == [] and bench.ran == []


@pytest.mark.spec("MD-09")
def test_a_call_that_is_not_complete_makes_its_answer_none() -> None:
    bench = Bench()
    half = completed(f'{{{CALL},"arguments":"{{\\"cmd\\":\\"rm\\"}}","status":"incomplete"}}')
    with WireServer([half, "done"]) as server:
        retried = Retry(model("openai", server), base_s=0, hold_all=True)
        assert run_sync(bench.agent(retried), "go").final_output == "done"
        assert bench.ran == [] and len(server.requests) == 2


@pytest.mark.spec("MD-28")
def test_arguments_that_are_an_object_run_and_go_back_as_text() -> None:
    bench = Bench()
    with WireServer([completed(f'{{{CALL},"arguments":{{"cmd":"ls"}}}}'), "done"]) as server:
        assert run_sync(bench.agent(model("openai", server)), "go").final_output == "done"
        assert server.refused == [] and bench.ran == ["ls"]
        assert server.requests[1].body["input"][1]["arguments"] == '{"cmd":"ls"}'


@pytest.mark.spec("RX-44")
@pytest.mark.parametrize("output", ["null", "[null]", "[{}]", "[5]", "7", '"x"'])
def test_an_output_that_cannot_be_read_is_an_error_that_may_pass(output: str) -> None:
    event = f'{{"type":"response.completed","response":{{"id":"r","output":{output}}}}}'
    with WireServer([streamed(event)]) as server, pytest.raises(ModelError) as failed:
        hear(model("openai", server))
    assert failed.value.transient and "openai:test-model" in str(failed.value)


@pytest.mark.spec("MD-20")
@pytest.mark.parametrize("delta", ["", '{"type":"message_delta","delta":null,"usage":null}'])
def test_a_message_that_does_not_tell_why_it_ends_is_an_error_that_may_pass(delta: str) -> None:
    with (
        WireServer([streamed(START, *filter(None, [delta]), STOP)]) as server,
        pytest.raises(ModelError) as failed,
    ):
        hear(model("anthropic", server))
    assert failed.value.transient


@pytest.mark.spec("MD-17")
@pytest.mark.parametrize(("code", "status"), [("503", 503), ('"429"', 429), ("200", None), ("true", None)])
def test_a_code_that_is_a_status_is_one(provider: str, code: str, status: int | None) -> None:
    told = f'{{"type":"error","error":{{"message":"busy","code":{code}}}}}'
    with WireServer([streamed(told)]) as server, pytest.raises(ModelError, match="busy") as failed:
        hear(model(provider, server))
    assert failed.value.status == status and failed.value.transient == (status is not None)
