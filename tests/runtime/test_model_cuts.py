"""A stream cut at every byte: one coherent answer or an error, and never a call out of half an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from runtime_kit import Bench
from wire_kit import WIRES

from runtime import (
    AnthropicModel,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ModelStreamed,
    OpenAIModel,
    Retry,
    RunError,
    code_of,
    run,
    user_message,
)
from runtime.models.stream import PREAMBLE, TERMINAL

STREAMS = Path(__file__).parent.parent / "streams"
NAMES = ["text", "tools", "reasoning", "refusal", "parallel"]
RAN = {
    "text": [],
    "tools": ["rm -rf /tmp/build && make"],
    "reasoning": ["pytest -q"],
    "refusal": [],
    "parallel": ["cat a", "ls"],
}


class _Sliced(httpx2.AsyncByteStream):
    """Bytes in slices; then the connection breaks, or the stream ends as if it were complete."""

    def __init__(self, data: bytes, size: int, error: Exception | None, *, stays_open: bool) -> None:
        self._data = data
        self._size = size
        self._error = error
        self._stays_open = stays_open

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._data), self._size):
            yield self._data[start : start + self._size]
        if self._stays_open:
            await asyncio.Event().wait()
        if self._error is not None:
            raise self._error


@dataclass
class Service(httpx2.AsyncBaseTransport):
    """Gives one stream, cut where it is told the first time, and "done" once outputs are sent to it.

    clean       the cut looks like an end
    stays_open  nothing comes after the stream, not even its end
    """

    whole: bytes
    done: bytes
    cut_at: int | None = None
    clean: bool = False
    stays_open: bool = False
    size: int = 1 << 20
    asked: int = field(default=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See the base class."""
        body = request.content
        if b'"function_call_output"' in body or b'"tool_result"' in body:
            return self._response(self.done, None)
        self.asked += 1
        if self.cut_at is None or self.asked > 1:
            return self._response(self.whole, None)
        error = None if self.clean else httpx2.RemoteProtocolError("peer closed connection")
        return self._response(self.whole[: self.cut_at], error)

    def _response(self, data: bytes, error: Exception | None) -> httpx2.Response:
        headers = {"content-type": "text/event-stream", "request-id": "r", "x-request-id": "r"}
        stream = _Sliced(data, self.size, error, stays_open=self.stays_open)
        return httpx2.Response(200, headers=headers, stream=stream)


def service(provider: str, name: str) -> Service:
    done = (STREAMS / f"{provider}-text.sse").read_bytes()
    return Service((STREAMS / f"{provider}-{name}.sse").read_bytes(), done)


def model_of(provider: str, there: Service) -> Model:
    client = httpx2.AsyncClient(transport=there)
    options = {"http_client": client}
    kind: Any = OpenAIModel if provider == "openai" else AnthropicModel
    model: Model = kind("m", base_url="http://127.0.0.1:9/v1", api_key="key", client_options=options)
    return model


def joints(data: bytes) -> list[int]:
    """Where something is about to be whole: around each end of a line, and around each quote of deltas."""
    places = {0, 1, len(data) - 1}
    for place, byte in enumerate(data):
        if byte == 0x0A:
            places |= {place - 1, place, place + 1}
    return sorted(place for place in places if 0 <= place < len(data))


async def _ask(model: Model, **settings: Any) -> tuple[ModelResponse | ModelError, list[ModelStreamed]]:
    events: list[ModelStreamed] = []
    request = ModelRequest(instructions="", items=[user_message("go")], settings=ModelSettings(**settings))
    try:
        return await model.respond(request, events.append), events
    except ModelError as error:
        return error, events


@pytest.mark.slow
@pytest.mark.spec("MD-03", "RT-01", "RT-02", "RT-05", "RT-07")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("provider", WIRES)
def test_a_stream_cut_at_any_byte_is_one_answer_or_an_error_never_both(provider: str, name: str) -> None:
    there = service(provider, name)

    async def scenario() -> None:
        model = Retry(model_of(provider, there), retries=1, base_s=0)
        model.connect()
        whole, story = await _ask(model)
        assert isinstance(whole, ModelResponse)
        for place in range(len(there.whole)):
            there.cut_at, there.clean, there.asked = place, place % 2 == 0, 0
            answer, events = await _ask(model)
            if isinstance(answer, ModelResponse):
                assert answer == whole and events == story, place
            else:
                # Reported, and what was told is the beginning of the one story, without its end.
                assert answer.transient and there.asked == 1, place
                assert events == story[: len(events)] and len(events) < len(story)
                assert not any(event.type in TERMINAL for event in events)
                assert any(event.type not in PREAMBLE for event in events), place
        await model.release()

    asyncio.run(scenario())


