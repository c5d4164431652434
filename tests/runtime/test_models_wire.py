"""Both providers with their real clients against a server as strict as the real ones."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_kit import Bench, How, fails, outputs, play, play_on, shape, wire
from wire_server import Call, Reply, WireServer

from runtime import (
    Agent,
    AnthropicModel,
    ContextOverflowError,
    Item,
    ItemKind,
    MemoryJournal,
    ModelBehaviorError,
    ModelError,
    ModelRefusalError,
    ModelRequest,
    ModelSettings,
    OpenAIModel,
    RunCancelled,
    RunError,
    RunOptions,
    RunResult,
    RunState,
    UserError,
    code_of,
    resolve_model,
    run,
    run_sync,
    state_from_records,
    user_message,
)
from runtime.items import from_wire
from runtime.models.openai import can_be_strict
from runtime.schema import JSON

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])
WIRES = ["openai", "anthropic"]


@pytest.fixture(params=WIRES)
def provider(request: pytest.FixtureRequest) -> str:
    """Each provider in turn."""
    return str(request.param)


def model(provider: str, server: WireServer) -> OpenAIModel | AnthropicModel:
    """A model of that provider, served by the server."""
    if provider == "openai":
        return OpenAIModel("test-model", base_url=server.openai_url, api_key="key")
    return AnthropicModel("test-model", base_url=server.url, api_key="key")


def do(*commands: str, **kwargs: Any) -> Reply:
    """An answer that calls the tool with each command."""
    return Reply(calls=[Call("exec_command", {"cmd": command}) for command in commands], **kwargs)


def ask(
    provider: str, reply: Reply | str, items: Sequence[Item] = (), **settings: Any
) -> tuple[Any, dict[str, Any]]:
    """One answer, and the body of the request for it."""
    with WireServer([reply]) as server:
        request = ModelRequest(
            instructions="Be brief.",
            items=items or [user_message("go")],
            settings=ModelSettings(**settings),
        )
        answer = asyncio.run(model(provider, server).respond(request, lambda event: None))
        return answer, server.requests[0].body


@pytest.mark.spec("PV-01", "PV-03")
@BOTH
def test_a_run_with_parallel_calls_and_a_failing_one_comes_to_its_end(provider: str, how: How) -> None:
    bench = Bench(acts={"fail": fails})
    with WireServer([do("ls", "fail", text="looking"), do("cat a"), "it is done"]) as server:
        result = play(how, bench.agent(model(provider, server)))
        assert server.refused == []
    assert result.final_output == "it is done"
    assert sorted(bench.ran) == ["cat a", "fail", "ls"]
    assert result.usage.requests == 3
    assert result.usage.total_tokens == result.usage.input_tokens + result.usage.output_tokens == 45
    assert result.items[1].text == "looking"


@pytest.mark.spec("B09")
@BOTH
@pytest.mark.parametrize("kept", ["live", "json", "journal"])
def test_parallel_calls_with_one_rejected_are_answered_as_a_strict_service_wants(
    provider: str, how: How, kept: str
) -> None:
    bench = Bench(ask={"rm x", "ls"})
    journal = MemoryJournal()
    with WireServer([do("rm x", "cat a", "ls"), "done"]) as server:
        agent = bench.agent(model(provider, server))
        result = play(how, agent, options=RunOptions(journal=journal))
        state = stored(result, journal, kept)
        state.reject(state.interruptions[0], "use trash instead")
        state.approve(state.interruptions[1])
        result = play_on(how, agent, state)
        assert server.refused == []
        said = sent_outputs(provider, server.requests[1].body)
    assert [text for _, text in said] == ["use trash instead", "ran cat a", "ran ls"]
    assert [call for call, _ in said] == ["call_1_0", "call_1_1", "call_1_2"]
    assert sorted(bench.ran) == ["cat a", "ls"] and result.final_output == "done"


def stored(result: RunResult, journal: MemoryJournal, kept: str) -> RunState:
    """The paused state: the live object, from JSON, or from the journal."""
    if kept == "json":
        return RunState.from_json(result.state.to_json())
    return result.state if kept == "live" else state_from_records(journal.records)


def sent_outputs(provider: str, body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The outputs of calls in a request body, in order."""
    if provider == "openai":
        found = [item for item in body["input"] if item["type"] == "function_call_output"]
        return [(item["call_id"], item["output"]) for item in found]
    blocks = [block for message in body["messages"] for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    return [(block["tool_use_id"], block["content"]) for block in results]


@pytest.mark.spec("B08")
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_run_that_was_killed_between_results_sends_a_whole_conversation(provider: str, done: int) -> None:
    journal = MemoryJournal()
    bench = Bench(sequential=True)
    with WireServer([do("a", "b", "c"), "done", "done"]) as server:
        agent = bench.agent(model(provider, server))
        run_sync(agent, "go", RunOptions(journal=journal))
        started = [i for i, record in enumerate(journal.records) if record["record"] == "call_started"]
        records = journal.records[: started[done] + 1] if done < 3 else journal.records[: started[2] + 2]
        bench.ran.clear()
        result = play_on("blocking", agent, state_from_records(records), input="continue")
        assert server.refused == []
        said = sent_outputs(provider, server.requests[2].body)
    assert [call for call, _ in said] == ["call_1_0", "call_1_1", "call_1_2"]
    assert bench.ran == ["a", "b", "c"][done + 1 :]
    assert sum("unknown" in text for _, text in said) == (1 if done < 3 else 0)
    assert result.final_output == "done"


@pytest.mark.spec("B08", "RX-39")
def test_a_conversation_given_as_items_is_made_whole_before_it_is_sent(provider: str) -> None:
    items = [
        user_message("go"),
        from_wire('{"type":"function_call_output","call_id":"orphan","output":"x"}'),
        from_wire('{"type":"function_call","call_id":"a","name":"exec_command","arguments":"{}"}'),
        from_wire('{"type":"function_call","call_id":"b","name":"exec_command","arguments":"{}"}'),
        from_wire('{"type":"function_call_output","call_id":"b","output":"first"}'),
        from_wire('{"type":"function_call_output","call_id":"b","output":"second"}'),
        user_message("continue"),
    ]
    with WireServer(["done"]) as server:
        result = run_sync(Bench().agent(model(provider, server)), items)
        assert server.refused == []
        said = dict(sent_outputs(provider, server.requests[0].body))
    assert list(said) == ["a", "b"] and said["b"] == "first"
    assert result.final_output == "done"


@pytest.mark.spec("B40", "RX-67")
@pytest.mark.parametrize("name", ["bash", "functions.exec_command", "a b/c", "\u6f22\u5b57", "x" * 300, ""])
def test_a_name_that_a_model_made_up_does_not_spoil_later_requests(provider: str, name: str) -> None:
    bench = Bench()
    reply = Reply(calls=[Call(name), Call("exec_command", {"cmd": "ls"})])
    with WireServer([reply, "done"]) as server:
        result = run_sync(bench.agent(model(provider, server)), "go")
        assert server.refused == []
    assert result.final_output == "done" and bench.ran == ["ls"]


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


@pytest.mark.spec("B26")
@pytest.mark.parametrize(
    ("provider", "arguments"),
    [
        *[("openai", text) for text in ('{"cmd": "ls"', "[1]", '"ls"', "null", '{"cmd": 5}', "junk")],
        # This wire cannot carry arguments that are no JSON.
        *[("anthropic", text) for text in ("[1]", '"ls"', "null", '{"cmd": 5}')],
    ],
)
def test_wrong_arguments_are_answered_and_the_conversation_stays_acceptable(
    provider: str, arguments: str
) -> None:
    bench = Bench()
    with WireServer([Reply(calls=[Call("exec_command", arguments)]), "done"]) as server:
        result = run_sync(bench.agent(model(provider, server)), "go")
        assert server.refused == []
    assert bench.ran == [] and result.final_output == "done"


@pytest.mark.spec("B26")
def test_arguments_of_the_other_wire_that_are_no_object_are_replayed_as_one() -> None:
    items = [
        user_message("go"),
        from_wire('{"type":"function_call","call_id":"a","name":"t","arguments":"{\\"cmd\\""}'),
        from_wire('{"type":"function_call_output","call_id":"a","output":"not valid JSON"}'),
    ]
    _, body = ask("anthropic", "done", items)
    assert body["messages"][1]["content"][0]["input"] == {}


@pytest.mark.spec("B41")
@settings(max_examples=15, deadline=None)
@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_no_nul_and_no_lone_surrogate_reaches_a_request(text: str) -> None:
    for provider in WIRES:
        bench = Bench(acts={"ls": lambda context: text})
        with WireServer([do("ls"), "done"]) as server:
            agent = Agent(name="a", instructions=text, tools=[bench.tool()], model=model(provider, server))
            assert run_sync(agent, text or "go").final_output == "done"
            assert server.refused == []


@pytest.mark.spec("B41")
def test_a_model_that_sends_nul_or_half_a_character_does_not_spoil_later_requests(provider: str) -> None:
    if provider == "openai":
        said = [
            r'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a\u0000b\ud800"}]}'
        ]
    else:
        said = [r'{"type":"text","text":"a\u0000b\ud800"}']
    with WireServer([do("ls", raw=said), "done"]) as server:
        result = run_sync(Bench().agent(model(provider, server)), "go")
        assert server.refused == []
    assert result.items[1].text == "a\u2400b\ufffd"


@pytest.mark.spec("PV-02", "IT-09", "IT-10", "RS-02")
@pytest.mark.parametrize("kept", ["live", "json", "journal"])
def test_an_item_that_is_not_known_here_goes_back_byte_for_byte(kept: str) -> None:
    raw = (
        '{ "type" : "web_search_call",  "n": 1.0, "big":12345678901234567890.10, "s":"\\u00e9\\/", "z":[ ] }'
    )
    journal = MemoryJournal()
    with WireServer([do("rm", raw=[raw]), "done"]) as server:
        agent = Bench(ask={"rm"}).agent(model("openai", server))
        result = run_sync(agent, "go", RunOptions(journal=journal))
        assert result.items[1].kind == ItemKind.UNKNOWN
        state = stored(result, journal, kept)
        state.approve("call_1_0")
        play_on("blocking", agent, state)
        assert raw.encode() in server.requests[1].raw


@pytest.mark.spec("PV-02")
def test_known_items_too_go_back_as_they_came() -> None:
    raw = '{"id": "rs_1",  "type":"reasoning", "summary": [], "encrypted_content":"c2VjcmV0\\u003d" }'
    with WireServer([do("ls", raw=[raw]), "done"]) as server:
        run_sync(Bench().agent(model("openai", server)), "go")
        assert raw.encode() in server.requests[1].raw


@pytest.mark.spec("EP-16", "EP-17")
def test_an_openai_request_holds_what_was_asked_for_and_nothing_else() -> None:
    _, body = ask("openai", "x")
    content = [{"type": "input_text", "text": "go"}]
    assert body == {
        "model": "test-model",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": content}],
    }
    _, body = ask(
        "openai",
        "x",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        effort="low",
        tool_choice="exec_command",
        parallel_tool_calls=False,
        extra_body={"store": False, "temperature": 0.1},
    )
    assert {key: body[key] for key in body if key not in ("model", "instructions", "input")} == {
        "temperature": 0.1,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "reasoning": {"effort": "low"},
        "tool_choice": {"type": "function", "name": "exec_command"},
        "parallel_tool_calls": False,
        "store": False,
    }


@pytest.mark.spec("EP-17")
def test_extra_headers_are_sent(provider: str) -> None:
    with WireServer(["x"]) as server:
        request = ModelRequest(
            instructions="",
            items=[user_message("go")],
            settings=ModelSettings(extra_headers={"x-trace": "7"}, extra_query={"a": "b"}),
        )
        asyncio.run(model(provider, server).respond(request, lambda event: None))
        assert server.requests[0].headers["x-trace"] == "7"


@pytest.mark.spec("AN-01", "AN-08", "EP-16")
def test_an_anthropic_request_has_the_system_text_and_a_mark_for_the_cache() -> None:
    _, body = ask("anthropic", "x")
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "model": "test-model",
        "max_tokens": 8192,
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go", **mark}]}],
    }
    _, body = ask("anthropic", "x", prompt_cache=False)
    assert "cache_control" not in json.dumps(body)


