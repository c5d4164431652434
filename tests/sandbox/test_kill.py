"""How commands are ended: at their timeout, by a cancel, with their sandbox, or with their owner."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from places import Place
from services.docker_service import DockerService
from services.ssh_service import start_sshd
from ssh_kit import options_of

from sandbox import Cancelled, Closed, ConnectionLost, DockerSandbox, LocalSandbox, Sandbox, SSHSandbox
from sandbox.backends.docker import DockerOptions
from sandbox.backends.local import LocalBackend
from sandbox.sweep import mark_line, new_mark, read_answer
from sandbox.sweeper import Sweeper
from sandbox.values import Deadline

LIMIT_S = 20.0
_numbers = itertools.count(10_000 + secrets.randbelow(80_000))


def number() -> int:
    """A time to sleep that nobody else sleeps, so that a process can be told by it."""
    return next(_numbers) * 100


def wait_for(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    until = Deadline.after(limit_s)
    while not condition():
        if until.passed:
            return False
        time.sleep(0.02)
    return True


def local_processes(word: str) -> dict[int, str]:
    """The command lines on this machine that hold a word, by process; zombies have none."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if word in line:
            found[int(directory.name)] = line
    return found


@pytest.fixture(params=["docker-debian", "docker-busybox"])
def container(request: pytest.FixtureRequest, docker_daemon: DockerService) -> Iterator[Place]:
    """A container of its own for each test: these hurt it."""
    image = docker_daemon.debian_image
    if request.param == "docker-busybox":
        image = docker_daemon.busybox_image
    with DockerSandbox(DockerOptions(image=image, host=docker_daemon.url)) as box:
        yield Place(request.param, box, "", "/workspace")


# ---- the order of things ---------------------------------------------------------------------------


@pytest.mark.spec("KT-01")
def test_a_command_is_terminated_first_and_its_last_words_are_kept(place: Place) -> None:
    seen = bytearray()
    command = "trap 'echo bye; exit 7' TERM; echo in; while :; do sleep 0.1; done"

    def watch(stream: str, data: bytes) -> None:
        if stream == "stdout":
            seen.extend(data)

    result = place.box.exec(command, timeout_s=0.5, on_output=watch)
    assert (result.stdout, result.exit_code, result.timed_out) == ("in\nbye\n", 7, True)
    assert (bytes(seen), result.survivors) == (b"in\nbye\n", ())


@pytest.mark.spec("KT-02")
def test_what_ignores_the_first_signal_is_killed_after_a_grace(place: Place) -> None:
    n = number()
    began_s = time.monotonic()
    result = place.box.exec(f"trap '' TERM HUP INT; sleep {n} & sleep {n}; sleep {n}", timeout_s=0.5)
    assert (result.timed_out, result.exit_code, result.survivors) == (True, 137, ())
    assert time.monotonic() - began_s > 1.5
    assert place.processes(f"sleep {n}") == []


LATER = {
    "ignoring": "trap '' TERM HUP INT; sleep 6; echo x >{}",
    "in a handler": "trap 'sleep 6; echo x >{}' TERM; sleep 60; sleep 60",
    "by a child of a handler": "trap '(sleep 6; echo x >{}) & exit' TERM; sleep 60; sleep 60",
    "again and again": "t() {{ trap t TERM; (sleep 6; echo x >{}) & sleep 60; sleep 60; }}; t",
    "behind the scenes": "(trap '' HUP; sleep 6; echo x >{}) & (sleep 6; echo x >{}) & sleep 60",
    "after the pipe": "sleep 60 | cat; echo x >{}",
    "after the child": "sleep 60; echo x >{}",
    "without input or output": "exec <&- >&- 2>&-; sleep 6; echo x >{}",
    "far away": "setsid env -i sh -c \"(trap '' TERM; sleep 6; echo x >{}) &\"; sleep 60",
}


def assert_still(place: Place, directory: str) -> None:
    """Nothing new appears there, for as long as what was started before would have waited."""
    before = place.box.list_dir(directory)
    assert not wait_for(lambda: place.box.list_dir(directory) != before, limit_s=6)


@pytest.mark.spec("KT-03")
def test_after_a_timeout_nothing_happens_any_more(place: Place) -> None:
    directory = place.fresh()

    def run(key: str) -> bool:
        path = f"{directory}/{key.replace(' ', '-')}"
        return place.box.exec(LATER[key].format(path, path), timeout_s=0.5).timed_out

    with ThreadPoolExecutor(len(LATER)) as pool:
        assert all(pool.map(run, LATER))
    assert_still(place, directory)


