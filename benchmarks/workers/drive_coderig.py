"""coderig itself, with its defaults."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, SHELL, Access, Answer, Command, Opened, Way, Ways, features

from sandbox import DockerSandbox, ExecResult, LocalSandbox, Sandbox, ShellResult, SSHSandbox
from sandbox.backends.docker import DockerOptions
from sandbox.backends.ssh import SshOptions
from sandbox.values import Output

_SHELLS_EACH = 10
"""How many shells are opened in one sandbox before the next one's turn, where there are several."""


def _text(output: Output) -> tuple[str, int]:
    return output.data.decode("utf-8", "surrogateescape"), len(output.data) + output.dropped_bytes


def exec_answer(result: ExecResult) -> Answer:
    """An exec's result in the words of a way."""
    output, total = _text(result.stdout_output)
    return Answer(output, result.exit_code, _text(result.stderr_output)[0], result.timed_out, "", total)


def shell_answer(result: ShellResult) -> Answer:
    """A shell's result in the words of a way."""
    output, total = _text(result.captured)
    return Answer(output, result.exit_code, None, result.timed_out, result.notice, total)


def _ways(boxes: list[Sandbox], name: str) -> Ways:
    numbers = itertools.count()

    def one_shot() -> Opened:
        box = boxes[0]

        def call(command: Command) -> Answer:
            stdin = None if command.stdin is None else command.stdin.encode()
            return exec_answer(box.exec(command.text, timeout_s=command.timeout_s or 0, stdin=stdin))

        return Opened(call)

    def shell() -> Opened:
        number = next(numbers)
        opened = boxes[number // _SHELLS_EACH % len(boxes)].shell(f"s{number}")
        opened.run(":")

        def call(command: Command) -> Answer:
            return shell_answer(opened.run(command.text, timeout_s=command.timeout_s or 0))

        return Opened(call, opened.close)

    common = "status timeout exact bounded bash"
    return {
        SHELL: Way(name, shell, features(common)),
        EXEC: Way(name, one_shot, features(f"{common} apart stdin")),
    }


def _open(place: str, access: Access) -> Sandbox:
    # So that whatever a command leaves behind can be found (contenders.py).
    env = {"CODERIG_BENCH": os.environ["CODERIG_BENCH"]} if "CODERIG_BENCH" in os.environ else {}
    if place == "local":
        return LocalSandbox(access.get("directory"), env=env)
    if place == "docker":
        return DockerSandbox(DockerOptions(image=access["image"], host=access["url"]), env=env)
    options = SshOptions(
        host=access["host"],
        port=int(access["port"]),
        user=access["user"],
        identity_file=access["key"],
        known_hosts_file=access["known_hosts"],
        use_ssh_config=False,
    )
    return SSHSandbox(options, env=env)


def _driver(place: str, name: str):  # type: ignore[no-untyped-def]
    @contextlib.asynccontextmanager
    async def driver(access: Access) -> AsyncIterator[Ways]:
        with contextlib.ExitStack() as stack:
            count = int(access.get("sandboxes", "1"))
            yield _ways([stack.enter_context(_open(place, access)) for _ in range(count)], name)

    return driver


DRIVERS = {
    "local": _driver("local", "LocalSandbox"),
    "ssh": _driver("ssh", "SSHSandbox"),
    "docker": _driver("docker", "DockerSandbox"),
}


def version() -> str:
    """What is measured."""
    return metadata.version("coderig")
