"""The names that people import from `coderig`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import coderig

NAMES = """\
Agent AgentError AnthropicModel AsyncSandbox AsyncShell AsyncStream BackendError BadArguments
Cancelled DockerOptions DockerSandbox ExecResult FileEntry FileError FileJournal LocalSandbox Model
ModelSettings OpenAIModel PendingApproval PlaceError Policy PolicyError RequestError RunControl
RunError RunOptions RunResult RunState RunStream SSHSandbox Sandbox SandboxError Scripted
ScriptedCall ScriptedModel Shell ShellResult SpillStore SshOptions Tool ToolContext ToolFailed
ToolResult Verdict code_tools parse_place pydantic_parse resolve_model resume_run resume_run_sync
run run_sync"""
names = NAMES.split()


@pytest.mark.spec("CLI-110")
def test_the_public_names_are_these_and_sorted() -> None:
    assert coderig.__all__ == names
    assert sorted(names) == names


@pytest.mark.spec("CLI-110")
@pytest.mark.parametrize("name", names)
def test_each_name_leads_to_the_thing_itself(name: str) -> None:
    assert getattr(coderig, name).__name__ == name
    assert name in dir(coderig)


@pytest.mark.spec("CLI-110")
def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Lokal"):
        coderig.__getattr__("Lokal")


@pytest.mark.spec("CLI-111")
def test_importing_it_loads_nothing_else() -> None:
    code = "import sys, coderig; print({'runtime', 'sandbox', 'codetools', 'docker'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == "set()\n", done.stderr
