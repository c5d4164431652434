"""What every benchmark shares: contenders taken in turns, statistics, tables, a record for machines."""

from __future__ import annotations

import math
import os
import platform
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from types import FrameType

BURST_LIMIT_S = 30.0
"""How long one turn of one contender, or its opening, may take."""
_WARM_UP = 3


class TooSlow(Exception):
    """A contender did not come back in time."""


@dataclass
class Contender:
    """One way to do the work. `call` does it once, checks the answer, and returns the seconds it took."""

    name: str
    call: Callable[[], float]
    samples: list[float] = field(default_factory=list)
    failed: str = ""


def timed(work: Callable[[], None]) -> Callable[[], float]:
    """Work as a contender's call."""

    def call() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return call


@contextmanager
def bounded(seconds: float = BURST_LIMIT_S) -> Iterator[None]:
    """Raise TooSlow in the main thread if the block takes longer; costs nothing for each call in it."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interleave(contenders: Sequence[Contender], *, rounds: int, seconds: float, most_calls: int) -> None:
    """Take samples. In each round every contender has one turn, in an order that is new each time.

    seconds     for each contender, all rounds together; a turn has at least one call
    most_calls  for each contender, all rounds together
    """
    for contender in contenders:
        _turn(contender, math.inf, _WARM_UP)
        contender.samples.clear()
    for _ in range(rounds):
        for contender in random.sample(contenders, len(contenders)):
            _turn(contender, seconds / rounds, max(1, most_calls // rounds))


def _turn(contender: Contender, seconds: float, calls: int) -> None:
    if contender.failed:
        return
    until = time.perf_counter() + seconds
    try:
        with bounded():
            for _ in range(calls):
                contender.samples.append(contender.call())
                if time.perf_counter() > until:
                    break
    except Exception as error:  # whatever a peer raises takes that peer out, not the run
        contender.failed = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one contender, in milliseconds. `ratio`: its median to the floor's."""

    name: str
    median_ms: float
    p95_ms: float
    n: int
    ratio: float
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The figures of one piece of work; the first row is the floor."""

    title: str
    rows: tuple[Row, ...]
    target: float | None = None

    def text(self) -> str:
        """The table for people."""
        goal = "" if self.target is None else f"   (target: coderig at most {self.target:g} x)"
        width = max(len(row.name) for row in self.rows)
        lines = [
            f"{self.title}{goal}",
            f"  {'':{width}}  {'median ms':>10} {'p95 ms':>10} {'n':>6} {'x floor':>9}",
        ]
        for row in self.rows:
            if row.failed:
                lines.append(f"  {row.name:{width}}  failed: {row.failed}")
            else:
                figures = f"{row.median_ms:10.3f} {row.p95_ms:10.3f} {row.n:6d} {row.ratio:9.2f}"
                lines.append(f"  {row.name:{width}}  {figures}")
        return "\n".join(lines)


def table(title: str, contenders: Sequence[Contender], target: float | None = None) -> Table:
    """The figures of contenders; the first is the floor, the others come fastest first, then what failed."""
    floor = _median(contenders[0])
    rows = [
        Row(
            name=contender.name,
            median_ms=_median(contender) * 1000,
            p95_ms=_p95(contender.samples) * 1000,
            n=len(contender.samples),
            ratio=_median(contender) / floor,
            failed=contender.failed,
        )
        for contender in contenders
    ]
    others = sorted(rows[1:], key=lambda row: (bool(row.failed), row.median_ms))
    return Table(title, (rows[0], *others), target)


def _median(contender: Contender) -> float:
    return statistics.median(contender.samples) if contender.samples else math.nan


def _p95(samples: Sequence[float]) -> float:
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1] if samples else math.nan


def versions(*distributions: str) -> dict[str, str]:
    """The machine, Python, and installed distributions."""
    found = {
        "kernel": platform.release(),
        "processors": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
    }
    for name in distributions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
