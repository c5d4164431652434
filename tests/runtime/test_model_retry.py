"""Retries: what is tried again, after how long, and what is seen of attempts that failed."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest
from model_kit import CREATED, CUT, DELTA, DONE, FAILED, LASTING, PASSING, Telling, failing, hear
from runtime_kit import Bench
from wire_kit import do, model
from wire_server import Reply, WireServer

from runtime import (
    Fallback,
    ModelError,
    ModelNotice,
    ModelRequest,
    ModelStreamed,
    Retry,
    Routed,
    RunCancelled,
    RunError,
    ScriptedModel,
    UserError,
    run,
    run_sync,
)


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
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "5, 6"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "nan", "retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 99 Foo 2015"}, None),
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
