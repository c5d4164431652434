"""Reads shell text into the simple commands it would run. Pure; nothing is run or expanded.

Parsing is tree-sitter's bash grammar. What the grammar cannot place becomes a *doubt*: a sentence that
says why the text cannot be known before it runs. Nothing is ever left out in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tree_sitter import Node

from codetools.grammar import MAY_HIDE_BACKTICKS, RESERVED, WORDS, misreadings, parse_mended
from codetools.quoting import UNKNOWN, decode_ansi_c, in_double_quotes, unquoted

MAX_SOURCE_BYTES = 64 << 10
"""Longer text is not parsed: it gets a doubt instead."""
MAX_DEPTH = 120


@dataclass(frozen=True, slots=True)
class Word:
    """One shell word.

    text     after quotes are removed; unknown pieces are the text UNKNOWN
    source   as it was written
    dynamic  some piece is known only at run time, and may even become several words
    pattern  holds an unquoted wildcard, brace or tilde that the shell would expand
    """

    text: str
    source: str = ""
    dynamic: bool = False
    pattern: bool = False

    @property
    def literal(self) -> bool:
        """Whether `text` is exactly what the program will get."""
        return not (self.dynamic or self.pattern)


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=value`, on its own or in front of a command. `value` is None for an array."""

    name: str
    value: Word | None


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that the shell itself opens for a command."""

    access: Literal["read", "write"]
    target: Word


Stdin = Word | Literal["inherited", "pipe", "file"]
"""Where a command's input comes from; a Word is the text of a heredoc or here-string."""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words (the first is the program) and what feeds its input."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    stdin: Stdin = "inherited"
    source: str = ""


@dataclass(slots=True)
class Script:
    """Everything that a piece of shell text would do, as far as it can be read."""

    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)


def parse_script(source: str) -> Script:
    """Read shell text. Never raises: what cannot be read is named in `doubts`."""
    script = Script()
    try:
        data = source.encode()
    except UnicodeEncodeError:
        script.doubts.append("the command is not valid text")
        return script
    if b"\0" in data or len(data) > MAX_SOURCE_BYTES:
        script.doubts.append(
            "the command is too long to be read" if b"\0" not in data else "it holds a NUL byte"
        )
        return script
    data, root, mended = parse_mended(data)
    if root.has_error or not mended:
        script.doubts.append("the command cannot be read as shell text")
    reader = _Reader(data, script)
    reader.visit(root, "inherited", 0)
    if reader.arithmetic and any(
        re.search(r"\$\(|`", word.text) for c in script.commands for word in c.words
    ):
        script.doubts.append("the shell may evaluate text that holds a command")
    return script


_READS = {"<", "<&"}


