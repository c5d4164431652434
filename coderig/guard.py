"""Turns what can go wrong in a command into words on standard error and an exit code."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from coderig.place import PlaceError
from coderig.signals import FAILED, USAGE, Interrupted
from coderig.terminal_io import OutputGone, Stream
from sandbox import RequestError, SandboxError


class UsageError(Exception):
    """The command line asks for something that makes no sense; the message says what."""


def complain(words: object) -> None:
    """One remark on standard error."""
    Stream(2, quiet=True).write(f"coderig: {words}\n")


@contextmanager
def guarded(place_failed: int = FAILED) -> Iterator[None]:
    """Run a command's body. `place_failed`: the exit code for a place, or an output, that fails."""
    try:
        yield
    except typer.Exit:
        raise
    except Interrupted as stop:
        raise typer.Exit(stop.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None
    except OutputGone as error:
        if error.broken_pipe:
            raise typer.Exit(128 + signal.SIGPIPE) from None
        complain(error)
        raise typer.Exit(place_failed) from None
    except Exception as error:  # whatever it is, a person gets words for it
        raise typer.Exit(_exit_code(error, place_failed)) from None


def _exit_code(error: Exception, place_failed: int) -> int:
    if isinstance(error, PlaceError | RequestError | UsageError):
        complain(error)
        return USAGE
    if isinstance(error, SandboxError):
        complain(error)
        return place_failed
    # `exec` needs none of these, and starts faster without them.
    from coderig.store import StoreError
    from codetools import PolicyError
    from runtime import AgentError, UserError

    if isinstance(error, PolicyError | UserError):
        complain(error)
        return USAGE
    if isinstance(error, AgentError | StoreError):
        complain(error)
        return FAILED
    _report(error)
    return place_failed


def _report(error: Exception) -> None:
    if os.environ.get("CODERIG_DEBUG"):
        Stream(2, quiet=True).write("".join(traceback.format_exception(error)))
    complain(f"this should not have happened: {type(error).__name__}: {error} (CODERIG_DEBUG=1 shows more)")
