"""A real sandbox on this machine, and a way to call its tools as the runtime does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codetools import Policy, code_tools
from runtime.tools import AnyTool, BadArguments, ToolContext, ToolFailed, ToolResult
from sandbox import LocalSandbox, Sandbox


@dataclass
class Bench:
    """Tools over a sandbox. `call` gives the text a model would get, whatever way out the tool took."""

    box: Sandbox
    tools: dict[str, AnyTool]
    seen: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def result(self, name: str, **arguments: object) -> ToolResult:
        """Parse and run. Raises what the tool raises."""
        tool = self.tools[name]
        context = ToolContext(call_id="call", tool_name=name, cancelled=self.cancelled, emit=self.seen.append)
        result = tool.run(context, tool.parse(json.dumps(arguments)))
        assert isinstance(result, ToolResult)
        return result

    def call(self, name: str, **arguments: object) -> str:
        """The text of the result, or of the failure."""
        try:
            return self.result(name, **arguments).text
        except (BadArguments, ToolFailed) as error:
            return f"{type(error).__name__}: {error}"


MakeBench = Callable[..., Bench]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[LocalSandbox]:
    """This machine, in a fresh directory."""
    with LocalSandbox(tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
def make_bench(box: LocalSandbox) -> MakeBench:
    """Makes a bench with a policy and options of the test's own."""

    def make(policy: Policy | None = None, *, shells: bool = True, ask_by_default: bool = False) -> Bench:
        tools = code_tools(box, policy, shells, ask_by_default)
        return Bench(box, {tool.name: tool for tool in tools})

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """The tools with their defaults."""
    return make_bench()
