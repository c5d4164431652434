"""Places where code runs: this machine, another over SSH, a Docker container; one meaning everywhere."""

from sandbox.errors import (
    AdoptionRefused,
    AlreadyExists,
    BackendError,
    Cancelled,
    Closed,
    ConnectionLost,
    FileError,
    NotADirectory,
    NotAFile,
    NotFound,
    OutsideWorkDir,
    PermissionDenied,
    PlaceUnavailable,
    RequestError,
    SandboxError,
    TooLarge,
)
from sandbox.sandbox import DockerSandbox, LocalSandbox, Sandbox, SSHSandbox
from sandbox.shells import Shell, ShellInfo
from sandbox.spill import SpillStore
from sandbox.values import ExecRequest, ExecResult, FileEntry, Output, ShellResult, Spilled, Survivor

__all__ = [
    "AdoptionRefused",
    "AlreadyExists",
    "BackendError",
    "Cancelled",
    "Closed",
    "ConnectionLost",
    "DockerSandbox",
    "ExecRequest",
    "ExecResult",
    "FileEntry",
    "FileError",
    "LocalSandbox",
    "NotADirectory",
    "NotAFile",
    "NotFound",
    "Output",
    "OutsideWorkDir",
    "PermissionDenied",
    "PlaceUnavailable",
    "RequestError",
    "SSHSandbox",
    "Sandbox",
    "SandboxError",
    "Shell",
    "ShellInfo",
    "ShellResult",
    "SpillStore",
    "Spilled",
    "Survivor",
    "TooLarge",
]