@pytest.mark.spec("AN-01")
def test_leading_system_messages_join_the_system_text_and_later_ones_stay_where_they_are() -> None:
    def said(role: str, text: str) -> Item:
        return from_wire(json.dumps({"type": "message", "role": role, "content": text}))

    items = [said("developer", "first"), user_message("go"), said("assistant", "ok"), said("system", "later")]
    _, body = ask("anthropic", "x", [*items, user_message("more")], prompt_cache=False)
    assert [block["text"] for block in body["system"]] == ["Be brief.", "first"]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "system", "user"]


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


@pytest.mark.spec("AN-03", "TU-04")
@BOTH
def test_an_answer_cut_off_by_the_token_limit_is_the_same_on_both_wires(provider: str, how: How) -> None:
    bench = Bench()
    with WireServer([do("ls", stop="max_tokens"), "shorter"]) as server:
        result = play(how, bench.agent(model(provider, server)))
        assert server.refused == []
    assert bench.ran == [] and result.final_output == "shorter"
    assert result.state.responses[0].incomplete_reason == "max_output_tokens"
    assert "cut off" in outputs(result.items)["call_1_0"]


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


@pytest.mark.spec("AN-09", "US-06", "PV-08")
def test_usage_counts_all_input_and_names_the_cached_part(provider: str) -> None:
    counts: dict[str, Any]
    if provider == "openai":
        details = {
            "input_tokens_details": {"cached_tokens": 80},
            "output_tokens_details": {"reasoning_tokens": 7},
        }
        counts = {"input_tokens": 110, "output_tokens": 9, "total_tokens": 119, **details}
    else:
        counts = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 20}
        counts["output_tokens"] = 9
    answer, _ = ask(provider, Reply(text="x", usage=counts))
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) == (110, 9, 80)
    assert usage.total_tokens == 119


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


