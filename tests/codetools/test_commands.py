"""What is read from shell text, checked against the real bash where it can be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codetools import PathRule, Policy, Rule
from codetools.carriers import read_command
from codetools.commands import MAX_SOURCE_BYTES, parse_script
from codetools.quoting import UNKNOWN, decode_ansi_c

PIECES = st.sampled_from(
    [*"ab7\\'\"$#*?~{},=!-[]@%^+:/漢\t", " ", "  ", "''", '""', "$'", '$"', "..", "\\\n"]
    + ["\\n", "\\x41", "\\101", "\\u00e9", "\\'", '\\"', "\\\\", "\\$", "\\`", "\\c", "\\e", "\\0"]
)
SETTINGS = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with nothing that a wildcard could find."""
    return tmp_path_factory.mktemp("empty")


def literal_arguments(source: str) -> list[str] | None:
    """The arguments of one simple command, if the reader is sure of every one of them."""
    script = parse_script(source)
    if script.doubts or script.redirects or script.assignments or len(script.commands) != 1:
        return None
    words = script.commands[0].words[2:]
    return [word.text for word in words] if all(word.literal for word in words) else None


@pytest.mark.spec("PO-03", "PO-18")
@SETTINGS
@given(st.lists(PIECES, max_size=12).map("".join))
def test_words_that_are_read_as_literal_are_what_bash_makes_of_them(empty: Path, text: str) -> None:
    source = f"printf '%s\\0' {text}"
    read = literal_arguments(source)
    if read is not None:
        ran = subprocess.run(
            ["bash", "-c", source],
            cwd=empty,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
        printed = ran.stdout.decode("utf-8", "replace").split("\0")[:-1]
        assert ran.returncode == 0, ran.stderr
        # printf prints its format once even without arguments.
        assert printed == (read or [""])


STRANGE = st.sampled_from(
    [
        *"rm ls;|&$(){}`'\"\\\n<>#!*=-[]~E漢é\t\r@%^,1x:/\0\ud800",
        "git ",
        "-c ",
        "env ",
        "xargs ",
        "-I",
        "find ",
    ]
    + [
        "-exec ",
        "sh ",
        "sudo ",
        "-u ",
        "eval ",
        "<<E\n",
        "\nE\n",
        "trap ",
        "alias a=",
        "python3 ",
        "$((",
        "${",
    ]
    + [
        "export ",
        "timeout ",
        "busybox ",
        ". ",
        "flock ",
        "su ",
        "awk ",
        "command ",
        "-v ",
        "exec ",
        "coproc ",
    ]
    + ["time ", "watch ", "submodule foreach ", "bisect run ", "rebase -x "]
)


@pytest.mark.spec("PO-05")
@SETTINGS
@given(st.lists(STRANGE, max_size=14).map("".join))
def test_every_text_gets_a_verdict(text: str) -> None:
    policy = Policy(
        rules=(Rule(decision="deny", pattern="rm *"), Rule(decision="allow", pattern="ls *")),
        paths=(PathRule(decision="deny", pattern="x*"),),
    )
    assert policy.check(text).decision in {"allow", "ask", "deny"}


@pytest.mark.spec("PO-03")
@pytest.mark.parametrize(
    ("body", "text", "unsure"),
    [
        ("a\\x41", "aA", False),
        ("\\101", "A", False),
        ("\\u0041\\U00000042", "AB", False),
        ("\\n\\t\\e\\\\\\'", "\n\t\x1b\\'", False),
        ("\\q", "\\q", False),
        ("\\xff", UNKNOWN, True),
        ("\\0rest", f"{UNKNOWN}rest", True),
        ("\\ca", UNKNOWN, True),
    ],
)
def test_escapes_of_ansi_c_quoting(body: str, text: str, unsure: bool) -> None:
    assert decode_ansi_c(body) == (text, unsure)


@pytest.mark.spec("PO-05")
def test_text_that_is_too_long_is_not_read() -> None:
    assert parse_script("x" * (MAX_SOURCE_BYTES + 1)).doubts == ["the command is too long to be read"]
    assert parse_script("a\0b").doubts == ["it holds a NUL byte"]


@pytest.mark.spec("PO-14")
def test_a_part_is_shown_on_one_short_line() -> None:
    leaf = read_command("echo 'a\nb' " + "x" * 500).leaves[0]
    assert leaf.shown.startswith("echo 'a b' xxx")
    assert leaf.shown.endswith("...")
    assert len(leaf.shown) <= 203


@pytest.mark.spec("PO-02")
def test_words_after_a_redirect_belong_to_the_command() -> None:
    for source in [
        "git >out push",
        ">out git push",
        "git <in push",
        "git <<E push\nE\n",
        "ls && git >out push",
    ]:
        command = parse_script(source).commands[-1]
        assert [word.text for word in command.words] == ["git", "push"]
