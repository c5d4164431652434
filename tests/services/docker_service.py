"""A real dockerd for the tests, and the two images they use.

The daemon that DOCKER_HOST or the default socket reaches is used as it is. Else, as root on
Debian, one is started with its own data root, and every test process on the machine shares it:
each holds a shared file lock, and the last one to let go ends the daemon. Images stay in the
data root, so only the first run builds them.

    with docker_service() as service:
        client = docker.DockerClient(base_url=service.url)

    python tests/services/docker_service.py              keep it up until Ctrl-C
    python tests/services/docker_service.py COMMAND...   run COMMAND with DOCKER_HOST set
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import requests

DEBIAN_IMAGE = "coderig-test-debian:latest"
"""Debian with bash, git, python3 and ripgrep."""
BUSYBOX_IMAGE = "coderig-test-busybox:latest"
"""Busybox and nothing else: no bash, no coreutils."""

_DEFAULT_SOCKET = Path("/var/run/docker.sock")
_IMAGES = Path(__file__).resolve().parents[2] / "images"
_DEBIAN_PACKAGES = ("bash", "git", "python3", "ripgrep")
_RECIPE_LABEL = "coderig.test.recipe"
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 30.0
_BUILD_LIMIT_S = 900


class ServiceError(RuntimeError):
    """There is no Docker for the tests; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class DockerService:
    """Where the daemon answers. `own`: the tests started it, so its images and networks are theirs."""

    url: str
    own: bool
    debian_image: str = DEBIAN_IMAGE
    busybox_image: str = BUSYBOX_IMAGE


@contextlib.contextmanager
def docker_service() -> Iterator[DockerService]:
    """A daemon that answers and has both images; ended afterwards if the tests started it.

    Raises ServiceError where there is none and none can be started."""
    with contextlib.ExitStack() as stack:
        url = _reachable()
        own = url is None
        if url is None:
            _install_missing()
            url = _reachable() or stack.enter_context(_OwnDaemon.at(cache_dir()).shared())
        service = DockerService(url=url, own=own)
        _ensure_images(service)
        yield service


def cache_dir() -> Path:
    """The directory that keeps images between runs; made if it is missing."""
    chosen = os.environ.get("CODERIG_TEST_CACHE")
    if chosen:
        path = Path(chosen)
    elif os.geteuid() == 0:
        path = Path("/var/cache/coderig-tests")
    else:
        path = Path.home() / ".cache" / "coderig-tests"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _say(text: str) -> None:
    sys.stderr.write(f"[docker service] {text}\n")
    sys.stderr.flush()


# ---- finding and installing ------------------------------------------------------------------


def _reachable() -> str | None:
    url = os.environ.get("DOCKER_HOST")
    if url:
        if not _answers(url):
            raise ServiceError(f"DOCKER_HOST is {url}, and no Docker daemon answers there")
        return url
    default = f"unix://{_DEFAULT_SOCKET}"
    return default if _DEFAULT_SOCKET.exists() and _answers(default) else None


def _answers(url: str) -> bool:
    try:
        if url.startswith("unix://"):
            # docker-py leaves a socket open when nobody listens.
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(url.removeprefix("unix://"))
        client = docker.DockerClient(base_url=url, timeout=10)
    except (docker.errors.DockerException, OSError):
        return False
    try:
        return bool(client.ping())
    except (docker.errors.DockerException, requests.RequestException, OSError):
        return False
    finally:
        client.close()


def _install_missing() -> None:
    """Install what a daemon of our own needs."""
    if os.geteuid() != 0:
        raise ServiceError(
            "no Docker daemon answers (DOCKER_HOST, /var/run/docker.sock), and only root can start one: "
            "start Docker, set DOCKER_HOST, or run the tests as root"
        )
    wanted = {"dockerd": "docker.io", "iptables": "iptables"}
    _apt_install([package for program, package in wanted.items() if not shutil.which(program, path=_path())])


def _apt_install(packages: list[str]) -> None:
    if not packages:
        return
    if not shutil.which("apt-get"):
        raise ServiceError(f"missing: {', '.join(packages)}; install Docker by hand (this is not Debian)")
    _say(f"installing {' '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), timeout=_BUILD_LIMIT_S
        )
        if done.returncode != 0:
            raise ServiceError(f"`{' '.join(command)}` failed with status {done.returncode}")


def _path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


# ---- a daemon of our own ---------------------------------------------------------------------


