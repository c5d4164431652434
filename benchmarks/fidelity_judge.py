"""Whether an answer is right: what the real shell says, and what is not held against anybody."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders import Failed, NoAnswer
from benchmarks.fidelity_rules import APART, BASH, EXACT, STATUS, Case, Seen, Step

Ask = Callable[[Step], Mapping[str, Any]]
"""Puts one command to a contender; raises NoAnswer or Failed."""

RIGHT, WRONG, HUNG, DEAD = "right", "wrong", "hung", "dead"
# Its output is not in its text, so a terminal that echoes cannot pass for an answer.
_NEXT = Step("printf 'next-%s\\n' 42", out="next-42\n", status=0)
# Control sequences (ECMA-48 5.4) and operating system commands; who gives terminal output gives these.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>]")
_ORACLE_LIMIT_S = 20


def normal(text: str, features: frozenset[str]) -> str:
    """Output as it is compared.

    Undecodable bytes are U+FFFD. Unless the contender gives output exactly as printed: without control
    sequences and blank lines around it, and with plain line ends."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if EXACT in features:
        return text
    return _CONTROLS.sub("", text.replace("\r\r\n", "\n").replace("\r\n", "\n")).strip()


def real(step: Step, features: frozenset[str]) -> tuple[str, int]:
    """Output and status of the same text as a script, by the shell that the contender uses."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "script"
        script.write_bytes(step.command.encode())
        done = subprocess.run(
            ["bash" if BASH in features else "sh", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if APART in features else subprocess.STDOUT,
            timeout=_ORACLE_LIMIT_S,
            cwd=directory,
        )
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return done.stdout.decode("utf-8", "replace"), status


def wrong_with(step: Step, seen: Seen, features: frozenset[str]) -> str:
    """What is wrong with the answer to one command; "": nothing."""
    out, status = step.out, step.status
    if out is None and status is None and step.judge is None:
        out, status = real(step, features)
    if step.judge is not None and (wrong := step.judge(seen)):
        return wrong
    if out is None and status is None:
        return ""
    if seen.raised:
        return f"raised {seen.raised}"
    if out is not None and (wanted := normal(out, features)) != seen.output:
        return f"the output is {_short(seen.output)}, not {_short(wanted)}"
    if status is not None and STATUS in features and not _same(seen.status, status):
        return f"the status is {seen.status}, not {status}"
    return ""


def _same(status: int | None, wanted: int) -> bool:
    """Death by signal n is 128+n to a shell and -n to Python: both tell the truth."""
    return status == wanted or (wanted > 128 and status == 128 - wanted)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 100 else f"{text[:50]!r} … {text[-40:]!r} ({len(text)} characters)"


def judge(case: Case, ask: Ask, features: frozenset[str]) -> tuple[str, str]:
    """Put a case to a contender: the verdict, and the reason if it is not `right`."""
    verdict, reason = RIGHT, ""
    for step in case.steps:
        verdict, reason = _put(step, ask, features)
        if verdict != RIGHT:
            break
    if verdict == HUNG:
        return verdict, reason
    after, why = _put(_NEXT, ask, features)
    if after == RIGHT:
        return verdict, reason
    return DEAD, "; ".join(word for word in (reason, f"the next command: {why}") if word)


def _put(step: Step, ask: Ask, features: frozenset[str]) -> tuple[str, str]:
    try:
        answer = ask(step)
    except NoAnswer as error:
        return HUNG, str(error)
    except Failed as error:
        return WRONG, str(error)
    seen = Seen(
        output=normal(answer.get("output", ""), features),
        status=answer.get("status"),
        stderr=answer.get("stderr"),
        timed_out=answer.get("timed_out"),
        seconds=answer.get("seconds", 0.0),
        raised=answer.get("raised", ""),
    )
    wrong = wrong_with(step, seen, features)
    if wrong and step.timeout_s > 1 and (seen.timed_out or seen.seconds >= step.timeout_s):
        return HUNG, f"its own timeout of {step.timeout_s:g} s had to end it"
    return (WRONG, wrong) if wrong else (RIGHT, "")
