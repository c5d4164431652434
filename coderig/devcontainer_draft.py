"""The options of a container while a file is being read: what it sets, opens, and asks for in vain."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coderig.place import read_size
from sandbox.backends.docker_options import DockerMount


@dataclass(slots=True)
class Draft:
    """Filled by the readers of the files. `values`: fields of DockerOptions that are simple."""

    directory: Path
    values: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    mounts: list[DockerMount] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    cap_add: list[str] = field(default_factory=list)
    loosens: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)

    def set(self, option: str, value: Any) -> None:
        """One simple option; the later setting wins, as on a command line."""
        self.values[option] = value

    def allow(self, capability: str) -> None:
        """Give one capability back."""
        if capability not in self.cap_add:
            self.cap_add.append(capability)
            self.loosens.append(f"gives the container the capability {capability}")

    def connect(self, network: str) -> None:
        """The container's network."""
        self.values["network"] = network

    def publish(self, port: int) -> None:
        """One port of the container, reachable on this machine's loopback."""
        if port not in self.ports:
            self.ports.append(port)

    def mount(self, mount: DockerMount) -> None:
        """One more mount. One of this machine's directories outside the workspace is told."""
        if mount.type == "bind":
            source = Path(mount.source)
            if not source.is_absolute():
                raise ValueError(
                    f"the source {mount.source!r} is relative; write ${{localWorkspaceFolder}}/{mount.source}"
                )
            if not source.resolve().is_relative_to(self.directory.resolve()):
                ways = "to read" if mount.read_only else "to read and write"
                self.loosens.append(f"gives the container {mount.source} of this machine {ways}")
        self.mounts = [other for other in self.mounts if other.target != mount.target]
        self.mounts.append(mount)


# ---- mounts -------------------------------------------------------------------------------------

_QUIET = ("consistency", "volume-nocopy")


def mount_of_text(text: str) -> DockerMount:
    """`type=bind,source=…,target=…[,readonly]`, as `docker run --mount` takes it. Raises ValueError."""
    fields: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        fields[key.strip().lower()] = value if equals else "true"
    return mount_of_fields(fields)


def mount_of_fields(fields: dict[str, str]) -> DockerMount:
    """The same from fields that are apart."""
    known = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
    given = {known.get(key, key): value for key, value in fields.items() if key not in _QUIET}
    kind = given.pop("type", "volume")
    source, target = given.pop("source", ""), given.pop("target", "")
    read_only = given.pop("readonly", "false").lower() in ("true", "1")
    if given:
        raise ValueError(f"{', '.join(sorted(given))} of a mount is not supported")
    if kind not in ("bind", "volume"):
        raise ValueError(f"a mount of type {kind} is not supported")
    if not source:
        raise ValueError(f"a mount of type {kind} needs a source")
    return _checked(kind, source, target, read_only)


def mount_of_volume(text: str) -> DockerMount:
    """`SOURCE:TARGET[:ro]`, as for `docker run --volume`."""
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is not SOURCE:TARGET[:ro]")
    modes = set(parts[2].split(",")) if len(parts) == 3 else set()
    if unknown := modes - {"ro", "rw", "cached", "delegated", "consistent"}:
        raise ValueError(f"{', '.join(sorted(unknown))} of a mount is not supported")
    kind = "bind" if "/" in parts[0] else "volume"
    return _checked(kind, parts[0], parts[1], "ro" in modes)


def _checked(kind: str, source: str, target: str, read_only: bool) -> DockerMount:
    if not posixpath.isabs(target):
        raise ValueError(f"the target {target!r} of a mount must be an absolute path")
    if kind == "volume" and not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", source):
        raise ValueError(f"{source!r} is no name of a volume")
    return DockerMount(source, posixpath.normpath(target), read_only, "bind" if kind == "bind" else "volume")


# ---- runArgs ------------------------------------------------------------------------------------


