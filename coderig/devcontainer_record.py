"""What is kept about a dev container between two calls: how it was made, and how far its commands came."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from coderig.devcontainer_config import DevConfig, options_record
from coderig.guard import UsageError
from sandbox.backends.docker_options import DockerMount, DockerOptions
from sandbox.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One dev container.

    name        of the container
    directory   the workspace, source: its file, text: what the file held
    image       what the file names, or the tag of what was built
    image_id    what the container was made from
    dockerfile  the text of it; "" without a build
    options     of the container, as the file asked for them
    user        who programs run as
    folder      where programs start
    creation    the commands that made it, by stage
    container   the container's id; "": it was about to be made
    done        the stages that have run in it to their end
    started     the start of it after which postStart has run; "": none
    trusted     what a person has agreed to
    host        the daemon that has it
    """

    name: str
    directory: str
    source: str
    text: str
    image: str
    image_id: str
    dockerfile: str
    options: dict[str, Any]
    user: str | None
    folder: str
    remote_env: dict[str, str | None] = field(default_factory=dict)
    creation: dict[str, list[str]] = field(default_factory=dict)
    container: str = ""
    done: list[str] = field(default_factory=list)
    started: str = ""
    trusted: list[str] = field(default_factory=list)
    host: str = ""
    made_s: float = 0.0

    def docker_options(self, **changes: Any) -> DockerOptions:
        """The options that make, or prove, exactly this container."""
        values = {
            **self.options,
            "image": self.image_id,
            "name": self.name,
            "host": self.host or None,
            "keep": True,
        }
        values["mounts"] = tuple(DockerMount(**mount) for mount in values["mounts"])
        for option in ("cap_add", "ports"):
            values[option] = tuple(values[option])
        known = {each.name for each in fields(DockerOptions)}
        kept = {key: value for key, value in values.items() if key in known}
        return DockerOptions(**{**kept, "user": self.user, **changes})


def current_host() -> str:
    """The daemon that is used now: DOCKER_HOST, else the default socket."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def record_of(config: DevConfig, image: str, image_id: str, dockerfile: str, user: str | None) -> Record:
    """What a container that is made now from this configuration will be."""
    return Record(
        name=config.name,
        directory=str(config.directory),
        source=str(config.source),
        text=config.text,
        image=image,
        image_id=image_id,
        dockerfile=dockerfile,
        options=json.loads(json.dumps(options_record(config.options))),
        user=user,
        folder=config.folder,
        remote_env=dict(config.remote_env),
        creation=config.creation,
        trusted=list(config.loosens),
        host=current_host(),
        made_s=time.time(),
    )


class Records:
    """The records below one directory, which only its owner can look into."""

    def __init__(self, home: Path) -> None:
        self._directory = home / "containers"

    def load(self, name: str) -> Record | None:
        """The record of that name. BackendError if it is there and cannot be read."""
        path = self._directory / f"{name}.json"
        try:
            raw = json.loads(path.read_text("utf-8"))
            known = {each.name for each in fields(Record)}
            return Record(**{key: value for key, value in raw.items() if key in known})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise BackendError(
                f"cannot read {path}: {error}. If it is damaged, remove it; `coderig up` makes a new one"
            ) from None

    def save(self, record: Record) -> None:
        """Keep it, whole or not at all."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / f"{record.name}.json"
            fresh = path.with_suffix(f".{os.getpid()}.new")
            fresh.touch(mode=0o600)
            fresh.write_text(json.dumps(asdict(record), indent=1), "utf-8")
            fresh.replace(path)
        except OSError as error:
            raise UsageError(
                f"cannot write to {self._directory}: {error.strerror}; set CODERIG_HOME"
            ) from None

    def done(self, record: Record, stage: str) -> Record:
        """A stage has run to its end."""
        after = replace(record, done=[*record.done, stage])
        self.save(after)
        return after

    def forget(self, name: str) -> None:
        """Remove a record and its log."""
        for ending in ("json", "log"):
            (self._directory / f"{name}.{ending}").unlink(missing_ok=True)

    def all(self) -> list[Record]:
        """Every record, by name; one that cannot be read is left out."""
        found = []
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(BackendError):
                record = self.load(path.stem)
                if record is not None:
                    found.append(record)
        return found

    def log(self, name: str) -> Path:
        """Where the output of the container's lifecycle commands is kept."""
        return self._directory / f"{name}.log"

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """One `up` or `rm` of a container at a time; another process waits. The kernel drops it at death."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(
                f"cannot write to {self._directory}: {error.strerror}; set CODERIG_HOME"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
