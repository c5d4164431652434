"""What a failing place means for a tool: words for the model, and never command output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.tools import ToolFailed
from sandbox import (
    BackendError,
    Cancelled,
    Closed,
    ConnectionLost,
    FileError,
    Sandbox,
    SandboxError,
    TooLarge,
)


def sandbox_words(error: SandboxError) -> str:
    """What a model is told about an error of the sandbox."""
    if isinstance(error, ConnectionLost):
        return (
            f"the connection to the sandbox was lost; the outcome is unknown, nothing was repeated: {error}"
        )
    if isinstance(error, BackendError | Closed):
        return f"the sandbox is unavailable: {error}"
    if isinstance(error, Cancelled):
        return "cancelled before it ended; what it had done until then stays"
    if isinstance(error, TooLarge):
        return f"{error}; show a part of it with a command such as sed -n '1,100p'"
    if isinstance(error, FileError):
        return str(error)
    return f"the sandbox refused it: {error}"


def directory_of(sandbox: Sandbox) -> str:
    """The working directory, or "" if the place cannot be asked: then nothing will run there either."""
    try:
        return sandbox.cwd
    except SandboxError:
        return ""


@contextmanager
def backend_failures() -> Iterator[None]:
    """Turn the sandbox's errors into ToolFailed, the one way out that a tool has."""
    try:
        yield
    except SandboxError as error:
        raise ToolFailed(sandbox_words(error)) from error
