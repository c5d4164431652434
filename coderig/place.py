"""Places by name: `local:DIR`, `dev:DIR`, `ssh://user@host:port/DIR`, `docker://IMAGE?option=value`."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from coderig.containers_place import DevPlace
from sandbox import DockerSandbox, LocalSandbox, Sandbox, SandboxError, SSHSandbox

if TYPE_CHECKING:
    from sandbox.backends.docker import DockerOptions
    from sandbox.backends.ssh import SshOptions

FORMS = "local[:DIR], dev[:DIR], ssh://[user@]host[:port][/DIR] or docker://IMAGE"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class PlaceError(ValueError):
    """The text names no place; the message names the part that is wrong."""


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A directory of this machine."""

    text: str
    directory: Path

    def at(self, directory: str) -> LocalPlace:
        """The same machine, another working directory (absolute)."""
        return LocalPlace(f"local:{directory}", Path(directory))

    def for_run(self, run_id: str) -> LocalPlace:
        """A run in this place needs nothing of its own."""
        return self

    def open(self, env: Mapping[str, str] | None = None, *, warm: bool = True) -> Sandbox:
        """The sandbox. Raises PlaceError if the directory is not there."""
        if not self.directory.is_dir():
            raise PlaceError(f"{self.text}: {self.directory} is no directory on this machine")
        return LocalSandbox(self.directory, env=env, warm=warm)

    def remove(self) -> None:
        """Nothing is left behind."""


@dataclass(frozen=True, slots=True)
class SshPlace:
    """A directory of another machine. `directory` None: the home directory there."""

    text: str
    options: SshOptions
    directory: str | None

    def at(self, directory: str) -> SshPlace:
        """The same machine, another working directory (absolute)."""
        head, mark, query = self.text.partition("?")
        authority = head.removeprefix("ssh://").partition("/")[0]
        return replace(self, text=f"ssh://{authority}{quote(directory)}{mark}{query}", directory=directory)

    def for_run(self, run_id: str) -> SshPlace:
        """A run in this place needs nothing of its own."""
        return self

    def open(self, env: Mapping[str, str] | None = None, *, warm: bool = True) -> Sandbox:
        """The sandbox; it connects at its first use."""
        return SSHSandbox(self.options, self.directory, env=env, warm=warm)

    def remove(self) -> None:
        """Nothing is left behind."""


@dataclass(frozen=True, slots=True)
class DockerPlace:
    """A container. `ours`: it goes when the run that it was made for is complete."""

    text: str
    options: DockerOptions
    ours: bool = False

    def at(self, directory: str) -> DockerPlace:
        """The same container, another working directory (below /workspace)."""
        mark = "&" if "?" in self.text else "?"
        text = f"{self.text}{mark}workdir={quote(directory)}"
        return replace(self, text=text, options=replace(self.options, workdir=directory))

    def for_run(self, run_id: str) -> DockerPlace:
        """The container outlives this process if the run pauses, under a name that a resume finds."""
        before = self.options
        if before.name is not None and before.keeps:
            return self
        user = before.user
        if before.name is None and user is None and before.directory is None:
            # What an unnamed container has; a named one would get the image's user.
            user = "65534:65534"
        name = before.name or f"coderig-run-{run_id}"
        return replace(
            self, options=replace(before, name=name, keep=True, user=user), ours=before.keep is not True
        )

    def open(self, env: Mapping[str, str] | None = None, *, warm: bool = True) -> Sandbox:
        """The sandbox; the container is made or adopted at its first use."""
        return DockerSandbox(self.options, env=env, warm=warm)

    def remove(self) -> None:
        """Remove the container of a run that is complete. Raises SandboxError if the daemon fails."""
        if self.ours:
            from sandbox.backends.docker import DockerBackend

            # Adoption proves that the container is ours before it is removed.
            backend = DockerBackend(replace(self.options, keep=False))
            try:
                backend.start()
            finally:
                backend.close()


Place = LocalPlace | SshPlace | DockerPlace | DevPlace


def parse_place(text: str, base: Path | None = None) -> Place:
    """Read the name of a place. Raises PlaceError that names the part that is wrong.

    base  what relative paths on this machine start from; None: the current directory
    """
    where = (base or Path()).absolute()
    if "\0" in text:
        raise PlaceError("a place holds no NUL character")
    if text == "local" or text.startswith("local:"):
        return _local(text, where)
    if text.startswith("ssh://"):
        return _ssh(text, where)
    if text.startswith("docker://"):
        return _docker(text, where)
    if text == "dev" or text.startswith("dev:"):
        from coderig.containers_place import dev_place

        return dev_place(text, where)
    raise _unknown(text)


def _unknown(text: str) -> PlaceError:
    kind = text.partition(":")[0]
    if kind in ("ssh", "docker"):
        example = "ssh://user@host/dir" if kind == "ssh" else "docker://IMAGE"
        return PlaceError(f"{text!r}: write {example}")
    near = difflib.get_close_matches(kind, ["local", "ssh", "docker", "dev"], n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return PlaceError(f"{text!r} is no place: {kind!r} is not known{hint} Use {FORMS}")


def _local(text: str, base: Path) -> LocalPlace:
    named = text.removeprefix("local").removeprefix(":")
    if named.startswith("//"):
        raise PlaceError(f"{text!r}: a local place is written local:DIR, without //")
    return LocalPlace(text, base / _home(named) if named else base)


def _home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise PlaceError(f"{path!r}: {error}") from None


# -- ssh ------------------------------------------------------------------------------------------

_AUTHORITY = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>\[[^\]]*\]|[^:@]*)(?::(?P<port>.*))?\Z", re.DOTALL)


