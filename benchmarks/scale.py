"""Many at once: the floor, coderig and its peers, in one run, on this machine.

    .venv/bin/python benchmarks/scale.py [--peers] [--json FILE] [--write]

200 named shells (coderig's over 20 sandboxes), opened at once, then each with its commands, all at the same
time; 50 one-shot commands at once, again and again; and whether a quick command waits for a slow one.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Entrant, Field, Table, broken, failures, median, number, opened, p95, say
from benchmarks.places import reached
from benchmarks.report import Report, parse

_SHELL, _EXEC = "named shell", "one-shot exec"
_SHELLS, _SANDBOXES, _COMMANDS = 200, 20, 4
_ONE_SHOTS, _EACH = 50, 8
_SLOW_S = 1.0
_LIMIT_S = 300.0


def _crowd(found: Field, title: str, kind: str, count: int, calls: int, each_opens: bool) -> Table:
    say(f"{found.place}: {title}")
    entrants = found.who(kind)
    rows: list[tuple[str, ...]] = []
    data: list[dict[str, Any]] = []
    for entrant in entrants:
        question = {"kind": kind, "count": count, "calls": calls, "command": "echo hi", "expect": "hi"}
        answer = entrant.ask("crowd", limit_s=_LIMIT_S, **question)
        name = entrant.title(kind)
        if answer is None:
            rows.append((name, "failed"))
            data.append({"name": name, "failed": entrant.failed})
            continue
        samples, grown = answer["samples"], answer["grown"]
        figures = [len(samples) / answer["seconds"], median(samples) * 1000, p95(samples) * 1000]
        if each_opens:
            figures.insert(0, answer["opening_s"])
            figures += [grown["threads"] / count, grown["fds"] / count, grown["rss"] / count / 1000]
        rows.append((name, *map(number, figures)))
        data.append({"name": name, "count": count, **answer, "failed": ""})
    columns: tuple[str, ...] = ("commands/s", "median ms", "p95 ms")
    if each_opens:
        columns = ("open s", *columns, "threads/shell", "fds/shell", "KB/shell")
    return _table(f"{found.place}: {title}", columns, rows, data, entrants, kind)


def _beside(found: Field, kind: str, rounds: int) -> Table:
    title = f"`true` asked for together with `sleep {_SLOW_S:g}`, {kind}"
    say(f"{found.place}: {title}")
    entrants = found.who(kind)
    question = {"kind": kind, "slow": f"sleep {_SLOW_S:g}", "command": "true", "expect": ""}
    for _ in range(rounds):
        for entrant in random.sample(entrants, len(entrants)):
            if answer := entrant.ask("beside", limit_s=_LIMIT_S, **question):
                entrant.samples.append(answer["quick_s"])
    rows = []
    for entrant in entrants:
        middle = median(entrant.samples)
        waits = "yes" if middle > _SLOW_S * 0.9 else "no"
        figures = ("failed",) if entrant.failed else (number(middle * 1000), waits)
        rows.append((entrant.title(kind), *figures))
    data = [
        {"name": each.title(kind), "samples": list(each.samples), "failed": each.failed} for each in entrants
    ]
    columns = ("median ms", "waits for it")
    return _table(f"{found.place}: {title}", columns, rows, data, entrants, kind)


def _table(
    title: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    data: Sequence[Mapping[str, Any]],
    entrants: Sequence[Entrant],
    kind: str,
) -> Table:
    notes = failures(entrants, kind)
    return Table(title, columns, tuple(rows), notes, tuple(data), broken(title, entrants))


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a floor or coderig failed."""
    options = parse(__doc__ or "", arguments, places=("local",), rounds=3)
    report = Report("scale", options, how="")
    for place in options.places:
        with reached(place) as access:
            access = {**access, "sandboxes": str(_SANDBOXES)}
            with opened(place, access, with_peers=options.peers) as found:
                title = f"{_SHELLS} named shells at once, {_COMMANDS} commands in each"
                report.add(_crowd(found, title, _SHELL, _SHELLS, _COMMANDS, True))
                report.met(found)
            # Anew: not everybody gets over that.
            with opened(place, access, with_peers=options.peers) as found:
                title = f"{_ONE_SHOTS} one-shot commands at once, {_EACH} times"
                report.add(_crowd(found, title, _EXEC, _ONE_SHOTS, _EACH, False))
                for kind in (_SHELL, _EXEC):
                    report.add(_beside(found, kind, options.rounds))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
