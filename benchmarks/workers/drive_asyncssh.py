"""asyncssh: one-shot commands over SSH."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, Access, Answer, Command, Opened, Way, Ways, features


@contextlib.asynccontextmanager
async def ssh(access: Access) -> AsyncIterator[Ways]:
    """Another machine, over one connection."""
    import asyncssh

    async with asyncssh.connect(
        access["host"],
        int(access["port"]),
        username=access["user"],
        client_keys=[access["key"]],
        known_hosts=access["known_hosts"],
    ) as connection:

        async def execute(command: Command) -> Answer:
            given = {} if command.stdin is None else {"input": command.stdin}
            done = await connection.run(command.text, timeout=command.timeout_s, errors="replace", **given)
            status = done.exit_status if done.exit_status is not None else done.returncode
            return Answer(str(done.stdout), status, str(done.stderr), False)

        async def one_shot() -> Opened:
            return Opened(execute)

        yield {EXEC: Way("run", one_shot, features("status timeout apart stdin exact bash"))}


DRIVERS = {"ssh": ssh}


def version() -> str:
    """As installed."""
    return metadata.version("asyncssh")
