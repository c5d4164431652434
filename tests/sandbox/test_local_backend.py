"""Programs on this machine, at the seam below all meaning."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox import BackendError, LocalSandbox
from sandbox.backend import Process
from sandbox.backends.local import LocalBackend
from sandbox.values import PtySize, SpawnRequest

LIMIT_S = 30.0
ROOT = Path(__file__).parents[2]
KINDS = [pytest.param(None, id="pipes"), pytest.param(PtySize(91, 27), id="terminal")]
Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program of sh; closed at the end of the test."""
    backend, started = LocalBackend(), []

    def start(script: str, pty: PtySize | None = None) -> Process:
        started.append(backend.spawn(SpawnRequest(argv=["sh", "-c", script], pty=pty)))
        return started[-1]

    yield start
    for process in started:
        process.close()


def read_all(process: Process) -> bytes:
    """Both streams to their end."""
    said, until_s = b"", time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        chunk = process.read(1)
        said += chunk.stdout + chunk.stderr
        if chunk.eof:
            return said
    raise AssertionError(f"no end; so far {said[-200:]!r}")


def status(process: Process) -> int | None:
    until_s = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.001)
    return process.poll()


@pytest.mark.spec("LB-01")
@pytest.mark.parametrize("child", ["sleep 20", "while sleep 0.01; do echo x; done"])
def test_the_end_of_a_program_wakes_a_reader_though_a_child_holds_the_output(
    start: Start, child: str
) -> None:
    process = start(f"{child} & echo $!; sleep 0.2; exit 4")
    said = b""
    while b"\n" not in said:
        said += process.read(LIMIT_S).stdout
    began_s = time.monotonic()
    while process.poll() is None:
        process.read(LIMIT_S)
    os.kill(int(said.split()[0]), signal.SIGKILL)
    assert process.poll() == 4
    # A bound, not a measure: the child would have held a reader for 20 s, or for ever.
    assert time.monotonic() - began_s < 15


@pytest.mark.spec("LB-01")
def test_a_reader_that_was_told_of_the_end_waits_for_what_comes_later(start: Start) -> None:
    process = start("{ sleep 0.3; echo late; } & exit 4")
    while process.poll() is None:
        process.read(LIMIT_S)
    told = [process.read(LIMIT_S) for _ in range(2)]
    # At most one read comes back for the news; the other one has waited.
    assert b"late\n" in [chunk.stdout for chunk in told]


@pytest.mark.spec("LB-02")
@pytest.mark.parametrize("pty", KINDS)
def test_several_threads_read_one_program_and_lose_nothing(start: Start, pty: PtySize | None) -> None:
    process = start("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); printf '%06d\\n' $i; done", pty)
    got: list[bytes] = []

    def read() -> None:
        while True:
            chunk = process.read(1)
            got.append(chunk.stdout)
            if chunk.eof:
                return

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        for reader in readers:
            reader.result(LIMIT_S)
    # Pieces may be noted out of order and cut lines, but every byte is there once.
    assert len(b"".join(got).replace(b"\r", b"")) == 3000 * 7
    assert status(process) == 0


@pytest.mark.spec("LB-02")
@pytest.mark.parametrize("pty", KINDS)
def test_a_program_that_is_closed_meanwhile_gives_and_takes_nothing_of_another(pty: PtySize | None) -> None:
    backend = LocalBackend()
    wrong: list[bytes] = []

    def use(word: bytes) -> None:
        for _ in range(40):
            process = backend.spawn(SpawnRequest(argv=["cat"], pty=pty))
            feeder = threading.Thread(target=feed, args=(process, word))
            feeder.start()
            said = b""
            while len(said) < 200:
                said += process.read(1).stdout
            process.close()
            feeder.join(LIMIT_S)
            assert not feeder.is_alive()
            if said.replace(b"\r", b"").replace(word + b"\n", b"") not in (b"", *cuts(word)):
                wrong.append(said)

    def feed(process: Process, word: bytes) -> None:
        for _ in range(200):
            process.write(word + b"\n", 0.1)

    def cuts(word: bytes) -> list[bytes]:
        return [word[:length] for length in range(1, len(word) + 1)]

    with ThreadPoolExecutor(4) as pool:
        for use_of_one in [pool.submit(use, word) for word in (b"aaaa", b"bbbb", b"cccc", b"dddd")]:
            use_of_one.result(LIMIT_S)
    assert wrong == []


