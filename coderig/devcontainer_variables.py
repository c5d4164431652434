"""The variables of devcontainer.json, such as ${localWorkspaceFolder}."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")


@dataclass(slots=True)
class Variables:
    """What variables stand for. What is no variable of ours stays as it is: it may be the shell's.

    directory   the workspace on this machine, absolute
    folder      the workspace in the container; None: not known yet
    local_env   the environment of this process
    asked       the names of local variables that were used, so that a person can be told
    """

    directory: Path
    config_file: Path
    local_env: Mapping[str, str]
    folder: str | None = None
    asked: set[str] = field(default_factory=set)

    def fill(self, value: Any) -> Any:
        """The value with each variable in each of its texts replaced. Keys of objects stay."""
        if isinstance(value, str):
            return _VARIABLE.sub(self._one, value)
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill(item) for key, item in value.items()}
        return value

    def _one(self, found: re.Match[str]) -> str:
        name, _, rest = found[1].partition(":")
        if name in ("localEnv", "env") and rest:
            variable, _, default = rest.partition(":")
            self.asked.add(variable)
            return self.local_env.get(variable, default)
        known = {
            "localWorkspaceFolder": str(self.directory),
            "localWorkspaceFolderBasename": self.directory.name,
            "devcontainerId": self.identity,
        }
        if self.folder is not None:
            known["containerWorkspaceFolder"] = self.folder
            known["containerWorkspaceFolderBasename"] = self.folder.rstrip("/").rpartition("/")[2]
        return found[0] if rest else known.get(name, found[0])

    @property
    def identity(self) -> str:
        """The container's own id by the specification: a hash of its labels, in 52 digits of base 32."""
        labels = {
            "devcontainer.config_file": str(self.config_file),
            "devcontainer.local_folder": str(self.directory),
        }
        text = json.dumps(labels, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        number = int(hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(), 16)
        digits = ""
        while number:
            number, digit = divmod(number, 32)
            digits = "0123456789abcdefghijklmnopqrstuv"[digit] + digits
        return digits.rjust(52, "0")


def fill_container_env(values: Mapping[str, str | None], env: Mapping[str, str]) -> dict[str, str | None]:
    """remoteEnv with ${containerEnv:NAME} and ${containerEnv:NAME:default} taken from the container."""

    def one(found: re.Match[str]) -> str:
        kind, _, rest = found[1].partition(":")
        if kind != "containerEnv" or not rest:
            return found[0]
        name, _, default = rest.partition(":")
        return env.get(name, default)

    return {name: None if value is None else _VARIABLE.sub(one, value) for name, value in values.items()}
