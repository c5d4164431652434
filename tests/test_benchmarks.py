"""The parts of the benchmarks that judge: statistics, tables, and the verdicts on hostile commands."""

from __future__ import annotations

import math
import statistics
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.contenders import Contender, NoAnswer
from benchmarks.fidelity import Trial, tables
from benchmarks.fidelity_cases import CASES
from benchmarks.fidelity_judge import judge
from benchmarks.fidelity_rules import EXEC, SHELL, Case, Step
from benchmarks.measure import Table, judged, median, number, p95
from benchmarks.report import DOCUMENT, replaced

_FULL = frozenset({"status", "apart", "stdin", "exact", "bash"})


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_p95_is_the_smallest_sample_that_nineteen_in_twenty_do_not_exceed(samples: list[float]) -> None:
    """By counting, as the definition says."""
    at = p95(samples)
    assert at in samples
    assert 20 * sum(sample <= at for sample in samples) >= 19 * len(samples)
    below = [sample for sample in samples if sample < at]
    assert not below or 20 * len(below) < 19 * len(samples)


def test_nothing_measured_has_no_median() -> None:
    """A contender that failed has no figures, and that is no crash."""
    assert math.isnan(median([])) and math.isnan(p95([])) and number(math.nan) == "-"
    assert median([3.0, 1.0, 2.0]) == statistics.median([1.0, 2.0, 3.0])


def test_a_target_is_met_or_missed_on_its_own_side() -> None:
    """Some targets are ceilings and some are floors; what was not measured meets none."""
    assert "met" in judged(2.0, 1.9) and "missed" in judged(2.0, 2.1)
    assert "met" in judged(0.5, 0.6, at_least=True) and "missed" in judged(0.5, 0.4, at_least=True)
    assert "missed" in judged(2.0, math.nan)


def test_every_line_of_a_table_has_the_same_number_of_cells() -> None:
    """Also with a bar or a line end in a cell, and where a row is short."""
    text = Table("t", ("a", "b"), (("x | y", "1", "2"), ("two\nlines", "failed"))).text()
    cells = {line.replace("\\|", "").count("|") for line in text.splitlines()}
    assert cells == {4}


def test_results_replace_their_own_part_of_the_document_only() -> None:
    """And a part that is not there is an error, not a silent loss."""
    document = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\nkept\n<!-- y: end -->\n"
    new = replaced(document, "x", r"new \1")
    assert "old" not in new and r"new \1" in new and "kept" in new and new.startswith("a\n")
    with pytest.raises(ValueError, match="no part"):
        replaced(document, "z", "new")


def test_the_document_has_a_part_for_every_benchmark() -> None:
    """`--write` of each script finds its place."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for name in ("shells", "exec", "start", "output", "scale", "fidelity"):
        assert replaced(document, name, "new") != document


def _bash(step: Step) -> Mapping[str, Any]:
    """An honest contender, made without any of our code."""
    given = (step.stdin or "").encode()
    done = subprocess.run(["bash", "-c", step.command], input=given, capture_output=True, timeout=20)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return {
        "output": done.stdout.decode("utf-8", "replace"),
        "stderr": done.stderr.decode(),
        "status": status,
        "seconds": 0.0,
    }


def _named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize(
    "name", ["`exit 3`", "unfinished quote", "standard error apart", "`cat` without input"]
)
def test_plain_bash_is_right(name: str) -> None:
    """What the real shell does is never held against anybody."""
    assert judge(_named(name), _bash, _FULL) == ("right", "")


def test_a_contender_that_always_says_zero_is_wrong() -> None:
    """The fault that the table is about."""

    def liar(step: Step) -> Mapping[str, Any]:
        return {**_bash(step), "status": 0}

    verdict, reason = judge(_named("`exit 3`"), liar, _FULL)
    assert verdict == "wrong" and "the status is 0, not 3" in reason


def test_a_contender_that_never_answers_is_hung_and_one_that_answers_no_more_is_dead() -> None:
    """The two are told apart by which command went wrong."""

    def silent(step: Step) -> Mapping[str, Any]:
        raise NoAnswer("no answer within 1 s")

    def broken(step: Step) -> Mapping[str, Any]:
        return {**_bash(step), "output": ""} if "next-%s" in step.command else _bash(step)

    assert judge(_named("`exit 3`"), silent, _FULL)[0] == "hung"
    verdict, reason = judge(_named("`exit 3`"), broken, _FULL)
    assert verdict == "dead" and "next command" in reason


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_coderig_is_right_wherever_no_time_runs_out() -> None:
    """All cases but those that wait for a timeout, through a worker as in the benchmark."""
    cases = [case for case in CASES if "timeout" not in case.name]
    verdicts = Trial(Contender("coderig", "local"), {}, cases).run()
    assert {each.kind for each in verdicts} == {SHELL, EXEC} and len(verdicts) > len(cases)
    assert [each for each in verdicts if each.verdict not in ("right", "n/a")] == []
    assert tables("local", EXEC, verdicts).broken == ()
