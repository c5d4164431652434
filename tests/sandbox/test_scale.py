"""Many at once, and what happens at the limits: one never holds up another, errors say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import Place
from services.docker_service import DockerService
from services.ssh_service import SshService, start_sshd
from ssh_kit import options_of, wait_for

from sandbox import BackendError, DockerSandbox, LocalSandbox, RequestError, Sandbox, Shell, SSHSandbox
from sandbox.backend import Process
from sandbox.backends.docker import DockerOptions
from sandbox.shells import MAX_SHELLS
from sandbox.values import SpawnRequest

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0


def use_all(shells: list[Shell], rounds: int) -> int:
    """Every shell at once, each with a state of its own, a few commands each; how many commands."""
    together = threading.Barrier(len(shells), timeout=LIMIT_S)

    def use(number: int, shell: Shell) -> None:
        assert shell.run(f"mine={number}").exit_code == 0
        # From here on, all are open.
        together.wait()
        for turn in range(rounds):
            result = shell.run(f"echo $mine {turn}; (exit {turn})", timeout_s=LIMIT_S)
            assert (result.output, result.exit_code) == (f"{number} {turn}\n", turn)
        together.wait()
        assert shell.run("exit 3").ended

    with ThreadPoolExecutor(len(shells)) as pool:
        return rounds * len(list(pool.map(use, range(len(shells)), shells)))


@pytest.mark.spec("SL-01")
def test_two_hundred_shells_over_twenty_local_sandboxes_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        boxes = [stack.enter_context(LocalSandbox(tmp_path)) for _ in range(20)]
        assert use_all([box.shell(f"s{number}") for box in boxes for number in range(10)], 5) == 1000


@pytest.mark.docker
@pytest.mark.spec("SL-01")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_many_containers_with_a_few_shells_each_at_once(docker_daemon: DockerService, count: int) -> None:
    options = DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url)
    boxes = [DockerSandbox(options) for _ in range(count)]
    with ThreadPoolExecutor(count) as pool:
        try:
            use_all([box.shell(f"s{number}") for box in boxes for number in range(3)], 3)
            hosts = set(pool.map(lambda box: box.exec("hostname").stdout, boxes))
        finally:
            list(pool.map(lambda box: box.close(), boxes))
    assert len(hosts) == count


@pytest.fixture(scope="module")
def service() -> Iterator[SshService]:
    with start_sshd(max_sessions=10, max_startups="100") as started:
        yield started


@pytest.mark.ssh
@pytest.mark.spec("SL-01")
def test_more_shells_than_one_ssh_connection_takes_at_once(service: SshService, tmp_path: Path) -> None:
    with SSHSandbox(options_of(service), str(tmp_path)) as box:
        use_all([box.shell(f"s{number}") for number in range(25)], 3)
        assert box.exec("echo beside").stdout == "beside\n"
        assert 3 <= len(service.connection_pids()) <= 5


# --- one never holds up another ----------------------------------------------------------------------


@pytest.mark.spec("SL-02")
def test_hung_and_flooding_calls_hold_up_no_other_call(place: Place) -> None:
    where = place.fresh()
    place.box.exec("mkfifo never", cwd=where)
    release, cancel, taken = threading.Event(), threading.Event(), threading.Event()

    def slow(stream: str, data: bytes) -> None:
        taken.set()
        release.wait(LIMIT_S)

    hangs = f"cd {where}; cat never"
    with ThreadPoolExecutor(6) as pool:
        calls: list[Future[Any]] = [
            pool.submit(place.box.exec, hangs, cancel=cancel, timeout_s=LIMIT_S),
            # Takes no input and gives none, with more on the way than any buffer holds.
            pool.submit(place.box.exec, hangs, stdin=b"x" * 3_000_000, cancel=cancel, timeout_s=LIMIT_S),
            pool.submit(place.box.exec, "yes", on_output=slow, cancel=cancel, timeout_s=LIMIT_S),
            pool.submit(place.box.shell("hung").run, hangs, cancel=cancel, timeout_s=LIMIT_S),
            pool.submit(place.box.shell("flood").run, "yes", cancel=cancel, timeout_s=LIMIT_S),
        ]
        assert taken.wait(LIMIT_S)
        try:
            for number in range(5):
                assert place.box.exec(f"echo {number}").stdout == f"{number}\n"
                assert place.box.shell("free").run(f"echo {number}").output == f"{number}\n"
                place.box.write_file(f"{where}/file", b"%d" % number)
                assert place.box.read_file(f"{where}/file") == b"%d" % number
            assert place.box.exec("sleep 30", timeout_s=0.1).timed_out
            assert not any(call.done() for call in calls)
        finally:
            cancel.set()
            release.set()
    for name in ("hung", "flood", "free"):
        place.box.shell(name).close()


# --- limits ------------------------------------------------------------------------------------------


@pytest.mark.spec("SL-03")
def test_a_shell_too_many_is_refused_in_words_and_closing_one_makes_room(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path) as box:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda n: box.shell(f"s{n}").run("true"), range(MAX_SHELLS)))
        with pytest.raises(RequestError, match=f"{MAX_SHELLS} "):
            box.shell("another").run("true")
        assert box.exec("echo still").stdout == "still\n"
        box.shell("s7").close()
        assert box.shell("another").run("echo room").output == "room\n"
        with ThreadPoolExecutor(16) as pool:
            ended = list(pool.map(lambda info: box.shell(info.name).run("exit 3"), box.shells()))
        assert [result.exit_code for result in ended] == [3] * MAX_SHELLS


def limited(script: str, *, unshare: bool = False) -> str:
    """Run a program that lowers its own limits, as a user that nobody else is; what it printed.

    unshare  with terminals of its own, only a few of them"""
    argv = [sys.executable, "-W", "error", "-c", PRELUDE + script]
    if unshare:
        options = "newinstance,ptmxmode=0666,max=8"
        mount = f"mount -t devpts -o {options} devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx"
        argv = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *argv]
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PRELUDE = """
import asyncio, contextlib, gc, os, resource, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor
from census import Census, left_over
from sandbox import BackendError, LocalSandbox
from sandbox.aio import AsyncSandbox
import encodings.ascii, encodings.utf_8, sandbox.backends.local

