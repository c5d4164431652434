"""What is taken out of both sides before they are compared, and what is not compared at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Contender = Literal["exec", "shell", "session"]
SCRIPT_NAME = "fz.sh"

# A script speaks of itself by its file's name, a command by the shell's; bash says `environment` for
# functions of a command. `eval:` and `-c:` tell how the text came to the shell.
_NAME = rb"(?:/[\w./-]*/fz\.sh|dash|bash|sh|environment): "
_HEADS = {
    "bash": re.compile(
        _NAME
        + rb"(?:(?:eval: |-c: )(?=line |debug trap|error trap))?(?:line (\d+): )?"
        + rb"(?:debug trap: |error trap: )?(?:line \d+: )?"
    ),
    "dash": re.compile(_NAME + rb"(?:(\d+): )?(?:eval: )?"),
    "ash": re.compile(_NAME + rb"(?:eval: )?(?:line (\d+): )?"),
}
_MATCHING = re.compile(rb"(unexpected EOF while looking for matching) `.'")
_SOURCED = re.compile(rb"(?:SHELL: )?(?:(?:\./)?f\d|/dev/fd/N|/dev/stdin): line \d+: ")
_AT_LINE = re.compile(rb"((?:here-document at|command substitution:) line )\d+")
_DESCRIPTOR = re.compile(rb"/dev/fd/6\d")
_KILLED = re.compile(
    rb"(?<=[: ])\s*\d+ (?=(?:Hangup|Killed|Terminated|User defined|Broken pipe|Aborted|Segm))"
)
_TIMES = re.compile(rb"(real|user|sys)([\t ])[\dms.]+")
_TRACE = re.compile(rb"(?<![^\s+>])\++ ")


def normal(data: bytes, dialect: str, *, lines: bool) -> bytes:
    """Messages without the name of their script; without line numbers too, unless `lines`."""

    def head(found: re.Match[bytes]) -> bytes:
        return b"SHELL: line " + found[1] + b": " if lines and found[1] else b"SHELL: "

    data = _TIMES.sub(rb"\1\2TIME", _DESCRIPTOR.sub(b"/dev/fd/N", data))
    data = _KILLED.sub(b"PID ", _HEADS[dialect].sub(head, data))
    if not lines:
        data = _MATCHING.sub(rb"\1", data)
        # An interactive bash does not name a file that it sources.
        data = _SOURCED.sub(b"SHELL: ", data)
        data = _AT_LINE.sub(rb"\1N", data)
    return _TRACE.sub(b"+ ", data)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Scripts that are not given to a contender, because the difference is decided.

    dialects    the shells that it is about
    pattern     what a script of this kind holds
    why         with the row of docs/behaviour that decides it
    """

    contenders: tuple[Contender, ...]
    dialects: tuple[str, ...]
    pattern: re.Pattern[str]
    why: str


_ALL: tuple[Contender, ...] = ("exec", "shell", "session")
_NAMED: tuple[Contender, ...] = ("shell", "session")
_EVERY = ("bash", "dash", "ash")
_SMALL = ("dash", "ash")


def _rule(contenders: tuple[Contender, ...], dialects: tuple[str, ...], pattern: str, why: str) -> Exclusion:
    return Exclusion(contenders, dialects, re.compile(pattern, re.DOTALL), why)


