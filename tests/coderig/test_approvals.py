"""Approvals by a person at a terminal."""

from __future__ import annotations

import pytest
from coderig_kit import Cli, call, command, wait_until

from coderig.approvals import Answer, plain, read_answer

PROMPT = "run it? [y/n/a/q/?] "


@pytest.mark.spec("CLI-70")
def test_a_person_sees_the_command_and_a_yes_runs_it(cli: Cli) -> None:
    screen = cli.terminal("run", "x", "--model", cli.script([command("touch made"), "Done."]))
    screen.expect(PROMPT)
    assert "| touch made" in screen.seen
    assert not (cli.work / "made").exists()
    screen.type("y\n")
    assert screen.end() == 0
    assert (cli.work / "made").exists()


@pytest.mark.spec("CLI-70")
def test_a_person_sees_the_patch(cli: Cli) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+a new line\n*** End Patch"
    screen = cli.terminal(
        "run", "x", "--model", cli.script([{"calls": [call("apply_patch", patch=patch)]}, "Done."])
    )
    screen.expect(PROMPT)
    assert "| +a new line" in screen.seen
    screen.type("yes\n")
    assert screen.end() == 0
    assert (cli.work / "new.txt").exists()


@pytest.mark.spec("CLI-71")
def test_a_no_with_words_reaches_the_model_and_the_run_goes_on(cli: Cli) -> None:
    screen = cli.terminal("run", "x", "--model", cli.script([command("touch made", id="c1"), "Done."]))
    screen.expect(PROMPT)
    screen.type("maybe\n")
    screen.expect("n WORDS refuses it")
    screen.expect(PROMPT)
    screen.type("n not that file\n")
    assert screen.end() == 0
    assert cli.outputs(cli.only_id) == {"c1": ["not that file"]}
    assert not (cli.work / "made").exists()


@pytest.mark.spec("CLI-72")
def test_all_is_a_yes_to_everything_that_follows(cli: Cli) -> None:
    screen = cli.terminal(
        "run", "x", "--model", cli.script([command("touch a"), command("touch b"), "Done."])
    )
    screen.expect(PROMPT)
    screen.type("a\n")
    assert screen.end() == 0
    assert screen.seen.count(PROMPT) == 1
    assert (cli.work / "b").exists()


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize(("typed", "code"), [("q\n", 3), ("\x04", 3), ("\x03", 130)])
def test_a_person_can_leave_at_the_question_and_go_on_later(cli: Cli, typed: str, code: int) -> None:
    screen = cli.terminal("run", "x", "--model", cli.script([command("touch made"), "Done."]))
    screen.expect(PROMPT)
    screen.type(typed)
    assert screen.end() == code
    assert f"coderig resume {cli.only_id}" in screen.seen
    assert not (cli.work / "made").exists()
    later = cli.terminal("resume", cli.only_id)
    later.expect(PROMPT)
    later.type("y\n")
    assert later.end() == 0
    assert (cli.work / "made").exists()


@pytest.mark.spec("CLI-74")
def test_what_was_typed_before_the_question_does_not_answer_it(cli: Cli) -> None:
    model = cli.script(
        [command("touch here; until [ -e go ]; do sleep 0.02; done"), command("touch made"), "Done."]
    )
    (cli.work / "rules.toml").write_text(
        '[[path]]\ndecision = "allow"\npattern = "*"\n'
        '[[rule]]\ndecision = "allow"\npattern = "touch here"\n'
        '[[rule]]\ndecision = "allow"\npattern = "sleep *"\n'
        '[[rule]]\ndecision = "allow"\npattern = "[ *"\n'
    )
    screen = cli.terminal("run", "x", "--model", model, "--policy", "rules.toml")
    wait_until(lambda: (cli.work / "here").exists(), "the first command")
    screen.type("y\n")
    (cli.work / "go").touch()
    screen.expect(PROMPT)
    screen.type("n\n")
    assert screen.end() == 0
    assert not (cli.work / "made").exists()


@pytest.mark.spec("CLI-75")
def test_what_is_shown_for_approval_hides_nothing() -> None:
    assert plain("a\u202eb\u200bc\x1b[2Kd\re") == "a\\u202eb\\u200bc\ufffd[2Kd\ufffde"


@pytest.mark.spec("CLI-71")
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y\n", Answer("yes")),
        (" YES \n", Answer("yes")),
        ("n\n", Answer("no")),
        ("no  because\n", Answer("no", "because")),
        ("a\n", Answer("all")),
        ("q\n", Answer("stop")),
        ("\n", None),
        ("yes please\n", None),
        ("x\n", None),
    ],
)
def test_only_clear_words_are_an_answer(line: str, answer: Answer | None) -> None:
    assert read_answer(line) == answer
