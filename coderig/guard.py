"""Turns what can go wrong in a command into words on standard error and an exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from coderig.place import PlaceError
from coderig.session import FAILED, USAGE, Interrupted
from coderig.store import StoreError
from coderig.terminal_io import OutputGone, Stream
from codetools import PolicyError
from runtime import AgentError, UserError
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
    except (PlaceError, PolicyError, RequestError, UsageError, UserError) as error:
        complain(error)
        raise typer.Exit(USAGE) from None
    except OutputGone as error:
        if not error.broken_pipe:
            complain(error)
        raise typer.Exit(place_failed if not error.broken_pipe else 128 + signal.SIGPIPE) from None
    except SandboxError as error:
        complain(error)
        raise typer.Exit(place_failed) from None
    except (AgentError, StoreError) as error:
        complain(error)
        raise typer.Exit(FAILED) from None
    except Interrupted as stop:
        raise typer.Exit(stop.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None
    except typer.Exit:
        raise
    except Exception as error:  # a bug of ours: a person gets words, and the traceback where it was asked for
        _report(error)
        raise typer.Exit(place_failed) from None


def _report(error: Exception) -> None:
    import os
    import traceback

    if os.environ.get("CODERIG_DEBUG"):
        Stream(2, quiet=True).write("".join(traceback.format_exception(error)))
    complain(f"this should not have happened: {type(error).__name__}: {error} (CODERIG_DEBUG=1 shows more)")
