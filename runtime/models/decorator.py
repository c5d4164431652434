"""What models that wrap other models share: connections, attempts, and what they have to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runtime.errors import ModelError
from runtime.events import ModelStreamed
from runtime.models.model import Connected, Emit, Model
from runtime.models.stream import PREAMBLE, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNotice:
    """What a decorator does about a failure, for people and logs.

    kind     "retry": the same model is asked again, after `wait_s` seconds; "fallback": the next model is
             asked; "stream_error": an answer failed after part of it had been told, so nothing can be done
    model    the model that failed
    attempt  which attempt of it that was, from 1
    """

    kind: Literal["retry", "fallback", "stream_error"]
    model: str
    attempt: int
    error: ModelError
    wait_s: float = 0.0


Notify = Callable[[ModelNotice], None]


def ignore(notice: ModelNotice) -> None:
    """Nobody wants to know."""


class Decorator:
    """A model around others. It is called what the first of them is called, and keeps their connections."""

    def __init__(self, *models: Model) -> None:
        self.models = models

    @property
    def name(self) -> str:
        """What people call it."""
        return self.models[0].name

    def connect(self) -> None:
        """See Connected."""
        for model in self.models:
            if isinstance(model, Connected):
                model.connect()

    async def release(self) -> None:
        """See Connected."""
        for model in self.models:
            if isinstance(model, Connected):
                await model.release()


class Attempt:
    """Takes the events of one attempt, and holds them while the attempt can still be replaced by another.

    That is until something of the answer is told: events before it, and the one that tells of a failure,
    are held. With `hold_all` it is until the answer is whole.
    """

    def __init__(self, emit: Emit, *, hold_all: bool = False) -> None:
        self._emit = emit
        self._hold_all = hold_all
        self._held: list[ModelStreamed] = []
        self.committed = False

    def __call__(self, event: ModelStreamed) -> None:
        """Take an event."""
        if self.committed:
            self._emit(event)
            return
        self._held.append(event)
        if not self._hold_all and event.type not in PREAMBLE and event.type != EventType.FAILED:
            self.release()

    def release(self) -> None:
        """Pass on what is held: this attempt is the one that counts."""
        self.committed = True
        held, self._held = self._held, []
        for event in held:
            self._emit(event)


def wraps(model: Model, kind: type[Decorator]) -> bool:
    """Whether a model is such a decorator, or has one inside."""
    if isinstance(model, kind):
        return True
    return isinstance(model, Decorator) and any(wraps(inner, kind) for inner in model.models)
