"""Whatever a conversation holds, what is sent of it is what the services take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_kit import WIRES, call, check_params, item, output, said

from runtime import Item, ModelRequest, ModelSettings, user_message
from runtime.history import repair
from runtime.models import anthropic_wire, openai_wire, wire
from runtime.models.server_messages import Messages
from runtime.models.server_responses import Responses
from runtime.models.server_wire import Reply, read_body

HEADERS = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}
IDS = st.sampled_from(["a", "b", "call:1/\u00e9", "a#2"])
TEXTS = st.sampled_from(["x", "", " \n", "y \n", "Schön \U0001f980"])


def _thought(name: str, model: str, sealed: str) -> Item:
    content = [{"type": "reasoning_text", "text": f"thought {name}"}]
    return item(
        type="reasoning", id="rs_1", model=model, summary=[], content=content, encrypted_content=sealed
    )


def thought(name: str, model: str = "m") -> Item:
    """Thinking as the Messages adapter makes it, signed by the server below if it is of its model."""
    return _thought(name, model, wire.SIGNATURE + f"signed {name}")


THOUGHTS = st.one_of(
    st.sampled_from("xyz").map(thought),
    st.just(thought("x", "another-model")),
    st.just(_thought("x", "m", "")),
    st.just(
        item(type="reasoning", id="rs_1", model="m", summary=[], encrypted_content=wire.REDACTED + "red")
    ),
    st.just(item(type="reasoning", id="rs_1", summary=[], encrypted_content="gA==")),
    st.just(item(type="reasoning", id="rs_2", summary=[])),
)
PARTS: list[dict[str, Any]] = [
    {"type": "input_text", "text": "y"},
    {"type": "input_text", "text": " "},
    {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
]
ITEMS = st.one_of(
    TEXTS.map(user_message),
    st.tuples(st.sampled_from(["assistant", "system", "developer"]), TEXTS).map(lambda pair: said(*pair)),
    THOUGHTS,
    st.builds(
        call, IDS, st.sampled_from(["t", "a b"]), st.sampled_from(["{}", '{"a": 1}', "[1]", "{broken"])
    ),
    st.builds(output, IDS, st.one_of(TEXTS, st.just(PARTS))),
)


def messages_server() -> Messages:
    """A server that has signed the thoughts of its model."""
    server = Messages()
    raw = [
        json.dumps({"type": "thinking", "thinking": f"thought {n}", "signature": f"signed {n}"})
        for n in "xyz"
    ]
    raw.append('{"type": "redacted_thinking", "data": "red"}')
    server.whole(Reply(raw=raw), 1, {"model": "m"})
    return server


@pytest.mark.spec("MD-10", "RB-08")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(ITEMS, max_size=14),
    st.sampled_from([None, "low"]),
    st.sampled_from([None, False]),
    st.booleans(),
)
def test_every_conversation_makes_a_request_that_both_services_take(
    items: list[Item], effort: Any, store: bool | None, cached: bool
) -> None:
    whole = repair(items)
    whole.close()
    both: Any = {"effort": effort, "prompt_cache": cached}
    asked = ModelRequest(instructions="", items=whole.items, settings=ModelSettings(**both))
    body = read_body(wire.body(anthropic_wire.parts("m", asked), {}))
    messages_server().check(HEADERS, body)
    asked = ModelRequest(instructions="", items=whole.items, settings=ModelSettings(**both, store=store))
    body = read_body(wire.body(openai_wire.parts("m", asked), {}))
    Responses().check(HEADERS, body)


@pytest.mark.spec("MD-10")
@settings(max_examples=60, deadline=None)
@given(st.lists(ITEMS, max_size=8))
def test_every_conversation_makes_a_request_that_the_vendors_types_allow(items: list[Item]) -> None:
    whole = repair(items)
    whole.close()
    asked = ModelRequest(instructions="Be brief.", items=whole.items)
    for provider, parts in zip(WIRES, (openai_wire.parts, anthropic_wire.parts), strict=True):
        check_params(provider, json.loads(wire.body(parts("m", asked), {})))
