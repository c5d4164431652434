"""The least that each kind of work can cost on a place: no framing, no status, no limits, no checks."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import docker
import paramiko
import ptyprocess
from services.docker_service import DockerService
from services.ssh_service import SshService

from benchmarks.measure import timed

Call = Callable[[str], Callable[[], float]]
"""From a command to what runs it once and returns the seconds."""

# The commands that are measured, and what each must print.
ANSWERS = {"true": b"", "echo hi": b"hi\n"}
_BASH = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
_END = b"\x01"
_READY = "stty -echo -onlcr; PS1= PS2="


class WrongAnswer(Exception):
    """A contender did not do the work."""


def check(command: str, output: bytes, status: int | None = 0) -> None:
    """Refuse an answer that is not the command's."""
    if output != ANSWERS[command] or status != 0:
        raise WrongAnswer(f"{command!r} gave status {status} and {output[:200]!r}")


def _typed_shell(send: Callable[[bytes], object], receive: Callable[[], bytes]) -> Call:
    """A bash on a terminal: type the command and a printf behind it, read until that has printed."""

    def converse(line: bytes) -> bytes:
        send(line)
        got = b""
        while _END not in got:
            data = receive()
            if not data:
                raise WrongAnswer("the shell ended")
            got += data
        return got.partition(_END)[0]

    def prepare(command: str) -> Callable[[], float]:
        line = f"{command}; printf '\\001'\n".encode()

        def work() -> None:
            check(command, converse(line))

        return timed(work)

    converse(f"{_READY}; printf '\\001'\n".encode())
    return prepare


@contextlib.contextmanager
def local_shell() -> Iterator[Call]:
    """bash on a raw terminal of this machine."""
    child = ptyprocess.PtyProcess.spawn(_BASH, env={**os.environ, "TERM": "dumb", "PS1": ""}, echo=False)
    try:
        yield _typed_shell(lambda data: os.write(child.fd, data), lambda: os.read(child.fd, 65_536))
    finally:
        child.close(force=True)


@contextlib.contextmanager
def local_exec() -> Iterator[Call]:
    """subprocess.run of bash -c."""

    def prepare(command: str) -> Callable[[], float]:
        def work() -> None:
            done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True)
            check(command, done.stdout, done.returncode)

        return timed(work)

    yield prepare


@contextlib.contextmanager
def ssh_client(service: SshService) -> Iterator[paramiko.SSHClient]:
    """A connection with TCP_NODELAY: without it, paramiko waits 40 ms for each channel."""
    client = paramiko.SSHClient()
    client.load_host_keys(str(service.known_hosts_file))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    with socket.create_connection((service.host, service.port), timeout=10) as sock, client:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect(
            service.host,
            port=service.port,
            username=service.user,
            key_filename=str(service.identity_file),
            sock=sock,
            allow_agent=False,
            look_for_keys=False,
            timeout=10,
        )
        yield client


@contextlib.contextmanager
def ssh_shell(client: paramiko.SSHClient) -> Iterator[Call]:
    """bash on a terminal on one channel."""
    transport = client.get_transport()
    assert transport is not None
    channel = transport.open_session(timeout=10)
    try:
        channel.get_pty()
        channel.exec_command(" ".join(["exec", *_BASH]))
        yield _typed_shell(channel.sendall, lambda: channel.recv(65_536))
    finally:
        channel.close()


@contextlib.contextmanager
def ssh_exec(client: paramiko.SSHClient) -> Iterator[Call]:
    """paramiko's exec_command, read to its end."""

    def prepare(command: str) -> Callable[[], float]:
        def work() -> None:
            _, stdout, _ = client.exec_command(command)
            output = stdout.read()
            check(command, output, stdout.channel.recv_exit_status())

        return timed(work)

    yield prepare


@contextlib.contextmanager
def docker_container(service: DockerService, **options: Any) -> Iterator[tuple[docker.DockerClient, Any]]:
    """A container of ours, without the limits that coderig sets; removed by its id."""
    client = docker.DockerClient(base_url=service.url, timeout=60)
    try:
        container = client.containers.run(
            service.debian_image,
            ["sleep", "3600"],
            **{"detach": True, "init": True, "network_mode": "none", **options},
        )
        try:
            yield client, container
        finally:
            container.remove(force=True, v=True)
    finally:
        client.close()


@contextlib.contextmanager
def docker_shell(client: docker.DockerClient, container: Any) -> Iterator[Call]:
    """bash on a terminal over the exec's hijacked connection."""
    api: Any = client.api
    made = api.exec_create(container.id, _BASH, stdin=True, tty=True, environment={"PS1": ""})
    stream = api.exec_start(made["Id"], tty=True, socket=True)
    sock: socket.socket = stream._sock
    # docker-py's own timeout would cost a poll for each read.
    sock.settimeout(None)
    try:
        yield _typed_shell(sock.sendall, lambda: sock.recv(65_536))
    finally:
        stream.close()


@contextlib.contextmanager
def docker_exec(client: docker.DockerClient, container: Any) -> Iterator[Call]:
    """An exec through the API: create, start, read to its end, inspect."""
    api: Any = client.api

    def prepare(command: str) -> Callable[[], float]:
        def work() -> None:
            made = api.exec_create(container.id, ["bash", "-c", command])
            output, _ = api.exec_start(made["Id"], demux=True)
            check(command, output or b"", api.exec_inspect(made["Id"])["ExitCode"])

        return timed(work)

    yield prepare
