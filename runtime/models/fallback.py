"""Asks another model when one fails."""

from __future__ import annotations

from collections.abc import Callable

from runtime.errors import ContextOverflowError, ModelError, UserError
from runtime.models.decorator import Attempt, Decorator, ModelNotice, Notify, ignore
from runtime.models.model import Emit, Model, ModelRequest, ModelResponse


def any_but_overflow(error: ModelError) -> bool:
    """Every failure, but that a conversation is too long: that is for whoever can shorten it."""
    return not isinstance(error, ContextOverflowError)


class Fallback(Decorator):
    """Models that are asked in order, until one answers.

    when      whether a failure lets the next model try
    hold_all  tell nothing of an answer before it is whole, so that a stream that breaks can be replaced too
    notify    is told of each change of model, and of each failure that came too late for one

    Each request begins with the first. Whoever reads the events sees those of one model. Raises UserError for
    no model at all, and for settings that leave the conversation with one service.
    """

    def __init__(
        self,
        *models: Model,
        when: Callable[[ModelError], bool] = any_but_overflow,
        hold_all: bool = False,
        notify: Notify = ignore,
    ) -> None:
        if not models:
            raise UserError("a fallback needs a model to begin with")
        super().__init__(*models)
        self._when = when
        self._hold_all = hold_all
        self._notify = notify

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer. Raises the last model's error; what the others said is in its notes."""
        if request.settings.chain or request.settings.conversation is not None:
            raise UserError("a conversation that one service keeps cannot fall back to another model")
        failed: list[str] = []
        places = iter(self.models)
        model = next(places)
        while True:
            attempt = Attempt(emit, hold_all=self._hold_all)
            try:
                response = await model.respond(request, attempt)
            except ModelError as error:
                following = None if attempt.committed or not self._when(error) else next(places, None)
                if following is None:
                    self._give_up(attempt, model, error, failed)
                    raise
                failed.append(str(error))
                self._notify(ModelNotice(kind="fallback", model=model.name, attempt=1, error=error))
                model = following
            else:
                attempt.release()
                return response

    def _give_up(self, attempt: Attempt, model: Model, error: ModelError, failed: list[str]) -> None:
        for words in failed:
            error.add_note(f"before that: {words}")
        if attempt.committed:
            self._notify(ModelNotice(kind="stream_error", model=model.name, attempt=1, error=error))
        attempt.release()
