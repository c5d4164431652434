"""Opens benches: on this machine with bash or dash, or on a place of the contract suite."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from fuzz.lab import Lab
from fuzz.shells import LocalRunner, PlaceRunner, environment
from fuzz.yard import LocalYard, PlaceYard
from sandbox import LocalSandbox, Sandbox

_FOLDERS = ("/usr/sbin", "/usr/bin")


@contextlib.contextmanager
def local(base: Path, shell: str) -> Iterator[Lab]:
    """This machine, with bash; or as one without bash, where sh is dash."""
    home = base / "home"
    home.mkdir(parents=True)
    yard = LocalYard(base, shell)
    path = ":".join(_FOLDERS) if shell == "bash" else _programs_without_bash(base / "programs")
    with mock.patch.dict(os.environ, {"PATH": path}):
        box = LocalSandbox(yard.start, env={"HOME": str(home)})
    with box:
        yield Lab(shell, shell, box, LocalRunner(environment(box)), yard)


def _programs_without_bash(folder: Path) -> str:
    folder.mkdir()
    for place in _FOLDERS:
        for program in Path(place).iterdir():
            link = folder / program.name
            if program.name not in ("bash", "rbash") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def elsewhere(box: Sandbox, base: str, shell: str) -> Lab:
    """A place of the contract suite; `box` must work in `base`/run/a/b/c."""
    program = "sh" if shell == "ash" else shell
    return Lab(program, shell, box, PlaceRunner(box, environment(box)), PlaceYard(box, base))