@pytest.mark.spec("RT-12", "RT-13", "RX-41")
@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_a_failure_of_the_service_is_told_once_with_its_status_and_is_not_tried_again(
    provider: str, status: int
) -> None:
    failing = Reply(status=status, message="no luck today", headers={"retry-after": "3"})
    with WireServer([failing, "never asked for"]) as server:
        with pytest.raises(RunError, match="no luck today") as failed:
            run_sync(Bench().agent(model(provider, server)), "go")
        assert len(server.requests) == 1
    cause = failed.value.__cause__
    assert isinstance(cause, ModelError) and cause.status == status and cause.retry_after_s == 3
    assert str(cause) == f"{provider}:test-model: HTTP {status}: no luck today"
    assert code_of(failed.value) == "model_error"


@pytest.mark.spec("RX-42")
def test_a_conversation_that_is_too_long_has_a_code_of_its_own(provider: str) -> None:
    words = {"openai": "context_length_exceeded", "anthropic": "prompt is too long: 9 > 8"}
    with (
        WireServer([Reply(status=400, message=words[provider])]) as server,
        pytest.raises(RunError) as failed,
    ):
        run_sync(Bench().agent(model(provider, server)), "go")
    assert code_of(failed.value) == "context_overflow"


@pytest.mark.spec("RX-43")
def test_a_service_that_cannot_be_reached_is_a_model_error(provider: str) -> None:
    with WireServer() as server:
        gone = model(provider, server)
    with pytest.raises(RunError) as failed:
        run_sync(Bench().agent(gone), "go")
    cause = failed.value.__cause__
    assert isinstance(cause, ModelError) and cause.status is None
    assert server.url in str(cause)


