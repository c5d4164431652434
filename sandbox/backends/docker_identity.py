"""Which container is ours: the effective configuration, its fingerprint, and what a live one says.

Pure. A configuration has one *view*: a flat table from option to plain value. One function
makes the view of what is wanted, one reads the same table out of `docker inspect`; the fingerprint is
a hash of the first, and the differences are the rows in which the two are not equal. The working
directory is no part of it: it is passed with each exec.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 2
"""Raised when the view gains or loses a row, so that containers of older versions are not mistaken."""

LABEL_FINGERPRINT = "coderig.fingerprint"
LABEL_NAME = "coderig.name"

View = dict[str, Any]
Inspect = Mapping[str, Any]
"""What the daemon says of a container or an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountView:
    """One mount: type is "bind" or "volume"; source is a host path or a volume's name."""

    type: str
    source: str
    target: str
    read_only: bool = False

    def text(self) -> str:
        """As it is compared and shown."""
        return f"{self.type} {self.source} at {self.target} {'ro' if self.read_only else 'rw'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Every effective value of a container that matters to its isolation; nothing is left to a default.

    image_id         the resolved id, so a tag that moved is another image
    image_volumes    paths for which the image itself asks an anonymous volume
    runtime          "" for the daemon's default
    user             "" for root as the image says, else a name or uid[:gid]
    """

    image_id: str
    user: str
    network: str
    memory_bytes: int
    cpus: float
    pids_limit: int
    command: tuple[str, ...]
    runtime: str = ""
    image_volumes: frozenset[str] = frozenset()
    mounts: tuple[MountView, ...] = ()
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cap_add: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    cap_drop: tuple[str, ...] = ("ALL",)
    security: tuple[str, ...] = ("no-new-privileges",)
    read_only: bool = False
    init: bool = True


@dataclass(frozen=True, slots=True)
class Difference:
    """One option in which a container is not what is wanted; the values are text for a person."""

    option: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.option}: wanted {self.wanted}, found {self.found}"


def fingerprint(wanted: Wanted) -> str:
    """A hash over the schema version and every effective value."""
    text = json.dumps([SCHEMA, wanted_view(wanted)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_ours(container: Inspect, image: Inspect | None) -> bool:
    """Whether the container carries our label by its own right.

    A label that the container's image has too proves nothing: it was inherited, for our own
    fingerprint holds the image's id and so cannot be in the image."""
    label = _labels(container).get(LABEL_FINGERPRINT)
    return bool(label) and label != (_labels(image) if image else {}).get(LABEL_FINGERPRINT)


def differences(wanted: Wanted, container: Inspect, *, default_runtime: str = "runc") -> list[Difference]:
    """Where the live container is not as wanted, option by option; the label comes last.

    default_runtime   what the daemon runs containers with when none is asked for
    """
    expected = wanted_view(wanted)
    expected["runtime"] = expected["runtime"] or default_runtime
    found = live_view(container, wanted.image_volumes)
    rows = [
        Difference(option, *_shown(option, expected[option], found[option]))
        for option in expected
        if expected[option] != found[option]
    ]
    label = _labels(container).get(LABEL_FINGERPRINT, "")
    if label != fingerprint(wanted):
        rows.append(Difference("fingerprint", fingerprint(wanted)[:12], label[:12] or "none"))
    return rows


def wanted_view(wanted: Wanted) -> View:
    """The table of what is wanted."""
    network = _network(wanted.network)
    return {
        "image": wanted.image_id,
        "runtime": wanted.runtime,
        "user": wanted.user,
        "network": network,
        "attached networks": [] if network.startswith("container:") else [network],
        "mounts": sorted(mount.text() for mount in wanted.mounts),
        "tmpfs": {path: _options(options) for path, options in wanted.tmpfs.items()},
        "memory_bytes": wanted.memory_bytes,
        "memory and swap": wanted.memory_bytes,
        "cpus": round(wanted.cpus, 3),
        "pids_limit": wanted.pids_limit,
        "cap_add": _capabilities(wanted.cap_add),
        "cap_drop": _capabilities(wanted.cap_drop),
        "security options": sorted(_security(item) for item in wanted.security),
        "read_only": wanted.read_only,
        "env": dict(wanted.env),
        "init": wanted.init,
        "command": list(wanted.command),
        "privileged": False,
        "shared namespaces": [],
        "devices": [],
        "published ports": sorted(f"{port}/tcp at 127.0.0.1" for port in set(wanted.ports)),
        "other host options": [],
    }


def live_view(container: Inspect, image_volumes: frozenset[str] = frozenset()) -> View:
    """The same table, read from what the daemon says of a container."""
    host: Inspect = container.get("HostConfig") or {}
    config: Inspect = container.get("Config") or {}
    networks: Inspect = (container.get("NetworkSettings") or {}).get("Networks") or {}
    return {
        "image": container.get("Image", ""),
        "runtime": host.get("Runtime") or "",
        "user": config.get("User") or "",
        "network": _network(host.get("NetworkMode") or ""),
        "attached networks": sorted(networks),
        "mounts": sorted(_live_mounts(container.get("Mounts") or [], image_volumes)),
        "tmpfs": {path: _options(options) for path, options in (host.get("Tmpfs") or {}).items()},
        "memory_bytes": host.get("Memory") or 0,
        "memory and swap": host.get("MemorySwap") or 0,
        "cpus": _live_cpus(host),
        "pids_limit": host.get("PidsLimit") or 0,
        "cap_add": _capabilities(host.get("CapAdd") or ()),
        "cap_drop": _capabilities(host.get("CapDrop") or ()),
        "security options": sorted(_security(item) for item in host.get("SecurityOpt") or ()),
        "read_only": bool(host.get("ReadonlyRootfs")),
        "env": dict(item.partition("=")[::2] for item in config.get("Env") or ()),
        "init": bool(host.get("Init")),
        "command": [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())],
        "privileged": bool(host.get("Privileged")),
        "shared namespaces": _shared_namespaces(host),
        "devices": _devices(host),
        "published ports": sorted(_published(host)),
        "other host options": _other(host),
    }


