"""OpenAI's Responses API, through its own client. Any server that speaks this wire will do (`base_url`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runtime.errors import ModelBehaviorError, ModelError, UserError
from runtime.items import Item, ItemKind, from_wire
from runtime.models import http
from runtime.models.model import Emit, ModelRequest, ModelResponse, ModelSettings, ToolSpec
from runtime.schema import JSON, JsonError, clean_text, dump, elements
from runtime.usage import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIModel:
    """A model behind the Responses API. Raises UserError where the client is missing or has no key.

    base_url  None: the client's own default
    api_key   None: the client looks where it always looks

    The conversation goes out as the text that came in, in one request without streaming. Nothing is retried.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._clients = http.Clients(self._client)

    @property
    def name(self) -> str:
        """The provider and the model."""
        return f"openai:{self._model}"

    def connect(self) -> None:
        """Keep connections from now on (see Connected)."""
        self._clients.connect()

    async def release(self) -> None:
        """Close connections that nobody keeps any more (see Connected)."""
        await self._clients.release()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once."""
        import httpx2
        import openai

        settings = request.settings
        content = http.body(_parts(self._model, request), settings.extra_body)
        try:
            async with self._clients.borrowed() as client:
                reply = await client.post(
                    "/responses",
                    cast_to=httpx2.Response,
                    content=content,
                    options={
                        "headers": {"Content-Type": "application/json", **settings.extra_headers},
                        "params": dict(settings.extra_query),
                        "timeout": http.timeout(settings.timeout_s),
                    },
                )
        except openai.OpenAIError as error:
            raise http.failure(self.name, error) from error
        return _response(reply.text, reply.headers.get("x-request-id", ""))

    def _client(self) -> AsyncOpenAI:
        try:
            import openai
        except ImportError as error:
            raise UserError("the openai client is not installed: pip install 'coderig[openai]'") from error
        try:
            return openai.AsyncOpenAI(api_key=self._api_key, base_url=self._base_url, max_retries=0)
        except openai.OpenAIError as error:
            raise UserError(f"openai: {error}") from error


def _parts(model: str, request: ModelRequest) -> dict[str, str]:
    parts = {"model": dump(model), "input": "[" + ",".join(map(_sendable, request.items)) + "]"}
    if request.instructions:
        parts["instructions"] = dump(clean_text(request.instructions))
    if request.tools:
        parts["tools"] = dump([_tool(tool) for tool in request.tools])
    parts.update(
        (key, dump(value)) for key, value in _settings(request.settings).items() if value is not None
    )
    return parts


def _sendable(item: Item) -> str:
    if item.kind != ItemKind.TOOL_CALL:
        return item.raw
    name = item.call.name
    accepted = http.sendable_name(name)
    return item.raw if accepted == name else dump({**item.wire, "name": accepted})


def _settings(settings: ModelSettings) -> dict[str, JSON]:
    choice: JSON = settings.tool_choice
    if choice not in (None, "auto", "required", "none"):
        choice = {"type": "function", "name": settings.tool_choice}
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_output_tokens,
        "reasoning": {"effort": settings.effort} if settings.effort else None,
        "tool_choice": choice,
        "parallel_tool_calls": settings.parallel_tool_calls,
    }


def _tool(tool: ToolSpec) -> dict[str, JSON]:
    return {
        "type": "function",
        "name": tool.name,
        "description": clean_text(tool.description),
        "parameters": tool.parameters,
        "strict": tool.strict and can_be_strict(tool.parameters),
    }


def can_be_strict(schema: JSON) -> bool:
    """Whether the service can hold a model to a schema: every object closed, and all its members required.

    It refuses a request that asks for it with any other schema.
    """
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if schema.get("type") == "object" or isinstance(properties, Mapping):
            names = set(properties) if isinstance(properties, Mapping) else set()
            required = schema.get("required", [])
            closed = schema.get("additionalProperties") is False
            if not closed or not isinstance(required, Sequence) or names != set(required):
                return False
        return all(can_be_strict(part) for part in schema.values())
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return all(can_be_strict(part) for part in schema)
    return True


def _response(text: str, request_id: str) -> ModelResponse:
    found = http.answer(text)
    values: dict[str, JSON] = {key: value for key, (value, _) in found.items()}
    status = http.text(values, "status") or "completed"
    if status not in ("completed", "incomplete"):
        reason = http.text(values, "error", "message") or "no reason given"
        raise ModelError(f"the service answered with the status {status!r}: {reason}")
    if "output" not in found:
        raise ModelError("the service's answer has no output")
    return ModelResponse(
        items=_items(found["output"][1]),
        usage=_usage(values.get("usage")),
        response_id=http.text(values, "id"),
        status=status,
        incomplete_reason=http.text(values, "incomplete_details", "reason"),
        request_id=request_id,
    )


def _items(output: str) -> tuple[Item, ...]:
    try:
        return tuple(from_wire(raw) for _, raw in elements(output))
    except JsonError as error:
        raise ModelBehaviorError(f"the model's output cannot be read: {error}") from None


def _usage(value: JSON) -> Usage:
    return Usage(
        requests=1,
        input_tokens=http.count(value, "input_tokens"),
        output_tokens=http.count(value, "output_tokens"),
        cached_input_tokens=http.count(value, "input_tokens_details", "cached_tokens"),
        reasoning_tokens=http.count(value, "output_tokens_details", "reasoning_tokens"),
    )
