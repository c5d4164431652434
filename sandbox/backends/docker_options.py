"""What container is asked for, and the effective values that this comes to."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandbox.backends.docker_identity import Inspect, MountView, Wanted
from sandbox.errors import RequestError

WORKSPACE = "/workspace"
NOBODY = "65534:65534"
HOME = "/home/coderig"
# Any shell has `trap` and `wait`; the sleep is in the background so that TERM ends it at once.
KEEPALIVE = ("sh", "-c", "trap : TERM INT; sleep 2147483647 & wait")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DockerMount:
    """One more directory of the daemon's machine, or a named volume, seen at `target` in the container."""

    source: str
    target: str
    read_only: bool = False
    type: Literal["bind", "volume"] = "bind"


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOptions:
    """What container to use. Everything is closed by default; each option that loosens says so by its name.

    image         created from this; pulled if the daemon does not have it
    name          a fixed name: a container of that name is adopted if it is ours and configured the same
    user          name or uid[:gid]; None: the owner of `directory`, else the image's own user for a
                  named container and 65534:65534 for an unnamed one
    network       "none", or a network's name
    memory_bytes  limit of memory, swap included
    cpus          limit in processors' worth of time
    pids_limit    limit of processes and threads
    env           added to the image's environment, for every program in the container
    directory     a directory of this machine to be /workspace; needs a daemon on this machine
    volume        a named volume to be /workspace
    mounts        more directories of the daemon's machine, and named volumes
    read_only     the image's files cannot be changed; /workspace is then in memory unless it is mounted
    tmpfs_bytes   size of /tmp, which is in memory
    cap_add       capabilities to give back; none are kept by default
    ports         TCP ports of the container to publish on the daemon's loopback, each at a free port; needs a
                  network
    runtime       an OCI runtime that the daemon knows; None: its default
    platform      such as "linux/arm64"; None: the daemon's own
    keep          leave the container when the sandbox is closed; None: exactly if it has a name
    replace       a container of that name that is ours but configured differently is removed and made again
    workdir       where programs start: /workspace or below
    host          the daemon, as in DOCKER_HOST; None: as DOCKER_HOST says, else the default socket
    """

    image: str
    name: str | None = None
    user: str | None = None
    network: str = "none"
    memory_bytes: int = 2048 * _MIB
    cpus: float = 1.0
    pids_limit: int = 128
    env: Mapping[str, str] = field(default_factory=dict)
    directory: str | os.PathLike[str] | None = None
    volume: str | None = None
    mounts: tuple[DockerMount, ...] = ()
    read_only: bool = False
    tmpfs_bytes: int = 256 * _MIB
    cap_add: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    runtime: str | None = None
    platform: str | None = None
    keep: bool | None = None
    replace: bool = False
    workdir: str = WORKSPACE
    host: str | None = None

    def __post_init__(self) -> None:
        if not self.image:
            raise RequestError("a Docker sandbox needs an image")
        if self.directory is not None and self.volume is not None:
            raise RequestError("directory and volume both ask to be /workspace; give one of them")
        path = posixpath.normpath(self.workdir)
        if path != WORKSPACE and not path.startswith(WORKSPACE + "/"):
            raise RequestError(f"workdir must be {WORKSPACE} or below, not {self.workdir!r}")
        if min(self.memory_bytes, self.cpus, self.pids_limit, self.tmpfs_bytes) <= 0:
            raise RequestError("memory_bytes, cpus, pids_limit and tmpfs_bytes must be above 0")
        if self.ports and (self.network in ("none", "host") or self.network.startswith("container:")):
            raise RequestError(f"ports need a network of the container's own, and network is {self.network}")
        if any(not 0 < port < 65536 for port in self.ports):
            raise RequestError(f"ports are numbers from 1 to 65535, not {self.ports}")

    @property
    def keeps(self) -> bool:
        """Whether the container stays when the sandbox is closed."""
        return self.name is not None if self.keep is None else self.keep


