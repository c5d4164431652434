"""exec_command: its arguments, and what it does in a real sandbox."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from codetools_bench import Bench, MakeBench

from codetools import Policy, Rule
from codetools.exec_command import LineProgress, parse_arguments
from runtime.tools import BadArguments, ToolContext, ToolFailed
from sandbox import LocalSandbox


def parsed(**fields: object) -> object:
    return parse_arguments(json.dumps({"cmd": "ls", **fields}), True)


@pytest.mark.spec("AR-02")
@pytest.mark.parametrize("unused", [None, 0, False, ""])
@pytest.mark.parametrize("field", ["workdir", "session_id"])
def test_null_0_and_false_mean_unused(field: str, unused: object) -> None:
    assert parsed(**{field: unused}) == parsed()


@pytest.mark.spec("AR-01", "AR-03")
@pytest.mark.parametrize("value", [True, 42, 1, -1, 3.14, 0.0, {}, [], ["a"]])
@pytest.mark.parametrize("field", ["workdir", "session_id"])
def test_other_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(BadArguments, match=field):
        parsed(**{field: value})


@pytest.mark.spec("AR-04")
def test_the_text_0_names_a_session() -> None:
    arguments = parse_arguments('{"cmd": "ls", "session_id": "0"}', True)
    assert arguments.session_id == "0"


@pytest.mark.spec("AR-05")
@pytest.mark.parametrize("cmd", [None, 0, False, True, 5, [], {}, "", "   ", "\n\t", "a\0b"])
def test_cmd_takes_no_substitute(cmd: object) -> None:
    with pytest.raises(BadArguments, match="cmd"):
        parse_arguments(json.dumps({"cmd": cmd}), True)


@pytest.mark.spec("AR-01")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        '{"cmd": "ls"',
        "[1]",
        '"ls"',
        '{"cmd": "ls", "extra": 1}',
        '{"cmd": "ls", "cmd": "rm"}',
        '{"cmd": "ls", "timeout_seconds": NaN}',
        '{"cmd": "ls",}',
        '{"cmd": "\\ud800"}',
        '"{\\"cmd\\": \\"ls\\"}"',
        "x" * 2_000_000,
        '{"cmd": "ls", "' + "y" * 5000 + '": 1}',
    ],
    ids=lambda text: text[:20],
)
def test_a_malformed_call_is_a_short_refusal(text: str) -> None:
    with pytest.raises(BadArguments) as caught:
        parse_arguments(text, True)
    assert 0 < len(str(caught.value).encode()) <= 1024


@pytest.mark.spec("XT-08")
@pytest.mark.parametrize(
    ("value", "seconds", "lowered"),
    [
        (5, 5, False),
        (0.5, 0.5, False),
        (0, 30, False),
        (-1, 30, False),
        (None, 30, False),
        (600, 600, False),
        (601, 600, True),
        (10**9, 600, True),
        (1e300, 600, True),
    ],
)
def test_a_timeout_is_taken_defaulted_or_lowered_in_words(
    value: object, seconds: float, lowered: bool
) -> None:
    arguments = parse_arguments(json.dumps({"cmd": "ls", "timeout_seconds": value}), True)
    assert arguments.timeout_s == seconds
    assert ("600 s" in arguments.note) is lowered


@pytest.mark.spec("XT-08")
@pytest.mark.parametrize("value", ["30", True, False, [], {}, ""])
def test_a_timeout_of_a_wrong_type_is_refused(value: object) -> None:
    with pytest.raises(BadArguments, match="timeout_seconds"):
        parsed(timeout_seconds=value)


@pytest.mark.spec("AR-06", "XT-09")
def test_the_schema_shows_plain_strings_and_a_session_only_with_shells(make_bench: MakeBench) -> None:
    with_shells = make_bench().tools["exec_command"].parameters
    without = make_bench(shells=False).tools["exec_command"].parameters
    shown = json.loads(json.dumps(with_shells))
    assert {name: shown["properties"][name]["type"] for name in ("cmd", "workdir", "session_id")} == {
        "cmd": "string",
        "workdir": "string",
        "session_id": "string",
    }
    assert shown["additionalProperties"] is False
    assert set(shown["required"]) == set(shown["properties"])
    assert set(json.loads(json.dumps(without))["properties"]) == {"cmd", "workdir", "timeout_seconds"}


@pytest.mark.spec("XT-09")
def test_a_session_without_shells_is_decoded_and_ignored(make_bench: MakeBench) -> None:
    bench = make_bench(shells=False)
    assert "exit code: 0" in bench.call("exec_command", cmd="x=1", session_id="s")
    assert "[]" in bench.call("exec_command", cmd="echo [$x]", session_id="s")
    assert bench.box.shells() == []
    assert "BadArguments" in bench.call("exec_command", cmd="ls", session_id=42)


@pytest.mark.spec("EX-11", "EX-12")
def test_a_command_gives_its_code_its_streams_and_facts(bench: Bench) -> None:
    assert "exec_command" in bench.tools
    result = bench.result("exec_command", cmd="echo out; echo err >&2; exit 3")
    assert result.text == "exit code: 3\nstdout:\nout\nstderr:\nerr"
    assert not result.is_error
    assert result.details is not None
    assert result.details["command"] == "echo out; echo err >&2; exit 3"
    assert (result.details["exit_code"], result.details["timed_out"]) == (3, False)
    assert result.details["session_id"] == ""


@pytest.mark.spec("EX-14")
def test_a_failing_command_and_a_timeout_are_results(bench: Bench) -> None:
    assert not bench.result("exec_command", cmd="false").is_error
    late = bench.result("exec_command", cmd="echo early; sleep 60", timeout_seconds=0.3)
    assert not late.is_error
    assert late.text.startswith("timed out after 0.3 s; the command was killed\nexit code: ")
    assert "early" in late.text
    assert late.details is not None and late.details["timed_out"] is True


@pytest.mark.spec("XT-05")
@pytest.mark.parametrize("cmd", ["true", "# only a comment", "cd /", ":"])
@pytest.mark.parametrize("session", ["", "s"])
def test_a_command_that_says_nothing_is_a_success_in_words(bench: Bench, cmd: str, session: str) -> None:
    text = bench.call("exec_command", cmd=cmd, session_id=session)
    assert text.startswith("exit code: 0\n")
    assert text.endswith("(no output)")


@pytest.mark.spec("EX-10")
def test_a_workdir_is_where_all_of_the_command_runs(bench: Bench, tmp_path: Path) -> None:
    for name in ["-", "-P", "~", "with 'quotes' and \"more\"", "$HOME"]:
        (tmp_path / name).mkdir()
        for session in ["", "s"]:
            bench.call("exec_command", cmd=f"cd {tmp_path}", session_id="s")
            text = bench.call("exec_command", cmd="true; pwd; false || pwd", workdir=name, session_id=session)
            assert text.count(f"{tmp_path}/{name}\n") + text.endswith(f"{tmp_path}/{name}") >= 2


@pytest.mark.spec("EX-10")
@pytest.mark.parametrize("session", ["", "s"])
@pytest.mark.parametrize("cmd", ["touch ran; touch ran2", "false || touch ran", "true & touch ran"])
def test_nothing_runs_if_the_workdir_is_not_there(
    bench: Bench, tmp_path: Path, cmd: str, session: str
) -> None:
    text = bench.call("exec_command", cmd=cmd, workdir="missing", session_id=session)
    assert "missing" in text
    assert "exit code: 0" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("XT-10")
def test_a_session_keeps_its_state_and_others_do_not_share_it(bench: Bench) -> None:
    bench.call("exec_command", cmd="cd /tmp; X=1; f() { echo f-$X; }", session_id="a")
    assert "f-1" in bench.call("exec_command", cmd="f; pwd", session_id="a")
    assert "[]" in bench.call("exec_command", cmd="echo [$X]", session_id="b")
    assert [shell.name for shell in bench.box.shells()] == ["a", "b"]


@pytest.mark.spec("XT-10")
def test_a_session_that_ended_says_so_with_its_code(bench: Bench) -> None:
    text = bench.call("exec_command", cmd="exit 7", session_id="s")
    assert text.startswith("exit code: 7\n")
    assert "has ended" in text
    assert "exit code: 0" in bench.call("exec_command", cmd="true", session_id="s")


@pytest.mark.spec("XT-10")
def test_a_session_is_usable_after_a_timeout(bench: Bench) -> None:
    text = bench.call("exec_command", cmd="sleep 60", session_id="s", timeout_seconds=0.3)
    assert text.startswith("timed out after 0.3 s")
    assert "again" in bench.call("exec_command", cmd="echo again", session_id="s")


@pytest.mark.spec("XT-11")
def test_binary_output_reaches_the_model_as_clean_text(bench: Bench) -> None:
    text = bench.call(
        "exec_command", cmd="printf 'a\\000b\\377\\033[31mred\\033[0m\\007\\n'; head -c 4096 /bin/ls"
    )
    assert "a\ufffdb\ufffdred" in text
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
    text.encode()


@pytest.mark.spec("XT-11")
def test_a_long_command_and_long_output_are_no_problem(bench: Bench) -> None:
    text = bench.call("exec_command", cmd=": " + "x" * 200_000)
    assert text == "exit code: 0\n(no output)"
    flood = bench.call("exec_command", cmd="seq 1 200000; echo LAST")
    assert flood.endswith("LAST")
    assert len(flood.encode()) < 10_000
    assert "bytes dropped" in flood


@pytest.mark.spec("XT-12")
def test_progress_comes_in_whole_lines_and_the_rest_at_the_end(bench: Bench) -> None:
    bench.call("exec_command", cmd="printf 'one\\ntw'; sleep 0.1; printf 'o\\nrest'")
    assert "".join(bench.seen) == "one\ntwo\nrest"
    assert all(piece.endswith("\n") for piece in bench.seen[:-1])


@pytest.mark.spec("XT-12")
def test_progress_keeps_characters_whole_and_both_streams_apart() -> None:
    seen: list[str] = []
    progress = LineProgress(seen.append)
    data = "漢字\n".encode()
    for byte in data:
        progress("stdout", bytes([byte]))
        progress("stderr", b"e")
    progress.flush()
    assert seen == ["漢字\n", "e" * len(data)]


@pytest.mark.spec("XT-12")
def test_progress_without_line_ends_is_not_kept_for_ever() -> None:
    seen: list[str] = []
    progress = LineProgress(seen.append)
    for _ in range(100):
        progress("stdout", b"x" * 1000)
    assert sum(map(len, seen)) >= 90_000
    progress.flush()
    assert sum(map(len, seen)) == 100_000


@pytest.mark.spec("EX-15")
def test_a_cancelled_call_has_no_result(bench: Bench) -> None:
    timer = threading.Timer(0.3, bench.cancelled.set)
    timer.start()
    with pytest.raises(ToolFailed, match="cancelled"):
        bench.result("exec_command", cmd="echo out; sleep 60", timeout_seconds=30)
    timer.join(5)


@pytest.mark.spec("EX-14", "XT-13")
@pytest.mark.parametrize("session", ["", "s"])
def test_a_place_that_fails_is_never_shown_as_output(bench: Bench, session: str) -> None:
    bench.box.close()
    with pytest.raises(ToolFailed, match="the sandbox is unavailable"):
        bench.result("exec_command", cmd="echo hi", session_id=session)


@pytest.mark.spec("EX-01", "EX-04", "XT-14")
def test_a_refused_command_is_a_text_with_the_rule_and_leaves_no_trace(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench(Policy(rules=(Rule(decision="deny", pattern="touch *"),)))
    tool = bench.tools["exec_command"]
    assert tool.check is not None
    verdict = tool.check(tool.parse('{"cmd": "touch x"}'))
    assert verdict.decision == "deny"
    result = bench.result("exec_command", cmd="touch x")
    assert "deny touch *" in result.text and "`touch x`" in result.text
    assert result.details is not None and result.details["refused"] is True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("EX-02", "AR-07")
def test_an_unreadable_call_reaches_neither_policy_nor_person(bench: Bench) -> None:
    tool = bench.tools["exec_command"]
    with pytest.raises(BadArguments):
        tool.parse('{"cmd": 5}')
    assert "BadArguments" in bench.call("exec_command", cmd=5)


@pytest.mark.spec("XT-15")
def test_who_decides_where_the_policy_says_nothing(make_bench: MakeBench) -> None:
    def decided(tool_name: str, text: str, **options: object) -> str:
        tool = make_bench(**options).tools[tool_name]
        assert tool.check is not None
        return tool.check(tool.parse(text)).decision

    allows_ls = Policy(rules=(Rule(decision="allow", pattern="ls*"),))
    write = '{"path": "a", "content": ""}'
    assert decided("exec_command", '{"cmd": "make"}') == "allow"
    assert decided("exec_command", '{"cmd": "make"}', ask_by_default=True) == "ask"
    assert decided("exec_command", '{"cmd": "ls"}', policy=allows_ls, ask_by_default=True) == "allow"
    assert decided("write_file", write) == "allow"
    assert decided("write_file", write, ask_by_default=True) == "ask"
    assert decided("read_file", '{"path": "a"}', ask_by_default=True) == "allow"
    assert decided("list_files", '{"path": ""}', ask_by_default=True) == "allow"


@pytest.mark.spec("PO-19")
def test_the_policy_knows_that_a_call_runs_elsewhere(make_bench: MakeBench) -> None:
    tool = make_bench(Policy(rules=(Rule(decision="allow", pattern="./run.sh"),))).tools["exec_command"]
    assert tool.check is not None
    for text, wanted in [
        ('{"cmd": "./run.sh"}', "allow"),
        ('{"cmd": "./run.sh", "workdir": "/evil"}', "ask"),
        ('{"cmd": "./run.sh", "session_id": "s"}', "ask"),
    ]:
        assert tool.check(tool.parse(text)).decision == wanted


@pytest.mark.spec("XT-14")
def test_a_person_is_shown_the_command_without_control_sequences(bench: Bench) -> None:
    tool = bench.tools["exec_command"]
    assert tool.preview is not None
    shown = tool.preview(tool.parse('{"cmd": "rm \\u001b[8mx", "workdir": "d", "session_id": "s"}'))
    assert shown == "rm \ufffd[8mx\nin d\nshell s"
    hidden = tool.preview(tool.parse('{"cmd": "rm -rf ~\\recho hello"}'))
    assert hidden == "rm -rf ~\ufffdecho hello"


@pytest.mark.spec("EX-09")
def test_calls_in_parallel_share_the_policy(box: LocalSandbox, make_bench: MakeBench) -> None:
    bench = make_bench(Policy(rules=(Rule(decision="deny", pattern="rm *"),)))
    tool = bench.tools["exec_command"]
    texts: list[str] = []

    def work(n: int) -> None:
        context = ToolContext(
            call_id=str(n), tool_name="exec_command", cancelled=threading.Event(), emit=lambda _: None
        )
        made = tool.run(context, tool.parse(json.dumps({"cmd": f"rm {n}" if n % 2 else f"echo {n}"})))
        texts.append(made.text)  # type: ignore[union-attr]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sum("is refused" in text for text in texts) == 4
    assert sum("exit code: 0" in text for text in texts) == 4
