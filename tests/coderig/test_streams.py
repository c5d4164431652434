"""What the command line writes where: JSON lines, words, and nothing that surprises."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from coderig_kit import ROOT, Cli, command
from services.docker_service import DockerService
from typer.testing import CliRunner
from wire_server import Call, Reply, WireServer

from coderig.cli import app
from coderig.doctor import own_version
from coderig.terminal_io import Stream
from coderig.view import TextView
from runtime import ToolProgress, ToolStarted


@pytest.mark.spec("CLI-50")
def test_json_puts_only_json_lines_on_standard_output_and_the_last_has_the_exit_code(cli: Cli) -> None:
    model = cli.script([command("echo out; echo err >&2", id="c1"), "Schön."])
    done = cli.run("run", "x", "--model", model, "--yes", "--json")
    assert done.code == 0
    kinds = [line["type"] for line in done.lines]
    assert kinds[0] == "run"
    assert kinds[-1] == "end"
    assert {"turn", "item", "tool_started", "tool_output", "tool_finished"} <= set(kinds)
    assert done.lines[-1]["exit_code"] == 0
    assert done.lines[-1]["final_output"] == "Schön."
    assert done.out.isascii()


@pytest.mark.spec("CLI-51")
def test_json_never_asks_and_names_the_calls_that_wait(cli: Cli) -> None:
    done = cli.run("run", "x", "--model", cli.script([command("touch made", id="c1")]), "--json")
    assert done.code == 3
    end = done.lines[-1]
    assert (end["status"], end["exit_code"]) == ("paused", 3)
    assert [each["call_id"] for each in end["approvals"]] == ["c1"]
    assert end["approvals"][0]["preview"] == "touch made"
    assert cli.only_id in end["resume"]


@pytest.mark.spec("CLI-51")
def test_json_on_a_terminal_does_not_ask_either(cli: Cli) -> None:
    screen = cli.terminal("run", "x", "--model", cli.script([command("touch made")]), "--json")
    assert screen.end() == 3
    assert "run it?" not in screen.seen


@pytest.mark.spec("CLI-52")
def test_a_failure_is_told_in_the_last_json_line_and_in_the_exit_code(cli: Cli) -> None:
    model = cli.script([{"error": {"message": "out of order", "status": 500}}])
    done = cli.run("run", "x", "--model", model, "--json")
    assert done.code == 1
    assert done.lines[-1]["exit_code"] == 1
    assert done.lines[-1]["error"]["code"] == "model_error"
    wrong = cli.run("run", "x", "--model", "nonsense", "--json")
    assert (wrong.code, wrong.out) == (2, "")


@pytest.mark.spec("CLI-60")
@pytest.mark.docker
def test_a_place_that_fails_ends_the_run_with_1_and_it_goes_on_when_the_place_is_back(
    cli: Cli, docker_daemon: DockerService
) -> None:
    place = f"docker://{docker_daemon.busybox_image}"
    arguments = ["run", "x", "--place", place, "--model", cli.script([command("echo out"), "Done."]), "--yes"]
    done = cli.run(*arguments, "--json", env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert done.code == 1
    (end,) = done.lines
    assert (end["status"], end["exit_code"], end["error"]["code"]) == ("failed", 1, "place_failed")
    assert "nowhere.sock" in end["error"]["message"]
    assert cli.run("resume", "last", "--yes", env={"DOCKER_HOST": docker_daemon.url}).code == 0


@pytest.mark.spec("CLI-53")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_stops_the_run_with_words_and_a_way_to_go_on(cli: Cli, more: list[str]) -> None:
    model = cli.script([command("echo x"), "Done."])
    with Path("/dev/full").open("w") as full:
        done = cli.run("run", "x", "--model", model, "--yes", *more, stdout=full)
    assert done.code == 1
    assert "No space left" in done.err
    assert f"coderig resume {cli.only_id}" in done.err
    assert cli.run("resume", "last", "--yes", *more).code == 0


@pytest.mark.spec("CLI-53")
def test_a_reader_that_leaves_stops_the_run_and_its_command(cli: Cli) -> None:
    model = cli.script([command("yes"), "Done."])
    process = cli.start("run", "x", "--model", model, "--yes")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("run ")
    process.stdout.close()
    with process.stderr:
        words = process.stderr.read()
    assert process.wait(timeout=30) == 1
    assert f"coderig resume {cli.only_id}" in words
    assert "Traceback" not in words


@pytest.mark.spec("CLI-53")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor"], ["run", "--help"]])
def test_a_full_disk_is_told_whatever_is_written(cli: Cli, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = cli.run(*arguments, stdout=full)
    assert done.code == 1
    assert "No space left" in done.err


@pytest.mark.spec("CLI-54")
@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"COLUMNS": "40"},
        {"NO_COLOR": "1", "TERM": "dumb"},
        {"TERM": "xterm-256color", "COLUMNS": "1"},
    ],
)
def test_any_locale_width_and_terminal_will_do(cli: Cli, env: dict[str, str]) -> None:
    model = cli.script([command("printf 'gr\\303\\274n \\377 \\360\\237\\214\\262\\n'", id="c1"), "Grün 🌲."])
    done = cli.run("run", "Täst 🌲", "--model", model, "--yes", env=env)
    assert done.code == 0, done
    assert "$ printf" in done.out
    assert cli.run("run", "Täst", "--model", model, "--yes", "--json", env=env).lines[-1]["exit_code"] == 0
    for arguments in (["run", "--help"], ["resume", "nothing"]):
        assert cli.run(*arguments, env=env).code in (0, 1), arguments


@pytest.mark.spec("CLI-54")
def test_long_lines_are_not_broken(cli: Cli) -> None:
    line = "word " * 60
    done = cli.run("run", "x", "--model", cli.script([command(f"echo '{line}'"), "Done."]), "--yes")
    assert f"\n  {line}" in done.out


@pytest.mark.spec("CLI-55")
def test_control_sequences_of_a_model_or_a_command_do_not_reach_the_terminal(cli: Cli) -> None:
    model = cli.script(
        [command("printf '\\033]0;title\\007\\033[2Jshown\\n'"), "\x1b[31mred\x1b[0m [bold]x[/bold]"]
    )
    done = cli.run("run", "x", "--model", model, "--yes")
    assert "\x1b" not in done.out
    assert "shown" in done.out
    assert "\ufffd[31mred\ufffd[0m [bold]x[/bold]" in done.out


@pytest.mark.spec("CLI-56")
def test_without_a_command_help_is_shown_and_nothing_else_happens(cli: Cli) -> None:
    bare = cli.run()
    assert bare.code == 2
    assert "Usage: coderig" in bare.out + bare.err
    for name in ("run", "resume", "runs", "forget", "exec", "doctor", "demo"):
        shown = CliRunner().invoke(app, [name, "--help"], prog_name="coderig")
        assert f"Usage: coderig {name}" in shown.output


@pytest.mark.spec("CLI-56")
def test_the_version_is_that_of_the_distribution(cli: Cli) -> None:
    assert cli.run("--version").out == f"coderig {own_version()}\n"


@pytest.mark.spec("CLI-57")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_run_works_against_a_server_that_speaks_the_wire(cli: Cli, provider: str) -> None:
    secret = "sk-secret-0123456789"
    answers: list[Reply | str] = [
        Reply(calls=(Call("exec_command", {"cmd": "echo from $PWD >made; echo made"}, id="c1"),)),
        "Done.",
    ]
    with WireServer(answers) as server:
        url = server.openai_url if provider == "openai" else server.url
        env = {f"{provider.upper()}_API_KEY": secret}
        arguments = ["--model", f"{provider}:any", "--base-url", url, "--yes"]
        done = cli.run("run", "Make it.", *arguments, env=env)
        assert done.code == 0, done
        assert server.refused == []
        assert len(server.requests) == 2
    assert (cli.work / "made").read_text() == f"from {cli.work}\n"
    assert done.out.rstrip().splitlines()[-2].endswith("Done.")
    kept = b"".join(path.read_bytes() for path in (cli.home / "state").rglob("*") if path.is_file())
    assert secret.encode() not in kept


@pytest.mark.spec("CLI-58")
def test_ctrl_c_ends_a_model_call_too(cli: Cli) -> None:
    gate = threading.Event()
    with WireServer([Reply(text="late", gate=gate)]) as server:
        arguments = ["--model", "openai:any", "--base-url", server.openai_url]
        process = cli.start("run", "x", *arguments, env={"OPENAI_API_KEY": "key-0123456789"})
        assert server.arrived.acquire(timeout=30)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=30)[1]
        gate.set()
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.spec("CLI-59")
def test_calls_that_run_at_once_are_told_apart(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        stream = Stream(file.fileno())
        view = TextView(stream, stream)
        for call_id in ("left", "right"):
            view.event(ToolStarted(call_id, "exec_command", json.dumps({"cmd": f"say {call_id}"})))
        for call_id, text in (("right", "r1"), ("left", "l1"), ("left", "l2"), ("right", "r2")):
            view.event(ToolProgress(call_id, "exec_command", f"{text}\n"))
    shown = (tmp_path / "out").read_text().splitlines()
    assert shown == ["$ say left", "$ say right", "  r1", "  [left]", "  l1", "  l2", "  [right]", "  r2"]


def test_the_console_script_is_the_same_program() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'coderig = "coderig.cli:main"' in text
