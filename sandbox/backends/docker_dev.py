"""What dev containers need of a daemon beyond one container: images, builds, which containers are ours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker.errors
import docker.utils
import requests

from sandbox.backends.docker import DockerBackend, DockerOptions
from sandbox.backends.docker_identity import LABEL_FINGERPRINT, is_ours
from sandbox.backends.docker_inventory import collect
from sandbox.errors import AdoptionRefused, BackendError

_STOP_GRACE_S = 5
_METADATA = "devcontainer.metadata"
Say = Callable[[str], None]
"""Takes one line of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """One image. `metadata`: what it says of dev containers itself, the last part wins."""

    id: str
    user: str
    env: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """One container of ours.

    state      "running", "exited", "paused", …
    words      the state with its exit code or its reason
    ports      port in the container -> "address:port" on the daemon's machine
    created    as the daemon writes a time
    started    the same of its last start
    """

    id: str
    name: str
    state: str
    words: str
    image: str
    image_id: str
    created: str
    started: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, str] = field(default_factory=dict)


class DevDaemon:
    """The daemon at a host (None: as DOCKER_HOST says). Raises PlaceUnavailable where none answers."""

    def __init__(self, host: str | None = None) -> None:
        self._backend = DockerBackend(DockerOptions(image="-", host=host))
        self._backend._daemon()
        self._api: Any = self._backend._api
        self._errors = self._backend._errors

    def close(self) -> None:
        """Let go of the daemon."""
        self._backend.close()

    def __enter__(self) -> DevDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- images --------------------------------------------------------------------------------

    def image(self, name: str, say: Say, platform: str | None = None) -> ImageFacts:
        """An image, pulled if it is not here. BackendError if it cannot be."""
        with self._errors(f"look at the image {name}"):
            try:
                return _image(self._api.inspect_image(name))
            except docker.errors.ImageNotFound:
                pass
        say(f"pulling {name}")
        repository, tag = docker.utils.parse_repository_tag(name)
        try:
            for line in self._api.pull(
                repository, tag=tag or "latest", platform=platform, stream=True, decode=True
            ):
                self._progress(line, say, f"pull {name}")
            return _image(self._api.inspect_image(name))
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise BackendError(f"the image {name} is not here and cannot be pulled: {error}") from error

    def build(
        self,
        *,
        dockerfile: Path,
        context: Path,
        args: Mapping[str, str],
        target: str | None,
        cache_from: tuple[str, ...],
        platform: str | None,
        tag: str,
        say: Say,
    ) -> ImageFacts:
        """Build an image and give it the tag. BackendError tells which step failed."""
        if not dockerfile.is_file():
            raise BackendError(f"there is no Dockerfile {dockerfile}")
        if not context.is_dir():
            raise BackendError(f"the build's context {context} is no directory")
        with self._errors(f"build {dockerfile}"):
            for line in self._api.build(
                path=str(context),
                dockerfile=str(dockerfile),
                buildargs=dict(args),
                target=target,
                cache_from=list(cache_from) or None,
                platform=platform,
                tag=tag,
                rm=True,
                forcerm=True,
                decode=True,
                use_config_proxy=False,
            ):
                self._progress(line, say, f"build {dockerfile}")
            return _image(self._api.inspect_image(tag))

    def _progress(self, line: Mapping[str, Any], say: Say, action: str) -> None:
        if "error" in line:
            raise BackendError(f"cannot {action}: {str(line['error']).strip()}")
        words = line.get("stream") or ""
        if not words and line.get("status") and "progressDetail" not in line:
            words = f"{line['status']} {line.get('id', '')}"
        for row in str(words).splitlines():
            if row.strip():
                say(row.rstrip())

    # ---- containers ----------------------------------------------------------------------------

    def find(self, name: str) -> ContainerFacts | None:
        """The container of that name, if there is one. AdoptionRefused if it is not ours."""
        with self._errors(f"look at the container {name}"):
            try:
                found = self._api.inspect_container(name)
            except docker.errors.NotFound:
                return None
        if not self._ours(found):
            raise AdoptionRefused(
                f"a container named {name} exists and was not made by coderig: it is left alone. Remove it "
                f"(docker rm {name}), rename it, or give another name"
            )
        return _container(found)

    def containers(self) -> list[ContainerFacts]:
        """Every container of ours, by name."""
        with self._errors("list the containers"):
            rows = self._api.containers(all=True, filters={"label": LABEL_FINGERPRINT})
        found = []
        for row in rows:
            # One may go between the list and the look.
            with contextlib.suppress(docker.errors.NotFound), self._errors("look at a container"):
                inspected = self._inspect(str(row["Id"]))
                if inspected is not None and self._ours(inspected):
                    found.append(_container(inspected))
        return sorted(found, key=lambda each: each.name)

    def collect(self, *, dry_run: bool) -> list[str]:
        """Remove the temporary containers whose owner is gone; their names."""
        with self._errors("collect what was left behind"):
            return [each.name for each in collect(self._api, dry_run=dry_run)]

    def start(self, container: str) -> None:
        """Start a container by its id; on one that runs: nothing."""
        with self._errors("start the container"):
            self._api.start(container)

    def stop(self, container: str) -> None:
        """End everything that runs in a container; its files stay. On a stopped one: nothing."""
        with self._errors("stop the container"):
            self._api.stop(container, timeout=_STOP_GRACE_S)

    def remove(self, container: str) -> None:
        """Remove a container by its id, with its anonymous volumes; one that is gone is no failure."""
        with self._errors("remove the container"), contextlib.suppress(docker.errors.NotFound):
            self._api.remove_container(container, force=True, v=True)

    def logs(self, container: str) -> bytes:
        """What the container's own first process has printed."""
        with self._errors("read the container's log"):
            return bytes(self._api.logs(container, stdout=True, stderr=True, timestamps=True))

    def _inspect(self, container: str) -> Mapping[str, Any] | None:
        try:
            return dict(self._api.inspect_container(container))
        except docker.errors.NotFound:
            return None

    def _ours(self, container: Mapping[str, Any]) -> bool:
        with self._errors("look at a container's image"):
            try:
                image = dict(self._api.inspect_image(container["Image"]))
            except docker.errors.ImageNotFound:
                image = None
        return is_ours(container, image)