_START = r"(?:^|[;&|(){}\n`])\s*"
_BACKGROUND = r"(?<![&><|\\])&(?![&>])"
_END = r"\s*(?:$|[;&|)}>\n#`])"
EXCLUDED: tuple[Exclusion, ...] = (
    _rule(_ALL, _EVERY, r"\$0|\$\{0|BASH_SOURCE|\bcaller\b", "FZ-05: the name of the script"),
    _rule(_ALL, _EVERY, r"(?<!kill -\w{3} )(?<!kill -\w{4} )\$\$|<<.*\$\$", "FZ-05: a process id"),
    _rule(
        _ALL,
        _EVERY,
        _START
        + r"(?:!\s*)?(?:set|(?:declare|typeset|local|readonly|export|env|trap)\s*(?:-[pxv]\s*)?)"
        + r"(?:\'\'|\"\"|\\\n)*"
        + _END,
        "FZ-05: a list of every variable or trap",
    ),
    _rule(_ALL, _EVERY, r"PS4", "FZ-06: its first letter is repeated for each level of eval"),
    _rule(
        _ALL,
        ("bash",),
        r"BASH_COMMAND.*EXIT|EXIT.*BASH_COMMAND",
        "FZ-06: the end of the shell is not its text's",
    ),
    _rule(
        _ALL,
        ("bash",),
        r"\$PIPESTATUS|\A[^|]*PIPESTATUS",
        "FZ-06: what came before is the launcher's",
    ),
    _rule(_ALL, ("dash",), r"(?<!\{ )\blocal\b", "FZ-06: dash takes `local` anywhere in `eval`"),
    _rule(_NAMED, _EVERY, r"LINENO", "FZ-07: lines are counted from the shell's start"),
    _rule(
        _NAMED,
        _EVERY,
        r"\$-|\$\{-|SHELLOPTS|BASHOPTS|(?:^|[;&|({\n])\s*(?:[fb]g|jobs|disown)\b|(?:^|[;&({\n])\s*[\'\"]?%"
        r"|set\s+[-+]\w*[mn]|(?:kill|wait) %|set [-+]\w*o(?!\s+[a-z])"
        r"|noexec|lastpipe|monitor|ignoreeof|posix|suspend",
        "FZ-07: a named shell is interactive",
    ),
    _rule(
        _NAMED,
        ("bash",),
        r"(?:set -\w*u|nounset|\$\{\w+:?\?).*(?:\n\s*[^\s#]|eval|source|\btrap\b|; \. )",
        "FZ-07: a fatal expansion error ends no more than its line in an interactive bash",
    ),
    _rule(_ALL, ("bash",), r"(?<!\\)(?:\\\\)*\\\Z", "FZ-06: a backslash at the end is itself in `eval`"),
    _rule(
        _NAMED, _SMALL, r"(?:^|[\s;&|])\\\Z", "FZ-06: a word of one backslash at the end is none in `eval`"
    ),
    _rule(
        _NAMED,
        _EVERY,
        r"[({|][^\n]*\bkill -\w+ \$\$|\bkill -\w+ \$\$.*\n\}?\s*\|",
        "FZ-07: what a subshell prints after it killed its shell",
    ),
    _rule(_NAMED, _EVERY, r"(?:^|\n)ex(?:\n|\Z)", "ex is an editor: it reads the terminal, if there is one"),
    _rule(_NAMED, _SMALL, r"set -\w*v", "FZ-06: dash shows lines as it reads them, and `eval` reads none"),
    _rule(_NAMED, ("bash",), _BACKGROUND + r".*wait -n", "FZ-07: bash tells what `wait -n` waited for"),
    _rule(
        _NAMED,
        _SMALL,
        _BACKGROUND + r".*(?:\. |eval|[\w:]\?|set -\w*u|readonly)",
        "FZ-07: an error throws dash to its prompt, which tells of jobs",
    ),
    _rule(_NAMED, ("bash",), r"set -\w*r", "FZ-07: what may not redirect cannot be framed"),
    _rule(
        _NAMED,
        ("bash",),
        r"DEBUG.*\bkill\b|\bkill\b.*DEBUG",
        "FZ-07: a DEBUG trap sees the shell's end by TERM",
    ),
    _rule(
        _NAMED, ("bash",), r"\bex(?:it|ec)\b.*\$\([^)]*\Z", "FZ-07: as of a syntax error in a substitution"
    ),
    _rule(
        _NAMED,
        ("bash",),
        r"\[\[(?:(?!\]\]).)*\Z|\[\[(?: a =~ \()? ?['\"]?\]",
        "FZ-07: a syntax error is told in other words",
    ),
    _rule(_NAMED, _EVERY, r"kill -INT", "FZ-07: an interactive shell shows a newline at an interrupt"),
    _rule(_NAMED, _SMALL, r"kill (\$!|%)", "FZ-07: what an interactive dash just forked ignores TERM"),
    _rule(
        _NAMED,
        _EVERY,
        _BACKGROUND + r"(?!.*\bwait(?:\s*$|\s*[;\n}]|\s+(?:-n\b|[$%])))",
        "FZ-07: what a background job prints later is not this command's",
    ),
    _rule(
        ("session",), _EVERY, r"\bexec\b[^;\n]*<", "FZ-07: each command begins with /dev/null as its input"
    ),
    _rule(
        _NAMED,
        _EVERY,
        r"(?:DEBUG|set -\w*[xv]).*EXIT|EXIT.*(?:DEBUG|set -\w*[xv])",
        "FZ-07: EXIT comes when the shell is ended",
    ),
)


def excluded(contender: Contender, dialect: str, text: str) -> str | None:
    """Why a script is not given to a contender; None: it is."""
    for rule in EXCLUDED:
        if contender in rule.contenders and dialect in rule.dialects and rule.pattern.search(text):
            return rule.why
    return None


_PARSER_SAID = re.compile(
    rb"SHELL: (?:line \d+: )?(?:unexpected (?:EOF|token|argument)|syntax error|conditional binary)[^\n]*\n"
    rb"(?:SHELL: [^\n]*\n)*\Z"
)
_PARSER_WROTE = re.compile(rb"SHELL: (?:unexpected EOF|unexpected token|syntax error)")


def is_parsers_status(
    dialect: str, messages: tuple[bytes, ...], expected: int | None, got: int | None
) -> bool:
    """FZ-06: for some syntax errors bash gives the last command's status (0 for `[[ )`), `eval` always 2.

    messages  what the shell said, then what is in files (`exec 2>file`)"""
    if dialect != "bash" or 2 not in (expected, got):
        return False
    said, *wrote = messages
    return _PARSER_SAID.search(said) is not None or any(_PARSER_WROTE.search(each) for each in wrote)


_SIDE_BY_SIDE = re.compile(rb"(?<![|>])\|(?!\|)|(?<![&><|])&(?![&>])|[<>]\(|\bcoproc\b")


def runs_side_by_side(script: bytes) -> bool:
    """Whether parts of a script may run at once, and so speak in any order."""
    return _SIDE_BY_SIDE.search(script) is not None


_SUBSTITUTION = re.compile(rb"[$<>]\(|`")


def is_substitutions_error(dialect: str, script: bytes, messages: bytes) -> bool:
    """FZ-07: of a syntax error in a substitution an interactive bash says less, and runs the next line."""
    found = _PARSER_WROTE.search(messages) is not None
    return dialect == "bash" and found and _SUBSTITUTION.search(script) is not None


def crashed(code: int | None) -> bool:
    """Whether the shell itself died of a fault: then its output means nothing."""
    return code in (134, 136, 139)
