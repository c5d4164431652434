"""The least that each kind of work can cost on a place: no framing, no status, no limits, no timeout."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from way import EXEC, LOOP, SHELL, Access, Answer, Command, Opened, Way, Ways, features

_BASH = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
_END = b"\x01"
_READY = "stty -echo -onlcr; PS1= PS2="
_KEEP_BYTES = 1 << 20
_READ_BYTES = 1 << 18


class Tail:
    """What a read loop keeps: the last MiB, and how much there was."""

    def __init__(self) -> None:
        self.total = 0
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """One more piece."""
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * _KEEP_BYTES:
            del self._kept[:-_KEEP_BYTES]

    def answer(self, status: int | None = None) -> Answer:
        """As an answer, without the end mark."""
        text = bytes(self._kept[-_KEEP_BYTES:]).removesuffix(_END).decode("utf-8", "replace")
        return Answer(text, status, total=self.total)


def typed_shell(
    send: Callable[[bytes], object], receive: Callable[[], bytes], close: Callable[[], object]
) -> Opened:
    """A bash on a terminal: type the command and a printf behind it, read until that has printed."""

    def call(command: Command) -> Answer:
        send(f"{command.text}; printf '\\001'\n".encode())
        tail = Tail()
        while True:
            data = receive()
            if not data:
                raise ConnectionError("the shell ended")
            tail.add(data)
            if data.endswith(_END):
                return tail.answer()

    call(Command(_READY))
    return Opened(call, lambda: (close(), None)[1])


def _read_loop(read: Callable[[], bytes]) -> Tail:
    tail = Tail()
    while data := read():
        tail.add(data)
    return tail


# ---- this machine ----------------------------------------------------------------------------


def _local_shell() -> Opened:
    import ptyprocess  # type: ignore[import-not-found, import-untyped, unused-ignore]

    child = ptyprocess.PtyProcess.spawn(_BASH, env={**os.environ, "TERM": "dumb", "PS1": ""}, echo=False)

    def close() -> None:
        # Its own close alone would wait a tenth of a second after each milder signal.
        child.kill(signal.SIGKILL)
        child.wait()
        child.delayafterclose = 0
        child.close()

    return typed_shell(
        lambda data: os.write(child.fd, data),
        lambda: os.read(child.fd, 65_536),
        close,
    )


def _local_exec(command: Command) -> Answer:
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL}
    if command.stdin is not None:
        given = {"input": command.stdin.encode()}
    done = subprocess.run(["bash", "-c", command.text], capture_output=True, **given)
    return Answer(done.stdout.decode(), done.returncode)


def _local_loop(command: Command) -> Answer:
    with subprocess.Popen(
        ["bash", "-c", command.text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        tail = _read_loop(lambda: os.read(descriptor, _READ_BYTES))
        return tail.answer(process.wait())


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """bash on a raw terminal; subprocess.run."""
    yield {
        SHELL: Way("bash on a raw PTY", _local_shell),
        EXEC: Way("subprocess.run bash -c", lambda: Opened(_local_exec), features("stdin")),
        LOOP: Way("read loop on a pipe", lambda: Opened(_local_loop)),
    }


# ---- another machine -------------------------------------------------------------------------


@contextlib.contextmanager
def _ssh_client(access: Access) -> Iterator[Any]:
    import paramiko

    client = paramiko.SSHClient()
    client.load_host_keys(access["known_hosts"])
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    with socket.create_connection((access["host"], int(access["port"])), timeout=10) as sock, client:
        # Without it, paramiko waits 40 ms for each channel.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect(
            access["host"],
            port=int(access["port"]),
            username=access["user"],
            key_filename=access["key"],
            sock=sock,
            allow_agent=False,
            look_for_keys=False,
            timeout=10,
        )
        yield client


def _ssh_ways(client: Any) -> Ways:
    def shell() -> Opened:
        channel = client.get_transport().open_session(timeout=10)
        channel.get_pty()
        channel.exec_command(" ".join(["exec", *_BASH]))
        return typed_shell(channel.sendall, lambda: bytes(channel.recv(65_536)), channel.close)

    def execute(command: Command) -> Answer:
        stdin, stdout, _ = client.exec_command(command.text)
        if command.stdin is not None:
            stdin.write(command.stdin.encode())
            stdin.channel.shutdown_write()
        output = stdout.read().decode()
        return Answer(output, stdout.channel.recv_exit_status())

    def loop(command: Command) -> Answer:
        channel = client.get_transport().open_session(timeout=10)
        channel.exec_command(command.text)
        tail = _read_loop(lambda: bytes(channel.recv(_READ_BYTES)))
        return tail.answer(channel.recv_exit_status())

    return {
        SHELL: Way("bash on a PTY channel", shell),
        EXEC: Way("paramiko exec_command", lambda: Opened(execute), features("stdin")),
        LOOP: Way("read loop on a channel", lambda: Opened(loop)),
    }


@contextlib.asynccontextmanager
async def ssh(access: Access) -> AsyncIterator[Ways]:
    """One connection of paramiko's, with TCP_NODELAY."""
    with _ssh_client(access) as client:
        yield _ssh_ways(client)


# ---- a container -----------------------------------------------------------------------------


@contextlib.contextmanager
def _docker_container(access: Access) -> Iterator[tuple[Any, Any]]:
    """A container without the limits that coderig sets; removed by its id."""
    import docker

    client = docker.DockerClient(base_url=access["url"], timeout=60)
    try:
        container = client.containers.run(
            access["image"], ["sleep", "3600"], detach=True, init=True, network_mode="none"
        )
        try:
            yield client.api, container.id
        finally:
            container.remove(force=True, v=True)
    finally:
        client.close()


def _docker_ways(api: Any, container: str) -> Ways:
    def shell() -> Opened:
        made = api.exec_create(container, _BASH, stdin=True, tty=True, environment={"PS1": ""})
        stream = api.exec_start(made["Id"], tty=True, socket=True)
        sock: socket.socket = stream._sock
        # docker-py's own timeout would cost a poll for each read.
        sock.settimeout(None)
        return typed_shell(sock.sendall, lambda: sock.recv(65_536), stream.close)

    def execute(command: Command) -> Answer:
        made = api.exec_create(container, ["bash", "-c", command.text])
        output, _ = api.exec_start(made["Id"], demux=True)
        return Answer((output or b"").decode(), api.exec_inspect(made["Id"])["ExitCode"])

    def loop(command: Command) -> Answer:
        made = api.exec_create(container, ["bash", "-c", command.text])
        tail = Tail()
        for piece in api.exec_start(made["Id"], stream=True):
            tail.add(piece)
        return tail.answer(api.exec_inspect(made["Id"])["ExitCode"])

    return {
        SHELL: Way("bash on an exec's TTY", shell),
        EXEC: Way("exec through the API", lambda: Opened(execute)),
        LOOP: Way("read loop on an exec's stream", lambda: Opened(loop)),
    }


@contextlib.asynccontextmanager
async def docker(access: Access) -> AsyncIterator[Ways]:
    """A container, and docker-py."""
    with _docker_container(access) as (api, container):
        yield _docker_ways(api, container)


DRIVERS = {"local": local, "ssh": ssh, "docker": docker}


def version() -> str:
    """The Python that it runs under."""
    return platform.python_version()
