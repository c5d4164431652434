"""Files of a place, over small POSIX scripts: the same code everywhere, busybox included.

Paths mean what they mean to a shell: relative to the working directory, absolute as they are. They
travel as arguments, contents on standard input and output, names NUL-separated. A script tells what
went wrong by its exit code, from 64 on.
"""

from __future__ import annotations

import posixpath
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from sandbox import shell
from sandbox.errors import (
    AlreadyExists,
    FileError,
    NotADirectory,
    NotAFile,
    NotFound,
    PermissionDenied,
    TooLarge,
)
from sandbox.values import DEFAULT_READ_LIMIT_BYTES, ExecRequest, ExecResult, FileEntry

TIMEOUT_S = 60.0
_MISSING, _DIRECTORY, _SPECIAL, _DENIED, _EXISTS, _LARGE, _NOT_DIRECTORY = range(64, 71)

# What a path is, told before anything is done to it; -e is false for a dangling link and for a path
# below a directory that may not be searched.
_CHECKS = f"""
absent() {{
  d=$(dirname -- "$1")
  if [ -e "$d" ] && [ ! -d "$d" ]; then exit {_NOT_DIRECTORY}; fi
  if [ -d "$d" ] && [ ! -x "$d" ]; then exit {_DENIED}; fi
  exit {_MISSING}
}}
parents() {{
  [ -d "$1" ] && return
  mkdir -p -- "$1" 2>/dev/null && return
  p=$1
  while [ ! -e "$p" ]; do case $p in */*) p=${{p%/*}}; p=${{p:-/}};; *) p=.;; esac; done
  [ -d "$p" ] || exit {_NOT_DIRECTORY}
  [ -w "$p" ] || exit {_DENIED}
  mkdir -p -- "$1" || exit 1
}}
"""
_READ = f"""
[ -e "$1" ] || absent "$1"
[ ! -d "$1" ] || exit {_DIRECTORY}
[ -f "$1" ] || exit {_SPECIAL}
[ -r "$1" ] || exit {_DENIED}
exec head -c "$2" -- "$1"
"""
# Staged beside the target, then renamed over it; a target that cannot be replaced (a mount, a
# directory without write permission) is written in place. The stage is made from the target, so mode
# and owner stay; a hard-linked file is written in place, or its other names would keep the old text.
_WRITE = f"""
t=$1; n=0
while [ -h "$t" ]; do
  n=$((n+1)); [ $n -le 40 ] || exit {_SPECIAL}
  l=$(readlink -- "$t"; printf x); l=${{l%?}}; l=${{l%"
"}}
  case $l in /*) t=$l;; *) case $t in */*) t=${{t%/*}}/$l;; *) t=$l;; esac;; esac
  case $t in -*) t=./$t;; esac
done
[ ! -d "$t" ] || exit {_DIRECTORY}
if [ -e "$t" ] && [ ! -f "$t" ]; then exit {_SPECIAL}; fi
case $t in */*) d=${{t%/*}}; d=${{d:-/}};; *) d=.;; esac
parents "$d"
if [ -e "$t" ] && [ ! -w "$t" ]; then exit {_DENIED}; fi
s=$d/.$2
trap 'rm -f -- "$s"' EXIT
links=1
if [ -e "$t" ]; then
  links=$(stat -c %h -- "$t" 2>/dev/null) || links=1
  [ "$links" -gt 1 ] || cp -p -- "$t" "$s" 2>/dev/null || links=2
fi
if [ "$links" -gt 1 ]; then
  cat >"$s" 2>/dev/null || {{ cat >"$t"; exit; }}
  cat -- "$s" >"$t" || exit 1
  exit 0
fi
if [ ! -e "$s" ] && ! ( : >"$s" ) 2>/dev/null; then [ -w "$d" ] || exit {_DENIED}; exit 1; fi
cat >"$s" || exit 1
mv -f -- "$s" "$t" 2>/dev/null || cat -- "$s" >"$t" || exit 1
"""
_CREATE = f"""
t=$1
case $t in */*) d=${{t%/*}}; d=${{d:-/}};; *) d=.;; esac
if [ -e "$t" ] || [ -h "$t" ]; then exit {_EXISTS}; fi
parents "$d"
[ -w "$d" ] || exit {_DENIED}
s=$d/.$2
trap 'rm -f -- "$s"' EXIT
cat >"$s" || exit 1
ln -T -- "$s" "$t" 2>/dev/null && exit 0
if [ -e "$t" ] || [ -h "$t" ]; then exit {_EXISTS}; fi
set -C
: >"$t" || exit {_EXISTS}
set +C
cat -- "$s" >"$t"
"""
_LIST = f"""
[ -e "$1" ] || absent "$1"
[ -d "$1" ] || exit {_NOT_DIRECTORY}
[ -r "$1" ] && [ -x "$1" ] || exit {_DENIED}
cd -- "$1" || exit {_DENIED}
find . ! -name . -prune -exec sh -c '
printf "%s\\0" "$#" "$@"; stat -c "%f %s %Y" -- "$@"; printf "\\0"' sh {{}} +
"""
_STAT = """
[ -e "$1" ] || absent "$1"
stat -L -c '%f %s %Y' -- "$1"
"""
_REMOVE = f"""
if [ ! -e "$1" ] && [ ! -h "$1" ]; then absent "$1"; fi
if [ -d "$1" ] && [ ! -h "$1" ]; then rmdir -- "$1"; exit; fi
rm -f -- "$1" || {{ [ -w "$(dirname -- "$1")" ] || exit {_DENIED}; exit 1; }}
"""
_RENAME = f"""
if [ ! -e "$1" ] && [ ! -h "$1" ]; then absent "$1"; fi
if [ -d "$2" ] && [ ! -h "$2" ]; then exit {_DIRECTORY}; fi
d=$(dirname -- "$2"; printf x); d=${{d%?}}; d=${{d%"
"}}
parents "$d"
[ "$1" -ef "$2" ] && [ ! -h "$1" ] && [ ! -h "$2" ] && exit 0
mv -fT -- "$1" "$2" || {{ [ -w "$d" ] || exit {_DENIED}; exit 1; }}
"""
_MAKE_DIRS = 'parents "$1"'


