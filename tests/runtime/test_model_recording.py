"""Models by name, plug-ins, and traffic that is recorded, played again and served."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_kit import check_story, hear
from runtime_kit import Bench, shape
from wire_kit import do, model
from wire_server import Reply, WireServer

from runtime import (
    FileJournal,
    Model,
    ModelError,
    ModelSettings,
    ObserveOptions,
    Recorded,
    Retry,
    RunOptions,
    RunResult,
    Scripted,
    ScriptedCall,
    ScriptedFailure,
    ScriptedModel,
    UserError,
    resolve_model,
    run_sync,
)
from runtime.models.recording import without_secrets
from runtime.models.script_server import ScriptServer
from runtime.models.scripted import read_script

PLUG_IN = """
from runtime import ScriptedModel, UserError

def make(name, *, base_url, api_key):
    if name == "bad":
        raise UserError("there is no such model here")
    return ScriptedModel(["from the plug-in"], name=f"acme:{name} at {base_url}")
"""


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that names models."""
    (tmp_path / "acme_models.py").write_text(PLUG_IN)
    info = tmp_path / "acme_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[coderig.models]\nacme = acme_models:make\nbroken = acme_models:nothing\ngone = no_such_module:x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("acme_models", None)


@pytest.mark.spec("MD-50")
@pytest.mark.usefixtures("plug_in")
def test_an_installed_package_can_name_models_of_its_own() -> None:
    found = resolve_model("acme:big:1", base_url="http://here")
    assert found.name == "acme:big:1 at http://here"
    assert run_sync(Bench().agent(found), "go").final_output == "from the plug-in"
    with pytest.raises(UserError, match="no such model here"):
        resolve_model("acme:bad")


@pytest.mark.spec("MD-50")
@pytest.mark.usefixtures("plug_in")
def test_a_plug_in_that_cannot_be_loaded_is_named() -> None:
    for name, words in (("broken", "acme_models:nothing"), ("gone", "no_such_module:x")):
        with pytest.raises(UserError, match=words):
            resolve_model(f"{name}:x")
    with pytest.raises(UserError, match="names no known provider"):
        resolve_model("other:x")


@pytest.mark.spec("MD-50")
@pytest.mark.usefixtures("plug_in")
def test_a_plug_in_cannot_take_the_names_that_are_ours(tmp_path: Path) -> None:
    info = tmp_path / "acme_models-1.0.dist-info"
    (info / "entry_points.txt").write_text("[coderig.models]\nopenai = acme_models:make\n")
    assert resolve_model("openai:x", api_key="k").name == "openai:x"


THOUGHTS = {
    "openai": '{"id":"rs_1", "type":"reasoning","summary":[],  "encrypted_content":"gA=="}',
    "anthropic": '{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}',
}


def recorded_run(provider: str, path: Path) -> tuple[RunResult, Bench]:
    """A run of two turns, recorded."""
    bench = Bench()
    replies: list[Reply | str] = [
        do("ls", "cat a", text="Schön \u2028 \U0001f980", raw=[THOUGHTS[provider]]),
        "done",
    ]
    with WireServer(replies) as server:
        result = run_sync(bench.agent(Recorded(model(provider, server), path)), "go")
    return result, bench


@pytest.mark.spec("MD-51")
def test_a_recorded_run_plays_again_byte_for_byte(provider: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    result, bench = recorded_run(provider, path)
    assert path.stat().st_mode & 0o777 == 0o600
    for again in (ScriptedModel.from_file(path), resolve_model(f"script:{path}")):
        ran = Bench()
        played = run_sync(ran.agent(again), "go")
        assert [item.raw for item in played.items] == [item.raw for item in result.items]
        assert played.usage == result.usage and ran.ran == bench.ran
        assert [each.response_id for each in played.state.responses] == [
            each.response_id for each in result.state.responses
        ]


@pytest.mark.spec("MD-51")
def test_a_recording_has_each_request_without_what_earlier_ones_had(provider: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded_run(provider, path)
    first, second = (json.loads(line) for line in path.read_text("ascii").splitlines())
    assert first["model"] == f"{provider}:test-model"
    assert first["request"]["instructions"] == "Work." and first["request"]["tools"] == ["exec_command"]
    assert [json.loads(raw)["type"] for raw in first["request"]["items"]] == ["message"]
    assert [json.loads(raw)["type"] for raw in second["request"]["items"]] == ["function_call_output"] * 2
    assert second["request"]["earlier_items"] == 5


@pytest.mark.spec("MD-52")
def test_keys_do_not_reach_a_recording(provider: str, tmp_path: Path) -> None:
    key = "sk-" + "Abc123_-" * 4
    path = tmp_path / "run.jsonl"
    settings = ModelSettings(
        extra_headers={"x-token": "header-secret"},
        extra_query={"key": "query-secret"},
        extra_body={"metadata": {"token": key}},
    )
    with WireServer([Reply(text=f"your key is {key}")]) as server:
        bench = Bench().agent(Recorded(model(provider, server), path), settings=settings)
        run_sync(bench, f"use {key} and Bearer abc.def")
    said = path.read_text("utf-8")
    assert key not in said and "secret" not in said and "abc.def" not in said
    assert said.count("[removed]") >= 4
    assert (
        run_sync(Bench().agent(ScriptedModel.from_file(path)), "go").final_output == "your key is [removed]"
    )


@pytest.mark.spec("MD-52")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sk-proj-" + "a1" * 12, True),
        ("sk-ant-api03-" + "a1" * 12, True),
        ("ghp_" + "a1" * 12, True),
        ("github_pat_" + "a1" * 12, True),
        ("xoxb-" + "1" * 20, True),
        ("AKIA" + "A1" * 8, True),
        ("Authorization: Bearer eyJ.x.y", True),
        ("task-" + "a" * 20, False),
        ("a" * 20 + "sk-" + "a" * 20, False),
        ("desk-" + "b" * 20, False),
        ("gAAAAABqX1a78BDqk_J4uGoxtDucvs8hhf_AAAAAAAAAAAAAAAAAAAAAA==", False),
        ("sk-short", False),
    ],
)
def test_what_looks_like_a_key_is_removed_and_nothing_else(text: str, found: bool) -> None:
    assert (without_secrets(text) != text) is found


