"""swe-rex: a local runtime, or its server in a container."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Any

from way import EXEC, SHELL, Access, Answer, Command, Opened, Way, Ways, features


def _ways(runtime: Any) -> Ways:
    from swerex.exceptions import CommandTimeoutError
    from swerex.runtime import abstract as rex

    names = (f"s{number}" for number in itertools.count())

    async def shell() -> Opened:
        name = next(names)
        await runtime.create_session(rex.CreateBashSessionRequest(session=name))

        async def call(command: Command) -> Answer:
            action = rex.BashAction(
                command=command.text, session=name, timeout=command.timeout_s, check="silent"
            )
            try:
                seen = await runtime.run_in_session(action)
            except CommandTimeoutError as error:
                # What its users do then (SWE-agent); the output so far comes with that.
                seen = await runtime.run_in_session(rex.BashInterruptAction(session=name))
                return Answer(seen.output, None, timed_out=True, note=str(error))
            return Answer(seen.output, seen.exit_code, timed_out=False)

        async def close() -> None:
            await runtime.close_session(rex.CloseBashSessionRequest(session=name))

        return Opened(call, close)

    async def execute(command: Command) -> Answer:
        done = await runtime.execute(rex.Command(command=command.text, shell=True, timeout=command.timeout_s))
        return Answer(done.stdout, done.exit_code, done.stderr, False)

    async def one_shot() -> Opened:
        return Opened(execute)

    return {
        SHELL: Way("run_in_session", shell, features("status timeout bash")),
        EXEC: Way("execute", one_shot, features("status timeout apart exact")),
    }


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """In this process."""
    from swerex.runtime.local import LocalRuntime

    runtime = LocalRuntime()
    yield _ways(runtime)
    await runtime.close()


@contextlib.asynccontextmanager
async def docker(access: Access) -> AsyncIterator[Ways]:
    """Its server in a container, reached over HTTP."""
    from swerex.deployment.docker import DockerDeployment

    # The container reaches no package index: it gets the server from this environment.
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    with tempfile.TemporaryDirectory() as directory:
        server = Path(directory) / "swerex-remote"
        server.write_text('#!/bin/sh\nexec python3 -m swerex.server "$@"\n', encoding="utf-8")
        server.chmod(0o755)
        mounts = ["-v", f"{packages}:/opt/rex:ro", "-v", f"{server}:/usr/local/bin/swerex-remote:ro"]
        deployment = DockerDeployment(
            image=access["image"],
            pull="never",
            startup_timeout=45.0,
            docker_args=[*mounts, "-e", "PYTHONPATH=/opt/rex", "-e", "PYTHONDONTWRITEBYTECODE=1"],
        )
        try:
            await deployment.start()
            yield _ways(deployment.runtime)
        finally:
            await deployment.stop()


DRIVERS = {"local": local, "docker": docker}


def version() -> str:
    """As installed."""
    return metadata.version("swe-rex")
