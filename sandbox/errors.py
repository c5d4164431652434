"""Errors of the sandbox. A command that fails is a result; only a place that fails raises.

SandboxError
├── RequestError             the caller asked for something that cannot be asked (also a ValueError)
├── BackendError             the place itself failed; output so far is in `.stdout` and `.stderr`
│   ├── TooManyPrograms      the place refuses one more program; nothing was run
│   ├── ConnectionLost       the link broke while something ran: its outcome is unknown
│   └── PlaceUnavailable     the place is stopped, paused, gone or was never there
├── Cancelled                the caller's own cancel event was set; the command was killed
├── Closed                   the sandbox or the shell was closed
├── AdoptionRefused          a container of that name exists and may not be used
└── FileError                a file operation failed; `.operation` and `.path` as the caller gave them
    ├── NotFound             (also a FileNotFoundError)
    ├── AlreadyExists        (also a FileExistsError)
    ├── PermissionDenied     (also a PermissionError)
    ├── NotAFile             a directory or a special file where a regular file is needed
    ├── NotADirectory        (also a NotADirectoryError)
    ├── TooLarge             over the read limit
    └── OutsideWorkDir       outside a bound working directory
"""

from __future__ import annotations


class SandboxError(Exception):
    """Base of every error that the sandbox raises."""


class RequestError(SandboxError, ValueError):
    """The request cannot be carried out as asked. Nothing was run."""


class BackendError(SandboxError):
    """The place itself failed. What a command had printed until then is kept."""

    def __init__(self, message: str, *, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.stdout = stdout
        self.stderr = stderr


class TooManyPrograms(BackendError):
    """The place refuses one more program (a limit of the server, or of the machine). Nothing was run."""


class ConnectionLost(BackendError):
    """The link to the place broke. The outcome of what ran is unknown; nothing is run twice."""


class PlaceUnavailable(BackendError):
    """The place is stopped, paused, gone, or was never there."""


class Cancelled(SandboxError):
    """The caller cancelled. The command's process tree was killed."""

    def __init__(self, message: str, *, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.stdout = stdout
        self.stderr = stderr


class Closed(SandboxError):
    """The sandbox or the shell was closed; it cannot be used again."""


class AdoptionRefused(SandboxError):
    """A container of the wanted name exists, but is not ours or is not configured as asked."""


class FileError(SandboxError):
    """A file operation failed."""

    def __init__(self, operation: str, path: str, reason: str) -> None:
        super().__init__(f"{operation} {path}: {reason}")
        self.operation = operation
        self.path = path
        self.reason = reason


class NotFound(FileError, FileNotFoundError):
    """There is no such file or directory."""


class AlreadyExists(FileError, FileExistsError):
    """The target exists and must not be overwritten."""


class PermissionDenied(FileError, PermissionError):
    """The user of the place may not do this."""


class NotAFile(FileError):
    """A directory or a special file stands where a regular file is needed."""


class NotADirectory(FileError, NotADirectoryError):
    """A file stands where a directory is needed."""


class TooLarge(FileError):
    """The file is larger than the read limit."""


class OutsideWorkDir(FileError):
    """The path leaves the bound working directory."""
