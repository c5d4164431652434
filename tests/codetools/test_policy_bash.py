"""The policy against the real bash: what bash runs, a rule that refuses it has seen or asked about."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codetools import Policy, Rule

REFUSING = (
    Policy(rules=(Rule(decision="deny", pattern="zap*"),)),
    Policy(rules=(Rule(decision="deny", pattern="zap*"), Rule(decision="allow", pattern="*"))),
    Policy(rules=(Rule(decision="allow", pattern="ls*"), Rule(decision="allow", pattern="echo *"))),
)

SPELLED = st.sampled_from(
    [
        "zap",
        "z\\ap",
        "'z'ap",
        '"zap"',
        "$'\\x7aap'",
        'z""ap',
        "z\\\nap",
        "${Q:-zap}",
        "$(echo zap)",
        "`echo zap`",
        "x=zap; $x",
        "z{a,}p",
        "command zap",
        "env zap",
        "env -u A zap",
        "timeout 5 zap",
        "xargs zap </dev/null",
        "find . -maxdepth 0 -exec zap {} ;",
    ]
)

# C stands for the command inside, Q for the same as one quoted word.
AROUND = [
    "true; C",
    "true && C",
    "false || C",
    "true | C",
    "true & C",
    "true\nC",
    "( C )",
    "{ C\n}",
    "! C",
    "time C",
    "if true; then C\nfi",
    "if C\nthen true; fi",
    "while C\nfalse; do true; done",
    "for i in 1; do C\ndone",
    "case a in a) C\nesac",
    "f() { C\n}; f",
    "f() ( C\n); f",
    "coproc { C\n}; wait",
    "echo $(C)",
    'echo "$(C)"',
    "echo `C`",
    'echo "`C`"',
    "cat <(C)",
    "echo a > >(C)",
    "cat <<E\n$(C)\nE\n",
    "cat <<E\n`C`\nE\n",
    "cat <<-E\n\t$(C)\n\tE\n",
    "cat <<'E'\n$(C)\nE\n",
    'cat <<< "$(C)"',
    "cat <<E | cat\n$(C)\nE\n",
    "bash <<'E'\nC\nE\n",
    "bash <<E\nC\nE\n",
    "bash <<'E' | cat\nC\nE\n",
    "bash -s <<'E'\nC\nE\n",
    "bash <<< Q",
    "bash -c Q",
    "bash -ec Q",
    "sh -c Q",
    "eval Q",
    "eval C",
    "echo Q | bash",
    "source <(echo Q)",
    ". /dev/stdin <<< Q",
    "trap Q EXIT",
    "echo ${A:-$(C)}",
    'echo "${A:-`C`}"',
    "echo $((1 + $(C; echo 1)))",
    "echo $[ $(C; echo 1) ]",
    "((1 + $(C; echo 1)))",
    "a[$(C; echo 1)]=1",
    "x=$(C)",
    "x=(1 $(C))",
    "export x=$(C)",
    "x=1 C",
    "[[ -n $(C) ]]",
    "[ -n $(C) ]",
    "C >out",
    ">out C",
    "C # comment",
    "true # C",
    "echo Q",
    "echo a$(C)b",
    "echo \\\nC",
    "true &&\\\nC",
    "let x=$(C; echo 1)",
    "a='x[$(C)]'; echo $((a))",
    "select i in 1; do C\ndone <<< 1",
    "until C\ntrue; do true; done",
    "for ((i=$(C; echo 0);i<1;i++)); do true; done",
    "printf %s Q | sh",
    "PS4='$(C)'; set -x; true",
]


def wrapped(inner: str, around: str) -> str:
    return "".join(inner if c == "C" else shlex.quote(inner) if c == "Q" else c for c in around)


COMMANDS = st.recursive(
    SPELLED, lambda inner: st.builds(wrapped, inner, st.sampled_from(AROUND)), max_leaves=4
).map(str)
NOISE = st.text(alphabet="zap ;|&$(){}`'\"\\\n<>#!*=-[]~E", max_size=12)

Ran = Callable[[str], bool]


@pytest.fixture(scope="module")
def bash_runs_zap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Whether bash, given a command, runs the program `zap`, which only leaves a mark."""
    root = tmp_path_factory.mktemp("bash")
    (root / "bin").mkdir()
    (root / "work").mkdir()
    mark = root / "mark"
    program = root / "bin" / "zap"
    program.write_text(f"#!/bin/sh\n: > {mark}\n")
    program.chmod(0o755)

    def ran(command: str) -> bool:
        mark.unlink(missing_ok=True)
        _run_bash(command, root)
        return mark.exists()

    yield ran


def _run_bash(command: str, root: Path) -> None:
    environment = {"PATH": f"{root / 'bin'}:/usr/bin:/bin", "HOME": str(root / "work"), "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=root / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(5)


SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.spec("PO-18")
@SETTINGS
@given(command=COMMANDS)
def test_what_bash_runs_is_refused_or_asked_about(bash_runs_zap: Ran, command: str) -> None:
    decisions = [policy.check(command).decision for policy in REFUSING]
    if "allow" in decisions:
        assert not bash_runs_zap(command)
    assert len(decisions) == len(REFUSING)


@pytest.mark.spec("PO-18")
@SETTINGS
@given(before=NOISE, after=NOISE)
def test_noise_around_a_command_does_not_hide_it(bash_runs_zap: Ran, before: str, after: str) -> None:
    command = f"{before}zap{after}"
    decisions = [policy.check(command).decision for policy in REFUSING]
    if "allow" in decisions:
        assert not bash_runs_zap(command)
    assert len(decisions) == len(REFUSING)
