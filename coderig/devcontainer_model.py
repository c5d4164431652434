"""The properties of devcontainer.json that are read, and which of the others are told to a person."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Command = str | list[str] | dict[str, str | list[str]]
Text = str | int | float | bool


class Shape(BaseModel):
    """Values are taken as they are written: "8" is no number. What is not named here is not an error here."""

    model_config = ConfigDict(strict=True, extra="allow", populate_by_name=True)


class BuildShape(Shape):
    """The `build` object."""

    dockerfile: str = "Dockerfile"
    context: str = "."
    args: dict[str, Text] = Field(default_factory=dict)
    target: str | None = None
    cacheFrom: str | list[str] = Field(default_factory=list)
    options: list[str] = Field(default_factory=list)


class OwnShape(Shape):
    """`customizations.coderig`: what the specification has no property for."""

    model_config = ConfigDict(strict=True, extra="forbid")

    network: str | None = None
    memory: str | int | None = None
    cpus: int | float | None = None
    pids: int | None = None
    tmpfs: str | int | None = None
    read_only: bool | None = None


class DevcontainerShape(Shape):
    """devcontainer.json."""

    name: str = ""
    image: str | None = None
    build: BuildShape | None = None
    dockerFile: str | None = None
    context: str | None = None
    workspaceFolder: str | None = None
    workspaceMount: str | None = None
    mounts: list[str | dict[str, Text]] = Field(default_factory=list)
    containerEnv: dict[str, str] = Field(default_factory=dict)
    remoteEnv: dict[str, str | None] = Field(default_factory=dict)
    containerUser: str | None = None
    remoteUser: str | None = None
    forwardPorts: list[int | str] = Field(default_factory=list)
    appPort: int | str | list[int | str] = Field(default_factory=list)
    runArgs: list[str] = Field(default_factory=list)
    capAdd: list[str] = Field(default_factory=list)
    securityOpt: list[str] = Field(default_factory=list)
    privileged: bool = False
    overrideCommand: bool = True
    hostRequirements: dict[str, Any] = Field(default_factory=dict)
    features: dict[str, Any] = Field(default_factory=dict)
    customizations: dict[str, Any] = Field(default_factory=dict)
    initializeCommand: Command | None = None
    onCreateCommand: Command | None = None
    updateContentCommand: Command | None = None
    postCreateCommand: Command | None = None
    postStartCommand: Command | None = None
    postAttachCommand: Command | None = None

    def unknown(self) -> list[str]:
        """What the file asks for beyond these, one line each."""
        found = []
        for key in self.model_extra or {}:
            if key in _FOR_OTHERS:
                continue
            if key in _NOT_HERE:
                found.append(f"{key}: {_NOT_HERE[key]}")
                continue
            near = difflib.get_close_matches(key, [*type(self).model_fields, *_NOT_HERE, *_FOR_OTHERS], n=1)
            found.append(
                f"{key}: this property is not known" + (f"; did you mean {near[0]}?" if near else "")
            )
        return found


# Editors use these; a container is the same with and without them.
_FOR_OTHERS = (
    "$schema", "portsAttributes", "otherPortsAttributes", "shutdownAction", "waitFor", "userEnvProbe", "init",
    "updateRemoteUserUID", "overrideFeatureInstallOrder", "extensions", "settings", "devPort",
)  # fmt: skip
_NOT_HERE = {
    "dockerComposeFile": "services of Docker Compose are not started",
    "service": "services of Docker Compose are not started",
    "runServices": "services of Docker Compose are not started",
    "secrets": "secrets are not asked for",
}


def explain(error: ValidationError, expected: Mapping[str, str]) -> str:
    """What is wrong first, in words. `expected`: property -> what it may be, where that is several things."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if path and path[0] in expected:
        return f"{path[0]}: this must be {expected[path[0]]}"
    message = str(first["msg"])
    if first["type"] == "extra_forbidden":
        message = "this setting is not known"
    return f"{'.'.join(path)}: {message[:1].lower()}{message[1:]}"


_A_COMMAND = "a text, a list of texts, or an object of these"
EXPECTED = {
    **dict.fromkeys(
        (
            "initializeCommand",
            "onCreateCommand",
            "updateContentCommand",
            "postCreateCommand",
            "postStartCommand",
            "postAttachCommand",
        ),
        _A_COMMAND,
    ),
    "forwardPorts": 'a list of ports, as 3000 or "db:5432"',
    "appPort": "a port, or a list of ports",
    "mounts": "a list of texts or objects",
    "containerEnv": "an object of texts",
    "remoteEnv": "an object of texts (null takes a variable away)",
}
