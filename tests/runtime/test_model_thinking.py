"""Thinking on the Messages wire: where it goes back, and where it stays behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from runtime_kit import Bench, calls
from wire_kit import do, model
from wire_server import Reply, WireServer

from runtime import (
    Agent,
    AnthropicModel,
    ItemKind,
    ModelSettings,
    ScriptedModel,
    resume_run_sync,
    run_sync,
    user_message,
)

THOUGHT = '{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}'
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def kinds(body: dict[str, Any]) -> list[list[str]]:
    return [[block["type"] for block in message["content"]] for message in body["messages"]]


@pytest.mark.spec("AN-02", "MD-22")
@BOTH
def test_thinking_goes_back_through_a_whole_loop_of_calls(stream: bool) -> None:
    bench = Bench()
    sealed = '{"type": "redacted_thinking", "data": "cmVk"}'
    with WireServer([do("a", raw=[THOUGHT, sealed], text="so"), do("b"), "done"]) as server:
        agent = bench.agent(model("anthropic", server), settings=ModelSettings(effort="low", stream=stream))
        result = run_sync(agent, "go")
        # The server knows what it signed, and asks for it at the start of the loop.
        assert server.refused == [] and result.final_output == "done"
        assert [body["thinking"]["type"] for body in (r.body for r in server.requests)] == ["enabled"] * 3
        assert kinds(server.requests[2].body)[1] == ["thinking", "redacted_thinking", "text", "tool_use"]


@pytest.mark.spec("MD-22")
def test_a_loop_that_began_without_thinking_goes_on_without_and_the_next_turn_thinks_again() -> None:
    bench = Bench(ask={"rm x"})
    paused = run_sync(bench.agent(ScriptedModel([calls("rm x")])), "go")
    paused.state.approve(paused.interruptions[0])
    with WireServer(["done", "thought"]) as server:
        agent = bench.agent(model("anthropic", server), settings=ModelSettings(effort="low"))
        done = resume_run_sync(agent, paused.state)
        resume_run_sync(agent, done.state, input="and?")
        assert server.refused == []
        assert ["thinking" in request.body for request in server.requests] == [False, True]
        assert [request.body["max_tokens"] for request in server.requests] == [8192, 8192]


@pytest.mark.spec("MD-22")
def test_thinking_that_another_model_signed_stays_behind() -> None:
    bench = Bench()
    with WireServer([do("ls", raw=[THOUGHT]), "done"]) as server:
        first = run_sync(bench.agent(model("anthropic", server)), "go")
        other = AnthropicModel("other-model", base_url=server.url, api_key="key")
        server.replies.append(Reply(text="me too"))
        resume_run_sync(bench.agent(other), first.state, input="and you?")
        assert server.refused == []
        assert "thinking" not in json.dumps(server.requests[2].body)


@pytest.mark.spec("MD-22")
@pytest.mark.parametrize("effort", [None, "low"])
def test_an_answer_of_thinking_alone_is_not_the_end_of_a_request(effort: str | None) -> None:
    bench = Bench()
    with WireServer([Reply(raw=[THOUGHT], stop="max_tokens"), "done", "more"]) as server:
        agent = bench.agent(model("anthropic", server), settings=ModelSettings(effort=effort))  # type: ignore[arg-type]
        first = run_sync(agent, "go")
        assert first.truncated
        again = run_sync(agent, first.items)
        assert again.final_output == "done" and roles(server.requests[1].body) == ["user"]
        run_sync(agent, [*first.items, user_message("on")])
        assert kinds(server.requests[2].body) == [["text"], ["thinking"], ["text"]]
        assert server.refused == []


@pytest.mark.spec("MD-22")
@BOTH
def test_thinking_that_was_cut_before_its_signature_is_kept_but_never_sent(stream: bool) -> None:
    cut = '{"type": "thinking", "thinking": "Hm", "signature": ""}'
    with WireServer([Reply(raw=[cut], stop="max_tokens"), "done"]) as server:
        agent = Agent(name="a", model=model("anthropic", server), settings=ModelSettings(stream=stream))
        first = run_sync(agent, "go")
        assert first.items[1].kind == ItemKind.REASONING and first.items[1].text == "Hm"
        resume_run_sync(agent, first.state, input="on")
        assert server.refused == [] and roles(server.requests[1].body) == ["user"]
