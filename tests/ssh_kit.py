"""What the tests of the SSH backend share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from services.ssh_service import SshService

from sandbox.backends.ssh import SshBackend, SshOptions, SshProcess
from sandbox.values import PtySize, SpawnRequest

LIMIT_S = 20.0


def options_of(service: SshService) -> SshOptions:
    return SshOptions(
        host=service.host,
        port=service.port,
        user=service.user,
        identity_file=service.identity_file,
        known_hosts_file=service.known_hosts_file,
        use_ssh_config=False,
        use_agent=False,
    )


def wait_for(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    until_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.005)
    return True


def read_to_end(process: SshProcess, limit_s: float = LIMIT_S) -> tuple[bytes, bytes]:
    out, err = bytearray(), bytearray()
    until_s = time.monotonic() + limit_s
    while (left_s := until_s - time.monotonic()) > 0:
        chunk = process.read(left_s)
        out += chunk.stdout
        err += chunk.stderr
        if chunk.eof:
            return bytes(out), bytes(err)
    raise AssertionError(f"no end of output; so far {bytes(out)[-300:]!r} {bytes(err)[-300:]!r}")


def read_until(process: SshProcess, wanted: bytes, limit_s: float = LIMIT_S) -> bytes:
    seen = bytearray()
    until_s = time.monotonic() + limit_s
    while wanted not in seen:
        left_s = until_s - time.monotonic()
        chunk = process.read(max(0.0, left_s))
        seen += chunk.stdout
        if chunk.eof or left_s <= 0:
            raise AssertionError(f"{wanted!r} did not come: {bytes(seen)[-300:]!r}")
    return bytes(seen)


def run(
    backend: SshBackend, *argv: str, pty: PtySize | None = None, **env: str
) -> tuple[int | None, bytes, bytes]:
    process = backend.spawn(SpawnRequest(argv=argv, env=env, pty=pty))
    try:
        out, err = read_to_end(process)
        assert wait_for(lambda: process.poll() is not None)
        return process.poll(), out, err
    finally:
        process.close()


def sh(backend: SshBackend, script: str) -> tuple[int | None, bytes, bytes]:
    return run(backend, "sh", "-c", script)


def connects(options: SshOptions) -> bool:
    backend = SshBackend(options)
    try:
        return sh(backend, "echo in") == (0, b"in\n", b"")
    finally:
        backend.close()


def known_hosts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
