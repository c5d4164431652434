"""One peer at one place, in that peer's own environment; driven by peers.py over JSON lines.

Asked: {"kind", "command"}. Answered: {"output", "status", "seconds"} or {"error"}. A status of null: the
peer does not tell. The time is taken here, around the peer's own call. Each peer is used as its own
documentation shows, with its defaults, unless a label says otherwise.
"""

# mypy: disable-error-code="import-not-found, import-untyped"
# The peers are not installed where this is checked.

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

Answer = tuple[str, int | None]
Way = Callable[[str], Awaitable[Answer]]
Ways = dict[str, tuple[str, Way]]
SHELL, EXEC = "named shell", "one-shot exec"
_QUIET_BASH = ["bash", "--norc", "--noprofile", "--noediting", "-i"]


def _rex_ways(runtime: Any) -> Ways:
    from swerex.runtime.abstract import BashAction, Command

    async def in_session(command: str) -> Answer:
        seen = await runtime.run_in_session(BashAction(command=command))
        return seen.output, seen.exit_code

    async def execute(command: str) -> Answer:
        done = await runtime.execute(Command(command=command, shell=True))
        return done.stdout, done.exit_code

    return {SHELL: ("run_in_session", in_session), EXEC: ("execute", execute)}


@contextlib.asynccontextmanager
async def swe_rex_local(access: dict[str, str]) -> AsyncIterator[Ways]:
    from swerex.runtime.abstract import CreateBashSessionRequest
    from swerex.runtime.local import LocalRuntime

    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest())
    yield _rex_ways(runtime)
    await runtime.close()


@contextlib.asynccontextmanager
async def swe_rex_docker(access: dict[str, str]) -> AsyncIterator[Ways]:
    from swerex.deployment.docker import DockerDeployment
    from swerex.runtime.abstract import CreateBashSessionRequest

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
            await deployment.runtime.create_session(CreateBashSessionRequest())
            yield _rex_ways(deployment.runtime)
        finally:
            await deployment.stop()


async def _agents_ways(session: Any) -> Ways:
    await session.start()
    opened = await session.pty_exec_start(*_QUIET_BASH, shell=False, tty=True)
    number = opened.process_id

    async def write(command: str) -> Answer:
        seen = await session.pty_write_stdin(session_id=number, chars=f"{command}\n", yield_time_s=0.25)
        return seen.output.decode(), None

    async def execute(command: str) -> Answer:
        done = await session.exec(command)
        return done.stdout.decode(), done.exit_code

    await write("stty -echo; PS1= PS2=")
    return {SHELL: ("pty_write_stdin, its least wait", write), EXEC: ("exec", execute)}


@contextlib.asynccontextmanager
async def openai_agents_local(access: dict[str, str]) -> AsyncIterator[Ways]:
    from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient

    client = UnixLocalSandboxClient()
    session = await client.create()
    try:
        yield await _agents_ways(session)
    finally:
        await session.aclose()
        await client.delete(session)


@contextlib.asynccontextmanager
async def openai_agents_docker(access: dict[str, str]) -> AsyncIterator[Ways]:
    import docker
    from agents.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions

    client = DockerSandboxClient(docker.from_env())
    options = DockerSandboxClientOptions(image=access["image"], network_mode="none")
    session = await client.create(options=options)
    try:
        yield await _agents_ways(session)
    finally:
        await session.aclose()
        await client.delete(session)


@contextlib.asynccontextmanager
async def inspect_local(access: dict[str, str]) -> AsyncIterator[Ways]:
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment
    from inspect_ai.util._subprocess import init_max_subprocesses

    init_max_subprocesses(4)
    places = await LocalSandboxEnvironment.sample_init("bench", None, {})
    place = places["default"]

    async def execute(command: str) -> Answer:
        done = await place.exec(["bash", "-c", command])
        return done.stdout, done.returncode

    yield {EXEC: ("exec", execute)}
    await LocalSandboxEnvironment.sample_cleanup("bench", None, places, False)