# ---- who belongs to a command ----------------------------------------------------------------------

ESCAPES = [
    "(setsid env -i sh -c 'sleep {} & (sleep {} &)' &); sleep {}",
    "setsid sh -c 'setsid env -i setsid sleep {} &' & sleep {}",
    "(nohup setsid sleep {} >/dev/null 2>&1 </dev/null &); sleep {}",
    "sh -c 'kill -STOP $$; sleep {}' & sleep {} & kill -STOP $!; sleep {}",
    "set -m; sleep {} & sleep {}",
    "sh -c \"trap 'sleep {} & sleep {}' TERM; sleep {}; sleep {}\"",
    "setsid env -i sh -c 'exec 3>&-; sleep {} & exec sleep {}' & wait",
    "cd /; exec env -i sh -c 'sleep {} & exec sleep {}' 'x) R 1 1 1'",
]


@pytest.mark.spec("KT-04")
@pytest.mark.parametrize("command", ESCAPES)
def test_no_descendant_escapes_a_timeout(place: Place, command: str) -> None:
    n = number()
    result = place.box.exec(command.replace("{}", str(n)), timeout_s=0.5)
    assert (result.timed_out, result.survivors) == (True, ())
    assert place.processes(f"sleep {n}") == []


@pytest.mark.spec("KT-05")
def test_what_others_run_and_what_was_left_before_stays(place: Place) -> None:
    before, shell_job, beside, mine = (number() for _ in range(4))
    place.box.exec(f"setsid env -i sleep {before} </dev/null >/dev/null 2>&1 &")
    shell = place.box.shell("kept")
    shell.run(f"sleep {shell_job} </dev/null >/dev/null 2>&1 &")
    cancel, running = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(
            place.box.exec,
            f"echo x; setsid sleep {beside} & sleep {beside}",
            cancel=cancel,
            on_output=lambda *_: running.set(),
            timeout_s=60,
        )
        assert running.wait(LIMIT_S)
        assert place.box.exec(f"setsid sleep {mine} & sleep {mine}", timeout_s=0.5).timed_out
        left = [len(place.processes(f"sleep {n}")) for n in (before, shell_job, beside, mine)]
        cancel.set()
        with pytest.raises(Cancelled):
            other.result(LIMIT_S)
    assert left == [1, 1, 2, 0]
    shell.close()
    assert len(place.processes(f"sleep {before}")) == 1
    script = (
        'for d in /proc/[0-9]*; do case $(tr "\\0" " " <$d/cmdline) in '
        '"sleep $N "*) kill ${d#/proc/};; esac; done'
    )
    place.box.exec(script, env={"N": str(before)})
    assert wait_for(lambda: place.processes(f"sleep {before}") == [])


@pytest.mark.spec("KT-06")
def test_a_command_that_ended_by_itself_is_not_timed_out_and_nothing_is_signalled() -> None:
    n = number()
    mark = new_mark()
    script = f"{mark_line(mark)}sleep {n} & exit 3"
    root = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.DEVNULL)
    assert root.wait(LIMIT_S) == 3
    sweeper = Sweeper(LocalBackend())
    try:
        ending = sweeper.end(root.pid, mark=mark, pump=time.sleep, done=lambda: True)
        assert (ending.gone, ending.survivors) == (True, ())
        assert len(local_processes(f"sleep {n}")) == 1
        left = sweeper.end(root.pid, mark=mark, pump=time.sleep, done=lambda: True, orphaned=True)
        assert (left.gone, left.survivors) == (False, ())
        assert local_processes(f"sleep {n}") == {}
    finally:
        sweeper.close()


@pytest.mark.spec("KT-06")
def test_commands_that_end_about_their_deadline_are_told_truly(place: Place) -> None:
    def run(step: int) -> tuple[bool, int]:
        result = place.box.exec("sleep 0.3; exit 5", timeout_s=0.27 + step * 0.006)
        return result.timed_out, result.exit_code

    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(run, range(12)))
    assert results <= {(False, 5), (True, 143), (True, 137), (True, 5)}
    assert (False, 143) not in results


# ---- places that are full, or bare -----------------------------------------------------------------

