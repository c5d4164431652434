"""What is peculiar to the Messages wire."""

from __future__ import annotations

import json

import pytest
from runtime_kit import Bench, play_on, shape
from wire_kit import ask, do, model
from wire_server import Call, Reply, WireServer

from runtime import (
    ContextOverflowError,
    Item,
    ModelRefusalError,
    RunError,
    RunOptions,
    UserError,
    run_sync,
    user_message,
)
from runtime.items import from_wire


@pytest.mark.spec("AN-01", "AN-08", "EP-16")
def test_an_anthropic_request_has_the_system_text_and_a_mark_for_the_cache() -> None:
    _, body = ask("anthropic", "x")
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "model": "test-model",
        "max_tokens": 8192,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go", **mark}]}],
    }
    _, body = ask("anthropic", "x", prompt_cache=False)
    assert "cache_control" not in json.dumps(body)


@pytest.mark.spec("AN-01")
def test_leading_system_messages_join_the_system_text_and_later_ones_follow_the_next_user_turn() -> None:
    def said(role: str, text: str) -> Item:
        return from_wire(json.dumps({"type": "message", "role": role, "content": text}))

    items = [said("developer", "first"), user_message("go"), said("assistant", "ok"), said("system", "later")]
    _, body = ask("anthropic", "x", [*items, user_message("more")], prompt_cache=False)
    assert [block["text"] for block in body["system"]] == ["Be brief.", "first"]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "system"]


THOUGHTS = [
    '{"type":"thinking","thinking":"Hmm, \\u00e9.","signature":"c2ln+/=="}',
    '{"type":"redacted_thinking","data":"cmVkYWN0ZWQ="}',
]


@pytest.mark.spec("RX-64")
def test_an_answer_without_text_and_blank_text_leave_nothing_in_the_conversation_that_is_refused() -> None:
    with WireServer([do("ls", text=" \n"), Reply(), "done"]) as server:
        agent = Bench().agent(model("anthropic", server))
        first = run_sync(agent, "go")
        assert first.final_output == ""
        assert play_on("blocking", agent, first.state, input="and?").final_output == "done"
        assert server.refused == []


@pytest.mark.spec("AN-02", "PV-10")
def test_thinking_goes_back_with_its_signature_and_unsealed_reasoning_does_not() -> None:
    with WireServer([do("ls", raw=THOUGHTS, text="so"), "done"]) as server:
        result = run_sync(Bench().agent(model("anthropic", server)), "go", RunOptions())
        assert server.refused == []
        sent = server.requests[1].body["messages"][1]["content"]
    assert sent[:2] == [json.loads(raw) for raw in THOUGHTS]
    assert [item.kind for item in result.items][1:5] == ["reasoning", "reasoning", "message", "tool_call"]
    assert result.items[1].wire["encrypted_content"] == "thinking_signature:c2ln+/=="
    assert result.items[2].wire["encrypted_content"] == "redacted_thinking:cmVkYWN0ZWQ="
    foreign = from_wire(
        '{"type":"reasoning","id":"r","summary":[],"encrypted_content":"of another provider"}'
    )
    _, body = ask("anthropic", "x", [user_message("go"), foreign, user_message("on")])
    assert [message["role"] for message in body["messages"]] == ["user"]


@pytest.mark.spec("AN-04", "FO-02")
@pytest.mark.parametrize(("said", "words"), [("I will not", "I will not"), (None, "not this")])
def test_a_refusal_of_anthropic_is_one_message_and_none_of_its_calls_survives(
    said: str | None, words: str
) -> None:
    bench = Bench()
    with WireServer([do("ls", text=said, stop="refusal")]) as server, pytest.raises(RunError) as failed:
        run_sync(bench.agent(model("anthropic", server)), "go")
    assert bench.ran == [] and isinstance(failed.value.__cause__, ModelRefusalError)
    assert str(failed.value.__cause__) == words
    assert shape(failed.value.result.new_items) == ["message"]


@pytest.mark.spec("AN-05")
def test_an_answer_that_overflows_the_window_says_so() -> None:
    with pytest.raises(ContextOverflowError, match="model_context_window_exceeded"):
        ask("anthropic", Reply(text="x", stop="overflow"))


@pytest.mark.spec("AN-06", "AN-07")
def test_effort_becomes_a_thinking_budget_under_a_limit_that_grows() -> None:
    budgets = {"minimal": (1024, 8192), "low": (4096, 8192), "medium": (16384, 24576), "high": (32768, 40960)}
    for effort, (budget, limit) in budgets.items():
        _, body = ask("anthropic", "x", effort=effort)
        assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
        assert body["max_tokens"] == limit
    _, body = ask("anthropic", "x", effort="low", max_output_tokens=4096)
    assert body["max_tokens"] == 4096 + 8192
    for wrong in ({"temperature": 1.0}, {"top_p": 0.5}, {"tool_choice": "required"}):
        with pytest.raises(UserError, match="thinking"):
            ask("anthropic", "x", effort="low", **wrong)


@pytest.mark.spec("PV-09")
def test_what_the_messages_wire_cannot_say_is_a_user_error_that_names_it() -> None:
    foreign = from_wire('{"type":"computer_call","id":"x"}')
    with pytest.raises(UserError, match="computer_call"):
        ask("anthropic", "x", [user_message("go"), foreign])


@pytest.mark.spec("IT-09", "RX-40")
def test_a_content_block_that_is_not_known_here_goes_back_byte_for_byte() -> None:
    raw = '{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"n": 1.50}}'
    with WireServer([do("ls", raw=[raw]), "done"]) as server:
        run_sync(Bench().agent(model("anthropic", server)), "go")
        assert json.loads(raw) in server.requests[1].body["messages"][1]["content"]


@pytest.mark.spec("RB-26")
def test_arguments_of_the_other_wire_that_are_no_object_are_replayed_as_one() -> None:
    items = [
        user_message("go"),
        from_wire('{"type":"function_call","call_id":"a","name":"t","arguments":"{\\"cmd\\""}'),
        from_wire('{"type":"function_call_output","call_id":"a","output":"not valid JSON"}'),
    ]
    _, body = ask("anthropic", "done", items)
    assert body["messages"][1]["content"][0]["input"] == {}


@pytest.mark.spec("RX-67")
def test_ids_of_another_provider_and_errors_without_words_are_made_acceptable() -> None:
    bench = Bench(ask={"rm", "mv"})
    made = [("rm", "call:1/\u00e9"), ("mv", "call:2")]
    reply = Reply(calls=[Call("exec_command", {"cmd": command}, id=call_id) for command, call_id in made])
    with WireServer([reply, "done"]) as server:
        paused = run_sync(bench.agent(model("openai", server)), "go")
        for waiting in paused.interruptions:
            paused.state.reject(waiting, "")
        result = play_on("blocking", bench.agent(model("anthropic", server)), paused.state)
        assert server.refused == []
    assert result.final_output == "done"
