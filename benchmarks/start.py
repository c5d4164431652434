"""From nothing to the first command's answer, in a container and over SSH: the floor, coderig and its peers.

    .venv/bin/python benchmarks/start.py [--places docker,ssh] [--peers] [--json FILE] [--write]

The image is there and the packages are loaded; a container is made and started, or a connection opened, and
one `echo hi` answered. Taking it down again is not counted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Field, Table, opened, say, table
from benchmarks.places import reached
from benchmarks.report import Report, parse

_KIND = "one-shot exec"
_LIMIT_S = 120.0
_TARGETS = {"docker": 1.3}
_TITLES = {"docker": "container to first exec", "ssh": "connection to first exec"}


def _started(found: Field, rounds: int) -> Table:
    entrants = found.who(_KIND)
    say(f"{found.place}: {_TITLES[found.place]}")
    question = {"kind": _KIND, "command": "echo hi", "expect": "hi"}
    for number in range(rounds + 1):
        for entrant in random.sample(entrants, len(entrants)):
            answer = entrant.ask("start", limit_s=_LIMIT_S, **question)
            # The first is the warm-up.
            if answer and number:
                entrant.samples.append(answer["seconds"])
    title = f"{found.place}: {_TITLES[found.place]}"
    return table(title, entrants, _KIND, _TARGETS.get(found.place))


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a floor or coderig failed."""
    options = parse(__doc__ or "", arguments, places=("docker", "ssh"), rounds=10)
    report = Report("start", options, how=f"{options.rounds} rounds, ")
    for place in options.places:
        with reached(place) as access, opened(place, access, with_peers=options.peers) as found:
            report.add(_started(found, options.rounds))
            report.met(found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
