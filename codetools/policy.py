"""The command policy: what may run without a question, what a person decides, what is refused. Pure.

It saves questions to people and keeps obvious mistakes out. It contains nothing: what a program does once it
runs is the sandbox's business.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import re2

from codetools.carriers import Leaf, Reading, program_name, read_command
from codetools.rule_file import load_rules
from codetools.rules import Decision, Match, PathRule, PolicyError, Rule, clean_path, match_words
from runtime.tools import Verdict

_RANK: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
_TELLING_VARIABLE = re.compile(
    r"(?:LD_|DYLD_|GIT_|BASH_|PYTHON|NODE_|NPM_|PERL5|RUBY|JAVA_|CARGO_|RUSTC|PROMPT_COMMAND$|PATH$|CDPATH$|IFS$|ENV$"
    r"|PS[0-4]$|SHELLOPTS$|BASHOPTS$|LESS|MAN|.*PAGER$|.*EDITOR$|VISUAL$|BROWSER$|SHELL$|HOME$|XDG_|CC$|CXX$|MAKEFLAGS$)"
)
_HARMLESS_FILES = {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"}
_RUN_BY_THE_SHELL = {"PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "BASH_ENV", "ENV"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A set of rules, compiled once; frozen, and safe to use from several threads.

    rules        about each program that a command would run; deny beats ask beats allow
    paths        about files
    allow_regex  plain patterns, searched anywhere in the trimmed command: one must be found, if there are any
    deny_regex   the same, looked at after `allow_regex`: none may be found
    default      what a program without a rule gets; None: "ask" if there are allow rules, else "allow"

    With nothing set, everything is allowed. A policy with a pattern that does not compile refuses everything;
    `error` tells why.
    """

    rules: tuple[Rule, ...] = ()
    paths: tuple[PathRule, ...] = ()
    allow_regex: tuple[str, ...] = ()
    deny_regex: tuple[str, ...] = ()
    default: Decision | None = None
    error: str = field(init=False, default="")
    _allow: tuple[Any, ...] = field(init=False, default=(), repr=False, compare=False)
    _deny: tuple[Any, ...] = field(init=False, default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_allow", _compiled(self.allow_regex))
            object.__setattr__(self, "_deny", _compiled(self.deny_regex))
            for rule in self.rules:
                if bool(rule.pattern.split()) == bool(rule.argv):
                    raise PolicyError("a rule needs a pattern or an argv, and not both")
        except PolicyError as error:
            object.__setattr__(self, "error", str(error))

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """Read a rule file. Raises PolicyError for one that is wrong or whose examples do not hold.

        Keys: `default`, `allow_regex`, `deny_regex`, and the tables `[[rule]]` (decision, pattern or argv,
        reason, match, not_match) and `[[path]]` (decision, pattern, access, reason).
        """
        found = load_rules(text)
        policy = cls(
            rules=found.rules,
            paths=found.paths,
            allow_regex=found.allow_regex,
            deny_regex=found.deny_regex,
            default=found.default,
        )
        if policy.error:
            raise PolicyError(policy.error)
        return policy

    @property
    def empty(self) -> bool:
        """Whether it says nothing at all."""
        return self == Policy()

    def with_default(self, default: Decision) -> Policy:
        """The same, with this answer for what no rule names, unless the policy has its own answer."""
        return self if self.default is not None else replace(self, default=default)

    def check(self, command: str, cwd: str = "", elsewhere: bool = False) -> Verdict:
        """The verdict about one command. Never raises.

        cwd        the working directory, so that path rules know absolute paths inside it; "": not known
        elsewhere  the command starts in some other directory, so what is relative is not what rules mean
        """
        if self.error:
            return self._invalid()
        if self.empty:
            return Verdict("allow")
        plain = self._check_regex(command.strip())
        if plain is not None and plain.decision == "deny":
            return plain
        if not self.rules and not self.paths and (plain is not None or self.default is None):
            return plain or Verdict("allow")
        return self._check_reading(read_command(command), cwd, elsewhere)

    def check_path(self, path: str, access: Literal["read", "write"], cwd: str = "") -> Verdict:
        """The verdict about a file tool's use of one path. Where no rule speaks, reading is allowed."""
        if self.error:
            return self._invalid()
        if verdict := self._path(path, access, cwd):
            return verdict
        if access == "read" or self.default is None:
            return Verdict("allow")
        return Verdict(self.default, f"no rule allows to {access} {path}")

    def check_paths(
        self, paths: Sequence[str], access: Literal["read", "write"], cwd: Callable[[], str]
    ) -> Verdict:
        """The strictest verdict about several paths. `cwd` is called only if a rule needs to know it."""
        directory = cwd() if self.paths else ""
        verdicts = [self.check_path(path, access, directory) for path in paths]
        return max(verdicts, key=lambda verdict: _RANK[verdict.decision], default=Verdict("allow"))

    def _invalid(self) -> Verdict:
        return Verdict(
            "deny", f"the policy cannot be used, so everything is refused: {self.error}", "invalid policy"
        )

    # -- regex lists ------------------------------------------------------------------------------

    def _check_regex(self, command: str) -> Verdict | None:
        shown = _short(command)
        hit = next((p for p, c in zip(self.allow_regex, self._allow, strict=True) if c.search(command)), None)
        if self.allow_regex and hit is None:
            return Verdict("deny", f"`{shown}` is refused: no allow pattern matches it", "no allow pattern")
        for pattern, compiled in zip(self.deny_regex, self._deny, strict=True):
            if compiled.search(command):
                return Verdict("deny", f"`{shown}` is refused by the deny pattern {pattern!r}", pattern)
        return Verdict("allow", rule=hit) if hit is not None else None

    # -- parsed commands --------------------------------------------------------------------------

    def _fallback(self) -> Decision:
        if self.default is not None:
            return self.default
        return "ask" if any(rule.decision == "allow" for rule in self.rules) else "allow"

    def _unsure(self) -> Decision:
        """What a part gets that cannot be known before it runs."""
        return "deny" if self.default == "deny" else "ask"

    def _check_reading(self, reading: Reading, cwd: str, elsewhere: bool) -> Verdict:
        moved = elsewhere or any(_moves(leaf) for leaf in reading.leaves)
        verdicts = [verdict for leaf in reading.leaves if (verdict := self._leaf(leaf, moved))]
        verdicts += self._assignments(reading)
        verdicts += self._redirects(reading, cwd, moved)
        verdicts += [Verdict(self._unsure(), why) for why in reading.doubts]
        return max(verdicts, key=lambda verdict: _RANK[verdict.decision], default=Verdict("allow"))

    def _leaf(self, leaf: Leaf, moved: bool) -> Verdict | None:
        strange = moved and "/" in leaf.words[0].text and not leaf.words[0].text.startswith("/")
        best: tuple[Rule, Match] | None = None
        for rule in self.rules:
            match = self._rule_match(rule, leaf)
            if match == "no" or (match == "maybe" and rule.decision == "allow"):
                continue
            if rule.decision == "allow" and (strange or (leaf.doubt and not _is_exact(rule, leaf))):
                continue
            if best is None or _weight(rule, match) > _weight(*best):
                best = rule, match
        return self._leaf_verdict(leaf, best)

    def _leaf_verdict(self, leaf: Leaf, best: tuple[Rule, Match] | None) -> Verdict | None:
        shown = f"`{leaf.shown}`"
        if best is None:
            if leaf.doubt:
                return Verdict(self._unsure(), f"{shown}: {leaf.doubt}")
            fallback = self._fallback()
            if not leaf.needs:
                return None
            return Verdict(fallback, "" if fallback == "allow" else f"no rule allows {shown}")
        rule, match = best
        because = f": {rule.reason}" if rule.reason else ""
        if match == "maybe":
            return Verdict(
                "ask", f"{shown} may turn out to be what the rule '{rule.name}' names{because}", rule.name
            )
        words = {"allow": "is allowed", "ask": "needs a person's answer", "deny": "is refused"}[rule.decision]
        return Verdict(rule.decision, f"{shown} {words} by the rule '{rule.name}'{because}", rule.name)

    @staticmethod
    def _rule_match(rule: Rule, leaf: Leaf) -> Match:
        forms = [form for form in (leaf.words, leaf.other) if form]
        found = {match_words(rule, form) for form in forms}
        return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"

    def _assignments(self, reading: Reading) -> list[Verdict]:
        restricted = self._fallback() != "allow"
        verdicts = []
        for assignment in reading.assignments:
            name, value = assignment.name, assignment.value
            hidden = value is not None and re.search(r"\$\(|`", value.text)
            if name in _RUN_BY_THE_SHELL or hidden or (restricted and _TELLING_VARIABLE.match(name)):
                verdicts.append(Verdict("ask", f"setting {name} can change what runs"))
        return verdicts

    # -- paths ------------------------------------------------------------------------------------

    def _redirects(self, reading: Reading, cwd: str, moved: bool) -> list[Verdict]:
        guarded = any(rule.decision != "allow" for rule in self.paths)
        verdicts = []
        for redirect in reading.redirects:
            target = redirect.target
            if target.text in _HARMLESS_FILES and target.literal:
                continue
            verdict = self._path(target.text, redirect.access, cwd)
            unsure = not target.literal or (moved and not target.text.startswith("/"))
            if unsure and (guarded or (self.default and redirect.access == "write")) and not _denies(verdict):
                verdict = Verdict(
                    "ask", f"which file `{target.source}` is, is known only when the command runs"
                )
            elif verdict is None and redirect.access == "write" and self.default:
                verdict = Verdict(self.default, f"no rule allows to write {target.text}")
            if verdict is not None:
                verdicts.append(verdict)
        return verdicts

    def _path(self, path: str, access: Literal["read", "write"], cwd: str) -> Verdict | None:
        clean = clean_path(path, cwd)
        hits = [
            rule
            for rule in self.paths
            if rule.access in {access, "any"} and fnmatch.fnmatchcase(clean, clean_path(rule.pattern, cwd))
        ]
        if not hits:
            return None
        rule = max(hits, key=lambda hit: _RANK[hit.decision])
        because = f": {rule.reason}" if rule.reason else ""
        words = {"allow": "is allowed", "ask": "needs a person's answer", "deny": "is refused"}[rule.decision]
        return Verdict(
            rule.decision, f"to {access} {path} {words} by the rule '{rule.name}'{because}", rule.name
        )


def _moves(leaf: Leaf) -> bool:
    """Whether what runs after it may run in another directory."""
    name = program_name(leaf.words[0])
    if name in {"env", "sudo", "doas"}:
        return any(word.text.startswith(("-C", "-D", "--chdir")) for word in leaf.words)
    return name in {"cd", "pushd", "popd"}


def _is_exact(rule: Rule, leaf: Leaf) -> bool:
    """Whether a rule names this very command, with no wildcard and nothing behind it."""
    if rule.argv:
        plain = [w for w in rule.argv if isinstance(w, str)]
        return plain == [word.text for word in leaf.words] and all(word.literal for word in leaf.words)
    return "*" not in rule.pattern and all(word.literal for word in leaf.words)


def _weight(rule: Rule, match: Match) -> tuple[int, int]:
    decision: Decision = "ask" if match == "maybe" else rule.decision
    return _RANK[decision], match == "yes"


def _denies(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.decision == "deny"


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."


def _compiled(patterns: tuple[str, ...]) -> tuple[Any, ...]:
    options = re2.Options()
    options.log_errors = False
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re2.compile(pattern, options))
        except re2.error as error:
            detail = error.args[0] if error.args else error
            text = detail.decode() if isinstance(detail, bytes) else str(detail)
            raise PolicyError(f"the pattern {pattern!r} does not compile: {text}") from None
    return tuple(compiled)
