"""Hostile commands: does a contender say what the command did? coderig and its peers, in one run.

    .venv/bin/python benchmarks/fidelity.py [--places local,ssh,docker] [--peers] [--json FILE] [--write]

Verdicts: right; wrong; hung (it did not come back by itself); dead (the next command does not work);
n/a (it has not the feature that the case is about, such as a status or a timeout).
"""

from __future__ import annotations

import re
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contenders import Contender, Failed, NoAnswer, Worker, contenders, start
from benchmarks.fidelity_cases import CASES
from benchmarks.fidelity_judge import DEAD, HUNG, RIGHT, WRONG, judge
from benchmarks.fidelity_rules import EXEC, SHELL, Case, Step
from benchmarks.measure import Table, say
from benchmarks.peers import NOT_DRIVEN, PeerAbsent
from benchmarks.places import reached
from benchmarks.report import Report, parse

NOT_APPLICABLE = "n/a"
_BEYOND_S = 10.0
"""How long after its timeout a command may still take to come back, before that is `hung`."""
_AT_ONCE = 3
_OPENINGS = 3
_REASON_LENGTH = 160
_NO_USE = (NoAnswer, Failed, PeerAbsent)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a contender did in one case. `who` names the contender and its way of running commands."""

    who: str
    kind: str
    case: str
    verdict: str
    reason: str = ""


class Trial:
    """All cases for one contender at one place. `stop`, set from another thread: no more cases."""

    def __init__(self, contender: Contender, access: dict[str, str], cases: Iterable[Case] = CASES) -> None:
        self.contender, self._access, self._cases = contender, access, tuple(cases)
        self._worker: Worker | None = None
        self._base = Path(tempfile.mkdtemp(prefix="coderig-fidelity-"))
        self.version = ""
        self.stop = threading.Event()

    def run(self) -> list[Verdict]:
        """The verdicts. Raises PeerAbsent, Failed or NoAnswer if the contender cannot start."""
        try:
            ways = self._ready().ways
            return [
                verdict for kind in (SHELL, EXEC) if kind in ways for verdict in self._kind(kind, ways[kind])
            ]
        finally:
            self._stop(kill=False)
            shutil.rmtree(self._base, ignore_errors=True)

    def _kind(self, kind: str, way: Mapping[str, Any]) -> Iterable[Verdict]:
        features = frozenset(way["features"])
        who = f"{self.contender.name} {way['label']}"
        for case in self._cases:
            if kind not in case.kinds or self.stop.is_set():
                continue
            if not case.needs <= features:
                missing = ", ".join(sorted(case.needs - features))
                yield Verdict(who, kind, case.name, NOT_APPLICABLE, f"no {missing}")
                continue
            verdict, reason = self._case(case, kind, features)
            if verdict != RIGHT:
                say(f"{self.contender.place}: {who}, {case.name}: {verdict}: {_plain(reason)}")
            yield Verdict(who, kind, case.name, verdict, reason)

    def _case(self, case: Case, kind: str, features: frozenset[str]) -> tuple[str, str]:
        directory = f"/tmp/coderig-fidelity-{secrets.token_hex(6)}"
        prepare = Step(f"mkdir -p {directory}; cd {directory}")

        def ask(step: Step) -> Mapping[str, Any]:
            return self._ready().ask(
                "once",
                limit_s=step.timeout_s + _BEYOND_S,
                kind=kind,
                command=step.command.replace("@D@", directory),
                timeout_s=step.timeout_s,
                stdin=step.stdin,
            )

        steps = tuple(
            replace(step, out=step.out and step.out.replace("@D@", directory)) for step in case.steps
        )
        try:
            self._fresh(kind)
            ask(prepare)
            verdict, reason = judge(replace(case, steps=steps), ask, features)
        except _NO_USE as error:
            verdict, reason = HUNG, f"before the case: {error}"
        if verdict in (HUNG, DEAD):
            self._stop(kill=True)
        shutil.rmtree(directory, ignore_errors=True)
        return verdict, reason.replace(directory, "@D@")

    def _fresh(self, kind: str) -> None:
        """A new shell. Some give theirs a second to start, which says nothing of the case."""
        for attempt in range(_OPENINGS):
            try:
                self._ready().ask("fresh", limit_s=_BEYOND_S * 3, kind=kind)
                return
            except _NO_USE:
                self._stop(kill=True)
                if attempt == _OPENINGS - 1:
                    raise

    def _ready(self) -> Worker:
        if self._worker is None:
            self._worker = start(self.contender, self._access, self._base)
            self.version = self._worker.version
        return self._worker

    def _stop(self, *, kill: bool) -> None:
        if self._worker is not None:
            if kill:
                self._worker.kill()
            self._worker.close()
            self._worker = None


def tables(place: str, kind: str, verdicts: Sequence[Verdict]) -> Table:
    """Case by case and, below, why what is not right is not."""
    found = [each for each in verdicts if each.kind == kind]
    who = list(dict.fromkeys(each.who for each in found))
    by_case: dict[str, dict[str, Verdict]] = {}
    for each in found:
        by_case.setdefault(each.case, {})[each.who] = each
    totals = []
    for word in (RIGHT, WRONG, HUNG, DEAD, NOT_APPLICABLE):
        counts = [sum(each.who == name and each.verdict == word for each in found) for name in who]
        totals.append((f"**{word}**", *(f"**{count}**" for count in counts)))
    rows = [
        (case, *(seen[name].verdict if name in seen else "" for name in who))
        for case, seen in by_case.items()
    ]
    bad = [each for each in found if each.verdict not in (RIGHT, NOT_APPLICABLE)]
    reasons = "\n".join(f"- {each.who}, {each.case}: {each.verdict}: {_plain(each.reason)}" for each in bad)
    notes = (f"<details><summary>Why</summary>\n\n{reasons}\n\n</details>",) if bad else ()
    data = [
        {"who": each.who, "case": each.case, "verdict": each.verdict, "reason": each.reason} for each in found
    ]
    broken = [
        f"{place}: {kind}: {each.case}: {each.reason}" for each in bad if each.who.startswith("coderig ")
    ]
    title = f"{place}: {kind}"
    return Table(title, tuple(who), (*totals, *rows), notes, tuple(data), tuple(broken))


def _plain(reason: str) -> str:
    # Nothing in it is to be taken for Markdown or HTML; an object's address says nothing.
    words = re.sub(r" at 0x[0-9a-f]+", "", " ".join(reason.split())).replace("`", "'")
    return f"`{words[:_REASON_LENGTH]}{'…' if len(words) > _REASON_LENGTH else ''}`"


def main(arguments: Sequence[str]) -> int:
    """Judge and print; 1 if coderig is not right somewhere."""
    options = parse(__doc__ or "", arguments, places=("local", "ssh", "docker"))
    report = Report("fidelity", options, how="")
    for place in options.places:
        with reached(place) as access:
            for table in _place(place, access, report):
                report.add(table)
    return report.finish()


def _place(place: str, access: dict[str, str], report: Report) -> list[Table]:
    trials = [
        Trial(contender, access)
        for contender in contenders(place, with_peers=report.options.peers, floor=False)
    ]
    if report.options.peers:
        report.absent += [
            f"{place}: {name} took no part: {why}" for name, why in NOT_DRIVEN.get(place, {}).items()
        ]

    def tried(trial: Trial) -> list[Verdict]:
        name = trial.contender.name
        try:
            verdicts = trial.run()
        except PeerAbsent as error:
            report.absent.append(f"{place}: {name} took no part: {error}")
            return []
        report.versions[name] = trial.version
        say(f"{place}: {name}: {sum(each.verdict == RIGHT for each in verdicts)} of {len(verdicts)} right")
        return verdicts

    # They wait most of the time; and no time is measured here.
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        try:
            verdicts = [verdict for found in pool.map(tried, trials) for verdict in found]
        except BaseException:
            for trial in trials:
                trial.stop.set()
            raise
    kinds = [kind for kind in (SHELL, EXEC) if any(each.kind == kind for each in verdicts)]
    return [tables(place, kind, verdicts) for kind in kinds]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
