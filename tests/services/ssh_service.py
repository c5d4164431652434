"""A real sshd for the tests, on loopback, with its own configuration, host keys, client key and port.

    with start_sshd() as service:
        ... service.host, service.port, service.user, service.identity_file, service.known_hosts_file

    python tests/services/ssh_service.py              keep one up until Ctrl-C
    python tests/services/ssh_service.py COMMAND...   run COMMAND with CODERIG_SSH_PLACE set

Nothing outside the service's own directory is written, and it is ended by pid.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.parse import urlencode

_HOST = "127.0.0.1"
_SEARCH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
_START_LIMIT_S = 20.0
_STOP_LIMIT_S = 10.0
_INSTALL_LIMIT_S = 600.0
_SHELL_PACKAGES = {"csh": "tcsh", "tcsh": "tcsh", "fish": "fish", "dash": "dash", "busybox": "busybox"}


class ServiceError(RuntimeError):
    """There is no sshd for the tests; the text says what is missing and what to do."""


@dataclass
class SshService:
    """A running sshd. `directory` holds everything it owns and goes away with it."""

    directory: Path
    port: int
    host: str = _HOST
    user: str = field(default_factory=lambda: pwd.getpwuid(os.geteuid()).pw_name)
    _daemon: subprocess.Popen[bytes] | None = None

    @property
    def identity_file(self) -> Path:
        """The client's private key; it has no passphrase."""
        return self.directory / "client_key"

    @property
    def known_hosts_file(self) -> Path:
        """The server's host keys, as a client keeps them."""
        return self.directory / "known_hosts"

    @property
    def home(self) -> Path:
        """The HOME of what is run there: empty, for start files of shells."""
        return self.directory / "home"

    @property
    def shadow_file(self) -> Path:
        """The passwords that this server sees in place of the machine's, if there is such a file."""
        return self.directory / "shadow"

    @property
    def log_file(self) -> Path:
        """What sshd says."""
        return self.directory / "sshd.log"

    @property
    def url(self) -> str:
        """The place without the key: enough where the key and the host are already known."""
        return f"ssh://{self.user}@{self.host}:{self.port}"

    def place(self, path: str = "/") -> str:
        """The place in one word, with the key and the known hosts that it needs."""
        files = {"identity_file": str(self.identity_file), "known_hosts_file": str(self.known_hosts_file)}
        return f"{self.url}{path}?{urlencode(files)}"

    @property
    def pid(self) -> int:
        """The daemon that listens."""
        assert self._daemon is not None
        return self._daemon.pid

    def host_key(self, kind: str = "ed25519") -> str:
        """The public host key of this kind: its type and its base64, as a known_hosts line ends."""
        kind, data, *_ = (self.directory / f"host_{kind}.pub").read_text(encoding="utf-8").split()
        return f"{kind} {data}"

    def connection_pids(self) -> list[int]:
        """The processes that serve one connection each."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text(encoding="ascii").split()]

    def signal_all(self, number: int) -> None:
        """Send a signal to the daemon and to every connection: SIGSTOP makes a server that is mute."""
        for pid in [self.pid, *self.connection_pids()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def restart(self) -> None:
        """End the daemon and its connections, and start it again on the same port."""
        self._end()
        if not _launch(self, _sshd()):
            raise ServiceError(f"port {self.port} was taken while sshd restarted")

    def stop(self) -> None:
        """End the daemon and its connections, and remove the directory. Idempotent."""
        self._end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self) -> None:
        if self._daemon is not None:
            self.signal_all(signal.SIGCONT)
            for pid in self.connection_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            self._daemon.terminate()
            try:
                self._daemon.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait(_STOP_LIMIT_S)
            self._daemon = None

    def __enter__(self) -> SshService:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def start_sshd(
    *,
    sftp: bool = True,
    max_sessions: int | None = None,
    max_startups: str | None = None,
    login_shell: str | None = None,
    host_keys: Sequence[str] = ("ed25519", "ecdsa"),
    password: str | None = None,
    extra: Sequence[str] = (),
) -> SshService:
    """Start an sshd and wait until it listens.

    sftp          whether the SFTP subsystem is there
    max_sessions  channels for each connection (sshd's own default is 10)
    max_startups  connections that are not logged in yet, as in sshd_config: "2:100:2"
    login_shell   the shell that is handed each command line, with -c: csh, fish, dash, ...
    host_keys     kinds of host keys the server has
    password      of root, as this server sees it; keys are not taken then. Needs root
    extra         more lines for its configuration

    Raises ServiceError where it cannot be."""
    sshd = _sshd()
    shell_line = (
        [f'ForceCommand exec {_shell_path(login_shell)} -c "$SSH_ORIGINAL_COMMAND"'] if login_shell else []
    )
    directory = Path(tempfile.mkdtemp(prefix="coderig-sshd-"))
    try:
        (directory / "home").mkdir()
        _make_keys(directory, host_keys)
        for _ in range(5):
            lines = [*_config(directory, host_keys), *shell_line, *extra]
            if sftp:
                lines.append("Subsystem sftp internal-sftp")
            if max_sessions is not None:
                lines.append(f"MaxSessions {max_sessions}")
            if max_startups is not None:
                lines.append(f"MaxStartups {max_startups}")
            service = SshService(directory=directory, port=_free_port())
            if password is not None:
                _write_shadow(service.shadow_file, password)
                lines += ["PubkeyAuthentication no"]
            lines.append(f"PasswordAuthentication {'no' if password is None else 'yes'}")
            lines.append(f"Port {service.port}")
            (directory / "sshd_config").write_text("\n".join(lines) + "\n", encoding="utf-8")
            _write_known_hosts(service, host_keys)
            if _launch(service, sshd):
                return service
        raise ServiceError(f"sshd found no free port: {service.log_file.read_text(encoding='utf-8')[-1000:]}")
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _sshd() -> str:
    found = shutil.which("sshd", path=_SEARCH)
    if found is None:
        _install("openssh-server")
        found = shutil.which("sshd", path=_SEARCH)
    if found is None:
        raise ServiceError("openssh-server was installed, but there is no sshd")
    if os.geteuid() == 0:
        # sshd refuses to start without its privilege separation directory, which a boot makes.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return found


def _shell_path(name: str) -> str:
    found = shutil.which(name, path=_SEARCH)
    if found is None and name in _SHELL_PACKAGES:
        _install(_SHELL_PACKAGES[name])
        found = shutil.which(name, path=_SEARCH)
    if found is None:
        raise ServiceError(f"there is no {name} on this machine")
    return f"{found} sh" if name == "busybox" else found


def _install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServiceError(f"{package} is missing: install it, or run the tests as root on Debian")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Nothing is to be started by the package: the tests run their own daemon.
    env["RUNLEVEL"] = "1"
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", package],
    ):
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), timeout=_INSTALL_LIMIT_S
        )
        if done.returncode != 0:
            raise ServiceError(f"`{' '.join(command)}` failed with status {done.returncode}")


def _make_keys(directory: Path, host_keys: Sequence[str]) -> None:
    for kind, name in [(kind, f"host_{kind}") for kind in host_keys] + [("ed25519", "client_key")]:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "coderig-tests", "-f", str(directory / name)],
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=_START_LIMIT_S,
        )
    shutil.copy(directory / "client_key.pub", directory / "authorized_keys")


def _config(directory: Path, host_keys: Sequence[str]) -> list[str]:
    return [
        f"ListenAddress {_HOST}",
        *(f"HostKey {directory / f'host_{kind}'}" for kind in host_keys),
        f"AuthorizedKeysFile {directory / 'authorized_keys'}",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "UseDNS no",
        "PermitRootLogin yes",
        "KbdInteractiveAuthentication no",
        "LogLevel VERBOSE",
        # The start files of whoever runs the tests are slow at best.
        f"SetEnv HOME={directory / 'home'}",
    ]


def _write_shadow(path: Path, password: str) -> None:
    crypted = subprocess.run(
        ["perl", "-e", "print crypt(<STDIN>, '$6$coderigtests$')"],
        input=password,
        capture_output=True,
        text=True,
        check=True,
        timeout=_START_LIMIT_S,
    ).stdout
    path.write_text(f"root:{crypted}:19000:0:99999:7:::\n", encoding="utf-8")
    path.chmod(0o600)


def _write_known_hosts(service: SshService, host_keys: Sequence[str]) -> None:
    lines = [f"[{service.host}]:{service.port} {service.host_key(kind)}\n" for kind in host_keys]
    service.known_hosts_file.write_text("".join(lines), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def _launch(service: SshService, sshd: str) -> bool:
    """Start the daemon; False if somebody took the port in the meantime."""
    config = service.directory / "sshd_config"
    command = [sshd, "-D", "-e", "-f", str(config)]
    if service.shadow_file.exists():
        # Mounted over /etc/shadow for the daemon alone: no account of the machine is touched.
        script = 'mount --bind "$0" /etc/shadow && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", script, str(service.shadow_file), *command]
    with service.log_file.open("wb") as log:
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    service._daemon = daemon
    until = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < until:
        said = service.log_file.read_text(encoding="utf-8", errors="replace")
        if "Server listening on" in said:
            return True
        if daemon.poll() is not None:
            if "in use" in said:
                return False
            raise ServiceError(f"sshd ended at once with status {daemon.returncode}: {said[-1000:]}")
        time.sleep(0.01)
    daemon.kill()
    daemon.wait(_STOP_LIMIT_S)
    raise ServiceError(f"sshd does not listen after {_START_LIMIT_S:g} s")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM end the program like Ctrl-C does, so that the daemon goes with it."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str]) -> int:
    """Keep a service up, or run one command against it."""
    with contextlib.suppress(KeyboardInterrupt), _ended_by_signals(), start_sshd() as service:
        if arguments:
            env = {**os.environ, "CODERIG_SSH_PLACE": service.place()}
            return subprocess.run(list(arguments), env=env).returncode
        sys.stdout.write(
            f"{service.place()}\n\n"
            f"A real sshd listens on {service.host}:{service.port}. To look around by hand:\n"
            f"  ssh -p {service.port} -i {service.identity_file}"
            f" -o UserKnownHostsFile={service.known_hosts_file} {service.user}@{service.host}\n"
            "Ctrl-C ends it.\n"
        )
        sys.stdout.flush()
        signal.pause()
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except ServiceError as problem:
        sys.stderr.write(f"{problem}\n")
        raise SystemExit(1) from None