@pytest.mark.spec("RX-44")
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{", b'{"id": "x"}', b'{"output": 5, "content": 5}']
)
def test_an_answer_that_is_none_is_an_error_and_not_an_empty_answer(provider: str, body: bytes) -> None:
    with pytest.raises((ModelError, ModelBehaviorError)):
        ask(provider, Reply(body=body))


@pytest.mark.spec("RX-45")
def test_cancelling_a_run_ends_the_request_at_once(provider: str) -> None:
    gate = threading.Event()

    async def scenario(server: WireServer) -> None:
        stream, control = run(Bench().agent(model(provider, server)), "go")
        reading = asyncio.create_task(stream.result())
        assert await asyncio.to_thread(server.arrived.acquire, timeout=10)
        control.cancel()
        with pytest.raises(RunError) as failed:
            await asyncio.wait_for(reading, 5)
        assert isinstance(failed.value.__cause__, RunCancelled)

    with WireServer([Reply(text="late", gate=gate)]) as server:
        asyncio.run(scenario(server))
        gate.set()


@pytest.mark.spec("RX-46")
def test_one_connection_serves_all_turns_of_a_run(provider: str) -> None:
    ports: set[int] = set()
    with WireServer([do("a"), do("b"), "done"]) as server:
        server.on_connect = ports.add
        run_sync(Bench().agent(model(provider, server)), "go")
    assert len(ports) == 1


