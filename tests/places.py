"""Opens the places of the contract suite."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox import DockerSandbox, LocalSandbox, Sandbox, SSHSandbox

PLACES = ("local", "local-dash", "ssh", "docker-debian", "docker-busybox")
COLD = "-cold"
"""Ending of a place's name: the same place with nothing started ahead."""
KNOWN: dict[tuple[str, str], str] = {
    (
        "docker-debian",
        "test_an_editor_writes_what_was_typed_and_its_screen_is_right",
    ): "the image has no editor",
}
"""(place, test) -> why it cannot hold there."""


def needs(place: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that runs on a place."""
    marks = {"ssh": pytest.mark.ssh, "docker": pytest.mark.docker}
    return [mark for word, mark in marks.items() if place.startswith(word)]


@dataclass
class Place:
    """A sandbox under test and facts about its place that tests may need."""

    name: str
    box: Sandbox
    shell: str
    """The shell that a command runs under there: bash, dash or ash."""
    base: str
    """A directory of the place that belongs to the tests."""

    def fresh(self) -> str:
        """A new empty directory in the place, absolute."""
        path = f"{self.base}/{secrets.token_hex(6)}"
        self.box.make_dirs(path)
        return path

    def processes(self, word: str) -> list[str]:
        """The command lines in the place that hold a word; needs no ps."""
        script = (
            "for f in /proc/[0-9]*/cmdline; do s=${f%/cmdline}/stat; "
            "{ IFS= read -r l <$s; } 2>/dev/null || continue; "
            "case ${l##*) } in Z*) continue;; esac; tr '\\0' ' ' <$f 2>/dev/null; echo; done"
        )
        lines = self.box.exec(script).stdout.splitlines()
        return [line for line in lines if word in line and "/cmdline" not in line]


@contextlib.contextmanager
def open_place(name: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[Place]:
    """The place of that name."""
    kind, warm = name.removesuffix(COLD), not name.endswith(COLD)
    with contextlib.ExitStack() as stack:
        if kind == "local":
            local = stack.enter_context(LocalSandbox(directory, warm=warm))
            yield Place(name, local, "bash", str(directory))
        elif kind == "local-dash":
            dash = stack.enter_context(_without_bash(directory, warm=warm))
            yield Place(name, dash, "dash", str(directory))
        elif kind == "ssh":
            from sandbox.backends.ssh import SshOptions

            service = request.getfixturevalue("ssh_service")
            options = SshOptions(
                host=service.host,
                port=service.port,
                user=service.user,
                identity_file=str(service.identity_file),
                known_hosts_file=str(service.known_hosts_file),
                use_ssh_config=False,
            )
            ssh = stack.enter_context(SSHSandbox(options, str(directory), warm=warm))
            yield Place(name, ssh, "bash", str(directory))
        else:
            from sandbox.backends.docker import DockerOptions

            daemon = request.getfixturevalue("docker_daemon")
            image = daemon.debian_image if kind == "docker-debian" else daemon.busybox_image
            box = stack.enter_context(DockerSandbox(DockerOptions(image=image, host=daemon.url), warm=warm))
            yield Place(name, box, "bash" if kind == "docker-debian" else "ash", "/workspace")


def _without_bash(directory: Path, *, warm: bool) -> Sandbox:
    """This machine as one without bash: every program but that, so that sh (dash on Debian) is used."""
    programs = directory / "programs"
    programs.mkdir()
    for folder in ("/usr/sbin", "/usr/bin"):
        for program in Path(folder).iterdir():
            link = programs / program.name
            if program.name not in ("bash", "rbash") and not link.is_symlink():
                link.symlink_to(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs))
        return LocalSandbox(directory, warm=warm)
