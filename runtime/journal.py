"""A run's journal: one record for each step that must survive the end of the process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from runtime.errors import JournalError, JournalInUse
from runtime.schema import JSON, clean, dump


class Journal(Protocol):
    """Takes the records of one run, in order."""

    def append(self, record: Mapping[str, JSON]) -> None:
        """Keep a record. Returns when it is durable; short enough to be called on the event loop.

        Raises JournalError when it cannot; the run ends then, before it does what the record announces.
        """
        ...


class MemoryJournal:
    """A journal in memory, for tests and for callers that store the records themselves."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, JSON]] = []

    def append(self, record: Mapping[str, JSON]) -> None:
        """Keep a record."""
        self.records.append(json.loads(dump(clean(record))))


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal's file holds. `notice` tells a person what was dropped; "" if nothing was."""

    records: list[dict[str, JSON]]
    notice: str = ""


class FileJournal:
    """A journal as a file of JSON lines, readable by its owner alone.

    Each record is on the disk (fsync) when `append` returns. One writer at a time: a lock file beside it
    (`NAME.lock`) holds the writer's pid. The first append cuts off a last line that was never completed;
    opening changes nothing. Raises JournalInUse, and JournalError for a file that cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock_fd = _lock(self.path)
        self._fd = -1
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._length = _whole_lines(self.path.read_bytes())
            _sync_directory(self.path.parent)
        except OSError as error:
            if self._fd >= 0:
                os.close(self._fd)
            os.close(self._lock_fd)
            raise JournalError(f"cannot open the journal {self.path}: {error}") from error

    def append(self, record: Mapping[str, JSON]) -> None:
        """Add a record; durable on return. Raises JournalError, with the file as it was before."""
        data = (dump(clean(record)) + "\n").encode()
        try:
            # Cuts off a line that was never completed, of a process that was killed or of a full disk.
            os.ftruncate(self._fd, self._length)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._length)
            raise JournalError(f"cannot write the journal {self.path}: {error}") from error
        self._length += len(data)

    def close(self) -> None:
        """Let others write. Closing twice is nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            os.close(self._lock_fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: str | Path) -> JournalContents:
    """The records of a journal's file, which is not changed; a writer may hold it.

    A last line that was never completed is left out, with a notice. Raises JournalError for a file that
    cannot be read and for a broken line before the last.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error}") from error
    length = _whole_lines(data)
    records = [_record(line, number, path) for number, line in enumerate(data[:length].split(b"\n")[:-1], 1)]
    torn = len(data) - length
    notice = f"{path}: the last {torn} bytes were never completed and are left out" if torn else ""
    return JournalContents(records, notice)


def _record(line: bytes, number: int, path: str | Path) -> dict[str, JSON]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{path}: line {number} is broken: {error}") from None
    if not isinstance(value, dict):
        raise JournalError(f"{path}: line {number} is not a JSON object")
    return value


def _whole_lines(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _lock(path: Path) -> int:
    lock = path.with_name(path.name + ".lock")
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"cannot open the journal's lock {lock}: {error}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = _pid(os.read(fd, 32))
        os.close(fd)
        raise JournalInUse(f"{path} is in use by pid {pid}" if pid else f"{path} is in use", pid) from error
    except OSError as error:
        os.close(fd)
        raise JournalError(f"cannot lock the journal {path}: {error}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def _pid(data: bytes) -> int:
    return int(data) if data.isdigit() else 0


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
