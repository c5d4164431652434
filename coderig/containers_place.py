"""`dev[:DIR]`: the dev container of a directory, as a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox import Sandbox

if TYPE_CHECKING:
    from coderig.devcontainer_record import Record


@dataclass(frozen=True, slots=True)
class DevPlace:
    """A dev container that `coderig up` has made."""

    text: str
    record: Record
    directory: str | None = None

    def at(self, directory: str) -> DevPlace:
        """The same container, another working directory (absolute)."""
        return replace(self, directory=directory)

    def for_run(self, run_id: str) -> DevPlace:
        """A run in this place needs nothing of its own."""
        return self

    def open(self, env: Mapping[str, str] | None = None, *, warm: bool = True) -> Sandbox:
        """The container; proved to be the one that was made, at its first use."""
        from coderig.up_commands import open_container

        record = self.record if self.directory is None else replace(self.record, folder=self.directory)
        return open_container(record, env, warm=warm)

    def remove(self) -> None:
        """A dev container belongs to a person, not to a run."""


def dev_place(text: str, base: Path) -> DevPlace:
    """The place of `dev`, `dev:DIR` or `dev:NAME`. Raises PlaceError if there is no such dev container.

    base  the directory that DIR starts from
    """
    from coderig.containers import own_records, record_for
    from coderig.guard import UsageError
    from coderig.place import PlaceError

    records, named = own_records(), text.removeprefix("dev").removeprefix(":")
    is_name = named and "/" not in named and records.load(named) is not None
    try:
        return DevPlace(text, record_for(named if is_name else str(base / Path(named).expanduser()), records))
    except UsageError as error:
        raise PlaceError(f"{text!r}: {error}") from None
