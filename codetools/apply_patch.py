"""apply_patch: changes several files at once, or none. The plan is made in memory; then it is committed."""

from __future__ import annotations

import posixpath
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from codetools.arguments import Arguments, object_schema
from codetools.failures import backend_failures, directory_of, sandbox_words
from codetools.patch import Add, Delete, Patch, PatchError, Section, Update, parse_patch
from codetools.patch_plan import apply_hunks
from codetools.policy import Policy
from codetools.render import bounded, clean, visible
from codetools.write_lock import holding
from runtime.schema import JSON
from runtime.tools import BadArguments, Tool, ToolContext, ToolFailed, ToolResult, Verdict
from sandbox import NotFound, Sandbox, SandboxError

DESCRIPTION = """\
Change files with a patch. All its changes are made, or none. The format:
*** Begin Patch
*** Add File: path            (then every line of the file, each with '+' in front)
*** Delete File: path
*** Update File: path         (then, to rename it: *** Move to: new/path)
@@ a line before the place    (optional; more of them narrow it down, from outer to inner)
 a context line
-a line that goes
+a line that comes
*** End of File               (optional: the hunk is at the end of the file)
*** End Patch
Context and removed lines must be whole lines of the file, without line numbers; three around a change are \
usual. Hunks of a file go from top to bottom."""


