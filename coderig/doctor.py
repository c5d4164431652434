"""What this machine has for coderig, and what to do about what it has not."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from coderig.store import home

_ASK_TIMEOUT_S = 5
_SYS_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for. `advice`: what to do about it; "" if nothing needs to be done."""

    subject: str
    status: Literal["ok", "missing", "note"]
    detail: str
    advice: str = ""


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Look at everything; takes a few seconds at most. Never raises, and never shows a key."""
    return [
        Finding("coderig", "ok", f"{own_version()} on Python {platform.python_version()} ({sys.executable})"),
        _state(environment),
        *_docker(environment),
        *_ssh(environment),
        *_isolation(),
        *_models(environment),
        _program("git", "the demo shows its diff with it"),
        _program("rg", "searches are faster with it"),
    ]


def own_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("coderig")
    except PackageNotFoundError:
        return "unknown"


def _state(environment: Mapping[str, str]) -> Finding:
    directory = home(environment)
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if os.access(existing, os.W_OK | os.X_OK):
        return Finding("runs", "ok", f"kept in {directory}")
    return Finding(
        "runs", "missing", f"{existing} cannot be written to", "set CODERIG_HOME to a directory of yours"
    )


def _program(name: str, why: str) -> Finding:
    path = shutil.which(name)
    if path is not None:
        return Finding(name, "ok", path)
    return Finding(name, "note", "not installed", f"install {name}; {why}, but nothing depends on it")


# -- Docker ---------------------------------------------------------------------------------------


def _docker(environment: Mapping[str, str]) -> Iterator[Finding]:
    if find_spec("docker") is None:
        yield Finding("docker", "missing", "docker-py is not installed", "pip install 'coderig[docker]'")
        return
    where = environment.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if environment.get("DOCKER_TLS_VERIFY") or not where.startswith(("unix://", "tcp://")):
        advice = "coderig exec --place docker://IMAGE true"
        yield Finding("docker", "note", f"{where} is not asked from here", f"to try it: {advice}")
        return
    try:
        about = _ask_docker(where, "/version")
        images = _ask_docker(where, "/images/json")
    except (OSError, http.client.HTTPException, ValueError) as error:
        yield Finding("docker", "missing", f"no daemon answers at {where}", _docker_advice(where, error))
        return
    yield Finding("docker", "ok", f"{about.get('Version')} at {where}")
    named = (tag for image in images for tag in image.get("RepoTags") or ())
    tags = sorted(tag for tag in named if tag != "<none>:<none>")
    shown = ", ".join(tags[:8]) + (f" and {len(tags) - 8} more" if len(tags) > 8 else "")
    advice = "" if tags else "docker pull python:3-slim"
    yield Finding("docker images", "ok" if tags else "note", shown or "none", advice)


def _ask_docker(where: str, path: str) -> Any:
    # Without docker-py: what is asked is small, and the library leaves its socket open when nobody answers.
    host, _, port = where.removeprefix("tcp://").rpartition(":")
    unix = where.startswith("unix://")
    connection = http.client.HTTPConnection(
        "docker" if unix else host, None if unix else int(port.strip("/")), timeout=_ASK_TIMEOUT_S
    )
    with closing(connection):
        if unix:
            connection.sock = _connect(where.removeprefix("unix://"))
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def _docker_advice(where: str, error: Exception) -> str:
    path = Path(where.removeprefix("unix://"))
    if "Permission denied" in str(error) or (path.exists() and not os.access(path, os.W_OK)):
        return f"{path} is not for you: join its group (usually: usermod -aG docker USER) and log in again"
    if where.startswith("unix://") and not path.exists():
        return "install Docker and start it, or set DOCKER_HOST to where a daemon listens"
    return "start the daemon, or correct DOCKER_HOST"


# -- SSH ------------------------------------------------------------------------------------------


def _ssh(environment: Mapping[str, str]) -> Iterator[Finding]:
    if find_spec("paramiko") is None:
        yield Finding("ssh", "missing", "paramiko is not installed", "pip install 'coderig[ssh]'")
        return
    user = Path(environment.get("HOME") or Path.home()) / ".ssh"
    yield Finding("ssh", "ok", f"paramiko {version('paramiko')}")
    yield _ssh_agent(environment.get("SSH_AUTH_SOCK", ""))
    keys = sorted(path.name for path in user.glob("id_*") if path.suffix != ".pub")
    if keys:
        yield Finding("ssh keys", "ok", f"{', '.join(keys)} in {user}")
    else:
        yield Finding("ssh keys", "note", f"none in {user}", "ssh-keygen, or give identity_file in the place")
    config = user / "config"
    yield Finding("ssh config", "ok", f"{config} is read" if config.exists() else f"{config} is not there")
    known = sum(_lines(path) for path in (user / "known_hosts", Path("/etc/ssh/ssh_known_hosts")))
    advice = "" if known else "connect once with ssh: hosts that are not known are refused"
    yield Finding("ssh known hosts", "ok" if known else "note", f"{known} entries", advice)


def _ssh_agent(path: str) -> Finding:
    if not path:
        return Finding("ssh agent", "note", "none (SSH_AUTH_SOCK is not set)", "keys in files work without")
    try:
        _connect(path).close()
    except OSError as error:
        return Finding("ssh agent", "missing", f"{path} does not answer: {error.strerror}", "start ssh-agent")
    return Finding("ssh agent", "ok", f"listens at {path}")


def _connect(path: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(_ASK_TIMEOUT_S)
        connected.connect(path)
    except OSError:
        connected.close()
        raise
    return connected


def _lines(path: Path) -> int:
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return 0
    return sum(1 for line in text.splitlines() if line.strip() and not line.startswith("#"))


# -- isolation ------------------------------------------------------------------------------------


def _isolation() -> Iterator[Finding]:
    yield Finding(
        "isolation of local",
        "note",
        "none: commands in a local place can do whatever you can do",
        "use a docker place for code that you do not trust",
    )
    bubblewrap = shutil.which("bwrap")
    yield Finding("bubblewrap", "note", f"{bubblewrap or 'not installed'}; not used by this version")
    level = _landlock()
    words = f"the kernel has it (ABI {level})" if level > 0 else "the kernel does not offer it"
    yield Finding("landlock", "note", f"{words}; not used by this version")
    yield Finding("user namespaces", "note", "can be made" if _user_namespaces() else "cannot be made")


def _landlock() -> int:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION_FLAG))
    except (OSError, AttributeError):
        return -1


def _user_namespaces() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    try:
        made = subprocess.run(
            [unshare, "--user", "true"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return made.returncode == 0


# -- models ---------------------------------------------------------------------------------------


def _models(environment: Mapping[str, str]) -> Iterator[Finding]:
    for package, key in (("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")):
        if find_spec(package) is None:
            advice = f"pip install 'coderig[{package}]'"
            yield Finding(package, "missing", "its client is not installed", advice)
        elif environment.get(key):
            yield Finding(package, "ok", f"client {version(package)}, {key} is set")
        else:
            advice = f"export {key}=… for --model {package}:NAME; `coderig demo` needs none"
            yield Finding(package, "note", f"client {version(package)}, {key} is not set", advice)
