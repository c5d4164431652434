"""How commands are framed in a named shell; pure text in, text out.

A named shell is an interactive bash or sh on a terminal, without start-up files, line editor,
history or echo. Interactive, because only then Ctrl-C brings it back to its prompt with its state;
but bash runs what is in PROMPT_COMMAND as a script would (no job numbers, no "exit"), so a command is
handed over in two assignments. It cannot eat its own end mark: the shell has parsed that before
the command begins. Both marks are operating system commands (OSC, ECMA-48 8.3.89) written to
/dev/tty, so redirecting the shell's own output does not lose them, and hold numbers that are
new for each command. xtrace, verbose and the DEBUG trap are off between two commands and are
put back inside the command, so that they never see the frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sandbox.shell import check_text, encode, quote

_OSC = b"\x1b]8671;"
_BEL = b"\x07"
# An interrupt may catch bash before it has undone the redirection of its own input; it would then read
# the end of /dev/null as the end of its commands. Run at the next prompt, before it reads; unset by the
# end mark, so after an interrupt only.
_HEAL = "\\builtin exec </dev/tty; "
_PROGRAM_HEAL = f"PROMPT_COMMAND='{_HEAL}'; "
_PROGRAM_EVAL = '\\builtin eval "$cr_c" <'
# What was typed and not read comes before what is typed afterwards, wherever it is held up on its way: once
# its command is over, all of it is dropped, line by line, up to a line that only the host knows. No key means
# anything meanwhile, but lines stay lines: bash's `read` takes all that is there from a terminal in raw mode,
# and the next command with it.
_DEAF = "stty sane -echo -onlcr -ixon -isig -iexten eof undef kill undef erase undef </dev/tty || :; "
_RIGHT = "stty sane -echo -onlcr -ixon </dev/tty || :; "
_MAX_LINE_BYTES = 3_500  # a terminal in canonical mode cuts an input line at 4,095 bytes (n_tty.c)

_SHELL_START = (
    "stty -echo -onlcr -ixon 2>/dev/null; "
    "if command -v bash >/dev/null 2>&1; then printf '\\n%s %s bash\\n' \"$1\" $$; "
    "exec bash --norc --noprofile --noediting -i; fi; "
    "printf '\\n%s %s sh\\n' \"$1\" $$; ENV= exec sh -i"
)


def shell_argv(token: str) -> list[str]:
    """The program of a named shell; prints the token, its pid and which shell it is, then is ready."""
    return ["sh", "-c", _SHELL_START, "sh", token]


def read_shell_start(token: str, data: bytes) -> tuple[int, str] | None:
    """pid and kind from the first bytes of a named shell, or None while they are incomplete."""
    found = re.search(re.escape(token.encode()) + rb" (\d+) (bash|sh)\r?\n", data)
    return (int(found[1]), found[2].decode()) if found else None


@dataclass(frozen=True, slots=True)
class Mark:
    """What the end mark of a command says of the shell.

    flags       the shell's option letters when the command ended
                R, D, E are the frame's own (see Frame.setup)
    """

    status: int
    flags: str
    cwd: str
    cwd_exists: bool


@dataclass(frozen=True, slots=True)
class _End:
    """What has to be done at the end of a command, before its mark."""

    sane: bool = False
    traps: bool = False
    caught: bool = False
    check: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """How commands are framed in one named shell. `name` and `prompt_token` are random."""

    kind: str
    name: str
    prompt_token: str

    @property
    def prompt(self) -> bytes:
        """What the shell prints when it waits for a line; a hint only, never an end."""
        return _OSC + f"P;{self.prompt_token}".encode() + _BEL

    def setup(self, cwd: str | None) -> bytes:
        """The first line: no history, no prompts, the functions of the frame, the working directory."""
        own, name = self._own, self.name
        if self.kind == "bash":
            # 'R': a readonly PROMPT_COMMAND carries no command any more, and a readonly TMOUT would end one
            # that runs from it. 'D' and 'E': a DEBUG or an ERR trap is kept in the frame's variables.
            head = f"local r=; {own}unset PROMPT_COMMAND || r=R; {own}unset TMOUT || r=R; "
            flags, exists, option = f"$-$r${{{name}_t:+D}}${{{name}_r:+E}}", "[[ -d ${PWD-} ]]", "t"
            names = " ".join(f"{name}{suffix}" for suffix in ("", "_s"))
            # Aliases are a matter for the caller's own commands, as in a script: off until asked for.
            options = (
                f"declare -ft {name}; readonly -f {names}; {self._program()}shopt -u expand_aliases; "
                "set -o ignoreeof; set +o history +H; history -c; "
            )
        else:
            head, flags, exists, option, options = "", "$-", '[ -d "${PWD-}" ]', "", "set -I; "
        # One write for the whole mark, or the output of a background job could stand inside it. What may
        # hold anything (the directory's name) stands between nonces, which nothing can know before.
        # TMOUT would end an interactive shell while a command runs, `set -t` after the next line.
        fields = f'"$2" "$1" "{flags}" "${name}_x" "$2" "${{PWD-}}" "$2"'
        report = (
            f"{name}() {{ {head}{name}_x=0; if {exists}; then {name}_x=1; fi; "
            f"{own}printf '\\033]8671;E;%s;%s;%s;%s;%s;%s;%s\\007' {fields} >&9; "
            f"{own}set +xv{option}; {own}jobs; {own}unset {name}_x; {self._prompts()}; }}"
        )
        keep = f'{name}_s() {{ return "$1"; }}'
        # An interactive shell ignores SIGTERM; a named shell ends by it as a script would. The prompts came
        # in through the environment: unset, they are no longer exported.
        quiet = "trap 'exit 143' TERM; unset MAILCHECK TMOUT PS1 PS2 ENV"
        enter = f"cd -- {quote(cwd)}; " if cwd else ""
        return encode(f" {report}; {keep}; {options}{quiet}; {self._prompts()}; {enter}:\n")

    @property
    def _own(self) -> str:
        """In front of the frame's own commands: functions and aliases of the caller's are passed over."""
        return "\\builtin " if self.kind == "bash" else "\\command "

    def _program(self) -> str:
        """bash only: the pieces of a command's program that never change, so that they need not be typed."""
        start, end = self._start_text("@"), self._end_text("@", _End())
        first, second = start.split("@")
        third, fourth = end.split("@")
        pieces = (f"{_PROGRAM_HEAL}{first}", f"{second}; {_PROGRAM_EVAL}", f"; {third}", fourth)
        words = " ".join(f"{self.name}_{n}={quote(piece)}" for n, piece in enumerate(pieces, 1))
        return f"readonly {words}; "

    def _start_text(self, nonce: str) -> str:
        return f"{{ {self._own}printf '\\033]8671;S;{nonce}\\007' >/dev/tty; }} >/dev/null 2>&1"

    def _prompts(self) -> str:
        return f"PS1={quote(self.prompt.decode())} PS2="

    def command(
        self, text: str, *, nonce: str, before: Mark | None, stdin_tty: bool, sane: bool, traps: bool
    ) -> bytes:
        """The bytes to type for one command.

        before     the last mark of this shell: options that were taken off are put back
        stdin_tty  the command's input is the terminal; else /dev/null
        sane       put the terminal right when it has ended (see `probe`)
        traps      the shell may have a DEBUG or ERR trap, or get one: put them by afterwards
        """
        check_text("the command", text)
        source = "/dev/tty" if stdin_tty else "/dev/null"
        if self.kind == "bash":
            return self._bash_command(text, nonce, before, source, _End(sane=sane, traps=traps))
        body = f"{self._restore(before, text, ':')}\n{text}"
        controls = sorted(set(re.findall(r"[\x01-\x08\x0b-\x1f\x7f]", body)))
        names = "".join(f"cr_{ord(c):03o}=\"$(printf '\\{ord(c):03o}')\"; " for c in controls)
        head = encode(f" {names}{self._start_text(nonce)}; \\command eval ")
        end = self._end_text(nonce, _End(sane=sane))
        return head + self._typed(body, len(head)) + encode(f" <{source}; {end}\n")

    def _bash_command(self, text: str, nonce: str, before: Mark | None, source: str, end: _End) -> bytes:
        start = self._start_text(nonce)
        readonly = before is not None and "R" in before.flags
        if readonly or _may_be_unfinished_substitution(text):
            # An interactive `eval` gives 1 for a syntax error where a script gives 2.
            check = 'case $cr_s in 1) bash -n <<<"$cr_c" || cr_s=2;; esac; \\builtin unset cr_c; '
            heal = "" if readonly else _PROGRAM_HEAL
            program = (
                f"{heal}{start}; {_PROGRAM_EVAL}{source}; {self._end_text(nonce, replace(end, check=check))}"
            )
            body = f"{self._restore(before, text, ':')}\n{text}"
            return b" cr_c=" + self._typed(body) + encode(f"; {program}\n")
        body = self._restore(before, text, "\\builtin unset cr_c") + f"\n{text}"
        if end.traps and _takes_another_line(text):
            # The ERR trap has seen the failing command; it must not see the frame's `eval` fail as well.
            body += "\n{ cr_s=$?; } >/dev/null 2>&1"
            end = replace(end, caught=True)
        typed = b" cr_c=" + self._typed(body)
        if end != _End():
            heal = self._sane_heal(nonce, end) if end.sane else _PROGRAM_HEAL
            program = f"{heal}{start}; {_PROGRAM_EVAL}{source}; {self._end_text(nonce, end)}"
            return typed + encode(f" PROMPT_COMMAND={quote(program)}\n")
        parts = f'"${self.name}_1"{nonce}"${self.name}_2"{source}"${self.name}_3"{nonce}"${self.name}_4"'
        return typed + encode(f" PROMPT_COMMAND={parts}\n")

    def _sane_heal(self, nonce: str, end: _End) -> str:
        """An interrupted program that could be typed to: what was typed after Ctrl-C is dropped as well."""
        text = self._end_text(nonce, replace(end, caught=True, check=""))
        return f"PROMPT_COMMAND={quote(f'cr_s=$?; {_HEAL}{text}')}; "

    def probe(self, nonce: str, sane: bool) -> bytes:
        """The bytes to type when the rest of a command's line was dropped (Ctrl-C): asks for its mark.

        sane  the command may have changed the terminal's modes: put them right. An echo would be
              taken out, but busybox ash with echo on edits lines itself, and raw modes lose Ctrl-C.
              Input that nobody read is dropped: the shell would take it for commands (see `release`).
        """
        return encode(f" {self._end_text(nonce, _End(sane=sane))}\n")

    def release(self, nonce: str) -> bytes:
        """The bytes to type after the mark of a command that was to put the terminal right.

        What was typed before and not read is dropped up to here; then the shell takes commands again."""
        return f"\n{nonce}\n".encode()

    def _end_text(self, nonce: str, end: _End) -> str:
        """The shell text that prints the end mark."""
        if end == _End():
            return f'{{ {self.name} "$?" {nonce}; }} >/dev/null 2>&1 9>/dev/tty'
        before = f"cr_s={'${cr_s-$?}' if end.caught else '$?'}; {end.check}"
        if end.traps and self.kind == "bash":
            debug, errors = (f"$({self._own}trap -p {trap})" for trap in ("DEBUG", "ERR"))
            before += f"{self.name}_t={debug}; {self.name}_r={errors}; {self._own}trap - DEBUG; "
        after = f"{self._own}unset cr_s; "
        if end.sane:
            before += _DEAF
            # `read` fails at the end of a terminal that is gone, and where a signal with a trap comes.
            after += (
                f'cr_d=; until {self._own}[ "$cr_d" = {nonce} ]; do IFS= {self._own}read -r cr_d || '
                f"stty || break; done </dev/tty; {self._own}unset cr_d; {_RIGHT}"
            )
        return f'{{ {before}{self.name} "$cr_s" {nonce}; {after}}} >/dev/null 2>&1 9>/dev/tty'

    def _restore(self, before: Mark | None, text: str, first: str) -> str:
        words = [first]
        if before is not None:
            flags = "".join(letter for letter in "xv" if letter in before.flags)
            if flags:
                words.append(f"{self._own}set -{flags}")
            if "D" in before.flags:
                words.append(f'{self._own}eval "${self.name}_t"')
            if before.status and "e" not in before.flags and ("$?" in text or "${?" in text):
                words.append(f"{self.name}_s {before.status}")
        return words[0] if len(words) == 1 else "{ " + "; ".join(words) + "; } >/dev/null 2>&1"

    def _typed(self, text: str, used: int = 0) -> bytes:
        """Text as one word that survives a terminal: no control byte is typed, no line is too long.

        used  how many bytes of the first line are taken already"""
        parts: list[bytes] = []
        line = used
        for unit in self._pieces(text):
            if line + len(unit) > _MAX_LINE_BYTES:
                parts.append(b"\\\n")
                line = 0
            parts.append(unit)
            at = unit.rfind(b"\n")
            line = line + len(unit) if at < 0 else len(unit) - at
        return b"".join(parts) or b"''"

    def _pieces(self, text: str) -> Iterable[bytes]:
        for index, piece in enumerate(re.split(r"([\x01-\x08\x0b-\x1f\x7f])", text)):
            if index % 2 == 0:
                yield from _units(piece)
            elif self.kind == "bash":
                yield f"$'\\{ord(piece):03o}'".encode()
            else:
                yield f'"$cr_{ord(piece):03o}"'.encode()


