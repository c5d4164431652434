"""The Model seam: items in, items out.

A model gets the conversation as items in the Responses wire format and answers with items in that format. An
adapter for another wire translates inside its own module. It does not retry, reads no state but its own
client's, keeps nothing of a request after it has answered, and ends promptly when its task is cancelled.

There is one call, and its answer is whole. A model that streams tells it besides, event by event, as the
Responses wire does (`runtime.models.stream` has the names): `response.created` comes first, each finished
item is told once, in order, by `response.output_item.done`, and `response.completed` or
`response.incomplete` comes last and holds the whole answer. Nothing comes after that. A stream that fails
ends with an error and without that last event. Whoever wants no events passes a function that ignores them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from runtime.events import ModelStreamed
from runtime.items import Item
from runtime.schema import JSON
from runtime.usage import Usage

DEFAULT_MODEL_TIMEOUT_S = 600.0

Effort = Literal["minimal", "low", "medium", "high"]
Truncation = Literal["auto", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is asked. None leaves a choice to the provider; nothing is added that is not set here.

    tool_choice    "auto", "required", "none", or the name of a tool
    effort         how long a reasoning model may think
    prompt_cache   mark the conversation as worth caching where the wire has such a mark
    stream         ask for the answer as a stream; False: in one piece, for servers that cannot stream
    timeout_s      how long a model may be silent: until its answer, or in a stream until the next event of
                   it (signs of life do not count); 0 or less: the default of 600
    store          whether the service keeps the answer; without, reasoning goes back only with its
                   `encrypted_content` (ask for it with `include`)
    include        what the answer shall hold besides, as "reasoning.encrypted_content"
    truncation     "auto" lets the service drop the middle of a conversation that is too long
    chain          let the service keep the conversation, and send only what is new since its last answer
    conversation   the id of a conversation that the service keeps; only what is new is sent
    extra_*        added to the request as they are; they win over what the adapter sets

    What a provider does not have is a UserError that names it.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    effort: Effort | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache: bool = True
    stream: bool = True
    store: bool | None = None
    include: Sequence[str] = ()
    truncation: Truncation | None = None
    chain: bool = False
    conversation: str | None = None
    timeout_s: float = DEFAULT_MODEL_TIMEOUT_S
    extra_body: Mapping[str, JSON] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    extra_query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    strict: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """A JSON schema that the answer's text has to follow.

    strict  hold the model to it, where the provider can; it is only told of it otherwise
    """

    name: str
    schema: Mapping[str, JSON]
    strict: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model. `items` is a view that does not change; every call in it has its output.

    output                what the answer's text has to look like; None: as it likes
    previous_response_id  the model's last answer, if this conversation has one ("": none)
    previous_length       how many of `items` that answer ends: the rest is new since then
    """

    instructions: str
    items: Sequence[Item]
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: OutputSchema | None = None
    previous_response_id: str = ""
    previous_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """What a model answered.

    status             "completed", or "incomplete" with a reason such as "max_output_tokens"
    response_id        the provider's id of the answer
    request_id         the provider's id of the HTTP request, for its support
    """

    items: tuple[Item, ...]
    usage: Usage
    response_id: str = ""
    status: str = "completed"
    incomplete_reason: str = ""
    request_id: str = ""


Emit = Callable[[ModelStreamed], None]
"""Takes one event of the provider's stream; never blocks; called on the event loop."""


@runtime_checkable
class Connected(Protocol):
    """What a model may have besides: connections that are worth keeping from one answer to the next.

    A run calls `connect` before its first model call and `release` after its last; runs may overlap.
    """

    def connect(self) -> None:
        """Someone is about to use the model on the running event loop."""
        ...

    async def release(self) -> None:
        """One user is done; the last one's connections are closed. The model can be used again."""
        ...


class Model(Protocol):
    """A language model. Raises ModelError and its children, and UserError for settings it does not have."""

    @property
    def name(self) -> str:
        """What people call it, as "openai:gpt-5"."""
        ...

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer once. `emit` gets the events of a model that streams; the answer is whole either way."""
        ...
