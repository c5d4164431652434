"""Chooses a model for each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtime.errors import UserError
from runtime.models.decorator import Decorator
from runtime.models.model import Emit, Model, ModelRequest, ModelResponse


class Routed(Decorator):
    """Several models, one of which answers each request.

    models  by any names; the first gives the whole its name
    choose  names the model for a request

    Raises UserError for no models, and for a choice that names none.
    """

    def __init__(self, models: Mapping[str, Model], choose: Callable[[ModelRequest], str]) -> None:
        if not models:
            raise UserError("routing needs a model to choose")
        super().__init__(*models.values())
        self._by_name = dict(models)
        self._choose = choose

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer."""
        name = self._choose(request)
        if name not in self._by_name:
            raise UserError(f"no model is called {name!r}; there are {', '.join(self._by_name)}")
        return await self._by_name[name].respond(request, emit)
