"""Services: failures, connections, keys, names, counts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from runtime_kit import Bench, wire
from wire_kit import WIRES, ask, do, model
from wire_server import Reply, WireServer

from runtime import (
    ModelBehaviorError,
    ModelError,
    ModelRequest,
    ModelSettings,
    RunCancelled,
    RunError,
    RunResult,
    UserError,
    code_of,
    resolve_model,
    run,
    run_sync,
    user_message,
)
from runtime.items import from_wire


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


@pytest.mark.spec("RB-08")
def test_the_server_refuses_what_the_real_ones_refuse() -> None:
    lonely = from_wire('{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}')
    orphan = from_wire('{"type":"function_call_output","call_id":"a","output":"x"}')
    for provider in WIRES:
        for items in ([lonely], [orphan], [lonely, orphan, orphan], [lonely, user_message("x")]):
            with pytest.raises(ModelError) as refused:
                ask(provider, "x", [user_message("go"), *items])
            assert refused.value.status == 400
    assert wire([lonely])[0]["call_id"] == "a"