# ---- one row each ------------------------------------------------------------------------------


def _network(mode: str) -> str:
    return "bridge" if mode in ("", "default") else mode


def _capabilities(names: Sequence[str]) -> list[str]:
    return sorted({name.upper().removeprefix("CAP_") for name in names})


def _security(option: str) -> str:
    name, _, value = option.replace("=", ":", 1).partition(":")
    return name if name == "no-new-privileges" and value in ("", "true") else f"{name}:{value}"


def _options(text: str) -> list[str]:
    return sorted(item for item in text.split(",") if item and item != "rw")


_ANONYMOUS = re.compile(r"[0-9a-f]{64}")


def _live_mounts(mounts: Sequence[Inspect], image_volumes: frozenset[str]) -> list[str]:
    shown = []
    for mount in mounts:
        kind, target = mount.get("Type", ""), mount.get("Destination", "")
        source = mount.get("Name") if kind == "volume" else mount.get("Source")
        if kind == "volume" and target in image_volumes and _ANONYMOUS.fullmatch(source or ""):
            continue
        view = MountView(type=kind, source=source or "", target=target, read_only=not mount.get("RW", True))
        shared = mount.get("Propagation") or ""
        shown.append(view.text() + (f" {shared}" if "shared" in shared or "slave" in shared else ""))
    return shown


def _live_cpus(host: Inspect) -> Any:
    if host.get("CpuQuota") or host.get("CpusetCpus") or host.get("CpuRealtimeRuntime"):
        return f"quota {host.get('CpuQuota')} of {host.get('CpuPeriod')} on {host.get('CpusetCpus') or 'all'}"
    return round((host.get("NanoCpus") or 0) / 1e9, 3)


def _published(host: Inspect) -> list[str]:
    shown = []
    for port, bindings in (host.get("PortBindings") or {}).items():
        for binding in bindings or [{}]:
            fixed = binding.get("HostPort") or "0"
            where = binding.get("HostIp") or "all addresses"
            shown.append(f"{port} at {where}" + ("" if fixed == "0" else f":{fixed}"))
    return shown


_NAMESPACES = {"PidMode": "pid", "IpcMode": "ipc", "UTSMode": "uts", "UsernsMode": "user"}
# What the daemon fills in by itself, by version; none of these shares anything with the host.
_OWN = ("", "private", "shareable", "none")


def _shared_namespaces(host: Inspect) -> list[str]:
    modes = {name: host.get(key) or "" for key, name in _NAMESPACES.items()}
    return [f"{name}={mode}" for name, mode in modes.items() if mode not in _OWN]


def _devices(host: Inspect) -> list[str]:
    shown = [str(item.get("PathOnHost")) for item in host.get("Devices") or ()]
    shown += [f"rule {item}" for item in host.get("DeviceCgroupRules") or ()]
    shown += [f"request {item.get('Driver') or 'gpu'}" for item in host.get("DeviceRequests") or ()]
    return sorted(shown)


# Options that loosen or change a container and that we never set.
_NEVER_SET = (
    "CgroupParent", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "GroupAdd", "Links", "OomKillDisable",
    "PublishAllPorts", "Sysctls", "VolumesFrom", "VolumeDriver", "Ulimits", "AutoRemove", "Cgroup",
)  # fmt: skip


def _other(host: Inspect) -> list[str]:
    shown = [f"{key}={host[key]}" for key in _NEVER_SET if host.get(key)]
    restart = (host.get("RestartPolicy") or {}).get("Name") or "no"
    if restart != "no":
        shown.append(f"RestartPolicy={restart}")
    # Emptied by `systempaths=unconfined`; full lists by default.
    shown += [f"{key}=none" for key in ("MaskedPaths", "ReadonlyPaths") if host.get(key) == []]
    return shown


# ---- words -------------------------------------------------------------------------------------


def _labels(inspect: Inspect) -> Mapping[str, str]:
    return (inspect.get("Config") or {}).get("Labels") or {}


def _shown(option: str, wanted: Any, found: Any) -> tuple[str, str]:
    if option == "env":
        # Values may be secrets: only the names are shown.
        changed = {name for name in wanted.keys() & found.keys() if wanted[name] != found[name]}
        return _env_words(wanted.keys() - found.keys(), changed), _env_words(
            found.keys() - wanted.keys(), changed
        )
    return _words(wanted), _words(found)


def _env_words(only_here: set[str], changed: set[str]) -> str:
    words = sorted(only_here) + [f"another value of {name}" for name in sorted(changed)]
    return ", ".join(words) or "nothing more"


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} ({','.join(item)})" for key, item in sorted(value.items())) or "none"
    return str(value) if value != "" else "unset"
