"""Login at a real sshd on loopback: which hosts are trusted, and with what we come."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from services.ssh_service import SshService, start_sshd
from ssh_kit import LIMIT_S, connects, known_hosts, options_of, sh, wait_for

from sandbox.backends.ssh import SshBackend, SshOptions
from sandbox.errors import BackendError, ConnectionLost, RequestError

pytestmark = pytest.mark.ssh


@pytest.fixture(scope="module")
def service() -> Iterator[SshService]:
    with start_sshd() as started:
        yield started


@pytest.fixture
def backend(service: SshService) -> Iterator[SshBackend]:
    made = SshBackend(options_of(service))
    yield made
    made.close()


# --- host keys -----------------------------------------------------------------------------------


@pytest.mark.spec("SSH-01")
def test_an_unknown_host_is_refused_with_its_fingerprint_and_the_remedy(
    service: SshService, tmp_path: Path
) -> None:
    options = replace(options_of(service), known_hosts_file=known_hosts(tmp_path))
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", str(service.directory / "host_ed25519.pub")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[1]
    with pytest.raises(BackendError, match="is not known") as caught:
        connects(options)
    assert fingerprint in str(caught.value)
    assert f"ssh-keyscan -p {service.port}" in str(caught.value)


@pytest.mark.spec("SSH-01")
def test_a_known_hosts_file_that_is_not_there_is_refused(service: SshService, tmp_path: Path) -> None:
    options = replace(options_of(service), known_hosts_file=tmp_path / "nowhere")
    with pytest.raises(RequestError, match="no known_hosts file"):
        connects(options)


@pytest.mark.spec("SSH-03")
def test_a_changed_host_key_is_refused_even_if_unknown_hosts_are_accepted(
    service: SshService, tmp_path: Path
) -> None:
    other = service.directory / "client_key.pub"  # some other ed25519 key
    kind, data, *_ = other.read_text(encoding="utf-8").split()
    path = known_hosts(tmp_path, f"[{service.host}]:{service.port} {kind} {data}")
    options = replace(options_of(service), known_hosts_file=path, accept_unknown_host=True)
    with pytest.raises(BackendError, match="not the known one") as caught:
        connects(options)
    assert str(caught.value).count("SHA256:") == 2
    assert "ssh-keygen -R" in str(caught.value)


@pytest.mark.spec("SSH-04")
def test_the_kind_of_key_that_is_known_is_asked_for_first(service: SshService, tmp_path: Path) -> None:
    path = known_hosts(tmp_path, f"[{service.host}]:{service.port} {service.host_key('ecdsa')}")
    assert connects(replace(options_of(service), known_hosts_file=path))


@pytest.mark.spec("SSH-04")
def test_an_rsa_key_is_recognised(tmp_path: Path) -> None:
    with start_sshd(host_keys=["rsa", "ed25519"]) as server:
        path = known_hosts(tmp_path, f"[{server.host}]:{server.port} {server.host_key('rsa')}")
        assert connects(replace(options_of(server), known_hosts_file=path))


@pytest.mark.spec("SSH-02")
def test_names_that_ssh_keygen_has_hashed_are_found(service: SshService, tmp_path: Path) -> None:
    path = known_hosts(tmp_path, f"[{service.host}]:{service.port} {service.host_key()}")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    assert service.host not in path.read_text(encoding="utf-8")
    assert connects(replace(options_of(service), known_hosts_file=path))


@pytest.mark.spec("SSH-06")
def test_an_accepted_unknown_host_is_held_to_its_first_key_and_nothing_is_written(
    service: SshService, tmp_path: Path
) -> None:
    path = known_hosts(tmp_path)
    backend = SshBackend(replace(options_of(service), known_hosts_file=path, accept_unknown_host=True))
    assert sh(backend, "echo 1") == (0, b"1\n", b"")
    assert path.read_bytes() == b""
    key = service.directory / "host_ed25519"
    kept = key.read_bytes(), (service.directory / "host_ecdsa").read_bytes()
    try:
        # Another server takes the place of the first: new keys, same address.
        for kind in ("ed25519", "ecdsa"):
            (service.directory / f"host_{kind}").unlink()
            subprocess.run(
                ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(service.directory / f"host_{kind}")],
                check=True,
                stdin=subprocess.DEVNULL,
            )
        service.restart()
        with pytest.raises(BackendError, match="not the known one"):
            run_after_loss(backend)
    finally:
        for kind, data in zip(("ed25519", "ecdsa"), kept, strict=True):
            (service.directory / f"host_{kind}").write_bytes(data)
        service.restart()
        backend.close()


def run_after_loss(backend: SshBackend) -> None:
    """Run something once the loss of the connection has been noticed."""
    for _ in range(2):
        try:
            sh(backend, "true")
        except ConnectionLost:
            continue


# --- login ---------------------------------------------------------------------------------------


@pytest.mark.spec("SSH-07")
def test_a_refused_login_says_what_was_tried(service: SshService, tmp_path: Path) -> None:
    key = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)], check=True)
    with pytest.raises(BackendError, match="refuses the login") as caught:
        connects(replace(options_of(service), identity_file=key, password="wrong password"))
    assert str(key) in str(caught.value)
    assert "password (the server takes publickey)" in str(caught.value)
    assert "wrong password" not in str(caught.value)
    with pytest.raises(BackendError, match="needs a passphrase"):
        connects(replace(options_of(service), identity_file=locked))
    with pytest.raises(BackendError, match="No such file"):
        connects(replace(options_of(service), identity_file=tmp_path / "none"))


@pytest.mark.spec("SSH-07")
def test_a_key_with_a_passphrase_logs_in(service: SshService, tmp_path: Path) -> None:
    key = tmp_path / "locked"
    key.write_bytes(service.identity_file.read_bytes())
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], check=True)
    assert connects(replace(options_of(service), identity_file=key, passphrase="secret"))
    with pytest.raises(BackendError, match="wrong passphrase"):
        connects(replace(options_of(service), identity_file=key, passphrase="guess"))


@pytest.mark.spec("SSH-07")
def test_a_key_of_the_agent_logs_in(
    service: SshService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(tmp_path / "agent")],
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert wait_for((tmp_path / "agent").exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        monkeypatch.setenv("HOME", str(tmp_path))
        options = replace(options_of(service), identity_file=None, use_agent=True)
        with pytest.raises(BackendError, match="no agent, no key"):
            connects(options)
        subprocess.run(["ssh-add", "-q", str(service.identity_file)], check=True, capture_output=True)
        assert connects(options)
    finally:
        agent.terminate()
        agent.wait(LIMIT_S)


@pytest.mark.spec("SSH-07")
def test_an_agent_that_never_answers_is_passed_over(
    service: SshService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "agent"))
        mute.listen()
        options = replace(options_of(service), use_agent=True, connect_timeout_s=2)
        assert connects(options)
        with pytest.raises(BackendError, match="the agent \\(timed out\\)"):
            connects(replace(options, identity_file=None))


@pytest.mark.spec("SSH-07")
def test_a_password_logs_in_when_no_key_does() -> None:
    with start_sshd(password="correct horse") as server:
        options = replace(options_of(server), password="correct horse")
        assert connects(options)
        assert connects(replace(options, identity_file=None))
        with pytest.raises(BackendError, match="Tried: .*password"):
            connects(replace(options, password="battery staple"))
        assert "horse" not in repr(options)


@pytest.mark.spec("SSH-08")
def test_the_ssh_config_names_host_user_port_key_and_jump(service: SshService, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"""
Host near
  HostName {service.host}
  Port {service.port}
  User {service.user}
  IdentityFile {service.identity_file}