@pytest.mark.spec("RX-47")
def test_one_model_serves_many_runs_one_after_the_other_and_at_once(provider: str) -> None:
    async def many(shared: Any) -> list[RunResult]:
        return await asyncio.gather(*[run(Bench().agent(shared), "go")[0].result() for _ in range(5)])

    with WireServer(["done"] * 12) as server:
        shared = model(provider, server)
        assert [run_sync(Bench().agent(shared), "go").final_output for _ in range(2)] == ["done"] * 2
        for _ in range(2):
            assert [result.final_output for result in asyncio.run(many(shared))] == ["done"] * 5


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment without keys."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield


@pytest.mark.spec("RX-48")
@pytest.mark.usefixtures("no_keys")
def test_a_missing_key_is_told_before_anything_runs(provider: str) -> None:
    with pytest.raises(UserError, match=f"(?i){provider}.*key"):
        resolve_model(f"{provider}:some-model")


@pytest.mark.spec("RX-49")
def test_models_are_named_by_provider_and_name(provider: str, tmp_path: Any) -> None:
    named = resolve_model(f"{provider}:a:b", base_url="http://127.0.0.1:9", api_key="k")
    assert named.name == f"{provider}:a:b"
    for wrong in ("gpt-5", "openai:", "nobody:x", ":x"):
        with pytest.raises(UserError, match="openai:NAME"):
            resolve_model(wrong)
    with pytest.raises(UserError, match="cannot read"):
        resolve_model(f"script:{tmp_path / 'nothing'}")


@pytest.mark.spec("TF-08", "RX-50")
def test_strictness_is_asked_for_where_the_service_can_give_it() -> None:
    closed: dict[str, JSON] = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert can_be_strict(closed)
    assert not can_be_strict({**closed, "required": []})
    assert not can_be_strict({**closed, "additionalProperties": True})
    assert not can_be_strict({**closed, "properties": {"a": {"type": "object"}}})
    assert not can_be_strict({"type": "object"})
    with WireServer(["x"]) as server:
        run_sync(Bench().agent(model("openai", server)), "go")
        assert server.requests[0].body["tools"][0]["strict"] is False


@pytest.mark.spec("B08")
def test_the_server_refuses_what_the_real_ones_refuse() -> None:
    lonely = from_wire('{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}')
    orphan = from_wire('{"type":"function_call_output","call_id":"a","output":"x"}')
    for provider in WIRES:
        for items in ([lonely], [orphan], [lonely, orphan, orphan], [lonely, user_message("x")]):
            with pytest.raises(ModelError) as refused:
                ask(provider, "x", [user_message("go"), *items])
            assert refused.value.status == 400
    assert wire([lonely])[0]["call_id"] == "a"
