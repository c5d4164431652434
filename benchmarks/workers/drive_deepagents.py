"""deepagents: its local shell backend, without a named shell. Standard error comes in the output, marked."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, Access, Answer, Command, Opened, Way, Ways, features


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """This machine."""
    from deepagents.backends import LocalShellBackend

    with tempfile.TemporaryDirectory() as directory:
        backend = LocalShellBackend(root_dir=directory, inherit_env=True)

        def execute(command: Command) -> Answer:
            seconds = None if command.timeout_s is None else max(1, round(command.timeout_s))
            done = backend.execute(command.text, timeout=seconds)
            # Without its own words for a model; the status is a field, too.
            output = done.output.removesuffix(f"\n\nExit code: {done.exit_code}")
            return Answer("" if output == "<no output>" else output, done.exit_code)

        yield {
            EXEC: Way(
                "LocalShellBackend.execute", lambda: Opened(execute), features("status timeout bounded")
            )
        }


DRIVERS = {"local": local}


def version() -> str:
    """As installed."""
    return metadata.version("deepagents")
