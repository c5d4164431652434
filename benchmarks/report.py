"""The command line of the benchmarks, and what becomes of the results: a text, JSON, docs/benchmarks.md."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks.measure import Field, Table, say
from benchmarks.places import PLACES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. `rounds` and `seconds`: of each contender in each table."""

    places: tuple[str, ...]
    rounds: int
    seconds: float
    peers: bool
    json: Path | None
    write: bool
    more: bool = False


def parse(
    description: str,
    arguments: Sequence[str],
    *,
    places: Sequence[str] = PLACES,
    rounds: int = 12,
    seconds: float = 1.0,
    more: str = "",
) -> Options:
    """The options that all benchmarks share. `more`: what `--more` does in this one; "": there is none."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--places", default=",".join(places), help="default: %(default)s")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="turns of each contender; default: %(default)s"
    )
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="of each contender in each table; default: %(default)s"
    )
    parser.add_argument("--peers", action="store_true", help="install and measure the peers too")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    if more:
        parser.add_argument("--more", action="store_true", help=more)
    chosen = parser.parse_args(arguments)
    # Ended like by Ctrl-C, so that what was started is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    named = tuple(chosen.places.split(","))
    if unknown := set(named) - set(places):
        parser.error(f"no such place here: {', '.join(sorted(unknown))}")
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds must be above 0")
    return Options(
        named,
        chosen.rounds,
        chosen.seconds,
        chosen.peers,
        chosen.json,
        chosen.write,
        bool(more) and chosen.more,
    )


@dataclass
class Report:
    """The results of one benchmark, as they come.

    name  of its part of docs/benchmarks.md
    how   how long each contender was measured, in words; None: as the options say
    """

    name: str
    options: Options
    how: str | None = None
    tables: list[Table] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, table: Table) -> None:
        """One more table; it is printed at once."""
        self.tables.append(table)
        print(table.text(), end="\n\n", flush=True)

    def met(self, found: Field) -> None:
        """Who took part at a place, and who did not."""
        self.versions |= {each.contender.name: each.worker.version for each in found.entrants}
        self.absent += [f"{found.place}: {name} took no part: {why}" for name, why in found.absent.items()]

    def finish(self) -> int:
        """Write what is to be written; the exit status: 1 if coderig or a floor failed."""
        footer = self._footer()
        print(footer, flush=True)
        if self.options.json:
            self.options.json.write_text(json.dumps(self._record(), indent=1) + "\n", encoding="utf-8")
        if self.options.write:
            text = "\n\n".join([*(table.text() for table in self.tables), footer])
            DOCUMENT.write_text(
                replaced(DOCUMENT.read_text(encoding="utf-8"), self.name, text), encoding="utf-8"
            )
        failures = [failure for table in self.tables for failure in table.broken]
        for failure in failures:
            say(f"FAILED: {failure}")
        say(f"{self.name}: {time.monotonic() - self.began:.0f} s in all")
        return int(bool(failures))

    def _footer(self) -> str:
        today = datetime.now(UTC).strftime("%-d %B %Y")
        how = f"{self.options.rounds} rounds, {self.options.seconds:g} s of each in each table, "
        how = how if self.how is None else self.how
        said = ", ".join(f"{name} {version}" for name, version in (versions() | self.versions).items())
        took = f"{time.monotonic() - self.began:.0f} s in all"
        head = f"{today}, {how}{took}; load {load()} at the end. {said}."
        return "\n\n".join([head, *dict.fromkeys(self.absent)])

    def _record(self) -> Mapping[str, object]:
        return {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions() | self.versions,
            "absent": self.absent,
            "tables": [dataclasses.asdict(table) for table in self.tables],
        }


def replaced(document: str, name: str, text: str) -> str:
    """The document with the part of that name replaced. Raises ValueError if it has no such part."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"the document has no part {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", document, count=1)


def load() -> str:
    """How busy the machine was in the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def versions() -> dict[str, str]:
    """The machine and what the floors are made of."""
    bash = subprocess.run(
        ["bash", "-c", "printf %s $BASH_VERSION"], capture_output=True, text=True, timeout=10
    ).stdout
    found = {
        "Linux": platform.release(),
        "processors": str(len(os.sched_getaffinity(0))),
        "Python": platform.python_version(),
        "bash": bash,
    }
    for name in ("paramiko", "docker", "ptyprocess"):
        found[name] = metadata.version(name)
    return found
