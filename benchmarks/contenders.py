"""Contenders: the floors, coderig and its peers, each in a process of its own (workers/worker.py)."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import ENVIRONMENTS, PEERS, Peer, PeerAbsent, install

_ROOT = Path(__file__).resolve().parents[1]
_WORKERS = Path(__file__).resolve().parent / "workers"
_MARK = "CODERIG_BENCH"
_OPEN_LIMIT_S = 90.0
_END_LIMIT_S = 20.0


class NoAnswer(Exception):
    """A contender gave no answer within its bound, or ended; the text says which."""


class Failed(Exception):
    """A contender could not do what it was asked; the text is its own."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who, and where. `peer` None: part of this repository."""

    name: str
    place: str
    peer: Peer | None = None

    @property
    def ours(self) -> bool:
        """Whether a failure of it is ours."""
        return self.peer is None


def contenders(place: str, *, with_peers: bool, floor: bool = True) -> list[Contender]:
    """Everybody at one place: the floor, coderig, then the peers."""
    found = [Contender("floor", place)] if floor else []
    found.append(Contender("coderig", place))
    if with_peers:
        found += [Contender(peer.package, place, peer) for peer in PEERS if place in peer.places]
    return found


class Worker:
    """A contender at work. `ways`: by kind of work, how that is called there, and its features."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self._process, self._mark = process, mark
        assert process.stdin and process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._buffer = b""
        hello = self._answer(_OPEN_LIMIT_S)
        self.version = str(hello["version"])
        self.ways: dict[str, dict[str, Any]] = hello["ways"]

    def ask(self, what: str, *, limit_s: float, **question: object) -> dict[str, Any]:
        """One question of the worker's (its `ask_` methods). Raises Failed; NoAnswer: it is of no use now."""
        try:
            self._stdin.write(json.dumps({"ask": what, **question}).encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise NoAnswer("its process ended") from None
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if not self._selector.select(limit_s):
                raise NoAnswer(f"no answer within {limit_s:g} s")
            data = os.read(self._stdout.fileno(), 1 << 20)
            if not data:
                raise NoAnswer("its process ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(str(answer["error"]))
        return answer

    def close(self) -> None:
        """Let it end; end it, and what it left behind, if it does not."""
        self._selector.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_S)
        self.kill()
        self._stdout.close()

    def kill(self) -> None:
        """End its process and everything that was started from it."""
        # First the worker, which could start more.
        self._process.kill()
        self._process.wait(_END_LIMIT_S)
        for pid in left_behind(self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def left_behind(mark: str) -> list[int]:
    """The processes of this machine that carry a worker's mark in their environment."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


@contextlib.contextmanager
def started(contender: Contender, access: dict[str, str], directory: Path | None = None) -> Iterator[Worker]:
    """A worker that is ready, in a directory of its own. Raises PeerAbsent, Failed, NoAnswer."""
    worker = start(contender, access, directory)
    try:
        yield worker
    finally:
        worker.close()


def start(contender: Contender, access: dict[str, str], directory: Path | None = None) -> Worker:
    """As `started`, for who closes it."""
    python = install(contender.peer) if contender.peer else Path(sys.executable)
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    mark = secrets.token_hex(8)
    log = ENVIRONMENTS / f"{contender.name}-{contender.place}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [str(python), str(_WORKERS / "worker.py"), contender.name, contender.place, json.dumps(access)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(contender, python, access) | {_MARK: mark},
            cwd=directory,
            start_new_session=True,
        )
    try:
        return Worker(process, mark)
    except (NoAnswer, Failed) as error:
        process.kill()
        process.wait(_END_LIMIT_S)
        if contender.peer:
            raise PeerAbsent(str(error)) from None
        raise


def _environment(contender: Contender, python: Path, access: dict[str, str]) -> dict[str, str]:
    env = {**os.environ, "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}"}
    # Nobody's start-up files; and a peer is not to report to anybody.
    home = ENVIRONMENTS / "home"
    home.mkdir(exist_ok=True)
    env |= {"HOME": str(home), "BASH_ENV": "", "OTEL_SDK_DISABLED": "true", "LC_ALL": "C.UTF-8"}
    if contender.ours:
        env["PYTHONPATH"] = str(_ROOT)
    if "url" in access:
        env["DOCKER_HOST"] = access["url"]
    return env
