"""Reads a patch: text in, sections and hunks out. Pure. What a patch does to a file is in `patch_plan`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


class PatchError(Exception):
    """The patch cannot be read or does not fit. `str(error)` is the text for the model."""


Mark: TypeAlias = Literal[" ", "-", "+"]


@dataclass(frozen=True, slots=True)
class Line:
    """One body line of a hunk, without its mark."""

    mark: Mark
    text: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place in a file that changes.

    anchors    lines to look for, one after the other, before the place; empty: none
    optional   the anchors come from a unified diff's heading and may be missing
    lines      context, removed and added lines
    at_end     the place is the end of the file
    number     line of the patch where the hunk starts, for messages
    """

    anchors: tuple[str, ...]
    lines: tuple[Line, ...]
    at_end: bool
    number: int
    optional: bool = False

    @property
    def old(self) -> tuple[str, ...]:
        """The lines that must be there now."""
        return tuple(line.text for line in self.lines if line.mark != "+")


@dataclass(frozen=True, slots=True)
class Add:
    """A new file; it ends with a line end unless it is empty."""

    path: str
    content: str
    number: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A file that goes."""

    path: str
    number: int


@dataclass(frozen=True, slots=True)
class Update:
    """A file that changes, or moves, or both. A move onto itself is no move."""

    path: str
    move_to: str | None
    hunks: tuple[Hunk, ...]
    number: int


Section: TypeAlias = Add | Delete | Update


@dataclass(frozen=True, slots=True)
class Patch:
    """The sections of a patch in their order."""

    sections: tuple[Section, ...]


BEGIN, END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File:", "*** Delete File:", "*** Update File:"
_MOVE, _END_OF_FILE = "*** Move to:", "*** End of File"
_MARKS: dict[str, Mark] = {" ": " ", "-": "-", "+": "+"}
_RANGE = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")
_WRAPPER_END = re.compile(r"```\w*|['\"]?\w+['\"]?|['\"]{1,3}")


def parse_patch(text: str) -> Patch:
    """Read a patch. Raises PatchError that names the line.

    Text before `*** Begin Patch` is ignored (a code fence or a heredoc's first line), and so is the one line
    that closes such a wrapper. Carriage returns at line ends are ignored.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PatchError("the patch holds half of a surrogate pair, which is no character") from None
    return _Parser([line.removesuffix("\r") for line in text.split("\n")]).patch()


def same_path(path: str) -> str:
    """The one spelling of a path: `./a`, `a` and `x/../a` are the same."""
    return posixpath.normpath(path)


class _Parser:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def error(self, what: str, at: int | None = None) -> PatchError:
        return PatchError(f"line {(self.at if at is None else at) + 1} of the patch: {what}")

    def patch(self) -> Patch:
        begin = next((i for i, line in enumerate(self.lines) if line.strip() == BEGIN), None)
        if begin is None:
            raise PatchError(f"the patch has no {BEGIN!r} line")
        self.at = begin + 1
        sections: list[Section] = []
        while True:
            if self.at >= len(self.lines):
                raise PatchError(f"the patch has no {END!r} line at its end")
            line = self.lines[self.at]
            if line.strip() == END:
                break
            if line.strip():
                sections.append(self.section(line))
            else:
                self.at += 1
        self.nothing_after_end()
        if not sections:
            raise PatchError("the patch changes no file")
        _check_paths(sections)
        return Patch(tuple(sections))

    def nothing_after_end(self) -> None:
        rest = [(i, line.strip()) for i, line in enumerate(self.lines) if i > self.at and line.strip()]
        if rest and not (len(rest) == 1 and _WRAPPER_END.fullmatch(rest[0][1])):
            raise self.error(f"unexpected text after {END!r}: {_shown(rest[0][1])}", rest[0][0])

    def section(self, line: str) -> Section:
        number = self.at + 1
        self.at += 1
        if line.startswith(_ADD):
            return Add(self.path(line, _ADD), self.added(), number)
        if line.startswith(_DELETE):
            return Delete(self.path(line, _DELETE), number)
        if line.startswith(_UPDATE):
            return self.update(self.path(line, _UPDATE), number)
        self.at -= 1
        raise self.error(f"expected '{_ADD}', '{_DELETE}' or '{_UPDATE}', found {_shown(line)}")

    def path(self, line: str, header: str) -> str:
        path = line.removeprefix(header).strip()
        if not path or path.endswith("/"):
            raise self.error("the name of a file is missing", self.at - 1)
        return path

    def added(self) -> str:
        lines = []
        while self.at < len(self.lines) and not self.lines[self.at].startswith("*** "):
            line = self.lines[self.at]
            if line.startswith("+"):
                lines.append(line[1:])
            elif line.strip():
                raise self.error(f"each line of a new file starts with '+', found {_shown(line)}")
            elif self.body_follows():
                lines.append("")
            self.at += 1
        return "".join(line + "\n" for line in lines)

    def update(self, path: str, number: int) -> Update:
        move_to = None
        if self.at < len(self.lines) and self.lines[self.at].startswith(_MOVE):
            self.at += 1
            move_to = self.path(self.lines[self.at - 1], _MOVE)
            if same_path(move_to) == same_path(path):
                move_to = None
        moved = self.at < len(self.lines) and self.lines[self.at - 1].startswith(_MOVE)
        hunks: list[Hunk] = []
        while self.at < len(self.lines) and not self.section_starts():
            if self.lines[self.at].strip():
                hunks.append(self.hunk())
            else:
                self.at += 1
        if not hunks and not moved:
            raise self.error(f"the section for {path} changes nothing", number - 1)
        return Update(path, move_to, tuple(hunks), number)

    def section_starts(self) -> bool:
        line = self.lines[self.at]
        return line.startswith("*** ") and line.strip() != _END_OF_FILE

    def hunk(self) -> Hunk:
        start = self.at
        anchors, optional = self.anchors()
        lines: list[Line] = []
        at_end = False
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() == _END_OF_FILE:
                at_end = True
                self.at += 1
                break
            if line.startswith("@@") or self.section_starts():
                break
            if not line.strip(" \t") and not line.startswith(" ") and not self.body_follows():
                break
            if not line.startswith("\\ No newline"):
                lines.append(self.body_line(line))
            self.at += 1
        if all(line.mark == " " for line in lines):
            raise self.error("the hunk adds and removes nothing", start)
        return Hunk(tuple(anchors), tuple(lines), at_end, start + 1, optional)

    def anchors(self) -> tuple[list[str], bool]:
        anchors: list[str] = []
        optional = False
        while self.at < len(self.lines) and self.lines[self.at].startswith("@@"):
            heading = self.lines[self.at][2:].removeprefix(" ")
            match = _RANGE.fullmatch(heading)
            if match:
                heading, optional = match[1], True
            elif heading.endswith(" @@"):
                heading = heading.removesuffix(" @@")
            if heading.strip():
                anchors.append(heading)
            self.at += 1
        return anchors, optional

    def body_line(self, line: str) -> Line:
        if line == "":
            return Line(" ", "")
        if mark := _MARKS.get(line[0]):
            return Line(mark, line[1:])
        raise self.error(f"a line of a hunk starts with ' ', '-' or '+', found {_shown(line)}")

    def body_follows(self) -> bool:
        """Whether, after this blank line and others, a body line of the same hunk comes."""
        after = next((line for line in self.lines[self.at + 1 :] if line.strip() or line.startswith(" ")), "")
        return after[:1] in {" ", "-", "+"}


def _check_paths(sections: Sequence[Section]) -> None:
    """Each section reads the files as they were, so two that touch one path cannot both be right."""
    removed: dict[str, str] = {}
    made: dict[str, str] = {}
    for section in sections:
        if not isinstance(section, Add):
            _claim(removed, section.path, "deleted or updated")
        target = section.path if isinstance(section, Add) else None
        if isinstance(section, Update):
            target = section.move_to
        if target is not None:
            _claim(made, target, "added or moved to")
    deletes = {same_path(s.path) for s in sections if isinstance(s, Delete)}
    for path in made:
        if path in removed and path not in deletes:
            raise PatchError(f"the patch changes {made[path]} in two sections; put all its changes in one")


def _claim(taken: dict[str, str], path: str, how: str) -> None:
    if same_path(path) in taken:
        raise PatchError(f"{path} is {how} in two sections of the patch; put all its changes in one")
    taken[same_path(path)] = path


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")
