"""A real sandbox on this machine, and its tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from codetools_bench import Bench, MakeBench

from codetools import Policy, code_tools
from sandbox import LocalSandbox


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
