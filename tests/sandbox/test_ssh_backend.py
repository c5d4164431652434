"""Programs on another machine, over a real sshd on loopback."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from services.ssh_service import SshService, start_sshd

from sandbox.backends.ssh import SshBackend, SshOptions, SshProcess, command_line
from sandbox.errors import BackendError, Closed, ConnectionLost, PlaceUnavailable, RequestError
from sandbox.values import PtySize, SpawnRequest

pytestmark = pytest.mark.ssh

LIMIT_S = 20.0


def options_of(service: SshService) -> SshOptions:
    return SshOptions(
        host=service.host,
        port=service.port,
        user=service.user,
        identity_file=service.identity_file,
        known_hosts_file=service.known_hosts_file,
        use_ssh_config=False,
        use_agent=False,
    )


@pytest.fixture(scope="module")
def service() -> Iterator[SshService]:
    with start_sshd() as started:
        yield started


@pytest.fixture
def backend(service: SshService) -> Iterator[SshBackend]:
    made = SshBackend(options_of(service))
    yield made
    made.close()


def wait_for(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    until_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.005)
    return True


def read_to_end(process: SshProcess, limit_s: float = LIMIT_S) -> tuple[bytes, bytes]:
    out, err = bytearray(), bytearray()
    until_s = time.monotonic() + limit_s
    while (left_s := until_s - time.monotonic()) > 0:
        chunk = process.read(left_s)
        out += chunk.stdout
        err += chunk.stderr
        if chunk.eof:
            return bytes(out), bytes(err)
    raise AssertionError(f"no end of output; so far {bytes(out)[-300:]!r} {bytes(err)[-300:]!r}")


def read_until(process: SshProcess, wanted: bytes, limit_s: float = LIMIT_S) -> bytes:
    seen = bytearray()
    until_s = time.monotonic() + limit_s
    while wanted not in seen:
        left_s = until_s - time.monotonic()
        chunk = process.read(max(0.0, left_s))
        seen += chunk.stdout
        if chunk.eof or left_s <= 0:
            raise AssertionError(f"{wanted!r} did not come: {bytes(seen)[-300:]!r}")
    return bytes(seen)


def run(
    backend: SshBackend, *argv: str, pty: PtySize | None = None, **env: str
) -> tuple[int | None, bytes, bytes]:
    process = backend.spawn(SpawnRequest(argv=argv, env=env, pty=pty))
    try:
        out, err = read_to_end(process)
        assert wait_for(lambda: process.poll() is not None)
        return process.poll(), out, err
    finally:
        process.close()


def sh(backend: SshBackend, script: str) -> tuple[int | None, bytes, bytes]:
    return run(backend, "sh", "-c", script)


# --- programs ------------------------------------------------------------------------------------


@pytest.mark.spec("SSH-20")
def test_output_errors_and_status_come_apart(backend: SshBackend) -> None:
    assert sh(backend, "echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")


@pytest.mark.spec("SSH-20")
@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "HUP", "USR1"])
def test_a_signal_gives_the_status_that_a_shell_gives(backend: SshBackend, name: str) -> None:
    status, _, _ = sh(backend, f"kill -{name} $$")
    assert status == 128 + signal.Signals[f"SIG{name}"]


@pytest.mark.spec("SSH-20")
def test_a_program_that_is_not_there_is_127(backend: SshBackend) -> None:
    status, out, err = run(backend, "no-such-program-here")
    assert (status, out) == (127, b"")
    assert b"no-such-program-here" in err


@pytest.mark.spec("SSH-21")
@pytest.mark.parametrize("pty", [None, PtySize()])
def test_a_program_leads_a_session_and_a_group_of_its_own(backend: SshBackend, pty: PtySize | None) -> None:
    _, out, _ = run(backend, "sh", "-c", "echo $$; ps -o pid= -o pgid= -o sid= -p $$", pty=pty)
    numbers = out.split()
    assert len(numbers) == 4
    assert len(set(numbers)) == 1


@pytest.mark.spec("SSH-22")
def test_ten_megabytes_of_input_arrive_whole(backend: SshBackend) -> None:
    data = random.Random(7).randbytes(10 << 20)
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", "cksum; exit 4"]))
    rest = memoryview(data)
    while rest:
        rest = rest[process.write(bytes(rest[: 1 << 20]), LIMIT_S) :]
    process.close_stdin()
    out, _ = read_to_end(process)
    process.close()
    assert (
        out.split()
        == subprocess.run(["cksum"], input=data, stdout=subprocess.PIPE, check=True).stdout.split()
    )


@pytest.mark.spec("SSH-22")
def test_a_program_that_reads_nothing_takes_a_bounded_amount_and_then_nothing(backend: SshBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sleep", "30"]))
    taken = 0
    while (count := process.write(b"x" * (1 << 20), 0.2)) > 0:
        taken += count
        assert taken < 64 << 20
    assert process.write(b"x", 0) == 0
    process.close()


@pytest.mark.spec("SSH-22")
def test_input_for_a_program_that_has_closed_it_or_ended_is_dropped(backend: SshBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", "exec <&-; echo deaf; exec sleep 30"]))
    read_until(process, b"deaf")
    for _ in range(10):
        assert process.write(b"x" * (1 << 20), LIMIT_S) == 1 << 20
    process.close()
    ended = backend.spawn(SpawnRequest(argv=["true"]))
    read_to_end(ended)
    assert wait_for(lambda: ended.write(b"y" * 100_000, 1) == 100_000)
    ended.close()
    assert ended.write(b"z", 0) == 1


@pytest.mark.spec("SSH-23")
def test_a_reader_that_pauses_holds_the_program_back_and_loses_nothing(
    backend: SshBackend, tmp_path: Path
) -> None:
    count, mark = 20 << 20, tmp_path / "done"
    script = f"head -c {count} /dev/zero | tr '\\0' x; echo done > {mark}; echo end >&2"
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", script]))
    first = process.read(LIMIT_S)
    assert 0 < len(first.stdout) <= 512 * 1024
    # The window of the channel and the pipes are full by now or soon, and the program stands.
    assert not wait_for(mark.exists, 0.5)
    out, err = read_to_end(process)
    process.close()
    assert len(first.stdout) + len(out) == count
    assert set(first.stdout + out) == {ord("x")}
    assert err == b"end\n"


@pytest.mark.spec("SSH-24")
def test_the_status_is_known_while_a_child_still_holds_the_output(backend: SshBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", "sleep 30 & echo $!; exit 5"]))
    child = int(read_until(process, b"\n"))
    assert wait_for(lambda: process.poll() == 5)
    assert not process.read(0.05).eof
    process.close()
    assert Path(f"/proc/{child}").exists()
    os.kill(child, signal.SIGKILL)


@pytest.mark.spec("SSH-24")
def test_output_that_is_closed_early_is_at_its_end_while_the_program_runs(backend: SshBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", "exec >&- 2>&-; read x; exit 6"]))
    assert read_to_end(process) == (b"", b"")
    assert process.poll() is None
    process.write(b"go\n", LIMIT_S)
    assert wait_for(lambda: process.poll() == 6)
    process.close()


@pytest.mark.spec("SSH-24")
def test_a_read_waits_no_longer_than_asked_and_close_wakes_it(backend: SshBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sleep", "30"]))
    assert process.read(0) == process.read(0.05)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(process.read, LIMIT_S)
        process.close()
        assert reading.result(LIMIT_S).eof
    process.close()
    assert process.read(LIMIT_S).eof
    process.close_stdin()
    process.resize(10, 10)


# --- terminals -----------------------------------------------------------------------------------


@pytest.mark.spec("SSH-25")
def test_a_terminal_has_its_size_its_kind_and_follows_a_resize(backend: SshBackend) -> None:
    script = "stty size; echo $TERM; tty >/dev/null && echo is a tty; read x; stty size; echo err >&2"
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", script], pty=PtySize(100, 30)))
    seen = read_until(process, b"is a tty")
    assert b"30 100\r\nxterm-256color\r\n" in seen
    process.resize(120, 40)
    process.write(b"\n", LIMIT_S)
    out, err = read_to_end(process)
    assert b"40 120\r\nerr\r\n" in out
    assert err == b""
    process.close()


@pytest.mark.spec("SSH-25")
def test_closing_a_terminal_hangs_up(backend: SshBackend, tmp_path: Path) -> None:
    mark = tmp_path / "hung-up"
    script = f"trap 'echo yes > {mark}; exit' HUP; echo ready; while :; do sleep 0.05; done"
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", script], pty=PtySize()))
    read_until(process, b"ready")
    process.close()
    assert wait_for(lambda: mark.exists() and mark.read_text(encoding="utf-8") == "yes\n")


@pytest.mark.spec("SSH-25")
def test_ctrl_c_reaches_the_program_on_the_terminal(backend: SshBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", "echo ready; exec sleep 30"], pty=PtySize()))
    read_until(process, b"ready")
    process.write(b"\x03", LIMIT_S)
    read_to_end(process)
    assert wait_for(lambda: process.poll() == 130)
    process.close()


@pytest.mark.spec("SSH-25")
def test_a_refused_terminal_is_an_error_of_the_place() -> None:
    with start_sshd(extra=["PermitTTY no"]) as strict:
        backend = SshBackend(options_of(strict))
        process = backend.spawn(SpawnRequest(argv=["cat"], pty=PtySize()))
        with pytest.raises(BackendError, match="refused to start a terminal"):
            read_to_end(process)
        process.close()
        assert sh(backend, "echo still here") == (0, b"still here\n", b"")
        backend.close()


# --- the command line and the login shell ----------------------------------------------------------

NASTY = [
    "plain",
    "",
    "two words",
    "it's",
    '"double" $HOME `id` $(id)',
    "back\\slash \\\\ \\n \\' end\\",
    "wow! !! !$ !x",
    "new\nline\n",
    "tab\there; a && b || c | d > e < f & g # h",
    "*?[a]{b,c}~ %s %b \\0101",
    "ünïcode ✓ 漢字",
    "\x01\x1b[0m\x7f",
    "caf\udce9",
    "-n",
    "^caret^ = @ +",
]


@pytest.mark.spec("SSH-26")
@pytest.mark.parametrize("login_shell", [None, "dash", "csh", "fish", "busybox"])
def test_arguments_and_variables_arrive_unchanged_through_any_login_shell(login_shell: str | None) -> None:
    with start_sshd(login_shell=login_shell) as server:
        backend = SshBackend(options_of(server))
        try:
            _, out, err = run(backend, "printf", "%s\\0", *NASTY)
            assert out.decode("utf-8", "surrogateescape").split("\0")[:-1] == NASTY, err
            for value in NASTY:
                status, out, err = run(backend, "sh", "-c", 'printf %s "$CODERIG_X"; exit 7', CODERIG_X=value)
                assert (status, out.decode("utf-8", "surrogateescape"), err) == (7, value, b"")
            _, out, _ = run(backend, "sh", "-c", "echo $$; ps -o pgid= -p $$")
            assert len(set(out.split())) == 1
        finally:
            backend.close()


@pytest.mark.spec("SSH-26")
def test_a_line_for_an_unknown_shell_holds_nothing_that_shells_read_differently() -> None:
    for argument in NASTY:
        line = command_line(["printf", "%s", argument], {"A": argument}, posix=False)
        assert all(32 <= byte < 127 and byte != ord("!") for byte in line)
        if line.startswith(b"exec sh -c"):
            assert b"\\'" not in line
            assert b"\\\\" not in line


@pytest.mark.spec("SSH-27")
def test_what_no_line_can_carry_is_refused_and_nothing_runs(backend: SshBackend) -> None:
    with pytest.raises(RequestError, match="NUL"):
        backend.spawn(SpawnRequest(argv=["echo", "a\0b"]))
    with pytest.raises(RequestError, match="at most"):
        backend.spawn(SpawnRequest(argv=["echo", "x" * 140_000]))
    status, out, _ = run(backend, "echo", "x" * 120_000)
    assert (status, len(out)) == (0, 120_001)


@pytest.mark.spec("SSH-28")
def test_noise_of_start_files_and_banners_does_not_disturb(tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Authorised use only!\n" * 40, encoding="utf-8")
    with start_sshd(extra=[f"Banner {banner}"]) as server:
        (server.home / ".bashrc").write_text("echo noise; echo more >&2\n", encoding="utf-8")
        backend = SshBackend(options_of(server))
        status, out, _ = sh(backend, "echo real; exit 2")
        backend.close()
    assert status == 2
    assert out.endswith(b"real\n")


@pytest.mark.spec("SSH-28")
def test_an_account_that_runs_no_commands_is_named_as_such() -> None:
    with start_sshd(extra=["ForceCommand internal-sftp"]) as server:
        backend = SshBackend(options_of(server))
        with pytest.raises(BackendError, match="runs no commands"):
            backend.spawn(SpawnRequest(argv=["true"]))
        backend.close()


@pytest.mark.spec("SSH-28")
def test_a_server_without_sftp_is_as_good() -> None:
    with start_sshd(sftp=False) as server:
        backend = SshBackend(options_of(server))
        assert sh(backend, "echo fine") == (0, b"fine\n", b"")
        backend.close()


# --- host keys -----------------------------------------------------------------------------------


def known_hosts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def connects(options: SshOptions) -> bool:
    backend = SshBackend(options)
    try:
        return sh(backend, "echo in") == (0, b"in\n", b"")
    finally:
        backend.close()


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


@pytest.mark.spec("SSH-12")
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


@pytest.mark.spec("SSH-12")
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
def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        options = SshOptions(host="127.0.0.1", port=taken.getsockname()[1], use_ssh_config=False)
        backend = SshBackend(options)
        with pytest.raises(PlaceUnavailable, match="cannot be reached"):
            backend.spawn(SpawnRequest(argv=["true"]))


@pytest.mark.spec("SSH-14")
def test_a_storm_of_connections_gets_through_a_narrow_door() -> None:
    with start_sshd(max_startups="2:100:2") as server, ThreadPoolExecutor(20) as pool:
        options = replace(options_of(server), connect_timeout_s=40)
        assert list(pool.map(connects, [options] * 20)) == [True] * 20
        assert "MaxStartups" in server.log_file.read_text(encoding="utf-8", errors="replace")


@pytest.mark.spec("SSH-14")
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


@pytest.mark.spec("SSH-17")
def test_many_programs_at_once_keep_their_output_apart(backend: SshBackend) -> None:
    def one(number: int) -> bool:
        return sh(backend, f"echo {number}; exit {number}") == (number, f"{number}\n".encode(), b"")

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))