@contextlib.asynccontextmanager
async def pexpect_local(access: dict[str, str]) -> AsyncIterator[Ways]:
    import pexpect
    import pexpect.replwrap

    repl = pexpect.replwrap.bash()

    async def in_repl(command: str) -> Answer:
        return repl.run_command(command, timeout=20), None

    async def execute(command: str) -> Answer:
        output, status = pexpect.run(f"bash -c {shlex.quote(command)}", withexitstatus=True)
        return output.decode(), status

    yield {SHELL: ("replwrap.bash, no status", in_repl), EXEC: ("run", execute)}
    repl.child.close(force=True)


@contextlib.asynccontextmanager
async def pexpect_ssh(access: dict[str, str]) -> AsyncIterator[Ways]:
    from pexpect import pxssh

    if not shutil.which("ssh"):
        raise RuntimeError("there is no ssh program")
    shell = pxssh.pxssh(options={"UserKnownHostsFile": access["known_hosts"]}, echo=False)
    shell.login(access["host"], access["user"], port=int(access["port"]), ssh_key=access["key"])
    shell.sendline("stty -echo; bind 'set enable-bracketed-paste off'")
    shell.prompt(timeout=20)

    async def in_shell(command: str) -> Answer:
        shell.sendline(command)
        if not shell.prompt(timeout=20):
            raise TimeoutError("no prompt")
        return shell.before.decode(), None

    yield {SHELL: ("pxssh, no status", in_shell)}
    shell.close(force=True)


@contextlib.asynccontextmanager
async def fabric_ssh(access: dict[str, str]) -> AsyncIterator[Ways]:
    from fabric import Connection

    keys = {"key_filename": access["key"], "look_for_keys": False, "allow_agent": False}
    connection = Connection(
        access["host"], user=access["user"], port=int(access["port"]), connect_kwargs=keys
    )
    connection.open()

    async def execute(command: str) -> Answer:
        done = connection.run(command, hide=True, in_stream=False)
        return done.stdout, done.exited

    yield {EXEC: ("Connection.run", execute)}
    connection.close()


@contextlib.asynccontextmanager
async def asyncssh_ssh(access: dict[str, str]) -> AsyncIterator[Ways]:
    import asyncssh

    async with asyncssh.connect(
        access["host"],
        int(access["port"]),
        username=access["user"],
        client_keys=[access["key"]],
        known_hosts=access["known_hosts"],
    ) as connection:

        async def execute(command: str) -> Answer:
            done = await connection.run(command)
            return str(done.stdout), done.exit_status

        yield {EXEC: ("run", execute)}


OPENERS = {
    ("swe-rex", "local"): swe_rex_local,
    ("swe-rex", "docker"): swe_rex_docker,
    ("openai-agents", "local"): openai_agents_local,
    ("openai-agents", "docker"): openai_agents_docker,
    ("inspect-ai", "local"): inspect_local,
    ("pexpect", "local"): pexpect_local,
    ("pexpect", "ssh"): pexpect_ssh,
    ("fabric", "ssh"): fabric_ssh,
    ("asyncssh", "ssh"): asyncssh_ssh,
}


async def serve(package: str, place: str, access: dict[str, str], answers: Any) -> None:
    """Answer questions until there are no more."""

    def say(answer: dict[str, object]) -> None:
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()

    loop = asyncio.get_running_loop()
    try:
        async with OPENERS[package, place](access) as ways:
            labels = {kind: label for kind, (label, _) in ways.items()}
            say({"version": metadata.version(package), "kinds": labels})
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                question = json.loads(line)
                way = ways[question["kind"]][1]
                began = time.perf_counter()
                output, status = await way(question["command"])
                seconds = time.perf_counter() - began
                say({"output": output, "status": status, "seconds": seconds})
    except Exception as error:  # the reason belongs into the table
        say({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]})
        raise


if __name__ == "__main__":
    # Whatever a peer prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asyncio.run(serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), answers))
