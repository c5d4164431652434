"""Models: what reading a stream costs per event, and what a long conversation costs per request.

    .venv/bin/python benchmarks/models.py [--rounds 12] [--json FILE]

A stream of 2,000 deltas comes out of memory, in slices of 4 KiB, through each vendor's own client: read by
the client itself (the floor), and by ours, which tells each event and makes the answer. A conversation of 500
items becomes the body of a request; the floor makes JSON of the same items. Processor time is what is
measured: nothing here waits.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, median, number, p95
from benchmarks.report import Report, parse
from runtime import AnthropicModel, Item, ModelRequest, OpenAIModel, user_message
from runtime.items import assistant_message, function_call, function_output
from runtime.models import anthropic_wire, openai_wire
from runtime.models.server_messages import Messages
from runtime.models.server_responses import Responses
from runtime.models.server_wire import Reply, Wire, sse

_DELTAS = 2000
_SLICE = 4096
_ITEMS = 500
_BODY = {"model": "m", "stream": True, "store": False, "input": "go", "max_tokens": 9}

Work = Callable[[], Awaitable[int]]


class _Replay(httpx2.AsyncBaseTransport):
    """Answers every request with the same bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See the base class."""
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_Sliced(self._data))


class _Sliced(httpx2.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._data), _SLICE):
            yield self._data[start : start + _SLICE]


def _stream(wire: Wire) -> tuple[bytes, int]:
    # The server's pieces: 12 characters on the Messages wire, 24 on the Responses wire.
    piece = 12 if isinstance(wire, Messages) else 24
    body = {**_BODY, "messages": []}
    events = list(wire.events(Reply(text="x" * piece * _DELTAS), 1, body))
    return b"".join(sse(name, data) for name, data in events), len(events)


def _openai() -> tuple[Work, Work]:
    import openai

    data, count = _stream(Responses())
    client = openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient(transport=_Replay(data)))

    async def floor() -> int:
        stream = await client.responses.create(model="m", input="go", stream=True)
        return sum([1 async for _ in stream])

    ours = OpenAIModel("m", api_key="k", client_options={"http_client": client._client})
    return floor, _read(ours, count)


def _anthropic() -> tuple[Work, Work]:
    import anthropic

    data, count = _stream(Messages())
    client = anthropic.AsyncAnthropic(api_key="k", http_client=httpx2.AsyncClient(transport=_Replay(data)))

    async def floor() -> int:
        messages: Any = [{"role": "user", "content": "go"}]
        stream = await client.messages.create(model="m", max_tokens=9, messages=messages, stream=True)
        return sum([1 async for _ in stream])

    ours = AnthropicModel("m", api_key="k", client_options={"http_client": client._client})
    return floor, _read(ours, count)


def _read(model: OpenAIModel | AnthropicModel, count: int) -> Work:
    request = ModelRequest(instructions="", items=[user_message("go")])

    async def ours() -> int:
        events: list[object] = []
        response = await model.respond(request, events.append)
        assert len(events) >= _DELTAS and len(response.items) == 1
        return count

    return ours


def _history() -> list[Item]:
    items = [user_message("Make the tests pass.")]
    while len(items) < _ITEMS:
        call = f"call_{len(items)}"
        items.append(assistant_message("Let me look at the next file, then run the tests again."))
        items.append(function_call(call, "exec_command", json.dumps({"cmd": "pytest -q tests/test_it.py"})))
        items.append(function_output(call, "collected 12 items\n" + "tests/test_it.py ....F....F..\n" * 20))
    return items[:_ITEMS]


def _translations() -> dict[str, Work]:
    items = _history()
    request = ModelRequest(instructions="Be brief.", items=items)
    wires = [dict(item.wire) for item in items]

    async def floor() -> int:
        return len(json.dumps(wires, ensure_ascii=False).encode())

    async def responses() -> int:
        return len(openai_wire.parts("m", request)["input"].encode())

    async def messages() -> int:
        return len(anthropic_wire.parts("m", request)["messages"].encode())

    return {"floor: json.dumps": floor, "Responses": responses, "Messages": messages}


async def _measure(works: dict[str, Work], rounds: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name in random.sample(list(works), len(works)):
            begun = time.process_time()
            await works[name]()
            if turn:  # the first is warm-up
                samples[name].append((time.process_time() - begun) * 1000)
    return samples


def _table(title: str, samples: dict[str, list[float]], per: int = 0) -> Table:
    floor = median(next(iter(samples.values())))
    rows = []
    for name, taken in samples.items():
        figures = [median(taken), p95(taken), median(taken) / floor]
        rows.append((name, *map(number, figures), *([number(median(taken) * 1000 / per)] if per else [])))
    columns = ("median ms", "p95 ms", "x floor", *(["us an event"] if per else []))
    data = tuple({"name": name, "ms": median(taken)} for name, taken in samples.items())
    return Table(title, columns, tuple(rows), data=data)


async def _all(report: Report, rounds: int) -> None:
    for title, (floor, ours) in (("Responses stream", _openai()), ("Messages stream", _anthropic())):
        works = {"floor: the vendor's client": floor, "coderig": ours}
        report.add(_table(title, await _measure(works, rounds), per=_DELTAS))
    report.add(_table(f"{_ITEMS} items as a request", await _measure(_translations(), rounds * 5)))


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    options = parse(__doc__ or "", arguments, places=("here",))
    report = Report("models", options, how=f"{options.rounds} rounds, ")
    asyncio.run(_all(report, options.rounds))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
