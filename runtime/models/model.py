"""The Model seam: items in, items out.

A model gets the conversation as items in the Responses wire format and answers with items in that format. An
adapter for another wire translates inside its own module. It does not retry, reads no state but its own
client's, keeps nothing of a request after it has answered, and ends promptly when its task is cancelled.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is asked. None leaves a choice to the provider; nothing is added that is not set here.

    tool_choice    "auto", "required", "none", or the name of a tool
    effort         how long a reasoning model may think
    prompt_cache   mark the conversation as worth caching where the wire has such a mark
    timeout_s      for one model call; 0 or less: the default of 600
    extra_*        added to the request as they are; they win over what the adapter sets
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    effort: Effort | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache: bool = True
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
class ModelRequest:
    """One call of a model. `items` is a view that does not change; every call in it has its output."""

    instructions: str
    items: Sequence[Item]
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)


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
