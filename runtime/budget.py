"""Limits of a run and what is left of them."""

from __future__ import annotations

from runtime.errors import MaxTurnsError, UserError

DEFAULT_MAX_TURNS = 10
MAX_TURNS_UNLIMITED = -1
DEFAULT_MAX_CONSECUTIVE_ERROR_TURNS = 3


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
