"""Peers: installed from PyPI into environments of their own, each driven through a worker process.

A worker measures inside itself, so the conversation with it is not counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.floors import check

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".venv" / "bench"
_WORKER = Path(__file__).with_name("peer_worker.py")
_INSTALL_LIMIT_S = 600
_OPEN_LIMIT_S = 60.0
_CALL_LIMIT_S = 25.0
_END_LIMIT_S = 15.0


class PeerAbsent(Exception):
    """A peer cannot take part; the text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A package that also runs commands.

    requirements  what pip installs, if more than the package
    """

    package: str
    places: tuple[str, ...]
    requirements: tuple[str, ...] = ()


PEERS = (
    Peer("swe-rex", ("local", "docker"), ("swe-rex", "aiohttp")),
    Peer("openai-agents", ("local", "docker"), ("openai-agents[docker]",)),
    Peer("inspect-ai", ("local",)),
    Peer("pexpect", ("local", "ssh")),
    Peer("fabric", ("ssh",)),
    Peer("asyncssh", ("ssh",)),
)
NOT_DRIVEN = {
    "local": {"openhands-tools": "needs Python 3.12"},
    "docker": {"inspect-ai": "drives `docker compose`, which is not part of what the tests install"},
}
"""Peers without a worker, by place, and why."""


class Worker:
    """A peer at work in a process of its own. `kinds`: what it can do, and how that is called there."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdin and process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._buffer = b""
        hello = self._answer(_OPEN_LIMIT_S)
        self.version = str(hello["version"])
        self.kinds: dict[str, str] = hello["kinds"]

    def call(self, kind: str) -> Callable[[str], Callable[[], float]]:
        """One kind of its work as a contender's."""

        def prepare(command: str) -> Callable[[], float]:
            question = json.dumps({"kind": kind, "command": command}).encode() + b"\n"

            def once() -> float:
                self._stdin.write(question)
                self._stdin.flush()
                answer = self._answer(_CALL_LIMIT_S)
                # Not every peer keeps a terminal's line ends, or the last one.
                said = str(answer["output"]).replace("\r\n", "\n").strip()
                status = 0 if answer["status"] is None else answer["status"]
                check(command, f"{said}\n".encode() if said else b"", status)
                return float(answer["seconds"])

            return once

        return prepare

    def _answer(self, limit_s: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if not self._selector.select(limit_s):
                raise PeerAbsent(f"no answer within {limit_s:g} s")
            data = os.read(self._stdout.fileno(), 65_536)
            if not data:
                raise PeerAbsent("its worker ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerAbsent(str(answer["error"]))
        return answer

    def close(self) -> None:
        """Let it end; end it if it does not."""
        self._selector.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_LIMIT_S)
        self._stdout.close()


@contextlib.contextmanager
def start(peer: Peer, place: str, access: dict[str, str]) -> Iterator[Worker]:
    """A worker that is ready. `access`: how the place is reached. Raises PeerAbsent."""
    python = install(peer)
    log = ENVIRONMENTS / f"{peer.package}-{place}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [str(python), str(_WORKER), peer.package, place, json.dumps(access)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(python, access),
            start_new_session=True,
        )
    try:
        worker = Worker(process)
    except PeerAbsent:
        process.kill()
        process.wait(_END_LIMIT_S)
        raise
    try:
        yield worker
    finally:
        worker.close()


def _environment(python: Path, access: dict[str, str]) -> dict[str, str]:
    env = {**os.environ, "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}"}
    if "url" in access:
        env["DOCKER_HOST"] = access["url"]
    return env


def install(peer: Peer) -> Path:
    """The Python of the peer's environment, made at the first use. Raises PeerAbsent."""
    home = ENVIRONMENTS / peer.package
    python, done = home / "bin" / "python", home / ".installed"
    wanted = peer.requirements or (peer.package,)
    if done.exists() and done.read_text(encoding="utf-8").split() == list(wanted):
        return python
    print(f"installing {' '.join(wanted)}", file=sys.stderr, flush=True)
    venv.create(home, with_pip=True, clear=True, symlinks=True)
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise PeerAbsent(f"pip took more than {_INSTALL_LIMIT_S} s") from None
    if tried.returncode != 0:
        raise PeerAbsent(f"pip: {(tried.stderr.strip().splitlines() or ['failed'])[-1][:200]}")
    done.write_text(" ".join(wanted), encoding="utf-8")
    return python
