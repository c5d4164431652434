"""Runs the demo on a place, with the real services that the tests use where it needs one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))


@contextlib.contextmanager
def place_argument(name: str) -> Iterator[str]:
    """The PLACE of coderig's command line; starts what stands behind it and ends it afterwards."""
    if name == "docker":
        from services.docker_service import docker_service

        with docker_service() as daemon:
            yield f"docker://{daemon.debian_image}?host={daemon.url}"
    elif name == "ssh":
        from services.ssh_service import start_sshd

        with start_sshd() as server:
            yield server.place()
    else:
        yield name


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "local"
    try:
        with place_argument(name) as place:
            return subprocess.run(
                [sys.executable, "-m", "coderig", "demo", "--place", place], check=False
            ).returncode
    except RuntimeError as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
