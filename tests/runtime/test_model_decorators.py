"""Models around models: retries, fallback, streams only, routing; what is seen of attempts that failed."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from model_kit import hear
from runtime_kit import Bench, calls
from wire_kit import do, model
from wire_server import Reply, WireServer

from runtime import (
    Fallback,
    ModelError,
    ModelNotice,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ModelStreamed,
    Retry,
    Routed,
    RunCancelled,
    RunError,
    Scripted,
    ScriptedFailure,
    ScriptedModel,
    StreamOnly,
    Usage,
    UserError,
    run,
    run_sync,
    user_message,
)
from runtime.items import assistant_message
from runtime.models.model import Emit
from runtime.models.stream import EventType

OVERLOADED = Reply(status=529, message="overloaded")


def failing(status: int | None, **more: Any) -> Scripted:
    return Scripted(error=ScriptedFailure(message=f"failed with {status}", status=status, **more))


class Telling:
    """A model that tells these events and then answers, or fails."""

    name = "telling"

    def __init__(self, *attempts: tuple[Sequence[str], ModelError | str]) -> None:
        self._attempts = list(attempts)
        self.asked = 0

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """See Model."""
        self.asked += 1
        kinds, end = self._attempts.pop(0)
        for kind in kinds:
            emit(ModelStreamed(kind, f'{{"attempt":{self.asked}}}'))
        if isinstance(end, ModelError):
            raise end
        return ModelResponse(items=(assistant_message(end),), usage=Usage(requests=1))


PASSING = ModelError("for now", status=503)
LASTING = ModelError("for ever", status=400)
CREATED, FAILED = EventType.CREATED, EventType.FAILED
DELTA, DONE, CUT = EventType.TEXT_DELTA, EventType.COMPLETED, EventType.INCOMPLETE


@pytest.mark.spec("RT-16", "MD-30")
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_failures_that_may_pass_are_retried_until_the_attempts_are_used_up(
    provider: str, status: int
) -> None:
    failing = Reply(status=status, message="later")
    with WireServer([failing, failing, "done"]) as server:
        retried = Retry(model(provider, server), base_s=0)
        assert hear(retried).response.items[0].text == "done"
    with WireServer([failing] * 3 + ["never"]) as server:
        with pytest.raises(ModelError) as failed:
            hear(Retry(model(provider, server), base_s=0))
        assert failed.value.status == status
        # The attempts are those that were asked for: the vendor's client adds none.
        assert len(server.requests) == 3


@pytest.mark.spec("RT-16", "MD-30")
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_failures_that_will_not_pass_are_not_retried(provider: str, status: int) -> None:
    with WireServer([Reply(status=status, message="no"), "never"]) as server:
        with pytest.raises(ModelError):
            hear(Retry(model(provider, server), base_s=0))
        assert len(server.requests) == 1


@pytest.mark.spec("RT-16", "MD-30")
def test_a_quota_that_is_used_up_and_a_window_that_is_too_small_are_not_retried() -> None:
    for reply in (
        Reply(status=429, message="You exceeded your current quota", code="insufficient_quota"),
        Reply(status=400, message="context_length_exceeded"),
    ):
        with WireServer([reply, "never"]) as server:
            with pytest.raises(ModelError) as failed:
                hear(Retry(model("openai", server), base_s=0))
            assert len(server.requests) == 1 and not failed.value.transient


@pytest.mark.spec("RT-01", "RT-16", "RX-43")
def test_a_connection_that_breaks_is_retried_and_a_wrong_address_is_not(provider: str) -> None:
    with WireServer([Reply(text="x" * 100, cut_at=0), Reply(text="x" * 100, cut_at=300), "done"]) as server:
        retried = Retry(model(provider, server), base_s=0, hold_all=True)
        assert hear(retried).response.items[0].text == "done"
        assert len(server.requests) == 3
    notices: list[ModelNotice] = []
    with pytest.raises(ModelError) as failed:
        hear(Retry(model(provider, server), base_s=0, notify=notices.append))
    assert failed.value.transient and [notice.kind for notice in notices] == ["retry", "retry"]


@pytest.mark.spec("RT-05", "MD-17")
def test_an_overload_that_is_told_inside_a_stream_is_retried_while_nothing_was_said(provider: str) -> None:
    kind = {"openai": "server_error", "anthropic": "overloaded_error"}[provider]
    told = json.dumps({"type": "error", "error": {"type": kind, "code": kind, "message": "busy"}})
    early = Reply(text="x", inject={1: f"event: error\ndata: {told}\n\n"})
    with WireServer([early, Reply(body=told.encode()), "done"]) as server:
        heard = hear(Retry(model(provider, server), base_s=0))
        assert heard.response.items[0].text == "done"
        assert [event.type for event in heard.events].count(CREATED) == 1


@pytest.mark.spec("RT-16")
def test_a_host_that_does_not_exist_is_told_at_once(provider: str) -> None:
    class Elsewhere:
        url = "http://no-such-host.invalid"
        openai_url = url + "/v1"

    notices: list[ModelNotice] = []
    with pytest.raises(ModelError) as failed:
        hear(Retry(model(provider, Elsewhere()), base_s=0, notify=notices.append))  # type: ignore[arg-type]
    assert not failed.value.transient and notices == []


@pytest.mark.spec("RT-14", "RT-15", "MD-31")
def test_at_least_what_the_service_asks_for_is_waited_and_told() -> None:
    notices: list[ModelNotice] = []
    scripted = ScriptedModel([failing(429, retry_after_s=0.2), failing(500), "done"])
    retried = Retry(scripted, base_s=0.02, notify=notices.append)
    begun = time.monotonic()
    assert hear(retried).response.items[0].text == "done"
    assert time.monotonic() - begun >= 0.2
    assert [(notice.kind, notice.attempt, notice.error.status) for notice in notices] == [
        ("retry", 1, 429),
        ("retry", 2, 500),
    ]
    assert notices[0].wait_s == 0.2 and 0.03 <= notices[1].wait_s <= 0.04


@pytest.mark.spec("RT-14", "MD-31")
@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
    ],
)
def test_what_a_service_asks_to_wait_is_read_in_all_its_forms(
    provider: str, header: dict[str, str], wait_s: float | None
) -> None:
    with (
        WireServer([Reply(status=429, headers=header)]) as server,
        pytest.raises(ModelError) as failed,
    ):
        hear(model(provider, server))
    assert failed.value.retry_after_s == wait_s


@pytest.mark.spec("RT-14")
def test_a_date_in_the_future_is_what_remains_until_then(provider: str) -> None:
    from email.utils import formatdate

    later = formatdate(time.time() + 100, usegmt=True)
    with (
        WireServer([Reply(status=429, headers={"retry-after": later})]) as server,
        pytest.raises(ModelError) as failed,
    ):
        hear(model(provider, server))
    assert failed.value.retry_after_s is not None and 90 < failed.value.retry_after_s <= 100


@pytest.mark.spec("RT-14")
def test_a_service_that_asks_for_too_much_ends_the_retries_with_its_error() -> None:
    scripted = ScriptedModel([failing(429, retry_after_s=86400), "never"])
    with pytest.raises(ModelError, match="failed with 429") as failed:
        hear(Retry(scripted, max_wait_s=60))
    assert len(scripted.requests) == 1
    assert failed.value.__notes__ == ["it asks to wait 86400 s; at most 60 s are waited"]


@pytest.mark.spec("MD-32")
def test_cancelling_a_run_ends_a_wait_at_once() -> None:
    waiting = threading.Event()

    async def scenario() -> None:
        retried = Retry(
            ScriptedModel([failing(503), "never"]), base_s=50, notify=lambda notice: waiting.set()
        )
        stream, control = run(Bench().agent(retried), "go")
        reading = asyncio.create_task(stream.result())
        assert await asyncio.to_thread(waiting.wait, 10)
        control.cancel()
        with pytest.raises(RunError) as failed:
            await asyncio.wait_for(reading, 5)
        assert isinstance(failed.value.__cause__, RunCancelled)

    asyncio.run(scenario())


@pytest.mark.spec("RT-05", "RT-07", "RT-08")
def test_an_attempt_that_failed_before_it_told_anything_leaves_no_trace() -> None:
    telling = Telling(([CREATED], PASSING), ([CREATED, FAILED], PASSING), ([CREATED, DELTA, DONE], "ok"))
    heard = hear(Retry(telling, base_s=0))
    assert [event.type for event in heard.events] == [CREATED, DELTA, DONE]
    assert {event.raw for event in heard.events} == {'{"attempt":3}'}


@pytest.mark.spec("RT-05", "RT-09")
def test_an_attempt_that_told_something_is_the_only_one() -> None:
    notices: list[ModelNotice] = []
    telling = Telling(([CREATED, DELTA], PASSING), ([], "never"))
    events: list[str] = []
    with pytest.raises(ModelError):
        asyncio.run(
            Retry(telling, base_s=0, notify=notices.append).respond(
                ModelRequest(instructions="", items=[]), lambda event: events.append(event.type)
            )
        )
    assert events == [CREATED, DELTA] and telling.asked == 1
    assert [(notice.kind, notice.attempt) for notice in notices] == [("stream_error", 1)]


@pytest.mark.spec("RT-06")
def test_an_answer_that_is_incomplete_counts_as_told() -> None:
    telling = Telling(([CREATED, CUT], PASSING), ([], "never"))
    with pytest.raises(ModelError):
        hear(Retry(telling, base_s=0))
    assert telling.asked == 1


@pytest.mark.spec("RT-08")
def test_what_is_held_is_told_with_an_answer_that_has_nothing_else_and_before_the_last_failure() -> None:
    assert [event.type for event in hear(Retry(Telling(([CREATED], "ok")))).events] == [CREATED]
    events: list[str] = []
    with pytest.raises(ModelError):
        asyncio.run(
            Retry(Telling(([CREATED, FAILED], LASTING))).respond(
                ModelRequest(instructions="", items=[]), lambda event: events.append(event.type)
            )
        )
    assert events == [CREATED, FAILED]


@pytest.mark.spec("RT-10")
def test_a_reader_that_leaves_while_it_is_told_what_was_held_is_told_nothing_more() -> None:
    class Left(Exception):
        pass

    events: list[str] = []
    notices: list[ModelNotice] = []

    def leave(event: ModelStreamed) -> None:
        events.append(event.type)
        raise Left

    telling = Telling(([CREATED, DELTA, DONE], "ok"))
    with pytest.raises(Left):
        asyncio.run(
            Retry(telling, notify=notices.append).respond(ModelRequest(instructions="", items=[]), leave)
        )
    assert events == [CREATED] and notices == [] and telling.asked == 1


@pytest.mark.spec("RT-05", "MD-33")
def test_a_stream_that_breaks_in_the_middle_is_replaced_where_nothing_is_told_before_its_end(
    provider: str,
) -> None:
    bench = Bench()
    with WireServer([do("rm x", text="so" * 50, cut_at=900), do("ls"), "done"]) as server:
        agent = bench.agent(Retry(model(provider, server), base_s=0, hold_all=True))
        result = run_sync(agent, "go")
        assert server.refused == []
    assert bench.ran == ["ls"] and result.final_output == "done"
    assert result.usage.requests == 2


@pytest.mark.spec("RT-13", "MD-34")
def test_one_layer_of_retries_is_enough() -> None:
    inner = Retry(ScriptedModel(["x"]))
    for outer in (inner, Fallback(ScriptedModel(["x"]), inner), Routed({"a": inner}, lambda request: "a")):
        with pytest.raises(UserError, match="retried already"):
            Retry(outer)
    Fallback(Retry(ScriptedModel(["x"])), Retry(ScriptedModel(["y"])))


@pytest.mark.spec("RT-12")
def test_a_caller_who_wants_the_clients_own_retries_gets_them() -> None:
    from runtime import OpenAIModel

    with WireServer([Reply(status=500, headers={"retry-after-ms": "1"}), "done"]) as server:
        eager = OpenAIModel("m", base_url=server.openai_url, api_key="k", client_options={"max_retries": 1})
        assert hear(eager).response.items[0].text == "done"
        assert len(server.requests) == 2


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