class Files:
    """File operations on one place. `run` executes a request in the working directory."""

    def __init__(self, run: Callable[[ExecRequest], ExecResult]) -> None:
        self._run = run

    def read(self, path: str, limit_bytes: int) -> bytes:
        limit = limit_bytes if limit_bytes > 0 else DEFAULT_READ_LIMIT_BYTES
        result = self._call("read", _READ, path, str(limit + 1), limit_bytes=2 * limit + 16)
        data = result.stdout_output.data
        if len(data) > limit:
            raise TooLarge("read", path, f"larger than the read limit of {limit} bytes")
        return data

    def write(self, path: str, data: bytes) -> None:
        _check_file_name("write", path)
        self._call("write", _WRITE, path, _stage_name(), stdin=data)

    def create(self, path: str, data: bytes) -> None:
        _check_file_name("create", path)
        self._call("create", _CREATE, path, _stage_name(), stdin=data)

    def list(self, path: str) -> list[FileEntry]:
        result = self._call("list", _LIST, path or ".", limit_bytes=64 << 20)
        return sorted(_entries(result.stdout_output.data), key=lambda entry: entry.name)

    def stat(self, path: str) -> FileEntry:
        result = self._call("stat", _STAT, path)
        name = posixpath.basename(path.rstrip("/")) or path
        return _entry(name, result.stdout_output.data)

    def remove(self, path: str) -> None:
        self._call("remove", _REMOVE, path)

    def rename(self, old: str, new: str) -> None:
        self._call("rename", _RENAME, old, _argument("rename", new))

    def make_dirs(self, path: str) -> None:
        self._call("make directory", _MAKE_DIRS, path)

    def upload(self, local: Path, path: str) -> None:
        """A local file to the place, with its mode's execute bit."""
        self.write(path, local.read_bytes())
        if local.stat().st_mode & stat.S_IXUSR:
            self._call("upload", 'chmod +x -- "$1"', path)

    def download(self, path: str, local: Path) -> None:
        """A file of the place to a local file, which is replaced."""
        size = self.stat(path).size_bytes
        local.write_bytes(self.read(path, max(size + 1, 1)))

    def _call(
        self,
        operation: str,
        script: str,
        path: str,
        *arguments: str,
        stdin: bytes | None = None,
        limit_bytes: int = 0,
    ) -> ExecResult:
        words = " ".join(shell.quote(word) for word in (_argument(operation, path), *arguments))
        command = f"set -- {words}\nLC_ALL=C; export LC_ALL\n{_CHECKS}{script}"
        size = len(stdin or b"") + limit_bytes
        request = ExecRequest(
            command=command, stdin=stdin, timeout_s=TIMEOUT_S + size / 1e6, limit_bytes=limit_bytes
        )
        result = self._run(request)
        if result.timed_out:
            raise FileError(operation, path, f"timed out after {request.timeout_s:g} s")
        if result.exit_code != 0:
            raise _failure(operation, path, result)
        return result


