"""strands-agents: what its agents run commands in. It has no named shell."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import metadata
from typing import Any

from way import EXEC, Access, Answer, Command, Opened, Way, Ways, features


def _ways(place: Any, label: str) -> Ways:
    from strands.sandbox.errors import SandboxTimeoutError

    async def execute(command: Command) -> Answer:
        try:
            done = await place.execute(command.text, timeout=command.timeout_s)
        except SandboxTimeoutError as error:
            return Answer(error.stdout, None, error.stderr, True, str(error))
        return Answer(done.stdout, done.exit_code, done.stderr, False)

    async def one_shot() -> Opened:
        return Opened(execute)

    return {EXEC: Way(label, one_shot, features("status timeout apart exact"))}


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """This machine."""
    from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment

    yield _ways(NotASandboxLocalEnvironment(), "execute")


DRIVERS = {"local": local}


def version() -> str:
    """As installed."""
    return metadata.version("strands-agents")
