"""The offline server: the vendors' own clients understand it, and it refuses what the services refuse."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kit import hear
from openai._streaming import SSEDecoder
from wire_kit import model
from wire_server import Call, Reply, WireServer

from runtime import ModelError
from runtime.models.sse import Decoder

REPLIES = [
    Reply(text="Zwölf Boxkämpfer \U0001f980"),
    Reply(text="so", calls=[Call("t", {"a": [1, 2.5, None], "b": 'q"\\'}), Call("u")]),
    Reply(text="cut", stop="max_tokens"),
    Reply(),
]
THOUGHT = '{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}'
REASONING = (
    '{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], '
    '"content": [{"type": "reasoning_text", "text": "c"}], "encrypted_content": "gA=="}'
)


@pytest.mark.spec("MD-40")
@pytest.mark.parametrize("slice", [0, 1, 7])
def test_openais_own_client_reads_the_same_answer_streamed_and_whole(slice: int) -> None:
    replies = [*REPLIES, Reply(raw=[REASONING], text="x")]
    twice = [Reply(**{**vars(reply), "slice": slice}) for reply in replies for _ in range(2)]
    with WireServer(twice) as server, openai.OpenAI(base_url=server.openai_url, api_key="k") as client:
        for _ in replies:
            whole = client.responses.create(model="m", input="go")
            with client.responses.stream(model="m", input="go") as stream:
                events = list(stream)
            assert events[0].type == "response.created"
            assert events[-1].type == f"response.{whole.status}"
            final: Any = events[-1]
            told = final.response.model_dump(warnings=False)
            assert _without_numbers(told["output"]) == _without_numbers(whole.model_dump()["output"])
            assert told["usage"] == whole.model_dump()["usage"]


def _without_numbers(value: Any) -> Any:
    """An answer without its ids, which count requests, and without what the client's parsing adds."""
    if isinstance(value, dict):
        return {
            key: _without_numbers(part)
            for key, part in value.items()
            if key not in ("id", "call_id", "parsed", "parsed_arguments", "status")
        }
    return [_without_numbers(part) for part in value] if isinstance(value, list) else value