BOMBS = {
    "a function": "b() { b | b & }; b",
    "a function that waits": "b() { b | b; }; b",
    "one that ignores signals": "trap '' TERM HUP INT; b() { b | b & }; b; sleep 60",
    "programs": 'f=\'sh -c "$f" & sh -c "$f"\'; export f; eval "$f"',
    "sessions": 'f=\'setsid sh -c "$f" & setsid sh -c "$f"; sleep 9\'; export f; eval "$f"',
    "strangers": (
        "printf 'while :; do setsid env -i PATH=$PATH sh /tmp/x & done' >/tmp/x; export PATH; sh /tmp/x"
    ),
}


@pytest.mark.docker
@pytest.mark.spec("KT-07")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_fork_bomb_is_ended_at_its_timeout_and_the_place_is_usable(container: Place, bomb: str) -> None:
    shell = container.box.shell("beside")
    assert shell.run("kept=yes").exit_code == 0
    began_s = time.monotonic()
    result = container.box.exec(BOMBS[bomb], timeout_s=1.5)
    assert result.survivors == ()
    assert time.monotonic() - began_s < 40
    after = container.box.exec("sh -c 'echo usable' | cat; cat /sys/fs/cgroup/pids/pids.current 2>/dev/null")
    assert after.stdout.startswith("usable\n")
    assert shell.run("echo $kept").output == "yes\n"


FULL = """
import os, resource, sys, concurrent.futures
from sandbox import LocalSandbox
import sandbox.backends.local
mine = 0
if os.geteuid() == 0:
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
else:
    mine = sum(os.stat(e.path).st_uid == os.geteuid() for e in os.scandir("/proc") if e.name.isdigit())
resource.setrlimit(resource.RLIMIT_NPROC, (mine + 150, mine + 150))
with LocalSandbox("/tmp") as box:
    box.exec("true")
    result = box.exec(sys.argv[2], timeout_s=2)
    print(result.timed_out, result.survivors, box.exec("sh -c 'echo usable' | cat").stdout.strip())
"""


@pytest.mark.spec("KT-07")
@pytest.mark.parametrize("bomb", ["a function", "a function that waits", "sessions"])
def test_a_fork_bomb_under_a_users_limit_is_ended_too(bomb: str) -> None:
    user = 60_000 + secrets.randbelow(5_000)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(user), BOMBS[bomb]],
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True () usable\n", "")


@pytest.mark.docker
@pytest.mark.spec("KT-08")
@pytest.mark.parametrize("name", ["KILL", "STOP"])
def test_a_sweep_program_that_is_killed_or_stopped_is_replaced(container: Place, name: str) -> None:
    n = number()
    mine = (
        'for d in /proc/[0-9]*; do case $(tr "\\0" " " <$d/cmdline) in '
        "*CODERIG_EXEC' 'probe=[0-9]*) kill -$N ${d#/proc/}; echo hit;; esac; done"
    )
    assert wait_for(lambda: container.box.exec(mine, env={"N": name}).stdout == "hit\n")
    result = container.box.exec(f"echo in; setsid sleep {n} & sleep {n}", timeout_s=1)
    assert (result.stdout, result.timed_out, result.survivors) == ("in\n", True, ())
    assert container.processes(f"sleep {n}") == []


