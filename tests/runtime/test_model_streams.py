"""Whatever an answer holds, it is the same streamed and whole. Without HTTP: only the wires."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kit import Heard, check_story
from wire_server import Call, Reply

from runtime import ModelResponse, ModelStreamed
from runtime.models.anthropic_answer import Asked, whole
from runtime.models.anthropic_stream import MessageStream
from runtime.models.narration import narrate
from runtime.models.openai import OpenAIModel
from runtime.models.server_messages import Messages
from runtime.models.server_responses import Responses
from runtime.models.stream import read_response

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
ARGUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(TEXTS, part, max_size=3)),
    max_leaves=6,
)
CALLS = st.lists(
    st.builds(Call, st.sampled_from(["t", "u"]), st.dictionaries(TEXTS, ARGUMENTS, max_size=3)), max_size=3
)
BLOCKS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    st.tuples(TEXTS, st.sampled_from(["c2ln", ""])).map(
        lambda pair: {"type": "thinking", "thinking": pair[0], "signature": pair[1]}
    ),
    st.just({"type": "redacted_thinking", "data": "cmVk"}),
    st.just({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1.5}}),
)
ITEMS = st.one_of(
    TEXTS.map(
        lambda text: {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": text}],
            "content": [{"type": "reasoning_text", "text": text}],
            "encrypted_content": "gA==",
        }
    ),
    st.lists(TEXTS, max_size=3).map(
        lambda texts: {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []} for text in texts],
        }
    ),
)


def replies(raw: st.SearchStrategy[Any]) -> st.SearchStrategy[Reply]:
    """Answers of any kind. `raw`: what the wire has besides text and calls."""
    texts = st.lists(raw.map(json.dumps), max_size=5)
    usage = st.sampled_from([None, {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2}])
    stops = st.sampled_from(["end", "max_tokens", "refusal"])
    return st.builds(Reply, text=st.none() | TEXTS, calls=CALLS, raw=texts, stop=stops, usage=usage)


Take = Callable[[str, Callable[[ModelStreamed], None]], ModelResponse | None]


def told(take: Take, events: list[tuple[str, str]]) -> Heard:
    """The answer that events add up to; only the last of them gives it."""
    heard: list[ModelStreamed] = []
    answers = [take(data, heard.append) for _, data in events]
    assert all(answer is None for answer in answers[:-1]) and answers[-1] is not None
    return Heard(answers[-1], heard)


@pytest.mark.spec("CF-01", "CF-03", "AN-04")
@settings(max_examples=120, deadline=None)
@given(replies(BLOCKS))
def test_an_answer_of_the_messages_wire_is_the_same_streamed_and_whole(reply: Reply) -> None:
    server = Messages()
    body = {"model": "m"}
    at_once = whole(server.whole(reply, 1, body), Asked("m", "r"))
    heard = told(MessageStream(Asked("m", "r")).take, list(server.events(reply, 1, body)))
    assert heard.response.usage == at_once.usage and heard.response.status == at_once.status
    assert [item.wire for item in heard.response.items] == [item.wire for item in at_once.items]
    if not any("server_tool_use" in raw for raw in reply.raw):  # what the vendor's types do not have
        check_story(heard)


@pytest.mark.spec("CF-01", "CF-03")
@settings(max_examples=120, deadline=None)
@given(replies(ITEMS))
def test_an_answer_of_the_responses_wire_is_the_same_streamed_and_whole(reply: Reply) -> None:
    server = Responses()
    body = {"model": "m", "input": "go", "store": False}
    model = OpenAIModel("m", api_key="k")
    at_once = read_response(server.whole(reply, 1, body), "openai:m", "r")
    heard = told(model._reader("r").take, list(server.events(reply, 1, body)))
    assert heard.response == at_once
    check_story(heard)
    # An answer that is there already is told in the same way.
    events = list(narrate(at_once, "m"))
    assert [event.type for event in events] == [event.type for event in heard.events]
