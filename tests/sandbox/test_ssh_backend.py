"""Programs on another machine, over a real sshd on loopback."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from services.ssh_service import SshService, start_sshd
from ssh_kit import LIMIT_S, options_of, read_to_end, read_until, run, sh, wait_for

from sandbox.backends.ssh import SshBackend, command_line
from sandbox.errors import BackendError, RequestError
from sandbox.values import PtySize, SpawnRequest

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


@pytest.mark.spec("SSH-17")
def test_many_programs_at_once_keep_their_output_apart(backend: SshBackend) -> None:
    def one(number: int) -> bool:
        return sh(backend, f"echo {number}; exit {number}") == (number, f"{number}\n".encode(), b"")

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))


@pytest.mark.spec("SSH-17")
def test_a_connection_forgets_the_programs_that_have_ended(backend: SshBackend) -> None:
    for _ in range(5):
        assert run(backend, "true")[0] == 0
    (connection,) = backend._connections
    assert wait_for(lambda: connection.open_programs == 0 and not connection.transport.channels_seen)


@pytest.mark.spec("SSH-23")
def test_new_session_keys_in_the_middle_disturb_nothing() -> None:
    with start_sshd(extra=["RekeyLimit 256K"]) as server:
        backend = SshBackend(options_of(server))
        process = backend.spawn(SpawnRequest(argv=["cat"]))
        data = random.Random(3).randbytes(4 << 20)

        def feed() -> None:
            rest = memoryview(data)
            while rest:
                rest = rest[process.write(bytes(rest[: 1 << 18]), LIMIT_S) :]
            process.close_stdin()

        with ThreadPoolExecutor(1) as pool:
            feeding = pool.submit(feed)
            assert read_to_end(process) == (data, b"")
            feeding.result(LIMIT_S)
        process.close()
        backend.close()
