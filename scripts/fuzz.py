"""Gives scripts to coderig and to the shells themselves, and tells where they do not do the same.

    scripts/fuzz.py --count 10000 --seed 1     random scripts, half for bash, half for dash
    scripts/fuzz.py --script FILE              one script, with bash and dash

Ends with 1 if there was a difference. A difference is shown with the smallest script that shows it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzz import benches, grammar  # noqa: E402
from fuzz.lab import Lab, decode  # noqa: E402
from fuzz.normal import Contender  # noqa: E402
from fuzz.seen import Difference  # noqa: E402
from fuzz.shrink import smallest  # noqa: E402

_CHUNK = 20
_SESSION = 6
"""How many scripts one long-lived shell runs."""


@dataclass
class Report:
    """What a chunk of scripts gave."""

    verdicts: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    scripts: int = 0
    like_c: int = 0


@dataclass(frozen=True)
class Chunk:
    """Scripts `first` and the following ones of a seed, for one shell."""

    seed: int
    shell: grammar.Dialect
    first: int
    count: int
    contenders: Sequence[Contender]
    shrink: bool


def script_of(seed: int, shell: grammar.Dialect, number: int) -> bytes:
    """The script of that number; the same one for ever."""
    text = grammar.script(random.Random(f"{seed}/{shell}/{number}"), shell)
    return text.encode("utf-8", "surrogateescape")


def run_chunk(chunk: Chunk) -> Report:
    """All scripts of a chunk, on a bench of their own."""
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="coderig-fuzz-") as name,
        benches.local(Path(name), chunk.shell) as lab,
    ):
        scripts = [
            script_of(chunk.seed, chunk.shell, number)
            for number in range(chunk.first, chunk.first + chunk.count)
        ]
        for number, script in enumerate(scripts, chunk.first):
            report.scripts += 1
            for contender in chunk.contenders:
                if contender != "session":
                    _judge(report, lab, contender, [script], f"{chunk.shell} {number}", chunk.shrink)
        if "session" in chunk.contenders:
            fit = [each for each in scripts if not lab.excludes("session", [each]) and lab.runs_through(each)]
            for at in range(0, len(fit), _SESSION):
                where = f"{chunk.shell} {chunk.first}-{chunk.first + chunk.count - 1}"
                _judge(report, lab, "session", fit[at : at + _SESSION], where, chunk.shrink)
        report.like_c = len(set(lab.like_c))
    return report


def _judge(
    report: Report, lab: Lab, contender: Contender, scripts: Sequence[bytes], where: str, shrink: bool
) -> None:
    verdict, found = lab.judge(contender, scripts)
    report.verdicts[f"{contender} {verdict}"] += 1
    if verdict == "different":
        if shrink:
            scripts = _shrunk(lab, contender, scripts, {each.what for each in found})
            found = lab.differences(contender, scripts) or found
        report.texts.append(_text(where, scripts, found))


def _shrunk(lab: Lab, contender: Contender, scripts: Sequence[bytes], what: set[str]) -> list[bytes]:
    def shows(candidate: Sequence[bytes]) -> bool:
        return (
            bool(candidate)
            and not lab.excludes(contender, candidate)
            and all(what & {each.what for each in lab.differences(contender, candidate)} for _ in range(2))
        )

    kept = list(scripts)
    for each in list(kept):
        fewer = [other for other in kept if other is not each]
        if len(kept) > 1 and shows(fewer):
            kept = fewer
    for at in range(len(kept)):
        kept[at] = smallest(kept[at], lambda piece, at=at: shows([*kept[:at], piece, *kept[at + 1 :]]))  # type: ignore[misc]
    return kept


def _text(where: str, scripts: Sequence[bytes], found: Sequence[Difference]) -> str:
    lines = [f"DIFFERENCE {where}", *(f"  script {decode(script)!r}"[:3000] for script in scripts)]
    return "\n".join([*lines, *(f"  {each}"[:3000] for each in found)])


def main() -> int:
    """See the module."""
    options = _options()
    contenders: list[Contender] = options.contenders.split(",")
    if options.script:
        return _one_script(options.script.read_bytes(), contenders)
    chunks = [
        Chunk(
            options.seed,
            shell,
            first,
            min(_CHUNK, options.first + options.count - first),
            contenders,
            not options.no_shrink,
        )
        for first in range(options.first, options.first + options.count, _CHUNK)
        for shell in options.shells.split(",")
    ]
    began = time.monotonic()
    total = Report()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for report in pool.imap_unordered(run_chunk, chunks):
            total.verdicts += report.verdicts
            total.scripts += report.scripts
            total.like_c += report.like_c
            for text in report.texts:
                _say(text)
            total.texts += report.texts
            if len(total.texts) >= options.max:
                pool.terminate()
                break
    took_s = time.monotonic() - began
    _say(f"{total.scripts} scripts, seed {options.seed}, {took_s:.0f} s: {len(total.texts)} differences")
    _say(f"{_counts(total)}; as with -c: {total.like_c}")
    return 1 if total.texts else 0


def _one_script(script: bytes, contenders: Sequence[Contender]) -> int:
    report = Report()
    for shell in ("bash", "dash"):
        with (
            tempfile.TemporaryDirectory(prefix="coderig-fuzz-") as name,
            benches.local(Path(name), shell) as lab,
        ):
            for contender in contenders:
                _judge(report, lab, contender, [script], shell, False)
    _say("\n".join(report.texts) or "no difference")
    _say(_counts(report))
    return 1 if report.texts else 0


def _counts(report: Report) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(report.verdicts.items()))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="how many scripts for each shell")
    parser.add_argument("--seed", type=int, default=1, help="names the scripts")
    parser.add_argument("--first", type=int, default=0, help="the number of the first script")
    parser.add_argument("--script", type=Path, help="compare this file and nothing else")
    parser.add_argument("--shells", default="bash,dash", help="of bash and dash")
    parser.add_argument("--contenders", default="exec,shell,session", help="of exec, shell and session")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--max", type=int, default=20, help="stop after so many differences")
    parser.add_argument("--no-shrink", action="store_true", help="show scripts as they are")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