def alone():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)

def limit(what, number):
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (number, hard))

def refused(call, *words):
    try:
        assert call() == "x\\n"
    except BackendError as error:
        assert all(word in str(error) for word in words), error
        return True
    return False

def until_refused(call, *words):
    for number in range(1000):
        if refused(call, *words):
            return number
    raise AssertionError("never refused")
"""


@pytest.mark.spec("SL-04")
def test_without_descriptors_left_calls_are_refused_in_words_and_work_again_afterwards() -> None:
    said = limited("""
with tempfile.TemporaryDirectory() as directory, LocalSandbox(directory) as box:
    assert box.exec("echo before").stdout == "before\\n"
    assert box.shell("open").run("kept=1").exit_code == 0
    gc.collect(); before = Census.now()
    held = []
    for spare in range(12):
        limit(resource.RLIMIT_NOFILE, 256)
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(spare):
            os.close(held.pop())
        # Whatever can still be had, and whatever runs out first: told in words, or it works.
        for call in (
            lambda: box.exec("echo x").stdout,
            lambda: box.exec("cat; echo", stdin=b"x").stdout,
            lambda: box.shell("new").run("echo x").output,
        ):
            print("refused" if refused(call, "256 files open", "ulimit -n") else "ran")
        assert box.shell("open").run("echo $kept").output == "1\\n"
        while held:
            os.close(held.pop())
    assert box.exec("echo after").stdout == "after\\n"
    assert box.shell("new").run("echo after").output == "after\\n"
    box.shell("new").close()
    print(left_over(before, spare=12))
""")
    assert {"refused", "ran", "{}"} == set(said.split())


@pytest.mark.spec("SL-05", "AS-12")
def test_without_processes_or_threads_left_calls_are_refused_in_words_and_work_again_afterwards() -> None:
    said = limited(
        """
