"""The journal: what is on the disk when a run is killed, and what a resume makes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_kit import Bench, calls, outputs, play_on, script, shape, wait_for

from runtime import (
    Agent,
    ExecOptions,
    FileJournal,
    ItemKind,
    JournalError,
    JournalInUse,
    MemoryJournal,
    ObserveOptions,
    RunError,
    RunOptions,
    RunState,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    ToolContext,
    UserError,
    code_of,
    read_journal,
    resume_run_sync,
    run,
    run_sync,
    state_from_records,
)
from runtime.history import INTERRUPTED_TEXT

Records = list[Mapping[str, Any]]

STORY = [
    Scripted(text="look", calls=calls("ls", "cat a").calls),
    calls("make", "rm x", "test"),
    Scripted(calls=calls("again").calls),
    Scripted(text="done"),
]


def follow(bench: Bench) -> Agent:
    """An agent whose model takes up the story wherever the conversation stands."""
    return bench.agent(ScriptedModel(STORY, follow=True))


def told(bench: Bench) -> tuple[MemoryJournal, Bench]:
    """The whole story, run once with one approval on the way."""
    journal = MemoryJournal()
    options = RunOptions(observe=ObserveOptions(journal=journal))
    paused = run_sync(follow(bench), "go", options)
    state = state_from_records(journal.records)
    state.approve(paused.interruptions[0])
    assert resume_run_sync(follow(bench), state, options).final_output == "done"
    return journal, bench


def kinds(records: Records) -> list[str]:
    """The kinds of records."""
    return [str(record["record"]) for record in records]


@pytest.mark.spec("RX-24", "SE-02")
def test_records_are_written_in_the_order_that_makes_a_crash_safe() -> None:
    bench = Bench(ask={"rm x"}, sequential=True)
    journal, _ = told(bench)
    assert kinds(journal.records) == [
        "state",
        "response",
        *["call_started", "output"] * 2,
        "response",
        "paused",
        "resumed",
        *["call_started", "output"] * 3,
        "response",
        *["call_started", "output"],
        "response",
        "completed",
    ]


@pytest.mark.spec("RB-08", "RX-25", "RX-26")
@pytest.mark.parametrize("sequential", [True, False])
def test_a_run_that_is_killed_after_any_record_goes_on_without_running_anything_twice(
    sequential: bool,
) -> None:
    journal, _ = told(Bench(ask={"rm x"}, sequential=sequential))
    for length in range(1, len(journal.records) + 1):
        before: Records = journal.records[:length]
        begun = [record["call_id"] for record in before if record["record"] == "call_started"]
        done = [record["item"]["raw"] for record in before if record["record"] == "output"]
        bench = Bench(ask={"rm x"}, sequential=sequential)
        again = MemoryJournal()
        again.records = list(before)
        state = state_from_records(before)
        options = RunOptions(observe=ObserveOptions(journal=again))
        result = resume_run_sync(follow(bench), state, options)
        while result.interruptions:
            assert [waiting.arguments for waiting in result.interruptions] == ['{"cmd":"rm x"}']
            result.state.approve(result.interruptions[0])
            result = resume_run_sync(follow(bench), result.state, options)
        assert result.final_output == "done"
        said = outputs(result.items)
        made = [item.call_id for item in result.items if item.kind == ItemKind.TOOL_CALL]
        assert (
            list(said)
            == made
            == [f"call_{t}_{n}" for t, n in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0))]
        )
        ran_again = {item.call.arguments: item.call_id for item in result.items if item.call_id}
        assert not {ran_again[json.dumps({"cmd": cmd}, separators=(",", ":"))] for cmd in bench.ran} & set(
            begun
        )
        assert len(bench.ran) == len(set(bench.ran)) == 6 - len(begun)
        kept = [item.raw for item in result.items if item.kind == ItemKind.TOOL_OUTPUT]
        assert all(raw in kept for raw in done)
        unknown = [call for call in begun if call not in {json.loads(raw)["call_id"] for raw in done}]
        assert all(said[call] == INTERRUPTED_TEXT for call in unknown)
        rebuilt = state_from_records(again.records)
        assert [item.raw for item in rebuilt.items] == [item.raw for item in result.items]
        assert rebuilt.completed


@pytest.mark.spec("RS-02", "RX-27")
def test_the_records_add_up_to_the_live_state_at_every_pause_and_at_the_end() -> None:
    bench = Bench(ask={"rm x"}, deny={"cat a"})
    journal = MemoryJournal()
    options = RunOptions(exec=ExecOptions(environment_id="here"), observe=ObserveOptions(journal=journal))
    result = run_sync(follow(bench), "go", options)
    assert state_from_records(journal.records).to_json() == result.state.to_json()
    result.state.reject(result.interruptions[0], "no")
    result = resume_run_sync(follow(bench), state_from_records(journal.records), options)
    assert state_from_records(journal.records).to_json() == result.state.to_json()
    result.state.reject(result.interruptions[0], "no")
    result = resume_run_sync(follow(bench), result.state, options, input="and then?")
    assert state_from_records(journal.records).to_json() == result.state.to_json()


@pytest.mark.spec("RX-28")
def test_a_journal_that_begins_in_the_middle_of_a_run_is_whole() -> None:
    bench = Bench(ask={"rm x"})
    paused = run_sync(follow(bench), "go")
    paused.state.approve(paused.interruptions[0])
    journal = MemoryJournal()
    result = resume_run_sync(
        follow(bench),
        RunState.from_json(paused.state.to_json()),
        RunOptions(observe=ObserveOptions(journal=journal)),
    )
    assert state_from_records(journal.records).to_json() == result.state.to_json()


@pytest.mark.spec("RX-28")
def test_a_journal_that_holds_the_past_of_a_run_is_not_given_it_again() -> None:
    bench = Bench(ask={"rm x"})
    first, second = MemoryJournal(), MemoryJournal()
    paused = run_sync(follow(bench), "go", RunOptions(observe=ObserveOptions(journal=first)))
    paused.state.approve(paused.interruptions[0])
    for journal in (first, second):
        result = resume_run_sync(
            follow(bench), paused.state, RunOptions(observe=ObserveOptions(journal=journal))
        )
        assert state_from_records(journal.records).to_json() == result.state.to_json()
    assert kinds(first.records).count("state") == kinds(second.records).count("state") == 1


@pytest.mark.spec("RB-08")
def test_orphans_are_dropped_duplicates_reduced_to_the_first_and_a_second_look_changes_nothing() -> None:
    journal, _ = told(Bench(ask={"rm x"}, sequential=True))
    records: Records = []
    for record in journal.records:
        records.append(record)
        if record["record"] == "output":
            other = json.loads(json.dumps(record))
            other["item"]["raw"] = other["item"]["raw"].replace("ran ", "RAN TWICE ")
            orphan = json.loads(json.dumps(record).replace("call_", "orphan_"))
            records += [other, orphan]
    state = state_from_records(records)
    assert shape(state.items) == shape(state_from_records(journal.records).items)
    assert "RAN TWICE" not in state.to_json()
    kept = RunState.from_json(state.to_json())
    assert resume_run_sync(follow(Bench()), kept).items == state.items


@pytest.mark.spec("RB-08")
def test_an_orphan_does_not_answer_a_later_call_that_has_its_id() -> None:
    bench = Bench()
    journal = MemoryJournal()
    again = Scripted(calls=(ScriptedCall(name="exec_command", arguments={"cmd": "second"}, id="call_0_0"),))
    agent = bench.agent(script(calls("first"), again, "done"))
    run_sync(agent, "go", RunOptions(observe=ObserveOptions(journal=journal)))
    begun = [place for place, record in enumerate(journal.records) if record["record"] == "call_started"]
    answered = next(record for record in journal.records if record["record"] == "output")
    records: Records = [*journal.records[: begun[1] - 1], answered, journal.records[begun[1] - 1]]
    state = state_from_records(records)
    assert state.finished == {} and state.started == []
    bench.ran.clear()
    result = play_on("blocking", bench.agent(script("done")), state)
    assert bench.ran == ["second"] and result.final_output == "done"


@pytest.mark.spec("RX-29")
def test_a_missing_output_in_the_middle_of_a_journal_is_made_up_next_to_its_call() -> None:
    journal, _ = told(Bench(ask={"rm x"}, sequential=True))
    lost = [r for r in journal.records if r["record"] != "output" or "call_0_1" not in str(r["item"])]
    state = state_from_records(lost)
    assert outputs(state.items)["call_0_1"] == INTERRUPTED_TEXT
    assert shape(state.items) == shape(state_from_records(journal.records).items)


@pytest.mark.spec("RX-30")
def test_records_of_other_kinds_are_left_to_their_writers_and_broken_ones_are_named() -> None:
    journal, _ = told(Bench(ask={"rm x"}))
    mine: Records = [{"record": "cli", "task": "go"}, *journal.records, {"record": "cli", "note": 1}]
    assert state_from_records(mine).completed
    with pytest.raises(JournalError, match="no run"):
        state_from_records([{"record": "cli"}])
    with pytest.raises(JournalError, match="record 2"):
        state_from_records([journal.records[0], {"record": "response", "items": 5}])
    with pytest.raises(UserError, match="newer"):
        state_from_records([{**journal.records[0], "schema": "1.99"}])


@pytest.mark.spec("RX-31")
def test_a_journal_that_cannot_be_written_ends_the_run_before_the_call_that_it_would_announce() -> None:
    class Full(MemoryJournal):
        def append(self, record: Mapping[str, Any]) -> None:
            if record["record"] == "call_started":
                raise JournalError("no space left on device")
            super().append(record)

    bench = Bench()
    with pytest.raises(RunError) as failed:
        run_sync(
            bench.agent(script(calls("a", "b"), "done")),
            "go",
            RunOptions(observe=ObserveOptions(journal=Full())),
        )
    assert bench.ran == []
    assert code_of(failed.value) == "journal" and isinstance(failed.value.__cause__, JournalError)
    assert shape(failed.value.result.items)[-1] == "tool_call call_0_1"


@pytest.mark.spec("RB-71", "RX-66")
def test_an_answer_is_not_lost_when_the_journal_does_not_take_it() -> None:
    class Full(MemoryJournal):
        def append(self, record: Mapping[str, Any]) -> None:
            if record["record"] == "completed":
                raise JournalError("no space left on device")
            super().append(record)

    with pytest.raises(RunError, match="no space left") as failed:
        run_sync(Bench().agent(script("done")), "go", RunOptions(observe=ObserveOptions(journal=Full())))
    assert failed.value.result.final_output == "done"
    assert code_of(failed.value) == "journal"


@pytest.mark.spec("RX-32")
def test_a_run_that_failed_is_resumed_where_it_failed() -> None:
    bench = Bench()
    journal = MemoryJournal()
    with pytest.raises(RunError):
        run_sync(bench.agent(script(calls("ls"))), "go", RunOptions(observe=ObserveOptions(journal=journal)))
    assert kinds(journal.records)[-1] == "failed"
    state = state_from_records(journal.records)
    result = play_on("blocking", bench.agent(script("done")), state)
    assert result.final_output == "done" and bench.ran == ["ls"]


@pytest.mark.spec("RX-33")
def test_a_file_keeps_records_for_its_owner_alone_and_gives_them_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        run_sync(
            Bench().agent(script(calls("ls"), "done")),
            "go",
            RunOptions(observe=ObserveOptions(journal=journal)),
        )
        assert kinds(list(read_journal(path).records))[0] == "state"
    assert path.stat().st_mode & 0o777 == 0o600
    contents = read_journal(path)
    assert contents.notice == ""
    assert state_from_records(contents.records).completed


@pytest.mark.spec("RB-71", "RX-34")
def test_a_last_line_that_was_torn_anywhere_is_dropped_with_a_notice_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with FileJournal(path) as journal:
        journal.append({"record": "a"})
        journal.append({"record": "b", "text": "漢字"})
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first + 1, len(whole)):
        path.write_bytes(whole[:cut])
        contents = read_journal(path)
        assert kinds(list(contents.records)) == ["a"] and str(cut - first) in contents.notice
        assert path.read_bytes() == whole[:cut]
        with FileJournal(path) as journal:
            assert read_journal(path) == contents
            journal.append({"record": "c"})
        again = read_journal(path)
        assert kinds(list(again.records)) == ["a", "c"] and again.notice == ""


@pytest.mark.spec("RB-71")
def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"record": "a"}\n{"rec\n{"record": "c"}\n')
    with pytest.raises(JournalError, match="line 2"):
        read_journal(path)
    with pytest.raises(JournalError, match="cannot read"):
        read_journal(tmp_path / "nothing")


@pytest.mark.spec("RB-71", "RX-35")
def test_a_second_writer_is_told_who_holds_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    code = (
        "import sys\nfrom runtime import FileJournal\n"
        "journal = FileJournal(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(JournalInUse, match=f"in use by pid {holder.pid}") as refused:
            FileJournal(path)
        assert refused.value.pid == holder.pid
        holder.kill()
    with FileJournal(path) as journal, pytest.raises(JournalInUse, match=f"pid {os.getpid()}"):
        journal.append({"record": "a"})
        FileJournal(path)


@pytest.mark.spec("RX-36")
def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\nfrom runtime import FileJournal, JournalError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "journal = FileJournal(sys.argv[1])\njournal.append({'record': 'a'})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n    journal.append({'record': 'b' * 200})\n"
        "except JournalError as error:\n    print('refused')\n"
        "journal.append({'record': 'c'})\n"
    )
    path = tmp_path / "run.jsonl"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=30)
    assert done.stdout == "refused\n", done.stderr
    assert kinds(list(read_journal(path).records)) == ["a", "c"]


@pytest.mark.spec("RB-41", "RX-37")
@settings(max_examples=30)
@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_no_nul_and_no_lone_surrogate_reaches_a_journal(text: str) -> None:
    journal = MemoryJournal()
    bench = Bench(acts={"ls": lambda context: text})
    run_sync(
        bench.agent(script(calls("ls"), "done")), text, RunOptions(observe=ObserveOptions(journal=journal))
    )
    stored = json.dumps(journal.records, ensure_ascii=False)
    stored.encode("utf-8")
    assert "\\u0000" not in stored
    assert state_from_records(journal.records).completed


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
from runtime import FileJournal, ObserveOptions, RunOptions, Scripted, ScriptedModel, run_sync
from runtime_kit import Bench, calls

def die(context):
    Path(sys.argv[1] + ".effect").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

bench = Bench(acts={"die": die})
bench.sequential = True
model = ScriptedModel([calls("ls", "die", "make"), Scripted(text="done")], follow=True)
with FileJournal(sys.argv[1]) as journal:
    run_sync(bench.agent(model), "go", RunOptions(observe=ObserveOptions(journal=journal)))
"""


