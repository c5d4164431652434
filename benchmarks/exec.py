"""A command from start to end: the floor, coderig and its peers, in one run.

    .venv/bin/python benchmarks/exec.py [--places local,ssh,docker] [--peers] [--json FILE] [--write]

A new process for each command; its output and exit status come back. Back to back nothing can be prepared
between two calls, with a pause (as an agent makes, whose model thinks) something can.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Work, opened, timed
from benchmarks.places import reached
from benchmarks.report import Report, parse

_KIND = "one-shot exec"
_SUSTAINED = {"local": 1.0, "ssh": 1.0, "docker": 0.1}
_PACED = {"local": 0.7, "ssh": 0.7, "docker": 0.1}
_LETTERS = ("0123456789abcde\n" * 64)[:-1]
_WORK = (
    Work("one-shot `echo hi`, back to back", _KIND, "echo hi", "hi", targets=_SUSTAINED),
    Work("one-shot `echo hi`, 5 ms between two calls", _KIND, "echo hi", "hi", pause_s=0.005, targets=_PACED),
    Work("one-shot `cat` with 1 KB of input", _KIND, "cat", _LETTERS, stdin=_LETTERS),
    Work("one-shot `echo hi`, two at once", _KIND, "echo hi", "hi", width=2),
)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a floor or coderig failed."""
    options = parse(__doc__ or "", arguments)
    report = Report("exec", options)
    for place in options.places:
        with reached(place) as access, opened(place, access, with_peers=options.peers) as found:
            for work in _WORK:
                if work.stdin is not None and place == "docker":
                    continue  # docker-py cannot end an exec's input, so there is no floor
                report.add(timed(found, work, rounds=options.rounds, seconds=options.seconds))
            report.met(found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
