"""coderig: commands and edits in a local, SSH or Docker place, and an agent that works in them.

    from coderig import LocalSandbox

    with LocalSandbox() as box:
        print(box.exec("echo hello").stdout)

The names here come from the packages `sandbox`, `codetools` and `runtime`, and are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coderig.place import PlaceError, parse_place
    from codetools import Policy, PolicyError, code_tools
    from runtime import (
        Agent,
        AgentError,
        AnthropicModel,
        BadArguments,
        FileJournal,
        Model,
        ModelSettings,
        OpenAIModel,
        PendingApproval,
        RunControl,
        RunError,
        RunOptions,
        RunResult,
        RunState,
        RunStream,
        Scripted,
        ScriptedCall,
        ScriptedModel,
        Tool,
        ToolContext,
        ToolFailed,
        ToolResult,
        Verdict,
        pydantic_parse,
        resolve_model,
        resume_run,
        resume_run_sync,
        run,
        run_sync,
    )
    from sandbox import (
        BackendError,
        Cancelled,
        DockerSandbox,
        ExecResult,
        FileEntry,
        FileError,
        LocalSandbox,
        RequestError,
        Sandbox,
        SandboxError,
        Shell,
        ShellResult,
        SpillStore,
        SSHSandbox,
    )
    from sandbox.aio import AsyncSandbox, AsyncShell, AsyncStream
    from sandbox.backends.docker import DockerOptions
    from sandbox.backends.ssh import SshOptions

_HOMES = {
    "codetools": ("Policy", "PolicyError", "code_tools"),
    "coderig.place": ("PlaceError", "parse_place"),
    "runtime": (
        "Agent",
        "AgentError",
        "AnthropicModel",
        "BadArguments",
        "FileJournal",
        "Model",
        "ModelSettings",
        "OpenAIModel",
        "PendingApproval",
        "RunControl",
        "RunError",
        "RunOptions",
        "RunResult",
        "RunState",
        "RunStream",
        "Scripted",
        "ScriptedCall",
        "ScriptedModel",
        "Tool",
        "ToolContext",
        "ToolFailed",
        "ToolResult",
        "Verdict",
        "pydantic_parse",
        "resolve_model",
        "resume_run",
        "resume_run_sync",
        "run",
        "run_sync",
    ),
    "sandbox": (
        "BackendError",
        "Cancelled",
        "DockerSandbox",
        "ExecResult",
        "FileEntry",
        "FileError",
        "LocalSandbox",
        "RequestError",
        "SSHSandbox",
        "Sandbox",
        "SandboxError",
        "Shell",
        "ShellResult",
        "SpillStore",
    ),
    "sandbox.aio": ("AsyncSandbox", "AsyncShell", "AsyncStream"),
    "sandbox.backends.docker": ("DockerOptions",),
    "sandbox.backends.ssh": ("SshOptions",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "AgentError",
    "AnthropicModel",
    "AsyncSandbox",
    "AsyncShell",
    "AsyncStream",
    "BackendError",
    "BadArguments",
    "Cancelled",
    "DockerOptions",
    "DockerSandbox",
    "ExecResult",
    "FileEntry",
    "FileError",
    "FileJournal",
    "LocalSandbox",
    "Model",
    "ModelSettings",
    "OpenAIModel",
    "PendingApproval",
    "PlaceError",
    "Policy",
    "PolicyError",
    "RequestError",
    "RunControl",
    "RunError",
    "RunOptions",
    "RunResult",
    "RunState",
    "RunStream",
    "SSHSandbox",
    "Sandbox",
    "SandboxError",
    "Scripted",
    "ScriptedCall",
    "ScriptedModel",
    "Shell",
    "ShellResult",
    "SpillStore",
    "SshOptions",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "ToolResult",
    "Verdict",
    "code_tools",
    "parse_place",
    "pydantic_parse",
    "resolve_model",
    "resume_run",
    "resume_run_sync",
    "run",
    "run_sync",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'coderig' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
