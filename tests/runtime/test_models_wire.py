"""Runs on both wires: conversations that a service as strict as the real ones accepts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_kit import Bench, How, fails, outputs, play, play_on
from wire_kit import WIRES, ask, do, model, sent_outputs, stored
from wire_server import Call, Reply, WireServer

from runtime import (
    Agent,
    ItemKind,
    MemoryJournal,
    ObserveOptions,
    RunOptions,
    run_sync,
    state_from_records,
    user_message,
)
from runtime.items import from_wire
from runtime.models.openai_wire import can_be_strict
from runtime.schema import JSON

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


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


@pytest.mark.spec("RB-09")
@BOTH
@pytest.mark.parametrize("kept", ["live", "json", "journal"])
def test_parallel_calls_with_one_rejected_are_answered_as_a_strict_service_wants(
    provider: str, how: How, kept: str
) -> None:
    bench = Bench(ask={"rm x", "ls"})
    journal = MemoryJournal()
    with WireServer([do("rm x", "cat a", "ls"), "done"]) as server:
        agent = bench.agent(model(provider, server))
        result = play(how, agent, options=RunOptions(observe=ObserveOptions(journal=journal)))
        state = stored(result, journal, kept)
        state.reject(state.interruptions[0], "use trash instead")
        state.approve(state.interruptions[1])
        result = play_on(how, agent, state)
        assert server.refused == []
        said = sent_outputs(provider, server.requests[1].body)
    assert [text for _, text in said] == ["use trash instead", "ran cat a", "ran ls"]
    assert [call for call, _ in said] == ["call_1_0", "call_1_1", "call_1_2"]
    assert sorted(bench.ran) == ["cat a", "ls"] and result.final_output == "done"


@pytest.mark.spec("RB-08")
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_run_that_was_killed_between_results_sends_a_whole_conversation(provider: str, done: int) -> None:
    journal = MemoryJournal()
    bench = Bench(sequential=True)
    with WireServer([do("a", "b", "c"), "done", "done"]) as server:
        agent = bench.agent(model(provider, server))
        run_sync(agent, "go", RunOptions(observe=ObserveOptions(journal=journal)))
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


@pytest.mark.spec("RB-08", "RX-39")
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


@pytest.mark.spec("RB-40", "RX-67")
@pytest.mark.parametrize("name", ["bash", "functions.exec_command", "a b/c", "\u6f22\u5b57", "x" * 300, ""])
def test_a_name_that_a_model_made_up_does_not_spoil_later_requests(provider: str, name: str) -> None:
    bench = Bench()
    reply = Reply(calls=[Call(name), Call("exec_command", {"cmd": "ls"})])
    with WireServer([reply, "done"]) as server:
        result = run_sync(bench.agent(model(provider, server)), "go")
        assert server.refused == []
    assert result.final_output == "done" and bench.ran == ["ls"]


@pytest.mark.spec("RB-26")
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


@pytest.mark.spec("RB-41")
@settings(max_examples=15, deadline=None)
@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_no_nul_and_no_lone_surrogate_reaches_a_request(text: str) -> None:
    for provider in WIRES:
        bench = Bench(acts={"ls": lambda context: text})
        with WireServer([do("ls"), "done"]) as server:
            agent = Agent(name="a", instructions=text, tools=[bench.tool()], model=model(provider, server))
            assert run_sync(agent, text or "go").final_output == "done"
            assert server.refused == []


@pytest.mark.spec("RB-41")
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
        result = run_sync(agent, "go", RunOptions(observe=ObserveOptions(journal=journal)))
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
        "stream": True,
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
        "stream": True,
    }


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
