"""Looks through programs that run others: `env`, `sudo`, `xargs`, `find -exec`, `sh -c`, `eval`, ... Pure.

`read_command` turns shell text into leaves, one for each program that would run, however it is wrapped.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from codetools.commands import Assignment, Command, Redirect, Script, Stdin, Word, parse_script
from codetools.programs import (
    CARRIERS,
    GIT_FLAGS,
    GIT_HARMLESS,
    GIT_VALUED,
    LATE_SHELL_TEXT,
    NEUTRAL,
    NEUTRAL_DECLARATIONS,
    PIPES_ARGUMENTS,
    SHELLS,
    Carrier,
    Words,
    after_options,
    git_runner,
    hidden,
    inline,
)
from codetools.quoting import UNKNOWN

MAX_NESTING = 8
"""How deep a command may be wrapped in others before it is no longer read."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One program that would run.

    words     as written, the program first
    other     the same with the options taken out that stand before a subcommand (`git -C x status`), if any
    needs     False where a policy that has no rule about it need not ask: the program does nothing of its own
    doubt     why it cannot be known what the program would run, or ""
    """

    words: Words
    other: Words | None = None
    needs: bool = True
    doubt: str = ""

    @property
    def shown(self) -> str:
        """The command for people, on one line and not too long."""
        text = " ".join((word.source or word.text) for word in self.words)
        text = re.sub(r"\s+", " ", text)
        return text if len(text) <= 200 else text[:200] + "..."


@dataclass(slots=True)
class Reading:
    """All that a command would do, as far as it can be known before it runs."""

    leaves: list[Leaf] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def read_command(source: str) -> Reading:
    """Read shell text into every program that it would run. Never raises."""
    reading = Reading()
    _Unfolder(reading).script(parse_script(source), 0)
    return reading


def program_name(word: Word) -> str:
    """The last part of the program's path; "" when the word is not literal."""
    return posixpath.basename(word.text) if word.literal else ""