@pytest.mark.spec("MD-40")
@pytest.mark.parametrize("slice", [0, 1, 7])
def test_anthropics_own_client_reads_the_same_answer_streamed_and_whole(slice: int) -> None:
    replies = [*REPLIES, Reply(raw=[THOUGHT], text="x", usage={"input_tokens": 3, "output_tokens": 9})]
    twice = [Reply(**{**vars(reply), "slice": slice}) for reply in replies for _ in range(2)]
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}
    with WireServer(twice) as server, anthropic.Anthropic(base_url=server.url, api_key="k") as client:
        for _ in replies:
            whole = client.messages.create(**asked).model_dump()
            with client.messages.stream(**asked) as stream:
                told = stream.get_final_message().model_dump()
            assert _without_numbers(told["content"]) == _without_numbers(whole["content"])
            assert told["stop_reason"] == whole["stop_reason"]
            assert told["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@pytest.fixture(scope="module")
def server() -> Iterator[WireServer]:
    """A server that always has an answer."""
    with WireServer([Reply(text="ok")] * 1000) as found:
        yield found


def post(server: WireServer, path: str, body: Any, **headers: str) -> tuple[int, str]:
    """What the server answers: status and words."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"authorization": "Bearer k", "anthropic-version": "2023-06-01", **headers}
    request = urllib.request.Request(server.url + path, data, sent)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["error"]["message"]


USER = {"role": "user", "content": "go"}
CALL = {"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}
RS = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA=="}
ANSWER = {"role": "assistant", "content": "ok"}


@pytest.mark.spec("MD-41")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": [USER, CALL]}, "No tool output found for function call a"),
        ({"input": [USER, OUTPUT]}, "No tool call found"),
        ({"input": [USER, OUTPUT, CALL]}, "No tool call found"),
        ({"input": [USER, CALL, OUTPUT, OUTPUT]}, "Duplicate output"),
        ({"input": [USER, {**CALL, "name": "a b"}, OUTPUT]}, "pattern"),
        ({"input": [USER, {**CALL, "arguments": {}}, OUTPUT]}, "arguments is not a string"),
        ({"input": [USER, {**CALL, "id": "toolu_1"}, OUTPUT]}, "begins with 'fc'"),
        ({"input": [USER, RS]}, "without its required following item"),
        ({"input": [USER, RS, USER]}, "without its required following item"),
        ({"input": [USER, {"type": "reasoning", "id": "rs_1"}, ANSWER]}, "summary"),
        (
            {"input": [USER, {**RS, "encrypted_content": "thinking_signature:x"}, ANSWER]},
            "could not be verified",
        ),
        ({"input": [USER, {**RS, "encrypted_content": None}, ANSWER], "store": False}, "not persisted"),
        ({"input": [{"role": "robot", "content": "x"}]}, "Invalid role"),
        ({"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]}, "for role"),
        ({"input": 5}, "input is not a list"),
        ({"bogus": 1}, "Unknown parameter: 'bogus'"),
        ({"truncation": "always"}, "truncation"),
        ({"previous_response_id": "resp_none"}, "not found"),
        ({"conversation": "mine"}, "not found"),
        ({"conversation": "conv_1", "previous_response_id": "r"}, "Mutually exclusive"),
        (
            {"tools": [{"type": "function", "name": "t", "parameters": {"type": "object"}, "strict": True}]},
            "strict",
        ),
        ({"tools": [{"type": "function"}]}, "name"),
        ({"model": None}, "model"),
    ],
)
def test_the_responses_wire_refuses_what_the_service_refuses(
    server: WireServer, change: dict[str, Any], words: str
) -> None:
    body = {"model": "m", "input": [USER]}
    assert post(server, "/v1/responses", body)[0] == 200
    status, said = post(server, "/v1/responses", {**body, **change})
    assert 400 <= status < 500 and words in said


USE = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
TEXT = {"type": "text", "text": "and?"}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "never-given"}
ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
MARK = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}


def turns(*contents: Any) -> dict[str, Any]:
    """Messages that alternate, the user's first."""
    named = [("user", "assistant")[place % 2] for place in range(len(contents))]
    return {
        "messages": [
            {"role": role, "content": content} for role, content in zip(named, contents, strict=True)
        ]
    }


@pytest.mark.spec("MD-41")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (turns("go", [USE]), "without tool_result"),
        (turns("go", [USE], "on"), "without tool_result"),
        (turns("go", [USE], [TEXT, RESULT]), "must come first"),
        (turns("go", [USE], [RESULT, RESULT]), "single result"),
        (turns([RESULT]), "unexpected tool_use_id"),
        (turns("go", [USE, USE], [RESULT]), "unique"),
        (turns("go", [USE], [RESULT], [USE], [RESULT]), "unique"),
        (turns("go", [{**USE, "input": "x"}], [RESULT]), "dictionary"),
        (turns("go", [USE], [{**RESULT, "content": "", "is_error": True}]), "cannot be empty"),
        (turns("go", [{**USE, "id": "a/b"}], [{**RESULT, "tool_use_id": "a/b"}]), "pattern"),
        (turns("go", [{"type": "thinking", "thinking": "x"}, TEXT], "on"), "signature: Field required"),
        (turns("go", [THINKING, TEXT], "on"), "Invalid `signature`"),
        (turns(" "), "non-whitespace"),
        (turns([]), "must not be empty"),
        (turns([USE]), "assistant turns"),
        ({"messages": [USER, USER]}, "alternate"),
        ({"messages": [ANSWER, USER]}, "first message"),
        ({"messages": [USER, ANSWER, {"role": "system", "content": "x"}]}, "must follow a user turn"),
        ({"messages": [USER, {"role": "system", "content": "x"}, USER]}, "must precede an assistant turn"),
        ({**turns("go", [USE], [RESULT]), **ENABLED}, "must start with a thinking block"),
        ({**ENABLED, "max_tokens": 1024}, "must be greater"),
        ({**ENABLED, "temperature": 1}, "temperature"),
        ({**ENABLED, "tool_choice": {"type": "any"}}, "forces tool use"),
        (turns([MARK] * 5), "maximum of 4 blocks"),
        ({"max_tokens": None}, "max_tokens"),
        ({"bogus": 1}, "bogus"),
        ({"messages": []}, "at least one message"),
    ],
)
def test_the_messages_wire_refuses_what_the_service_refuses(
    server: WireServer, change: dict[str, Any], words: str
) -> None:
    body = {"model": "m", "max_tokens": 100, "messages": [USER]}
    assert post(server, "/v1/messages", body)[0] == 200
    status, said = post(server, "/v1/messages", {**body, **change})
    assert status == 400 and words in said


