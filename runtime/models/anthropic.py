"""Anthropic's Messages API, through its own client. What it says is translated in the modules beside it."""

from __future__ import annotations

from typing import Any

from runtime.errors import UserError
from runtime.models import anthropic_answer, anthropic_wire, http
from runtime.models.anthropic_answer import Asked
from runtime.models.anthropic_stream import MessageStream
from runtime.models.model import ModelRequest, ModelResponse


class AnthropicModel(http.HttpModel):
    """A model behind the Messages API. Raises UserError where the client is missing or has no key."""

    provider = "anthropic"
    path = "/v1/messages"
    request_id_header = "request-id"

    def _client(self, options: dict[str, Any]) -> Any:
        try:
            import anthropic
        except ImportError as error:
            message = "the anthropic client is not installed: pip install 'coderig[anthropic]'"
            raise UserError(message) from error
        try:
            client = anthropic.AsyncAnthropic(**options)
        except anthropic.AnthropicError as error:
            raise UserError(f"anthropic: {error}") from error
        if not (client.api_key or client.auth_token or client.credentials):
            raise UserError("anthropic: no key was found; set ANTHROPIC_API_KEY or give `api_key`")
        return client

    def _client_errors(self) -> type[Exception]:
        import anthropic

        return anthropic.AnthropicError

    def _parts(self, request: ModelRequest) -> dict[str, str]:
        return anthropic_wire.parts(self._model, request)

    def _whole(self, text: str, request_id: str) -> ModelResponse:
        return anthropic_answer.whole(text, Asked(self._model, request_id))

    def _reader(self, request_id: str) -> http.StreamReader:
        return MessageStream(Asked(self._model, request_id))
