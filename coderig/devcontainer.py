"""Finds the file that describes a directory's dev container, and reads devcontainer.json."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from coderig.devcontainer_config import Build, ConfigError, DevConfig, Step
from coderig.devcontainer_draft import (
    Draft,
    apply_run_args,
    mount_of_fields,
    mount_of_text,
    published,
)
from coderig.devcontainer_jsonc import JsoncError, loads
from coderig.devcontainer_model import (
    EXPECTED,
    BuildShape,
    Command,
    DevcontainerShape,
    OwnShape,
    Shape,
    explain,
)
from coderig.devcontainer_variables import Variables
from coderig.place import read_size
from sandbox.backends.docker_options import DockerMount, DockerOptions
from sandbox.errors import RequestError

TOML = "coderig.toml"
STAGES = ("onCreate", "updateContent", "postCreate", "postStart", "postAttach")
# These tell nothing about the person.
_PLAIN_VARIABLES = {"HOME", "LANG", "LOGNAME", "PWD", "SHELL", "TERM", "TZ", "USER", "USERNAME"}


def find_config(directory: Path, chosen: Path | None = None) -> Path:
    """The file that describes the dev container of a directory.

    chosen  the one that the person names; relative to the current directory

    Raises ConfigError where there is none, or where there are several to choose from."""
    if chosen is not None:
        if not chosen.is_file():
            raise ConfigError(f"there is no file {chosen}")
        return chosen.absolute()
    if not directory.is_dir():
        raise ConfigError(f"{directory} is no directory")
    fixed = (TOML, ".devcontainer/devcontainer.json", ".devcontainer.json")
    for name in fixed:
        if (directory / name).is_file():
            return directory / name
    found = sorted((directory / ".devcontainer").glob("*/devcontainer.json"))
    if len(found) > 1:
        names = ", ".join(str(path.relative_to(directory)) for path in found)
        raise ConfigError(f"{directory} has several dev containers: choose with --config one of {names}")
    if not found:
        raise ConfigError(
            f"{directory} describes no dev container: it has none of {', '.join(fixed)}. "
            'The least that works is a coderig.toml with:  image = "debian:bookworm-slim"'
        )
    return found[0]


def read_config(directory: Path, source: Path, local_env: Mapping[str, str]) -> DevConfig:
    """Read a file that `find_config` gave. Raises ConfigError that names what is wrong.

    local_env  the environment of this process, for ${localEnv:NAME}
    """
    try:
        text = source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {source}: {error}") from None
    if source.suffix == ".toml":
        from coderig.devcontainer_toml import read_toml

        return read_toml(directory, source, text)
    try:
        raw = loads(text)
    except JsoncError as error:
        raise ConfigError(f"{source}:{error.line}:{error.column}: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{source}: this must be an object, in braces")
    try:
        return _Reader(directory, source, text, local_env).read(raw)
    except (ValueError, RequestError) as error:
        raise ConfigError(f"{source}: {error}") from None


_S = TypeVar("_S", bound=Shape)


def shaped(shape: type[_S], raw: object) -> _S:
    """The values of a file in their places. ValueError says in words what does not fit."""
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        raise ValueError(explain(error, EXPECTED)) from None


@dataclass(slots=True)
class _Reader:
    directory: Path
    source: Path
    text: str
    local_env: Mapping[str, str]

    def read(self, raw: dict[str, Any]) -> DevConfig:
        variables = Variables(self.directory, self.source, self.local_env)
        first = shaped(DevcontainerShape, raw)
        default_folder = f"/workspaces/{self.directory.name or 'root'}"
        variables.folder = variables.fill(first.workspaceFolder or default_folder)
        shape = shaped(DevcontainerShape, variables.fill(raw))
        draft = Draft(self.directory)
        self._workspace(draft, shape, default_folder)
        self._container(draft, shape)
        self._ports(draft, shape)
        self._refused(draft, shape)
        self._own(draft, shape)
        user = shape.remoteUser or shape.containerUser
        if user:
            draft.set("user", user)
        asked = sorted(variables.asked - _PLAIN_VARIABLES)
        draft.loosens += [f"reads {name} of this machine's environment" for name in asked]
        host_command = steps(shape.initializeCommand)
        draft.loosens += [f"wants to run on this machine: {step.words()}" for step in host_command]
        return finished(
            draft,
            directory=self.directory,
            source=self.source,
            text=self.text,
            title=shape.name,
            image=shape.image,
            build=self._build(draft, shape),
            folder=_folder(variables.folder or default_folder),
            remote_env=shape.remoteEnv,
            host_command=host_command,
            stages={stage: steps(getattr(shape, f"{stage}Command")) for stage in STAGES},
        )

    def _workspace(self, draft: Draft, shape: DevcontainerShape, folder: str) -> None:
        if shape.workspaceMount is None:
            draft.mount(DockerMount(str(self.directory), folder))
        elif shape.workspaceFolder is None:
            raise ValueError("workspaceMount needs workspaceFolder beside it")
        elif shape.workspaceMount:
            try:
                draft.mount(mount_of_text(shape.workspaceMount))
            except ValueError as error:
                raise ValueError(f"workspaceMount: {error}") from None

    def _container(self, draft: Draft, shape: DevcontainerShape) -> None:
        draft.env.update(shape.containerEnv)
        for mount in shape.mounts:
            try:
                draft.mount(
                    mount_of_text(mount)
                    if isinstance(mount, str)
                    else mount_of_fields({key.lower(): _text(value) for key, value in mount.items()})
                )
            except ValueError as error:
                if "not supported" not in str(error):
                    raise ValueError(f"mounts: {error}") from None
                draft.unsupported.append(f"mounts: {error}")
        for capability in shape.capAdd:
            draft.allow(capability.upper().removeprefix("CAP_"))
        needs = shape.hostRequirements
        if "cpus" in needs:
            draft.set("cpus", max(float(needs["cpus"]), _default("cpus")))
        if "memory" in needs:
            draft.set("memory_bytes", max(read_size(str(needs["memory"])), _default("memory_bytes")))
        if needs.get("gpu"):
            draft.unsupported.append("hostRequirements: a GPU is not handed over")
        apply_run_args(draft, shape.runArgs)

    def _ports(self, draft: Draft, shape: DevcontainerShape) -> None:
        app = shape.appPort if isinstance(shape.appPort, list) else [shape.appPort]
        for port in shape.forwardPorts:
            if isinstance(port, str) and not port.isdigit():
                host, _, _ = port.rpartition(":")
                if host not in ("localhost", "127.0.0.1"):
                    draft.unsupported.append(f"forwardPorts: {port} is a port of another container")
                    continue
            draft.publish(_port("forwardPorts", port))
        for port in app:
            draft.publish(_port("appPort", port))

    def _refused(self, draft: Draft, shape: DevcontainerShape) -> None:
        draft.unsupported += [f"features: {name} is not installed" for name in shape.features]
        if shape.privileged:
            draft.unsupported.append("privileged: a container is never privileged")
        if not shape.overrideCommand:
            draft.unsupported.append("overrideCommand: the image's own command is not run")
        for option in shape.securityOpt:
            if option.replace("=", ":").removesuffix(":true") != "no-new-privileges":
                draft.unsupported.append(f"securityOpt: {option}")
        draft.unsupported += shape.unknown()

    def _own(self, draft: Draft, shape: DevcontainerShape) -> None:
        raw = shape.customizations.get("coderig")
        if raw is None:
            return
        try:
            apply_own(draft, shaped(OwnShape, raw))
        except ValueError as error:
            raise ValueError(f"customizations.coderig: {error}") from None

    def _build(self, draft: Draft, shape: DevcontainerShape) -> Build | None:
        build = shape.build
        if build is None and shape.dockerFile is not None:
            build = BuildShape(dockerfile=shape.dockerFile, context=shape.context or ".")
        if build is None:
            return None
        draft.unsupported += [f"build.options: {option}" for option in build.options]
        cache = build.cacheFrom if isinstance(build.cacheFrom, list) else [build.cacheFrom]
        base = self.source.parent
        return Build(
            dockerfile=(base / build.dockerfile).resolve(),
            context=(base / build.context).resolve(),
            args={name: _text(value) for name, value in build.args.items()},
            target=build.target,
            cache_from=tuple(cache),
        )


def finished(draft: Draft, *, image: str | None, build: Build | None, folder: str, **more: Any) -> DevConfig:
    """The value that a draft has become. ValueError for what cannot be together."""
    if image is None and build is None:
        raise ValueError("neither image nor build is given; one of them says what the container is made of")
    if image is not None and build is not None:
        raise ValueError("image and build are both given; give one of them")
    if image is not None and (not image or any(c.isspace() for c in image)):
        raise ValueError(f"image: {image!r} is no name of an image")
    network = draft.values.get("network")
    if draft.ports and network is None:
        network = "bridge"
    if draft.ports and network in ("none", "host"):
        raise ValueError(f"ports cannot be forwarded from a container whose network is {network}")
    if network not in (None, "none"):
        why = " (for the ports)" if draft.values.get("network") is None else ""
        draft.loosens.append(f"connects the container to the network {network}{why}")
    name = draft.values.get("name")
    if name is not None and not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}", name):
        raise ValueError(f"{name!r} is no name of a container")
    values = {**draft.values, **({} if network is None else {"network": network})}
    if draft.ports:
        values["ports"] = tuple(draft.ports)
    options = DockerOptions(
        image="-",
        env=draft.env,
        mounts=tuple(draft.mounts),
        cap_add=tuple(draft.cap_add),
        keep=True,
        **values,
    )
    return DevConfig(
        image=image,
        build=build,
        options=options,
        folder=folder,
        user_given="user" in values,
        loosens=tuple(dict.fromkeys(draft.loosens)),
        unsupported=tuple(dict.fromkeys(draft.unsupported)),
        **more,
    )


def apply_own(draft: Draft, own: OwnShape) -> None:
    """The settings that are ours, by the names they have in the name of a place."""
    if own.network is not None:
        draft.connect(own.network)
    if own.memory is not None:
        draft.set("memory_bytes", read_size(str(own.memory)))
    if own.cpus is not None:
        draft.set("cpus", float(own.cpus))
    if own.pids is not None:
        draft.set("pids_limit", own.pids)
    if own.tmpfs is not None:
        draft.set("tmpfs_bytes", read_size(str(own.tmpfs)))
    if own.read_only is not None:
        draft.set("read_only", own.read_only)


def steps(command: Command | None) -> tuple[Step, ...]:
    """The commands of one property."""
    if command is None or command == "" or command == []:
        return ()
    if isinstance(command, dict):
        return tuple(
            Step(text if isinstance(text, str) else tuple(text), name)
            for name, text in command.items()
            if text
        )
    return (Step(command if isinstance(command, str) else tuple(command)),)


def _folder(path: str) -> str:
    if not posixpath.isabs(path):
        raise ValueError(f"workspaceFolder: {path!r} is no absolute path in the container")
    return posixpath.normpath(path)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(option: str) -> Any:
    return next(each.default for each in fields(DockerOptions) if each.name == option)


def _port(prop: str, port: int | str) -> int:
    try:
        return published(str(port))
    except ValueError as error:
        raise ValueError(f"{prop}: {error}") from None
