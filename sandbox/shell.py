"""The shell semantics of the sandbox: quoting, and how a one-shot command is launched; pure.

Works with bash, dash and busybox ash, and needs no program besides the shell. How a named shell is
framed is in `framing.py`, how a process tree is ended in `sweep.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath

from sandbox.errors import RequestError
from sandbox.sweep import mark_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Linux refuses a longer single string in argv or in the environment (MAX_ARG_STRLEN, execve(2)).
_MAX_STRING_BYTES = 128 * 1024 - 1


def encode(text: str) -> bytes:
    """Text as bytes for a place; undecodable bytes that Python smuggles in text come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def quote(text: str) -> str:
    """One word of POSIX shell that expands to exactly this text."""
    return "'" + text.replace("'", "'\\''") + "'"


def check_text(what: str, text: str) -> None:
    """Refuse what is no text, and what no shell can carry: a NUL, a surrogate that stands for no byte."""
    if not isinstance(text, str):
        raise RequestError(f"{what} must be text (str), not {shown(text)}")
    if "\0" in text:
        raise RequestError(f"{what} contains a NUL character, which no shell can carry")
    try:
        encode(text)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} is not valid text: {error.reason} at {error.start}") from None


def path_text(path: str | PathLike[str]) -> str:
    """A path as text. Raises RequestError for what is none."""
    text = path if isinstance(path, str) else fspath(path) if isinstance(path, PathLike) else None
    if not isinstance(text, str):
        raise RequestError(f"a path must be text (str) or a Path, not {shown(path)}")
    return text


def content(data: bytes) -> bytes:
    """What a file is to hold. Raises RequestError for what is not bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise RequestError(f"a file's content must be bytes, not {shown(data)}")
    return data


def shown(value: object) -> str:
    """A value of a wrong kind, as an error names it."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:60] + '…'}"


def check_env(env: Mapping[str, str]) -> None:
    """Refuse variables that a shell or the kernel cannot hold, naming the variable."""
    if not isinstance(env, Mapping):
        raise RequestError(f"env must be a mapping of names to values, not {shown(env)}")
    for name, value in env.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise RequestError(f"environment variable {name!r}: a name has letters, digits and _ only")
        check_text(f"environment variable {name}", value)
        if len(name) + 1 + len(encode(value)) >= _MAX_STRING_BYTES:
            raise RequestError(f"environment variable {name}: longer than the 128 KiB that Linux allows")


def _one_line(text: str) -> str:
    """`quote` without a line's end in it. A shell's IFS begins as space, tab, newline, whatever its
    environment says; so no variable has to hold the newline, which a command could then see."""
    return '"${IFS#??}"'.join(quote(piece) for piece in text.split("\n"))


def _exports(env: Mapping[str, str]) -> str:
    if not env:
        return ""
    # No shell takes IFS from its environment.
    words = (name if name == "IFS" else f"{name}={_one_line(value)}" for name, value in env.items())
    return f"export {' '.join(words)}; "


# A launcher is a shell that says who it is, then waits for two lines on its standard input and evaluates
# each: the prelude, which all commands of a sandbox have in common, and the command's own. Everything that a
# command needs travels in these lines, so nothing is spliced into other text and nothing is too long for
# argv; the rest of the input belongs to the command, because a shell's `read` takes a byte at a time from
# a pipe. So what is the same for all commands is a function here. It takes the working directory (empty:
# where we are), and nothing of it is left when the command begins: a command that was started there would
# know no directory before; bash has that name exported from its start, others export it with the first `cd`.

# Given to the shell as one line, or it would count a command's lines from there on.
_LAUNCHER = """\
cr_go() {
  if [ -n "$1" ]; then
    cd "$1" 2>/dev/null || {
      if [ ! -e "$1" ]; then cr_line=missing; elif [ ! -d "$1" ]; then cr_line=file; else cr_line=denied; fi;
      printf '%s %s\\n' TOKEN $cr_line;
      exit 126;
    };
    unset OLDPWD;
    ${BASH_VERSION:+export OLDPWD};
  fi;
  printf 'TOKEN go\\n';
  unset cr_line BASH_EXECUTION_STRING;
  unset -f cr_go;
};
printf 'TOKEN %s %s\\n' $$ "${BASH_VERSION:+bash}";
IFS= read -r cr_line || exit 125;
eval "$cr_line";
IFS= read -r cr_line || exit 125;
eval "$cr_line"
""".replace("\n", " ")
# Not `exec sh`: busybox would count one shell more in SHLVL.
_FIND_SHELL = (
    'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" bash; fi; cr_line=$1; set --; eval "$cr_line"'
)


