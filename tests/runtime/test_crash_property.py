"""Random stories, cut at random points: what must hold whatever happens and whenever the process ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_kit import Bench, fails, outputs

from runtime import (
    ExecOptions,
    ItemKind,
    MemoryJournal,
    ObserveOptions,
    RunOptions,
    RunResult,
    RunState,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    ToolContext,
    resume_run_sync,
    run_sync,
    state_from_records,
)
from runtime.history import INTERRUPTED_TEXT

KINDS = ["allow", "ask-yes", "ask-no", "deny", "fail", "crash", "unknown", "malformed"]

turns = st.lists(
    st.tuples(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
)


def crashes(context: ToolContext) -> str:
    """An act that crashes."""
    raise RuntimeError("boom")


def tell(story: Sequence[tuple[list[str], bool, bool]]) -> list[Scripted]:
    """The model's side of a story."""
    answers = []
    for turn, (made, with_text, truncated) in enumerate(story):
        calls = []
        for number, kind in enumerate(made):
            name = "no_such_tool" if kind == "unknown" else "exec_command"
            arguments = '{"cmd"' if kind == "malformed" else json.dumps({"cmd": f"{kind} {turn} {number}"})
            calls.append(ScriptedCall(name=name, arguments=arguments))
        cut = {"status": "incomplete", "incomplete_reason": "max_output_tokens"} if truncated else {}
        answers.append(Scripted(text="hm" if with_text else None, calls=tuple(calls), **cut))  # type: ignore[arg-type]
    return [*answers, Scripted(text="done")]


def bench_for(story: Sequence[tuple[list[str], bool, bool]], sequential: bool) -> Bench:
    """The tool's side of a story."""
    bench = Bench(sequential=sequential)
    for turn, (made, _, _) in enumerate(story):
        for number, kind in enumerate(made):
            command = f"{kind} {turn} {number}"
            if kind.startswith("ask"):
                bench.ask.add(command)
            elif kind == "deny":
                bench.deny.add(command)
            elif kind in ("fail", "crash"):
                bench.acts[command] = fails if kind == "fail" else crashes
    return bench


class Player:
    """Plays a story to its end, deciding as each call's name says."""

    def __init__(self, story: Sequence[tuple[list[str], bool, bool]], sequential: bool) -> None:
        self.bench = bench_for(story, sequential)
        self.answers = tell(story)
        self.journal = MemoryJournal()

    def play(self, state: RunState | None, through_json: bool) -> RunResult:
        options = RunOptions(
            observe=ObserveOptions(journal=self.journal),
            exec=ExecOptions(max_turns=-1, max_consecutive_error_turns=-1),
        )
        agent = self.bench.agent(ScriptedModel(self.answers, follow=True))
        result = run_sync(agent, "go", options) if state is None else resume_run_sync(agent, state, options)
        while result.interruptions:
            state = RunState.from_json(result.state.to_json()) if through_json else result.state
            for waiting in result.interruptions:
                if "ask-yes" in waiting.arguments:
                    state.approve(waiting)
                else:
                    state.reject(waiting, f"not {waiting.call_id}")
            result = resume_run_sync(agent, state, options)
        return result


def check(result: RunResult, player: Player) -> None:
    """What holds at the end of every story."""
    assert result.final_output == "done"
    said = outputs(result.items)
    made = [item.call for item in result.items if item.kind == ItemKind.TOOL_CALL]
    assert list(said) == [call.call_id for call in made]
    assert len(player.bench.ran) == len(set(player.bench.ran))
    assert not any(command.startswith(("deny", "ask-no")) for command in player.bench.ran)
    for call in made:
        if "ask-no" in call.arguments and said[call.call_id].startswith("not "):
            assert said[call.call_id] == f"not {call.call_id}"
    assert state_from_records(player.journal.records).to_json() == result.state.to_json()


@pytest.mark.spec("RX-25", "RX-26", "RX-27", "SE-02", "RS-02")
@settings(max_examples=60, deadline=None)
@given(turns, st.booleans(), st.booleans(), st.data())
def test_whatever_the_story_and_wherever_it_is_cut_every_call_has_one_output_and_runs_at_most_once(
    story: list[tuple[list[str], bool, bool]], sequential: bool, through_json: bool, data: st.DataObject
) -> None:
    first = Player(story, sequential)
    whole = first.play(None, through_json)
    check(whole, first)
    length = data.draw(st.integers(1, len(first.journal.records)), label="records kept")
    kept: list[Mapping[str, Any]] = first.journal.records[:length]
    begun = {record["call_id"] for record in kept if record["record"] == "call_started"}
    done = {
        json.loads(r["item"]["raw"])["call_id"]: r["item"]["raw"] for r in kept if r["record"] == "output"
    }
    second = Player(story, sequential)
    second.journal.records = list(kept)
    result = second.play(state_from_records(kept), through_json)
    check(result, second)
    said = outputs(result.items)
    commands = {item.call_id: item.call.arguments for item in result.items if item.kind == ItemKind.TOOL_CALL}
    for call in begun:
        assert json.loads(commands[call])["cmd"] not in second.bench.ran
        assert call in done or said[call] == INTERRUPTED_TEXT
    for call, raw in done.items():
        assert said[call] == json.loads(raw)["output"]
    whole_said = outputs(whole.items)
    assert {
        call: text for call, text in said.items() if text != INTERRUPTED_TEXT
    }.items() <= whole_said.items()


INTERRUPTED = """
import sys, threading
sys.path[:0] = [sys.argv[1]]
from runtime import run_sync
from runtime_kit import Bench, calls, script

def wait(context):
    print("started", flush=True)
    assert context.cancelled.wait(20)
    print("told", flush=True)
    return "late"

try:
    run_sync(Bench(acts={"wait": wait}).agent(script(calls("wait"), "done")), "go")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.spec("RX-63")
def test_ctrl_c_in_a_blocking_run_tells_the_tool_and_is_raised() -> None:
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, tests], stdout=subprocess.PIPE, text=True, cwd=tests.parent
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "started\n"
        os.kill(child.pid, signal.SIGINT)
        assert child.stdout.read() == "told\ninterrupted\n"
    assert child.returncode == 0
