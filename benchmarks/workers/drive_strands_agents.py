"""strands-agents: what its agents run commands in. It has no named shell."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
import subprocess
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


@contextlib.asynccontextmanager
async def docker(access: Access) -> AsyncIterator[Ways]:
    """A container, which it wants to be there already; through the docker program."""
    from strands.sandbox.docker import DockerSandbox

    def client(*words: str) -> str:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    container = client("run", "-d", "--init", "--network=none", access["image"], "sleep", "3600")
    try:
        yield _ways(DockerSandbox(container), "execute, docker run before it")
    finally:
        client("rm", "-f", "-v", container)


DRIVERS = {"local": local, "docker": docker}


def version() -> str:
    """As installed."""
    return metadata.version("strands-agents")
