"""Limits of named shells: how many, how long without use, what they are given, closing at any moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest
from services.docker_service import DockerService
from services.ssh_service import SshService, start_sshd
from ssh_kit import options_of

from sandbox import (
    BackendError,
    Cancelled,
    Closed,
    ConnectionLost,
    DockerSandbox,
    LocalSandbox,
    PlaceUnavailable,
    RequestError,
    Sandbox,
    Shell,
    SSHSandbox,
)
from sandbox.keys import Mode, after_interrupts, before_long_line, read_mode, too_long
from sandbox.shell_pool import MAX_SHELLS, ShellPool

LIMIT_S = 20.0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[LocalSandbox]:
    """This machine, in a fresh directory."""
    with LocalSandbox(tmp_path) as sandbox:
        yield sandbox


def wait_for(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.005)


@pytest.mark.spec("IW-30")
def test_at_most_so_many_shells_are_open_and_the_error_says_what_to_do(box: LocalSandbox) -> None:
    shells = [box.shell(f"s{number}") for number in range(MAX_SHELLS)]
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda shell: shell.run("echo $PPID", timeout_s=LIMIT_S), shells))
    assert {result.exit_code for result in results} == {0}
    # A name alone costs nothing; opening it does.
    more = box.shell("more")
    with pytest.raises(RequestError, match="cannot open shell 'more': 64 shells are open.*close one"):
        more.run("true")
    assert shells[7].run("true").exit_code == 0
    assert shells[3].run("exit 4").ended
    assert more.run("true").exit_code == 0
    with pytest.raises(RequestError, match="cannot open shell 's3'"):
        shells[3].run("true")
    shells[5].close()
    again = shells[3].run("true")
    assert "exit 4" in again.notice
    assert len(box.shells()) == MAX_SHELLS


@pytest.mark.spec("IW-30")
def test_shells_that_are_not_open_are_the_same_as_long_as_somebody_knows_them(box: LocalSandbox) -> None:
    held = box.shell("held")
    for number in range(3000):
        box.shell(f"n{number}")
    assert box.shell("held") is held
    held.run("x=1")
    for number in range(3000):
        box.shell(f"n{number}")
    assert box.shell("held").run("echo $x").output == "1\n"
    pool: ShellPool = box._shells
    assert len(pool._known) < 2000


@pytest.mark.spec("IW-31")
def test_a_shell_that_is_not_used_is_closed_and_the_next_use_says_so(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path, shell_idle_s=0.3) as box:
        shell, busy = box.shell("idle"), box.shell("busy")
        shell.run("cd /; x=1; sleep 7301 &")
        assert busy.run("sleep 7302", yield_s=0).running
        wait_for(lambda: [info.name for info in box.shells()] == ["busy"])
        assert busy.poll(0).running
        result = shell.run("pwd; echo [$x]")
        assert result.output == "/\n[]\n"
        assert "closed after 0.3 s without use; a new shell was opened" in result.notice
        assert box.exec("pgrep -f '[s]leep 7301'").exit_code == 1
        busy.interrupt()
        assert busy.poll(LIMIT_S).exit_code == 130


@pytest.mark.spec("IW-31")
def test_a_shell_in_use_is_not_idle(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path, shell_idle_s=0.5) as box:
        shell = box.shell("s")
        shell.run("x=1")
        until_s = time.monotonic() + 1.5
        while time.monotonic() < until_s:
            assert shell.run("echo $x; sleep 0.1").output == "1\n"
        assert shell.run("sleep 1; echo $x", timeout_s=LIMIT_S).output == "1\n"


@pytest.mark.spec("IW-31")
@pytest.mark.parametrize("wrong", [0, -1, "x", True, float("nan"), [1]])
def test_an_idle_time_is_a_number_above_0(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(RequestError, match="shell_idle_s must be a number of seconds above 0"):
        LocalSandbox(tmp_path, shell_idle_s=wrong)  # type: ignore[arg-type]


@pytest.mark.spec("IW-32")
@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m", "x" * 201, None, 5, b"x", ["a"]])
def test_what_is_no_name_is_refused_in_words(box: LocalSandbox, name: object) -> None:
    with pytest.raises(RequestError, match="a shell's name"):
        box.shell(name)  # type: ignore[arg-type]


WRONG: list[tuple[str, Callable[[Shell], object]]] = [
    ("the command of a shell must be text", lambda s: s.run(["ls"])),  # type: ignore[arg-type]
    ("the command of a shell must be text", lambda s: s.run(None)),  # type: ignore[arg-type]
    ("NUL", lambda s: s.run("a\0b")),
    ("timeout_s must be a number", lambda s: s.run("true", timeout_s="x")),  # type: ignore[arg-type]
    ("timeout_s is", lambda s: s.run("true", timeout_s=1e9)),
    ("limit_bytes must be a whole number", lambda s: s.run("true", limit_bytes="x")),  # type: ignore[arg-type]
    ("yield_s must be a number", lambda s: s.run("true", yield_s="x")),  # type: ignore[arg-type]
    ("yield_s must be a number", lambda s: s.run("true", yield_s=float("nan"))),
    ("yield_s is", lambda s: s.run("true", yield_s=float("inf"))),
    ("timeout_s must be a number", lambda s: s.poll("1")),  # type: ignore[arg-type]
    ("timeout_s must be a number", lambda s: s.poll(True)),
    ("on_output must be a function", lambda s: s.run("true", on_output=5)),  # type: ignore[arg-type]
    ("cancel must be a threading.Event", lambda s: s.run("true", cancel=5)),  # type: ignore[arg-type]
    ("cancel must be a threading.Event", lambda s: s.poll(0, cancel=True)),  # type: ignore[arg-type]
    ("write takes bytes.*encode", lambda s: s.write("x")),  # type: ignore[arg-type]
    ("timeout_s must be a number", lambda s: s.write(b"x", timeout_s=None)),  # type: ignore[arg-type]
    ("columns must be a whole number from 1 to 1000", lambda s: s.resize(-1, 0)),
    ("rows must be a whole number from 1 to 1000", lambda s: s.resize(80, 0)),
    ("rows must be a whole number from 1 to 1000", lambda s: s.resize(80, 1001)),
    ("columns must be a whole number", lambda s: s.resize(80.0, 24)),  # type: ignore[arg-type]
    ("columns must be a whole number", lambda s: s.resize(True, 24)),
]


@pytest.mark.spec("IW-32")
@pytest.mark.parametrize(("words", "call"), WRONG)
def test_arguments_that_make_no_sense_are_refused_in_words(
    box: LocalSandbox, words: str, call: Callable[[Shell], object]
) -> None:
    shell = box.shell("s")
    with pytest.raises(RequestError, match=words):
        call(shell)
    assert not shell.is_open
    shell.run("x=1")
    with pytest.raises(RequestError, match=words):
        call(shell)
    assert shell.run("echo $x").output == "1\n"


@pytest.mark.spec("IW-33")
def test_a_closed_shells_name_is_free_for_a_new_one(box: LocalSandbox) -> None:
    shell = box.shell("s")
    shell.run("x=1")
    shell.close()
    shell.close()
    uses: list[Callable[[], object]] = [lambda: shell.run("true"), lambda: shell.poll(0)]
    for use in uses:
        with pytest.raises(Closed, match="shell 's' is closed"):
            use()
    assert (shell.screen(), box.shells()) == ("", [])
    assert box.shell("s").run("echo [$x]").output == "[]\n"


@pytest.mark.spec("IW-33")
def test_closing_while_a_shell_is_being_opened_leaves_none_behind(box: LocalSandbox) -> None:
    for pause_s in (0.0, 0.001, 0.003, 0.01):
        shell = box.shell("s")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(shell.run, "echo ran; sleep 7303", timeout_s=LIMIT_S)
            wait_for(shell._turn.locked)
            time.sleep(pause_s)
            shell.close()
            try:
                assert running.result(LIMIT_S).ended
            except Closed:
                assert not shell.is_open
    assert box.shells() == []
    assert box.exec("pgrep -f '[s]leep 7303'").exit_code == 1


@pytest.mark.spec("IW-33")
def test_closing_the_sandbox_ends_polls_writes_and_those_who_wait_for_their_turn(tmp_path: Path) -> None:
    box = LocalSandbox(tmp_path)
    shell = box.shell("s")
    assert shell.run("sleep 7304", stdin_tty=True, yield_s=0).running
    with ThreadPoolExecutor(4) as pool:
        polling = pool.submit(shell.poll, LIMIT_S)
        wait_for(shell._turn.locked)
        waiting = pool.submit(shell.run, "true", timeout_s=LIMIT_S)
        writing = pool.submit(shell.write, b"x\n" * 100_000, LIMIT_S)
        box.close()
        result = polling.result(LIMIT_S)
        assert (result.ended, "closed" in result.notice) == (True, True)
        with pytest.raises(Closed):
            waiting.result(LIMIT_S)
        try:
            assert writing.result(LIMIT_S) <= 200_000
        except RequestError as error:
            assert "no command is running" in str(error)


@pytest.mark.spec("IW-34")
def test_a_shell_cannot_be_used_from_its_own_callback(box: LocalSandbox) -> None:
    shell = box.shell("s")
    errors: list[Exception] = []

    def use(stream: str, data: bytes) -> None:
        calls: list[Callable[[], object]] = [lambda: shell.run("true"), lambda: shell.poll(0)]
        for call in calls:
            with pytest.raises(RequestError, match="own on_output") as caught:
                call()
            errors.append(caught.value)

    assert shell.run("echo x", on_output=use).exit_code == 0
    assert len(errors) == 2


@pytest.mark.spec("IW-34")
def test_a_callback_may_answer_a_question(box: LocalSandbox) -> None:
    shell = box.shell("s")

    def answer(stream: str, data: bytes) -> None:
        if b"name?" in data:
            shell.write(b"coderig\n")

    done = shell.run(
        "printf 'name?'; read -r n; echo [$n]", stdin_tty=True, on_output=answer, timeout_s=LIMIT_S
    )
    assert (done.output, done.exit_code) == ("name?[coderig]\n", 0)


@pytest.mark.spec("IW-34")
def test_a_call_that_waits_for_its_turn_can_be_cancelled(box: LocalSandbox) -> None:
    shell = box.shell("s")
    cancel = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shell.run, "sleep 1; echo first", timeout_s=LIMIT_S)
        wait_for(shell._turn.locked)
        second = pool.submit(shell.run, "touch second", timeout_s=LIMIT_S, cancel=cancel)
        cancel.set()
        with pytest.raises(Cancelled, match="nothing was run"):
            second.result(LIMIT_S)
        assert first.result(LIMIT_S).output == "first\n"
    assert box.list_dir() == []


@pytest.mark.spec("IW-34")
def test_cancelling_a_poll_leaves_the_command_and_its_output(box: LocalSandbox) -> None:
    shell = box.shell("s")
    shell.run("true")
    first = shell.run("echo one; until [ -e go ]; do sleep 0.01; done; echo two", yield_s=0)
    cancel = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(shell.poll, LIMIT_S, cancel)
        wait_for(shell._turn.locked)
        cancel.set()
        with pytest.raises(Cancelled, match="runs on"):
            polling.result(LIMIT_S)
    box.write_file("go", b"")
    assert first.output + shell.poll(LIMIT_S).output == "one\ntwo\n"


@pytest.mark.docker
@pytest.mark.spec("IW-10")
def test_a_container_that_dies_meanwhile_is_an_error_with_the_output_so_far(
    docker_daemon: DockerService,
) -> None:
    from sandbox.backends.docker import DockerBackend, DockerOptions

    client = docker.DockerClient(base_url=docker_daemon.url)
    options = DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url)
    with ExitStack() as stack:
        stack.callback(client.close)
        box = stack.enter_context(DockerSandbox(options))
        backend = box.backend
        assert isinstance(backend, DockerBackend)
        expect_the_place_to_fail(
            box, PlaceUnavailable, lambda: client.containers.get(str(backend.container_id)).kill()
        )


@pytest.mark.ssh
@pytest.mark.spec("IW-10")
def test_a_connection_that_breaks_meanwhile_is_an_error_with_the_output_so_far(tmp_path: Path) -> None:
    with start_sshd() as service, SSHSandbox(options_of(service), str(tmp_path)) as box:
        expect_the_place_to_fail(box, ConnectionLost, lambda: break_connections(service))
        # The next use connects again, and says what happened to the shell.
        result = box.shell("s").run("echo again", timeout_s=LIMIT_S)
        assert result.output == "again\n" and "lost before" in result.notice


def break_connections(service: SshService) -> None:
    for pid in service.connection_pids():
        os.kill(pid, signal.SIGKILL)


def expect_the_place_to_fail(box: Sandbox, kind: type[BackendError], fail: Callable[[], None]) -> None:
    shell = box.shell("s")
    first = shell.run("echo begun; while :; do sleep 1; done", stdin_tty=True, yield_s=0)
    seen = first.output
    while "begun" not in seen:
        seen += shell.poll(0.1).output
    fail()
    with pytest.raises(kind):
        shell.poll(LIMIT_S)
    for use in (lambda: shell.poll(0), lambda: shell.write(b"x"), shell.interrupt):
        with pytest.raises(RequestError, match="no command is running"):
            use()
    assert shell.screen() == ""


@pytest.mark.spec("IW-11")
def test_the_mode_is_read_from_the_words_of_stty() -> None:
    # From stty of coreutils 9.1 and of busybox 1.35; the last is of a terminal in raw mode with other keys.
    coreutils = (
        "speed 38400 baud; rows 24; columns 80; line = 0;\n"
        "intr = ^C; quit = ^\\; erase = ^?; kill = ^U; eof = ^D; eol = <undef>;\n"
        "eol2 = <undef>; swtch = <undef>; start = ^Q; stop = ^S; susp = ^Z; discard = ^O; min = 1;\n"
        "time = 0;\n-igncr icrnl ixon\nisig icanon iexten -echo\n"
    )
    busybox = coreutils.replace("discard", "flush")
    for said in (coreutils, busybox):
        mode = read_mode(said)
        assert mode.whole_lines and sorted(mode.ends) == sorted(b"\n\r\x03\x04\x15\x1a\x1c")
    raw = read_mode("intr = <undef>; eof = x; kill = ^X; min = 1;\n-icrnl\n-isig -icanon\n")
    assert raw == Mode(False, b"\nx\x18")
    assert read_mode("") == read_mode("stty: standard input: Inappropriate ioctl for device") == Mode()


@pytest.mark.spec("IW-11")
def test_a_line_is_as_long_as_what_is_held_of_it() -> None:
    ends = Mode().ends
    assert too_long(b"x" * 4095 + b"\n", ends) == 0
    assert too_long(b"x" * 4096 + b"\n", ends) == 4096
    assert too_long(b"x" * 3000 + b"\x04" + b"x" * 3000 + b"\x15" + b"x" * 4095, ends) == 0
    assert before_long_line(b"a\nb\n" + b"x" * 5000 + b"\nc\n", b"\n") == b"a\nb\n"
    assert before_long_line(b"x" * 5000 + b"\nc\n" + b"x" * 5000, b"\n") == b"x" * 5000 + b"\nc\n"
    assert after_interrupts(b"a\x03b\nc\x03\x03d") == [b"a\x03", b"b\nc\x03", b"\x03", b"d"]
