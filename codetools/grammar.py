"""The bash grammar of tree-sitter, and what is done to its input so that it reads as bash does. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

MAX_JOINS = 20
"""How often text is mended and parsed again."""


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def parse_mended(data: bytes) -> tuple[bytes, Node, bool]:
    """Parse, without what the grammar reads wrongly: line ends inside words, and words like `time`.

    Returns the mended text, its tree, and whether all of it could be mended.
    """
    for _ in range(MAX_JOINS):
        root = Parser(_language()).parse(data).root_node
        cuts = set(_keywords(root, data))
        cuts |= set(_glued_gaps(root, data)) if b"\\\n" in data else set()
        cuts |= set(_swallowed_line_ends(root)) if b"\n\\" in data else set()
        if not cuts:
            return data, root, True
        for start, end in sorted(cuts, reverse=True):
            data = data[:start] + data[end:]
    return data, Parser(_language()).parse(data).root_node, False


def _nodes(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += node.children


def _keywords(root: Node, data: bytes) -> Iterator[tuple[int, int]]:
    """`!`, `time` and `coproc` stand before any kind of command, for the grammar only before simple ones."""
    if not any(word in data for word in (b"time", b"coproc", b"!")):
        return
    for node in _nodes(root):
        negation = node.type == "!" and node.parent is not None and node.parent.type == "negated_command"
        if negation or (node.type == "command_name" and node.text in {b"time", b"coproc"}):
            match = _KEYWORD.match(data, node.start_byte)
            if match:
                yield match.span()


def _glued_gaps(root: Node, data: bytes) -> Iterator[tuple[int, int]]:
    for node in _nodes(root):
        if node.type not in GAPS_ARE_TEXT:
            for left, right in itertools.pairwise(node.children):
                if re.fullmatch(rb"(?:\\\n)+", data[left.end_byte : right.start_byte]):
                    yield left.end_byte, right.start_byte


def _swallowed_line_ends(root: Node) -> Iterator[tuple[int, int]]:
    """A line that starts with a backslash is taken for a word of the line before; without it, it is not."""
    for node in _nodes(root):
        if node.type == "word" and node.text is not None:
            match = re.match(rb"\s*\n\s*\\(?=[A-Za-z0-9_./-])", node.text)
            if match:
                yield node.start_byte + match.end() - 1, node.start_byte + match.end()


def names(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


_EXPANSIONS = names(
    "simple_expansion expansion command_substitution arithmetic_expansion process_substitution"
)
WORDS = _EXPANSIONS | names(
    "word number raw_string ansi_c_string string translated_string concatenation brace_expression"
    " extglob_pattern regex special_variable_name variable_name test_operator"
)
KNOWN = WORDS | names(
    "program list pipeline subshell compound_statement negated_command if_statement elif_clause"
    " else_clause while_statement for_statement c_style_for_statement case_statement case_item"
    " do_group function_definition test_command unary_expression binary_expression"
    " postfix_expression ternary_expression array subscript parenthesized_expression comment"
    " command command_name variable_assignment variable_assignments declaration_command"
    " unset_command redirected_statement file_redirect heredoc_redirect herestring_redirect"
    " heredoc_start heredoc_body heredoc_content heredoc_end file_descriptor string_content"
)
GAPS_ARE_TEXT = {"string", "heredoc_body", "heredoc_redirect", "expansion", "arithmetic_expansion"}
MAY_HIDE_BACKTICKS = {"word", "number", "string_content", "regex", "extglob_pattern", "variable_name"}
RESERVED = names("{ } ! [[ ]] if then else elif fi do done for while until case esac select function coproc")
_KEYWORD = re.compile(
    rb"(?:!|time(?:[ \t]+-p)?(?:[ \t]+--)?"
    rb"|coproc(?:[ \t]+\w+(?=[ \t]+(?:[{(]|\[\[|(?:if|for|while|until|case|select)\b)))?)"
    rb"[ \t]+(?=[^ \t\n;&|)#])"
)
BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*")


_WORD_ENDS = WORDS | {"file_redirect", "herestring_redirect", "command_name"}
_WORD_STARTS = WORDS | {"command_name"}


def misreadings(node: Node, data: bytes) -> Iterator[str]:
    """Why this node of the tree may not be what bash would read, looking at it and its children."""
    if node.is_named and node.type not in KNOWN:
        yield f"the command holds a construct that cannot be read ({node.type})"
    if node.type == "comment" and data[max(node.start_byte - 1, 0) : node.start_byte] not in _BEFORE_COMMENT:
        yield "what looks like a comment may be none"
    if node.type in {"command_substitution", "subshell"} and re.match(rb"\s*\$?\(\(", node.text or b""):
        yield "two parentheses may be arithmetic or commands"
    if node.type == "word" and re.search(rb"(?<!\\)\n", node.text or b""):
        yield "a line end stands inside a word"
    if node.children and node.type not in GAPS_ARE_TEXT and not _is_covered(node, data):
        yield "the command holds characters that cannot be placed"
    if node.type == "ansi_c_string" and not _ANSI_C_STRING.fullmatch(node.text or b""):
        yield "it cannot be seen where a quoted text ends"
    if node.type in {"command", "redirected_statement", "file_redirect", "heredoc_redirect"}:
        for left, right in itertools.pairwise(node.children):
            if left.end_byte == right.start_byte and _may_be_one_word(node, left, right):
                yield "words stand side by side that may be one"


def _may_be_one_word(parent: Node, left: Node, right: Node) -> bool:
    if parent.type == "command" and not (left.is_named and right.is_named):
        return left.type != "$" or right.type != "string"
    return left.type in _WORD_ENDS and right.type in _WORD_STARTS


_ANSI_C_STRING = re.compile(rb"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_BEFORE_COMMENT = {b"", *(bytes([byte]) for byte in b" \t\n;&|()<>`")}


def _is_covered(node: Node, data: bytes) -> bool:
    """Whether the bytes that no child covers are blank; else the grammar has skipped something."""
    at = node.start_byte
    for child in node.children:
        if not BLANK.fullmatch(data[at : child.start_byte]):
            return False
        at = max(at, child.end_byte)
    return BLANK.fullmatch(data[at : node.end_byte]) is not None