def only_programs(directory: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    """A PATH that leads to a shell and to programs of other names than it has built in, to nothing else."""
    directory.mkdir()
    for name, program in (("sh", shell), ("napper", "sleep"), ("away", "setsid")):
        (directory / name).symlink_to(str(shutil.which(program)))
    if shell == "bash":
        (directory / "bash").symlink_to(str(shutil.which("bash")))
    monkeypatch.setenv("PATH", str(directory))


NAMES = ["x) R 1 1 1 1 1", "a b", ") (", "((", "a\nb", "*", "[0-9]* ?", "=:=", "1 (1) S 1 1 1"]


@pytest.mark.spec("KT-04")
@pytest.mark.parametrize("shell", ["bash", "dash", "busybox"])
def test_a_name_that_looks_like_anything_hides_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    n = number()
    for name in NAMES:
        (tmp_path / name).symlink_to(str(shutil.which("sleep")))
    only_programs(tmp_path / "programs", monkeypatch, shell)
    words = " ".join(f"'./{name}' {n} &" for name in NAMES)
    with LocalSandbox(tmp_path) as box:
        result = box.exec(f"(trap '' TERM; {words} napper {n}) & napper {n}", timeout_s=1)
        assert (result.timed_out, result.survivors, result.stderr) == (True, (), "")
    assert local_processes(f" {n}") == {}


@pytest.mark.spec("KT-10")
def test_an_answer_names_who_is_left() -> None:
    seen = read_answer(b"7 123 12:5=sleep 34:6= 56:7=a=b .", 7)
    assert seen is not None
    assert (seen.born, list(seen.members)) == (123, ["12:5", "34:6", "56:7"])
    assert [(each.pid, each.name) for each in seen.members.values()] == [
        (12, "sleep"),
        (34, "?"),
        (56, "a=b"),
    ]
    assert read_answer(b"7 gone .", 7) is None
    with pytest.raises(ValueError, match="no answer to 8"):
        read_answer(b"7 123 .", 8)


@pytest.mark.spec("KT-09")
@pytest.mark.parametrize("shell", ["bash", "dash", "busybox"])
def test_a_place_with_a_shell_and_nothing_else_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    only_programs(tmp_path / "programs", monkeypatch, shell)
    n = number()
    with LocalSandbox(tmp_path) as box:
        command = f"trap '' TERM; napper {n} | napper {n} & (away napper {n} &) ; napper {n}; echo no >later"
        result = box.exec(command, timeout_s=0.5)
        assert (result.timed_out, result.survivors, result.stderr) == (True, (), "")
        assert local_processes(f"napper {n}") == {}
        named = box.shell("s")
        assert named.run(f"trap '' INT; napper {n}", timeout_s=0.5).timed_out
        assert local_processes(f"napper {n}") == {}
        assert box.exec("echo usable").stdout == "usable\n"
    assert not (tmp_path / "later").exists()


@pytest.mark.docker
@pytest.mark.spec("KT-10")
def test_a_survivor_is_named(docker_daemon: DockerService) -> None:
    # Root without the right to signal others, as behind sudo: the kernel itself refuses.
    options = DockerOptions(
        image=docker_daemon.debian_image, host=docker_daemon.url, user="0:0", cap_add=("SETUID", "SETGID")
    )
    command = "echo in; python3 -c 'import os, time; os.setgid(9); os.setuid(9); time.sleep(600)' & wait"
    with DockerSandbox(options) as box:
        began_s = time.monotonic()
        result = box.exec(command, timeout_s=1.5)
        assert (result.stdout, result.timed_out) == ("in\n", True)
        assert [survivor.name for survivor in result.survivors] == ["python3"]
        assert time.monotonic() - began_s < 15
        found = box.exec(f"tr '\\0' ' ' </proc/{result.survivors[0].pid}/cmdline")
        assert "os.setuid(9)" in found.stdout


# ---- the caller ------------------------------------------------------------------------------------


@pytest.mark.spec("KT-11")
def test_a_cancel_before_the_beginning_runs_nothing(place: Place) -> None:
    directory = place.fresh()
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        place.box.exec(f"echo x >{directory}/ran", cancel=cancel)
    assert place.box.list_dir(directory) == []


@pytest.mark.spec("KT-11")
def test_a_cancel_at_any_moment_leaves_nothing_that_runs(place: Place) -> None:
    directory, n = place.fresh(), number()

    def run(step: int) -> bool:
        cancel = threading.Event()
        timer = threading.Timer(step * 0.003, cancel.set)
        timer.start()
        try:
            place.box.exec(f"sleep 6; echo x >{directory}/{step}; sleep {n}", cancel=cancel, timeout_s=60)
        except Cancelled:
            return True
        finally:
            timer.join()
        return False

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(16)))
    assert place.processes(f"sleep {n}") == []
    assert_still(place, directory)


@pytest.mark.spec("KT-11")
def test_a_cancel_is_told_before_a_timeout(place: Place) -> None:
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    with pytest.raises(Cancelled) as caught:
        place.box.exec("echo part; trap '' TERM; sleep 60; sleep 60", cancel=cancel, timeout_s=20)
    timer.join()
    assert caught.value.stdout == b"part\n"
    both = threading.Event()

    def past_the_deadline(stream: str, data: bytes) -> None:
        time.sleep(2.2)
        both.set()

    with pytest.raises(Cancelled):
        place.box.exec("echo x; sleep 60", cancel=both, on_output=past_the_deadline, timeout_s=2)