def launcher_argv(shell: str | None, token: str) -> list[str]:
    """The program to spawn. shell None: bash if the place has it, else sh; the start tells which."""
    launcher = _LAUNCHER.replace("TOKEN", token)
    if shell is None:
        return ["sh", "-c", _FIND_SHELL, "sh", launcher]
    return [shell, "-c", launcher, shell]


def prelude(env: Mapping[str, str]) -> bytes:
    """The first line for a launcher: the environment of all commands. RequestError for a bad variable."""
    check_env(env)
    return encode(f"{_exports(env)}:\n")


def launch_line(
    command: str | Sequence[str], *, cwd: str | None, env: Mapping[str, str], has_stdin: bool, mark: str = ""
) -> bytes:
    """The second line for a launcher: runs a command. Raises RequestError for what cannot be carried."""
    check_env(env)
    check_text("the working directory", cwd or "")
    if isinstance(command, str):
        check_text("the command", command)
        body = command
    else:
        body = _argv_text(command)
    where = "" if not cwd else cwd if cwd.startswith("/") else f"./{cwd}"
    source = "" if has_stdin else "exec </dev/null; "
    setup = f"{_exports(env)}{mark_line(mark)}cr_go {_one_line(where)}; {source}"
    # An `eval` of its own, on the first line: then the shell counts the command's lines from 1.
    # Only bash takes options there, and a command may begin with a dash.
    return encode(f"{setup}eval ${{BASH_VERSION:+--}} {_one_line(body)}\n")


def _argv_text(argv: Sequence[str]) -> str:
    if isinstance(argv, bytes | bytearray) or not isinstance(argv, Sequence):
        raise RequestError(f"the command must be text or a list of texts, not {shown(argv)}")
    if not argv or not argv[0]:
        raise RequestError("the command is an empty list, or its program is empty")
    for argument in argv:
        check_text("an argument of the command", argument)
    # A program's name that begins with a dash would be taken for an option of `exec`.
    prefix = "exec env -- " if argv[0].startswith("-") else "exec "
    return prefix + " ".join(quote(argument) for argument in argv)


@dataclass(frozen=True, slots=True)
class Started:
    """What a launcher said of itself, and whether the command could be started.

    cwd_error   why the working directory could not be entered: missing, file or denied; else None
    """

    pid: int
    shell: str
    cwd_error: str | None = None


class StartReader:
    """Reads a launcher's words from the head of its output; what follows is the command's.

    Whatever a login shell or a start-up file printed before them is dropped."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._buffer = bytearray()
        self._hello: tuple[int, str] | None = None

    @property
    def pid(self) -> int | None:
        """The launcher's process id, as seen in the place; None until it has said so."""
        return self._hello[0] if self._hello else None

    def feed(self, data: bytes) -> tuple[Started, bytes] | None:
        """Take bytes; once the start is known, return it with the first bytes of the command."""
        self._buffer += data
        if self._hello is None:
            line = self._line(b" ")
            if line is None:
                return None
            pid, _, kind = line.partition(b" ")
            self._hello = (int(pid), kind.decode() or "sh")
        at = self._buffer.find(self._token)
        end = self._buffer.find(b"\n", at) if at >= 0 else -1
        if end < 0:
            return None
        word = bytes(self._buffer[at + len(self._token) + 1 : end])
        rest = bytes(self._buffer[end + 1 :])
        return Started(*self._hello, cwd_error=None if word == b"go" else word.decode()), rest

    def _line(self, separator: bytes) -> bytes | None:
        at = self._buffer.find(self._token + separator)
        end = self._buffer.find(b"\n", at) if at >= 0 else -1
        if end < 0:
            return None
        line = bytes(self._buffer[at + len(self._token) + 1 : end])
        del self._buffer[: end + 1]
        return line

    @property
    def unread(self) -> bytes:
        """What came instead of a start; for an error message."""
        return bytes(self._buffer)
