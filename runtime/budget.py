"""Limits of a run and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.errors import BudgetError, MaxTurnsError, UserError
from runtime.usage import Usage

DEFAULT_MAX_TURNS = 10
MAX_TURNS_UNLIMITED = -1
DEFAULT_MAX_CONSECUTIVE_ERROR_TURNS = 3
_PER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million tokens cost, in millionths of the caller's unit of money.

    cached_input  read from a cache; None: as other input
    cache_write   written to a cache; None: as other input
    """

    input: int
    output: int
    cached_input: int | None = None
    cache_write: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits besides turns; whichever is reached first ends the run. None: no limit.

    They are looked at before each model call: the calls of an answer always finish.

    max_tokens       all tokens, those of nested runs too
    deadline_s       seconds of work since the start; without pauses; ends a model call that takes longer
    max_cost_micros  by `prices`, in millionths of the unit of money
    prices           by the name of the model (`Model.name`); the runtime brings none
    """

    max_tokens: int | None = None
    deadline_s: float | None = None
    max_cost_micros: int | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)

    def check(self, usage: Usage, cost_micros: int, elapsed_s: float) -> None:
        """Raise BudgetError if a limit is reached."""
        if self.max_tokens is not None and usage.total_tokens >= self.max_tokens:
            raise BudgetError(
                f"the run used {usage.total_tokens} of its {self.max_tokens} tokens without an answer",
                "tokens",
            )
        if self.max_cost_micros is not None and cost_micros >= self.max_cost_micros:
            raise BudgetError(
                f"the run cost {cost_micros / _PER:g} of {self.max_cost_micros / _PER:g} without an answer",
                "cost",
            )
        if self.deadline_s is not None and elapsed_s >= self.deadline_s:
            raise self.too_late()

    def too_late(self) -> BudgetError:
        """The error of a run whose time is over."""
        return BudgetError(f"the run's {self.deadline_s:g} s are over", "deadline")

    def cost_micros(self, model: str, usage: Usage) -> int:
        """What a model call cost, rounded up; 0 for a model without a price.

        Raises BudgetError if the cost is limited and the model has no price: it would be a limit on nothing.
        """
        price = self.prices.get(model)
        if price is None:
            if self.max_cost_micros is not None:
                raise BudgetError(f"the cost is limited, but {model!r} has no price", "cost")
            return 0
        cached, written = usage.cached_input_tokens, usage.cache_write_tokens
        plain = max(0, usage.input_tokens - cached - written)
        total = (
            plain * price.input
            + cached * (price.input if price.cached_input is None else price.cached_input)
            + written * (price.input if price.cache_write is None else price.cache_write)
            + usage.output_tokens * price.output
        )
        return -(-total // _PER)


def turn_limit(max_turns: int) -> int:
    """The limit that an option means: 0 is the default of 10, -1 is none. Raises UserError below that."""
    if max_turns < MAX_TURNS_UNLIMITED:
        raise UserError(
            f"max_turns is {max_turns}; give a positive number, 0 for {DEFAULT_MAX_TURNS}, or -1 for no limit"
        )
    return max_turns or DEFAULT_MAX_TURNS


def check_turns(used: int, limit: int) -> None:
    """Raise MaxTurnsError if no turn is left."""
    if limit != MAX_TURNS_UNLIMITED and used >= limit:
        raise MaxTurnsError(f"the run used its {limit} turns without an answer")


def error_turn_limit(turns: int) -> int | None:
    """How many turns in a row may fail: 0 is the default of 3, a negative number is no limit (None)."""
    return None if turns < 0 else turns or DEFAULT_MAX_CONSECUTIVE_ERROR_TURNS


def sane(usage: Usage) -> Usage:
    """Usage as a provider may report it: no number below zero, and no part greater than its whole."""
    whole = max(0, usage.input_tokens)
    cached = min(max(0, usage.cached_input_tokens), whole)
    output = max(0, usage.output_tokens)
    return Usage(
        requests=max(0, usage.requests),
        input_tokens=whole,
        output_tokens=output,
        cached_input_tokens=cached,
        cache_write_tokens=min(max(0, usage.cache_write_tokens), whole - cached),
        reasoning_tokens=min(max(0, usage.reasoning_tokens), output),
    )
