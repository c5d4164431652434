"""Where options and ~/.ssh/config lead: the host to dial, the user, the keys, the hosts between."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import paramiko

from sandbox.backends.ssh_known_hosts import DEFAULT_PORT
from sandbox.errors import RequestError

DEFAULT_CONFIG = Path("~/.ssh/config")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """How to reach a host. What is None comes from ~/.ssh/config, then from OpenSSH's defaults.

    host                 name, address, or an alias in ~/.ssh/config
    identity_file        a private key; tried before all others
    password             tried last
    passphrase           of the private keys
    use_agent            whether keys of the running ssh-agent are tried
    known_hosts_file     None: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts
    accept_unknown_host  take the key of a host that is in no file, and hold on to it while this
                         backend lives; nothing is written. A changed key is refused all the same
    connect_timeout_s    seconds for everything until logged in, repeated tries included; and as long
                         again for the first answer of the login shell
    keepalive_s          a server that is silent for this long is asked, and is lost when it is silent
                         for as long again; 0: never asked
    use_ssh_config       whether ~/.ssh/config (or ssh_config_file) is read
    proxy_jump           "[user@]host[:port]", several parted by commas; "none": none
    max_connections      how many connections may be opened where the server limits the channels on one;
                         ending a command takes a channel too, so do not be mean
    """

    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | Path | None = None
    password: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    use_agent: bool = True
    known_hosts_file: str | Path | None = None
    accept_unknown_host: bool = False
    connect_timeout_s: float = 15.0
    keepalive_s: float = 15.0
    use_ssh_config: bool = True
    ssh_config_file: str | Path | None = None
    proxy_jump: str | None = None
    max_connections: int = 16


@dataclass(frozen=True, slots=True)
class Target:
    """Where options lead, once ~/.ssh/config has been asked. `alias`: the name in known_hosts."""

    host: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    jump: str
    alias: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.user}@{self.host}:{self.port}"


def resolve(options: SshOptions) -> Target:
    """Where the options lead. Raises RequestError for options or a config file that make no sense."""
    if not options.host or options.host.startswith("-"):
        raise RequestError(f"{options.host!r} is no SSH host")
    config = _read_config(options)
    if config.get("proxycommand") and not options.proxy_jump:
        raise RequestError(f"ssh config for {options.host}: ProxyCommand is not supported; use ProxyJump")
    port = options.port if options.port is not None else _number(config.get("port", str(DEFAULT_PORT)))
    if not 0 < port < 65536:
        raise RequestError(f"{port} is no port")
    named = [options.identity_file] if options.identity_file is not None else config.get("identityfile", [])
    jump = options.proxy_jump if options.proxy_jump is not None else config.get("proxyjump", "")
    host = config.get("hostname", options.host)
    return Target(
        host=host,
        port=port,
        user=options.user or config.get("user") or pwd.getpwuid(os.getuid()).pw_name,
        identity_files=tuple(Path(file).expanduser() for file in named),
        jump="" if jump.lower() == "none" else jump,
        alias=config.get("hostkeyalias", host),
    )


def _read_config(options: SshOptions) -> Mapping[str, str]:
    if not options.use_ssh_config:
        return {}
    path = Path(options.ssh_config_file or DEFAULT_CONFIG).expanduser()
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return paramiko.SSHConfig.from_file(lines).lookup(options.host)
    except FileNotFoundError:
        if options.ssh_config_file is None:
            return {}
        raise RequestError(f"there is no ssh config file {path}") from None
    except (OSError, paramiko.SSHException, ImportError, LookupError, ValueError) as error:
        # ImportError: `Match exec` needs another library. The others: values that paramiko trips over.
        raise RequestError(f"ssh config file {path} cannot be used: {error}") from error


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RequestError(f"{text!r} is no port") from None


def jump_options(options: SshOptions, jump: str) -> SshOptions:
    """Options for the last hop of a ProxyJump, which itself goes through the hops before it.

    The target's password is not shown to the jump host."""
    before, _, hop = jump.rpartition(",")
    user, _, place = hop.strip().removeprefix("ssh://").rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or "]" in port or (":" in host and not host.endswith("]")):
        host, port = place, ""
    return replace(
        options,
        host=host.strip("[]"),
        user=user or None,
        port=_number(port) if port else None,
        password=None,
        proxy_jump=before or None,
    )
