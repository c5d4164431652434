"""Rules: what they hold, and whether one names a command or a path. Pure."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from codetools.commands import Word
from codetools.programs import Words

Decision: TypeAlias = Literal["allow", "ask", "deny"]
Access: TypeAlias = Literal["read", "write", "any"]
_SYSTEM_DIRECTORIES = {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}


class PolicyError(ValueError):
    """A rule file cannot be used; the message names the rule and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule about programs. Give `pattern` or `argv`.

    pattern    words with wildcards: `git status*`. `*` in a word stands for any characters of that word, and
               at the end of the pattern for any further arguments too (`ls *` is `ls` with or without them)
    argv       words that must stand at the front, exactly; a tuple among them lists alternatives
    reason     told to the person who is asked, and to the model when it is refused
    match      commands that this rule must match, `not_match` that it must not: checked when a file is loaded
    """

    decision: Decision
    pattern: str = ""
    argv: tuple[str | tuple[str, ...], ...] = ()
    reason: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How the rule is called in answers."""
        words = " ".join(w if isinstance(w, str) else "|".join(w) for w in self.argv)
        return f"{self.decision} {self.pattern or words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """One rule about files, for the file tools and for what the shell itself opens (`> file`, `< file`).

    pattern  a glob over the path as it is written, cleaned of `.` and `..`; `*` takes slashes too
    access   "read", "write" or "any"
    """

    decision: Decision
    pattern: str
    access: Access = "any"
    reason: str = ""

    @property
    def name(self) -> str:
        """How the rule is called in answers."""
        return f"{self.decision} {self.access} {self.pattern}"


Match: TypeAlias = Literal["yes", "maybe", "no"]


def clean_path(path: str, cwd: str = "") -> str:
    """One spelling for a path: no `.` and `..`, relative where it lies in `cwd`; links are not followed."""
    clean = posixpath.normpath(path) if path else "."
    if cwd and clean.startswith("/"):
        root = cwd.rstrip("/") + "/"
        clean = clean.removeprefix(root) if clean.startswith(root) else "." if clean + "/" == root else clean
    return "/" + clean.lstrip("/") if clean.startswith("//") else clean


def match_words(rule: Rule, words: Words) -> Match:
    """Whether a rule names a command. "maybe": it depends on what is known only when the command runs."""
    wanted: Sequence[tuple[str, ...]]
    if rule.argv:
        wanted, rest, exact = [(w,) if isinstance(w, str) else w for w in rule.argv], True, True
    else:
        texts = rule.pattern.split()
        rest, exact = texts[-1].endswith("*"), False
        if texts[-1] == "*" and len(texts) > 1:
            texts = texts[:-1]
        wanted = [(text,) for text in texts]
    return _match(rule.decision, wanted, words, rest, exact)


def _match(
    decision: Decision, wanted: Sequence[tuple[str, ...]], words: Words, rest: bool, exact: bool
) -> Match:
    best: Match = "yes"
    for index, options in enumerate(wanted):
        if index >= len(words):
            return "no"
        word = words[index]
        if word.dynamic and all(set(option) <= {"*"} for option in options) and not exact:
            continue
        if word.dynamic:
            return "maybe"
        spellings = _program_spellings(word.text, decision) if index == 0 else [word.text]
        if not any(_same(spelling, option, exact) for spelling in spellings for option in options):
            if word.literal or not any(_could_be(word, option) for option in options):
                return "no"
            best = "maybe"
    if len(words) > len(wanted) and not rest:
        unknown = all(word.dynamic for word in words[len(wanted) :])
        return "maybe" if unknown else "no"
    return best


def _same(text: str, option: str, exact: bool) -> bool:
    return text == option if exact else fnmatch.fnmatchcase(text, option.replace("[", "[[]"))


def _could_be(word: Word, option: str) -> bool:
    """Whether an unquoted wildcard or brace in a command could become what a rule names."""
    if "{" in word.text or word.text.startswith("~"):
        return True
    front, wanted = re.split(r"[*?\[]", word.text)[0], re.split(r"[*?]", option)[0]
    return front.startswith(wanted) or wanted.startswith(front)


def _program_spellings(text: str, decision: Decision) -> list[str]:
    """A program by its path is the program; but only a path of the system is allowed under its bare name."""
    directory, base = posixpath.split(text)
    if not directory or (decision == "allow" and posixpath.normpath(directory) not in _SYSTEM_DIRECTORIES):
        return [text]
    return [text, base]