@pytest.mark.spec("LB-03")
@pytest.mark.parametrize("pty", KINDS)
def test_a_status_that_somebody_else_has_taken_is_an_error(start: Start, pty: PtySize | None) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = start("exit 3", pty)
        with pytest.raises(BackendError, match="SIGCHLD"):
            read_all(process)
            status(process)
        with pytest.raises(BackendError, match="SIGCHLD"):
            process.poll()
        with LocalSandbox() as box, pytest.raises(BackendError, match="SIGCHLD"):
            box.exec("exit 3")
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.spec("LB-04")
@pytest.mark.parametrize("pty", KINDS)
def test_a_program_gets_no_descriptor_but_its_three(start: Start, pty: PtySize | None) -> None:
    given = os.dup2(0, 200, inheritable=True)
    try:
        said = read_all(start("for f in /proc/$$/fd/*; do echo ${f##*/}; done", pty)).split()
    finally:
        os.close(given)
    # 3 is the directory that is being listed; from 10 on is what a shell keeps for itself.
    assert {int(fd) for fd in said} - {3, *range(10, 20)} == {0, 1, 2}


@pytest.mark.spec("LB-05")
def test_a_terminal_is_the_controlling_one_in_its_size_and_without_echo(start: Start) -> None:
    script = """
stty size
stty -a | tr ' ;' '\\n\\n' | grep -x -e echo -e -echo
ps -o sid=,pid=,tty= -p $$
echo >/dev/tty
read x; echo got $x
"""
    process = start(script, PtySize(91, 27))
    process.write(b"typed\n", 1)
    size, echo, ids, _, got = read_all(process).decode().split("\r\n")[:5]
    session, pid, tty = ids.split()
    assert (size, echo, got) == ("27 91", "-echo", "got typed")
    assert session == pid
    assert tty.startswith("pts/")


@pytest.mark.spec("LB-05")
def test_a_terminal_obeys_signals_that_this_process_was_started_to_ignore() -> None:
    program = (
        "import signal, time\n"
        "from sandbox.backends.local import LocalBackend\n"
        "from sandbox.values import *\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "for name in ('INT', 'QUIT', 'HUP', 'TERM', 'PIPE'):\n"
        "    argv = ['sh', '-c', f'kill -{name} $$; echo alive']\n"
        "    process = LocalBackend().spawn(SpawnRequest(argv=argv, pty=PtySize()))\n"
        "    while not process.read(1).eof: pass\n"
        "    while process.poll() is None: time.sleep(0.001)\n"
        "    print(name, process.poll())\n"
        "    process.close()\n"
    )
    script = 'trap \'\' INT QUIT HUP TERM; exec "$0" -c "$1"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.split() == ["INT", "130", "QUIT", "131", "HUP", "129", "TERM", "143", "PIPE", "141"], (
        done.stderr
    )


@pytest.mark.spec("LB-06")
def test_starting_a_program_on_a_terminal_forks_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks: list[str] = []
    os.register_at_fork(before=lambda: forks.append("fork"))
    process = start("echo started", PtySize())
    assert read_all(process) == b"started\r\n"
    assert forks == []


@pytest.mark.spec("LB-07")
@pytest.mark.parametrize("pty", KINDS)
def test_without_process_descriptors_everything_works(
    start: Start, pty: PtySize | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", none)
    process = start("echo out; exit 5", pty)
    assert read_all(process).split() == [b"out"]
    assert status(process) == 5
    with LocalSandbox() as box:
        assert box.exec("sleep 20 & exit 6").exit_code == 6
        assert box.shell("s").run("(exit 7)").exit_code == 7


@pytest.mark.parametrize("pty", KINDS)
def test_a_program_that_is_not_there_is_an_error_of_the_place(pty: PtySize | None) -> None:
    with pytest.raises(BackendError, match="coderig-no-such-program"):
        LocalBackend().spawn(SpawnRequest(argv=["coderig-no-such-program"], pty=pty))