@contextlib.contextmanager
def _locked(path: Path, operation: int) -> Iterator[int]:
    """Hold a file lock. The kernel drops it when the process dies, so none is ever stale."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _OwnDaemon:
    data: Path
    run: Path

    @classmethod
    def at(cls, cache: Path) -> _OwnDaemon:
        # Below /run: a socket's path holds 108 bytes at most, and pids mean nothing after a reboot.
        name = hashlib.sha256(str(cache).encode()).hexdigest()[:8]
        daemon = cls(data=cache / "docker", run=Path("/run") / f"coderig-tests-{name}")
        daemon.data.mkdir(parents=True, exist_ok=True)
        daemon.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        return daemon

    @property
    def url(self) -> str:
        return f"unix://{self.run / 'docker.sock'}"

    @contextlib.contextmanager
    def shared(self) -> Iterator[str]:
        """Start the daemon unless it runs already; end it if nobody else uses it afterwards."""
        with _locked(self.data / "users.lock", fcntl.LOCK_SH) as users:
            try:
                with self._changing():
                    self._start()
                yield self.url
            finally:
                with self._changing():
                    try:
                        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        pass
                    else:
                        self._stop()

    def _changing(self) -> contextlib.AbstractContextManager[int]:
        return _locked(self.data / "change.lock", fcntl.LOCK_EX)

    def _start(self) -> None:
        if self._pid() is not None and _answers(self.url):
            return
        self._stop()
        _say("starting dockerd")
        (self.run / "daemon.json").write_text("{}")
        log = self.run / "dockerd.log"
        # The shell in between leaves the daemon to init: it outlives whoever happened to start it.
        started = subprocess.run(
            ["sh", "-c", 'log=$1; shift; "$@" >"$log" 2>&1 & echo $!', "sh", str(log), *self._command()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**_without_docker(os.environ), "PATH": _path()},
            cwd="/",
            start_new_session=True,
            check=True,
            timeout=10,
        )
        pid = int(started.stdout)
        limit = time.monotonic() + _START_LIMIT_S
        while not _answers(self.url):
            if time.monotonic() > limit or not _alive(pid, ""):
                tail = log.read_text(errors="replace")[-2000:]
                raise ServiceError(f"dockerd did not start; the end of {log}:\n{tail}")
            time.sleep(0.05)
        self._tidy()

    def _tidy(self) -> None:
        """Remove what tests that were killed left behind; nobody else uses the daemon yet."""
        client = docker.DockerClient(base_url=self.url)
        try:
            for container in client.containers.list(all=True, ignore_removed=True):
                container.remove(force=True, v=True)
            client.volumes.prune()
            client.networks.prune()
        finally:
            client.close()

    def _command(self) -> list[str]:
        return [
            "dockerd",
            f"--data-root={self.data / 'root'}",
            f"--exec-root={self.run / 'exec'}",
            f"--pidfile={self._pidfile}",
            f"--host={self.url}",
            f"--config-file={self.run / 'daemon.json'}",
            # Names of our own, should dockerd find a containerd of the system and use that.
            f"--containerd-namespace={self.run.name}",
            f"--containerd-plugins-namespace={self.run.name}-plugins",
            "--shutdown-timeout=2",
        ]

    @property
    def _pidfile(self) -> Path:
        return self.run / "dockerd.pid"

    def _pid(self) -> int | None:
        return _running(self._pidfile, str(self._pidfile))

    def _stop(self) -> None:
        """End the daemon and what an earlier one left behind, by pid, after looking whose pid it is."""
        for pidfile in (self._pidfile, self.run / "exec" / "containerd" / "containerd.pid"):
            pid = _running(pidfile, str(self.run))
            if pid is not None:
                _end(pid, str(self.run))
            pidfile.unlink(missing_ok=True)


def _without_docker(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("DOCKER_")}


def _running(pidfile: Path, mark: str) -> int | None:
    """The pid in the file, if that process runs and its command line has the mark."""
    try:
        pid = int(pidfile.read_text())
    except (OSError, ValueError):
        return None
    return pid if _alive(pid, mark) else None


def _alive(pid: int, mark: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    # A zombie is dead; only its parent has not looked yet.
    return state not in "ZX" and mark.encode() in command


def _end(pid: int, mark: str) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        limit = time.monotonic() + _STOP_LIMIT_S
        while time.monotonic() < limit:
            if not _alive(pid, mark):
                return
            time.sleep(0.05)
    raise ServiceError(f"process {pid} does not end")


# ---- images ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How one test image is made: a script that writes a root file system, or a registry."""

    image: str
    script: Path
    packages: tuple[str, ...]
    stands_for: str
    command: str

    @property
    def fingerprint(self) -> str:
        text = self.script.read_bytes() + " ".join([self.command, *self.packages]).encode()
        return hashlib.sha256(text).hexdigest()[:16]

    @property
    def dockerfile(self) -> str:
        install = ""
        if self.packages:
            names = " ".join(self.packages)
            install = f"RUN apt-get update && apt-get install -y --no-install-recommends {names}\n"
        return f'FROM {self.stands_for}\n{install}CMD ["{self.command}"]\n'


