"""`coderig shell`, driven on a real terminal against the real daemon."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from coderig_kit import Cli, Terminal, wait_until
from devcontainer_kit import Dev, opened
from services.docker_service import DockerService

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]
_COOKED = termios.ICANON | termios.ISIG | termios.IEXTEN


@pytest.fixture
def dev(cli: Cli, docker_daemon: DockerService) -> Iterator[Dev]:
    """A workspace with a dev container that runs."""
    with opened(cli, docker_daemon.url) as made:
        made.write(
            {
                "image": docker_daemon.debian_image,
                "remoteUser": "root",
                "containerEnv": {"GONE": "x"},
                "remoteEnv": {"GREETING": "hello", "GONE": None},
                "postAttachCommand": "echo attached >>/tmp/attached",
            }
        )
        made.ready()
        yield made


def flags(terminal: Terminal) -> int:
    """The local flags of the terminal that the command line runs on."""
    return int(termios.tcgetattr(terminal._child.fd)[3])


def opened_shell(dev: Dev, *arguments: str) -> Terminal:
    """A shell that answers; its terminal is raw."""
    terminal = dev.cli.terminal("shell", *arguments)
    terminal.type("echo rea''dy\r")
    terminal.expect("ready")
    assert not flags(terminal) & _COOKED
    return terminal


def was_put_back(terminal: Terminal, before: int = _COOKED) -> bool:
    return flags(terminal) & _COOKED == before


@pytest.mark.spec("DC-50", "DC-51")
def test_a_shell_in_the_workspace_with_the_files_environment_ends_with_its_own_code(dev: Dev) -> None:
    terminal = opened_shell(dev)
    terminal.type("tty; pwd; echo $GREETING-[$GONE]-$TERM; touch here; cat /tmp/attached\r")
    terminal.expect("/dev/pts/")
    terminal.expect("/workspaces/work")
    terminal.expect("hello-[]-dumb")
    terminal.expect("attached")
    terminal.type("exit 7\r")
    assert terminal.end() == 7
    assert was_put_back(terminal)
    assert (dev.cli.work / "here").exists()


@pytest.mark.spec("DC-52")
def test_keys_go_to_the_program_ctrl_c_and_ctrl_d_too(dev: Dev) -> None:
    terminal = opened_shell(dev)
    terminal.type("echo beg''un; sleep 300; echo still\r")
    terminal.expect("begun")
    terminal.type("\x03")
    terminal.type("echo code-$?\r")
    terminal.expect("code-130")
    assert "still" not in terminal.seen.rpartition("begun")[2]
    terminal.type("stty raw -echo; printf go-o''n; head -c 6 | od -An -tx1; stty sane\r")
    terminal.expect("go-on")
    terminal.type("\x03\x1a\x1c\x04\x13z")
    terminal.expect("03 1a 1c 04 13 7a")
    terminal.type("\r")
    terminal.type("\x04")
    terminal.end()
    assert was_put_back(terminal)


@pytest.mark.spec("DC-53")
def test_the_size_is_that_of_the_terminal_and_follows_it(dev: Dev) -> None:
    terminal = opened_shell(dev)
    terminal.type("trap 'echo size-$(stty size | tr \" \" x)' WINCH; stty size | tr ' ' x\r")
    terminal.expect("40x200")
    terminal._child.setwinsize(33, 99)
    terminal.type("\r")
    terminal.expect("size-33x99")
    terminal.type("exit\r")
    terminal.end()


@pytest.mark.spec("DC-51")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_puts_the_terminal_back_and_ends_what_ran_in_it(dev: Dev, number: signal.Signals) -> None:
    terminal = opened_shell(dev)
    terminal.type("echo pid-$$; sleep 300\r")
    terminal.expect("pid-")
    os.kill(terminal._child.pid, number)
    assert terminal.end() == 128 + number
    assert was_put_back(terminal)
    wait_until(lambda: "sleep 300" not in processes(dev), "the end of the program")


def processes(dev: Dev) -> str:
    """The command lines in the container."""
    top: Any = dev.container().top(ps_args="-eo pid,args")
    return "\n".join(row[-1] for row in top["Processes"])


@pytest.mark.spec("DC-54")
def test_a_container_that_goes_away_is_told_and_the_terminal_is_put_back(dev: Dev) -> None:
    terminal = opened_shell(dev)
    dev.container().kill()
    assert terminal.end() == 125
    assert was_put_back(terminal)
    assert "exited with 137" in terminal.seen


@pytest.mark.spec("DC-55")
def test_a_stopped_process_gives_the_terminal_back_and_takes_it_again(dev: Dev) -> None:
    terminal = opened_shell(dev)
    pid = terminal._child.pid
    os.kill(pid, signal.SIGTSTP)
    wait_until(lambda: was_put_back(terminal), "the terminal as it was")
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: was_put_back(terminal, 0), "the raw terminal")
    terminal.type("echo ba''ck; exit\r")
    terminal.expect("back")
    terminal.end()
    assert was_put_back(terminal)


@pytest.mark.spec("DC-56")
def test_a_command_instead_of_a_shell_and_any_place_instead_of_a_dev_container(dev: Dev) -> None:
    terminal = dev.cli.terminal("shell", "-c", "test -t 0 && test -t 1 && echo a-$GREETING; exit 4")
    terminal.expect("a-hello")
    assert terminal.end() == 4
    local = dev.cli.terminal(
        "shell", "--place", "local", "--env", "A=b", "-c", "tty && pwd && echo [$A]; exit 5"
    )
    local.expect(str(dev.cli.work))
    local.expect("[b]")
    assert local.end() == 5
    assert was_put_back(local)


@pytest.mark.spec("DC-57")
def test_without_a_terminal_it_is_wrong_use(dev: Dev) -> None:
    wrong = dev.run("shell")
    assert wrong.code == 2
    assert "coderig exec" in wrong.err
    assert dev.run("shell", ".", "--place", "local").code == 2
    away = dev.cli.terminal("shell", "/")
    away.expect("has no dev container")
    assert away.end() == 2


@pytest.mark.spec("DC-58")
def test_much_output_arrives_whole_and_in_order(dev: Dev) -> None:
    terminal = dev.cli.terminal("shell", "-c", "seq 1 60000; echo e''nd")
    terminal.expect("end")
    assert terminal.end() == 0
    numbers = [int(word) for word in terminal.seen.split() if word.isdigit()]
    assert numbers == list(range(1, 60001))