@pytest.mark.spec("MD-41")
def test_thinking_that_was_changed_or_ends_a_request_is_refused() -> None:
    body: dict[str, Any] = {"model": "m", "max_tokens": 100}
    with WireServer([Reply(raw=[THOUGHT], text="x"), "ok"]) as there:
        assert post(there, "/v1/messages", {**body, "messages": [USER]})[0] == 200
        given = json.loads(THOUGHT)
        changed = turns("go", [{**given, "thinking": "Ha."}, TEXT], "on")
        assert "Invalid `signature`" in post(there, "/v1/messages", {**body, **changed})[1]
        other = {**body, "model": "n", **turns("go", [given, TEXT], "on")}
        assert "Invalid `signature`" in post(there, "/v1/messages", other)[1]
        assert "final block" in post(there, "/v1/messages", {**body, **turns("go", [TEXT, given])})[1]
        assert "disabled" in post(there, "/v1/messages", {**body, **turns("go", [given, TEXT])})[1]
        assert post(there, "/v1/messages", {**body, **turns("go", [given, TEXT], "on")})[0] == 200


@pytest.mark.spec("MD-41")
def test_keys_paths_and_characters_are_looked_at(server: WireServer) -> None:
    for path in ("/v1/responses", "/v1/messages"):
        body = {"model": "m", "max_tokens": 9, "input": "go", "messages": [USER]}
        assert post(server, path, body, authorization="")[0] == 401
        assert "NUL" in post(server, path, {"input": "a\0b"})[1]
        assert "surrogate" in post(server, path, b'{"input": "\\ud800"}')[1]
        assert "JSON" in post(server, path, b"{")[1]
        assert "not an object" in post(server, path, [])[1]
    assert post(server, "/v1/chat/completions", {})[0] == 404


@pytest.mark.spec("MD-42")
def test_what_is_refused_does_not_move_the_script_on_and_its_end_is_told(provider: str) -> None:
    path = "/v1/responses" if provider == "openai" else "/v1/messages"
    with WireServer(["first"]) as there:
        assert post(there, path, {"bogus": 1})[0] == 400
        assert hear(model(provider, there)).response.items[0].text == "first"
        with pytest.raises(ModelError, match="the script is over") as failed:
            hear(model(provider, there))
    assert failed.value.status == 500 and len(there.refused) == 1


@pytest.mark.spec("MD-43")
@pytest.mark.parametrize("text", ["data: {broken\n\n", "data: [1]\n\n", "data: 5\n\n", 'data: "x"\n\n'])
def test_an_event_that_is_broken_is_an_error_and_one_that_is_none_is_not(provider: str, text: str) -> None:
    with WireServer([Reply(text="hello", inject={2: text})]) as there:
        if "broken" in text:
            with pytest.raises(ModelError, match="broken") as failed:
                hear(model(provider, there))
            assert failed.value.transient
        else:
            assert hear(model(provider, there)).response.items[0].text == "hello"


@pytest.mark.spec("MD-04")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["data: a", "data:", "data", ": c", "event: x", "id: 1", "", "", "data: \u00e9\U0001f980"]
            ),
            st.text(alphabet="dat: \tx", max_size=8),
        ),
        max_size=12,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
)
def test_events_are_read_as_the_vendors_own_decoder_reads_them(
    lines: list[str], end: str, sizes: list[int]
) -> None:
    data = "".join(line + end for line in lines).encode()
    expected = [event.data for event in SSEDecoder().iter_bytes(iter([data])) if event.data]
    decoder, found, place, turn = Decoder(), [], 0, 0
    while place < len(data):
        size = sizes[turn % len(sizes)]
        found += decoder.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    assert [event for event in found if event] == expected


@pytest.mark.spec("MD-42")
def test_many_clients_are_served_at_once(provider: str) -> None:
    with WireServer(["x"] * 20) as there:
        texts: list[str] = []
        threads = [
            threading.Thread(target=lambda: texts.append(hear(model(provider, there)).response.items[0].text))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert texts == ["x"] * 20
