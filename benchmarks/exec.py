"""A command in a named shell, and a command from start to end: the floor, coderig, and its peers, in one run.

    make bench
    .venv/bin/python benchmarks/exec.py [--places local,ssh,docker] [--rounds N] [--seconds S]
                                        [--peers] [--json FILE]

Needs what the tests need: a real dockerd and sshd are started if there are none. `--peers` installs
the peers, each into an environment of its own below .venv/bench, and measures them as well.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services.docker_service import DockerService, docker_service
from services.ssh_service import SshService, start_sshd

from benchmarks import floors, peers
from benchmarks.floors import Call, check
from benchmarks.measure import Contender, Table, bounded, interleave, table, timed, versions
from sandbox import DockerSandbox, LocalSandbox, Sandbox, SSHSandbox
from sandbox.backends.docker import DockerOptions
from sandbox.backends.ssh import SshOptions

SHELL, EXEC = "named shell", "one-shot exec"
WORK = ((SHELL, "true"), (SHELL, "echo hi"), (EXEC, "echo hi"))
# As ratios of medians in the same run; the design's targets for what a shell and an exec cost.
TARGETS = {
    ("local", SHELL): 2.0,
    ("ssh", SHELL): 2.0,
    ("docker", SHELL): 2.0,
    ("local", EXEC): 1.0,
    ("ssh", EXEC): 1.0,
    ("docker", EXEC): 0.1,
}
OPEN_LIMIT_S = 120.0
MOST_CALLS = 4000


@dataclass
class Field:
    """Who takes part at one place, by kind of work; the floor comes first."""

    place: str
    ways: dict[str, list[tuple[str, Call]]] = field(default_factory=lambda: {SHELL: [], EXEC: []})
    absent: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, name: str, call: Call) -> None:
        """One more contender."""
        self.ways[kind].append((name, call))


def ours(box: Sandbox) -> dict[str, Call]:
    """coderig's two ways to run a command in a place."""
    shell = box.shell("bench")

    def in_shell(command: str) -> Callable[[], float]:
        def work() -> None:
            result = shell.run(command)
            check(command, result.captured.data, result.exit_code)

        return timed(work)

    def one_shot(command: str) -> Callable[[], float]:
        def work() -> None:
            result = box.exec(command)
            check(command, result.stdout_output.data, result.exit_code)

        return timed(work)

    return {SHELL: in_shell, EXEC: one_shot}


@contextlib.contextmanager
def local_field() -> Iterator[Field]:
    """This machine."""
    with contextlib.ExitStack() as stack:
        found = Field("local")
        found.add(SHELL, "floor: bash on a raw PTY", stack.enter_context(floors.local_shell()))
        found.add(EXEC, "floor: subprocess.run bash -c", stack.enter_context(floors.local_exec()))
        box = stack.enter_context(LocalSandbox(stack.enter_context(tempfile.TemporaryDirectory())))
        for kind, call in ours(box).items():
            found.add(kind, "coderig LocalSandbox", call)
        yield found


@contextlib.contextmanager
def ssh_field(service: SshService) -> Iterator[Field]:
    """A real sshd on loopback."""
    options = SshOptions(
        host=service.host,
        port=service.port,
        user=service.user,
        identity_file=str(service.identity_file),
        known_hosts_file=str(service.known_hosts_file),
        use_ssh_config=False,
    )
    with contextlib.ExitStack() as stack:
        found = Field("ssh")
        client = stack.enter_context(floors.ssh_client(service))
        found.add(SHELL, "floor: bash on a PTY channel", stack.enter_context(floors.ssh_shell(client)))
        found.add(EXEC, "floor: paramiko exec_command", stack.enter_context(floors.ssh_exec(client)))
        for kind, call in ours(stack.enter_context(SSHSandbox(options))).items():
            found.add(kind, "coderig SSHSandbox", call)
        found.versions["sshd"] = str(client.get_transport().remote_version)  # type: ignore[union-attr]
        yield found


