"""Temporary containers: who owns one, and which were left behind by an owner that is no more.

A container that is to go with its sandbox carries its owner as a label from the moment it exists, so
that there is no moment at which a killed owner leaves one that nobody knows. An owner is a process: the
kernel tells whether it is still there, and no lease has to be renewed. Named containers have no owner:
they stay until somebody removes them, and are never collected.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import docker.errors

from sandbox.backends.docker_identity import is_ours

LABEL_OWNER = "coderig.owner"

OwnerState = Literal["none", "here", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, so that no other process is ever taken for it.

    machine, boot, namespace  which kernel, since when, and where the pid means something
    pid, started              the process and when it started, in ticks since the boot
    """

    machine: str
    boot: str
    namespace: str
    pid: int
    started: str

    def text(self) -> str:
        """As the label holds it."""
        return "/".join((self.machine, self.boot, self.namespace, str(self.pid), self.started))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """From a label; None for what is none of ours."""
        parts = text.split("/")
        if len(parts) != 5 or not all(parts) or not parts[3].isascii() or not parts[3].isdigit():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4])


def this_owner() -> Owner:
    """The process that asks."""
    return Owner(
        machine=_line("/etc/machine-id"),
        boot=_line("/proc/sys/kernel/random/boot_id"),
        namespace=_namespace(),
        pid=os.getpid(),
        started=_started(os.getpid()) or "unknown",
    )


def owner_state(label: str | None, *, running: bool) -> OwnerState:
    """Whether the owner of a container is still there.

    running  whether the container runs: none survives a restart of the machine

    "none": it has no owner. "unknown": a process of another machine or another pid namespace, about which
    nothing can be told from here."""
    if label is None:
        return "none"
    owner, own = Owner.parse(label), this_owner()
    if owner is None or owner.machine != own.machine or "unknown" in (owner.boot, owner.started):
        return "unknown"
    if owner.boot != own.boot:
        return "unknown" if running else "gone"
    if owner.namespace != own.namespace:
        return "unknown"
    return "here" if _started(owner.pid) == owner.started else "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One container of ours. `state` is the daemon's word: "running", "exited", "paused", …"""

    id: str
    name: str
    state: str
    owner: OwnerState


def list_containers(api: Any) -> list[Listed]:
    """Every container of ours on the daemon of a docker-py APIClient, those without an owner too.

    Raises what docker-py raises: a daemon that does not answer is never an empty list."""
    found = []
    for row in api.containers(all=True, filters={"label": "coderig.fingerprint"}):
        # One may go between the list and the look.
        with contextlib.suppress(docker.errors.NotFound):
            container = api.inspect_container(str(row["Id"]))
            if is_ours(container, _image(api, container)):
                found.append(_listed(container))
    return sorted(found, key=lambda each: each.name)


def collect(api: Any, *, dry_run: bool = False) -> list[Listed]:
    """Remove, by id, the temporary containers whose owner is gone, with their anonymous volumes.

    dry_run  remove nothing

    Returns those that went, or would. A container that is named, whose owner is there, or whose owner cannot
    be told is left as it is."""
    orphans = [each for each in list_containers(api) if each.owner == "gone"]
    if not dry_run:
        for orphan in orphans:
            remove(api, orphan.id)
    return orphans


def remove(api: Any, container: str) -> None:
    """Remove by id, with anonymous volumes; one that is gone, or is going, is no failure."""
    try:
        api.remove_container(container, force=True, v=True)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if error.status_code != 409 or "already in progress" not in str(error.explanation):
            raise


def _listed(container: Mapping[str, Any]) -> Listed:
    state = container["State"]
    labels = (container.get("Config") or {}).get("Labels") or {}
    return Listed(
        id=str(container["Id"]),
        name=str(container["Name"]).lstrip("/"),
        state=str(state["Status"]),
        owner=owner_state(labels.get(LABEL_OWNER), running=bool(state["Running"])),
    )


def _image(api: Any, container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        return dict(api.inspect_image(container["Image"]))
    except docker.errors.ImageNotFound:
        return None


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return "unknown"


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "unknown"


def _started(pid: int) -> str | None:
    """When a process started; None if there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    parts = fields.rpartition(")")[2].split()
    return None if parts[0] in ("Z", "X") else parts[19]
