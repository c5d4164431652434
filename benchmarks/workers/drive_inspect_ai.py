"""inspect-ai: its local sandbox environment."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, Access, Answer, Command, Opened, Way, Ways, features


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """This machine."""
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment
    from inspect_ai.util._subprocess import init_max_subprocesses

    init_max_subprocesses(64)
    places = await LocalSandboxEnvironment.sample_init("bench", None, {})
    place = places["default"]

    async def execute(command: Command) -> Answer:
        seconds = None if command.timeout_s is None else max(1, round(command.timeout_s))
        done = await place.exec(["bash", "-c", command.text], input=command.stdin, timeout=seconds)
        return Answer(done.stdout, done.returncode, done.stderr, False)

    async def one_shot() -> Opened:
        return Opened(execute)

    yield {EXEC: Way("exec", one_shot, features("status timeout apart stdin exact bounded bash"))}
    await LocalSandboxEnvironment.sample_cleanup("bench", None, places, False)


DRIVERS = {"local": local}


def version() -> str:
    """As installed."""
    return metadata.version("inspect-ai")
