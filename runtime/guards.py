"""Where a run asks its guardrails: the seam between the loop and what judges its input and its answer.

A turn asks at these places, in this order:

1. `before`, on the run's first turn with the run's input, and for input that joins later: before anything of
   it is saved and before the model is asked.
2. `beside`, on the first turn: it makes the model call, and may judge the input while the call is on its way.
   Nothing of the answer is kept before it returns.
3. for each call of a tool, in `tool_batch`: after its arguments are read, and with its output.
4. `after`, with every answer that a run is about to end with, also those of error handlers and early stops:
   after `on_end`, before the answer is saved.

Each appends what it asked to `run.state.guardrails`. Raising GuardrailTripped fails the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from runtime.items import Item
from runtime.models.model import ModelResponse

if TYPE_CHECKING:
    from runtime.live import LiveRun


class Guards(Protocol):
    """Judges a run. `run.agent` is who works; the run's own guardrails are in its options."""

    async def before(self, run: LiveRun, items: Sequence[Item]) -> str | None:
        """Judge input. A text replaces it: one message of the user, in the model call that follows and in
        what is saved. None: it stays as it is."""
        ...

    async def beside(
        self, run: LiveRun, items: Sequence[Item], ask: Callable[[], Awaitable[ModelResponse]]
    ) -> tuple[ModelResponse, str | None]:
        """Make the model call, and judge the input meanwhile. Cancels the call if the input is refused. A
        text replaces the input from the next turn on; it is saved already."""
        ...

    async def after(self, run: LiveRun, output: Any) -> Any:
        """Judge an answer, and give it or what replaces it."""
        ...


class Unguarded:
    """Lets everything pass."""

    async def before(self, run: LiveRun, items: Sequence[Item]) -> str | None:
        """See Guards."""
        return None

    async def beside(
        self, run: LiveRun, items: Sequence[Item], ask: Callable[[], Awaitable[ModelResponse]]
    ) -> tuple[ModelResponse, str | None]:
        """See Guards."""
        return await ask(), None

    async def after(self, run: LiveRun, output: Any) -> Any:
        """See Guards."""
        return output