@pytest.mark.spec("MD-52")
def test_a_mask_of_ones_own_goes_over_each_text(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded = Recorded(ScriptedModel(["Ada wrote"]), path, mask=lambda text: text.replace("Ada", "A."))
    run_sync(Bench().agent(recorded), "Who, Ada?")
    assert "Ada" not in path.read_text("utf-8")
    assert hear(ScriptedModel.from_file(path)).response.items[0].text == "A. wrote"


@pytest.mark.spec("MD-51")
def test_failures_are_recorded_and_fail_again(provider: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    failing = Reply(status=429, message="slow down", headers={"retry-after": "7"})
    with WireServer([failing]) as server, pytest.raises(ModelError):
        hear(Recorded(model(provider, server), path))
    with pytest.raises(ModelError, match="slow down") as failed:
        hear(ScriptedModel.from_file(path))
    assert (failed.value.status, failed.value.retry_after_s) == (429, 7)
    with pytest.raises(UserError, match="cannot record"):
        Recorded(ScriptedModel([]), tmp_path / "no" / "such" / "directory")


@pytest.mark.spec("MD-53")
@pytest.mark.parametrize("stream", [True, False])
def test_a_recording_is_served_to_the_vendors_own_client(provider: str, stream: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    result, bench = recorded_run(provider, path)
    with ScriptServer(read_script(path)) as server:
        for _ in range(2):  # each conversation begins at the start
            ran = Bench()
            agent = ran.agent(model(provider, server), settings=ModelSettings(stream=stream))
            served = run_sync(agent, "go")
            assert server.refused == []
            assert ran.ran == bench.ran and served.final_output == result.final_output
            assert shape(served.items) == shape(result.items)
            assert served.usage == result.usage
            assert [item.text for item in served.items] == [item.text for item in result.items]
            kept = [item.wire.get("encrypted_content") for item in result.items]
            assert [item.wire.get("encrypted_content") for item in served.items] == kept


@pytest.mark.spec("MD-53")
def test_a_script_is_served_with_all_that_it_can_say(provider: str) -> None:
    script = [
        Scripted(error=ScriptedFailure(message="busy", status=529, retry_after_s=0)),
        Scripted(text="so", calls=(ScriptedCall(name="exec_command", arguments={"cmd": "ls"}, id="c1"),)),
        Scripted(text="no", status="incomplete", incomplete_reason="max_output_tokens"),
    ]
    with ScriptServer(script[1:]) as server:
        bench = Bench()
        result = run_sync(bench.agent(Retry(model(provider, server), base_s=0)), "go")
        assert bench.ran == ["ls"] and result.final_output == "no" and result.truncated
    with ScriptServer(script[:1]) as server, pytest.raises(ModelError, match="busy") as failed:
        hear(model(provider, server))
    assert (failed.value.status, failed.value.retry_after_s) == (529, 0)
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no!"}]}
    with ScriptServer([Scripted(items=(refusal,))]) as server:  # type: ignore[arg-type]
        heard = hear(model(provider, server))
        check_story(heard)
        assert [item.refusal for item in heard.response.items] == ["no!"]


@pytest.mark.spec("MD-53")
def test_a_recording_of_one_wire_is_served_over_the_other(tmp_path: Path) -> None:
    for of, over in (("openai", "anthropic"), ("anthropic", "openai")):
        path = tmp_path / f"{of}.jsonl"
        result, bench = recorded_run(of, path)
        with ScriptServer(read_script(path)) as server:
            ran = Bench()
            served = run_sync(ran.agent(model(over, server)), "go")
            assert server.refused == []
        assert ran.ran == bench.ran and served.final_output == result.final_output


@pytest.mark.spec("RX-55")
def test_a_script_may_hold_any_character_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    odd = "a\u2028b\x0bc\x85d"
    path.write_text(json.dumps({"text": odd}, ensure_ascii=False) + '\n\n# so\n{"text": 5}\n', "utf-8")
    with pytest.raises(UserError, match="s.jsonl:4: text"):
        read_script(path)
    path.write_text(json.dumps({"text": odd}, ensure_ascii=False) + "\n", "utf-8")
    assert read_script(path)[0].text == odd


@pytest.mark.spec("MD-51")
def test_a_recorded_model_is_like_any_other_for_a_journal(tmp_path: Path) -> None:
    bench = Bench()
    recorded: Model = Recorded(ScriptedModel(["done"]), tmp_path / "r.jsonl")
    with FileJournal(tmp_path / "j") as journal:
        options = RunOptions(observe=ObserveOptions(journal=journal))
        result: Any = run_sync(bench.agent(recorded), "go", options)
    assert result.final_output == "done"
