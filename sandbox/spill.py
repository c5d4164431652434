"""Outputs that were too long to be kept in memory, whole, in files of the caller's machine.

A stream is spilled as soon as something of it would be dropped; the file then holds all of it, from its
first byte. What reads one needs its handle and the directory, so another process can, later. Nothing here
makes a command fail: what the disk refuses is told in the result (`Spilled.problem`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from sandbox import spill_read, spill_search
from sandbox.errors import FileError, NotFound, RequestError
from sandbox.spill_read import Lines
from sandbox.spill_search import Found, View
from sandbox.values import Spilled

DEFAULT_SPILL_BYTES = 1 << 30
"""How many bytes the outputs of a store hold together."""
_SUFFIX = ".out"
_HANDLE = re.compile(r"[0-9a-f]{12}\Z", re.ASCII)


class Rewriter(Protocol):
    """Changes one output on its way into its file, piece by piece."""

    def feed(self, data: bytes) -> bytes:
        """What to write now; it may hold bytes back."""
        ...

    def end(self) -> bytes:
        """What is left to write."""
        ...


class SpillStore:
    """A directory of spilled outputs. Thread-safe. A context manager.

    directory  made when the first output is spilled, open to its owner only; the files have mode 0600
    max_bytes  how much all outputs hold together, more than 0; at the bound the oldest that are complete
               are removed, and an output that is longer than that alone keeps its beginning
    keep       whether `close` leaves the outputs where they are, for another process; else it removes
               those that this store has made
    rewriter   makes what changes an output before it is written, to take secrets out; None: nothing does

    The bound holds for one store: only one should write to a directory at a time. Any may read.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        max_bytes: int = DEFAULT_SPILL_BYTES,
        keep: bool = False,
        rewriter: Callable[[], Rewriter] | None = None,
    ) -> None:
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes <= 0:
            raise RequestError(f"max_bytes must be a whole number of bytes, more than 0, not {max_bytes!r}")
        self.directory = Path(directory).absolute()
        self.max_bytes = max_bytes
        self.keep = keep
        self._rewriter = rewriter
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}  # the oldest first
        self._used = -1  # nobody has looked into the directory yet
        self._open: set[str] = set()
        self._ours: set[str] = set()
        self._closed = False

    # -- writing ----------------------------------------------------------------------------------

    def begin(self) -> Spill:
        """A file for the next output. What the disk says against it is in its state, never raised."""
        handle = secrets.token_hex(6)
        with self._lock:
            if self._closed:
                return Spill(self, "", -1, "the spill store is closed")
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._look()
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(self._path(handle), flags, 0o600)
            except OSError as error:
                return Spill(self, "", -1, f"no file could be made in {self.directory}: {_words(error)}")
            self._sizes[handle] = 0
            self._open.add(handle)
            self._ours.add(handle)
        return Spill(self, handle, fd, rewriter=self._rewriter() if self._rewriter is not None else None)

    def add(self, data: bytes) -> Spilled:
        """Keep an output that is at hand."""
        spill = self.begin()
        spill.write(data)
        spill.close()
        return spill.state()

    def reserve(self, handle: str, count: int) -> int:
        """How many of `count` further bytes an open output may have; the oldest others make room."""
        with self._lock:
            if self._used + count > self.max_bytes:
                self._make_room(count)
            granted = max(0, min(count, self.max_bytes - self._used))
            self._count(handle, granted)
            return granted

    def finish(self, handle: str, unused: int) -> None:
        """An output is complete; so many of the bytes reserved for it were not written."""
        with self._lock:
            self._open.discard(handle)
            self._count(handle, -unused)

    def _make_room(self, count: int) -> None:
        for oldest in [each for each in self._sizes if each not in self._open]:
            self._remove(oldest)
            if self._used + count <= self.max_bytes:
                return

    def _count(self, handle: str, more: int) -> None:
        if handle in self._sizes:
            self._sizes[handle] += more
            self._used += more

    def _look(self) -> None:
        """Count what earlier processes have left."""
        if self._used >= 0:
            return
        found = []
        for entry in os.scandir(self.directory):
            if entry.name.endswith(_SUFFIX) and _HANDLE.match(entry.name.removesuffix(_SUFFIX)):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, entry.name.removesuffix(_SUFFIX), status.st_size))
        self._sizes = {handle: size for _, handle, size in sorted(found)}
        self._used = sum(self._sizes.values())

    # -- removing ---------------------------------------------------------------------------------

    def remove(self, handle: str) -> None:
        """Remove an output. Raises NotFound."""
        with self._lock, _reported(handle):
            self._checked(handle).unlink()
            self._forget(handle)

    def close(self) -> None:
        """Take no more outputs, and remove those that this store made unless `keep` is set. Idempotent."""
        with self._lock:
            self._closed = True
            if self.keep:
                return
            for handle in self._ours:
                self._remove(handle)
            self._ours.clear()
            with contextlib.suppress(OSError):
                # Only one that is empty goes.
                self.directory.rmdir()

    def _remove(self, handle: str) -> None:
        with contextlib.suppress(OSError):
            self._path(handle).unlink()
        self._forget(handle)

    def _forget(self, handle: str) -> None:
        self._used -= self._sizes.pop(handle, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- reading ----------------------------------------------------------------------------------

    def handles(self) -> list[str]:
        """The outputs that are there, in no order. Raises NotFound, PermissionDenied for the directory."""
        with _reported(str(self.directory)):
            names = os.listdir(self.directory) if self.directory.exists() else []  # noqa: PTH208
        found = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return [handle for handle in found if _HANDLE.match(handle)]

    def size_bytes(self, handle: str) -> int:
        """How long an output is. This and all below raise NotFound for a handle that is not there."""
        with self._reading(handle) as fd:
            return os.fstat(fd).st_size

    def read_bytes(self, handle: str, offset: int = 0, count: int = 1 << 20) -> bytes:
        """Up to `count` bytes from `offset` on, which counts from the end if it is negative."""
        with self._reading(handle) as fd:
            return spill_read.read_bytes(fd, offset, count)

    def read_lines(
        self, handle: str, first: int = 1, count: int = 1000, *, limit_bytes: int = 1 << 20
    ) -> Lines:
        """Up to `count` lines from line `first` on: 1 is the first, -1 the last, -10 the tenth last.

        limit_bytes  how much they hold together: fewer lines come if it is not enough, and of a line
                     that alone is longer only the beginning

        Raises RequestError for line 0 and for a count or limit below 1."""
        with self._reading(handle) as fd:
            return spill_read.read_lines(fd, first, count, limit_bytes)

    def tail(self, handle: str, count: int = 10, *, limit_bytes: int = 1 << 20) -> Lines:
        """The last `count` lines; within the limit, those at the end."""
        with self._reading(handle) as fd:
            return spill_read.tail(fd, count, limit_bytes)

    def search(
        self,
        handle: str,
        pattern: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        first: int = 1,
        context: int = 0,
        most: int = 100,
        limit_bytes: int = 1 << 20,
        view: View | None = None,
    ) -> Found:
        """The lines that hold a text, or that match a regular expression (RE2: in linear time).

        first        the line to begin with: how a search that found `more` goes on
        context      how many lines before and after each one are shown as well
        most         how many matching lines are shown at most
        limit_bytes  how much all lines that are shown hold together
        view         applied to whole lines before they are looked at; must keep the number of line ends

        CRLF is a line end. A line over 1 MiB is searched in pieces, which overlap by 4 KiB.
        Raises RequestError for a pattern that is empty, no regular expression, or has a line end."""
        looked_for = spill_search.compiled(pattern, regex=regex, ignore_case=ignore_case)
        bounds = spill_search.Bounds(first, context, most, limit_bytes)
        with self._reading(handle) as fd:
            return spill_search.search(fd, looked_for, bounds, view)

    @contextmanager
    def _reading(self, handle: str) -> Iterator[int]:
        with _reported(handle):
            fd = os.open(self._checked(handle), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with _reported(handle):
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise FileNotFoundError
                yield fd
        finally:
            os.close(fd)

    def _checked(self, handle: str) -> Path:
        if not isinstance(handle, str) or not _HANDLE.match(handle):
            raise FileNotFoundError
        return self._path(handle)

    def _path(self, handle: str) -> Path:
        return self.directory / f"{handle}{_SUFFIX}"


class Spill:
    """One output on its way into its file. Made by `SpillStore.begin`. Thread-safe."""

    def __init__(
        self, store: SpillStore, handle: str, fd: int, problem: str = "", rewriter: Rewriter | None = None
    ) -> None:
        self._store = store
        self._rewriter = rewriter
        self._handle = handle
        self._fd = fd
        self._problem = problem
        self._lock = threading.Lock()
        self._size = 0
        self._reserved = 0

    def write(self, data: bytes | bytearray) -> None:
        """Append. Takes as long as the disk does; what the disk refuses ends the file, not the command."""
        with self._lock:
            if not self._problem and self._fd >= 0:
                self._append(data if self._rewriter is None else self._rewriter.feed(bytes(data)))

    def _append(self, data: bytes | bytearray) -> None:
        granted = self._store.reserve(self._handle, len(data))
        self._reserved += granted
        end = self._size + granted
        try:
            with memoryview(data)[:granted] as view:
                while self._size < end:
                    self._size += os.write(self._fd, view[granted - (end - self._size) :])
        except OSError as error:
            self._problem = _words(error)
            return
        if granted < len(data):
            self._problem = f"the spill store is full ({self._store.max_bytes} bytes)"

    def state(self) -> Spilled:
        """What is in the file by now."""
        with self._lock:
            return self._state()

    def _state(self) -> Spilled:
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
            self._handle, self._size, self._problem = "", 0, "the file was removed while it was written"
        return Spilled(self._handle, self._size, self._problem)

    def close(self) -> None:
        """The output is complete. Idempotent."""
        with self._lock:
            if self._fd < 0:
                return
            if self._rewriter is not None and not self._problem:
                self._append(self._rewriter.end())
            handle, unused = self._handle, self._reserved - self._size
            self._state()
            os.close(self._fd)
            self._fd = -1
            self._store.finish(handle, unused)


def _words(error: OSError) -> str:
    return error.strerror or str(error)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """OSError as an error of the sandbox."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(
            "read output", str(what)[:100], "there is no such output; it may have been removed"
        ) from None
    except OSError as error:
        raise FileError("read output", str(what)[:100], _words(error)) from error
