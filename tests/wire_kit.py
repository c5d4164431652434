"""What the tests of the models share: real clients against the wire server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter
from wire_server import Call, Reply, WireServer

from runtime import (
    AnthropicModel,
    Item,
    MemoryJournal,
    ModelRequest,
    ModelSettings,
    OpenAIModel,
    RunResult,
    RunState,
    Source,
    state_from_records,
    user_message,
)
from runtime.items import from_wire

WIRES = ["openai", "anthropic"]


def model(provider: str, server: WireServer) -> OpenAIModel | AnthropicModel:
    """A model of that provider, served by the server."""
    if provider == "openai":
        return OpenAIModel("test-model", base_url=server.openai_url, api_key="key")
    return AnthropicModel("test-model", base_url=server.url, api_key="key")


def do(*commands: str, **kwargs: Any) -> Reply:
    """An answer that calls the tool with each command."""
    return Reply(calls=[Call("exec_command", {"cmd": command}) for command in commands], **kwargs)


def ask(
    provider: str,
    reply: Reply | str,
    items: Sequence[Item] = (),
    request: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[Any, dict[str, Any]]:
    """One answer, and the body of the request for it."""
    with WireServer([reply]) as server:
        asked = ModelRequest(
            instructions="Be brief.",
            items=items or [user_message("go")],
            settings=ModelSettings(**settings),
            **(request or {}),
        )
        answer = asyncio.run(model(provider, server).respond(asked, lambda event: None))
        return answer, server.requests[0].body


_PARAMS: Mapping[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(ResponseCreateParamsStreaming),
    "anthropic": TypeAdapter(MessageCreateParamsStreaming),
}


def check_params(provider: str, body: Mapping[str, Any]) -> None:
    """A request body is what the vendor's own typed parameters allow, with nothing besides."""
    assert _listed(_PARAMS[provider].validate_python(body)) == body


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_listed(part) for part in value]
    return value


def item(**wire: Any) -> Item:
    """An item of the wire."""
    return from_wire(json.dumps(wire))


def call(call_id: str, name: str = "t", arguments: str = "{}", **more: Any) -> Item:
    """A call of a tool."""
    return item(type="function_call", call_id=call_id, name=name, arguments=arguments, **more)


def output(call_id: str, said: Any = "x") -> Item:
    """An output of a call."""
    made = item(type="function_call_output", call_id=call_id, output=said)
    return replace(made, source=Source.RUNNER)


def said(role: str, text: str) -> Item:
    """A message."""
    return item(type="message", role=role, content=text)


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