def _units(piece: str) -> Iterable[bytes]:
    """Single-quoted slices of text, each with no physical line near the limit."""
    data = encode(piece)
    size = 1_500  # quotes may double or quadruple a slice at worst; those are cut smaller below
    at = 0
    while at < len(data):
        cut = data[at : at + size]
        if cut.count(b"'") > 300:
            cut = cut[:400]
        at += len(cut)
        yield b"'" + cut.replace(b"'", b"'\\''") + b"'"


def may_set_traps(text: str) -> bool:
    """Whether a command may set a DEBUG or ERR trap; looking costs two processes, so not after each one."""
    return re.search(r"\btrap\b|DEBUG|\bsource\b|(^|[\s;&|(])\.\s", text) is not None


def _takes_another_line(text: str) -> bool:
    """Whether a line after the text is surely a command of its own."""
    return "<<" not in text and not text.rstrip().endswith("\\")


def _may_be_unfinished_substitution(text: str) -> bool:
    """Whether to keep a text out of PROMPT_COMMAND.

    bash 5.2.15 corrupts its heap when it evaluates an unfinished `$(` while it is not interactive, which
    is how it runs PROMPT_COMMAND (valgrind: reads before the input line in parse_comsub's unwinding; later
    "free(): invalid next size"). Typed as a plain `eval` it does not; that only costs quiet job numbers.
    """
    return any(opening in text for opening in ("$(", "<(", ">(")) and text.count("(") > text.count(")")


