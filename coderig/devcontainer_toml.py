"""Reads coderig.toml: a dev container in our own words."""

from __future__ import annotations

import posixpath
import tomllib
from pathlib import Path

from pydantic import ConfigDict, Field

from coderig.devcontainer import apply_own, finished, shaped, steps
from coderig.devcontainer_config import Build, ConfigError, DevConfig
from coderig.devcontainer_draft import Draft, mount_of_text, mount_of_volume, published
from coderig.devcontainer_model import Command, OwnShape, Shape
from sandbox.backends.docker_options import DockerMount
from sandbox.errors import RequestError


class _Build(Shape):
    model_config = ConfigDict(strict=True, extra="forbid")

    dockerfile: str = "Dockerfile"
    context: str = "."
    args: dict[str, str] = Field(default_factory=dict)
    target: str | None = None


class _File(OwnShape):
    """Every setting but one of `image` and `build` may be left out."""

    image: str | None = None
    build: _Build | None = None
    name: str | None = None
    user: str | None = None
    folder: str = "/workspace"
    mount: bool = True
    env: dict[str, str] = Field(default_factory=dict)
    mounts: list[str] = Field(default_factory=list)
    ports: list[int] = Field(default_factory=list)
    cap_add: list[str] = Field(default_factory=list)
    runtime: str | None = None
    platform: str | None = None
    on_create: Command | None = None
    post_create: Command | None = None
    post_start: Command | None = None


def read_toml(directory: Path, source: Path, text: str) -> DevConfig:
    """The dev container that a coderig.toml describes. Raises ConfigError."""
    try:
        shape = shaped(_File, tomllib.loads(text))
        return _read(directory, source, text, shape)
    except (ValueError, RequestError) as error:
        raise ConfigError(f"{source}: {error}") from None


def _read(directory: Path, source: Path, text: str, shape: _File) -> DevConfig:
    draft = Draft(directory)
    if not posixpath.isabs(shape.folder):
        raise ValueError(f"folder: {shape.folder!r} is no absolute path in the container")
    folder = posixpath.normpath(shape.folder)
    if shape.mount:
        draft.mount(DockerMount(str(directory), folder))
    for mount in shape.mounts:
        try:
            draft.mount(mount_of_text(mount) if "=" in mount else mount_of_volume(_from(directory, mount)))
        except ValueError as error:
            raise ValueError(f"mounts: {error}") from None
    draft.env.update(shape.env)
    for capability in shape.cap_add:
        draft.allow(capability.upper().removeprefix("CAP_"))
    for port in shape.ports:
        draft.publish(published(str(port)))
    for option in ("name", "user", "runtime", "platform"):
        value = getattr(shape, option)
        if value is not None:
            draft.set(option, value)
    apply_own(draft, shape)
    build = None
    if shape.build is not None:
        build = Build(
            dockerfile=(source.parent / shape.build.dockerfile).resolve(),
            context=(source.parent / shape.build.context).resolve(),
            args=shape.build.args,
            target=shape.build.target,
        )
    return finished(
        draft,
        directory=directory,
        source=source,
        text=text,
        image=shape.image,
        build=build,
        folder=folder,
        stages={
            "onCreate": steps(shape.on_create),
            "postCreate": steps(shape.post_create),
            "postStart": steps(shape.post_start),
        },
    )


def _from(directory: Path, mount: str) -> str:
    """A relative directory of this machine starts at the workspace."""
    return str(directory / mount) if mount.startswith(("./", "../")) else mount
