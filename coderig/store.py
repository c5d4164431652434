"""Runs on disk: a directory each, with what was asked for (`run.json`), `journal.jsonl` and the outputs that
were too long for it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime import FileJournal, RunState, read_journal, state_from_records
from sandbox import SpillStore
from sandbox.spill import Rewriter

VERSION = 1
_ID = re.compile(r"[0-9a-f]{8}\Z", re.ASCII)
_META = "run.json"
_JOURNAL = "journal.jsonl"
_OUTPUTS = "outputs"


class StoreError(Exception):
    """The runs cannot be kept or read, or there is no such run; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeta:
    """What a run was asked for; enough to go on with it from another directory.

    created_s    seconds since 1970
    cwd          where it was started: relative names of files start there
    policy_path  where the rules came from; "": no file was given
    policy_text  the rules themselves: a run keeps those that it began with
    env          set for every command of the run
    """

    id: str
    created_s: float
    task: str
    place: str
    model: str
    base_url: str | None
    cwd: str
    policy_path: str = ""
    policy_text: str | None = None
    max_turns: int = 0
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of the list of runs. `status`: "completed", "paused", "failed", "interrupted" or "new"."""

    meta: RunMeta
    status: str


def new_id() -> str:
    """An id that no run has."""
    return secrets.token_hex(4)


def home(environment: Mapping[str, str]) -> Path:
    """Where runs are kept: $CODERIG_HOME, $XDG_STATE_HOME/coderig or ~/.local/state/coderig."""
    if chosen := environment.get("CODERIG_HOME"):
        return Path(chosen).absolute()
    if state := environment.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "coderig"
    return Path(environment.get("HOME") or Path.home()) / ".local" / "state" / "coderig"


class Store:
    """The runs below one directory, which only its owner can look into."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runs = directory / "runs"

    def create(self, meta: RunMeta) -> None:
        """Keep a new run. Raises StoreError."""
        try:
            # One that was there before may be shared: only what is made here is closed to others.
            self._directory.parent.mkdir(parents=True, exist_ok=True)
            for made in (self._directory, self._runs):
                made.mkdir(mode=0o700, exist_ok=True)
            directory = self.directory(meta.id)
            directory.mkdir(mode=0o700)
            _write(directory / _META, json.dumps({"version": VERSION, **asdict(meta)}, indent=2))
        except OSError as error:
            raise StoreError(f"{_cannot('keep the run in', self._directory, error)}") from error

    def directory(self, run_id: str) -> Path:
        """A run's own directory."""
        return self._runs / run_id

    def find(self, text: str) -> RunMeta:
        """The run of that id, of the only id that begins so, or the newest for "last". Raises StoreError."""
        ids = self._ids()
        if text == "last" and ids:
            return max((self._meta(found) for found in ids), key=lambda meta: meta.created_s)
        found = [run_id for run_id in ids if run_id.startswith(text)] if text else []
        if not found:
            raise StoreError(f"there is no run {text!r}; `coderig runs` lists those that are here")
        if len(found) > 1:
            raise StoreError(f"several runs begin with {text!r}: {', '.join(sorted(found))}")
        return self._meta(found[0])

    def all(self) -> list[RunSummary]:
        """All runs, the oldest first. One whose record cannot be read is left out."""
        summaries = []
        for run_id in self._ids():
            try:
                summaries.append(RunSummary(self._meta(run_id), self._status(run_id)))
            except StoreError:
                continue
        return sorted(summaries, key=lambda summary: summary.meta.created_s)

    def forget(self, run_id: str) -> None:
        """Remove what is kept of a run. Raises StoreError."""
        try:
            shutil.rmtree(self.directory(run_id))
        except OSError as error:
            raise StoreError(_cannot("remove", self.directory(run_id), error)) from error

    def journal(self, run_id: str) -> FileJournal:
        """The run's journal, held by this process. Raises JournalError, and JournalInUse."""
        return FileJournal(self.directory(run_id) / _JOURNAL)

    def outputs(self, run_id: str, rewriter: Callable[[], Rewriter]) -> SpillStore:
        """Where the run's long outputs are kept; whoever resumes it reads them."""
        return SpillStore(self.directory(run_id) / _OUTPUTS, keep=True, rewriter=rewriter)

    def torn(self, run_id: str) -> str:
        """A remark if the journal's last line was never completed; opening the journal cuts it off."""
        try:
            data = (self.directory(run_id) / _JOURNAL).read_bytes()
        except OSError:
            return ""
        left = len(data) - data.rfind(b"\n") - 1
        return f"the journal's last {left} bytes were never completed and are left out" if left else ""

    def state(self, run_id: str) -> RunState | None:
        """Where a run stands; None if it never began. Raises JournalError."""
        records = read_journal(self.directory(run_id) / _JOURNAL).records
        return state_from_records(records) if records else None

    def _ids(self) -> list[str]:
        try:
            return [entry.name for entry in self._runs.iterdir() if _ID.match(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(_cannot("list", self._runs, error)) from error

    def _meta(self, run_id: str) -> RunMeta:
        path = self.directory(run_id) / _META
        try:
            value = json.loads(path.read_text("utf-8"))
            if value.pop("version") != VERSION:
                raise StoreError(f"{path} was written by another version of coderig")
            return RunMeta(**value)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(f"cannot read the record of the run {run_id} ({path}): {error}") from error

    def _status(self, run_id: str) -> str:
        record = _last_record(self.directory(run_id) / _JOURNAL)
        kind = record.get("record")
        if kind in ("completed", "paused"):
            return str(kind)
        if kind == "failed":
            return "interrupted" if record.get("code") == "cancelled" else "failed"
        return "interrupted" if kind else "new"


def now_s() -> float:
    """The time that a run's record holds."""
    return round(time.time(), 3)


def _cannot(what: str, path: Path, error: OSError) -> str:
    return f"cannot {what} {path}: {error.strerror or error}; CODERIG_HOME names another directory"


def _write(path: Path, text: str) -> None:
    aside = path.with_suffix(".new")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)


def _last_record(path: Path) -> dict[str, Any]:
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
        value = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
