"""The standard streams, written to so that a full disk or a closed pipe is told in words."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import IO, cast

from rich.console import Console


class OutputGone(Exception):
    """Nobody takes what is written to standard output. `broken_pipe`: the reader has left."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the output: {error.strerror or error}")
        self.broken_pipe = error.errno == errno.EPIPE


class Stream(io.TextIOBase):
    """A standard stream, unbuffered, in the locale's encoding; what it cannot show becomes an escape.

    quiet  a stream for remarks: failures to write are nobody's business
    mask   applied to each text before it is written
    """

    def __init__(self, fd: int, *, quiet: bool = False, mask: Callable[[str], str] | None = None) -> None:
        self._fd = fd
        self._quiet = quiet
        self._mask = mask
        declared = getattr(sys.__stdout__, "encoding", None)
        self._encoding = declared if isinstance(declared, str) else "utf-8"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What text is written as."""
        return self._encoding

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Whether a terminal takes it."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Write all of a text. Raises OutputGone."""
        shown = self._mask(text) if self._mask is not None else text
        self.write_bytes(shown.encode(self._encoding, "backslashreplace"))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Write all of these bytes as they are. Raises OutputGone."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            if not self._quiet:
                raise OutputGone(error) from None


def console(stream: Stream) -> Console:
    """A rich console on a stream, for texts that are never read as markup."""
    return Console(file=cast(IO[str], stream), highlight=False, markup=False, emoji=False, soft_wrap=True)


def hold_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed: a file opened later must not take its place."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)


def flush_standard_streams() -> bool:
    """Flush what the standard library holds; False if nobody takes it (and what is left is dropped)."""
    fine = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            fine = False
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    return fine
