"""openhands-tools: its terminal tool, and the workspace of its SDK for one-shot commands."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, SHELL, Access, Answer, Command, Opened, Way, Ways, features


def _shell(directory: str) -> Opened:
    from openhands.tools.terminal import TerminalAction
    from openhands.tools.terminal.impl import TerminalExecutor

    executor = TerminalExecutor(working_dir=directory, terminal_type="subprocess")

    def call(command: Command) -> Answer:
        seen = executor(TerminalAction(command=command.text, timeout=command.timeout_s))
        words = f"{seen.metadata.prefix}{seen.metadata.suffix}"
        if seen.exit_code == -1:
            # As its message tells the model: what runs still must be interrupted.
            executor(TerminalAction(command="C-c", is_input=True))
            return Answer(seen.text, None, timed_out=True, note=words)
        return Answer(seen.text, seen.exit_code, timed_out=False, note=words)

    return Opened(call, executor.close)


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """This machine."""
    from openhands.sdk.workspace import LocalWorkspace

    with tempfile.TemporaryDirectory() as directory:
        workspace = LocalWorkspace(working_dir=directory)

        def execute(command: Command) -> Answer:
            done = workspace.execute_command(command.text, timeout=command.timeout_s or 30.0)
            return Answer(done.stdout, done.exit_code, done.stderr, done.timeout_occurred)

        yield {
            SHELL: Way(
                "terminal tool, subprocess",
                lambda: _shell(directory),
                features("status timeout bounded bash"),
            ),
            EXEC: Way(
                "LocalWorkspace.execute_command",
                lambda: Opened(execute),
                features("status timeout apart exact"),
            ),
        }


DRIVERS = {"local": local}


def version() -> str:
    """As installed."""
    return metadata.version("openhands-tools")
