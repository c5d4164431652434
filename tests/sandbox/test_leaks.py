"""Nothing is left over: threads, descriptors, terminals, children, memory; here and in the place."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import pytest
from census import Census, left_over, resident_bytes
from services.docker_service import DockerService
from services.ssh_service import SshService, start_sshd
from ssh_kit import options_of, wait_for

from sandbox import (
    BackendError,
    Cancelled,
    Closed,
    DockerSandbox,
    LocalSandbox,
    NotFound,
    Sandbox,
    SSHSandbox,
)
from sandbox.backends.docker import DockerOptions

GROWTH_BYTES = 16 << 20
STANDING_BY = 12
"""A few programs may stand by for the next commands, each with three pipes."""


class Stop(Exception):
    """What a callback of these tests raises."""


def many(box: Sandbox, count: int, threads: int = 4) -> None:
    """So many commands, a few at once; each is looked at."""

    def one(number: int) -> None:
        result = box.exec(f"echo {number}; echo e >&2; exit {number % 100}")
        assert (result.stdout, result.stderr, result.exit_code) == (f"{number}\n", "e\n", number % 100)

    def every(first: int) -> None:
        for number in range(first, count, threads):
            one(number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(every, range(threads)))


def fail_in_every_way(box: Sandbox) -> None:
    """Calls that end otherwise than by the end of their command."""

    def raising(stream: str, data: bytes) -> None:
        raise Stop

    assert box.exec("sleep 60", timeout_s=0.2).timed_out
    assert box.exec("sleep 60 & trap '' TERM; sleep 60", timeout_s=0.2).timed_out
    with pytest.raises(Stop):
        box.exec("echo x; sleep 60", on_output=raising)
    with pytest.raises(Cancelled):
        box.exec("sleep 60", cancel=cancelled_soon())
    with pytest.raises(NotFound):
        box.exec("true", cwd="/coderig/no/such/directory")
    assert box.exec("exec <&-; sleep 0.1", stdin=b"x" * 1_000_000).exit_code == 0
    assert box.exec("exec >&- 2>&-; exit 3").exit_code == 3
    assert box.exec("coderig-no-such-program").exit_code == 127


def fail_in_shells(box: Sandbox) -> None:
    def raising(stream: str, data: bytes) -> None:
        raise Stop

    shell = box.shell("failing")
    assert shell.run("sleep 60", timeout_s=0.2).timed_out
    with pytest.raises(Stop):
        shell.run("echo x; sleep 60", on_output=raising)
    with pytest.raises(Cancelled):
        shell.run("sleep 60", cancel=cancelled_soon())
    assert shell.run("exit 3").ended
    assert shell.run("kill -9 $$").ended
    assert shell.run("sleep 60", yield_s=0.05).running
    shell.close()
    # Left running, and never asked for again: ended when the sandbox is closed.
    assert box.shell("left").run("sleep 60", yield_s=0.05).running


def cancelled_soon() -> threading.Event:
    event = threading.Event()
    timer = threading.Timer(0.2, event.set)
    timer.daemon = True
    timer.start()
    return event


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """What is done inside leaves no thread, descriptor or child in this program."""
    gc.collect()
    before = Census.now()
    yield
    gc.collect()
    assert left_over(before) == {}


# --- this machine ------------------------------------------------------------------------------------


@pytest.mark.spec("SL-10")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_local_commands_leave_nothing(tmp_path: Path, count: int) -> None:
    with leaving_nothing(), LocalSandbox(tmp_path) as box:
        many(box, 100)
        during, memory = Census.now(), resident_bytes()
        many(box, count)
        # What stands by for the next commands stays, and is no more than before.
        assert left_over(during, spare=STANDING_BY) == {}
        assert resident_bytes() - memory < GROWTH_BYTES


@pytest.mark.spec("SL-11")
def test_local_commands_that_fail_in_every_way_leave_nothing(tmp_path: Path) -> None:
    with leaving_nothing(), LocalSandbox(tmp_path) as box:
        fail_in_every_way(box)
        during = Census.now()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fail_in_every_way, [box] * 4))
        assert left_over(during, spare=STANDING_BY) == {}


@pytest.mark.spec("SL-10", "SL-11")
def test_local_shells_leave_nothing(tmp_path: Path) -> None:
    with leaving_nothing(), LocalSandbox(tmp_path) as box:
        shell = box.shell("kept")
        for number in range(50):
            assert shell.run(f"echo {number}").output == f"{number}\n"
        during, memory = Census.now(), resident_bytes()
        for number in range(1000):
            assert shell.run(f"echo {number}").output == f"{number}\n"
        for _ in range(30):
            box.shell("short").run("true")
            box.shell("short").run("exit")
        box.shell("short").close()
        assert left_over(during, spare=STANDING_BY) == {}
        assert resident_bytes() - memory < GROWTH_BYTES
        fail_in_shells(box)


@pytest.mark.spec("SL-11")
def test_closing_while_commands_run_leaves_no_process(tmp_path: Path) -> None:
    with leaving_nothing():
        box = LocalSandbox(tmp_path)
        script = "echo $$ >>pids; sleep 4301 & exec sleep 4301"
        with ThreadPoolExecutor(8) as pool:
            calls: list[Future[Any]] = [pool.submit(box.exec, script) for _ in range(6)]
            shells = [pool.submit(box.shell(str(n)).run, script) for n in range(2)]
            assert wait_for(lambda: lines(tmp_path / "pids") == 8)
            box.close()
            for call in calls:
                with pytest.raises(Closed):
                    call.result()
            assert all(shell.result().ended for shell in shells)
        assert stray("sleep 4301") == []


@pytest.mark.spec("SL-12")
def test_a_background_child_of_a_command_is_no_child_of_ours(tmp_path: Path) -> None:
    with leaving_nothing(), LocalSandbox(tmp_path) as box:
        for _ in range(20):
            assert box.exec("sleep 2 & sleep 2 >/dev/null 2>&1 & echo x").stdout == "x\n"
        assert len(stray("sleep 2")) > 20


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def stray(command: str) -> list[str]:
    """Processes of this machine with this command line, zombies aside."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ") == command.encode():
                found.append(entry.name)
    return found


