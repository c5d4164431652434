"""`coderig run` and `coderig resume`, as processes."""

from __future__ import annotations

import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from coderig_kit import Cli, Script, call, command, wait_until

ALLOW = """
[[rule]]
decision = "allow"
pattern = "echo *"

[[rule]]
decision = "deny"
pattern = "rm *"
reason = "nothing is removed here"
"""


def policy(cli: Cli, text: str = ALLOW) -> str:
    (cli.work / "policy.toml").write_text(text, "utf-8")
    return "policy.toml"


@pytest.mark.spec("CLI-01")
def test_a_run_that_is_done_exits_0_and_shows_commands_output_edits_and_answer(cli: Cli) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+a new line\n*** End Patch"
    model = cli.script([command("echo seen"), {"calls": [call("apply_patch", patch=patch)]}, "All done."])
    done = cli.run("run", "do it", "--model", model, "--yes")
    assert done.code == 0, done
    for words in ("$ echo seen", "\n  seen\n", "exit 0", "~ apply_patch", "+a new line", "All done."):
        assert words in done.out
    assert (cli.work / "new.txt").read_text() == "a new line\n"


@pytest.mark.spec("CLI-02")
def test_output_is_shown_while_the_command_still_runs(cli: Cli) -> None:
    model = cli.script([command("echo begun; until [ -e go ]; do sleep 0.02; done; echo over"), "Done."])
    process = cli.start("run", "x", "--model", model, "--yes")
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any(line == "  begun\n" for line in lines)
    (cli.work / "go").touch()
    assert any(line == "  over\n" for line in lines)
    process.communicate()
    assert process.returncode == 0


@pytest.mark.spec("CLI-03")
def test_without_a_terminal_an_approval_ends_the_run_with_3_and_a_hint_and_nothing_ran(cli: Cli) -> None:
    model = cli.script([command("touch made", id="c1"), "Done."])
    asked = cli.run("run", "x", "--model", model)
    assert asked.code == 3
    assert f"coderig resume {cli.only_id} --approve c1" in asked.err
    assert "touch made" in asked.err
    assert not (cli.work / "made").exists()
    resumed = cli.run("resume", cli.only_id, "--approve", "c1")
    assert resumed.code == 0, resumed
    assert (cli.work / "made").exists()


@pytest.mark.spec("CLI-04")
def test_a_resume_without_a_decision_asks_again_and_runs_nothing(cli: Cli) -> None:
    model = cli.script([command("touch made", id="c1"), "Done."])
    cli.run("run", "x", "--model", model)
    assert cli.run("resume", cli.only_id).code == 3
    assert not (cli.work / "made").exists()


@pytest.mark.spec("CLI-05")
def test_a_rejection_reaches_the_model_in_the_given_words(cli: Cli) -> None:
    model = cli.script([command("touch made", id="c1"), "As you like."])
    cli.run("run", "x", "--model", model)
    resumed = cli.run("resume", cli.only_id, "--reject", "c1", "--reason", "use the other file")
    assert resumed.code == 0, resumed
    assert cli.outputs(cli.only_id) == {"c1": ["use the other file"]}
    assert not (cli.work / "made").exists()


@pytest.mark.spec("CLI-06")
def test_decisions_about_some_of_the_calls_are_kept_and_the_others_still_ask(cli: Cli) -> None:
    both = {"calls": [call("exec_command", "a", cmd="touch a"), call("exec_command", "b", cmd="touch b")]}
    cli.run("run", "x", "--model", cli.script([both, "Done."]))
    half = cli.run("resume", cli.only_id, "--approve", "a")
    assert half.code == 3
    assert "touch b" in half.err
    assert "touch a" not in half.err
    assert not (cli.work / "a").exists()
    assert cli.run("resume", cli.only_id, "--approve", "b").code == 0
    assert (cli.work / "a").exists()
    assert (cli.work / "b").exists()