@pytest.mark.spec("KT-12")
def test_a_callback_that_raises_while_the_command_is_ended_changes_nothing(place: Place) -> None:
    n = number()

    def broken(stream: str, data: bytes) -> None:
        if b"bye" in data:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        place.box.exec(
            f"trap 'echo bye' TERM; echo in; setsid sleep {n} & sleep {n}; sleep {n}",
            on_output=broken,
            timeout_s=0.5,
        )
    assert place.processes(f"sleep {n}") == []


@pytest.mark.spec("KT-12")
def test_an_error_of_the_sandbox_that_a_callback_raises_ends_the_command_too(place: Place) -> None:
    n = number()

    def nested(stream: str, data: bytes) -> None:
        place.box.read_file("/surely/not/there")

    with pytest.raises(FileNotFoundError):
        place.box.exec(f"echo x; sleep {n}", on_output=nested, timeout_s=20)
    assert place.processes(f"sleep {n}") == []


@pytest.mark.spec("KT-13")
def test_a_slow_watcher_does_not_hold_the_end_up() -> None:
    n = number()
    killed_by_s = []

    def slowly(stream: str, data: bytes) -> None:
        if b"bye" in data:
            # The tree is gone by the time its last words are told.
            killed_by_s.append(len(local_processes(f"sleep {n}")))

    with LocalSandbox("/") as box:
        command = f"trap 'echo bye; sleep {n}' TERM; echo in; sleep {n} & wait; sleep {n}"
        result = box.exec(command, on_output=slowly, timeout_s=0.5)
    assert (result.timed_out, result.stdout) == (True, "in\nbye\n")
    assert killed_by_s == [0]


@pytest.mark.spec("KT-13")
def test_a_flood_during_the_end_is_bounded_in_time_and_memory(place: Place) -> None:
    began_s = time.monotonic()
    result = place.box.exec("trap '' TERM; while :; do echo flood; done", timeout_s=0.5, limit_bytes=10_000)
    assert (result.timed_out, len(result.stdout_output.data)) == (True, 10_000)
    assert time.monotonic() - began_s < 15


@pytest.mark.spec("KT-14")
def test_a_child_that_writes_for_ever_does_not_hold_the_call(place: Place) -> None:
    began_s = time.monotonic()
    result = place.box.exec("yes & echo $! >&2; sleep 0.2; exit 6", timeout_s=30, limit_bytes=1000)
    assert (result.exit_code, result.timed_out) == (6, False)
    assert time.monotonic() - began_s < 15
    place.box.exec(f"kill {result.stderr.strip()} 2>/dev/null; :")


# ---- named shells ----------------------------------------------------------------------------------


@pytest.mark.spec("KT-19")
def test_a_shell_keeps_its_jobs_and_loses_what_runs_in_front(place: Place) -> None:
    job, front = number(), number()
    shell = place.box.shell(f"kill-{job}")
    shell.run(f"kept=yes; sleep {job} </dev/null >/dev/null 2>&1 &")
    stubborn = "sh -c \"trap '' INT TERM; sleep {0} & sleep {0}; sleep {0}\" | cat"
    result = shell.run("echo in; " + stubborn.format(front), timeout_s=0.5)
    assert (result.timed_out, result.ended, result.survivors) == (True, False, ())
    assert result.output.startswith("in\n")
    assert place.processes(f"sleep {front}") == []
    assert shell.run("echo $kept").output == "yes\n"
    assert len(place.processes(f"sleep {job}")) == 1
    shell.close()
    assert place.processes(f"sleep {job}") == []


LEAVING = [
    "for i in 1 2; do (sleep {0}; echo x) & done; wait",
    "sleep {0} & sleep {0}",
    "(sleep {0} &) ; sleep {0}",
    "trap '' INT; (trap '' TERM HUP; sleep {0}) & sh -c \"trap '' INT; sleep {0}; sleep {0}\"",
    "(setsid sleep {0} &) ; sleep {0}",
]


@pytest.mark.spec("KT-20")
@pytest.mark.parametrize("command", LEAVING)
def test_what_a_timed_out_command_put_in_the_background_ends_with_it(place: Place, command: str) -> None:
    earlier, n = number(), number()
    shell = place.box.shell(f"leaving-{n}")
    shell.run(f"sleep {earlier} </dev/null >/dev/null 2>&1 & kept=yes")
    result = shell.run(command.format(n), timeout_s=0.5)
    assert (result.timed_out, result.ended, result.survivors) == (True, False, ())
    assert place.processes(f"sleep {n}") == []
    assert len(place.processes(f"sleep {earlier}")) == 1
    assert shell.run("echo $kept").output == "yes\n"
    shell.close()


