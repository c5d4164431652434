"""OpenAI's Responses API, through its own client. Any server that speaks this wire will do (`base_url`)."""

from __future__ import annotations

from typing import Any

from runtime.errors import ModelError, UserError
from runtime.events import ModelStreamed
from runtime.models import failures, http, openai_wire, wire
from runtime.models.model import Emit, ModelRequest, ModelResponse
from runtime.models.stream import PREFIX, Assembler, EventType, read_response


class OpenAIModel(http.HttpModel):
    """A model behind the Responses API. Raises UserError where the client is missing or has no key.

    The conversation goes out as the text that came in, and the events of a stream are passed on as they come.
    """

    provider = "openai"
    path = "/responses"
    request_id_header = "x-request-id"

    def _client(self, options: dict[str, Any]) -> Any:
        try:
            import openai
        except ImportError as error:
            raise UserError("the openai client is not installed: pip install 'coderig[openai]'") from error
        try:
            return openai.AsyncOpenAI(**options)
        except openai.OpenAIError as error:
            raise UserError(f"openai: {error}") from error

    def _client_errors(self) -> type[Exception]:
        import openai

        return openai.OpenAIError

    def _parts(self, request: ModelRequest) -> dict[str, str]:
        return openai_wire.parts(self._model, request)

    def _whole(self, text: str, request_id: str) -> ModelResponse:
        return read_response(text, self.name, request_id)

    def _reader(self, request_id: str) -> http.StreamReader:
        return _Reader(self.name, request_id)


class _Reader:
    def __init__(self, service: str, request_id: str) -> None:
        self._service = service
        self._assembler = Assembler(service, request_id)
        self.heard = 0

    def take(self, data: str, emit: Emit) -> ModelResponse | None:
        if data == "[DONE]":
            return None
        try:
            value = wire.load(data)
        except ValueError as error:
            raise ModelError(
                f"{self._service}: an event of the stream is broken: {error}", transient=True
            ) from None
        kind = wire.text(value, "type")
        if kind == "error" or (not kind and wire.member(value, "error") is not None):
            told = wire.member(value, "error")
            raise failures.from_event(self._service, value if told is None else told)
        if not kind.startswith(PREFIX):
            return None
        self.heard += 1
        event = ModelStreamed(kind, data)
        if kind == EventType.FAILED:
            emit(event)
        response = self._assembler.add(event)
        emit(event)
        return response
