"""What can be done with containers that are there: list, status, start, stop, remove, diff, logs, gc."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coderig.devcontainer_changes import changes, text_changes
from coderig.devcontainer_config import ConfigError, DevConfig
from coderig.devcontainer_record import Record, Records, current_host
from coderig.guard import UsageError, complain
from coderig.signals import FAILED, OK
from coderig.store import home
from coderig.terminal_io import Stream
from coderig.up import bring_up, build_text, live_changes, read_for, run_due
from coderig.up_commands import StepFailed
from coderig.up_view import UpView
from codetools.render import clean
from sandbox import BackendError

if TYPE_CHECKING:
    from sandbox.backends.docker_dev import ContainerFacts, DevDaemon


def up(directory: Path, chosen: Path | None, *, replace_it: bool, trust: bool, json_lines: bool) -> int:
    """`coderig up`. Raises what `guard.guarded` knows."""
    config = read_for(directory, chosen)
    return bring_up(config, own_records(), UpView(json_lines=json_lines), replace=replace_it, trust=trust)


def own_records() -> Records:
    """The records of this user."""
    return Records(home(os.environ))


def record_for(target: str | None, records: Records) -> Record:
    """The record of a dev container.

    target  a directory, or a container's name; None: the current directory. The nearest directory from
            there upwards that has a dev container counts

    Raises UsageError that says what to do."""
    known = records.all()
    if target is not None:
        for record in known:
            if record.name == target:
                return record
    start = Path(target or ".").absolute()
    for place in (start, *start.parents) if start.is_dir() else (start,):
        for record in sorted(known, key=lambda each: -each.made_s):
            if Path(record.directory) == place or _same(Path(record.directory), place):
                return record
    if target is not None and not start.is_dir():
        raise UsageError(f"{target!r} is neither a dev container nor a directory; `coderig ls` lists them")
    raise UsageError(f"{start} has no dev container; `coderig up` makes one")


def remark_changes(record: Record) -> DevConfig | None:
    """Tell a person that the file has changed since; returns what it says now, None if it cannot be read."""
    try:
        config = read_for(Path(record.directory), Path(record.source))
        rows = changes(config, record, build_text(config))
    except (ConfigError, BackendError) as error:
        complain(f"the container is used as it was made: {error}")
        return None
    if rows:
        complain(
            f"{record.source} has changed since the container was made; `coderig diff` shows how, "
            "`coderig up --replace` applies it"
        )
    return config


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


# ---- one container ------------------------------------------------------------------------------


class _Target:
    """A container of ours by TARGET: a dev container by its record, or any by its name."""

    def __init__(self, target: str | None) -> None:
        self.records = own_records()
        self.record: Record | None
        try:
            self.record = record_for(target, self.records)
            self.name = self.record.name
        except UsageError:
            if target is None or "/" in target or Path(target).is_dir():
                raise
            self.record, self.name = None, target

    @property
    def host(self) -> str | None:
        """Its daemon."""
        return self.record.host or None if self.record is not None else None

    def find(self, daemon: DevDaemon) -> ContainerFacts:
        """Where it is now. Raises UsageError if it is gone, AdoptionRefused if it is not ours."""
        found = daemon.find(self.name)
        if found is None:
            if self.record is None:
                raise UsageError(f"there is no container {self.name}; `coderig ls` lists them")
            raise UsageError(f"the container {self.name} is gone; `coderig up` makes it again")
        return found


def _daemon(host: str | None) -> DevDaemon:
    from sandbox.backends.docker_dev import DevDaemon

    return DevDaemon(host)


def status(target: str | None, json_lines: bool) -> int:
    """`coderig status`: 0 if it runs and is as its file says, else 1."""
    chosen = _Target(target)
    record = chosen.record
    with _daemon(chosen.host) as daemon:
        found = daemon.find(chosen.name)
    if found is None and record is None:
        raise UsageError(f"there is no container {chosen.name}; `coderig ls` lists them")
    rows = _file_changes(record) if record is not None else []
    state = found.words if found is not None else "absent"
    good = found is not None and found.state == "running" and not rows
    if json_lines:
        _json({**_row(found, record, chosen.name), "changes": rows})
        return OK if good else FAILED
    out = Stream(1)
    out.write(f"{chosen.name}  {state}\n")
    if record is not None:
        out.write(f"  directory  {clean(record.directory)}\n  file       {clean(record.source)}\n")
        out.write(f"  folder     {record.folder}\n  user       {record.user or 'as in the image'}\n")
        left = [stage for stage in record.creation if stage not in record.done]
        if left:
            out.write(f"  not run    {', '.join(left)} (`coderig up` runs it)\n")
    if found is not None:
        out.write(f"  image      {clean(record.image if record is not None else found.image)}\n")
        for port, where in found.ports.items():
            out.write(f"  port {port}  {where}\n")
    for row in rows:
        out.write(f"  changed    {clean(row)}\n")
    return OK if good else FAILED


def _file_changes(record: Record) -> list[str]:
    try:
        config = read_for(Path(record.directory), Path(record.source))
        return changes(config, record, build_text(config))
    except (ConfigError, BackendError) as error:
        return [str(error)]


def stop(target: str | None) -> int:
    """`coderig stop`: on a stopped one nothing."""
    chosen = _Target(target)
    with _daemon(chosen.host) as daemon:
        daemon.stop(chosen.find(daemon).id)
    return _told(f"{chosen.name} is stopped")


def start(target: str | None) -> int:
    """`coderig start`: with proof for a dev container, and with the commands of a start."""
    chosen = _Target(target)
    record = chosen.record
    with _daemon(chosen.host) as daemon:
        found = chosen.find(daemon)
        if record is None:
            daemon.start(found.id)
            return _told(f"{chosen.name} runs")
        with chosen.records.held(record.name):
            rows = live_changes(record)
            if rows:
                shown = "\n".join(f"  {row}" for row in rows)
                complain(f"the container {record.name} is not as it was made:\n{shown}")
                complain("coderig up --replace makes it again")
                return FAILED
            config = remark_changes(record)
            if config is not None:
                view = UpView(json_lines=False)
                try:
                    run_due(config, record, chosen.records, view, chosen.find(daemon).started)
                except StepFailed as error:
                    complain(error)
                    return FAILED
    return _told(f"{chosen.name} runs")


def remove(targets: Sequence[str]) -> int:
    """`coderig rm`: the container and what is kept of it; named volumes and the directory stay."""
    for target in targets or (None,):
        chosen = _Target(target)
        with chosen.records.held(chosen.name), _daemon(chosen.host) as daemon:
            found = daemon.find(chosen.name)
            if found is None and chosen.record is None:
                raise UsageError(f"there is no container {chosen.name}; `coderig ls` lists them")
            if found is not None:
                daemon.remove(found.id)
            chosen.records.forget(chosen.name)
        _told(f"{chosen.name} is removed")
    return OK


def show_diff(target: str | None, json_lines: bool) -> int:
    """`coderig diff`: 0 if file, container and record agree, else 1."""
    chosen = _Target(target)
    record = chosen.record
    if record is None:
        raise UsageError(f"{chosen.name} was not made by `coderig up`: there is no file to compare it with")
    try:
        config = read_for(Path(record.directory), Path(record.source))
    except ConfigError as error:
        complain(error)
        return FAILED
    rows = changes(config, record, build_text(config))
    text = text_changes(record, config.text)
    with _daemon(record.host or None) as daemon:
        found = daemon.find(record.name)
    live = live_changes(record) if found is not None and found.state == "running" else []
    if json_lines:
        _json({"name": record.name, "changes": rows, "container": live, "file": text})
        return FAILED if rows or live else OK
    out = Stream(1)
    for row in rows:
        out.write(f"{clean(row)}\n")
    for row in live:
        out.write(f"the container itself: {clean(row)}\n")
    if text:
        out.write(f"{clean(text)}\n")
    if not rows and not live:
        complain(
            f"{record.name} is as {record.source} says" + ("; what has changed needs no new one" * bool(text))
        )
    return FAILED if rows or live else OK


def logs(target: str | None, tail: int) -> int:
    """`coderig logs`: what lifecycle commands have printed, then what the container itself has."""
    chosen = _Target(target)
    out = Stream(1)
    path = chosen.records.log(chosen.name)
    kept = path.read_bytes() if path.is_file() else b""
    with _daemon(chosen.host) as daemon:
        found = daemon.find(chosen.name)
        own = daemon.logs(found.id) if found is not None else b""
    if found is None and chosen.record is None:
        raise UsageError(f"there is no container {chosen.name}; `coderig ls` lists them")
    lines = (kept + own).splitlines(keepends=True)
    out.write_bytes(b"".join(lines[-tail:] if tail else lines))
    return OK


# ---- all of them --------------------------------------------------------------------------------


def list_all(json_lines: bool) -> int:
    """`coderig ls`: every container of ours on this daemon, and dev containers that are gone."""
    rows = _all_rows()
    out = Stream(1)
    if json_lines:
        for row in rows:
            _json(row)
        return OK
    if not rows:
        complain("there are no containers; `coderig up` makes one")
        return OK
    width = max(len(row["name"]) for row in rows)
    wide = max(len(row["state"]) for row in rows)
    for row in rows:
        where = row["directory"] or "-"
        out.write(f"{row['name']:<{width}}  {row['state']:<{wide}}  {clean(row['image'])}  {clean(where)}\n")
    return OK


def _all_rows() -> list[dict[str, Any]]:
    known = {record.name: record for record in own_records().all() if record.host == current_host()}
    with _daemon(None) as daemon:
        found = {each.name: each for each in daemon.containers()}
    rows = [_row(facts, known.get(name), name) for name, facts in found.items()]
    rows += [_row(None, record, name) for name, record in known.items() if name not in found]
    return sorted(rows, key=lambda row: str(row["name"]))


def _row(found: ContainerFacts | None, record: Record | None, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "id": found.id if found is not None else "",
        "state": found.words if found is not None else "absent",
        "image": record.image if record is not None else found.image if found is not None else "",
        "created": found.created if found is not None else "",
        "directory": record.directory if record is not None else "",
        "file": record.source if record is not None else "",
        "folder": record.folder if record is not None else "",
        "user": record.user if record is not None else None,
        "ports": dict(found.ports) if found is not None else {},
    }


def collect(dry_run: bool, json_lines: bool) -> int:
    """`coderig gc`: what nobody can use any more. A container that runs is never removed here."""
    records = own_records()
    with _daemon(None) as daemon:
        for name in daemon.collect(dry_run=dry_run):
            _gone(name, "temporary container", "the process that made it is gone", dry_run, json_lines)
        for record in records.all():
            if record.host != current_host():
                continue
            found = daemon.find(record.name)
            if found is None:
                _gone(record.name, "record", "its container is gone", dry_run, json_lines)
                if not dry_run:
                    records.forget(record.name)
            elif not Path(record.directory).exists() and found.state != "running":
                _gone(record.name, "container", f"{record.directory} is gone", dry_run, json_lines)
                if not dry_run:
                    daemon.remove(found.id)
                    records.forget(record.name)
    return OK


def _gone(name: str, kind: str, reason: str, dry_run: bool, json_lines: bool) -> None:
    if json_lines:
        _json({"name": name, "kind": kind, "reason": reason, "removed": not dry_run})
    else:
        Stream(1).write(f"{'would remove' if dry_run else 'removed'} {kind} {name}: {clean(reason)}\n")


def _json(value: dict[str, Any]) -> None:
    Stream(1).write_bytes(json.dumps(value).encode("ascii") + b"\n")


def _told(words: str) -> int:
    Stream(1).write(f"{words}\n")
    return OK
