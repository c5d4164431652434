"""Connections to a real sshd on loopback: loss, silence, limits, and what is left behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from paramiko import Channel, ChannelException
from services.ssh_service import SshService, start_sshd
from ssh_kit import LIMIT_S, connects, known_hosts, options_of, read_to_end, read_until, run, sh, wait_for

from sandbox.backends.ssh import SshBackend, SshOptions
from sandbox.backends.ssh_connection import Transport
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


@pytest.mark.spec("SSH-10")
def test_connections_that_die_at_any_moment_never_cut_output_short_or_run_a_program_twice(
    tmp_path: Path,
) -> None:
    ran, count = tmp_path / "ran", 300_000
    stop = threading.Event()

    def work(cut: SshBackend, worker: int) -> tuple[int, int]:
        good = lost = 0
        while not stop.is_set():
            script = f"echo {worker}-{good}-{lost} >> {ran}; head -c {count} /dev/zero; exit 7"
            pty = PtySize() if (good + lost) % 2 else None
            try:
                status, out, _ = run(cut, "sh", "-c", script, pty=pty)
            except (ConnectionLost, PlaceUnavailable):
                lost += 1
            else:
                assert (status, len(out)) == (7, count)
                good += 1
        return good, lost

    with start_sshd() as server, ThreadPoolExecutor(3) as pool:
        backend = SshBackend(options_of(server))
        working = [pool.submit(work, backend, number) for number in range(3)]
        moments = random.Random(5)
        try:
            for _ in range(10):
                time.sleep(moments.uniform(0.05, 0.4))
                for connection in server.connection_pids():
                    os.kill(connection, signal.SIGKILL)
        finally:
            stop.set()
        results = [future.result(LIMIT_S) for future in working]
        backend.close()
    assert sum(good for good, _ in results) > 0
    assert sum(lost for _, lost in results) > 0
    lines = ran.read_text(encoding="utf-8").split()
    assert len(lines) == len(set(lines))


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
def test_commands_at_their_timeout_are_ended_though_all_channels_are_taken() -> None:
    with start_sshd(max_sessions=2) as server, ThreadPoolExecutor(6) as pool:
        backend = SshBackend(options_of(server))
        executor = Executor(backend, {})
        request = ExecRequest(command="sleep 3711 & sleep 3711", timeout_s=1)
        results = list(pool.map(lambda _: executor.run(request, cwd=None), range(6)))
        assert [result.timed_out for result in results] == [True] * 6
        assert sh(backend, "ps ax -o args | grep -c '^sleep 3711'")[1] == b"0\n"
        backend.close()


@pytest.mark.spec("SSH-12")
def test_one_session_for_each_connection_is_enough() -> None:
    with start_sshd(max_sessions=1) as server:
        backend = SshBackend(options_of(server))
        first = backend.spawn(SpawnRequest(argv=["cat"]))
        for _ in range(3):
            assert sh(backend, "echo beside") == (0, b"beside\n", b"")
        first.close()
        backend.close()


@pytest.mark.spec("SSH-12")
def test_a_channel_that_another_caller_is_about_to_get_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, refused = threading.Event(), threading.Event()
    open_session = Transport.open_session

    def slow_for_the_first(transport: Transport, timeout: float) -> Channel:
        first = not opened.is_set()
        try:
            channel = open_session(transport, timeout=timeout)
        except ChannelException:
            refused.set()
            raise
        if first:
            opened.set()
            assert refused.wait(LIMIT_S)
        return channel

    with start_sshd(max_sessions=1) as server, ThreadPoolExecutor(2) as pool:
        backend = SshBackend(options_of(server))
        assert sh(backend, "echo before") == (0, b"before\n", b"")
        for connection in backend._connections:
            connection.close()  # the next one is not probed, so that nothing has been opened on it
        monkeypatch.setattr(Transport, "open_session", slow_for_the_first)
        one = pool.submit(sh, backend, "echo one")
        assert opened.wait(LIMIT_S)
        assert sh(backend, "echo two") == (0, b"two\n", b"")
        assert one.result() == (0, b"one\n", b"")
        backend.close()


@pytest.mark.spec("SSH-32")
def test_a_host_that_was_reached_once_and_cannot_be_again_is_unavailable() -> None:
    with start_sshd() as server:
        backend = SshBackend(options_of(server))
        assert sh(backend, "echo before") == (0, b"before\n", b"")
        for connection in backend._connections:
            connection.close()
        server.known_hosts_file.rename(f"{server.known_hosts_file}.away")
        with pytest.raises(PlaceUnavailable, match="cannot be reached again: there is no known_hosts file"):
            backend.spawn(SpawnRequest(argv=["true"]))
        backend.close()
        with pytest.raises(RequestError, match="there is no known_hosts file"):
            SshBackend(options_of(server)).spawn(SpawnRequest(argv=["true"]))


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