class _Unfolder:
    """Goes through commands and the commands inside them, and puts what it finds in one Reading."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.functions: set[str] = set()

    def doubt(self, why: str) -> None:
        if why not in self.reading.doubts:
            self.reading.doubts.append(why)

    def leaf(self, words: Words, *, other: Words | None = None, needs: bool = True, doubt: str = "") -> None:
        self.reading.leaves.append(Leaf(words, other, needs, doubt))

    def script(self, script: Script, depth: int) -> None:
        self.functions |= script.functions
        self.reading.assignments += script.assignments
        self.reading.redirects += script.redirects
        for why in script.doubts:
            self.doubt(why)
        for command in script.commands:
            self.command(command, depth)

    def text(self, word: Word, depth: int) -> None:
        """Shell text that is held in a word."""
        if not word.literal:
            self.doubt("the text of an inner command is made when it runs")
        if depth >= MAX_NESTING:
            self.doubt("the command is wrapped too deeply to be read")
            return
        self.script(parse_script(word.text), depth + 1)

    def inner(self, words: Sequence[Word], stdin: Stdin, depth: int) -> None:
        if depth >= MAX_NESTING:
            self.doubt("the command is wrapped too deeply to be read")
        elif words:
            self.command(Command(tuple(words), (), stdin), depth + 1)

    def command(self, command: Command, depth: int) -> None:
        words, stdin = command.words, command.stdin
        name = program_name(words[0])
        if not words[0].literal:
            self.leaf(words, doubt="the program's name is not literal text")
        elif name in self.functions and "/" not in words[0].text:
            self.leaf(words, needs=False)
        elif name in CARRIERS:
            self._carrier(name, CARRIERS[name], words, stdin, depth)
        elif name in SHELLS:
            self._shell(words, stdin, depth)
        elif handler := _HANDLERS.get(name):
            handler(self, words, stdin, depth)
        else:
            self._plain(name, words, stdin)

    # -- programs that end here -------------------------------------------------------------------

    def _plain(self, name: str, words: Words, stdin: Stdin) -> None:
        needs = name not in NEUTRAL and name not in NEUTRAL_DECLARATIONS
        self.leaf(words, needs=needs, doubt=hidden(name, words) or inline(name, words, stdin))

    def _git(self, words: Words, stdin: Stdin, depth: int) -> None:
        at, doubt = 1, ""
        while at < len(words) and (words[at].text.startswith("-") or words[at].dynamic):
            word = words[at].text
            if not words[at].literal:
                doubt = doubt or "an option of git is not literal text"
                at += 1
            elif word in GIT_FLAGS or word.split("=")[0] in GIT_VALUED and "=" in word:
                at += 1
            elif word in GIT_VALUED:
                at += 2
            elif word == "-c" or word.startswith("-c"):
                setting = words[at + 1] if word == "-c" and at + 1 < len(words) else Word(word[2:])
                doubt = self._git_setting(setting, depth) or doubt
                at += 2 if word == "-c" else 1
            else:
                doubt = doubt or f"git's option {word} can make it run other programs"
                at += 1
        rest = words[at:]
        self._git_inner(rest, stdin, depth)
        self.leaf(words, other=(words[0], *rest) if at > 1 else None, doubt=doubt or git_runner(rest))

    def _git_setting(self, setting: Word, depth: int) -> str:
        if setting.literal and GIT_HARMLESS.match(setting.text):
            return ""
        value = setting.text.partition("=")[2]
        if value:
            self.text(Word(value.lstrip("!"), setting.source, setting.dynamic, setting.pattern), depth)
        return "a setting given to git can make it run other programs"

    def _git_inner(self, rest: Words, stdin: Stdin, depth: int) -> None:
        texts = [w.text for w in rest]
        if texts[:2] == ["bisect", "run"]:
            self.inner(rest[2:], stdin, depth)
        elif texts[:2] == ["submodule", "foreach"]:
            start = next((i for i in range(2, len(rest)) if not texts[i].startswith("-")), len(rest))
            self.text(_joined(rest[start:]), depth)
        elif texts[:1] in (["rebase"], ["filter-branch"], ["difftool"], ["config"]):
            self._git_option_texts(rest, depth)

    def _git_option_texts(self, rest: Words, depth: int) -> None:
        for index, word in enumerate(rest):
            name, equals, value = word.text.partition("=")
            if name in {"-x", "--exec", "--extcmd"} or name.endswith("-filter"):
                if equals:
                    self.text(replace(word, text=value), depth)
                elif index + 1 < len(rest):
                    self.text(rest[index + 1], depth)

    # -- programs that run others -----------------------------------------------------------------

    def _carrier(self, name: str, carrier: Carrier, words: Words, stdin: Stdin, depth: int) -> None:
        if name == "command" and len(words) > 1 and words[1].text in {"-v", "-V"}:
            self.leaf(words, needs=False)
            return
        at, unread = after_options(carrier, words)
        if name == "env" and any(
            w.text.startswith(("-S", "--split-string", "-vS", "-iS")) for w in words[1 : at + 1]
        ):
            self._env_split(words, depth)
            return
        assigned = at
        while carrier.assigns and at < len(words) and re.match(r"\w+=", words[at].text):
            key, _, value = words[at].text.partition("=")
            self.reading.assignments.append(Assignment(key, replace(words[at], text=value)))
            at += 1
        if name == "exec" and at >= len(words):
            self.leaf(words, needs=False)
            return
        inner = words[at + carrier.skip :]
        bare = not inner and not carrier.own and assigned == at
        self.leaf(words, needs=carrier.own or (bare and name not in {"time", "coproc"}), doubt=unread)
        if name == "coproc" and len(inner) > 1 and not inner[1].literal:
            self.doubt("the program's name is not literal text")
        if name in LATE_SHELL_TEXT or (name == "flock" and inner and inner[0].text in {"-c", "--command"}):
            self.text(_joined(inner[1:] if name == "flock" else inner), depth)
        elif name in PIPES_ARGUMENTS:
            self._xargs(words, at, inner, depth)
        else:
            self.inner(inner, stdin, depth)

    def _env_split(self, words: Words, depth: int) -> None:
        self.leaf(words, doubt="env splits a text into words when it runs")
        self.text(
            _joined([replace(w, text=re.sub(r"^(-[vi]*S|--split-string=?)", "", w.text)) for w in words[1:]]),
            depth,
        )

    def _xargs(self, words: Words, at: int, inner: Words, depth: int) -> None:
        """What xargs reads is put behind the program's own arguments, or in the place of a mark."""
        marks = ["{}"]
        for index, word in enumerate(words[:at]):
            if found := re.fullmatch(r"-[a-zA-Z0-9]*I(.*)|--replace=(.*)", word.text):
                following = words[index + 1].text if index + 1 < len(words) else ""
                marks.append(found[1] or found[2] or following)
        if inner:
            filled = [_filled(word, marks) for word in inner]
            self.inner([*filled, Word(UNKNOWN, "...", dynamic=True)], "inherited", depth)

    def _shell(self, words: Words, stdin: Stdin, depth: int) -> None:
        """`sh -c text`, `sh script`, or a shell that reads its input."""
        at, takes_text = 1, False
        while at < len(words) and re.match(r"[-+].", words[at].text) and words[at].text != "--":
            option = words[at].text
            if not words[at].literal:
                break
            takes_text |= not option.startswith("--") and "c" in option
            at += 2 if option in {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"} else 1
        at += at < len(words) and words[at].text == "--"
        if any(w.text in {"--rcfile", "--init-file"} for w in words[1:at]):
            self.doubt("a shell reads a start file")
        if at < len(words) and not words[at].literal and not takes_text:
            self.leaf(words, doubt="what the shell runs is not literal text")
        elif takes_text and at < len(words):
            self.leaf(words, needs=False)
            self.text(words[at], depth)
        elif at < len(words) and "s" not in "".join(
            w.text for w in words[1:at] if not w.text.startswith("--")
        ):
            self._script_file(words, at, stdin, depth)
        else:
            self._reads_input(words, stdin, depth)

    def _script_file(self, words: Words, at: int, stdin: Stdin, depth: int) -> None:
        if words[at].text == "-" or words[at].text.startswith(("/dev/", "/proc/")):
            self._reads_input(words, stdin, depth)
        else:
            self.leaf(words)

    def _reads_input(self, words: Words, stdin: Stdin, depth: int) -> None:
        if isinstance(stdin, Word):
            self.leaf(words, needs=False)
            self.text(stdin, depth)
        else:
            self.leaf(words, doubt="a shell reads its commands from its input")

    def _eval(self, words: Words, _stdin: Stdin, depth: int) -> None:
        self.leaf(words, needs=False)
        self.text(_joined(words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]), depth)

    def _source(self, words: Words, stdin: Stdin, depth: int) -> None:
        rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
        if rest and rest[0].literal:
            self._script_file((words[0], *rest), 1, stdin, depth)
        else:
            self.leaf(words, doubt="what is read as commands is not literal text")

    def _alias(self, words: Words, _stdin: Stdin, depth: int) -> None:
        self.leaf(words, doubt="" if all(w.literal for w in words) else "an alias is not literal text")
        for word in words[1:]:
            if "=" in word.text:
                self.text(replace(word, text=word.text.partition("=")[2]), depth)

    def _trap(self, words: Words, _stdin: Stdin, depth: int) -> None:
        self.leaf(words, needs=False)
        rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
        if rest:
            self.text(rest[0], depth)

    def _find(self, words: Words, stdin: Stdin, depth: int) -> None:
        self.leaf(words)
        at = 1
        while at < len(words):
            if words[at].text in {"-exec", "-execdir", "-ok", "-okdir"}:
                end = next((i for i in range(at + 1, len(words)) if words[i].text in {";", "+"}), len(words))
                inner = [_filled(word, ["{}"]) for word in words[at + 1 : end]]
                self.inner(inner, stdin, depth)
                at = end
            elif words[at].text == "-delete":
                self.leaf((Word("rm", "find -delete: rm"), Word(UNKNOWN, "...", dynamic=True)))
            elif words[at].dynamic:
                self.doubt("an argument of find is made when it runs")
            elif words[at].text in {"-fprint", "-fprintf", "-fls", "-fprint0"} and at + 1 < len(words):
                self.reading.redirects.append(Redirect("write", words[at + 1]))
            at += 1

    def _busybox(self, words: Words, stdin: Stdin, depth: int) -> None:
        if len(words) > 1 and not words[1].text.startswith("-"):
            self.leaf(words, needs=False)
            self.inner(words[1:], stdin, depth)
        else:
            self.leaf(words)

    def _text_option(self, words: Words, _stdin: Stdin, depth: int) -> None:
        """`su -c text`, `script -c text`: programs that give a text to a shell."""
        found = [i for i, w in enumerate(words) if re.fullmatch(r"-[a-zA-Z]*c|--command", w.text)]
        glued = [w for w in words if w.text.startswith("--command=")]
        doubt = "" if found or glued else "it starts a shell that reads its input"
        self.leaf(words, doubt=doubt)
        for index in found:
            if index + 1 < len(words):
                self.text(words[index + 1], depth)
        for word in glued:
            self.text(replace(word, text=word.text.partition("=")[2]), depth)

    def _awk(self, words: Words, _stdin: Stdin, _depth: int) -> None:
        risky = any(
            w.dynamic or "system" in w.text or "|" in w.text or w.text.startswith("-f") for w in words[1:]
        )
        self.leaf(words, doubt="an awk program may run others" if risky else "")


_HANDLERS = {
    "git": _Unfolder._git,
    "eval": _Unfolder._eval,
    "source": _Unfolder._source,
    ".": _Unfolder._source,
    "alias": _Unfolder._alias,
    "trap": _Unfolder._trap,
    "find": _Unfolder._find,
    "busybox": _Unfolder._busybox,
    "toybox": _Unfolder._busybox,
    "su": _Unfolder._text_option,
    "runuser": _Unfolder._text_option,
    "script": _Unfolder._text_option,
    "awk": _Unfolder._awk,
    "gawk": _Unfolder._awk,
    "mawk": _Unfolder._awk,
    "nawk": _Unfolder._awk,
}


def _filled(word: Word, marks: Sequence[str]) -> Word:
    """A word in which a program puts something else for each mark."""
    text = word.text
    for mark in marks:
        text = text.replace(mark, UNKNOWN) if mark else text
    return word if text == word.text else replace(word, text=text, dynamic=True)


def _joined(words: Sequence[Word]) -> Word:
    """Words as one text, as `eval` joins them."""
    text = " ".join(w.text for w in words)
    return Word(text, text, dynamic=any(not w.literal for w in words))
