"""The directory in which scripts run, made anew for each run: on this machine, or in a place."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from fuzz.normal import SCRIPT_NAME, normal
from fuzz.shells import Observer
from sandbox import NotFound, Sandbox

START = "run/a/b/c"
"""Scripts start a few levels down, so that their `cd ..` stays inside."""


class Yard(Protocol):
    """Where scripts run. Paths are absolute, in the place."""

    start: str
    script: str
    observer: Observer

    def fresh(self) -> None:
        """Make the directory empty."""

    def write_script(self, data: bytes) -> None:
        """Put a script where the references read it."""

    def take_state(self) -> bytes:
        """What the observer wrote, and forget it."""
        ...

    def files(self) -> tuple[tuple[str, str], ...]:
        """Everything in the directory, as path and content; empty if this yard does not look."""
        ...


class LocalYard:
    """A directory of this machine."""

    def __init__(self, base: Path, dialect: str) -> None:
        self._dialect = dialect
        self._base = base
        self._top = base / "run"
        self._state = base / "state"
        self.start = str(base / START)
        self.script = str(base / SCRIPT_NAME)
        self.observer = Observer("/usr/bin/env", "/usr/bin/readlink", str(self._state))
        self.fresh()

    def fresh(self) -> None:
        """See Yard.fresh."""
        if self._top.exists():
            if os.geteuid() != 0:  # a script may have closed a directory to us
                for folder, _, _ in os.walk(self._top):
                    Path(folder).chmod(0o700)
            shutil.rmtree(self._top)
        Path(self.start).mkdir(parents=True)

    def write_script(self, data: bytes) -> None:
        """See Yard.write_script."""
        Path(self.script).write_bytes(data)

    def take_state(self) -> bytes:
        """See Yard.take_state."""
        if not self._state.exists():
            return b""
        data = self._state.read_bytes()
        self._state.unlink()
        return data

    def files(self) -> tuple[tuple[str, str], ...]:
        """See Yard.files: path, and mode with content or target."""
        return tuple(_walk(self._top, self._dialect))


def _walk(top: Path, dialect: str) -> Iterator[tuple[str, str]]:
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = Path(folder) / name
            info = path.lstat()
            kind = stat.filemode(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                kind += f" {path.readlink()}"
            elif stat.S_ISREG(info.st_mode):
                kind += f" {normal(path.read_bytes(), dialect, lines=False)!r}"
            yield str(path.relative_to(top)), kind


class PlaceYard:
    """A directory of any place; what scripts leave in it is not looked at."""

    def __init__(self, box: Sandbox, base: str) -> None:
        self._box = box
        self._base = base
        self.start = f"{base}/{START}"
        self.script = f"{base}/{SCRIPT_NAME}"
        self._state = f"{base}/state"
        found = box.exec("command -v env; command -v readlink", cwd="/").stdout.split()
        self.observer = Observer(found[0], found[1], self._state)
        self.fresh()

    def fresh(self) -> None:
        """See Yard.fresh."""
        script = 'cd / && rm -rf "$1/run" && mkdir -p "$2"'
        done = self._box.exec(["sh", "-c", script, "sh", self._base, self.start], cwd="/")
        assert done.exit_code == 0, done.stderr

    def write_script(self, data: bytes) -> None:
        """See Yard.write_script."""
        self._box.write_file(self.script, data)

    def take_state(self) -> bytes:
        """See Yard.take_state."""
        try:
            data = self._box.read_file(self._state)
        except NotFound:
            return b""
        self._box.remove(self._state)
        return data

    def files(self) -> tuple[tuple[str, str], ...]:
        """See Yard.files."""
        return ()
