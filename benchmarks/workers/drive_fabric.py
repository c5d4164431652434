"""fabric: one-shot commands over SSH."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, Access, Answer, Command, Opened, Way, Ways, features


@contextlib.asynccontextmanager
async def ssh(access: Access) -> AsyncIterator[Ways]:
    """Another machine, through paramiko."""
    from fabric import Connection

    keys = {"key_filename": access["key"], "look_for_keys": False, "allow_agent": False}
    connection = Connection(
        access["host"], user=access["user"], port=int(access["port"]), connect_kwargs=keys
    )
    connection.open()

    def execute(command: Command) -> Answer:
        done = connection.run(command.text, hide=True, warn=True, in_stream=False, timeout=command.timeout_s)
        return Answer(done.stdout, done.exited, done.stderr)

    yield {EXEC: Way("Connection.run", lambda: Opened(execute), features("status timeout apart exact bash"))}
    connection.close()


DRIVERS = {"ssh": ssh}


def version() -> str:
    """As installed."""
    return metadata.version("fabric")