@contextlib.contextmanager
def docker_field(service: DockerService) -> Iterator[Field]:
    """A real dockerd."""
    with contextlib.ExitStack() as stack:
        found = Field("docker")
        client, container = stack.enter_context(floors.docker_container(service))
        floor = floors.docker_shell(client, container)
        found.add(SHELL, "floor: bash on an exec's TTY", stack.enter_context(floor))
        found.add(
            EXEC, "floor: exec through the API", stack.enter_context(floors.docker_exec(client, container))
        )
        options = DockerOptions(image=service.debian_image, host=service.url)
        for kind, call in ours(stack.enter_context(DockerSandbox(options))).items():
            found.add(kind, "coderig DockerSandbox", call)
        found.versions["dockerd"] = str(client.version()["Version"])
        yield found


@contextlib.contextmanager
def open_field(place: str, with_peers: bool) -> Iterator[Field]:
    """Everybody at one place, ready."""
    with contextlib.ExitStack() as stack:
        if place == "local":
            access: dict[str, str] = {}
            found = stack.enter_context(local_field())
        elif place == "ssh":
            sshd = stack.enter_context(start_sshd())
            access = {"host": sshd.host, "port": str(sshd.port), "user": sshd.user}
            access |= {"key": str(sshd.identity_file), "known_hosts": str(sshd.known_hosts_file)}
            found = stack.enter_context(ssh_field(sshd))
        else:
            daemon = stack.enter_context(docker_service())
            access = {"url": daemon.url, "image": daemon.debian_image}
            found = stack.enter_context(docker_field(daemon))
        if with_peers:
            stack.enter_context(_with_peers(found, access))
        yield found


@contextlib.contextmanager
def _with_peers(found: Field, access: dict[str, str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        found.absent |= peers.NOT_DRIVEN.get(found.place, {})
        for peer in peers.PEERS:
            if found.place not in peer.places:
                continue
            try:
                worker = stack.enter_context(peers.start(peer, found.place, access))
            except peers.PeerAbsent as error:
                found.absent[peer.package] = str(error)
                continue
            found.versions[peer.package] = worker.version
            for kind in worker.kinds:
                found.add(kind, f"{peer.package} {worker.kinds[kind]}", worker.call(kind))
        yield


def measure(found: Field, *, rounds: int, seconds: float) -> list[Table]:
    """The tables of one place."""
    tables = []
    for kind, command in WORK:
        with bounded(OPEN_LIMIT_S):
            contenders = [Contender(name, call(command)) for name, call in found.ways[kind]]
        interleave(contenders, rounds=rounds, seconds=seconds, most_calls=MOST_CALLS)
        tables.append(table(f"{found.place}: {kind}, `{command}`", contenders, TARGETS[found.place, kind]))
        print(tables[-1].text(), end="\n\n", flush=True)
    return tables


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if the floor or coderig failed somewhere."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--places", default="local,ssh,docker", help="default: %(default)s")
    parser.add_argument(
        "--rounds", type=int, default=20, help="turns of each contender; default: %(default)s"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each contender in each table; default: %(default)s"
    )
    parser.add_argument("--peers", action="store_true", help="install and measure the peers too")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    chosen = parser.parse_args(arguments)
    places = chosen.places.split(",")
    if unknown := set(places) - {"local", "ssh", "docker"}:
        parser.error(f"no such place: {', '.join(sorted(unknown))}")
    return _run(places, chosen)


def _run(places: Sequence[str], chosen: argparse.Namespace) -> int:
    tables: list[Table] = []
    found_versions = versions("coderig", "paramiko", "docker", "ptyprocess") | {"bash": _bash_version()}
    absent: dict[str, dict[str, str]] = {}
    for place in places:
        with open_field(place, chosen.peers) as found:
            tables += measure(found, rounds=chosen.rounds, seconds=chosen.seconds)
        found_versions |= found.versions
        absent[place] = found.absent
        for name, why in found.absent.items():
            print(f"{place}: {name} took no part: {why}")
    print("versions: " + ", ".join(f"{name} {version}" for name, version in found_versions.items()))
    if chosen.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": found_versions,
            "absent": absent,
            "tables": [dataclasses.asdict(each) for each in tables],
        }
        chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(row.failed for each in tables for row in each.rows if _is_ours_or_floor(row.name)))


def _is_ours_or_floor(name: str) -> bool:
    return name.startswith(("floor:", "coderig "))


def _bash_version() -> str:
    return subprocess.run(
        ["bash", "-c", "printf %s $BASH_VERSION"], capture_output=True, text=True, timeout=10
    ).stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