_RECIPES = (
    _Recipe(DEBIAN_IMAGE, _IMAGES / "make-base.sh", _DEBIAN_PACKAGES, "debian:bookworm-slim", "bash"),
    _Recipe(BUSYBOX_IMAGE, _IMAGES / "make-busybox.sh", (), "busybox:stable", "sh"),
)


def _ensure_images(service: DockerService) -> None:
    client = docker.DockerClient(base_url=service.url, timeout=_BUILD_LIMIT_S)
    try:
        with _locked(cache_dir() / "images.lock", fcntl.LOCK_EX):
            for recipe in _RECIPES:
                if not _is_current(client, recipe):
                    _make(client, recipe, own=service.own)
    finally:
        client.close()


def _is_current(client: docker.DockerClient, recipe: _Recipe) -> bool:
    try:
        image = client.images.get(recipe.image)
    except docker.errors.ImageNotFound:
        return False
    return bool(image.labels.get(_RECIPE_LABEL) == recipe.fingerprint)


def _make(client: docker.DockerClient, recipe: _Recipe, *, own: bool) -> None:
    began = time.monotonic()
    if own or (os.geteuid() == 0 and shutil.which("apt-get")):
        _say(f"making {recipe.image} from Debian packages (once; about a minute for Debian)")
        if "debootstrap" in recipe.script.read_text() and not shutil.which("debootstrap", path=_path()):
            _apt_install(["debootstrap"])
        _import(client, recipe)
        if own:
            # The Dockerfiles' FROM, where no registry can be reached.
            name, tag = recipe.stands_for.split(":")
            client.images.get(recipe.image).tag(name, tag)
    else:
        _say(f"building {recipe.image} from {recipe.stands_for}")
        client.images.build(
            fileobj=io.BytesIO(recipe.dockerfile.encode()),
            tag=recipe.image,
            labels={_RECIPE_LABEL: recipe.fingerprint},
        )
    _say(f"{recipe.image} made in {time.monotonic() - began:.0f} s")


def _import(client: docker.DockerClient, recipe: _Recipe) -> None:
    work = Path(tempfile.mkdtemp(prefix="coderig-image-", dir=cache_dir()))
    try:
        tar = work / "root.tar"
        done = subprocess.run(
            [str(recipe.script), str(tar), *recipe.packages],
            env={**os.environ, "PATH": _path(), "TMPDIR": str(work)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_BUILD_LIMIT_S,
        )
        if done.returncode != 0:
            tail = done.stdout.decode("utf-8", "replace")[-2000:]
            raise ServiceError(f"{recipe.script.name} failed with status {done.returncode}:\n{tail}")
        name, tag = recipe.image.split(":")
        answer = client.api.import_image_from_file(
            str(tar),
            repository=name,
            tag=tag,
            changes=[f'CMD ["{recipe.command}"]', f"LABEL {_RECIPE_LABEL}={recipe.fingerprint}"],
        )
        if "error" in answer:
            raise ServiceError(f"importing {recipe.image} failed: {answer}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


# ---- by hand ---------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Keep the service up until Ctrl-C, or for one command, which gets DOCKER_HOST."""
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    try:
        with docker_service() as service:
            if arguments:
                return subprocess.call(arguments, env={**os.environ, "DOCKER_HOST": service.url})
            sys.stdout.write(f"export DOCKER_HOST={service.url}\n")
            sys.stdout.flush()
            _say("running; Ctrl-C ends it")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
            return 0
    except ServiceError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    if not sys.argv[1:]:
        # Waited for, not handled: the daemon is ended in order whichever arrives.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    raise SystemExit(main(sys.argv[1:]))