def apply_run_args(draft: Draft, arguments: list[str]) -> None:
    """What `docker run` would make of these arguments, as far as there is an option for it here.

    What has none is named in `draft.unsupported`. ValueError for one that is not understood."""
    rest = list(arguments)
    while rest:
        flag, value = _split(rest.pop(0))
        if flag in _NOTHING_TO_DO:
            continue
        if flag in _SWITCHES:
            if value not in (None, "true"):
                draft.unsupported.append(f"runArgs: {flag}={value}")
                continue
            _SWITCHES[flag](draft)
            continue
        takes = _VALUES.get(flag)
        if value is None and (takes is not None or (rest and not rest[0].startswith("-"))):
            if not rest:
                raise ValueError(f"runArgs: {flag} has no value")
            value = rest.pop(0)
        shown = flag if value is None else f"{flag} {value}"
        if takes is None:
            draft.unsupported.append(f"runArgs: {shown}")
            continue
        try:
            takes(draft, value or "")
        except ValueError as error:
            raise ValueError(f"runArgs: {shown}: {error}") from None


_SHORT = {
    "-e": "--env", "-m": "--memory", "-p": "--publish", "-u": "--user", "-v": "--volume",
    "--net": "--network", "-w": "--workdir", "-h": "--hostname", "-l": "--label",
}  # fmt: skip


def _split(argument: str) -> tuple[str, str | None]:
    if not argument.startswith("-") or argument in ("-", "--"):
        raise ValueError(f"runArgs: {argument!r} is no option of docker run")
    if not argument.startswith("--") and len(argument) > 2:
        return _SHORT.get(argument[:2], argument[:2]), argument[2:].removeprefix("=")
    flag, equals, value = argument.partition("=")
    return _SHORT.get(flag, flag), value if equals else None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("this is not a whole number")
    return int(text)


def _cpus(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        raise ValueError("this is not a number")
    return float(text)


def _env(draft: Draft, text: str) -> None:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError("write NAME=VALUE, or NAME=${localEnv:NAME}")
    draft.env[name] = value


def published(text: str) -> int:
    """The container's port of `docker run --publish`. The other side is always loopback, on a free port."""
    port = text.rpartition(":")[2].removesuffix("/tcp")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no TCP port")
    return int(port)


def _security(draft: Draft, text: str) -> None:
    if text.replace("=", ":").removesuffix(":true") != "no-new-privileges":
        draft.unsupported.append(f"runArgs: --security-opt {text}")


def _cap_drop(draft: Draft, text: str) -> None:
    """All of them are dropped anyway."""


_NOTHING_TO_DO = {"--init", "--rm", "-d", "--detach", "-i", "-t", "--interactive", "--tty"}
_SWITCHES: dict[str, Callable[[Draft], None]] = {"--read-only": lambda draft: draft.set("read_only", True)}
_VALUES: dict[str, Callable[[Draft, str], None]] = {
    "--cap-add": lambda draft, text: draft.allow(text.upper().removeprefix("CAP_")),
    "--cap-drop": _cap_drop,
    "--cpus": lambda draft, text: draft.set("cpus", _cpus(text)),
    "--env": _env,
    "--memory": lambda draft, text: draft.set("memory_bytes", read_size(text)),
    "--mount": lambda draft, text: draft.mount(mount_of_text(text)),
    "--name": lambda draft, text: draft.set("name", text),
    "--network": lambda draft, text: draft.connect(text),
    "--pids-limit": lambda draft, text: draft.set("pids_limit", _count(text)),
    "--platform": lambda draft, text: draft.set("platform", text),
    "--publish": lambda draft, text: draft.publish(published(text)),
    "--runtime": lambda draft, text: draft.set("runtime", text),
    "--security-opt": _security,
    "--user": lambda draft, text: draft.set("user", text),
    "--volume": lambda draft, text: draft.mount(mount_of_volume(text)),
}
