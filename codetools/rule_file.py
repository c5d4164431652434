"""Reads the rules of a policy from TOML and holds them to their own examples. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codetools.carriers import read_command
from codetools.rules import Decision, PathRule, PolicyError, Rule, match_words

_TOP = {"default", "allow_regex", "deny_regex", "rule", "path"}
_RULE = {"decision", "pattern", "argv", "reason", "match", "not_match"}
_PATH = {"decision", "pattern", "access", "reason"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """What a rule file says; the fields are those of `Policy`."""

    rules: tuple[Rule, ...]
    paths: tuple[PathRule, ...]
    allow_regex: tuple[str, ...]
    deny_regex: tuple[str, ...]
    default: Decision | None


def load_rules(text: str) -> RuleFile:
    """Read a rule file. Raises PolicyError for one that is wrong or whose examples do not hold."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"the rule file is not TOML: {error}") from None
    _only(data, _TOP, "the rule file")
    default = data.get("default")
    rules = tuple(_rule(entry, f"rule {n}") for n, entry in enumerate(_tables(data, "rule"), 1))
    for rule in rules:
        _hold_examples(rule)
    return RuleFile(
        rules=rules,
        paths=tuple(_path(entry, f"path {n}") for n, entry in enumerate(_tables(data, "path"), 1)),
        allow_regex=_strings(data, "allow_regex", "the rule file"),
        deny_regex=_strings(data, "deny_regex", "the rule file"),
        default=None if default is None else _decision(default, "the rule file's default"),
    )


def _hold_examples(rule: Rule) -> None:
    for example in rule.match:
        if not _matches(rule, example):
            raise PolicyError(f"the rule '{rule.name}' should match {example!r}, but does not")
    for example in rule.not_match:
        if _matches(rule, example):
            raise PolicyError(f"the rule '{rule.name}' should not match {example!r}, but does")


def _matches(rule: Rule, example: str) -> bool:
    forms = [form for leaf in read_command(example).leaves for form in (leaf.words, leaf.other) if form]
    return any(match_words(rule, form) == "yes" for form in forms)


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    _only(entry, _RULE, where)
    if bool(_string(entry, "pattern", where).split()) == bool(_argv(entry, where)):
        raise PolicyError(f"{where}: a pattern or an argv is needed, and not both")
    return Rule(
        decision=_decision(entry.get("decision"), where),
        pattern=_string(entry, "pattern", where),
        argv=_argv(entry, where),
        reason=_string(entry, "reason", where),
        match=_strings(entry, "match", where),
        not_match=_strings(entry, "not_match", where),
    )


def _path(entry: Mapping[str, Any], where: str) -> PathRule:
    _only(entry, _PATH, where)
    access = entry.get("access", "any")
    if access not in ("read", "write", "any"):
        raise PolicyError(f"{where}: access is 'read', 'write' or 'any', not {access!r}")
    pattern = _string(entry, "pattern", where)
    if not pattern:
        raise PolicyError(f"{where}: a pattern is needed")
    return PathRule(
        decision=_decision(entry.get("decision"), where),
        pattern=pattern,
        access=access,
        reason=_string(entry, "reason", where),
    )


def _argv(entry: Mapping[str, Any], where: str) -> tuple[str | tuple[str, ...], ...]:
    words: list[str | tuple[str, ...]] = []
    value = entry.get("argv", [])
    if not isinstance(value, list):
        raise PolicyError(f"{where}: argv is a list")
    for word in value:
        if isinstance(word, list) and word and all(isinstance(option, str) for option in word):
            words.append(tuple(word))
        elif isinstance(word, str):
            words.append(word)
        else:
            raise PolicyError(f"{where}: argv holds texts, or lists of alternative texts")
    return tuple(words)


def _tables(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise PolicyError(f"write rules as [[{key}]] tables")
    return value


def _decision(value: object, where: str) -> Any:
    if value not in ("allow", "ask", "deny"):
        raise PolicyError(f"{where}: a decision is 'allow', 'ask' or 'deny', not {value!r}")
    return value


def _string(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise PolicyError(f"{where}: {key} is a text")
    return value


def _strings(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise PolicyError(f"{where}: {key} is a list of texts")
    return tuple(value)


def _only(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise PolicyError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