@pytest.mark.spec("MD-03", "RT-01", "RT-02")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("provider", WIRES)
def test_a_stream_that_is_cut_and_held_back_is_one_answer_and_its_calls_run_once(
    provider: str, name: str
) -> None:
    there = service(provider, name)

    async def scenario() -> None:
        model = Retry(model_of(provider, there), retries=1, base_s=0, hold_all=True)
        model.connect()
        for place in joints(there.whole):
            there.cut_at, there.clean, there.asked = place, place % 2 == 0, 0
            bench = Bench()
            stream, _ = run(bench.agent(model), "go")
            try:
                result = await stream.result()
                assert result.final_output == "Grüße aus der 🦀 Kiste."
            except RunError as error:
                assert name == "refusal" and code_of(error) == "model_refusal", place
            assert sorted(bench.ran) == RAN[name], place
        await model.release()

    asyncio.run(scenario())


@pytest.mark.spec("MD-03")
@pytest.mark.parametrize("name", ["tools", "parallel"])
@pytest.mark.parametrize("provider", WIRES)
def test_no_call_of_an_answer_that_was_cut_runs(provider: str, name: str) -> None:
    there = service(provider, name)

    async def scenario() -> None:
        model = model_of(provider, there)
        for place in joints(there.whole)[:-4]:
            there.cut_at, there.clean, there.asked = place, place % 2 == 0, 0
            bench = Bench()
            stream, _ = run(bench.agent(model), "go")
            with pytest.raises(RunError) as failed:
                await stream.result()
            assert code_of(failed.value) == "model_error" and bench.ran == [], place
            assert failed.value.result.new_items == [], place

    asyncio.run(scenario())


@pytest.mark.spec("MD-04")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("provider", WIRES)
def test_the_slices_in_which_a_stream_arrives_do_not_matter(provider: str, name: str) -> None:
    there = service(provider, name)

    async def scenario() -> None:
        model = model_of(provider, there)
        first = await _ask(model)
        for size in (1, 2, 3, 7, 64, 1000):
            there.size = size
            assert await _ask(model) == first

    asyncio.run(scenario())


@pytest.mark.spec("MD-04")
@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("provider", WIRES)
def test_lines_may_end_as_the_standard_allows(provider: str, end: str) -> None:
    there = service(provider, "tools")

    async def scenario() -> None:
        model = model_of(provider, there)
        first = await _ask(model)
        there.whole = b"\xef\xbb\xbf" + there.whole.replace(b"\n", end.encode())
        for size in (1, 5, 1000):
            there.size = size
            assert await _ask(model) == first

    asyncio.run(scenario())


@pytest.mark.spec("RT-04")
@pytest.mark.parametrize("provider", WIRES)
def test_what_happens_to_a_stream_after_its_answer_does_not_matter(provider: str) -> None:
    there = service(provider, "tools")
    there.cut_at = len(there.whole)

    async def scenario() -> None:
        answer, _ = await _ask(model_of(provider, there))
        assert isinstance(answer, ModelResponse) and there.asked == 1

    asyncio.run(scenario())


@pytest.mark.spec("RT-04")
@pytest.mark.parametrize("provider", WIRES)
def test_a_stream_that_stays_open_after_its_answer_does_not_hold_it_back_or_take_it_away(
    provider: str,
) -> None:
    there = service(provider, "tools")
    there.stays_open = True

    async def scenario() -> None:
        model = model_of(provider, there)
        answer, _ = await asyncio.wait_for(_ask(model, timeout_s=0.5), 10)
        assert isinstance(answer, ModelResponse)

    asyncio.run(scenario())


@pytest.mark.spec("MD-05")
@pytest.mark.parametrize("provider", WIRES)
def test_the_streams_of_the_services_say_what_they_should(provider: str) -> None:
    def read(name: str) -> ModelResponse:
        answer, _ = asyncio.run(_ask(model_of(provider, service(provider, name))))
        assert isinstance(answer, ModelResponse)
        return answer

    text, tools, thought, refusal, parallel = (read(name) for name in NAMES)
    assert text.items[0].text == "Grüße aus der 🦀 Kiste."
    assert (text.usage.input_tokens, text.usage.cached_input_tokens, text.usage.output_tokens) == (75, 64, 21)
    assert [item.type for item in tools.items] == ["message", "function_call"]
    assert json.loads(tools.items[1].call.arguments) == {"cmd": RAN["tools"][0]}
    assert [item.type for item in thought.items][-1] == "function_call" and thought.items[
        0
    ].type == "reasoning"
    assert [item.refusal for item in refusal.items] == [
        "I can’t help with that." if provider == "openai" else "I was going to"
    ]
    assert len({item.call_id for item in parallel.items}) == 2
