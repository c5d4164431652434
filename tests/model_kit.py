"""Every model there is, answering the same things: what the conformance suite runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from wire_kit import model as wired
from wire_server import Call, Reply, WireServer

from runtime import (
    Fallback,
    Item,
    ItemKind,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ModelStreamed,
    Recorded,
    Retry,
    Routed,
    Scripted,
    ScriptedCall,
    ScriptedFailure,
    ScriptedModel,
    StreamOnly,
    Usage,
    user_message,
)
from runtime.items import assistant_message
from runtime.models.model import Emit
from runtime.models.stream import TERMINAL, EventType

SEALED = "c2VhbGVkLWFuZC1vcGFxdWU+/=="

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@dataclass(frozen=True)
class Answer:
    """What a model answers, whoever it is. `usage` is (input, of that cached, output)."""

    thought: str | None = None
    text: str | None = None
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    stop: str = "end"
    usage: tuple[int, int, int] = (10, 0, 5)

    def reply(self, wire: str) -> Reply:
        """As the server says it."""
        total, cached, out = self.usage
        calls = [Call(name, arguments, id=f"c{n}") for n, (name, arguments) in enumerate(self.calls)]
        if wire == "openai":
            details = {"input_tokens_details": {"cached_tokens": cached}}
            counts: dict[str, Any] = {"input_tokens": total, "output_tokens": out, **details}
        else:
            counts = {"input_tokens": total - cached, "cache_read_input_tokens": cached}
            counts["output_tokens"] = out
        raw = [] if self.thought is None else [_thought(wire, self.thought)]
        return Reply(text=self.text, calls=calls, stop=self.stop, raw=raw, usage=counts)

    def scripted(self) -> Scripted:
        """As a script says it. Its items come in the order of the wires: thoughts first."""
        items: list[str] = []
        if self.thought is not None:
            items.append(_thought("openai", self.thought))
        if self.text is not None:
            kind = "refusal" if self.stop == "refusal" else "output_text"
            key = "refusal" if kind == "refusal" else "text"
            part = {"type": kind, key: self.text, **({} if kind == "refusal" else {"annotations": []})}
            message = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed"}
            items.append(json.dumps({**message, "content": [part]}))
        calls = tuple(
            ScriptedCall(name=name, arguments=dict(arguments), id=f"c{n}")
            for n, (name, arguments) in enumerate(self.calls)
        )
        cut = self.stop == "max_tokens"
        items.extend(item.raw for item in Scripted(calls=calls).to_items(0))
        return Scripted(
            items=tuple(items),
            status="incomplete" if cut else "completed",
            incomplete_reason="max_output_tokens" if cut else "",
            input_tokens=self.usage[0],
            cached_input_tokens=self.usage[1],
            output_tokens=self.usage[2],
        )


def _thought(wire: str, thought: str) -> str:
    if wire == "anthropic":
        return json.dumps({"type": "thinking", "thinking": thought, "signature": SEALED})
    content = [{"type": "reasoning_text", "text": thought}]
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}
    return json.dumps({**item, "encrypted_content": SEALED})


Decorate = Callable[[Model, Path], Model]

DECORATORS: Mapping[str, Decorate] = {
    "plain": lambda model, path: model,
    "retry": lambda model, path: Retry(model),
    "retry-held": lambda model, path: Retry(model, hold_all=True),
    "fallback": lambda model, path: Fallback(model, ScriptedModel([])),
    "stream-only": lambda model, path: StreamOnly(model),
    "routed": lambda model, path: Routed({"it": model}, lambda request: "it"),
    "recorded": lambda model, path: Recorded(model, path / "record.jsonl"),
    "all": lambda model, path: Retry(
        Fallback(Recorded(Routed({"it": StreamOnly(model)}, lambda request: "it"), path / "record.jsonl"))
    ),
}

SUBJECTS = [
    *[(wire, "plain") for wire in ("openai", "anthropic", "script")],
    *[("openai", name) for name in DECORATORS if name != "plain"],
    *[("anthropic", "all"), ("script", "all"), ("anthropic", "stream-only")],
]


@contextmanager
def subject(which: tuple[str, str], answers: Sequence[Answer], path: Path) -> Iterator[Model]:
    """A model that gives these answers."""
    wire, decorated = which
    if wire == "script":
        scripted = ScriptedModel([answer.scripted() for answer in answers], stream=True)
        yield DECORATORS[decorated](scripted, path)
        return
    with WireServer([answer.reply(wire) for answer in answers]) as server:
        yield DECORATORS[decorated](wired(wire, server), path)
        assert server.refused == []


@dataclass
class Heard:
    """An answer, and the events that told it."""

    response: ModelResponse
    events: list[ModelStreamed] = field(default_factory=list)


def hear(model: Model, items: Sequence[Item] = (), **settings: Any) -> Heard:
    """Ask once, and keep what was told."""
    events: list[ModelStreamed] = []
    request = ModelRequest(
        instructions="Be brief.",
        items=items or [user_message("go")],
        settings=ModelSettings(**settings),
    )
    return Heard(asyncio.run(model.respond(request, events.append)), events)


def check_story(heard: Heard) -> None:
    """The promises about a stream. The vendor's own types say what an event has to look like."""
    kinds = [event.type for event in heard.events]
    values = [json.loads(event.raw) for event in heard.events]
    assert all(kind.startswith("response.") for kind in kinds)
    assert all(value["type"] == kind for kind, value in zip(kinds, values, strict=True))
    assert kinds[0] == EventType.CREATED
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    for event in heard.events:
        _EVENT.validate_json(event.raw)
    done = [value["item"] for value in values if value["type"] == EventType.ITEM_DONE]
    assert done == [json.loads(item.raw) for item in heard.response.items]
    assert values[-1]["response"]["output"] == done
    numbers = [value["output_index"] for value in values if value["type"] == EventType.ITEM_DONE]
    assert numbers == sorted(set(numbers))
    _check_deltas(values, heard.response)


def _check_deltas(values: Sequence[dict[str, Any]], response: ModelResponse) -> None:
    finished: set[int] = set()
    told: dict[tuple[str, int], str] = {}
    for value in values:
        if value["type"] == EventType.ITEM_DONE:
            finished.add(value["output_index"])
        elif value["type"].endswith(".delta"):
            assert value["output_index"] not in finished
            key = (value["type"], value["output_index"])
            told[key] = told.get(key, "") + value["delta"]
    refusals = [item.refusal for item in response.items if item.refusal is not None]
    assert [text for (kind, _), text in told.items() if kind == EventType.REFUSAL_DELTA] == [
        words for words in refusals if words
    ]
    if refusals:  # what was said before a refusal is taken back by it
        return
    for place, item in enumerate(response.items):
        if item.kind in (ItemKind.MESSAGE, ItemKind.REASONING):
            kind = EventType.TEXT_DELTA if item.kind == ItemKind.MESSAGE else EventType.REASONING_DELTA
            assert told.pop((kind, place), "") == item.text
        elif item.kind == ItemKind.TOOL_CALL:
            arguments = told.pop((EventType.ARGUMENTS_DELTA, place), "")
            # A call without arguments may be told without deltas.
            assert arguments == item.call.arguments or (arguments, item.call.arguments) == ("", "{}")
    assert {kind for kind, _ in told} <= {EventType.SUMMARY_DELTA}


OVERLOADED = Reply(status=529, message="overloaded")


def failing(status: int | None, **more: Any) -> Scripted:
    """An answer of a script that fails."""
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