def _argument(operation: str, path: str) -> str:
    if not path or "\0" in path:
        raise FileError(operation, path or "''", "an empty path, or one with a NUL character")
    return f"./{path}" if path.startswith("-") else path


def _check_file_name(operation: str, path: str) -> None:
    """A path that can only be a directory is refused before its parents are made."""
    if path.rsplit("/", 1)[-1] in ("", ".", "..") and path:
        raise NotAFile(operation, path, "names a directory")


def _stage_name() -> str:
    return f"coderig-{secrets.token_hex(8)}"


def _failure(operation: str, path: str, result: ExecResult) -> FileError:
    known: dict[int, FileError] = {
        _MISSING: NotFound(operation, path, "no such file or directory"),
        _DIRECTORY: NotAFile(operation, path, "is a directory"),
        _SPECIAL: NotAFile(operation, path, "not a regular file"),
        _DENIED: PermissionDenied(operation, path, "permission denied"),
        _EXISTS: AlreadyExists(operation, path, "already exists"),
        _NOT_DIRECTORY: NotADirectory(operation, path, "not a directory"),
    }
    if result.exit_code in known:
        return known[result.exit_code]
    last = result.stderr.strip().splitlines()[-1:] or [f"failed with exit code {result.exit_code}"]
    reason = last[0].rpartition(": ")[2] or last[0]
    if "ermission denied" in reason or "not permitted" in reason:
        return PermissionDenied(operation, path, "permission denied")
    return FileError(operation, path, reason)


def _entries(data: bytes) -> list[FileEntry]:
    """Records of `_LIST`: a count, so many names, each NUL-ended, then the stat lines and a NUL."""
    entries: list[FileEntry] = []
    at = 0
    while at < len(data):
        end = data.index(b"\0", at)
        count = int(data[at:end])
        fields = data[end + 1 :].split(b"\0", count + 1)
        names, lines = fields[:count], fields[count].split(b"\n")
        at = end + 1 + sum(len(name) + 1 for name in names) + len(fields[count]) + 1
        if len(lines) - 1 != count:  # something vanished between find and stat
            continue
        for name, line in zip(names, lines, strict=False):
            entries.append(_entry(name.removeprefix(b"./").decode("utf-8", "surrogateescape"), line))
    return entries


def _entry(name: str, line: bytes) -> FileEntry:
    mode, size, modified = line.split()
    bits = int(mode, 16)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(bits), "other")
    return FileEntry(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        size_bytes=int(size),
        mode=stat.S_IMODE(bits),
        modified_s=int(modified),
    )
