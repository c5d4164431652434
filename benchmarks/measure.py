"""What every benchmark shares: contenders taken in turns, statistics, tables."""

from __future__ import annotations

import contextlib
import math
import random
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contenders import Contender, Failed, NoAnswer, Worker, contenders, start
from benchmarks.peers import NOT_DRIVEN, PeerAbsent

TURN_LIMIT_S = 60.0
"""How long one turn of one contender may take beyond its time."""
_WARM_UP = 3
_MOST_CALLS = 4000


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def median(samples: Sequence[float]) -> float:
    """The median, or NaN of nothing."""
    return statistics.median(samples) if samples else math.nan


def p95(samples: Sequence[float]) -> float:
    """The smallest sample that at least 95 % are not above, or NaN of nothing."""
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1] if samples else math.nan


def number(value: float) -> str:
    """A figure with about three digits that mean something."""
    if math.isnan(value):
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    return f"{value:.{digits}f}"


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of one piece of work, for people and for programs.

    notes   lines below the table
    data    the same figures unrounded, one entry a row
    broken  what the floor or coderig failed at; empty if all is well
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    data: tuple[Mapping[str, Any], ...] = ()
    broken: tuple[str, ...] = ()

    def text(self) -> str:
        """As Markdown that is also readable as it is."""
        cells = [(self.title, *self.columns)]
        cells += [tuple(_cell(text) for text in row) for row in self.rows]
        width = max(len(row) for row in cells)
        cells = [row + ("",) * (width - len(row)) for row in cells]
        widths = [max(len(row[at]) for row in cells) for at in range(width)]
        lines = [_line(row, widths) for row in cells]
        rule = [f"{'-' * widths[0]}", *(f"{'-' * (size - 1)}:" for size in widths[1:])]
        lines.insert(1, "| " + " | ".join(rule) + " |")
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])


def _cell(text: str) -> str:
    # A bar would end the cell.
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        row[0].ljust(widths[0]),
        *(text.rjust(size) for text, size in zip(row[1:], widths[1:], strict=True)),
    ]
    return "| " + " | ".join(cells) + " |"


@dataclass
class Entrant:
    """A contender that is ready; `samples` and `failed` belong to the work at hand."""

    contender: Contender
    worker: Worker
    samples: list[float] = field(default_factory=list)
    failed: str = ""
    gone: bool = False

    def title(self, kind: str) -> str:
        """What its row is called."""
        label = self.worker.ways[kind]["label"]
        return f"floor: {label}" if self.contender.name == "floor" else f"{self.contender.name} {label}"

    def ask(self, what: str, **question: Any) -> dict[str, Any] | None:
        """The worker's answer. None: it failed, `failed` says how, and it is left out of the work at hand."""
        if self.gone or self.failed:
            self.failed = self.failed or "gave no answer before"
            return None
        try:
            return self.worker.ask(what, **question)
        except Failed as error:
            self.failed = str(error)
        except NoAnswer as error:
            self.failed, self.gone = str(error), True
            self.worker.kill()
        return None


@dataclass
class Field:
    """Everybody at one place, ready; the floor comes first. `absent`: who is not, and why."""

    place: str
    entrants: list[Entrant] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def who(self, kind: str) -> list[Entrant]:
        """Those that can do a kind of work, with nothing held against them."""
        found = [entrant for entrant in self.entrants if kind in entrant.worker.ways]
        for entrant in found:
            entrant.samples, entrant.failed = [], ""
        return found


