"""How commands are framed in a named shell: what all shells have in common; pure text in, text out.

A named shell is an interactive bash or sh on a terminal, without start-up files, line editor,
history or echo. Interactive, because only then Ctrl-C brings it back to its prompt with its state. A
command is typed as one word for `eval`, in one line with its end mark: it cannot eat that, because the
shell has parsed it before the command begins. Marks (see `marks.py`) hold numbers that are new for each
command, and go where the shell reads its lines from, so redirecting the shell's own output does not lose
them. What would show the frame (xtrace, verbose, a DEBUG trap, aliases) is off between two commands and
is put back inside the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sandbox.marks import BEL, OSC, Mark
from sandbox.shell import encode

_MAX_LINE_BYTES = 3_500  # a terminal in canonical mode cuts an input line at 4,095 bytes (n_tty.c)
_SLICE_BYTES = 1_500  # quotes double or quadruple a slice at worst; those are cut smaller
_CONTROLS = re.compile(r"([\x01-\x08\x0b-\x1f\x7f])")
_SETS = re.compile(r"\bset\s|errexit")
_BACKGROUND = re.compile(r"(?<!&)&(?!&)|setsid|coproc|daemon|nohup")
_TRAPS = re.compile(r"\btrap\b|DEBUG|\bsource\b|(?:^|[\s;&|(])\.\s")

_SHELL_START = (
    "stty -echo -onlcr -ixon 2>/dev/null; "
    "if command -v bash >/dev/null 2>&1; then printf '\\n%s %s bash\\n' \"$1\" $$; "
    "exec bash --norc --noprofile --noediting -i; fi; "
    "printf '\\n%s %s sh\\n' \"$1\" $$; ENV= exec sh -i"
)
# What was typed and not read comes before what is typed afterwards, wherever it is held up on its way: once
# its command is over, all of it is dropped, line by line, up to a line that only the host knows. No key means
# anything meanwhile, but lines stay lines: bash's `read` takes all that is there from a terminal in raw mode,
# and the next command with it.
DEAF = "stty sane -echo -onlcr -ixon -isig -iexten eof undef kill undef erase undef"
RIGHT = "stty sane -echo -onlcr -ixon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framed:
    """One command, and what its frame has to see to.

    before     the last mark of this shell: options that were taken off are put back
    stdin_tty  the command's input is the terminal; else /dev/null
    sane       put the terminal right when the command has ended (see `Frame.release`)
    traps      the shell may have a DEBUG or ERR trap, or get one: put them by afterwards
    announced  a mark tells that the command begins
    mark       what all that the command starts is to bear (see `sweep.py`); "": nothing
    """

    text: str
    nonce: str
    before: Mark | None
    stdin_tty: bool = False
    sane: bool = False
    traps: bool = False
    announced: bool = True
    mark: str = ""


class Frame(Protocol):
    """How commands are framed in one named shell."""

    hint: bytes
    """What the shell prints when it waits for a line and its command has not ended."""
    may_be_silent: bool
    """Whether a command can do without the mark of its beginning."""

    def setup(self, cwd: str | None) -> bytes:
        """The first line: no history, no prompts, the functions of the frame, the working directory."""
        ...

    def command(self, what: Framed) -> bytes:
        """The bytes to type for one command, which has passed `check_text`."""
        ...

    def probe(self, nonce: str, sane: bool) -> bytes:
        """The bytes to type when the shell waits for a line without a mark: they ask for it.

        After an interrupt the shell has dropped the rest of the command's line; or the command has made
        what the frame uses unusable, which this puts right.
        sane  see Framed"""
        ...

    def release(self, nonce: str) -> bytes:
        """The bytes to type after the mark of a command that was to put the terminal right.

        What was typed before and not read is dropped up to here; then the shell takes commands again."""
        ...

    def as_typed(self, data: bytes, command: str) -> bytes:
        """The output of a shell that ended, with the command in place of the line that was typed for it.

        bash takes that line for $BASH_COMMAND in an EXIT trap."""
        ...


def hint_of(token: str, pid: int | str) -> bytes:
    """The hint of a shell. No variable of the frame's holds it as it is, so that showing them is no hint."""
    return OSC + f"P;{token};{pid}".encode() + BEL


def shell_argv(token: str) -> list[str]:
    """The program of a named shell; prints the token, its pid and which shell it is, then is ready."""
    return ["sh", "-c", _SHELL_START, "sh", token]


def read_shell_start(token: str, data: bytes) -> tuple[int, str] | None:
    """pid and kind from the first bytes of a named shell, or None while they are incomplete."""
    found = re.search(re.escape(token.encode()) + rb" (\d+) (bash|sh)\r?\n", data)
    return (int(found[1]), found[2].decode()) if found else None


def may_set_traps(text: str) -> bool:
    """Whether a command may set a trap; looking costs two processes, so not after each one."""
    return _TRAPS.search(text) is not None


def may_leave_behind(text: str) -> bool:
    """Whether a command may start what does not end with it when it is interrupted.

    Only that has to be marked, and so the shell of any other command is left as it is."""
    return _BACKGROUND.search(text) is not None


def may_exit_on_error(what: Framed) -> bool:
    """Whether `set -e` may hold at the end of a command."""
    return (what.before is not None and "e" in what.before.flags) or _SETS.search(what.text) is not None


def controls_in(text: str) -> list[str]:
    """The control characters that cannot be typed, each once."""
    return sorted(set(_CONTROLS.findall(text)))


def one_word(text: str, variables: str = "", used: int = 0) -> bytes:
    """Text as one word that survives a terminal: no control byte is typed, no line is too long.

    variables  control bytes are written as variables with this name and their number; "": as bash can
    used       how many bytes of the first line are taken already"""
    if len(text) < _SLICE_BYTES // 4 and "'" not in text and _CONTROLS.search(text) is None:
        return b"'%s'" % encode(text)
    parts: list[bytes] = []
    line = used
    for unit in _pieces(text, variables):
        if line + len(unit) > _MAX_LINE_BYTES:
            parts.append(b"\\\n")
            line = 0
        parts.append(unit)
        at = unit.rfind(b"\n")
        line = line + len(unit) if at < 0 else len(unit) - at
    return b"".join(parts) or b"''"


def _pieces(text: str, variables: str) -> Iterable[bytes]:
    for index, piece in enumerate(_CONTROLS.split(text)):
        if index % 2 == 0:
            yield from _units(piece)
        elif variables:
            yield f'"${variables}{ord(piece):03o}"'.encode()
        else:
            yield f"$'\\{ord(piece):03o}'".encode()


def _units(piece: str) -> Iterable[bytes]:
    """Single-quoted slices of text, each with no physical line near the limit."""
    data = encode(piece)
    at = 0
    while at < len(data):
        cut = data[at : at + _SLICE_BYTES]
        if cut.count(b"'") > 300:
            cut = cut[:400]
        at += len(cut)
        yield b"'" + cut.replace(b"'", b"'\\''") + b"'"