Host far
  HostName 127.0.0.1
  Port {service.port}
  User {service.user}
  IdentityFile {service.identity_file}
  ProxyJump near
""",
        encoding="utf-8",
    )
    options = SshOptions(
        host="near", ssh_config_file=config, known_hosts_file=service.known_hosts_file, use_agent=False
    )
    assert connects(options)
    backend = SshBackend(replace(options, host="far"))
    assert wait_for(lambda: not service.connection_pids())
    assert sh(backend, "echo far") == (0, b"far\n", b"")
    assert len(service.connection_pids()) == 2
    backend.close()
    assert wait_for(lambda: not service.connection_pids())


@pytest.mark.spec("SSH-08")
def test_a_host_behind_a_jump_host_that_is_not_there_is_an_error_of_the_place(service: SshService) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        jump = f"{service.user}@{service.host}:{service.port}"
        options = replace(options_of(service), port=taken.getsockname()[1], proxy_jump=jump)
        with pytest.raises(BackendError, match=f"{jump} cannot reach"):
            connects(options)
        assert connects(replace(options_of(service), proxy_jump=jump))
        assert connects(replace(options_of(service), proxy_jump=f"{jump},ssh://{jump}"))
    assert wait_for(lambda: not service.connection_pids())


@pytest.mark.spec("SSH-08")
def test_options_that_make_no_sense_are_refused_before_anything_is_dialled(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host h\n  ProxyCommand nc %h %p\nHost p\n  Port many\n", encoding="utf-8")
    for options, words in [
        (SshOptions(host="h", ssh_config_file=config), "ProxyCommand is not supported"),
        (SshOptions(host="p", ssh_config_file=config), "is no port"),
        (SshOptions(host="h", ssh_config_file=tmp_path / "none"), "no ssh config file"),
        (SshOptions(host="", use_ssh_config=False), "no SSH host"),
        (SshOptions(host="-oProxyCommand=x", use_ssh_config=False), "no SSH host"),
        (SshOptions(host="h", port=0, use_ssh_config=False), "no port"),
    ]:
        with pytest.raises(RequestError, match=words):
            SshBackend(options)