def _ssh(text: str, base: Path) -> SshPlace:
    try:
        from sandbox.backends.ssh import SshOptions
    except ImportError:
        raise PlaceError("ssh places need paramiko: pip install 'coderig[ssh]'") from None
    head, _, query = text.removeprefix("ssh://").partition("?")
    authority, slash, path = head.partition("/")
    user, host, port = _authority(text, authority)
    keys: Mapping[str, _Reader] = {
        "identity_file": _file(base),
        "known_hosts_file": _file(base),
        "ssh_config_file": _file(base),
        "use_ssh_config": _yes_no,
        "use_agent": _yes_no,
        "accept_unknown_host": _yes_no,
        "connect_timeout_s": _number,
        "keepalive_s": _number,
        "proxy_jump": _word,
        "max_connections": _count,
    }
    options = SshOptions(host=host, user=user, port=port, **_query(text, query, keys))
    return SshPlace(text, options, _remote_directory(unquote(path)) if slash else None)


def _authority(text: str, authority: str) -> tuple[str | None, str, int | None]:
    match = _AUTHORITY.match(authority)
    if match is None:
        raise PlaceError(f"{text!r}: {authority!r} is not [user@]host[:port]")
    user, host, port = match["user"], match["host"].strip("[]"), match["port"]
    if not host:
        raise PlaceError(f"{text!r}: the host is missing")
    if user is not None and ":" in user:
        raise PlaceError(
            "a password in a place would be seen in process lists and kept in records: use a key or an agent"
        )
    if user == "":
        raise PlaceError(f"{text!r}: the user before @ is missing")
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise PlaceError(f"{text!r}: the port {port!r} is not a number from 1 to 65535")
    return unquote(user) if user else None, unquote(host), int(port) if port else None


def _remote_directory(path: str) -> str | None:
    if path == "~" or path.startswith("~/"):
        return path[2:] or None
    return "/" + path if path else None


# -- docker ---------------------------------------------------------------------------------------


def _docker(text: str, base: Path) -> DockerPlace:
    try:
        from sandbox.backends.docker import DockerOptions
    except ImportError:
        raise PlaceError("docker places need docker-py: pip install 'coderig[docker]'") from None
    image, _, query = text.removeprefix("docker://").partition("?")
    if not image:
        raise PlaceError(f"{text!r}: the image is missing; write docker://IMAGE, as docker://python:3-slim")
    if re.search(r"\s", image):
        raise PlaceError(f"{text!r}: the image {image!r} holds a space")
    keys: Mapping[str, _Reader] = {
        "name": _word,
        "user": _word,
        "network": _word,
        "memory": read_size,
        "cpus": _number,
        "pids": _count,
        "bind": _file(base),
        "volume": _word,
        "read_only": _yes_no,
        "tmpfs": read_size,
        "runtime": _word,
        "platform": _word,
        "keep": _yes_no,
        "replace": _yes_no,
        "workdir": _workdir,
        "host": _word,
    }
    names = {"memory": "memory_bytes", "pids": "pids_limit", "bind": "directory", "tmpfs": "tmpfs_bytes"}
    values = {names.get(key, key): value for key, value in _query(text, query, keys).items()}
    try:
        return DockerPlace(text, DockerOptions(image=unquote(image), **values))
    except SandboxError as error:
        raise PlaceError(f"{text!r}: {error}") from None


# -- the query ------------------------------------------------------------------------------------

_Reader = Callable[[str], Any]


def _query(text: str, query: str, keys: Mapping[str, _Reader]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = (unquote(piece) for piece in part.partition("="))
        reader = keys.get(key)
        if reader is None:
            near = difflib.get_close_matches(key, keys, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(keys))}"
            raise PlaceError(f"{text!r}: the option {key!r} is not known; {hint}")
        if key in found:
            raise PlaceError(f"{text!r}: the option {key!r} is given twice")
        if not equals or not value:
            raise PlaceError(f"{text!r}: the option {key!r} has no value")
        try:
            found[key] = reader(value)
        except ValueError as error:
            raise PlaceError(f"{text!r}: {key}={value}: {error}") from None
    return found


def _word(value: str) -> str:
    return value


def _file(base: Path) -> _Reader:
    return lambda value: str(base / _home(value))


def _workdir(value: str) -> str:
    return posixpath.join("/workspace", value)


def _yes_no(value: str) -> bool:
    known = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
    if value.lower() not in known:
        raise ValueError("this is a yes or a no: 1 or 0")
    return known[value.lower()]


def _number(value: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value, re.ASCII):
        raise ValueError("this is not a number")
    return float(value)


def _count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise ValueError("this is not a whole number")
    return int(value)


def read_size(value: str) -> int:
    """A size such as 512m or 2gb, in bytes. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([bkmgt]?)i?b?", value.lower(), re.ASCII)
    if match is None:
        raise ValueError("this is not a size, as 512m or 2g")
    return int(float(match[1]) * _UNITS[match[2]])
