"""Models around models: fallback, streams only, routing; and how long a silence may be."""

from __future__ import annotations

import threading
import time

import pytest
from model_kit import CREATED, DELTA, DONE, FAILED, LASTING, OVERLOADED, PASSING, Telling, failing, hear
from runtime_kit import Bench, calls
from wire_kit import do, model
from wire_server import Reply, WireServer

from runtime import (
    Fallback,
    ModelError,
    ModelNotice,
    ModelSettings,
    Retry,
    Routed,
    ScriptedModel,
    StreamOnly,
    UserError,
    run_sync,
    user_message,
)


@pytest.mark.spec("PV-11", "RT-11", "MD-35")
def test_the_next_model_answers_where_one_fails_before_it_told_anything() -> None:
    notices: list[ModelNotice] = []
    first = Telling(([CREATED, FAILED], LASTING))
    second = Telling(([CREATED, DELTA, DONE], "ok"))
    heard = hear(Fallback(first, second, notify=notices.append))
    assert [event.type for event in heard.events] == [CREATED, DELTA, DONE]
    assert heard.response.items[0].text == "ok"
    assert [(notice.kind, notice.model) for notice in notices] == [("fallback", "telling")]
    first = Telling(([CREATED, DELTA], PASSING))
    with pytest.raises(ModelError):
        hear(Fallback(first, Telling(([], "never")), notify=notices.append))
    assert notices[-1].kind == "stream_error"


@pytest.mark.spec("MD-35")
def test_the_last_models_error_tells_of_the_others() -> None:
    with pytest.raises(ModelError, match="failed with 401") as failed:
        hear(Fallback(ScriptedModel([failing(500)]), ScriptedModel([failing(401)])))
    assert failed.value.__notes__ == ["before that: failed with 500"]


@pytest.mark.spec("MD-35")
def test_a_conversation_that_is_too_long_is_not_for_the_next_model_unless_it_is_told_so(
    provider: str,
) -> None:
    too_long = Reply(status=400, message="prompt is too long")
    with WireServer([too_long, too_long]) as server:
        with pytest.raises(ModelError, match="too long"):
            hear(Fallback(model(provider, server), ScriptedModel(["never"])))
        bigger = Fallback(model(provider, server), ScriptedModel(["ok"]), when=lambda error: True)
        assert hear(bigger).response.items[0].text == "ok"


@pytest.mark.spec("MD-35")
def test_a_conversation_that_one_service_keeps_does_not_fall_back() -> None:
    for settings in ({"chain": True}, {"conversation": "conv_1"}):
        with pytest.raises(UserError, match="fall back"):
            hear(Fallback(ScriptedModel(["x"]), ScriptedModel(["y"])), **settings)
    with pytest.raises(UserError, match="needs a model"):
        Fallback()


@pytest.mark.spec("PV-11", "MD-35")
def test_a_run_goes_on_with_another_provider_in_the_middle_of_its_calls() -> None:
    bench = Bench()
    thought = '{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}'
    with (
        WireServer([do("a", raw=[thought], text="so"), OVERLOADED, "done"]) as one,
        WireServer([do("b")]) as other,
    ):
        both = Fallback(model("anthropic", one), model("openai", other))
        result = run_sync(bench.agent(both, settings=ModelSettings(effort="low")), "go")
        assert one.refused == [] and other.refused == []
    assert result.final_output == "done" and bench.ran == ["a", "b"]


@pytest.mark.spec("SO-01", "SO-02", "SO-03", "SO-04")
def test_stream_only_asks_for_a_stream_and_answers_with_what_its_end_holds(provider: str) -> None:
    with WireServer([do("ls", text="a"), do("ls", text="a"), do("ls", stop="max_tokens")]) as server:
        only = StreamOnly(model(provider, server))
        streamed, whole = hear(only), hear(only, stream=False)
        assert [request.body.get("stream") for request in server.requests] == [True, True]
        assert streamed.events != [] and whole.events == []
        assert [item.wire["type"] for item in whole.response.items] == ["message", "function_call"]
        assert whole.response.request_id == streamed.response.request_id == ""
        cut = hear(Retry(only)).response
        assert (cut.status, cut.incomplete_reason) == ("incomplete", "max_output_tokens")


@pytest.mark.spec("SO-01", "RT-03")
def test_stream_only_does_not_take_a_stream_without_its_end_for_an_answer() -> None:
    with pytest.raises(ModelError, match="ended before the answer was complete") as failed:
        hear(StreamOnly(Telling(([CREATED, DELTA], "not what the stream said"))))
    assert failed.value.transient


@pytest.mark.spec("PV-11", "MD-36")
def test_each_request_goes_to_the_model_that_is_chosen_for_it() -> None:
    bench = Bench()
    quick, deep = ScriptedModel([calls("ls")], name="quick"), ScriptedModel(["done"], name="deep")
    routed = Routed(
        {"quick": quick, "deep": deep}, lambda request: "deep" if request.previous_length else "quick"
    )
    assert routed.name == "quick"
    assert run_sync(bench.agent(routed), "go").final_output == "done"
    assert (len(quick.requests), len(deep.requests)) == (1, 1)
    with pytest.raises(UserError, match="'none'"):
        hear(Routed({"quick": quick}, lambda request: "none"))
    with pytest.raises(UserError, match="needs a model"):
        Routed({}, lambda request: "")


@pytest.mark.spec("RX-46", "MD-37")
def test_decorators_keep_the_connections_of_what_they_wrap(provider: str) -> None:
    ports: set[int] = set()
    with WireServer([do("a"), OVERLOADED, do("b"), "done"]) as server:
        server.on_connect = ports.add
        wrapped = Retry(Fallback(StreamOnly(model(provider, server))), base_s=0)
        assert run_sync(Bench().agent(wrapped), "go").final_output == "done"
    assert len(ports) == 1


@pytest.mark.spec("MD-38")
@pytest.mark.parametrize("keepalive_s", [0, 0.05])
def test_a_stream_that_goes_silent_is_an_error_whatever_signs_of_life_it_gives(
    provider: str, keepalive_s: float
) -> None:
    gate = threading.Event()
    silent = Reply(text="x" * 200, stall_at=700, gate=gate, keepalive_s=keepalive_s)
    with WireServer([silent, "done"]) as server:
        begun = time.monotonic()
        with pytest.raises(ModelError, match=r"nothing of an answer came for 0\.4 s") as failed:
            hear(model(provider, server), timeout_s=0.4)
        assert failed.value.transient and time.monotonic() - begun < 10
        gate.set()


@pytest.mark.spec("MD-38")
def test_an_answer_may_take_longer_than_the_timeout_while_something_of_it_comes(provider: str) -> None:
    reply = Reply(text="word " * 200, slice=40)

    def slow(data: bytes) -> None:
        time.sleep(0.004)

    with WireServer([reply]) as server:
        server.on_write = slow
        begun = time.monotonic()
        heard = hear(model(provider, server), timeout_s=0.4)
        assert time.monotonic() - begun > 0.4
    assert heard.response.items[0].text == "word " * 200


@pytest.mark.spec("MD-38")
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_does_not_begin_is_an_error_that_may_pass(provider: str, stream: bool) -> None:
    gate = threading.Event()
    with WireServer([Reply(text="late", gate=gate)]) as server:
        with pytest.raises(ModelError, match="nothing of an answer") as failed:
            hear(model(provider, server), [user_message("go")], timeout_s=0.3, stream=stream)
        assert failed.value.transient and failed.value.status is None
        gate.set()
