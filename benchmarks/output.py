"""Much output: how fast it comes, and what it costs in memory. The floor, coderig and its peers, in one run.

    .venv/bin/python benchmarks/output.py [--places local,ssh,docker] [--peers] [--more] [--json FILE]
                                          [--write]

A one-shot command and a command in a named shell that print 200 MB without a newline, and 25,000,000 lines of
`seq`. The floors read as fast as they can and keep the last MiB; so does not everybody: `kept` tells.
A contender that is too slow is asked for less, by itself, and its row says so.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Entrant, Field, Table, broken, judged, median, number, opened, say
from benchmarks.places import reached
from benchmarks.report import Report, parse

_SHELL, _EXEC, _LOOP = "named shell", "one-shot exec", "raw read loop"
_MB = 1_000_000
_LIMIT_S = 90.0
_TRY_MB, _LEAST_MB_S, _SLOW_MB = 2, 20.0, 10
_TARGET_RATE, _TARGET_MB = 0.5, 64.0


@dataclass(frozen=True, slots=True)
class _Flood:
    name: str
    command: str
    """What prints `{}` MB."""


_ZEROS = _Flood("without a newline", "head -c {}000000 /dev/zero | tr '\\0' x")
_SEQ = _Flood("of `seq`", "seq 100000000 | head -c {}000000")


@dataclass(slots=True)
class _Result:
    entrant: Entrant
    kind: str
    size_mb: int
    rates: list[float]
    growth: float = math.nan
    kept: int = 0

    @property
    def rate(self) -> float:
        """MB a second."""
        return median(self.rates)


def _measured(found: Field, kind: str, flood: _Flood, size_mb: int, rounds: int) -> Table:
    title = f"{found.place}: {size_mb} MB {flood.name}, {kind}"
    say(title)
    # Who does not tell when a command has ended cannot be timed.
    entrants = [each for each in found.who(kind) if "blind" not in each.worker.ways[kind]["features"]]
    results = [_tried(entrant, kind, flood, size_mb) for entrant in entrants]
    for turn in range(rounds):
        for result in random.sample(results, len(results)):
            # A slow one takes long enough once.
            if turn == 0 or result.size_mb == size_mb:
                _flood(result, flood)
    return _table(title, results)


def _tried(entrant: Entrant, kind: str, flood: _Flood, size_mb: int) -> _Result:
    """A small one first: it warms up, and tells who would take minutes."""
    way = _LOOP if kind == _EXEC and _LOOP in entrant.worker.ways else kind
    result = _Result(entrant, way, _TRY_MB, [])
    _flood(result, flood)
    rate = result.rate if result.rates else 0.0
    quick = entrant.contender.ours or rate >= _LEAST_MB_S
    result.size_mb = size_mb if quick else _SLOW_MB if rate >= 1 else _TRY_MB
    result.rates, result.growth = [], math.nan
    return result


def _flood(result: _Result, flood: _Flood) -> None:
    command = flood.command.format(result.size_mb)
    answer = result.entrant.ask(
        "flood", limit_s=_LIMIT_S, kind=result.kind, command=command, timeout_s=_LIMIT_S - 10
    )
    if answer is None:
        return
    result.rates.append(result.size_mb / answer["seconds"])
    grown = answer["growth"] / _MB
    result.growth = grown if math.isnan(result.growth) else max(result.growth, grown)
    result.kept = answer["kept"]
    wanted = result.size_mb * _MB
    if result.entrant.contender.ours and not wanted <= answer["bytes"] <= wanted + 64:
        result.entrant.failed = f"{answer['bytes']} bytes came, not {wanted}"


def _table(title: str, results: Sequence[_Result]) -> Table:
    floor, ours = results[0], next(each for each in results if each.entrant.contender.name == "coderig")
    rows: list[tuple[str, ...]] = []
    data = []
    for each in (floor, *sorted(results[1:], key=lambda each: (bool(each.entrant.failed), -each.rate))):
        name = each.entrant.title(each.kind)
        if each.entrant.failed:
            rows.append((name, "failed"))
        else:
            figures = (each.rate, each.rate / floor.rate, each.growth, each.kept / _MB)
            rows.append((name, str(each.size_mb), *map(number, figures)))
        data.append(
            {
                "name": name,
                "size_mb": each.size_mb,
                "mb_s": each.rate,
                "ratio": each.rate / floor.rate,
                "growth_mb": each.growth,
                "kept_bytes": each.kept,
                "failed": each.entrant.failed,
            }
        )
    entrants = [each.entrant for each in results]
    notes = [
        judged(_TARGET_RATE, ours.rate / floor.rate, "x the floor's rate", at_least=True),
        judged(_TARGET_MB, ours.growth, "MB of growth"),
        *(f"{each['name']} failed: {each['failed']}." for each in data if each["failed"]),
    ]
    columns = ("MB", "MB/s", "x floor", "growth MB", "kept MB")
    return Table(title, columns, tuple(rows), tuple(notes), tuple(data), broken(title, entrants))


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a floor or coderig failed."""
    options = parse(__doc__ or "", arguments, rounds=3, more="1 GB as well, through a shell")
    report = Report("output", options, how=f"{options.rounds} rounds, ")
    for place in options.places:
        with reached(place) as access, opened(place, access, with_peers=options.peers) as found:
            for kind in (_EXEC, _SHELL):
                for flood in (_ZEROS, _SEQ):
                    report.add(_measured(found, kind, flood, 200, options.rounds))
            if options.more:
                report.add(_measured(found, _SHELL, _ZEROS, 1000, 1))
            report.met(found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