@pytest.mark.spec("KT-19")
def test_a_shell_that_ignores_interrupts_comes_back_through_its_whole_list(place: Place) -> None:
    n = number()
    shell = place.box.shell(f"list-{n}")
    command = f"kept=yes; trap '' INT; sleep {n}; sleep {n}; sleep {n}; echo end"
    result = shell.run(command, timeout_s=0.5)
    assert (result.timed_out, result.ended, result.exit_code) == (True, False, 0)
    assert result.output.endswith("end\n")  # some shells say "Terminated" before it
    assert place.processes(f"sleep {n}") == []
    assert shell.run("trap - INT; echo $kept").output == "yes\n"
    shell.close()


# ---- the sandbox -----------------------------------------------------------------------------------


def fresh_box(name: str, daemon: DockerService | None) -> Sandbox:
    if daemon is None:
        return LocalSandbox("/")
    image = daemon.debian_image if name == "docker-debian" else daemon.busybox_image
    return DockerSandbox(DockerOptions(image=image, host=daemon.url))


@pytest.mark.spec("KT-15")
@pytest.mark.parametrize(
    "name",
    ["local", pytest.param("docker-busybox", marks=pytest.mark.docker)],
)
def test_closing_during_twenty_commands_is_bounded_and_ends_all(
    name: str, request: pytest.FixtureRequest
) -> None:
    daemon = request.getfixturevalue("docker_daemon") if name != "local" else None
    n = number()
    box = fresh_box(name, daemon)
    running = threading.Barrier(21)
    with ThreadPoolExecutor(22) as pool:

        def command(index: int) -> object:
            told = threading.Event()

            def once(*_: object) -> None:
                if not told.is_set():
                    told.set()
                    running.wait(60)

            ignore = "trap '' TERM; " if index % 2 else ""
            return box.exec(f"{ignore}echo x; sleep {n} & sleep {n}", on_output=once, timeout_s=120)

        calls = [pool.submit(command, index) for index in range(20)]
        running.wait(60)
        began_s = time.monotonic()
        closing = [pool.submit(box.close) for _ in range(2)]
        for each in closing:
            each.result(30)
        assert time.monotonic() - began_s < 30
        errors = [call.exception(30) for call in calls]
    assert {type(error) for error in errors} == {Closed}
    assert local_processes(f"sleep {n}") == {}


@pytest.mark.spec("KT-15")
def test_closing_ends_a_command_that_has_closed_its_streams() -> None:
    n = number()
    box = LocalSandbox("/")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(box.exec, f"exec >&- 2>&-; sleep {n}", timeout_s=60)
        assert wait_for(lambda: local_processes(f"sleep {n}") != {})
        box.close()
        assert isinstance(call.exception(LIMIT_S), Closed)
    assert local_processes(f"sleep {n}") == {}


OWNER = """
import sys
from sandbox import LocalSandbox, DockerSandbox
from sandbox.backends.docker import DockerOptions
kind, image, url, name, left, mine, shell = sys.argv[1:]
box = LocalSandbox("/") if kind == "local" else DockerSandbox(DockerOptions(image=image, host=url, name=name))
box.exec(f"setsid sleep {left} </dev/null >/dev/null 2>&1 &")
if kind != "local":
    box.shell("s").run(f"sleep {shell}", yield_s=0.2)
box.exec(f"setsid env -i sleep {mine} & trap '' TERM; sleep {mine}", on_output=None, timeout_s=600)
"""


