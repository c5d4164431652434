"""What a case of fidelity.py is made of, and the rules for what no shell can be asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

SHELL, EXEC = "named shell", "one-shot exec"
BOTH = (SHELL, EXEC)
# What a way of running commands must have for a case to be put to it (workers/way.py).
STATUS, APART, STDIN, TIMEOUT, EXACT, BASH = "status", "apart", "stdin", "timeout", "exact", "bash"
BOUND_S = 6.0
"""How long a command that ends at once may take."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a contender answered. `output` is normalised (see fidelity_judge.py), `raised` its exception."""

    output: str
    status: int | None
    stderr: str | None
    timed_out: bool | None
    seconds: float
    raised: str = ""


Judge = Callable[[Seen], str]
"""What is wrong with an answer; "": nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command.

    out, status  what is right; None for both: what the real shell says
    judge        further rules; with it and neither of both, it alone judges
    """

    command: str
    out: str | None = None
    status: int | None = None
    judge: Judge | None = None
    timeout_s: float = BOUND_S
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Commands, one after the other, in one shell or as one-shots."""

    name: str
    steps: tuple[Step, ...]
    kinds: tuple[str, ...] = BOTH
    needs: frozenset[str] = frozenset()


# ---- rules ---------------------------------------------------------------------------------


def has(*words: str) -> Judge:
    """The output holds these, in this order."""

    def judge(seen: Seen) -> str:
        at = 0
        for word in words:
            at = seen.output.find(word, at)
            if at < 0:
                return f"{word!r} is not in the output: {seen.output[-120:]!r}"
            at += len(word)
        return ""

    return judge


def ends_with(word: str) -> Judge:
    """The output's last line is this."""

    def judge(seen: Seen) -> str:
        last = seen.output.rstrip("\n").rpartition("\n")[2]
        return "" if last == word else f"the output ends with {last[-120:]!r}"

    return judge


def matches(pattern: str) -> Judge:
    """The whole output is like this, final newlines apart."""

    def judge(seen: Seen) -> str:
        return (
            "" if re.fullmatch(pattern, seen.output.strip("\n")) else f"the output is {seen.output[-160:]!r}"
        )

    return judge


def anything(seen: Seen) -> str:
    """No rule."""
    return ""


def fails(seen: Seen) -> str:
    """A status other than 0, where one is told."""
    return "status 0" if seen.status == 0 else ""


def told(within_s: float) -> Judge:
    """Ended in time, and said that it was the timeout."""

    def judge(seen: Seen) -> str:
        if seen.seconds > within_s:
            return f"came back after {seen.seconds:.1f} s"
        if seen.raised:
            return "" if "time" in seen.raised.lower() else f"raised {seen.raised}"
        said = seen.timed_out or seen.status == 124 or "timed out" in seen.output.lower()
        return "" if said else f"does not tell that the time was up (status {seen.status})"

    return judge


def all_of(*judges: Judge) -> Judge:
    """Every rule."""

    def judge(seen: Seen) -> str:
        return next((wrong for rule in judges if (wrong := rule(seen))), "")

    return judge
