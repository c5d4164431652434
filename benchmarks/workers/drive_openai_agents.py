"""openai-agents: its local and its Docker sandbox client. The terminal tells no exit status."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import metadata
from typing import Any

from way import EXEC, SHELL, Access, Answer, Command, Opened, Way, Ways, features

_QUIET_BASH = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
_LEAST_WAIT_S = 0.25
_WAIT_S = 1.5


def _ways(session: Any) -> Ways:
    async def shell() -> Opened:
        opened = await session.pty_exec_start(*_QUIET_BASH, shell=False, tty=True)
        number = opened.process_id

        async def write(text: str, wait_s: float = _LEAST_WAIT_S) -> str:
            seen = await session.pty_write_stdin(session_id=number, chars=text, yield_time_s=wait_s)
            return str(seen.output.decode("utf-8", "surrogateescape"))

        await write("stty -echo; PS1= PS2=\n")

        async def call(command: Command) -> Answer:
            # It gives what came within a wait, and always waits so long; who has time waits longer.
            return Answer(
                await write(f"{command.text}\n", _LEAST_WAIT_S if command.timeout_s is None else _WAIT_S)
            )

        return Opened(call)

    async def execute(command: Command) -> Answer:
        done = await session.exec(command.text, timeout=command.timeout_s)
        output = done.stdout.decode("utf-8", "surrogateescape")
        return Answer(output, done.exit_code, done.stderr.decode("utf-8", "surrogateescape"), False)

    async def one_shot() -> Opened:
        return Opened(execute)

    return {
        SHELL: Way("pty_write_stdin, its least wait", shell, features("bash blind")),
        EXEC: Way("exec", one_shot, features("status timeout apart exact")),
    }


@contextlib.asynccontextmanager
async def _session(client: Any, **options: Any) -> AsyncIterator[Ways]:
    session = await client.create(**options)
    try:
        await session.start()
        yield _ways(session)
    finally:
        await session.aclose()
        await client.delete(session)


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """This machine."""
    from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient

    async with _session(UnixLocalSandboxClient()) as ways:
        yield ways


@contextlib.asynccontextmanager
async def docker(access: Access) -> AsyncIterator[Ways]:
    """A container."""
    import docker as docker_py
    from agents.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions

    options = DockerSandboxClientOptions(image=access["image"], network_mode="none")
    async with _session(DockerSandboxClient(docker_py.from_env()), options=options) as ways:
        yield ways


DRIVERS = {"local": local, "docker": docker}


def version() -> str:
    """As installed."""
    return metadata.version("openai-agents")
