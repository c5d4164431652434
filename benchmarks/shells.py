"""A command in a named shell: the floor, coderig and its peers, in one run.

    .venv/bin/python benchmarks/shells.py [--places local,ssh,docker] [--peers] [--json FILE] [--write]

The shell is open; one command goes in, its output and exit status come out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Work, opened, timed
from benchmarks.places import PLACES, reached
from benchmarks.report import Report, parse

_KIND = "named shell"
_TARGETS = {place: 2.0 for place in PLACES}
_WORK = (
    Work("named shell, `true`", _KIND, "true", "", targets=_TARGETS),
    Work("named shell, `echo hi`", _KIND, "echo hi", "hi", targets=_TARGETS),
    Work("named shell, `echo hi`, 5 ms between two calls", _KIND, "echo hi", "hi", pause_s=0.005),
    Work("two named shells at once, `echo hi` in each", _KIND, "echo hi", "hi", width=2),
)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a floor or coderig failed."""
    options = parse(__doc__ or "", arguments)
    report = Report("shells", options)
    for place in options.places:
        with reached(place) as access, opened(place, access, with_peers=options.peers) as found:
            for work in _WORK:
                report.add(timed(found, work, rounds=options.rounds, seconds=options.seconds))
            report.met(found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
