"""Opens benches: on this machine with bash or dash, or on a place of the contract suite."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from fuzz.grammar import Dialect
from fuzz.lab import Lab
from fuzz.shells import LocalRunner, PlaceRunner, environment
from fuzz.yard import START, LocalYard, PlaceYard
from sandbox import LocalSandbox, Sandbox
from sandbox.backend import Backend, Process
from sandbox.values import SpawnRequest

_FOLDERS = ("/usr/sbin", "/usr/bin")


@contextlib.contextmanager
def local(base: Path, shell: Dialect) -> Iterator[Lab]:
    """This machine, with bash; or as one without bash, where sh is dash, or busybox."""
    home = base / "home"
    home.mkdir(parents=True)
    yard = LocalYard(base, shell)
    path = ":".join(_FOLDERS) if shell == "bash" else _programs_without_bash(base / "programs", shell)
    with mock.patch.dict(os.environ, {"PATH": path}):
        box = LocalSandbox(yard.start, env={"HOME": str(home)})
    with box:
        program = "sh" if shell == "ash" else shell
        yield Lab(program, shell, box, LocalRunner(environment(box)), yard)


def _programs_without_bash(folder: Path, shell: Dialect) -> str:
    folder.mkdir()
    if shell == "ash":
        for name in ("sh", "ash"):
            (folder / name).symlink_to("/usr/bin/busybox")
    for place in _FOLDERS:
        for program in Path(place).iterdir():
            link = folder / program.name
            if program.name not in ("bash", "rbash") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


class _Borrowed:
    """A backend whose place belongs to somebody else."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.ahead = backend.ahead

    def spawn(self, request: SpawnRequest) -> Process:
        """See Backend.spawn."""
        return self._backend.spawn(request)

    def close(self) -> None:
        """The place stays open."""


@contextlib.contextmanager
def elsewhere(place: Sandbox, base: str, shell: Dialect) -> Iterator[Lab]:
    """A place of the contract suite, in a directory of it; `shell` is bash, dash or ash."""
    start = f"{base}/{START}"
    program = "sh" if shell == "ash" else shell
    with Sandbox(_Borrowed(place.backend), name=place.name, directory=start) as box:
        yield Lab(program, shell, box, PlaceRunner(place, environment(place)), PlaceYard(place, base))