@contextlib.contextmanager
def opened(place: str, access: dict[str, str], *, with_peers: bool) -> Iterator[Field]:
    """Start everybody at a place. A floor or a coderig that cannot start raises; a peer is `absent`."""
    found = Field(place)
    with contextlib.ExitStack() as stack:
        if with_peers:
            found.absent |= NOT_DRIVEN.get(place, {})
        for contender in contenders(place, with_peers=with_peers):
            say(f"{place}: opening {contender.name}")
            try:
                worker = start(contender, access)
            except PeerAbsent as error:
                found.absent[contender.name] = str(error)
                continue
            stack.callback(worker.close)
            found.entrants.append(Entrant(contender, worker))
        yield found


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to time.

    pause_s   between two calls, as an agent would make them; 0: back to back
    stdin     input of the command
    width     how many callers at once
    targets   by place: what coderig's median is to be at most, as a ratio to the floor's
    """

    title: str
    kind: str
    command: str
    expect: str
    pause_s: float = 0.0
    stdin: str | None = None
    width: int = 1
    targets: Mapping[str, float] = field(default_factory=dict)


def timed(found: Field, work: Work, *, rounds: int, seconds: float) -> Table:
    """Time everybody. In each round all have one turn, in an order that is new each time."""
    entrants = [
        each
        for each in found.who(work.kind)
        if work.stdin is None or "stdin" in each.worker.ways[work.kind]["features"]
    ]
    question: dict[str, Any] = {
        "kind": work.kind,
        "command": work.command,
        "expect": work.expect,
        "stdin": work.stdin,
    }
    question |= {"pause_s": work.pause_s, "width": work.width}
    say(f"{found.place}: {work.title}")
    for entrant in entrants:
        entrant.ask("turn", limit_s=TURN_LIMIT_S, seconds=TURN_LIMIT_S, calls=_WARM_UP, **question)
    turn = {"seconds": seconds / rounds, "calls": max(1, _MOST_CALLS // rounds)}
    for _ in range(rounds):
        for entrant in random.sample(entrants, len(entrants)):
            answer = entrant.ask("turn", limit_s=TURN_LIMIT_S, **turn, **question)
            entrant.samples += answer["samples"] if answer else []
    return table(f"{found.place}: {work.title}", entrants, work.kind, work.targets.get(found.place))


def table(title: str, entrants: Sequence[Entrant], kind: str, target: float | None) -> Table:
    """The figures of entrants; the first is the floor, the others come fastest first, then what failed."""
    floor = median(entrants[0].samples)
    others = sorted(entrants[1:], key=lambda each: (bool(each.failed), median(each.samples)))
    rows: list[tuple[str, ...]] = []
    data = []
    for each in (entrants[0], *others):
        name, middle = each.title(kind), median(each.samples)
        if each.failed:
            rows.append((name, "failed"))
        else:
            rows.append(
                (
                    name,
                    number(middle * 1000),
                    number(p95(each.samples) * 1000),
                    str(len(each.samples)),
                    number(middle / floor),
                )
            )
        data.append(
            {
                "name": name,
                "median_ms": middle * 1000,
                "p95_ms": p95(each.samples) * 1000,
                "calls": len(each.samples),
                "ratio": middle / floor,
                "failed": each.failed,
            }
        )
    ours = next((each for each in entrants if each.contender.name == "coderig"), None)
    notes = [judged(target, median(ours.samples) / floor)] if ours and target is not None else []
    notes += failures(entrants, kind)
    columns = ("median ms", "p95 ms", "calls", "x floor")
    return Table(title, columns, tuple(rows), tuple(notes), tuple(data), broken(title, entrants))


def failures(entrants: Sequence[Entrant], kind: str) -> tuple[str, ...]:
    """Lines that say who failed, and how."""
    return tuple(f"{each.title(kind)} failed: {each.failed}." for each in entrants if each.failed)


def broken(title: str, entrants: Sequence[Entrant]) -> tuple[str, ...]:
    """What the floor or coderig failed at."""
    return tuple(
        f"{title}: {each.contender.name}: {each.failed}"
        for each in entrants
        if each.failed and each.contender.ours
    )


def judged(target: float, value: float, unit: str = "x the floor", *, at_least: bool = False) -> str:
    """A line that says whether coderig met a target."""
    met = value >= target if at_least else value <= target
    words = "at least" if at_least else "at most"
    return f"Target: coderig {words} {target:g} {unit}: {'met' if met else '**missed**'} ({number(value)})."
