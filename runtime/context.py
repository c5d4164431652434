"""What a run lets the caller's own functions look at: instructions, hooks, filters, handoffs, tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from runtime.items import Item
from runtime.usage import Usage

Context = TypeVar("Context", default=Any)
"""The type of the caller's own value."""
Output = TypeVar("Output", default=str)
"""The type of a run's answer."""


@dataclass(slots=True, kw_only=True)
class RunContext(Generic[Context]):
    """One run, as the caller's functions see it. Each run makes its own, nested runs too.

    value       the caller's own (`RunOptions.context`); a nested run shares it
    agent       the name of the agent that works now
    turn        the number of the model call that is being made, or was made last; 0 before the first
    turn_input  what that call really sends: all of it, or what is new where the service keeps the rest
    usage       tokens of this run so far; a value, so it does not change
    """

    value: Context
    agent: str = ""
    turn: int = 0
    turn_input: Sequence[Item] = ()
    usage: Usage = Usage()
