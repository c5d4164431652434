"""The places of the benchmarks: this machine, and a real sshd and dockerd, started if there are none."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

PLACES = ("local", "ssh", "docker")


@contextlib.contextmanager
def reached(place: str) -> Iterator[dict[str, str]]:
    """How a worker reaches the place, while the block runs."""
    if place == "local":
        yield {}
    elif place == "ssh":
        from services.ssh_service import start_sshd

        with start_sshd() as sshd:
            yield {
                "host": sshd.host,
                "port": str(sshd.port),
                "user": sshd.user,
                "key": str(sshd.identity_file),
                "known_hosts": str(sshd.known_hosts_file),
            }
    else:
        from services.docker_service import docker_service

        with docker_service() as daemon:
            yield {"url": daemon.url, "image": daemon.debian_image}