@dataclass(frozen=True, slots=True)
class PatchArguments:
    """One call: the text as it came, and what it says."""

    text: str
    patch: Patch


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the plan. `before` and `after` are whole contents; None where there is no file."""

    kind: str
    path: str
    target: str
    before: bytes | None
    after: bytes | None


def apply_patch(sandbox: Sandbox, policy: Policy, lock: threading.Lock) -> Tool[PatchArguments]:
    """The tool. `policy` is asked about each path; `lock` keeps changes of files from mixing."""

    def check(arguments: PatchArguments) -> Verdict:
        return policy.check_paths(_writes(arguments.patch), "write", lambda: directory_of(sandbox))

    def run(context: ToolContext, arguments: PatchArguments) -> ToolResult:
        verdict = check(arguments)
        if verdict.decision == "deny":
            return ToolResult(text=verdict.reason, is_error=True, details={"refused": True})
        with holding(lock, context.cancelled), backend_failures():
            changes, notes = _plan(sandbox, arguments.patch)
            notes += _Commit(sandbox, context.cancelled).run(changes)
        return _result(changes, notes)

    return Tool(
        name="apply_patch",
        description=DESCRIPTION,
        parameters=object_schema(
            {"patch": {"type": "string", "description": "The patch, from Begin to End."}}
        ),
        parse=_parse,
        run=run,
        check=check,
        preview=lambda arguments: clean(arguments.text),
    )


def _parse(text: str) -> PatchArguments:
    patch = Arguments(text, ("patch",)).text("patch")
    try:
        return PatchArguments(patch, parse_patch(patch))
    except PatchError as error:
        raise BadArguments(str(error)) from None


def _writes(patch: Patch) -> list[str]:
    paths = [section.path for section in patch.sections]
    return paths + [s.move_to for s in patch.sections if isinstance(s, Update) and s.move_to is not None]


# -- the plan -------------------------------------------------------------------------------------


def _plan(sandbox: Sandbox, patch: Patch) -> tuple[list[Change], list[str]]:
    """Everything that will be done, and remarks. Nothing is changed yet."""
    notes: list[str] = []
    try:
        changes = [_change(sandbox, section, notes) for section in patch.sections]
    except PatchError as error:
        raise ToolFailed(f"nothing was changed. {error}") from None
    except SandboxError as error:
        raise ToolFailed(f"nothing was changed. {sandbox_words(error)}") from None
    # A deletion makes room for a file of the same name, so it comes first.
    return sorted(changes, key=lambda change: change.kind != "delete"), notes


def _change(sandbox: Sandbox, section: Section, notes: list[str]) -> Change:
    if isinstance(section, Add):
        return Change("add", section.path, section.path, None, section.content.encode())
    if isinstance(section, Delete):
        _must_be_file(sandbox, section.path)
        return Change("delete", section.path, section.path, None, None)
    before = sandbox.read_file(section.path)
    edited = apply_hunks(section.path, before, section.hunks)
    notes += edited.notes
    if section.move_to is None:
        return Change("update", section.path, section.path, before, edited.data)
    return Change("move", section.path, section.move_to, before, edited.data)


def _must_be_file(sandbox: Sandbox, path: str) -> None:
    """A link may lead nowhere and can still be deleted; a directory cannot."""
    folder, name = posixpath.split(path)
    entry = next((e for e in sandbox.list_dir(folder or ".") if e.name == name), None)
    if entry is None:
        raise NotFound("delete", path, "no such file")
    if entry.kind == "directory":
        raise PatchError(f"{path} is a directory; only files can be deleted")


# -- the commit -----------------------------------------------------------------------------------


@dataclass
class _Commit:
    """Carries out a plan step by step, and takes it all back if a step fails."""

    sandbox: Sandbox
    cancelled: threading.Event
    undo: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    finish: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def run(self, changes: list[Change]) -> list[str]:
        """Returns remarks. Raises ToolFailed, with nothing changed or with what could not be taken back."""
        try:
            for change in changes:
                if self.cancelled.is_set():
                    raise ToolFailed("cancelled")
                self._step(change)
        except (SandboxError, PatchError, ToolFailed) as error:
            words = sandbox_words(error) if isinstance(error, SandboxError) else str(error)
            raise ToolFailed(f"{self._roll_back()} {words}") from error
        return self._attempt(self.finish, "left over")

    def _roll_back(self) -> str:
        left = self._attempt(list(reversed(self.undo)), "could not be taken back")
        return f"the patch failed half way: {'; '.join(left)}." if left else "nothing was changed."

    @staticmethod
    def _attempt(steps: list[tuple[str, Callable[[], None]]], what: str) -> list[str]:
        failed = []
        for name, step in steps:
            try:
                step()
            except (SandboxError, PatchError) as error:
                words = sandbox_words(error) if isinstance(error, SandboxError) else str(error)
                failed.append(f"{name} {what} ({words})")
        return failed

    def _step(self, change: Change) -> None:
        match change.kind:
            case "add":
                self._add(change.path, change.after or b"")
            case "delete":
                self._delete(change.path)
            case "update":
                self._update(change)
            case "move":
                self._move(change)

    def _add(self, path: str, data: bytes) -> None:
        self.sandbox.create_exclusive(path, data)
        self.undo.append((path, lambda: self._remove_ours(path, data)))

    def _remove_ours(self, path: str, data: bytes) -> None:
        if self.sandbox.read_file(path, max(len(data) * 2, 1 << 20)) != data:
            raise PatchError("something else has written it meanwhile")
        self.sandbox.remove(path)

    def _delete(self, path: str) -> None:
        """Set the file aside under a hidden name: that keeps all of it, whatever its size, mode or kind."""
        folder, name = posixpath.split(path)
        aside = posixpath.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.deleted")
        self.sandbox.rename(path, aside)
        self.undo.append((path, lambda: self.sandbox.rename(aside, path)))
        self.finish.append((aside, lambda: self.sandbox.remove(aside)))

    def _update(self, change: Change) -> None:
        before, after = change.before or b"", change.after or b""
        self._unchanged(change)
        # Before the write, because a write that fails may have done a part of its work.
        self.undo.append((change.path, lambda: self._restore(change.path, before)))
        if after != before:
            self.sandbox.write_file(change.path, after)

    def _restore(self, path: str, data: bytes) -> None:
        if self.sandbox.read_file(path) != data:
            self.sandbox.write_file(path, data)

    def _unchanged(self, change: Change) -> None:
        if self.sandbox.read_file(change.path) != change.before:
            raise PatchError(f"{change.path} was changed by something else meanwhile; read it again")

    def _move(self, change: Change) -> None:
        """An empty file takes the target's name first, so that nobody's file is overwritten; mode stays."""
        self._unchanged(change)
        self.sandbox.create_exclusive(change.target, b"")
        self.undo.append((change.target, lambda: self._remove_ours(change.target, b"")))
        self.sandbox.rename(change.path, change.target)
        self.undo[-1] = (change.path, lambda: self.sandbox.rename(change.target, change.path))
        self._update(Change("update", change.target, change.target, change.before, change.after))


# -- the result -----------------------------------------------------------------------------------

_LETTERS = {"add": "A", "delete": "D", "update": "M", "move": "R"}


def _result(changes: list[Change], notes: list[str]) -> ToolResult:
    lines = []
    files: list[JSON] = []
    for change in changes:
        arrow = f" -> {change.target}" if change.kind == "move" else ""
        lines.append(f"{_LETTERS[change.kind]} {change.path}{arrow}")
        files.append({"change": change.kind, "path": change.path, "target": change.target})
    lines += [f"note: {note}" for note in notes]
    count = f"{len(changes)} file{'s' if len(changes) != 1 else ''} changed"
    return ToolResult(
        text=bounded("\n".join(lines)),
        details={"files": files},
        title=f"patch of {visible(changes[0].path)}",
        summary=count,
    )
