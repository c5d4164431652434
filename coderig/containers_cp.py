"""`coderig cp`: files and directories to and from a dev container."""

from __future__ import annotations

import posixpath
from pathlib import Path

from coderig.containers import own_records, record_for
from coderig.guard import UsageError, complain
from coderig.signals import FAILED, OK
from coderig.up_commands import open_container
from sandbox import Sandbox
from sandbox.errors import NotFound


def copy(source: str, target: str) -> int:
    """Copy SOURCE to TARGET; one of them is in a container, as `[CONTAINER]:PATH`.

    A target that is a directory gets the source into it. Raises what `guard.guarded` knows."""
    inside, outside = _split(source), _split(target)
    if (inside is None) == (outside is None):
        raise UsageError(
            "one of SOURCE and TARGET is in a container, written [CONTAINER]:PATH, and one is not"
        )
    container, path = inside or outside or ("", "")
    record = record_for(container or None, own_records())
    with open_container(record) as box:
        copier = _Copier(box)
        if outside is not None:
            copier.put(Path(source), path or ".")
        else:
            copier.get(path or ".", Path(target))
    return FAILED if copier.left_out else OK


def _split(text: str) -> tuple[str, str] | None:
    """Container and path; None for a path on this machine. `./a:b` is one of these."""
    container, colon, path = text.partition(":")
    return (container, path) if colon and "/" not in container else None


class _Copier:
    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self.left_out = 0

    def put(self, source: Path, target: str) -> None:
        """From this machine."""
        if not source.exists():
            raise UsageError(f"{source} is not there")
        if self._is_directory(target):
            target = posixpath.join(target, source.resolve().name)
        elif target.endswith("/") and not source.is_dir():
            raise UsageError(f"{target} is no directory in the container")
        if not source.is_dir():
            self._box.upload(source, target)
            return
        self._put_tree(source, target)

    def get(self, source: str, target: Path) -> None:
        """To this machine."""
        entry = self._box.stat(source)
        if target.is_dir():
            name = posixpath.basename(posixpath.normpath(posixpath.join(self._box.cwd, source)))
            target = target / name
        if self._is_directory(source):
            self._get_tree(source, target)
        else:
            self._box.download(source, target)
            target.chmod(entry.mode & 0o777)

    def _is_directory(self, path: str) -> bool:
        try:
            self._box.stat(path)
        except NotFound:
            return False
        return self._box.exec(["test", "-d", path]).exit_code == 0

    def _put_tree(self, source: Path, target: str) -> None:
        self._box.make_dirs(target)
        for path in sorted(source.iterdir()):
            there = posixpath.join(target, path.name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                self._skip(str(path))
            elif path.is_dir():
                self._put_tree(path, there)
            else:
                self._box.upload(path, there)

    def _get_tree(self, source: str, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for entry in self._box.list_dir(source):
            there, here = posixpath.join(source, entry.name), target / entry.name
            if entry.kind == "directory":
                self._get_tree(there, here)
            elif entry.kind == "file":
                self._box.download(there, here)
                here.chmod(entry.mode & 0o777)
            else:
                self._skip(there)

    def _skip(self, path: str) -> None:
        self.left_out += 1
        complain(f"not copied: {path} is neither a file nor a directory")
