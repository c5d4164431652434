"""What the tests of the models share: real clients against the wire server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

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
    state_from_records,
    user_message,
)

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
