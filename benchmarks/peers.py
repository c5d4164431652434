"""The peers: packages that also run commands, installed from PyPI into environments of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".venv" / "bench"
_INSTALL_LIMIT_S = 900
_ASK_LIMIT_S = 10


class PeerAbsent(Exception):
    """A peer cannot take part; the text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A package that also runs commands.

    places        where it can
    requirements  what pip installs, if more than the package
    python        the least version that it runs under
    """

    package: str
    places: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)


PEERS = (
    Peer("swe-rex", ("local", "docker"), ("swe-rex", "aiohttp")),
    # Left to itself, pip may choose an SDK that lacks what the tools import.
    Peer("openhands-tools", ("local",), ("openhands-tools", "openhands-sdk>=1.58"), python=(3, 12)),
    Peer("openai-agents", ("local", "docker"), ("openai-agents[docker]",)),
    Peer("strands-agents", ("local", "docker")),
    Peer("deepagents", ("local",)),
    Peer("inspect-ai", ("local",)),
    Peer("pexpect", ("local", "ssh")),
    Peer("fabric", ("ssh",)),
    Peer("asyncssh", ("ssh",)),
)
NOT_DRIVEN = {
    "docker": {"inspect-ai": "drives `docker compose`, which is not part of what the tests install"},
}
"""Peers without a driver, by place, and why."""


def install(peer: Peer) -> Path:
    """The Python of the peer's environment, made at the first use. Raises PeerAbsent."""
    home = ENVIRONMENTS / peer.package
    python, done = home / "bin" / "python", home / ".installed"
    wanted = peer.requirements or (peer.package,)
    if done.exists() and done.read_text(encoding="utf-8").split() == list(wanted):
        return python
    base = _find_python(peer)
    print(f"installing {' '.join(wanted)}", file=sys.stderr, flush=True)
    made = [base, "-m", "venv", "--clear", "--symlinks", str(home)]
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
    for step in (made, command):
        try:
            tried = subprocess.run(step, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise PeerAbsent(f"installing took more than {_INSTALL_LIMIT_S} s") from None
        if tried.returncode != 0:
            raise PeerAbsent(f"pip: {(tried.stderr.strip().splitlines() or ['failed'])[-1][:200]}")
    done.write_text(" ".join(wanted), encoding="utf-8")
    return python


def _find_python(peer: Peer) -> str:
    if sys.version_info[:2] >= peer.python:
        return sys.executable
    for python in _other_pythons(peer):
        asked = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
        try:
            said = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said.returncode == 0 and tuple(map(int, said.stdout.split())) >= peer.python:
            return str(python)
    raise PeerAbsent(f"needs Python {peer.python[0]}.{peer.python[1]}, which was not found")


def _other_pythons(peer: Peer) -> Iterator[Path]:
    """Other versions on the PATH, and those of pyenv, whose names on the PATH work for one version only."""
    for minor in range(peer.python[1], peer.python[1] + 4):
        if found := shutil.which(f"python3.{minor}"):
            yield Path(found)
        yield from sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}*/bin/python"))
