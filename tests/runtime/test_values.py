"""The pure parts: JSON as text, items, histories, usage, errors, scripts, and what importing costs."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_kit import Bench, calls, play, shape, wire

import runtime
from runtime import (
    Agent,
    ExecOptions,
    Item,
    ItemKind,
    MaxTurnsError,
    ModelError,
    ModelRequest,
    ModelResponse,
    RunError,
    RunOptions,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    Source,
    Tool,
    ToolCall,
    ToolContext,
    Usage,
    UserError,
    code_of,
    run_sync,
    user_message,
)
from runtime.history import View, interrupted, repair
from runtime.items import assistant_message, from_wire, function_call, function_output
from runtime.models.model import Emit
from runtime.schema import JsonError, canonical, clean, clean_text, elements, load_object, members

PACKAGE = Path(runtime.__file__).parent

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4),
    max_leaves=12,
)
any_text = st.text(alphabet=st.characters(codec=None, categories=None))


@pytest.mark.spec("IT-09", "RX-51")
@given(st.dictionaries(st.text(), json_values), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_the_text_of_each_member_and_element_is_exactly_as_it_stands(
    value: dict[str, object], indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = list(members(text))
    assert {key: part for key, part, _ in found} == value
    assert all(raw in text and json.loads(raw) == part for _, part, raw in found)
    listed = json.dumps(list(value.values()), indent=indent)
    assert [json.loads(raw) for _, raw in elements(listed)] == list(value.values())


@pytest.mark.spec("RX-51")
@pytest.mark.parametrize(
    "text", ["", "[", "{", '{"a"', '{"a":1', '{"a":1,}', "{1:2}", "nul", '{"a":1 "b":2}']
)
def test_broken_json_is_an_error_wherever_it_breaks(text: str) -> None:
    with pytest.raises(JsonError):
        list(members(text))
    with pytest.raises(JsonError):
        list(elements(text))


@pytest.mark.spec("RB-41")
@given(any_text)
def test_cleaning_text_leaves_nothing_that_is_refused_and_changes_nothing_else(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert "\0" not in cleaned and clean_text(cleaned) == cleaned
    if "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text
    assert clean({text: [text, 1, None]}) == {cleaned: [cleaned, 1, None]}


@pytest.mark.spec("RB-41")
def test_halves_that_belong_together_become_their_character() -> None:
    assert clean_text("a\ud83d\ude00b\ud83d") == "a\U0001f600b\ufffd"


@pytest.mark.spec("RB-59", "RX-15")
@given(st.dictionaries(st.text(), json_values))
def test_the_canonical_text_depends_on_the_value_alone(value: dict[str, object]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert canonical(backwards) == canonical(json.loads(json.dumps(value, indent=3)))  # type: ignore[arg-type]


@pytest.mark.spec("SC-09", "RB-26")
def test_absent_arguments_are_an_empty_object_and_wrong_ones_are_named() -> None:
    assert load_object("") == load_object(" null ") == load_object("{}") == {}
    for text, words in (
        ("[1]", "an array"),
        ('"x"', "a string"),
        ("true", "a boolean"),
        ("5", "a number"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": Infinity}', "Infinity"),
        ("{} {}", "character 3"),
    ):
        with pytest.raises(JsonError, match=words):
            load_object(text)


@pytest.mark.spec("LP-03", "IT-01", "IT-02", "IT-03", "IT-04", "IT-05")
def test_items_have_a_kind_and_a_source_and_unknown_ones_are_opaque() -> None:
    call = from_wire('{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}')
    assert call.kind == ItemKind.TOOL_CALL and call.call == ToolCall("c", "n", "{}")
    assert call.source == Source.MODEL and call.is_external
    assert from_wire('{"type": "reasoning", "id": "r"}').kind == ItemKind.REASONING
    assert from_wire('{"type": "message", "role": "assistant", "content": []}').kind == ItemKind.MESSAGE
    odd = from_wire('{"type": "from_the_future", "content": 5, "output": {}}')
    assert odd.kind == ItemKind.UNKNOWN and odd.type == "from_the_future"
    assert odd.text == odd.output == odd.call_id == "" and odd.refusal is None
    assert user_message("x").is_external and user_message("x").source == Source.USER
    assert not function_output("c", "x").is_external
    assert Item(kind="later", raw="{}").kind == "later"


@pytest.mark.spec("IT-11")
@pytest.mark.parametrize("raw", ["", "[]", "{}", '{"type": 5}', '{"type": ""}', "{"])
def test_what_has_no_type_is_no_item(raw: str) -> None:
    with pytest.raises(JsonError):
        from_wire(raw)


@pytest.mark.spec("RX-52")
def test_text_in_parts_is_read_as_one() -> None:
    parts = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}, {"type": "odd"}]
    message = from_wire(json.dumps({"type": "message", "content": parts}))
    assert message.text == "a" and message.refusal == "no"
    output = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "b"}]}
    assert from_wire(json.dumps(output)).output == "b"


@pytest.mark.spec("RX-53")
def test_a_view_is_a_snapshot_of_a_list_that_grows() -> None:
    items = [user_message(str(number)) for number in range(4)]
    view = View(items)
    items.append(user_message("later"))
    assert len(view) == 4 and view[-1].text == "3" and [item.text for item in view[1:3]] == ["1", "2"]
    assert [item.text for item in view] == ["0", "1", "2", "3"]
    with pytest.raises(IndexError):
        view[4]


pieces = st.lists(
    st.one_of(
        st.sampled_from("abc").map(lambda call: function_call(call, "t", "{}")),
        st.sampled_from("abcx").map(lambda call: function_output(call, "o")),
        st.just(user_message("u")),
        st.just(assistant_message("m")),
    ),
    max_size=14,
)


@pytest.mark.spec("RB-08")
@given(pieces)
def test_any_conversation_can_be_made_whole_and_doing_it_twice_changes_nothing(items: list[Item]) -> None:
    repaired = repair(items)
    open_calls = [call.call_id for call in repaired.open]
    repaired.close()
    whole = repaired.items
    again = repair(whole)
    assert again.items == whole and again.open == []
    waiting: list[str] = []
    for item in whole:
        if item.kind == ItemKind.TOOL_OUTPUT:
            assert waiting.pop(0) == item.call_id
        elif item.kind == ItemKind.TOOL_CALL:
            waiting.append(item.call_id)
        elif item.source == Source.USER:
            assert waiting == []
    assert waiting == []
    messages = [item for item in items if item.kind == ItemKind.MESSAGE]
    assert [item for item in whole if item.kind == ItemKind.MESSAGE] == messages
    assert all(call in "abc" for call in open_calls)


@pytest.mark.spec("RB-08")
def test_what_is_made_up_says_that_the_outcome_is_unknown() -> None:
    item = interrupted("c")
    assert item.is_error and "unknown" in item.output and item.call_id == "c"


@pytest.mark.spec("US-06")
def test_usage_adds_up() -> None:
    one = Usage(requests=1, input_tokens=10, output_tokens=5, cached_input_tokens=8)
    both = one + Usage(requests=1, input_tokens=1, output_tokens=2, reasoning_tokens=2)
    assert (both.requests, both.input_tokens, both.total_tokens, both.cached_input_tokens) == (2, 11, 18, 8)


@pytest.mark.spec("ER-01", "ER-02", "ER-03", "ER-07", "ER-08")
def test_a_code_follows_from_the_innermost_error_that_has_one() -> None:
    assert code_of(ValueError()) == "unknown"
    assert code_of(UserError("x")) == "user_error"
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = ExceptionGroup("many", [ValueError(), MaxTurnsError("inner")])
    assert code_of(wrapped) == "max_turns_exceeded"
    inner = ModelError("down")
    inner.__cause__ = UserError("because")
    assert code_of(inner) == "user_error"
    loop = ValueError()
    loop.__cause__ = loop
    assert code_of(loop) == "unknown"


@pytest.mark.spec("ER-04")
def test_what_a_model_raises_that_is_no_error_of_ours_is_wrapped_and_still_reachable() -> None:
    class Broken:
        name = "broken"

        async def respond(self, request: object, emit: object) -> runtime.ModelResponse:
            raise ZeroDivisionError("oops")

    with pytest.raises(RunError, match="oops") as failed:
        run_sync(Bench().agent(Broken()), "go")
    assert isinstance(failed.value.__cause__, ZeroDivisionError) and code_of(failed.value) == "unknown"


@pytest.mark.spec("RX-54")
def test_a_script_from_a_file_gives_its_answers_in_order_also_to_another_process(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    lines = [
        "# a comment",
        '{"text": "look", "calls": [{"name": "exec_command", "arguments": {"cmd": "ls"}}]}',
        "",
        '{"calls": [{"name": "exec_command", "arguments": "{\\"cmd\\": \\"rm\\"}", "id": "mine"}]}',
        '{"text": "done"}',
    ]
    path.write_text("\n".join(lines), "utf-8")
    bench = Bench(ask={"rm"})
    paused = run_sync(bench.agent(ScriptedModel.from_file(path)), "go")
    assert shape(paused.new_items)[-1] == "tool_call mine"
    paused.state.approve("mine")
    other = bench.agent(ScriptedModel.from_file(path))
    result = runtime.resume_run_sync(other, paused.state)
    assert result.final_output == "done" and bench.ran == ["ls", "rm"]


@pytest.mark.spec("RX-55")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ":1: not valid JSON"),
        ('{"text": "x"}\n{"txt": 1}', ":2: txt"),
        ('{"calls": [{}]}', "calls.0.name"),
    ],
)
def test_a_line_of_a_script_that_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=words):
        ScriptedModel.from_file(path)


@pytest.mark.spec("RX-56")
def test_a_script_that_is_over_and_one_that_fails_are_model_errors() -> None:
    with pytest.raises(RunError, match="has only 1 answers"):
        run_sync(Bench().agent(ScriptedModel([calls("ls")])), "go")


@pytest.mark.spec("RX-57")
def test_the_scripted_model_refuses_conversations_that_do_not_pair() -> None:
    call, output = function_call("a", "t", "{}"), function_output("a", "x")
    good = [user_message("go"), call, output]
    for items in ([call], [output], [call, output, output], [call, user_message("x"), output], [*good, call]):
        with pytest.raises(RunError, match="call") as failed:
            _play_raw(items)
        cause = failed.value.__cause__
        assert isinstance(cause, ModelError) and cause.status == 400
    assert _play_raw(good).final_output == "done"


def _play_raw(items: list[Item]) -> runtime.RunResult:
    class Unrepaired(ScriptedModel):
        async def respond(
            self, request: runtime.ModelRequest, emit: runtime.models.model.Emit
        ) -> runtime.ModelResponse:
            return await super().respond(runtime.ModelRequest(instructions="", items=items), emit)

    return play("blocking", Bench().agent(Unrepaired(["done"])))


@pytest.mark.spec("RX-58")
def test_requests_that_a_scripted_model_keeps_do_not_change_afterwards() -> None:
    model = ScriptedModel(
        [Scripted(calls=(ScriptedCall(name="exec_command", arguments={"cmd": "ls"}),)), "done"]
    )
    result = run_sync(Bench().agent(model), "go")
    assert wire(model.requests[0].items) == wire(result.input_items)
    assert wire(model.requests[1].items) == wire(result.items[:3])


@pytest.mark.spec("EP-18")
def test_the_runtime_reads_no_environment_variable() -> None:
    for path in PACKAGE.rglob("*.py"):
        names = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
        }
        assert not names & {"environ", "getenv", "environb", "getenvb"}, path


@pytest.mark.spec("RX-59")
def test_importing_the_runtime_imports_no_vendors_client() -> None:
    code = (
        "import sys, runtime; sys.exit(bool({'openai', 'anthropic', 'httpx2', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, timeout=30)
    assert done.returncode == 0


@pytest.mark.spec("RX-60")
def test_the_public_names_are_there_and_sorted() -> None:
    assert all(hasattr(runtime, name) for name in runtime.__all__)
    assert list(runtime.__all__) == sorted(
        runtime.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n)
    )


LEVELS = [
    {"errors", "items", "usage", "schema", "budget", "events", "context", "state", "fanout", "scheduler"},
    {"tools", "models.model", "journal"},
    {"models.*"},
    {"output_type"},
    {
        "agent",
        "handoffs",
        "history",
        "tool_batch",
        "turn",
        "final",
        "control",
        "guards",
        "snapshot",
        "save_point",
        "saving",
        "stops",
        "repeats",
        "loop",
        "run",
        "options",
        "live",
        "records",
    },
]


@pytest.mark.spec("RX-61")
def test_imports_go_down_the_levels_only() -> None:
    level = {name: number for number, names in enumerate(LEVELS) for name in names}
    files = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")
    }
    files = {name: path for name, path in files.items() if not name.endswith("__init__")}
    parts = level.pop("models.*")
    level |= {name: parts for name in files if name.startswith("models.") and name not in level}
    assert set(files) == set(level)
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("runtime"):
                module = node.module.removeprefix("runtime").strip(".")
                targets = (
                    [f"{module}.{alias.name}" for alias in node.names] if module == "models" else [module]
                )
                for target in targets:
                    assert level[target] <= level[name], f"{name} imports {target}"


class _Counting:
    """A model that calls a tool many times, and notes how many functions were called up to each answer."""

    name = "counting"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.called = 0
        self.marks: list[int] = []

    def note(self, frame: object, event: str, argument: object) -> None:
        self.called += event in ("call", "c_call")

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.marks.append(self.called)
        turn = len(self.marks)
        item = function_call(f"call_{turn}", "t", "{}") if turn < self.turns else assistant_message("done")
        return ModelResponse(items=(item,), usage=Usage(requests=1))


@pytest.mark.spec("RX-62")
def test_the_work_of_a_turn_does_not_grow_with_the_conversation() -> None:
    async def work(context: ToolContext, arguments: str) -> str:
        return "ok"

    model = _Counting(turns=120)
    tool = Tool(name="t", description="", parameters={}, parse=str, run=work)
    agent = Agent(name="a", tools=[tool], model=model)
    before = sys.getprofile()
    sys.setprofile(model.note)
    try:
        run_sync(agent, "go", RunOptions(exec=ExecOptions(max_turns=-1)))
    finally:
        sys.setprofile(before)
    steps = [later - earlier for earlier, later in itertools.pairwise(model.marks)]
    assert sum(steps[-20:]) <= 1.05 * sum(steps[10:30])
