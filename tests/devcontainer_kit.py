"""Dev containers under test: images like those that people use, made from the test image, and a workspace."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import docker.errors
from coderig_kit import Cli, Finished

PYTHON_IMAGE = "coderig-test-dev-python:3"
NODE_IMAGE = "coderig-test-dev-node:20"
_PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DOCKERFILES = {
    # As the images of the dev container project: root by itself, and a user in its metadata.
    PYTHON_IMAGE: """
        RUN useradd --create-home --uid 1000 --shell /bin/bash vscode
        LABEL devcontainer.metadata='[{"remoteUser":"vscode"},{"capAdd":["SYS_PTRACE"]}]'
        """,
    # As the official image of Node.js: a user `node` that the file has to name.
    NODE_IMAGE: """
        RUN useradd --create-home --uid 1000 --shell /bin/bash node
        ENV NODE_VERSION=20.11.0
        RUN printf '#!/bin/sh\\necho "v$NODE_VERSION"\\n' >/usr/local/bin/node && chmod +x /usr/local/bin/node
        """,
}


def make_images(client: docker.DockerClient, base: str) -> None:
    """Build both on the test image; the daemon's cache makes this quick from the second time on."""
    for tag, lines in _DOCKERFILES.items():
        text = "\n".join([f"FROM {base}", _PATH, *(line.strip() for line in lines.strip().splitlines())])
        client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True)


@dataclass
class Dev:
    """The command line in a workspace, with a daemon."""

    cli: Cli
    client: docker.DockerClient
    made: set[str] = field(default_factory=set)

    @property
    def file(self) -> Path:
        """Its devcontainer.json."""
        return self.cli.work / ".devcontainer/devcontainer.json"

    def write(self, raw: Mapping[str, Any] | str) -> None:
        """Write devcontainer.json, as JSON or as text."""
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(raw if isinstance(raw, str) else json.dumps(raw))

    def up(self, *arguments: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
        """`coderig up --json`: exit code, its last line, the lines before."""
        done = self.cli.run("up", "--json", *arguments)
        assert done.lines, done
        end = done.lines[-1]
        self.made.add(str(end.get("name")))
        assert end["type"] == "end", done
        assert end["exit_code"] == done.code
        return done.code, end, done.lines[:-1]

    def ready(self, *arguments: str) -> dict[str, Any]:
        """An `up` that must work; its last line."""
        code, end, lines = self.up(*arguments)
        assert code == 0, (end, lines)
        return end

    def inside(self, command: str) -> str:
        """What a command prints in the dev container of the workspace."""
        done = self.cli.run("exec", "--place", "dev", command)
        assert done.code == 0, done
        return done.out

    def run(self, *arguments: str) -> Finished:
        """Any other command."""
        return self.cli.run(*arguments)

    def container(self) -> Any:
        """The only container that was made here."""
        (name,) = self.made
        return self.client.containers.get(name)


@contextlib.contextmanager
def opened(cli: Cli, url: str) -> Iterator[Dev]:
    """A workspace that belongs to the person 1000; every container that is made there goes afterwards."""
    client = docker.DockerClient(base_url=url)
    cli.env["DOCKER_HOST"] = url
    dev = Dev(cli, client)
    try:
        yield dev
    finally:
        records = cli.home / "state" / "containers"
        for name in {*dev.made, *(path.stem for path in records.glob("*.json"))}:
            with contextlib.suppress(docker.errors.NotFound):
                client.containers.get(name).remove(force=True, v=True)
        client.close()
