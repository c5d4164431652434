"""`coderig exec`, as a process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from coderig_kit import Cli, wait_until
from services.ssh_service import SshService


@pytest.mark.spec("CLI-30")
def test_output_passes_through_as_bytes_on_its_own_stream_with_the_commands_exit_code(cli: Cli) -> None:
    done = cli.run("exec", "printf 'a\\377\\000b'; printf 'c' >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "a\udcff\0b", "c")


@pytest.mark.spec("CLI-31")
def test_one_word_is_shell_text_and_several_are_run_as_given(cli: Cli) -> None:
    assert cli.run("exec", "echo $((1+1)) | tr 2 x").out == "x\n"
    assert cli.run("exec", "--", "printf", "%s|", "$HOME", "a b", "-n").out == "$HOME|a b|-n|"
    assert cli.run("exec", "printf", "%s", "--place").out == "--place"
    assert cli.run("exec", "--", "no-such-program", "x").code == 127


@pytest.mark.spec("CLI-32")
def test_output_comes_while_the_command_runs(cli: Cli) -> None:
    process = cli.start("exec", "echo one; until [ -e go ]; do sleep 0.02; done; echo two")
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    (cli.work / "go").touch()
    assert process.communicate(timeout=30)[0] == "two\n"
    assert process.returncode == 0


@pytest.mark.spec("CLI-33")
def test_input_directory_and_environment_are_handed_over(cli: Cli) -> None:
    (cli.work / "sub").mkdir()
    done = cli.run(
        "exec",
        "--stdin",
        "--cwd",
        "sub",
        "--env",
        "A=x=y",
        "--env",
        "B=",
        'cat; pwd; echo "$A.$B."',
        input="in\n",
    )
    assert done.out == f"in\n{cli.work}/sub\nx=y..\n"
    assert cli.run("exec", "cat", input="unread").out == ""


@pytest.mark.spec("CLI-34")
def test_a_timeout_is_124_with_words_and_what_was_printed_before(cli: Cli) -> None:
    late = cli.run("exec", "--timeout", "0.5", "echo before; sleep 60")
    assert (late.code, late.out) == (124, "before\n")
    assert "timed out after 0.5 s" in late.err


@pytest.mark.spec("CLI-35")
@pytest.mark.ssh
def test_a_place_that_fails_is_125_with_words(cli: Cli, ssh_service: SshService) -> None:
    stranger = cli.work / "known_hosts"
    stranger.write_text("")
    place = f"{ssh_service.url}/?identity_file={ssh_service.identity_file}&known_hosts_file={stranger}"
    refused = cli.run("exec", "--place", place, "true")
    assert refused.code == 125
    assert "host key" in refused.err
    assert refused.out == ""


@pytest.mark.spec("CLI-36")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--place", "moon", "true"], "moon"),
        (["--place", "local:missing", "true"], "missing"),
        (["--env", "A", "true"], "NAME=VALUE"),
        (["--env", "1=2", "true"], "1"),
        (["--timeout", "-1", "true"], "--timeout"),
        (["--timeout", "nan", "true"], "timeout"),
        ([], "COMMAND"),
    ],
)
def test_wrong_use_is_2_with_words(cli: Cli, arguments: list[str], words: str) -> None:
    wrong = cli.run("exec", *arguments)
    assert wrong.code == 2
    assert words in wrong.err
    assert wrong.out == ""


@pytest.mark.spec("CLI-37")
def test_a_reader_that_leaves_ends_the_command_quietly(cli: Cli) -> None:
    process = cli.start("exec", "echo $$ >pid; yes")
    assert process.stdout is not None
    assert process.stdout.readline() == "y\n"
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 141
    pid = int((cli.work / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")


@pytest.mark.spec("CLI-37")
def test_a_full_disk_is_told_in_words(cli: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        done = cli.run("exec", "echo x", stdout=full)
    assert done.code == 125
    assert "No space left" in done.err


@pytest.mark.spec("CLI-38")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_first(cli: Cli, number: signal.Signals, code: int) -> None:
    process = cli.start("exec", "trap '' INT; echo $$; sleep 300; sleep 300")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == code
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")


@pytest.mark.spec("CLI-39")
def test_closed_standard_streams_are_no_reason_to_fail(cli: Cli) -> None:
    program = f"exec {' '.join(cli.argv)} exec 'echo x >made; echo out' <&- >&-"
    done = subprocess.run(
        ["sh", "-c", program], cwd=cli.work, env=cli.environment, capture_output=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (cli.work / "made").read_text() == "x\n"


@pytest.mark.spec("CLI-40")
def test_secrets_of_the_caller_do_not_reach_a_local_command(cli: Cli) -> None:
    done = cli.run("exec", "env", env={"OPENAI_API_KEY": "sk-0123456789"})
    assert "PATH=" in done.out
    assert "OPENAI_API_KEY" not in done.out
    assert os.sep in done.out
