"""Asks a model again when its failure may pass."""

from __future__ import annotations

import asyncio
import random
from typing import Literal

from runtime.errors import ModelError, UserError
from runtime.models.decorator import Attempt, Decorator, ModelNotice, Notify, ignore, wraps
from runtime.models.model import Emit, Model, ModelRequest, ModelResponse


class Retry(Decorator):
    """A model that is asked again after a failure that may pass (`ModelError.transient`).

    retries     how often at most, after the first attempt
    base_s      seconds before the first retry; each further wait is twice as long, and a little of it is
                chance, so that many clients do not come back at once
    max_wait_s  the longest wait; a service that asks for more ends the retries with that error
    hold_all    tell nothing of an answer before it is whole: then a stream that breaks in the middle can be
                retried too, and nobody sees the answer grow
    notify      is told of each retry, and of each failure that came too late for one

    Whoever reads the events sees those of one attempt. Once something of an answer was told, its failure is
    passed on. Cancelling ends a wait at once. Raises UserError around a model that already retries: waits
    and attempts would multiply.
    """

    def __init__(
        self,
        model: Model,
        *,
        retries: int = 2,
        base_s: float = 1.0,
        max_wait_s: float = 60.0,
        hold_all: bool = False,
        notify: Notify = ignore,
    ) -> None:
        super().__init__(model)
        if wraps(model, Retry):
            raise UserError(f"{model.name} is retried already; one layer of retries is enough")
        self._model = model
        self._retries = retries
        self._base_s = base_s
        self._max_wait_s = max_wait_s
        self._hold_all = hold_all
        self._notify = notify

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer. Raises the last attempt's error."""
        number = 0
        while True:
            number += 1
            attempt = Attempt(emit, hold_all=self._hold_all)
            try:
                response = await self._model.respond(request, attempt)
            except ModelError as error:
                wait_s = None if attempt.committed else self._wait_s(error, number)
                if wait_s is None:
                    self._give_up(attempt, error, number)
                    raise
                self._tell("retry", error, number, wait_s)
                await asyncio.sleep(wait_s)
            else:
                attempt.release()
                return response

    def _wait_s(self, error: ModelError, number: int) -> float | None:
        if not error.transient or number > self._retries:
            return None
        doubled_s = self._base_s * 2.0 ** min(number - 1, 30)
        wait_s = min(self._max_wait_s, doubled_s) * random.uniform(0.75, 1.0)
        asked_s = error.retry_after_s or 0.0
        if asked_s > self._max_wait_s:
            error.add_note(f"it asks to wait {asked_s:g} s; at most {self._max_wait_s:g} s are waited")
            return None
        return max(wait_s, asked_s)

    def _give_up(self, attempt: Attempt, error: ModelError, number: int) -> None:
        if attempt.committed:
            self._tell("stream_error", error, number)
        attempt.release()

    def _tell(
        self, kind: Literal["retry", "stream_error"], error: ModelError, number: int, wait_s: float = 0.0
    ) -> None:
        notice = ModelNotice(kind=kind, model=self._model.name, attempt=number, error=error, wait_s=wait_s)
        self._notify(notice)
