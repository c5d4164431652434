"""What a file asks of a dev container: the value that devcontainer.json and coderig.toml both become."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coderig.guard import UsageError
from sandbox.backends.docker_options import DockerOptions

CREATE_STAGES = ("onCreate", "updateContent", "postCreate")
"""Run once in the life of a container, in this order."""
START_STAGES = ("postStart",)
"""Run at each start of a container."""
ATTACH_STAGES = ("postAttach",)
"""Run each time somebody opens a shell."""


class ConfigError(UsageError):
    """The file cannot be used as it is; the message names the file, the place in it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a stage: text for a shell, or a program and its arguments. `name` "" if it has none."""

    command: str | tuple[str, ...]
    name: str = ""

    def words(self) -> str:
        """As a person reads it."""
        text = self.command if isinstance(self.command, str) else json.dumps(list(self.command))
        return f"{self.name}: {text}" if self.name else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How the image is built. Both paths are absolute; `target` None: the last stage."""

    dockerfile: Path
    context: Path
    args: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    cache_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DevConfig:
    """One dev container, as its file wants it.

    directory     the workspace on this machine, absolute
    source        the file
    text          what it holds
    image, build  one of them
    options       of the container; `image` is "-" until it is known, `name` is None unless the file gives one
    folder        the working directory in the container
    remote_env    for programs, not for the container; None takes a variable away
    user_given    the file names a user, so the image is not asked for one
    host_command  what the file wants to run on this machine
    stages        stage -> its commands; those of one stage run at once
    loosens       what the file opens beyond the defaults, one line each
    unsupported   what the file asks for and does not get, one line each
    """

    directory: Path
    source: Path
    text: str
    title: str = ""
    image: str | None = None
    build: Build | None = None
    options: DockerOptions
    folder: str
    remote_env: Mapping[str, str | None] = field(default_factory=dict)
    user_given: bool = False
    host_command: tuple[Step, ...] = ()
    stages: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    loosens: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The container's name: the file's, else one of the directory, the same each time."""
        if self.options.name is not None:
            return self.options.name
        return container_name(self.directory, self.source)

    @property
    def creation(self) -> dict[str, list[str]]:
        """The commands that made the container what it is; others than these ask for a new one."""
        found = {stage: [step.words() for step in self.stages.get(stage, ())] for stage in CREATE_STAGES}
        return {stage: words for stage, words in found.items() if words}


def container_name(directory: Path, source: Path) -> str:
    """A name that the same directory and file always get."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in directory.name)
    place = f"{directory}\n{source}".encode("utf-8", "surrogateescape")
    return f"coderig-{plain.strip('-._')[:40] or 'dev'}-{hashlib.sha256(place).hexdigest()[:8]}"


def options_record(options: DockerOptions) -> dict[str, Any]:
    """The options as JSON can hold them."""
    record = asdict(options)
    record["directory"] = None if options.directory is None else str(options.directory)
    return record