class MarkReader:
    """Takes the bytes of a terminal and gives a command's own output; pure.

    nonce   the number of the command; marks with another number are dropped as stale
    typed   what was typed; if the terminal echoes it, exactly that is taken out
    """

    def __init__(self, frame: Frame, nonce: str, typed: bytes) -> None:
        self._nonce = nonce
        self._prompt = frame.prompt
        self._start = _OSC + f"S;{nonce}".encode() + _BEL
        self._end = _OSC + f"E;{nonce};".encode()
        self._close = f";{nonce}".encode() + _BEL
        self._typed = typed
        self._buffer = b""
        self.started = False
        self.prompted = False
        self.mark: Mark | None = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes, return the output among them. After the end mark, `rest` holds what followed it."""
        self._buffer += data
        out: list[bytes] = []
        if not self.started:
            early = self._until_start()
            if early is None:
                return b""
            out.append(early)
        while self.mark is None:
            at = self._buffer.find(_OSC)
            if at < 0:
                out.append(self._release())
                break
            out.append(self._buffer[:at])
            self._buffer = self._buffer[at:]
            if not self._take_mark(out):
                break
        return b"".join(out)

    @property
    def rest(self) -> bytes:
        """Bytes not given out: after the end mark, what other programs printed since."""
        return self._buffer

    def flush(self) -> bytes:
        """The shell is gone: everything that is left is output, but for marks of the frame itself."""
        left, self._buffer = self._buffer, b""
        return strip_marks(left, self._prompt) if self.started else b""

    def _until_start(self) -> bytes | None:
        at = self._buffer.find(self._start)
        if at < 0:
            return None
        early = strip_marks(self._buffer[:at], self._prompt)
        self._buffer = self._buffer[at + len(self._start) :]
        self.started = True
        for echo in (self._typed, self._typed.replace(b"\n", b"\r\n")):
            early = early.replace(echo, b"", 1)
        return early

    def _release(self) -> bytes:
        """All but a tail that may be the beginning of a mark."""
        at = self._buffer.rfind(b"\x1b", max(0, len(self._buffer) - len(_OSC)))
        keep = at if at >= 0 and _OSC.startswith(self._buffer[at:]) else len(self._buffer)
        out, self._buffer = self._buffer[:keep], self._buffer[keep:]
        return out

    def _take_mark(self, out: list[bytes]) -> bool:
        """Deal with what may be a mark at the head of the buffer; False: more bytes are needed."""
        buffer = self._buffer
        if buffer.startswith(self._prompt):
            self.prompted = True
            self._buffer = buffer[len(self._prompt) :]
            return True
        if buffer.startswith(self._end):
            end = buffer.find(self._close, len(self._end) - 1)
            if end < 0:
                return False
            self.mark = _parse_mark(buffer[len(self._end) : end], self._nonce)
            self._buffer = buffer[end + len(self._close) :]
            return True
        if self._end.startswith(buffer) or self._prompt.startswith(buffer):
            return False
        out.append(buffer[: len(_OSC)])  # somebody else's, or a forgery: output like any other
        self._buffer = buffer[len(_OSC) :]
        return True


def without_frame(data: bytes, command: str) -> bytes:
    """The output of a shell that ended, with what bash calls the last command there put right.

    An EXIT trap that shows $BASH_COMMAND shows the line that was typed to the shell."""
    typed = rb"cr_c='\{ (?s:.*?)PROMPT_COMMAND=(?:\"\$cr_[0-9a-f]{16}_1\"[^\s]*|'(?s:.*?)9>/dev/tty')"
    return re.sub(typed, lambda _: encode(command), data)


def strip_marks(data: bytes, prompt: bytes) -> bytes:
    """Data without the frame's prompts and without end marks of earlier commands."""
    data = data.replace(prompt, b"")
    return re.sub(rb"\x1b\]8671;E;([0-9a-f]{16});(?s:.*?);\1\x07", b"", data)


def _parse_mark(body: bytes, nonce: str) -> Mark:
    head, _, cwd = body.partition(f";{nonce};".encode())
    status, flags, exists = head.split(b";")
    return Mark(
        status=int(status),
        flags=flags.decode(),
        cwd=cwd.decode("utf-8", "surrogateescape"),
        cwd_exists=exists == b"1",
    )