def _image(found: Mapping[str, Any]) -> ImageFacts:
    config = found.get("Config") or {}
    return ImageFacts(
        id=str(found["Id"]),
        user=str(config.get("User") or ""),
        env=_env(config),
        metadata=_metadata((config.get("Labels") or {}).get(_METADATA, "")),
    )


def _metadata(label: str) -> Mapping[str, Any]:
    try:
        parts = json.loads(label or "[]")
    except ValueError:
        return {}
    merged: dict[str, Any] = {}
    for part in parts if isinstance(parts, list) else [parts]:
        merged.update(part if isinstance(part, dict) else {})
    return merged


def _env(config: Mapping[str, Any]) -> dict[str, str]:
    return dict(item.partition("=")[::2] for item in config.get("Env") or ())


def _container(found: Mapping[str, Any]) -> ContainerFacts:
    state, config = found["State"], found.get("Config") or {}
    status = str(state["Status"])
    words = f"exited with {state['ExitCode']}" if status == "exited" else status
    if state.get("OOMKilled") and not state["Running"]:
        words += " (out of memory)"
    return ContainerFacts(
        id=str(found["Id"]),
        name=str(found["Name"]).lstrip("/"),
        state=status,
        words=words,
        image=str(config.get("Image") or ""),
        image_id=str(found.get("Image") or ""),
        created=str(found.get("Created") or ""),
        started=str(state.get("StartedAt") or ""),
        env=_env(config),
        ports=dict(_ports(found)),
    )


def _ports(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for port, bindings in ((found.get("NetworkSettings") or {}).get("Ports") or {}).items():
        for each in bindings or ():
            yield port.removesuffix("/tcp"), f"{each['HostIp']}:{each['HostPort']}"