class _Reader:
    """One walk over one tree. Words are read, commands are collected, oddities become doubts."""

    def __init__(self, data: bytes, script: Script) -> None:
        self.data = data
        self.script = script
        self.late_words: dict[int, list[Word]] = {}
        self.arithmetic = False

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def doubt(self, why: str) -> None:
        if why not in self.script.doubts:
            self.script.doubts.append(why)

    # -- the walk ---------------------------------------------------------------------------------

    def visit(self, node: Node, stdin: Stdin, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.doubt("the command is nested too deeply to be read")
            return
        for why in misreadings(node, self.data):
            self.doubt(why)
        self._take(node, stdin)
        if node.is_named and not node.children and node.type in MAY_HIDE_BACKTICKS:
            self._loose_backticks(self.text(node))
        if node.type == "redirected_statement":
            stdin = self._redirected(node, stdin)
        for index, child in enumerate(node.children):
            self.visit(child, self._stdin_of_child(node, child, index, stdin), depth + 1)

    def _take(self, node: Node, stdin: Stdin) -> None:
        # What comes out of a command or a variable there is evaluated once more, as an expression.
        self.arithmetic |= node.type in {"((", "$((", "$[", "subscript"}
        match node.type:
            case "command":
                self._command(node, stdin)
            case "variable_assignment":
                self.script.assignments.append(self._assignment(node))
            case "declaration_command" | "unset_command":
                self._declaration(node, stdin)
            case "function_definition":
                self._function(node)
            case "file_redirect":
                self._file_redirect(node)
            case "command_substitution":
                self._backticks(node)

    def _stdin_of_child(self, node: Node, child: Node, index: int, stdin: Stdin) -> Stdin:
        if node.type == "pipeline":
            return stdin if index == 0 else "pipe"
        if node.type == "heredoc_redirect":
            return "pipe" if child.type == "pipeline" else "inherited"
        if node.type == "process_substitution":
            return "pipe"
        return stdin

    # -- commands ---------------------------------------------------------------------------------

    def _command(self, node: Node, stdin: Stdin) -> None:
        words: list[Word] = []
        assignments: list[Assignment] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type == "herestring_redirect":
                stdin = self.word(child.named_children[-1])
            elif child.type == "file_redirect":
                words += self._extra_targets(child)
                stdin = "file" if self._operator(child) in _READS else stdin
            elif child.type == "command_name":
                words.append(self.word(child.children[0] if child.children else child))
            elif child.type in WORDS or (not child.is_named and not _marks_translation(child)):
                words.append(self.word(child))
            elif child.type != "comment" and not _marks_translation(child):
                self.doubt("the command holds a construct that cannot be read")
        words += self.late_words.get(node.id, [])
        if words and words[0].source in RESERVED:
            self.doubt(f"the word {words[0].source} stands where it cannot be placed")
        if words:
            command = Command(tuple(words), tuple(assignments), stdin, self.text(node))
            self.script.commands.append(command)

    def _declaration(self, node: Node, stdin: Stdin) -> None:
        words = [self.word(child) for child in node.children if child.type != "variable_assignment"]
        for child in node.children:
            if child.type == "variable_assignment":
                made = self._assignment(child)
                text = f"{made.name}={made.value.text if made.value else ''}"
                words.append(Word(text, self.text(child), dynamic=True))
        self.script.commands.append(Command(tuple(words), (), stdin, self.text(node)))

    def _function(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        if name is not None:
            self.script.functions.add(self.word(name).text)

    def _backticks(self, node: Node) -> None:
        """Inside backticks a backslash is taken away before the text is read, so it is read again.

        Backticks do not nest, but the grammar thinks that they do."""
        text = self.text(node).lstrip()
        if text.startswith("`") and "`" in text[1:-1].replace("\\`", ""):
            self.doubt("backticks stand inside backticks")
        if text.startswith("`") and "\\" in text:
            inner = re.sub(r"\\([$`\\])", r"\1", text.strip("`"))
            self.script.doubts.append("backslashes inside backticks cannot be read for certain")
            merge(self.script, parse_script(inner))

    def _loose_backticks(self, text: str) -> None:
        """Backticks that the grammar took for plain text."""
        if "`" in re.sub(r"\\.", "", text, flags=re.DOTALL):
            self.doubt("backticks stand where they cannot be placed")
            for inner in re.findall(r"`((?:[^`\\]|\\.)*)`", text, flags=re.DOTALL):
                merge(self.script, parse_script(re.sub(r"\\([$`\\])", r"\1", inner)))

    def _assignment(self, node: Node) -> Assignment:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        name_text = self.text(name).split("[")[0] if name is not None else ""
        if value is None:
            return Assignment(name_text, Word(""))
        return Assignment(name_text, None if value.type == "array" else self.word(value))

    # -- redirects --------------------------------------------------------------------------------

    def _redirected(self, node: Node, stdin: Stdin) -> Stdin:
        """Gather what redirects give to the body: its input, and words that were written after them."""
        body = node.child_by_field_name("body")
        late: list[Word] = []
        for redirect in self._redirects_of(node):
            if redirect.type == "heredoc_redirect":
                stdin = self._heredoc(redirect)
                late += [self.word(c) for c in redirect.named_children if c.type in WORDS]
            elif redirect.type == "herestring_redirect":
                stdin = self.word(redirect.named_children[-1])
            elif redirect.type == "file_redirect":
                late += self._extra_targets(redirect)
                stdin = "file" if self._operator(redirect) in _READS else stdin
        if any("\n" in word.source for word in late):
            self.doubt("words after a redirect cannot be placed")
        if late:
            self._give_late_words(body, late)
        return stdin

    @staticmethod
    def _redirects_of(node: Node) -> Iterable[Node]:
        for child in node.children:
            if child.type.endswith("_redirect"):
                yield child
                if child.type == "heredoc_redirect":
                    yield from (c for c in child.children if c.type.endswith("_redirect"))

    def _give_late_words(self, body: Node | None, late: list[Word]) -> None:
        while body is not None and body.type in {
            "list",
            "pipeline",
            "negated_command",
            "redirected_statement",
        }:
            named = [c for c in body.named_children if not c.type.endswith("_redirect")]
            body = named[-1] if named else None
        if body is not None and body.type == "command":
            self.late_words.setdefault(body.id, []).extend(late)
        else:
            self.doubt("words after a redirect cannot be placed")

    def _heredoc(self, node: Node) -> Word:
        start = next((self.text(c) for c in node.children if c.type == "heredoc_start"), "")
        body = next((c for c in node.children if c.type == "heredoc_body"), None)
        text = self.text(body) if body is not None else ""
        quoted = any(mark in start for mark in "'\"\\")
        live = not quoted and any(mark in text for mark in "$`\\")
        if live:
            self._loose_backticks(text)
        tabs = any(child.type == "<<-" for child in node.children)
        if live and tabs:
            self._tabbed_heredoc(start, text)
        elif live and body is not None and not body.children and re.search(r"\$\(|\$\{", text):
            self.doubt("a heredoc holds something that cannot be placed")
        return Word(text, text, dynamic=live)

    def _tabbed_heredoc(self, start: str, text: str) -> None:
        """The grammar does not look into the body of `<<-` well; without its tabs it is like that of `<<`."""
        body = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        merge(self.script, parse_script(f": <<{start}\n{body}\n{start}\n"))

    def _targets(self, node: Node) -> list[Node]:
        return [c for c in node.named_children if c.type != "file_descriptor"]

    def _extra_targets(self, node: Node) -> list[Word]:
        """The grammar takes `>out a b` as three targets; the shell takes a and b as arguments."""
        return [self.word(c) for c in self._targets(node)[1:]]

    def _operator(self, node: Node) -> str:
        return next((c.type for c in node.children if not c.is_named), "")

    def _file_redirect(self, node: Node) -> None:
        targets = self._targets(node)
        if not targets:
            return
        target, operator = self.word(targets[0]), self._operator(node)
        if (
            operator in {">&", "<&", ">&-", "<&-"}
            and re.fullmatch(r"\d+-?|-", target.text)
            and target.literal
        ):
            return
        if targets[0].type == "process_substitution":
            return
        if operator in {"<", "<>"}:
            self.script.redirects.append(Redirect("read", target))
        if operator != "<":
            self.script.redirects.append(Redirect("write", target))

    # -- words ------------------------------------------------------------------------------------

    def word(self, node: Node) -> Word:
        text, dynamic, pattern = self._pieces(node)
        return Word(text, self.text(node), dynamic, pattern)

    def _pieces(self, node: Node) -> tuple[str, bool, bool]:
        """(text, dynamic, pattern) of a node in word position."""
        match node.type:
            case "word" | "number" | "variable_name" | "test_operator" if not node.children:
                return unquoted(self.text(node))
            case "raw_string":
                return self.text(node)[1:-1], False, False
            case "ansi_c_string":
                return *decode_ansi_c(self.text(node)[2:-1]), False
            case "string" | "translated_string":
                return self._double_quoted(node)
            case "concatenation":
                parts = [self._pieces(child) for child in node.children if not _marks_translation(child)]
                text = "".join(part[0] for part in parts)
                gap = sum(c.end_byte - c.start_byte for c in node.children) != node.end_byte - node.start_byte
                braces = "{" in text and ("," in text or ".." in text)
                return text, gap or any(p[1] for p in parts), braces or any(p[2] for p in parts)
            case "brace_expression" | "extglob_pattern" | "regex":
                return self.text(node), node.child_count > 0 and node.type == "regex", True
        if not node.is_named and node.child_count == 0:
            after = node.next_sibling
            glued = after is not None and after.start_byte == node.end_byte
            # The grammar's "$" may stand for `$$` and other texts too.
            unsure = node.type == "$" and (glued or self.text(node) != "$")
            return self.text(node), unsure, False
        return UNKNOWN, True, False

    def _double_quoted(self, node: Node) -> tuple[str, bool, bool]:
        if node.type == "translated_string":
            node = node.named_children[-1]
        out: list[str] = []
        dynamic = False
        at = node.start_byte + 1
        for child in node.named_children:
            if child.type == "string_content":
                continue
            out += [in_double_quotes(self.data[at : child.start_byte].decode("utf-8", "replace")), UNKNOWN]
            dynamic, at = True, child.end_byte
        out.append(in_double_quotes(self.data[at : node.end_byte - 1].decode("utf-8", "replace")))
        text = "".join(out)
        return text, dynamic, False


def _marks_translation(node: Node) -> bool:
    """Whether a dollar sign belongs to the string behind it: `$"text"` is the text, translated."""
    after = node.next_sibling
    return (
        node.text == b"$"
        and after is not None
        and after.type == "string"
        and after.start_byte == node.end_byte
    )


def merge(into: Script, other: Script) -> None:
    """Add everything that `other` would do."""
    into.commands += other.commands
    into.assignments += other.assignments
    into.redirects += other.redirects
    into.functions |= other.functions
    into.doubts += [doubt for doubt in other.doubts if doubt not in into.doubts]