@pytest.mark.spec("CLI-07")
def test_an_approval_of_a_call_that_does_not_wait_is_wrong_use(cli: Cli) -> None:
    cli.run("run", "x", "--model", cli.script([command("touch made", id="c1"), "Done."]))
    wrong = cli.run("resume", cli.only_id, "--approve", "other")
    assert wrong.code == 2
    assert "'other'" in wrong.err


@pytest.mark.spec("CLI-08")
def test_the_policy_lets_run_what_it_allows_and_refuses_without_a_question(cli: Cli) -> None:
    answers: Script = [command("echo fine", id="c1"), command("rm -f policy.toml", id="c2"), "Done."]
    done = cli.run("run", "x", "--model", cli.script(answers), "--policy", policy(cli))
    assert done.code == 0, done
    assert "nothing is removed here" in cli.outputs(cli.only_id)["c2"][0]
    assert "rm -f policy.toml" in done.out
    assert (cli.work / "policy.toml").exists()


@pytest.mark.spec("CLI-08")
def test_yes_does_not_overrule_a_refusal_of_the_policy(cli: Cli) -> None:
    model = cli.script([command("rm -f policy.toml"), "Done."])
    assert cli.run("run", "x", "--model", model, "--policy", policy(cli), "--yes").code == 0
    assert (cli.work / "policy.toml").exists()


@pytest.mark.spec("CLI-09")
def test_a_run_keeps_the_policy_that_it_began_with(cli: Cli) -> None:
    rules = policy(cli)
    model = cli.script([command("touch made", id="c1"), command("rm -f made", id="c2"), "Done."])
    assert cli.run("run", "x", "--model", model, "--policy", rules).code == 3
    (cli.work / rules).write_text("")
    assert cli.run("resume", "last", "--yes").code == 0
    assert "nothing is removed here" in cli.outputs(cli.only_id)["c2"][0]


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "script:missing.jsonl"], "missing.jsonl"),
        (["--model", "gpt"], "openai:NAME"),
        (["--model", "openai:x"], "OPENAI_API_KEY"),
        (["--model", "anthropic:x"], "key"),
        (["--model", "script:ok.jsonl", "--place", "moon"], "moon"),
        (["--model", "script:ok.jsonl", "--policy", "none.toml"], "none.toml"),
        (["--model", "script:ok.jsonl", "--policy", "bad.toml"], "bad.toml"),
        ([], "--model"),
    ],
)
def test_wrong_use_exits_2_with_words_and_keeps_no_run(cli: Cli, arguments: list[str], words: str) -> None:
    cli.script(["Done."], "ok.jsonl")
    (cli.work / "bad.toml").write_text("default = 'perhaps'")
    wrong = cli.run("run", "x", *arguments)
    assert wrong.code == 2
    assert words in wrong.err
    assert wrong.out == ""
    assert cli.ids() == []


@pytest.mark.spec("CLI-11")
def test_a_run_that_fails_exits_1_tells_why_and_can_go_on(cli: Cli) -> None:
    model = cli.script([{"error": {"message": "out of order", "status": 500}}])
    failed = cli.run("run", "x", "--model", model)
    assert failed.code == 1
    assert "out of order" in failed.err
    assert f"coderig resume {cli.only_id}" in failed.err
    cli.script(["It works again."])
    resumed = cli.run("resume", cli.only_id)
    assert resumed.code == 0
    assert "It works again." in resumed.out


@pytest.mark.spec("CLI-12")
def test_turns_that_are_used_up_can_be_raised_on_resume(cli: Cli) -> None:
    model = cli.script([command("echo 1"), command("echo 2"), "Done."])
    short = cli.run("run", "x", "--model", model, "--yes", "--max-turns", "1")
    assert short.code == 1
    assert "--max-turns" in short.err
    assert cli.run("resume", "last", "--yes", "--max-turns", "9").code == 0


@pytest.mark.spec("CLI-13")
def test_a_complete_run_is_not_run_again_but_can_be_told_more(cli: Cli) -> None:
    model = cli.script([command("echo x >>log"), "Done.", "More done."])
    assert cli.run("run", "x", "--model", model, "--yes").code == 0
    again = cli.run("resume", "last")
    assert again.code == 0
    assert "complete" in again.err
    assert (cli.work / "log").read_text() == "x\n"
    told = cli.run("resume", "last", "--say", "and more")
    assert told.code == 0
    assert "More done." in told.out


