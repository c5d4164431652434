"""Connections to a real sshd on loopback: whom we trust, how we log in, what happens when the line is cut."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from services.ssh_service import SshService, start_sshd
from ssh_kit import LIMIT_S, connects, options_of, read_to_end, read_until, sh, wait_for

from sandbox.backends.ssh import SshBackend, SshOptions
from sandbox.errors import BackendError, Closed, ConnectionLost, PlaceUnavailable, RequestError
from sandbox.execute import Executor
from sandbox.values import ExecRequest, PtySize, SpawnRequest

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


def known_hosts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


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


@pytest.mark.spec("B99")
def test_the_kind_of_key_that_is_known_is_asked_for_first(service: SshService, tmp_path: Path) -> None:
    path = known_hosts(tmp_path, f"[{service.host}]:{service.port} {service.host_key('ecdsa')}")
    assert connects(replace(options_of(service), known_hosts_file=path))


@pytest.mark.spec("B99")
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


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.spec("SSH-10")
def test_a_connection_that_dies_under_a_command_ends_it_and_the_next_one_connects_again(
    service: SshService, backend: SshBackend, tmp_path: Path
) -> None:
    before = set(service.connection_pids())
    count = tmp_path / "count"
    process = backend.spawn(
        SpawnRequest(argv=["sh", "-c", f"echo ran >> {count}; echo ready; exec sleep 30"])
    )
    assert read_until(process, b"ready")
    (connection,) = set(service.connection_pids()) - before
    os.kill(connection, signal.SIGKILL)
    with pytest.raises(ConnectionLost, match="outcome unknown"):
        read_to_end(process)
    with pytest.raises(ConnectionLost, match="outcome unknown"):
        process.poll()
    with pytest.raises(ConnectionLost, match="outcome unknown"):
        process.write(b"x", 1)
    process.close()
    assert sh(backend, "echo again") == (0, b"again\n", b"")
    assert count.read_text(encoding="utf-8") == "ran\n"


@pytest.mark.spec("SSH-10")
def test_output_that_had_arrived_before_the_loss_is_given_first(
    service: SshService, backend: SshBackend
) -> None:
    before = set(service.connection_pids())
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", "echo kept; exec sleep 30"]))
    assert wait_for(process._channel.recv_ready)
    (connection,) = set(service.connection_pids()) - before
    os.kill(connection, signal.SIGKILL)
    assert wait_for(lambda: process._channel.closed)
    assert process.read(LIMIT_S).stdout == b"kept\n"
    with pytest.raises(ConnectionLost):
        process.read(LIMIT_S)
    process.close()


@pytest.mark.spec("SSH-11")
def test_a_peer_that_falls_silent_is_found_within_a_bound() -> None:
    with start_sshd() as server:
        backend = SshBackend(replace(options_of(server), keepalive_s=0.5, connect_timeout_s=2))
        process = backend.spawn(SpawnRequest(argv=["sleep", "30"]))
        assert process.read(0.01).eof is False
        server.signal_all(signal.SIGSTOP)
        with pytest.raises(ConnectionLost, match="has not answered"):
            read_to_end(process)
        process.close()
        with pytest.raises(PlaceUnavailable):
            backend.spawn(SpawnRequest(argv=["true"]))
        server.signal_all(signal.SIGCONT)
        assert sh(backend, "echo back") == (0, b"back\n", b"")
        backend.close()


@pytest.mark.spec("SSH-11")
def test_a_quiet_program_on_a_live_connection_is_left_alone() -> None:
    with start_sshd() as server:
        backend = SshBackend(replace(options_of(server), keepalive_s=0.1))
        process = backend.spawn(SpawnRequest(argv=["sh", "-c", "sleep 1.5; echo woke"]))
        assert read_to_end(process) == (b"woke\n", b"")
        process.close()
        backend.close()


@pytest.mark.spec("SSH-11")
def test_writing_to_a_peer_that_falls_silent_ends_too() -> None:
    with start_sshd() as server:
        backend = SshBackend(replace(options_of(server), keepalive_s=0.5))
        process = backend.spawn(SpawnRequest(argv=["cat"]))
        server.signal_all(signal.SIGSTOP)
        until_s = time.monotonic() + LIMIT_S
        with pytest.raises(ConnectionLost):
            while time.monotonic() < until_s:
                process.write(b"x" * (1 << 20), 0.1)
        process.close()
        backend.close()
        server.signal_all(signal.SIGCONT)


@pytest.mark.spec("B57")
def test_more_programs_than_one_connection_takes_open_another_connection() -> None:
    with start_sshd(max_sessions=2) as server:
        backend = SshBackend(replace(options_of(server), max_connections=2))
        running = [backend.spawn(SpawnRequest(argv=["cat"])) for _ in range(4)]
        assert len(server.connection_pids()) == 2
        with pytest.raises(BackendError, match="server refused another channel \\(4 open") as caught:
            backend.spawn(SpawnRequest(argv=["true"]))
        assert "nothing was run" in str(caught.value)
        for number, process in enumerate(running):
            process.write(b"%d" % number, LIMIT_S)
            process.close_stdin()
            assert read_to_end(process) == (b"%d" % number, b"")
            process.close()
        assert sh(backend, "echo free again") == (0, b"free again\n", b"")
        backend.close()


@pytest.mark.spec("B57")
def test_commands_at_their_timeout_are_ended_though_all_channels_are_taken() -> None:
    with start_sshd(max_sessions=2) as server, ThreadPoolExecutor(6) as pool:
        backend = SshBackend(options_of(server))
        executor = Executor(backend)
        request = ExecRequest(command="sleep 3711 & sleep 3711", timeout_s=1)
        results = list(pool.map(lambda _: executor.run(request, cwd=None, env={}), range(6)))
        assert [result.timed_out for result in results] == [True] * 6
        assert sh(backend, "ps ax -o args | grep -c '^sleep 3711'")[1] == b"0\n"
        backend.close()


@pytest.mark.spec("B57")
def test_one_session_for_each_connection_is_enough() -> None:
    with start_sshd(max_sessions=1) as server:
        backend = SshBackend(options_of(server))
        first = backend.spawn(SpawnRequest(argv=["cat"]))
        for _ in range(3):
            assert sh(backend, "echo beside") == (0, b"beside\n", b"")
        first.close()
        backend.close()


@pytest.mark.spec("B57")
def test_a_server_that_opens_no_session_is_an_error_at_once() -> None:
    with start_sshd(max_sessions=0) as server:
        backend = SshBackend(options_of(server))
        with pytest.raises(BackendError, match="opens no session"):
            backend.spawn(SpawnRequest(argv=["true"]))
        backend.close()
        assert wait_for(lambda: not server.connection_pids())


@pytest.mark.spec("SSH-13")
def test_a_server_that_never_speaks_is_given_up_in_time() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(8)
        options = SshOptions(
            host="127.0.0.1", port=mute.getsockname()[1], connect_timeout_s=0.5, use_ssh_config=False
        )
        backend = SshBackend(options)
        with pytest.raises(PlaceUnavailable, match=r"does not speak SSH within 0\.5 s"):
            backend.spawn(SpawnRequest(argv=["true"]))
        backend.close()


@pytest.mark.spec("SSH-13")
def test_a_login_shell_that_does_not_answer_is_given_up_in_time() -> None:
    with start_sshd() as server:
        (server.home / ".bashrc").write_text("sleep 30\n", encoding="utf-8")
        backend = SshBackend(replace(options_of(server), connect_timeout_s=1))
        with pytest.raises(PlaceUnavailable, match="the login shell does not answer within 1 s"):
            backend.spawn(SpawnRequest(argv=["true"]))
        backend.close()


@pytest.mark.spec("SSH-13")
def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        options = SshOptions(host="127.0.0.1", port=taken.getsockname()[1], use_ssh_config=False)
        backend = SshBackend(options)
        with pytest.raises(PlaceUnavailable, match="cannot be reached"):
            backend.spawn(SpawnRequest(argv=["true"]))


@pytest.mark.spec("B104")
def test_a_storm_of_connections_gets_through_a_narrow_door() -> None:
    with start_sshd(max_startups="2:100:2") as server, ThreadPoolExecutor(20) as pool:
        options = replace(options_of(server), connect_timeout_s=40)
        assert list(pool.map(connects, [options] * 20)) == [True] * 20
        assert "MaxStartups" in server.log_file.read_text(encoding="utf-8", errors="replace")


@pytest.mark.spec("B104")
def test_a_door_that_stays_shut_is_named() -> None:
    with start_sshd(max_startups="1:100:1") as server, socket.socket() as sitter:
        sitter.connect((server.host, server.port))
        assert sitter.recv(100).startswith(b"SSH-")
        with pytest.raises(PlaceUnavailable, match="MaxStartups"):
            connects(replace(options_of(server), connect_timeout_s=1))


@pytest.mark.spec("SSH-15")
def test_nothing_is_left_after_close(service: SshService) -> None:
    def held() -> tuple[set[str], int]:
        threads = {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}
        return threads, len(list(Path("/proc/self/fd").iterdir()))

    threads, files = held()
    backend = SshBackend(options_of(service))
    running = [backend.spawn(SpawnRequest(argv=["cat"], pty=pty)) for pty in (None, PtySize())]
    assert sh(backend, "echo x") == (0, b"x\n", b"")
    backend.close()
    backend.close()
    assert held()[0] <= threads
    assert held()[1] <= files
    assert wait_for(lambda: not service.connection_pids())
    with pytest.raises(ConnectionLost):
        read_to_end(running[0])
    for process in running:
        process.close()
    with pytest.raises(Closed):
        backend.spawn(SpawnRequest(argv=["true"]))


@pytest.mark.spec("SSH-15")
def test_nothing_is_left_after_a_failed_connection(service: SshService, tmp_path: Path) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(BackendError):
        connects(replace(options_of(service), known_hosts_file=known_hosts(tmp_path)))
    assert {thread.ident for thread in threading.enumerate()} <= before
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


@pytest.mark.spec("SSH-16")
def test_failures_print_nothing(
    service: SshService, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BackendError):
        connects(replace(options_of(service), known_hosts_file=known_hosts(tmp_path)))
    with start_sshd(max_startups="1:100:1") as server, socket.socket() as sitter:
        sitter.connect((server.host, server.port))
        assert sitter.recv(100)
        with pytest.raises(PlaceUnavailable):
            connects(replace(options_of(server), connect_timeout_s=0.5))
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