# --- over SSH ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service() -> Iterator[SshService]:
    with start_sshd() as started:
        yield started


@pytest.mark.ssh
@pytest.mark.spec("SL-13")
def test_commands_and_shells_over_ssh_leave_nothing_here_and_no_channel_there(
    service: SshService, tmp_path: Path
) -> None:
    with leaving_nothing(), SSHSandbox(options_of(service), str(tmp_path)) as box:
        many(box, 20)
        box.shell("s").run("true")
        during, memory, there = Census.now(), resident_bytes(), programs(service)
        many(box, 100)
        for number in range(100):
            assert box.shell("s").run(f"echo {number}").output == f"{number}\n"
        for _ in range(5):
            box.shell("short").run("exit 3")
        fail_in_every_way(box)
        box.shell("short").close()
        assert left_over(during, spare=STANDING_BY) == {}
        assert wait_for(lambda: programs(service) <= there + STANDING_BY), programs(service)
        assert resident_bytes() - memory < GROWTH_BYTES
        fail_in_shells(box)
    assert wait_for(lambda: service.connection_pids() == [])


@pytest.mark.ssh
@pytest.mark.spec("SL-13")
def test_a_connection_that_is_killed_under_calls_leaves_nothing(service: SshService, tmp_path: Path) -> None:
    # What a lost connection leaves behind ends by itself.
    script = "echo >>began; sleep 30"
    with leaving_nothing():
        for _ in range(3):
            with SSHSandbox(options_of(service), str(tmp_path)) as box, ThreadPoolExecutor(4) as pool:
                calls: list[Future[Any]] = [pool.submit(box.exec, script) for _ in range(3)]
                calls.append(pool.submit(box.shell("s").run, script))
                assert wait_for(lambda: lines(tmp_path / "began") == 4)
                for pid in service.connection_pids():
                    os.kill(pid, signal.SIGKILL)
                for call in calls:
                    with pytest.raises(BackendError):
                        call.result()
            (tmp_path / "began").unlink()


def programs(service: SshService) -> int:
    """How many processes the daemon's connections have below them."""
    return sum(len(descendants(pid)) for pid in service.connection_pids())


def descendants(pid: int) -> list[int]:
    below = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            below += [int(child), *descendants(int(child))]
    return below


# --- in containers -----------------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.spec("SL-14")
def test_commands_and_shells_in_a_container_leave_nothing_here_and_no_program_there(
    docker_daemon: DockerService,
) -> None:
    options = DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url)
    with leaving_nothing(), contextlib.closing(docker.DockerClient(docker_daemon.url)) as client:
        with DockerSandbox(options) as box:
            many(box, 10)
            box.shell("s").run("true")
            container = container_id(box)
            during, memory, there = Census.now(), resident_bytes(), execs(client, container)
            many(box, 40)
            for number in range(100):
                assert box.shell("s").run(f"echo {number}").output == f"{number}\n"
            for _ in range(3):
                box.shell("short").run("exit 3")
            fail_in_every_way(box)
            box.shell("short").close()
            assert left_over(during, spare=STANDING_BY) == {}
            assert wait_for(lambda: execs(client, container) <= there + 6), execs(client, container)
            assert resident_bytes() - memory < GROWTH_BYTES
            fail_in_shells(box)
        with pytest.raises(docker.errors.NotFound):
            client.containers.get(container)


@pytest.mark.docker
@pytest.mark.spec("SL-14")
def test_a_container_that_is_removed_under_calls_leaves_nothing(docker_daemon: DockerService) -> None:
    options = DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url)
    with (
        leaving_nothing(),
        contextlib.closing(docker.DockerClient(docker_daemon.url)) as client,
        DockerSandbox(options) as box,
        ThreadPoolExecutor(4) as pool,
    ):
        box.exec("true")
        calls: list[Future[Any]] = [pool.submit(box.exec, "echo >>began; sleep 60") for _ in range(3)]
        calls.append(pool.submit(box.shell("s").run, "echo >>began; sleep 60"))
        assert wait_for(lambda: box.exec("cat began 2>/dev/null | wc -l").stdout == "4\n")
        client.containers.get(container_id(box)).remove(force=True)
        for call in calls:
            with pytest.raises(BackendError):
                call.result()


def container_id(box: Sandbox) -> str:
    return str(getattr(box.backend, "container_id"))  # noqa: B009 - not part of the seam


def execs(client: docker.DockerClient, container: str) -> int:
    """How many programs the daemon knows to run in the container."""
    return len(client.api.inspect_container(container)["ExecIDs"] or [])