alone()
with tempfile.TemporaryDirectory() as directory:
    before = Census.now()
    with LocalSandbox(directory) as box:
        assert box.exec("echo before").stdout == "before\\n"
        normal, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        for call in (lambda: box.exec("echo x").stdout, lambda: box.shell("new").run("echo x").output):
            limit(resource.RLIMIT_NPROC, 1)
            # What stands by may still be used.
            print(until_refused(call, "ulimit -u says 1") < 10)
            limit(resource.RLIMIT_NPROC, normal)
            print(until_works(call))
        async def main():
            async with AsyncSandbox(LocalSandbox(directory)) as face:
                wait = "touch began; while [ ! -e stop ]; do sleep 0.02; done"
                held = asyncio.create_task(face.exec(wait))
                while not os.path.exists(directory + "/began"):
                    await asyncio.sleep(0.01)
                limit(resource.RLIMIT_NPROC, 1)
                try:
                    await face.exec("touch refused")
                except BackendError as error:
                    print("ulimit -u says 1" in str(error))
                limit(resource.RLIMIT_NPROC, normal)
                open(directory + "/stop", "w").close()
                await held
                print((await face.exec("ls")).stdout == "began\\nstop\\n")
        asyncio.run(main())
    print(left_over(before))
""".replace(
            "with tempfile",
            """
def until_works(call):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not refused(call):
            return True
    return False

with tempfile""",
            1,
        )
    )
    assert said.split() == ["True"] * 6 + ["{}"]


@pytest.mark.spec("SL-06")
def test_without_terminals_left_a_shell_is_refused_in_words_and_closing_one_makes_room() -> None:
    said = limited(
        """
with tempfile.TemporaryDirectory() as directory, LocalSandbox(directory) as box:
    opened = iter(range(100))
    number = until_refused(lambda: box.shell(str(next(opened))).run("echo x").output, "kernel.pty.max")
    print(number)
    print(box.exec("echo still").stdout.strip())
    box.shell("0").close()
    print(box.shell("room").run("echo room").output.strip())
""",
        unshare=True,
    )
    assert said.split() == ["8", "still", "room"]


@pytest.mark.ssh
@pytest.mark.spec("SL-07")
def test_without_channels_left_a_call_is_refused_in_words_and_works_again_afterwards(tmp_path: Path) -> None:
    with start_sshd(max_sessions=3) as small:
        options = replace(options_of(small), max_connections=2)
        with SSHSandbox(options, str(tmp_path)) as box:
            assert box.exec("echo before").stdout == "before\n"
            opened = 0
            with pytest.raises(BackendError, match=r"refused another channel .*MaxSessions"):
                for opened in range(10):
                    box.shell(f"s{opened}").run("true")
            assert opened == 6
            # The shells that are open work on, and one that is closed makes room.
            assert box.shell("s0").run("echo still").output == "still\n"
            box.shell("s0").close()
            assert box.exec("echo again").stdout == "again\n"


@pytest.mark.docker
@pytest.mark.spec("SL-08")
def test_in_a_full_container_a_program_is_refused_in_words_and_starts_again_afterwards(
    docker_daemon: DockerService,
) -> None:
    options = DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url, pids_limit=20)
    with DockerSandbox(options) as box:
        running = [start(box, "echo up; read x")]
        with pytest.raises(BackendError, match=r"of the 20 processes .*pids_limit"):
            while len(running) < 40:
                running.append(start(box, "echo up; read x"))
        for process in running:
            process.close_stdin()
        assert wait_for(lambda: all(process.poll() is not None for process in running))
        for process in running:
            process.close()
        start(box, "echo up").close()


def start(box: Sandbox, script: str) -> Process:
    """Start a program below all meaning, and wait for its first word."""
    process = box.backend.spawn(SpawnRequest(argv=["sh", "-c", script]))
    said = b""
    try:
        while b"up" not in said:
            chunk = process.read(LIMIT_S)
            said += chunk.stdout
            assert not chunk.eof
    except BaseException:
        process.close()
        raise
    return process
