"""Models on the command line: a script that is served, a service that fails for a while."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import anthropic
import openai
import pytest
from coderig_kit import Cli, command
from wire_server import Call, Reply, WireServer


def script(cli: Cli, answers: list[object]) -> Path:
    """A script's file."""
    path = cli.work / "served.jsonl"
    path.write_text("".join(json.dumps(answer) + "\n" for answer in answers), "utf-8")
    return path


class Served:
    """A server that runs as a process."""

    def __init__(self, process: Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        urls = dict(process.stdout.readline().split() for _ in range(2))
        self.openai, self.anthropic = urls["openai"], urls["anthropic"]

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Its exit code, and what it told."""
        self.process.send_signal(number)
        told = self.process.communicate(timeout=30)[1]
        return self.process.returncode, told


@contextmanager
def serving(cli: Cli, answers: list[object]) -> Iterator[Served]:
    """A script that is served, for as long as it is looked at."""
    server = Served(cli.start("serve-script", str(script(cli, answers))))
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate(timeout=30)


@pytest.fixture
def served(cli: Cli) -> Iterator[Served]:
    """A script of two answers, served."""
    first = {"text": "so", "calls": [{"name": "t", "arguments": {"a": 1}, "id": "c1"}]}
    with serving(cli, [first, {"text": "Schön."}]) as server:
        yield server


@pytest.mark.spec("MD-54")
def test_a_script_is_served_to_any_client_until_it_is_interrupted(served: Served) -> None:
    with openai.OpenAI(base_url=served.openai, api_key="k", max_retries=0) as client:
        first = client.responses.create(model="any", input="go")
        call = next(item for item in first.output if item.type == "function_call")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "x"}
        with client.responses.stream(
            model="any",
            previous_response_id=first.id,
            input=[output],  # type: ignore[list-item]
        ) as stream:
            assert stream.get_final_response().output_text == "Schön."
        with pytest.raises(openai.BadRequestError, match="No tool output found"):
            client.responses.create(model="any", previous_response_id=first.id, input="and?")
    with anthropic.Anthropic(base_url=served.anthropic, api_key="k", max_retries=0) as other:
        message = other.messages.create(
            model="any", max_tokens=9, messages=[{"role": "user", "content": "go"}]
        )
        assert [block.type for block in message.content] == ["text", "tool_use"]
    code, told = served.end()
    assert code == 0
    assert told.splitlines() == [
        "200 /v1/responses",
        "200 /v1/responses",
        "400 /v1/responses: No tool output found for function call c1.",
        "200 /v1/messages",
    ]


@pytest.mark.spec("MD-54")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_agent_works_against_a_script_that_is_served(cli: Cli, provider: str) -> None:
    with serving(cli, [command("echo made > made"), {"text": "done"}]) as server:
        url = server.openai if provider == "openai" else server.anthropic
        key = {f"{provider.upper()}_API_KEY": "key-0123456789"}
        done = cli.run("run", "x", "--model", f"{provider}:any", "--base-url", url, "--yes", env=key)
        assert done.code == 0, done.err
        assert (cli.work / "made").read_text() == "made\n"
        assert server.end(signal.SIGTERM)[0] == 0


@pytest.mark.spec("MD-54")
def test_what_cannot_be_served_is_wrong_use_in_words(cli: Cli) -> None:
    wrong = script(cli, [{"txt": "x"}])
    done = cli.run("serve-script", str(wrong))
    assert done.code == 2 and re.search(r"served\.jsonl:1: txt", done.err)
    assert cli.run("serve-script", "no-such-file").code == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = cli.run("serve-script", str(script(cli, [])), "--port", port)
    assert done.code == 2 and f"cannot listen at 127.0.0.1:{port}" in done.err and "Traceback" not in done.err


@pytest.mark.spec("MD-55")
def test_a_service_that_fails_for_a_while_is_asked_again_and_the_person_is_told(cli: Cli) -> None:
    busy = Reply(status=529, message="overloaded", headers={"retry-after": "0"})
    cut = Reply(text="half", calls=[Call("exec_command", {"cmd": "touch half"})], cut_at=700)
    whole = Reply(calls=[Call("exec_command", {"cmd": "touch whole"})])
    with WireServer([busy, whole, cut, "done"]) as server:
        arguments = ["--model", "anthropic:any", "--base-url", server.url, "--yes"]
        done = cli.run("run", "x", *arguments, env={"ANTHROPIC_API_KEY": "key-0123456789"})
        assert server.refused == []
    assert done.code == 0, done.err
    assert "HTTP 529: overloaded; trying again in 1 s" in done.err
    assert (cli.work / "whole").exists() and not (cli.work / "half").exists()
    assert "half" not in done.out


@pytest.mark.spec("MD-55")
def test_the_lines_of_a_json_view_tell_the_answer_as_it_grows(cli: Cli) -> None:
    with WireServer(["one two three four five six"]) as server:
        arguments = ["--model", "openai:any", "--base-url", server.openai_url, "--json"]
        done = cli.run("run", "x", *arguments, env={"OPENAI_API_KEY": "key-0123456789"})
    told = [line["event"] for line in done.lines if line["type"] == "model"]
    assert told[0]["type"] == "response.created" and told[-1]["type"] == "response.completed"
    deltas = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "one two three four five six" and len(deltas) > 1
