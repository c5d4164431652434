"""What a driver of a contender is made of. Standard library only: it runs in every peer's environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

SHELL, EXEC = "named shell", "one-shot exec"
LOOP = "raw read loop"
"""What a floor also has: output as fast as it can be read, of which a tail is kept."""

# What a way can do. A case of fidelity.py that needs more is not put to it.
STATUS = "status"  # tells the exit status
APART = "apart"  # keeps standard error apart from standard output
STDIN = "stdin"  # takes input for the command
TIMEOUT = "timeout"  # takes a timeout for each command
EXACT = "exact"  # gives the output as printed, final newlines included
BOUNDED = "bounded"  # keeps a bounded part of the output, by design
BLIND = "blind"  # cannot tell when a command has ended
BASH = "bash"  # commands are bash's, not sh's


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `timeout_s` None: whatever the contender does by itself."""

    text: str
    timeout_s: float | None = None
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the contender said. None: it does not tell.

    note   words of its own about what happened to the command, if they are not in the output
    total  how many bytes the command printed, of which `output` may be a part; None: `output` is all
    """

    output: str
    status: int | None = None
    stderr: str | None = None
    timed_out: bool | None = None
    note: str = ""
    total: int | None = None


Call = Callable[[Command], "Answer | Awaitable[Answer]"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A shell, or whatever one-shot commands go through. A blocking contender's functions are plain."""

    call: Call
    close: Callable[[], None | Awaitable[None]] = lambda: None


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run commands.

    label     how it is called there
    open      a new shell; for one-shot commands, the place itself
    """

    label: str
    open: Callable[[], Opened | Awaitable[Opened]]
    features: frozenset[str] = frozenset()


Ways = dict[str, Way]
Access = dict[str, str]
Driver = Callable[[Access], AbstractAsyncContextManager[Ways]]
"""Opens a contender at one place. A module drive_NAME.py has DRIVERS, by place, and version()."""


def features(words: str) -> frozenset[str]:
    """From their names, separated by spaces."""
    return frozenset(words.split())