def wanted(options: DockerOptions, image: Inspect) -> Wanted:
    """The effective values for these options on this image. RequestError if `directory` cannot be read."""
    config = image.get("Config") or {}
    user = _user(options, str(config.get("User") or ""))
    mounts = _mounts(options)
    return Wanted(
        image_id=str(image["Id"]),
        image_volumes=frozenset(config.get("Volumes") or ()),
        runtime=options.runtime or "",
        user=user,
        network=options.network,
        mounts=mounts,
        tmpfs=_tmpfs(options, user, mounts),
        memory_bytes=options.memory_bytes,
        cpus=options.cpus,
        pids_limit=options.pids_limit,
        env={**dict(item.partition("=")[::2] for item in config.get("Env") or ()), **options.env},
        cap_add=options.cap_add,
        ports=options.ports,
        read_only=options.read_only,
        command=KEEPALIVE,
    )


def _user(options: DockerOptions, of_image: str) -> str:
    if options.user is not None:
        return options.user
    if options.directory is not None:
        try:
            owner = Path(options.directory).stat()
        except OSError as error:
            raise RequestError(f"cannot bind {options.directory}: {error.strerror}") from error
        return f"{owner.st_uid}:{owner.st_gid}"
    return of_image if options.name is not None else NOBODY


def _mounts(options: DockerOptions) -> tuple[MountView, ...]:
    mounts = [
        MountView(
            type=m.type,
            source=posixpath.normpath(m.source) if m.type == "bind" else m.source,
            target=posixpath.normpath(m.target),
            read_only=m.read_only,
        )
        for m in options.mounts
    ]
    if options.directory is not None:
        source = str(Path(options.directory).resolve())
        mounts.append(MountView(type="bind", source=source, target=WORKSPACE))
    if options.volume is not None:
        mounts.append(MountView(type="volume", source=options.volume, target=WORKSPACE))
    return tuple(mounts)


def _tmpfs(options: DockerOptions, user: str, mounts: tuple[MountView, ...]) -> Mapping[str, str]:
    # exec: compilers and test runners start what they put into /tmp.
    common = f"rw,exec,nosuid,nodev,size={options.tmpfs_bytes}"
    places = {"/tmp": f"{common},mode=1777"}
    if options.read_only:
        uid, _, gid = user.partition(":")
        owned = f"mode=0755,uid={uid},gid={gid if gid.isdigit() else uid}" if uid.isdigit() else "mode=1777"
        places[HOME] = f"{common},{owned}"
        if all(mount.target != WORKSPACE for mount in mounts):
            places[WORKSPACE] = f"{common},{owned}"
    return places


@dataclass(frozen=True, slots=True)
class Account:
    """Who programs run as. home "": the daemon's own choice is good."""

    uid: int
    gid: int
    home: str = ""


_FIRST_PERSON = 1000


def needs_passwd(user: str) -> bool:
    """Whether a user option means nothing without the container's /etc/passwd."""
    name, _, group = user.partition(":")
    if name in ("", "0", "root"):
        return False
    return not (name.isdigit() and group.isdigit() and not _is_person(int(name)))


def _is_person(uid: int) -> bool:
    return _FIRST_PERSON <= uid < int(NOBODY.partition(":")[0])


def account(user: str, passwd: str) -> Account:
    """What a user option comes to in a container with this /etc/passwd.

    An account of a service has no home that could be written to, and neither has a number that no
    line knows: these get a home of ours."""
    name, _, group = user.partition(":")
    if name in ("", "0", "root"):
        return Account(0, 0)
    fields = [line.split(":") for line in passwd.splitlines()]
    entry = next((f for f in fields if len(f) >= 6 and name in (f[0], f[2])), None)
    uid = int(name) if name.isdigit() else int(entry[2]) if entry else 0
    gid = int(group) if group.isdigit() else int(entry[3]) if entry else 0
    if uid == 0:
        return Account(uid, gid)
    return Account(uid, gid, home="" if entry is not None and _is_person(uid) else HOME)
