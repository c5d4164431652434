"""The calls of one answer: who runs, who waits, who is answered without running."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_kit import Bench, How, calls, fails, outputs, play, read_events, script, shape, wait_for, wire

from runtime import (
    Agent,
    ExecOptions,
    ItemKind,
    RunCompleted,
    RunEvent,
    RunOptions,
    Scripted,
    ScriptedCall,
    Tool,
    ToolContext,
    ToolFinished,
    ToolProgress,
    ToolResult,
    ToolStarted,
    Verdict,
    run,
    run_sync,
)
from runtime.live import MAX_UNREAD_PROGRESS

BOTH = pytest.mark.parametrize("how", ["read", "blocking"])


@pytest.mark.spec("SE-05", "RI-07", "RI-10")
def test_calls_run_beside_each_other_and_their_outputs_stand_in_the_order_asked() -> None:
    first_may_end = threading.Event()

    def first(context: ToolContext) -> str:
        wait_for(first_may_end)
        return "first"

    async def scenario() -> list[RunEvent]:
        bench = Bench(acts={"a": first, "b": lambda context: "second"})
        stream, _ = run(bench.agent(script(calls("a", "b"), "done")), "go")
        events = []
        async for event in stream:
            events.append(event)
            if isinstance(event, ToolFinished):
                first_may_end.set()
        return events

    events = asyncio.run(scenario())
    finished = [event.item.output for event in events if isinstance(event, ToolFinished)]
    assert finished == ["second", "first"]
    last = events[-1]
    assert isinstance(last, RunCompleted)
    kept = [item.output for item in last.result.items if item.kind == ItemKind.TOOL_OUTPUT]
    assert kept == ["first", "second"]


@pytest.mark.spec("SE-14", "VL-05")
def test_one_sequential_tool_makes_the_whole_batch_run_call_by_call() -> None:
    running: list[str] = []
    most = [0]

    def act(context: ToolContext) -> str:
        running.append(context.call_id)
        most[0] = max(most[0], len(running))
        running.remove(context.call_id)
        return "ok"

    bench = Bench(acts={"a": act, "b": act, "c": act}, sequential=True)
    other = Bench(acts={"x": act, "y": act})
    made = [
        ("exec_command", "a"),
        ("other", "x"),
        ("exec_command", "b"),
        ("other", "y"),
        ("exec_command", "c"),
    ]
    answer = Scripted(calls=tuple(ScriptedCall(name=name, arguments={"cmd": cmd}) for name, cmd in made))
    agent = Agent(name="t", tools=[bench.tool(), other.tool("other")], model=script(answer, "done"))
    stream, _ = run(agent, "go")
    order = [
        (type(event).__name__, event.call_id)
        for event in read_events(stream)
        if isinstance(event, ToolStarted | ToolFinished)
    ]
    assert order == [
        (kind, f"call_0_{number}") for number in range(5) for kind in ("ToolStarted", "ToolFinished")
    ]
    assert most[0] == 1


@pytest.mark.spec("SE-10")
def test_the_number_of_calls_at_once_can_be_limited() -> None:
    lock = threading.Lock()
    running, most = [0], [0]
    pair = threading.Barrier(2)

    def act(context: ToolContext) -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        pair.wait(5)
        with lock:
            running[0] -= 1
        return "ok"

    commands = [f"c{number}" for number in range(6)]
    bench = Bench(acts=dict.fromkeys(commands, act))
    result = run_sync(
        bench.agent(script(calls(*commands), "done")),
        "go",
        RunOptions(exec=ExecOptions(max_tool_concurrency=2)),
    )
    assert result.final_output == "done"
    assert most[0] == 2


@pytest.mark.spec("RB-40", "SE-07")
@BOTH
@pytest.mark.parametrize(
    "asked", ["bash", "functions.exec_command", "exec-command", "Exec_Command", "x" * 5000]
)
def test_an_unknown_tool_is_answered_with_the_names_that_exist_and_the_other_calls_run(
    how: How, asked: str
) -> None:
    bench, other = Bench(), Bench()
    answer = Scripted(
        calls=(ScriptedCall(name=asked), ScriptedCall(name="exec_command", arguments={"cmd": "ls"}))
    )
    tools = [other.tool("another"), bench.tool()]
    model = script(answer, "done")
    result = play(how, Agent(name="t", tools=tools, model=model))
    assert result.final_output == "done" and bench.ran == ["ls"]
    said = outputs(result.items)["call_0_0"]
    assert "exec_command" in said and "another" in said and len(said) < 4096
    if asked not in ("bash", "x" * 5000):
        assert said.rindex("exec_command") < said.rindex("another")


@pytest.mark.spec("RB-26", "TL-10")
@BOTH
@pytest.mark.parametrize(
    "arguments",
    [
        '{"cmd": "ls"',
        "[1]",
        '"ls"',
        "null",
        "",
        '{"cmd": 5}',
        '{"cmd": null}',
        '{"cmd": "ls", "cmd": "rm"}',
        '{"cmd": NaN}',
        "{" * 100_000,
        "[" * 100_000,
        "junk " * 400_000,
        '{"cmd": "a\nb"}',
        '{"cmd": "ls",}',
        '"{\\"cmd\\": \\"ls\\"}"',
        '{"cmd": "\\ud800"}',
    ],
    ids=lambda text: text[:24],
)
def test_arguments_that_cannot_be_read_are_answered_briefly_and_never_run_or_shown_to_a_person(
    how: How, arguments: str
) -> None:
    bench = Bench(ask={"ls", "rm", "a\nb", "\ud800"})
    answer = Scripted(calls=(ScriptedCall(name="exec_command", arguments=arguments),))
    result = play(how, bench.agent(script(answer, "done")))
    assert result.final_output == "done"
    assert bench.ran == [] and result.interruptions == ()
    said = outputs(result.items)["call_0_0"]
    assert len(said.encode()) <= 1024
    said.encode("utf-8")


@pytest.mark.spec("RB-26")
def test_a_wrong_field_is_named() -> None:
    answer = Scripted(calls=(ScriptedCall(name="exec_command", arguments='{"cmd": 5}'),))
    result = run_sync(Bench().agent(script(answer, "done")), "go")
    assert "/cmd" in outputs(result.items)["call_0_0"]


@pytest.mark.spec("SC-04")
def test_arguments_that_are_too_many_are_dropped() -> None:
    bench = Bench()
    answer = Scripted(calls=(ScriptedCall(name="exec_command", arguments='{"cmd": "ls", "extra": 1}'),))
    run_sync(bench.agent(script(answer, "done")), "go")
    assert bench.ran == ["ls"]


@pytest.mark.spec("SE-11", "TL-07", "TL-09", "TX-07")
@BOTH
def test_a_tool_that_fails_or_crashes_gives_an_error_result_and_the_run_goes_on(how: How) -> None:
    def crashes(context: ToolContext) -> str:
        raise KeyError("oops")

    def answers_nonsense(context: ToolContext) -> Any:
        return 5

    bench = Bench(acts={"fail": fails, "crash": crashes, "nonsense": answers_nonsense})
    result = play(how, bench.agent(script(calls("fail", "crash", "nonsense", "ls"), "done")))
    answered = [item for item in result.items if item.kind == ItemKind.TOOL_OUTPUT]
    assert [item.is_error for item in answered] == [True, True, True, False]
    assert answered[0].output == "it does not work"
    assert "KeyError" in answered[1].output
    display = answered[1].display
    assert display is not None and display.details is not None
    assert "Traceback" in str(display.details["traceback"])


@pytest.mark.spec("RX-08")
def test_a_check_or_a_preview_that_crashes_lets_nothing_run_and_asks_nobody() -> None:
    def broken(arguments: object) -> Any:
        raise RuntimeError("the rules are broken")

    ran: list[str] = []

    def work(context: ToolContext, arguments: str) -> str:
        ran.append(arguments)
        return "ran"

    def tool(**hooks: Any) -> Tool[str]:
        return Tool(
            name="t",
            description="",
            parameters={},
            parse=str,
            run=work,
            **hooks,
        )

    asks = {"check": lambda arguments: Verdict("ask"), "preview": broken}
    for hooks in ({"check": broken}, asks):
        agent = Agent(
            name="a", tools=[tool(**hooks)], model=script(Scripted(calls=(ScriptedCall(name="t"),)), "done")
        )
        result = run_sync(agent, "go")
        assert ran == [] and "the rules are broken" in outputs(result.items)["call_0_0"]


@pytest.mark.spec("SE-11", "RX-13")
@pytest.mark.parametrize(
    "raised",
    [
        StopIteration("x"),
        StopAsyncIteration(),
        SystemExit(3),
        concurrent.futures.CancelledError(),
        ExceptionGroup("many", [ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["run", "async run", "check", "preview", "parse"])
def test_whatever_a_tool_raises_is_the_failure_of_its_call(where: str, raised: BaseException) -> None:
    def broken(*arguments: object) -> Any:
        raise raised

    async def broken_later(*arguments: object) -> Any:
        raise raised

    tool = Tool[str](
        name="t",
        description="",
        parameters={},
        parse=broken if where == "parse" else str,
        run=broken_later
        if where == "async run"
        else broken
        if where == "run"
        else lambda context, text: "ran",
        check=broken if where == "check" else lambda text: Verdict("ask" if where == "preview" else "allow"),
        preview=broken,
    )
    agent = Agent(name="a", tools=[tool], model=script(Scripted(calls=(ScriptedCall(name="t"),)), "done"))
    result = run_sync(agent, "go")
    assert result.final_output == "done"
    assert "crashed" in outputs(result.items)["call_0_0"]


@pytest.mark.spec("RX-08")
@pytest.mark.parametrize("verdict", [None, "allow", Verdict("maybe")])  # type: ignore[arg-type]
def test_a_check_that_gives_no_verdict_lets_nothing_run(verdict: Any) -> None:
    ran: list[str] = []

    def work(context: ToolContext, text: str) -> str:
        ran.append(text)
        return "ran"

    tool = Tool(name="t", description="", parameters={}, parse=str, run=work, check=lambda text: verdict)
    agent = Agent(name="a", tools=[tool], model=script(Scripted(calls=(ScriptedCall(name="t"),)), "done"))
    run_sync(agent, "go")
    assert ran == []


@pytest.mark.spec("RX-09")
@BOTH
def test_a_denied_call_is_refused_in_words_and_no_person_is_asked(how: How) -> None:
    bench = Bench(deny={"rm"})
    result = play(how, bench.agent(script(calls("rm", "ls"), "done")))
    assert bench.ran == ["ls"] and result.interruptions == ()
    assert "it is forbidden" in outputs(result.items)["call_0_0"]


@pytest.mark.spec("RX-10")
def test_the_policy_is_asked_again_right_before_a_call_runs() -> None:
    bench = Bench()
    bench.sequential = True

    def forbid_the_other(context: ToolContext) -> str:
        bench.deny.add("second")
        bench.ask.add("third")
        return "ok"

    bench.acts["first"] = forbid_the_other
    result = run_sync(bench.agent(script(calls("first", "second", "third"), "done")), "go")
    assert bench.ran == ["first"]
    said = outputs(result.items)
    assert "it is forbidden" in said["call_0_1"] and "approval" in said["call_0_2"]


@pytest.mark.spec("TX-01", "TX-02", "TX-08", "IT-06")
def test_what_is_for_people_never_reaches_the_model() -> None:
    def act(context: ToolContext) -> ToolResult:
        return ToolResult(text="short", details={"diff": "SECRET"}, title="Edit", summary="1 line")

    bench = Bench(acts={"edit": act})
    model = script(calls("edit"), "done")
    result = run_sync(bench.agent(model), "go")
    sent = str(wire(model.requests[1].items))
    assert "short" in sent and "SECRET" not in sent and "1 line" not in sent
    shown = next(item.display for item in result.items if item.kind == ItemKind.TOOL_OUTPUT)
    assert shown is not None and shown.details == {"diff": "SECRET"} and shown.title == "Edit"


@pytest.mark.spec("TL-06", "TX-04", "TF-03")
def test_an_empty_result_is_a_success_and_a_tool_is_adapted_by_copying_it() -> None:
    bench = Bench(acts={"true": lambda context: ToolResult(text="", details={})})
    tool = dataclasses.replace(bench.tool(), name="renamed")
    answer = Scripted(calls=(ScriptedCall(name="renamed", arguments={"cmd": "true"}),))
    result = run_sync(Agent(name="a", tools=[tool], model=script(answer, "done")), "go")
    output = result.items[2]
    assert (output.output, output.is_error, output.display) == ("", False, None)


@pytest.mark.spec("RB-41", "TL-01")
@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_a_tools_text_reaches_the_model_as_it_is_but_for_nul_and_lone_surrogates(text: str) -> None:
    async def act(context: ToolContext, arguments: str) -> str:
        return text

    tool = Tool(name="t", description="", parameters={}, parse=str, run=act)
    agent = Agent(name="a", tools=[tool], model=script(Scripted(calls=(ScriptedCall(name="t"),)), "done"))
    result = run_sync(agent, "go")
    output = outputs(result.items)["call_0_0"]
    output.encode("utf-8")
    assert "\0" not in output
    if "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        assert output == text


@pytest.mark.spec("PG-01", "PG-02", "PG-03", "PG-05")
def test_progress_reaches_the_reader_in_order_before_the_result_and_not_after_the_tool_returned() -> None:
    kept: list[ToolContext] = []

    def act(context: ToolContext) -> str:
        kept.append(context)
        for number in range(3 * MAX_UNREAD_PROGRESS):
            context.emit(str(number))
        return "done"

    model = script(calls("talk"), "done")
    stream, _ = run(Bench(acts={"talk": act}).agent(model), "go")
    events = read_events(stream)
    told = [event.text for event in events if isinstance(event, ToolProgress)]
    assert told == [str(number) for number in range(3 * MAX_UNREAD_PROGRESS)]
    after = [
        type(event)
        for event in events[events.index(next(e for e in events if isinstance(e, ToolFinished))) :]
    ]
    assert ToolProgress not in after
    kept[0].emit("too late")
    assert "767" not in str(wire(model.requests[1].items))


@pytest.mark.spec("RX-11")
def test_a_tool_that_tells_more_than_is_read_waits_and_leaving_frees_it() -> None:
    told, full, returned = [0], threading.Event(), threading.Event()

    def act(context: ToolContext) -> str:
        while not context.cancelled.is_set():
            context.emit("x")
            told[0] += 1
            if told[0] == MAX_UNREAD_PROGRESS:
                full.set()
        returned.set()
        return "x"

    async def scenario() -> None:
        stream, _ = run(Bench(acts={"talk": act}).agent(script(calls("talk"), "done")), "go")
        async for event in stream:
            if isinstance(event, ToolProgress):
                break
        assert await asyncio.to_thread(full.wait, 5)
        assert told[0] <= MAX_UNREAD_PROGRESS + 2
        await stream.aclose()
        assert returned.is_set()

    asyncio.run(scenario())


@pytest.mark.spec("RX-12")
def test_an_async_tool_runs_on_the_loop_and_a_blocking_one_on_a_thread() -> None:
    threads: dict[str, str] = {}

    async def on_loop(context: ToolContext, arguments: str) -> str:
        await asyncio.sleep(0)
        threads["async"] = threading.current_thread().name
        return "a"

    def on_thread(context: ToolContext, arguments: str) -> str:
        threads["blocking"] = threading.current_thread().name
        return "b"

    tools = [
        Tool(name="on_loop", description="", parameters={}, parse=str, run=on_loop),
        Tool(name="on_thread", description="", parameters={}, parse=str, run=on_thread),
    ]
    answer = Scripted(calls=(ScriptedCall(name="on_loop"), ScriptedCall(name="on_thread")))
    result = run_sync(Agent(name="a", tools=tools, model=script(answer, "done")), "go")
    assert list(outputs(result.items).values()) == ["a", "b"]
    assert threads["async"] == threading.current_thread().name
    assert threads["blocking"].startswith("tool")


@pytest.mark.spec("RX-13")
def test_a_tool_that_cancels_itself_is_a_crash_and_not_the_end_of_the_run() -> None:
    async def act(context: ToolContext, arguments: str) -> str:
        raise asyncio.CancelledError

    tool = Tool(name="t", description="", parameters={}, parse=str, run=act)
    agent = Agent(name="a", tools=[tool], model=script(Scripted(calls=(ScriptedCall(name="t"),)), "done"))
    result = run_sync(agent, "go")
    assert result.final_output == "done"
    assert shape(result.new_items)[1] == "tool_output call_0_0"
