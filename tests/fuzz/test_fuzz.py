"""Scripts do the same here as by the shells themselves (see docs/behaviour/fuzz.md)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import Place

from fuzz import benches, grammar
from fuzz.lab import Lab
from fuzz.normal import Contender
from fuzz.shells import LocalRunner, environment
from fuzz.shrink import smallest
from fuzz.yard import LocalYard
from sandbox import LocalSandbox

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.sh"))
SEED = 20260101
"""Printed with every difference; `make fuzz` takes others."""
COUNT, COUNT_ELSEWHERE = 80, 10
ONE: tuple[Contender, ...] = ("exec", "shell")
_PIECES = (
    "echo a",
    "'",
    '"',
    "`",
    "$(",
    ")",
    "\\",
    "\n",
    "<<E\n",
    "\nE\n",
    "$x",
    "{",
    "}",
    ";",
    "&&",
    "|",
    "#",
)


@pytest.fixture(scope="module", params=["bash", "dash"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """This machine, with bash, and as one without."""
    with benches.local(tmp_path_factory.mktemp("fuzz") / "bench", request.param) as opened:
        yield opened


def generated(dialect: grammar.Dialect, first: int, count: int) -> list[bytes]:
    """The scripts of these numbers."""
    return [
        grammar.script(random.Random(f"{SEED}/{dialect}/{number}"), dialect).encode(
            "utf-8", "surrogateescape"
        )
        for number in range(first, first + count)
    ]


def check_same(lab: Lab, contender: Contender, scripts: Sequence[bytes]) -> None:
    """Fails with the scripts and what is not the same."""
    verdict, found = lab.judge(contender, scripts)
    shown = "\n".join([f"seed {SEED}", *map(repr, scripts), *map(str, found)])
    assert verdict != "different", shown


@pytest.mark.spec("FZ-01", "FZ-02")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
@pytest.mark.parametrize("contender", ONE)
def test_a_script_of_the_corpus_does_the_same(lab: Lab, path: Path, contender: Contender) -> None:
    check_same(lab, contender, [path.read_bytes()])


@pytest.mark.spec("FZ-01", "FZ-02")
@pytest.mark.parametrize("first", range(0, COUNT, 20))
@pytest.mark.parametrize("contender", ONE)
def test_generated_scripts_do_the_same(lab: Lab, first: int, contender: Contender) -> None:
    for script in generated(lab.dialect, first, 20):
        check_same(lab, contender, [script])


@pytest.mark.spec("FZ-03")
def test_scripts_one_after_another_in_a_shell_do_what_one_file_of_them_does(lab: Lab) -> None:
    fit = [
        script
        for script in generated(lab.dialect, COUNT, 40)
        if not lab.excludes("session", [script]) and lab.runs_through(script)
    ]
    assert len(fit) > 10
    for at in range(0, len(fit), 5):
        check_same(lab, "session", fit[at : at + 5])


@pytest.mark.spec("FZ-04")
@pytest.mark.parametrize("contender", ONE)
def test_generated_scripts_do_the_same_on_every_place(place: Place, contender: Contender) -> None:
    dialect: grammar.Dialect = "bash" if place.shell == "bash" else "dash" if place.shell == "dash" else "ash"
    with benches.elsewhere(place.box, place.fresh(), dialect) as lab:
        for script in generated(lab.dialect, 0, COUNT_ELSEWHERE):
            check_same(lab, contender, [script])


@pytest.mark.spec("FZ-01")
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    pieces=st.lists(
        st.one_of(st.sampled_from(_PIECES), st.text("ab '\"\\$`\n\t\r\x01é", max_size=4)), max_size=8
    )
)
def test_any_text_at_all_does_the_same(lab: Lab, pieces: list[str]) -> None:
    check_same(lab, "exec", ["".join(pieces).encode()])


@pytest.mark.spec("FZ-05")
def test_a_difference_is_seen_in_every_observation(tmp_path: Path) -> None:
    yard = LocalYard(tmp_path, "bash")
    with LocalSandbox(yard.start, env={"WHERE": "here"}) as box:
        runner = LocalRunner({**environment(box), "WHERE": "there"})
        bench = Lab("bash", "bash", box, runner, yard)
        seen = {
            each.what
            for script in (
                b'echo "$WHERE"',
                b'echo "$WHERE" >&2',
                b"exit ${#WHERE}",
                b'echo x >"$WHERE"',
                b"[ $WHERE = here ] || sleep 60",
            )
            for each in bench.differences("exec", [script])
        }
        assert seen == {"stdout", "stderr", "exit code", "files", "timed out"}
        (found,) = bench.differences("shell", [b"true"])
        assert found.what == "state"
        assert "'WHERE': 'there'" in str(found)
        verdict, _ = bench.judge("exec", [b'echo "$WHERE"'])
        assert verdict == "different"


@pytest.mark.spec("FZ-05")
def test_a_script_of_which_the_shell_makes_this_or_that_is_told_apart(tmp_path: Path) -> None:
    with benches.local(tmp_path / "bench", "bash") as bench:
        verdict, _ = bench.judge("exec", [b"echo $RANDOM$RANDOM$RANDOM"])
        assert verdict == "racy"


@pytest.mark.spec("FZ-06")
def test_text_means_what_eval_makes_of_it_where_that_is_not_a_file(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path) as box:
        assert box.exec("echo abc \\").stdout == "abc \\\n"
        assert box.exec("[[ )").exit_code == 2
        assert box.exec("set -x; echo a").stderr.endswith("+ echo a\n")


@pytest.mark.spec("FZ-07")
def test_a_named_shell_is_an_interactive_one(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path) as box:
        shell = box.shell("s")
        assert "i" in shell.run('echo "$-"').output
        result = shell.run("set -u; : $nosuch; echo never")
        assert (result.exit_code, result.ended) == (1, False)


@pytest.mark.spec("FZ-08")
def test_a_seed_and_a_number_name_a_script() -> None:
    for dialect in ("bash", "dash", "ash"):
        scripts = generated(dialect, 0, 200)
        assert scripts == generated(dialect, 0, 200)
        assert len(set(scripts)) > 150
        assert b"\0" not in b"".join(scripts)


@pytest.mark.spec("FZ-08")
def test_a_difference_is_shown_with_a_small_script() -> None:
    script = b"echo a\nfor i in 1 2; do echo 'x y' BAD $i; done\necho b; echo c\n"
    assert smallest(script, lambda each: b"BAD" in each) == b"BAD"


@pytest.mark.spec("FZ-09")
def test_a_command_starts_as_a_script_does(lab: Lab) -> None:
    script = b'echo "${OLDPWD-none} $# ${BASH_EXECUTION_STRING-none}"; nosuch\n\nnosuch'
    result = lab.box.exec(script.decode())
    assert result.stdout == "none 0 none\n"
    numbers = [int(word) for word in result.stderr.replace(":", " ").split() if word.isdigit()]
    assert numbers == [1, 3]
    assert lab.box.exec("-o").exit_code == 127
