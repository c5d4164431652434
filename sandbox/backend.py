"""The seam: what a place must offer. Everything that has meaning is above it, once.

A backend is bytes and verbs. It does not parse, decode, time out or retry, and it knows no shell
but what its own transport needs. Its own failures are BackendError and its children; a program
that fails is no failure of the backend.
"""

from __future__ import annotations

from typing import Protocol

from sandbox.values import Ahead, Chunk, SpawnRequest


class Process(Protocol):
    """One running program. Methods may be called from several threads; close() from any at any time."""

    def read(self, timeout_s: float) -> Chunk:
        """Wait up to timeout_s for output and return what is there, or an empty chunk.

        0 looks without waiting. At most a few hundred KiB are returned at a time, so that a caller
        that stops reading holds the program back. `eof` is set once nothing more can come on any
        stream; a terminal whose other side is gone is at its end. A place that sees a program end wakes
        the reader then, with an empty chunk. Raises ConnectionLost or PlaceUnavailable if the link or
        the place is gone (never eof for that).
        """
        ...

    def write(self, data: bytes, timeout_s: float) -> int:
        """Write what can be taken within timeout_s to the program's input; returns how many bytes.

        A program that has closed its input, or has ended, takes everything and drops it:
        returns len(data)."""
        ...

    def close_stdin(self) -> None:
        """End of file on the program's input. On a terminal: nothing."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Tell the terminal its new size. Without a terminal: nothing."""
        ...

    def poll(self) -> int | None:
        """Exit status as a shell gives it (128+n for a signal), or None while the program runs.

        Looks, does not wait. The status may be known before all output has been read."""
        ...

    def close(self) -> None:
        """Let go of the program: streams, threads, descriptors. Idempotent.

        A program on a terminal gets a hang-up; one on pipes may go on (killing is done above,
        where the program runs). The child, if it is ours, is reaped."""
        ...


class Backend(Protocol):
    """One place. spawn() may be called from several threads at once.

    ahead  what the place bears of waiting programs (see `warm.py`)
    """

    @property
    def ahead(self) -> Ahead: ...

    def spawn(self, request: SpawnRequest) -> Process:
        """Start one program as the leader of its own session (so its pid is its group's too).

        With `request.pty`, the terminal is its controlling terminal. Environment: what the place
        gives, then `request.env`. Working directory: any. A missing program may be reported by
        status 127 or by a BackendError; the layers above only start `sh` and `bash`.
        """
        ...

    def close(self) -> None:
        """Release the place. Idempotent; processes that still run are let go."""
        ...
