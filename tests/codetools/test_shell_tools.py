"""write_stdin, poll, interrupt, and exec_command's way to leave a command running."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from codetools_bench import Bench, MakeBench
from places import Place
from pydantic import JsonValue

from codetools import Policy, Rule, code_tools
from codetools.exec_command import parse_arguments
from codetools.shell_tools import check_typing, visible_keys
from runtime import (
    Agent,
    ItemKind,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    resume_run_sync,
    run_sync,
)
from runtime.tools import BadArguments, ToolFailed
from sandbox import LocalSandbox, SpillStore

LIMIT_S = 20.0


def until(bench: Bench, wanted: str, seen: str = "", **arguments: object) -> str:
    """Poll until the output, with what was seen before, holds a text."""
    until_s = time.monotonic() + LIMIT_S
    while wanted not in seen:
        assert time.monotonic() < until_s, seen[-500:]
        seen += bench.call("poll", session_id="s", wait_seconds=0.1, **arguments)
    return seen


@pytest.mark.spec("IWT-01")
def test_a_command_is_left_running_typed_to_polled_and_ends_with_its_code(bench: Bench) -> None:
    result = bench.result(
        "exec_command",
        cmd="echo ready; read -r a; echo got:$a; exit_=0; (exit 3)",
        session_id="s",
        yield_seconds=0.3,
    )
    assert result.text.startswith("still running\n")
    assert "ready" in result.text and "write_stdin" in result.text and "'s'" in result.text
    assert result.details is not None
    assert (result.details["exit_code"], result.details["timed_out"]) == (None, False)
    done = bench.result("write_stdin", session_id="s", text="words\n", wait_seconds=LIMIT_S)
    assert done.text.startswith("exit code: 3\n") and done.text.endswith("output:\ngot:words")
    assert done.details is not None
    assert (done.details["exit_code"], done.details["running"], done.details["session_id"]) == (3, False, "s")
    assert "exit code: 0" in bench.call("exec_command", cmd="true", session_id="s")


@pytest.mark.spec("IWT-01")
def test_a_command_that_ends_in_time_is_told_like_any_other(bench: Bench) -> None:
    text = bench.call("exec_command", cmd="echo hi; (exit 4)", session_id="s", yield_seconds=LIMIT_S)
    assert text.startswith("exit code: 4\n") and "write_stdin" not in text


@pytest.mark.spec("IWT-01")
def test_a_command_that_is_left_running_has_no_timeout(bench: Bench) -> None:
    text = bench.call(
        "exec_command", cmd="sleep 0.6; echo end", session_id="s", timeout_seconds=0.1, yield_seconds=0.3
    )
    assert text.startswith("still running\n")
    assert bench.call("poll", session_id="s", wait_seconds=LIMIT_S).endswith("output:\nend")


@pytest.mark.spec("IWT-01")
def test_another_command_in_the_shell_has_to_wait(bench: Bench) -> None:
    bench.call("exec_command", cmd="sleep 7401", session_id="s", yield_seconds=0.1)
    text = bench.call("exec_command", cmd="true", session_id="s")
    assert "ToolFailed" in text and "still runs" in text
    assert "exit code: 130" in bench.call("interrupt", session_id="s", wait_seconds=LIMIT_S)
    assert "exit code: 0" in bench.call("exec_command", cmd="true", session_id="s")


@pytest.mark.spec("IWT-02")
@pytest.mark.parametrize(
    ("value", "seconds"), [(0, 0), (None, 0), (-1, 0), (2, 2), (0.5, 0.5), (600, 600), (10**6, 600)]
)
def test_the_time_to_leave_a_command_running_is_decoded_like_a_timeout(value: object, seconds: float) -> None:
    call = json.dumps({"cmd": "ls", "session_id": "s", "yield_seconds": value})
    arguments = parse_arguments(call, True)
    assert arguments.yield_s == seconds
    assert ("600 s" in arguments.note) is (value == 10**6)


@pytest.mark.spec("IWT-02", "XT-09")
def test_only_a_shell_can_keep_a_running_command(make_bench: MakeBench) -> None:
    with pytest.raises(BadArguments, match="yield_seconds needs a session_id"):
        parse_arguments('{"cmd": "ls", "yield_seconds": 5}', True)
    with pytest.raises(BadArguments, match="yield_seconds must be a number"):
        parse_arguments('{"cmd": "ls", "session_id": "s", "yield_seconds": "5"}', True)
    bench = make_bench(shells=False)
    assert set(bench.tools) & {"write_stdin", "poll", "interrupt"} == set()
    assert "yield_seconds" not in json.dumps(bench.tools["exec_command"].parameters)
    assert "exit code: 0" in bench.call("exec_command", cmd="true", session_id="s", yield_seconds=5)


@pytest.mark.spec("IWT-02", "AR-01")
@pytest.mark.parametrize(
    ("tool", "text", "named"),
    [
        ("write_stdin", '{"session_id": "s"}', "text"),
        ("write_stdin", '{"session_id": "s", "text": ""}', "text is empty"),
        ("write_stdin", '{"session_id": "s", "text": 5}', "text"),
        ("write_stdin", '{"session_id": "s", "text": "a\\u0000"}', "text"),
        ("write_stdin", '{"text": "x"}', "session_id"),
        ("write_stdin", '{"session_id": "s", "text": "x", "more": 1}', "more"),
        ("poll", '{"session_id": 5}', "session_id"),
        ("poll", '{"session_id": " "}', "session_id is empty"),
        ("poll", '{"session_id": "s", "wait_seconds": "1"}', "wait_seconds"),
        ("poll", '{"session_id": "s", "screen": "yes"}', "screen must be true or false"),
        ("poll", "[]", "JSON object"),
        ("interrupt", "{}", "session_id"),
        ("interrupt", '{"session_id": "s", "text": "x"}', "text"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused_by_name(
    bench: Bench, tool: str, text: str, named: str
) -> None:
    with pytest.raises(BadArguments, match=re.escape(named)) as caught:
        bench.tools[tool].parse(text)
    assert len(str(caught.value).encode()) <= 1024


@pytest.mark.spec("IWT-02")
def test_waits_have_defaults_and_a_limit(bench: Bench) -> None:
    for tool, default in (("write_stdin", 1.0), ("poll", 5.0), ("interrupt", 3.0)):
        for value, seconds in [(0, default), (None, default), (-3, default), (7, 7.0), (601, 600.0)]:
            call: dict[str, object] = {"session_id": "s", "wait_seconds": value}
            if tool == "write_stdin":
                call["text"] = "x"
            arguments = bench.tools[tool].parse(json.dumps(call))
            assert arguments.wait_s == seconds
            assert ("wait was lowered" in arguments.note) is (value == 601)


@pytest.mark.spec("IWT-03")
@pytest.mark.parametrize(
    ("tool", "more"), [("write_stdin", {"text": "x\n"}), ("poll", {}), ("interrupt", {})]
)
def test_where_nothing_runs_is_told_and_no_shell_is_made(
    bench: Bench, tool: str, more: dict[str, str]
) -> None:
    with pytest.raises(ToolFailed, match="no command is running in shell 'none'.*yield_seconds"):
        bench.result(tool, session_id="none", **more)
    assert bench.box.shells() == []
    bench.call("exec_command", cmd="sleep 7402", session_id="other", yield_seconds=0.1)
    with pytest.raises(ToolFailed, match="commands run in: other"):
        bench.result(tool, session_id="none", **more)


@pytest.mark.spec("IWT-03")
def test_what_a_program_does_not_read_and_what_a_terminal_cannot_hold_is_told(bench: Bench) -> None:
    bench.call("exec_command", cmd="sleep 7403", session_id="s", yield_seconds=0.1)
    text = bench.call("write_stdin", session_id="s", text="x\n" * 500_000, wait_seconds=0.1)
    assert re.search(r"only \d+ of 1000000 bytes were taken", text)
    bench.call("interrupt", session_id="s", wait_seconds=LIMIT_S)
    bench.call("exec_command", cmd="cat", session_id="s", yield_seconds=0.1)
    text = bench.call("write_stdin", session_id="s", text="y" * 5000)
    assert "ToolFailed" in text and "nothing was typed" in text and "4095" in text


@pytest.mark.spec("IWT-03")
def test_long_lines_are_typed_one_after_the_other(bench: Bench) -> None:
    command = "stty -icanon min 1; echo ready; head -c 30003 | cksum"
    until(bench, "ready", bench.call("exec_command", cmd=command, session_id="s", yield_seconds=0.1))
    text = bench.call("write_stdin", session_id="s", text=("x" * 10_000 + "\n") * 3, wait_seconds=LIMIT_S)
    expected = bench.call(
        "exec_command", cmd="l=$(head -c 10000 /dev/zero | tr '\\0' x); printf '%s\\n' $l $l $l | cksum"
    )
    assert text.split("output:\n")[1] == expected.split("stdout:\n")[1]
    assert "were taken" not in text


@pytest.mark.spec("IWT-04")
def test_output_is_cleaned_bounded_and_told_once(bench: Bench) -> None:
    first = bench.call(
        "exec_command",
        cmd="printf '\\033[31mred\\033[0m\\n'; read -r x; seq 1 100000; read -r x; printf 'last\\a'",
        session_id="s",
        yield_seconds=0.2,
    )
    assert first.endswith("output:\nred")
    flood = bench.call("write_stdin", session_id="s", text="\n", wait_seconds=1)
    until_s = time.monotonic() + LIMIT_S
    while "100000" not in flood:
        assert time.monotonic() < until_s
        flood = bench.call("poll", session_id="s", wait_seconds=0.2)
    assert len(flood.encode()) < 10_000
    last = bench.call("write_stdin", session_id="s", text="\n", wait_seconds=LIMIT_S)
    assert last.startswith("exit code: 0\n") and last.endswith("output:\nlast")


@pytest.mark.spec("IWT-04")
def test_what_a_poll_shows_in_part_is_kept_whole(box: LocalSandbox, tmp_path: Path) -> None:
    with SpillStore(tmp_path / "outputs") as store:
        bench = Bench(box, {tool.name: tool for tool in code_tools(box, spill=store)})
        command = "read -r x; seq 1 300000; read -r x; seq 1 5000; exit 3"
        bench.call("exec_command", cmd=command, session_id="s", yield_seconds=0.1)
        for last, size in (("300000", 1_988_895), ("5000", 23_893)):
            result = bench.result("write_stdin", session_id="s", text="\n", wait_seconds=4)
            assert last in result.text and len(result.text.encode()) < 10_000
            assert result.details is not None
            outputs = result.details["outputs"]
            assert isinstance(outputs, list) and len(outputs) == 1
            handle = str(outputs[0])
            assert handle in result.text
            assert store.size_bytes(handle) == size
        assert result.text.startswith("exit code: 3\n")


@pytest.mark.spec("IWT-04")
def test_a_poll_can_show_the_screen(bench: Bench) -> None:
    bench.call(
        "exec_command",
        cmd="printf 'one\\ntwo\\033[1;1HONE'; read -r x",
        session_id="s",
        yield_seconds=0.2,
    )
    text = until(bench, "\nscreen:\n", screen=True)
    assert text.endswith("screen:\nONE\ntwo")
    assert "screen" not in bench.call("poll", session_id="s", wait_seconds=0.01)


@pytest.mark.spec("IWT-05")
def test_a_place_that_fails_or_a_call_that_is_cancelled_is_told_in_words(bench: Bench) -> None:
    bench.call("exec_command", cmd="sleep 0.5; echo end", session_id="s", yield_seconds=0.1)
    bench.cancelled.set()
    with pytest.raises(ToolFailed, match="cancelled"):
        bench.result("poll", session_id="s", wait_seconds=LIMIT_S)
    bench.cancelled.clear()
    # The command was left alone.
    assert bench.call("poll", session_id="s", wait_seconds=LIMIT_S).endswith("output:\nend")
    bench.call("exec_command", cmd="sleep 7404", session_id="s", yield_seconds=0.1)
    bench.box.close()
    for tool, more in (("write_stdin", {"text": "x\n"}), ("poll", {}), ("interrupt", {})):
        assert "ToolFailed" in bench.call(tool, session_id="s", **more)


DENY_RM = Rule(decision="deny", pattern="rm *", reason="use trash")
TYPING = Rule(decision="allow", pattern="write_stdin")


@pytest.mark.spec("IWT-06")
@pytest.mark.parametrize(
    ("policy", "text", "decision"),
    [
        (Policy(), "rm -rf /\n", "allow"),
        (Policy(), "\x15anything", "allow"),
        (Policy(default="ask"), "1+1\n", "ask"),
        (Policy(default="deny"), "1+1\n", "deny"),
        (Policy(default="allow"), "1+1\n", "ask"),
        (Policy(rules=(DENY_RM,)), "1+1\n", "ask"),
        (Policy(rules=(DENY_RM,)), "ls; rm -rf x\n", "deny"),
        (Policy(rules=(DENY_RM,)), "ls\x15rm x\n", "deny"),
        (Policy(rules=(DENY_RM, TYPING)), "ls x\n", "allow"),
        (Policy(rules=(DENY_RM, TYPING)), "print('half", "allow"),
        (Policy(rules=(DENY_RM, TYPING)), "env rm x\n", "deny"),
        (Policy(rules=(Rule(decision="allow", pattern="ls*"),)), "ls\n", "ask"),
        (Policy(rules=(Rule(decision="deny", pattern="write_stdin"),)), "y\n", "deny"),
        (Policy(deny_regex=("secret",)), "echo secret\n", "deny"),
        (Policy(allow_regex=("^git ",)), "y\n", "deny"),
        (Policy(allow_regex=("(",)), "y\n", "deny"),
    ],
)
def test_what_is_typed_is_judged(policy: Policy, text: str, decision: str) -> None:
    assert check_typing(policy, text).decision == decision


@pytest.mark.spec("IWT-06")
def test_a_refused_text_is_not_typed_and_the_refusal_names_the_rule(make_bench: MakeBench) -> None:
    bench = make_bench(Policy(rules=(DENY_RM,)))
    bench.call("exec_command", cmd="cat", session_id="s", yield_seconds=0.1)
    result = bench.result("write_stdin", session_id="s", text="rm -rf x\n")
    assert result.is_error and "deny rm *" in result.text and "use trash" in result.text
    assert result.details is not None and result.details["refused"] is True
    text = bench.call("write_stdin", session_id="s", text="fine\n\x04", wait_seconds=LIMIT_S)
    assert text.endswith("output:\nfine")


@pytest.mark.spec("IWT-06", "XT-15")
def test_who_decides_about_typing_where_the_policy_says_nothing(make_bench: MakeBench) -> None:
    for options, decision in (({}, "allow"), ({"ask_by_default": True}, "ask")):
        tools = make_bench(**options).tools
        check = tools["write_stdin"].check
        assert check is not None
        assert check(tools["write_stdin"].parse('{"session_id": "s", "text": "y"}')).decision == decision
        # Looking changes nothing, and an interrupt only ends what was allowed.
        assert tools["poll"].check is None and tools["interrupt"].check is None


@pytest.mark.spec("IWT-07")
def test_a_person_sees_every_key_and_the_program(bench: Bench) -> None:
    bench.call("exec_command", cmd="cat -v", session_id="s", yield_seconds=0.1)
    preview = bench.tools["write_stdin"].preview
    assert preview is not None
    call = json.dumps({"session_id": "s", "text": "\x15rm x\n\x1b[2Jy\x7f"})
    shown = preview(bench.tools["write_stdin"].parse(call))
    assert shown == "type in shell s, into: cat -v\n^Urm x\n^[[2Jy^?"
    assert visible_keys("a\tb\n\x00\x03") == "a\tb\n^@^C"


@pytest.mark.spec("IWT-08")
def test_keys_keep_their_order_and_looking_is_reading(bench: Bench) -> None:
    flags = {name: (tool.read_only, tool.sequential) for name, tool in bench.tools.items()}
    assert flags["write_stdin"] == flags["interrupt"] == (False, True)
    assert flags["poll"] == (True, False)


def scripted(*turns: tuple[tuple[str, dict[str, JsonValue]], ...]) -> ScriptedModel:
    answers = [
        Scripted(calls=tuple(ScriptedCall(name=name, arguments=arguments) for name, arguments in turn))
        for turn in turns
    ]
    return ScriptedModel([*answers, "done"])


@pytest.mark.spec("IWT-08")
def test_a_run_works_with_a_program_call_by_call(box: LocalSandbox) -> None:
    def typed(text: str) -> tuple[str, dict[str, JsonValue]]:
        return "write_stdin", {"session_id": "s", "text": text, "wait_seconds": 0.2}

    start: dict[str, JsonValue] = {
        "cmd": "while read -r l; do echo [$l]; done; exit 5",
        "session_id": "s",
        "yield_seconds": 0.1,
    }
    end: dict[str, JsonValue] = {"session_id": "s", "text": "\u0004", "wait_seconds": LIMIT_S}
    model = scripted(
        (("exec_command", start),),
        # One answer with several calls: what is typed first comes first.
        tuple(typed(f"line {number}\n") for number in range(8)),
        (("poll", {"session_id": "s", "screen": True, "wait_seconds": 0.1}),),
        (("write_stdin", end),),
    )
    result = run_sync(Agent(name="t", tools=code_tools(box), model=model), "go")
    assert result.final_output == "done"
    outputs = [item.output for item in result.items if item.kind == ItemKind.TOOL_OUTPUT]
    assert outputs[0].startswith("still running")
    seen = re.findall(r"\[line (\d)\]", "\n".join(outputs[1:9]))
    assert seen == list("01234567")
    assert "screen:\n" + "\n".join(f"[line {number}]" for number in range(8)) in outputs[9]
    assert outputs[10].startswith("exit code: 5\n") and "has ended" in outputs[10]


@pytest.mark.spec("IWT-06", "IWT-08")
def test_a_run_pauses_for_a_person_before_anything_is_typed(box: LocalSandbox) -> None:
    policy = Policy(rules=(Rule(decision="allow", pattern="cat*"),), default="ask")
    start: dict[str, JsonValue] = {"cmd": "cat", "session_id": "s", "yield_seconds": 0.1}
    typing: dict[str, JsonValue] = {"session_id": "s", "text": "hello\n\u0004", "wait_seconds": LIMIT_S}
    model = scripted((("exec_command", start),), (("write_stdin", typing),))
    agent = Agent(name="t", tools=code_tools(box, policy), model=model)
    paused = run_sync(agent, "go")
    assert [pause.tool for pause in paused.interruptions] == ["write_stdin"]
    assert "hello\n^D" in paused.interruptions[0].preview
    assert box.shell("s").poll(0.2).output == ""
    paused.state.approve(paused.interruptions[0])
    done = resume_run_sync(agent, paused.state)
    outputs = [item.output for item in done.items if item.kind == ItemKind.TOOL_OUTPUT]
    assert outputs[-1].startswith("exit code: 0\n") and outputs[-1].endswith("output:\nhello")


@pytest.mark.spec("XT-46")
def test_the_tools_mean_the_same_in_every_place(place: Place) -> None:
    bench = Bench(place.box, {tool.name: tool for tool in code_tools(place.box)})
    start = bench.call(
        "exec_command", cmd="cat; exit 6", workdir=place.fresh(), session_id="tools", yield_seconds=0.2
    )
    assert start.startswith("still running\n")
    text = bench.call("write_stdin", session_id="tools", text="w\u00f6rd\n\u0004", wait_seconds=LIMIT_S)
    assert text.startswith("exit code: 6\n") and text.endswith("output:\nw\u00f6rd")
    bench.call("exec_command", cmd="sleep 7405", session_id="tools", yield_seconds=0.5)
    assert bench.call("poll", session_id="tools", wait_seconds=0.1).startswith("still running\n")
    assert bench.call("interrupt", session_id="tools", wait_seconds=LIMIT_S).startswith("exit code: 130")