@pytest.mark.spec("CLI-14")
def test_ctrl_c_ends_the_command_and_the_run_with_130_and_the_run_goes_on_later(cli: Cli) -> None:
    model = cli.script([command("echo $$ >pid; sleep 300", id="c1"), "Done."])
    process = cli.start("run", "x", "--model", model, "--yes")
    wait_until(lambda: (cli.work / "pid").exists() and (cli.work / "pid").read_text(), "the command")
    pid = int((cli.work / "pid").read_text())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert f"coderig resume {cli.only_id}" in err
    wait_until(lambda: not alive(pid), "the end of the command")
    assert cli.run("resume", cli.only_id, "--yes").code == 0
    assert [len(outputs) for outputs in cli.outputs(cli.only_id).values()] == [1]


@pytest.mark.spec("CLI-14")
def test_a_termination_signal_stops_the_run_too(cli: Cli) -> None:
    model = cli.script([command("echo $$ >pid; sleep 300"), "Done."])
    process = cli.start("run", "x", "--model", model, "--yes")
    wait_until(lambda: (cli.work / "pid").exists() and (cli.work / "pid").read_text(), "the command")
    pid = int((cli.work / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    wait_until(lambda: not alive(pid), "the end of the command")


@pytest.mark.spec("CLI-15")
def test_after_kill_9_in_a_command_nothing_finished_runs_twice_and_each_call_has_one_output(cli: Cli) -> None:
    answers: Script = [
        command("echo one >>log", id="c1"),
        {
            "calls": [
                call("exec_command", "c2", cmd="echo two >>log"),
                call("exec_command", "c3", cmd="echo three >>log; echo $$ >pid; sleep 300; echo never >>log"),
            ]
        },
        command("echo four >>log", id="c4"),
        "All done.",
    ]
    process = cli.start("run", "x", "--model", cli.script(answers), "--yes")
    wait_until(
        lambda: (
            (cli.work / "pid").exists()
            and any(record["record"] == "output" and "c2" in record["item"]["raw"] for record in records(cli))
        ),
        "the second command's output and the third command",
    )
    leftover = int((cli.work / "pid").read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert alive(leftover), "the command outlives the run that was killed"

    resumed = cli.run("resume", cli.only_id, "--yes")
    assert resumed.code == 0, resumed
    assert "All done." in resumed.out
    assert sorted((cli.work / "log").read_text().split()) == ["four", "one", "three", "two"]
    outputs = cli.outputs(cli.only_id)
    assert {call_id: len(found) for call_id, found in outputs.items()} == dict.fromkeys(
        ("c1", "c2", "c3", "c4"), 1
    )
    assert "outcome is unknown" in outputs["c3"][0]
    assert not alive(leftover), "the resume ends what the killed run had left"
    assert "had left running" in resumed.err
    assert "$ echo three" in resumed.out, "the call that was cut off is shown"


@pytest.mark.spec("CLI-16")
def test_what_a_finished_command_left_in_the_background_survives_the_resume(cli: Cli) -> None:
    answers: Script = [
        command("sleep 300 </dev/null >/dev/null 2>&1 & echo $! >server", id="c1"),
        command("echo $$ >pid; sleep 300", id="c2"),
        "Done.",
    ]
    process = cli.start("run", "x", "--model", cli.script(answers), "--yes")
    wait_until(lambda: (cli.work / "pid").exists() and (cli.work / "pid").read_text(), "the command")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    server, cut_off = (int((cli.work / name).read_text()) for name in ("server", "pid"))
    try:
        assert cli.run("resume", "last", "--yes").code == 0
        assert alive(server)
        assert not alive(cut_off)
    finally:
        subprocess.run(["kill", str(server)], check=True)


@pytest.mark.spec("CLI-17")
def test_a_run_that_is_in_use_is_not_resumed(cli: Cli) -> None:
    model = cli.script([command("touch here; until [ -e go ]; do sleep 0.02; done"), "Done."])
    process = cli.start("run", "x", "--model", model, "--yes")
    wait_until(lambda: (cli.work / "here").exists(), "the command")
    second = cli.run("resume", cli.only_id, "--yes")
    assert second.code == 1
    assert f"in use by pid {process.pid}" in second.err
    (cli.work / "go").touch()
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.spec("CLI-18")
def test_a_journal_with_a_torn_last_line_is_read_without_it(cli: Cli) -> None:
    cli.run("run", "x", "--model", cli.script([command("touch made", id="c1"), "Done."]))
    path = cli.home / "state" / "runs" / cli.only_id / "journal.jsonl"
    path.write_bytes(path.read_bytes() + '{"record": "resumed", "é'.encode()[:-1])
    resumed = cli.run("resume", cli.only_id, "--yes")
    assert resumed.code == 0, resumed
    assert "never completed" in resumed.err


@pytest.mark.spec("CLI-19")
def test_runs_are_kept_for_their_owner_alone_and_listed(cli: Cli) -> None:
    cli.run("run", "first task", "--model", cli.script(["Done."]))
    cli.run("run", "second task", "--model", cli.script([command("touch made"), "Done."]))
    state = cli.home / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in state.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    listed = cli.run("runs").out.splitlines()
    assert "completed" in listed[0]
    assert "first task" in listed[0]
    assert "paused" in listed[1]
    assert [line["status"] for line in cli.run("runs", "--json").lines] == ["completed", "paused"]


@pytest.mark.spec("CLI-23")
def test_a_run_can_be_forgotten(cli: Cli) -> None:
    cli.run("run", "x", "--model", cli.script(["Done."]))
    assert cli.run("forget", cli.only_id[:4]).code == 0
    assert cli.ids() == []
    gone = cli.run("forget", "last")
    assert gone.code == 1
    assert "no run" in gone.err


@pytest.mark.spec("CLI-20")
def test_state_goes_where_the_environment_says(cli: Cli) -> None:
    model = cli.script(["Done."])
    state = cli.work / "xdg"
    assert (
        cli.run("run", "x", "--model", model, env={"CODERIG_HOME": "", "XDG_STATE_HOME": str(state)}).code
        == 0
    )
    assert len(list((state / "coderig" / "runs").iterdir())) == 1
    assert cli.run("run", "x", "--model", model, env={"CODERIG_HOME": ""}).code == 0
    assert len(list((cli.home / ".local/state/coderig/runs").iterdir())) == 1
    refused = cli.run("run", "x", "--model", model, env={"CODERIG_HOME": "/proc/none"})
    assert refused.code == 1
    assert "CODERIG_HOME" in refused.err


@pytest.mark.spec("CLI-21")
def test_a_run_goes_on_from_another_directory(cli: Cli) -> None:
    cli.run("run", "x", "--model", cli.script([command("touch made", id="c1"), "Done."]))
    elsewhere = Cli(cli.home, cli.home)
    assert elsewhere.run("resume", "last", "--yes").code == 0
    assert (cli.work / "made").exists()


@pytest.mark.spec("CLI-22")
def test_keys_are_masked_in_what_is_shown_and_kept(cli: Cli) -> None:
    secret = "sk-very-secret-0123456789"
    model = cli.script([command(f"echo {secret}"), f"The key is {secret}."])
    for more in ([], ["--json"]):
        done = cli.run("run", "x", "--model", model, "--yes", *more, env={"SOME_API_KEY": secret})
        assert done.code == 0, done
        assert secret not in done.out + done.err
        assert "[masked]" in done.out
    kept = b"".join(path.read_bytes() for path in (cli.home / "state").rglob("*") if path.is_file())
    assert secret.encode() not in kept


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(") ")[2][0] != "Z"


def records(cli: Cli) -> list[dict[str, Any]]:
    return cli.records(cli.only_id)
