"""For services that answer as a stream only."""

from __future__ import annotations

from dataclasses import replace

from runtime.events import ModelStreamed
from runtime.models import failures
from runtime.models.decorator import Decorator
from runtime.models.model import Emit, Model, ModelRequest, ModelResponse
from runtime.models.stream import Assembler


class StreamOnly(Decorator):
    """A model that is always asked for a stream, and whose answer is what the stream's last event holds.

    Put it directly around the model, inside any other decorator. Its answers have no request id.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._model = model

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer. Raises ModelError for a stream that ends without an answer."""
        wanted = request.settings.stream
        assembler = Assembler(self.name)
        answers: list[ModelResponse] = []

        def take(event: ModelStreamed) -> None:
            response = assembler.add(event)
            if response is not None:
                answers.append(response)
            if wanted:
                emit(event)

        await self._model.respond(replace(request, settings=replace(request.settings, stream=True)), take)
        if not answers:
            raise failures.truncated(self.name, "no event said that it is")
        return answers[0]
