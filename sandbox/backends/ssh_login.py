"""From options to a connection that is logged in: dialling, handshake, host key, login."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import paramiko
import paramiko.agent

from sandbox.backends.ssh_config import SshOptions, Target, jump_options, resolve
from sandbox.backends.ssh_connection import Connection, Transport, close_transport
from sandbox.backends.ssh_known_hosts import HostKey, KnownKeys, find_keys, host_name
from sandbox.errors import BackendError, Closed, PlaceUnavailable, RequestError
from sandbox.values import Deadline

DEFAULT_KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))
_DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_KEY_CLASSES = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)
_MAX_JUMPS = 8
_AGENT_WAIT_S = 5.0
_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
# What the server says when it wants the client to sign with a key of this type.
_RSA_ALGORITHMS = ("rsa-sha2-512", "rsa-sha2-256")


class _Busy(Exception):
    """The server hung up before it spoke: it has too many callers, or is not ready yet."""


def connect(options: SshOptions, accepted: dict[str, HostKey], stop: threading.Event) -> Connection:
    """Connect and log in within options.connect_timeout_s.

    accepted  keys of unknown hosts that were accepted so far; added to
    stop      ends the attempt with Closed

    Raises PlaceUnavailable if the host cannot be reached, BackendError if its key or our login is refused.
    """
    return _connect(options, accepted, stop, Deadline.after(options.connect_timeout_s), _MAX_JUMPS)


def _connect(
    options: SshOptions, accepted: dict[str, HostKey], stop: threading.Event, deadline: Deadline, jumps: int
) -> Connection:
    if jumps < 0:
        raise RequestError(f"ProxyJump of {options.host} goes through more than {_MAX_JUMPS} hosts")
    target = resolve(options)
    known = _known_keys(options, target, accepted)
    pause_s = _FIRST_PAUSE_S
    while True:
        carrier = None
        if target.jump:
            carrier = _connect(jump_options(options, target.jump), accepted, stop, deadline, jumps - 1)
        try:
            return _attempt(options, target, known, accepted, deadline, carrier)
        except _Busy as error:
            # Many callers that were turned away at once must not come back at once.
            wait_s = pause_s * random.uniform(0.5, 1.5)
            if wait_s >= deadline.remaining_s():
                raise PlaceUnavailable(
                    f"{target.name} does not greet within {options.connect_timeout_s:g} s ({error}): it is "
                    "slow, or it has more callers at once than it takes (MaxStartups in its sshd_config)"
                ) from error
            if stop.wait(wait_s):
                raise Closed("the sandbox was closed while it connected") from error
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)


def _attempt(
    options: SshOptions,
    target: Target,
    known: KnownKeys,
    accepted: dict[str, HostKey],
    deadline: Deadline,
    carrier: Connection | None,
) -> Connection:
    transport: Transport | None = None
    try:
        sock = _dial(target, deadline, carrier)
        transport = Transport(sock)
        _handshake(transport, target, known, deadline, options.connect_timeout_s)
        _check_key(transport, target, known, options, accepted)
        _login(transport, target, options, deadline)
        return Connection(transport, target.name, keepalive_s=options.keepalive_s, carrier=carrier)
    except BaseException:
        if transport is not None:
            close_transport(transport)
        if carrier is not None:
            carrier.close()
        raise


def _dial(target: Target, deadline: Deadline, carrier: Connection | None) -> socket.socket | paramiko.Channel:
    if carrier is not None:
        return carrier.tunnel(target.host, target.port, deadline.remaining_s())
    problem: OSError = TimeoutError("timed out")
    try:
        places = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise PlaceUnavailable(f"{target.host} has no address: {error}") from error
    for family, kind, protocol, _, address in places:
        if deadline.passed:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.001, deadline.remaining_s()))
            sock.connect(address)
            # Without this the kernel holds small packets back, for up to 40 ms each.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            problem = error
            sock.close()
    raise PlaceUnavailable(f"{target.host} port {target.port} cannot be reached: {problem}") from problem


def _handshake(
    transport: Transport, target: Target, known: KnownKeys, deadline: Deadline, limit_s: float
) -> None:
    security = transport.get_security_options()
    wanted = [
        name for kind in known.key_types() for name in (_RSA_ALGORITHMS if kind == "ssh-rsa" else (kind,))
    ]
    offered = list(security.key_types)
    first = [name for name in wanted if name in offered]
    security.key_types = [*first, *(name for name in offered if name not in first)]
    left_s = deadline.remaining_s()
    transport.banner_timeout = transport.handshake_timeout = left_s
    done = threading.Event()
    transport.start_client(event=done)
    in_time = done.wait(left_s)
    if transport.is_active() and transport.initial_kex_done:
        return
    error = transport.get_exception()
    if not in_time or deadline.passed:
        raise PlaceUnavailable(
            f"{target.name} does not speak SSH within {limit_s:g} s: a slow banner, or no SSH server"
        ) from error
    if isinstance(error, EOFError | ConnectionError) or "protocol banner" in str(error):
        raise _Busy(str(error) or "it hung up") from error
    raise PlaceUnavailable(f"{target.name}: no SSH connection: {error}") from error


# --- the host's key ------------------------------------------------------------------------------


def _known_hosts_files(options: SshOptions) -> tuple[Path, ...]:
    chosen = (options.known_hosts_file,) if options.known_hosts_file is not None else DEFAULT_KNOWN_HOSTS
    return tuple(Path(file).expanduser() for file in chosen)


def _known_keys(options: SshOptions, target: Target, accepted: Mapping[str, HostKey]) -> KnownKeys:
    texts = []
    for path in _known_hosts_files(options):
        try:
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            if options.known_hosts_file is not None and not options.accept_unknown_host:
                raise RequestError(f"there is no known_hosts file {path}") from None
        except OSError as error:
            raise RequestError(f"known_hosts file {path} cannot be read: {error}") from error
    found = find_keys(texts, target.alias, target.port)
    earlier = accepted.get(host_name(target.alias, target.port))
    if found.trusted or earlier is None:
        return found
    return replace(found, trusted=(earlier,))


def _check_key(
    transport: Transport, target: Target, known: KnownKeys, options: SshOptions, accepted: dict[str, HostKey]
) -> None:
    shown = transport.get_remote_server_key()
    key = HostKey(shown.get_name(), shown.asbytes())
    verdict = known.judge(key)
    if verdict == "known":
        return
    name = host_name(target.alias, target.port)
    files = " or ".join(str(path) for path in _known_hosts_files(options))
    if verdict == "revoked":
        raise BackendError(f"the host key of {name} is marked as revoked in {files}: {key.fingerprint}")
    if verdict == "changed":
        expected = ", ".join(trusted.fingerprint for trusted in known.trusted)
        raise BackendError(
            f"the host key of {name} is not the known one: it shows {key.fingerprint}, expected is "
            f"{expected}. Somebody may be listening in. If the host really has a new key, remove the old "
            f"one: ssh-keygen -R '{name}' -f {_known_hosts_files(options)[0]}"
        )
    if options.accept_unknown_host:
        accepted[name] = key
        return
    hint = " (a certificate authority is named for it, which is not supported)" if known.authority else ""
    raise BackendError(
        f"the host key of {name} is not known{hint}: it shows {key.fingerprint}. If this is the right one, "
        f"add it to {files}: ssh-keyscan -p {target.port} {target.host} >> {_known_hosts_files(options)[0]}"
    )


# --- login ---------------------------------------------------------------------------------------


def _login(transport: Transport, target: Target, options: SshOptions, deadline: Deadline) -> None:
    tried: list[str] = []
    for name, attempt in _logins(transport, target, options, deadline, tried):
        transport.auth_timeout = deadline.remaining_s()
        try:
            if not attempt():
                return
            tried.append(f"{name} (accepted, but more is asked for)")
        except paramiko.BadAuthenticationType as error:
            tried.append(f"{name} (the server takes {', '.join(error.allowed_types)})")
        except paramiko.AuthenticationException:
            tried.append(name)
        except (paramiko.SSHException, EOFError, OSError) as error:
            tried.append(f"{name} ({error})")
        if deadline.passed:
            raise PlaceUnavailable(f"{target.name}: no login within {options.connect_timeout_s:g} s")
        if not transport.is_active():
            raise PlaceUnavailable(f"{target.name} hung up during the login. Tried: {'; '.join(tried)}")
    what = "; ".join(tried) or "nothing: there is no agent, no key and no password"
    raise BackendError(f"{target.name} refuses the login of {target.user}. Tried: {what}")


_Login = tuple[str, Callable[[], list[str]]]


def _logins(
    transport: Transport, target: Target, options: SshOptions, deadline: Deadline, tried: list[str]
) -> Iterator[_Login]:
    """Every way to log in: named keys, the agent's, the usual ones, the password. A server gives up
    after a few wrong keys, so what the caller named comes first."""

    def with_key(key: paramiko.PKey) -> Callable[[], list[str]]:
        return lambda: transport.auth_publickey(target.user, key)

    for path in target.identity_files:
        if key := _load_key(path, options.passphrase, tried):
            yield f"key {path}", with_key(key)
    if options.use_agent:
        with contextlib.closing(_Agent(tried, deadline)) as agent:
            for agent_key in agent.get_keys():
                yield f"agent key {agent_key.comment or agent_key.get_name()}", with_key(agent_key)
    if not target.identity_files:
        for path in (Path(name).expanduser() for name in _DEFAULT_KEYS):
            if path.exists() and (key := _load_key(path, options.passphrase, tried)):
                yield f"key {path}", with_key(key)
    if options.password is not None:
        password = options.password
        yield "password", lambda: transport.auth_password(target.user, password)


class _Agent(paramiko.agent.AgentSSH):
    """The running ssh-agent, if there is one. paramiko's own waits without a bound for an agent that never
    answers (one that is forwarded over a dead connection), and leaves sockets open."""

    def __init__(self, tried: list[str], deadline: Deadline) -> None:
        super().__init__()
        path = os.environ.get("SSH_AUTH_SOCK")
        if not path:
            return
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(min(_AGENT_WAIT_S, deadline.remaining_s() / 2))
        try:
            sock.connect(path)
            self._connect(sock)  # type: ignore[attr-defined]
            # A person may have to allow the use of a key.
            sock.settimeout(max(1.0, deadline.remaining_s()))
        except (paramiko.SSHException, OSError, EOFError) as error:
            tried.append(f"the agent ({error})")
            sock.close()

    def close(self) -> None:
        """Let go of it."""
        self._close()  # type: ignore[attr-defined]


def _load_key(path: Path, passphrase: str | None, tried: list[str]) -> paramiko.PKey | None:
    problem = "not a private key of a known kind"
    for kind in _KEY_CLASSES:
        try:
            key = kind.from_private_key_file(str(path), passphrase)
            certificate = Path(f"{path}-cert.pub")
            if certificate.exists():
                key.load_certificate(str(certificate))
            return key
        except paramiko.PasswordRequiredException:
            problem = "it needs a passphrase"
        except OSError as error:
            problem = error.strerror or str(error)
        except (paramiko.SSHException, ValueError) as error:
            if passphrase is not None:
                problem = f"not a private key of a known kind, or a wrong passphrase ({error})"
    tried.append(f"key {path} (not usable: {problem})")
    return None