@pytest.mark.spec("RB-08", "RX-25")
def test_kill_9_in_the_middle_of_a_command_then_resume(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", KILLED, path, tests], timeout=60, cwd=tests.parent)
    assert done.returncode == -signal.SIGKILL
    assert Path(f"{path}.effect").read_text("utf-8") == "half"
    bench = Bench()
    model = ScriptedModel([calls("ls", "die", "make"), Scripted(text="done")], follow=True)
    with FileJournal(path) as journal:
        state = state_from_records(read_journal(path).records)
        result = resume_run_sync(
            bench.agent(model), state, RunOptions(observe=ObserveOptions(journal=journal))
        )
    assert result.final_output == "done"
    assert bench.ran == ["make"]
    assert list(outputs(result.items).values()) == ["ran ls", INTERRUPTED_TEXT, "ran make"]


@pytest.mark.spec("RX-38")
def test_a_call_that_was_cancelled_is_unknown_to_a_resume_though_it_still_returned() -> None:
    journal = MemoryJournal()
    bench = Bench()
    stream, control = run(
        bench.agent(script(calls("slow"), "done")), "go", RunOptions(observe=ObserveOptions(journal=journal))
    )
    entered = threading.Event()

    def slow(context: ToolContext) -> str:
        entered.set()
        wait_for(context.cancelled)
        return "late"

    bench.acts["slow"] = slow

    def cancel() -> None:
        wait_for(entered)
        control.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(RunError):
        asyncio.run(stream.result())
    canceller.join(5)
    assert kinds(journal.records)[-2:] == ["call_started", "failed"]
    result = play_on("blocking", bench.agent(script("done")), state_from_records(journal.records))
    assert outputs(result.items) == {"call_0_0": INTERRUPTED_TEXT}