@pytest.mark.spec("KT-16")
@pytest.mark.parametrize(
    "kind",
    [
        "local",
        pytest.param("docker-debian", marks=pytest.mark.docker),
        pytest.param("docker-busybox", marks=pytest.mark.docker),
    ],
)
def test_the_death_of_the_owner_ends_what_runs_and_spares_what_was_left(
    kind: str, request: pytest.FixtureRequest
) -> None:
    left, mine, shell = number(), number(), number()
    name, image, url = f"coderig-test-{secrets.token_hex(6)}", "", ""
    box: Sandbox
    if kind == "local":
        box = LocalSandbox("/")
    else:
        daemon = request.getfixturevalue("docker_daemon")
        image = daemon.debian_image if kind == "docker-debian" else daemon.busybox_image
        url = daemon.url
        box = DockerSandbox(DockerOptions(image=image, host=url, name=name, keep=False))
    words = [kind.partition("-")[0], image, url, name, str(left), str(mine), str(shell)]
    place = Place(kind, box, "", "/")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, *words], cwd="/")
    try:
        assert wait_for(lambda: len(place.processes(f"sleep {mine}")) == 2)
        assert kind == "local" or len(place.processes(f"sleep {shell}")) == 1
        # It is watched once it has run for a quarter of a second.
        time.sleep(1)
        owner.kill()
        owner.wait(LIMIT_S)
        assert wait_for(lambda: place.processes(f"sleep {mine}") == [])
        assert wait_for(lambda: place.processes(f"sleep {shell}") == [])
        assert len(place.processes(f"sleep {left}")) == 1
    finally:
        owner.kill()
        owner.wait(LIMIT_S)
        if kind == "local":
            for pid in local_processes(f"sleep {left}"):
                os.kill(pid, signal.SIGKILL)
        box.close()


@pytest.mark.ssh
@pytest.mark.spec("KT-16")
def test_a_lost_connection_ends_what_runs_over_there() -> None:
    n = number()
    with (
        start_sshd() as server,
        ThreadPoolExecutor(1) as pool,
        SSHSandbox(options_of(server), "/") as box,
    ):
        command = f"setsid env -i sleep {n} & trap '' TERM; sleep {n}"
        call = pool.submit(box.exec, command, timeout_s=600)
        assert wait_for(lambda: len(local_processes(f"sleep {n}")) == 2)
        time.sleep(1)
        for pid in server.connection_pids():
            os.kill(pid, signal.SIGKILL)
        assert isinstance(call.exception(LIMIT_S), ConnectionLost)
        assert wait_for(lambda: local_processes(f"sleep {n}") == {})


# ---- the program that does it ----------------------------------------------------------------------


@pytest.mark.spec("KT-17")
def test_the_sweep_program_goes_when_it_is_idle_and_comes_back_when_needed() -> None:
    before = len(local_processes("CODERIG_EXEC probe="))
    sweeper = Sweeper(LocalBackend(), idle_s=0.2)
    sweeper.prepare()
    assert wait_for(lambda: len(local_processes("CODERIG_EXEC probe=")) == before + 1)
    assert wait_for(lambda: len(local_processes("CODERIG_EXEC probe=")) == before)
    n = number()
    root = subprocess.Popen(["sleep", str(n)], start_new_session=True)
    ending = sweeper.end(root.pid, pump=time.sleep, done=lambda: root.poll() is not None)
    assert (ending.gone, ending.survivors, root.wait(LIMIT_S)) == (False, (), -15)
    sweeper.close()
    assert wait_for(lambda: len(local_processes("CODERIG_EXEC probe=")) == before)


@pytest.mark.spec("KT-17")
def test_kills_need_no_new_descriptor_here() -> None:
    n = number()
    script = f"""
import os, resource, threading, time
from sandbox import LocalSandbox
with LocalSandbox("/") as box:
    box.exec("true")
    full, hoard = threading.Event(), []
    def fill(*_):
        while True:
            try: hoard.append(os.open("/dev/null", os.O_RDONLY))
            except OSError: return
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    result = box.exec("sleep 0.3; echo x; sleep {n} & sleep {n}", on_output=fill, timeout_s=1)
    for fd in hoard: os.close(fd)
    print(result.timed_out, result.survivors)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd="/", check=False
    )
    assert (done.stdout, done.stderr) == ("True ()\n", "")
    assert local_processes(f"sleep {n}") == {}


@pytest.mark.ssh
@pytest.mark.spec("KT-18")
def test_the_sweep_program_gives_its_channel_back() -> None:
    with start_sshd(max_sessions=2) as server:
        options = replace(options_of(server), max_connections=1)
        with SSHSandbox(options, "/", warm=False) as box, ThreadPoolExecutor(2) as pool:
            assert box.exec("true").exit_code == 0
            n = number()
            commands = [pool.submit(box.exec, f"sleep 0.5; echo {i}", timeout_s=30) for i in range(2)]
            assert [call.result(LIMIT_S).stdout for call in commands] == ["0\n", "1\n"]
            assert box.exec(f"sleep {n} & sleep {n}", timeout_s=0.5).survivors == ()
            assert local_processes(f"sleep {n}") == {}
