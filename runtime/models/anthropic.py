"""Anthropic's Messages API, through its own client. The translation itself is in anthropic_wire.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.errors import UserError
from runtime.models import anthropic_wire, http
from runtime.models.model import Emit, ModelRequest, ModelResponse

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class AnthropicModel:
    """A model behind the Messages API. Raises UserError where the client is missing or has no key.

    base_url  None: the client's own default
    api_key   None: the client looks where it always looks

    One request without streaming. Nothing is retried.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._clients = http.Clients(self._client)

    @property
    def name(self) -> str:
        """The provider and the model."""
        return f"anthropic:{self._model}"

    def connect(self) -> None:
        """Keep connections from now on (see Connected)."""
        self._clients.connect()

    async def release(self) -> None:
        """Close connections that nobody keeps any more (see Connected)."""
        await self._clients.release()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once. Raises UserError for settings that this wire does not have, before anything is sent."""
        import anthropic
        import httpx2

        settings = request.settings
        content = http.body(anthropic_wire.parts(self._model, request), settings.extra_body)
        try:
            async with self._clients.borrowed() as client:
                reply = await client.post(
                    "/v1/messages",
                    cast_to=httpx2.Response,
                    content=content,
                    options={
                        "headers": {"Content-Type": "application/json", **settings.extra_headers},
                        "params": dict(settings.extra_query),
                        "timeout": http.timeout(settings.timeout_s),
                    },
                )
        except anthropic.AnthropicError as error:
            raise http.failure(self.name, error) from error
        return anthropic_wire.response(reply.text, reply.headers.get("request-id", ""))

    def _client(self) -> AsyncAnthropic:
        try:
            import anthropic
        except ImportError as error:
            message = "the anthropic client is not installed: pip install 'coderig[anthropic]'"
            raise UserError(message) from error
        try:
            client = anthropic.AsyncAnthropic(api_key=self._api_key, base_url=self._base_url, max_retries=0)
        except anthropic.AnthropicError as error:
            raise UserError(f"anthropic: {error}") from error
        if not (client.api_key or client.auth_token or client.credentials):
            raise UserError("anthropic: no key was found; set ANTHROPIC_API_KEY or give `api_key`")
        return client
