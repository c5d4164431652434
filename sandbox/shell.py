"""The shell semantics of the sandbox: pure text in, text out.

Owns quoting, how a one-shot command is launched, how a named shell is framed, and the script that
ends a process tree. Works with bash, dash and busybox ash; needs no program besides the shell,
except `stty` (for named shells; without it, a terminal's echo is taken out by exact match).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox.errors import RequestError
from sandbox.values import Survivor

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
    """Refuse what no shell can carry: a NUL, or a lone surrogate that stands for no byte."""
    if "\0" in text:
        raise RequestError(f"{what} contains a NUL character, which no shell can carry")
    try:
        encode(text)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} is not valid text: {error.reason} at {error.start}") from None


def check_env(env: Mapping[str, str]) -> None:
    """Refuse variables that a shell or the kernel cannot hold, naming the variable."""
    for name, value in env.items():
        if not _NAME.match(name):
            raise RequestError(f"environment variable {name!r}: a name has letters, digits and _ only")
        check_text(f"environment variable {name}", value)
        if len(name) + 1 + len(encode(value)) >= _MAX_STRING_BYTES:
            raise RequestError(f"environment variable {name}: longer than the 128 KiB that Linux allows")


def _exports(env: Mapping[str, str]) -> str:
    if not env:
        return ""
    return "export " + " ".join(f"{name}={quote(value)}" for name, value in env.items()) + "; "


# --- one-shot commands -------------------------------------------------------------------------
#
# A launcher is a shell that says who it is, then waits for one line on its standard input and
# evaluates it. Everything that a command needs travels in that line, so that nothing is spliced
# into other text and nothing is too long for argv; the rest of the input belongs to the command,
# because a shell's `read` takes a byte at a time from a pipe. Since the launcher waits, it can be
# started before there is a command.

_LAUNCHER = (
    'printf \'%s %s %s\\n\' "$1" $$ "${BASH_VERSION:+bash}"; '
    "IFS= read -r cr_line || exit 125; cr_token=$1; set --; cr_nl='\n'; eval \"$cr_line\""
)
_FIND_SHELL = (
    'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" bash "$2"; fi; exec sh -c "$1" sh "$2"'
)


def launcher_argv(shell: str | None, token: str) -> list[str]:
    """The program to spawn. shell None: bash if the place has it, else sh; the start tells which."""
    if shell is None:
        return ["sh", "-c", _FIND_SHELL, "sh", _LAUNCHER, token]
    return [shell, "-c", _LAUNCHER, shell, token]


def launch_line(
    command: str | Sequence[str], *, cwd: str | None, env: Mapping[str, str], has_stdin: bool
) -> bytes:
    """The line that makes a launcher run a command. Raises RequestError for what cannot be carried."""
    check_env(env)
    if isinstance(command, str):
        check_text("the command", command)
        body = command
    else:
        body = _argv_text(command)
    enter = _enter_text(cwd) if cwd else ""
    setup = (
        f"{enter}{_exports(env)}printf '%s go\\n' \"$cr_token\"; unset cr_token cr_line cr_nl; "
        f"{'' if has_stdin else 'exec </dev/null'}"
    )
    pieces = [quote(piece) for piece in f"{setup}\n{body}".split("\n")]
    return encode("eval " + '"$cr_nl"'.join(pieces) + "\n")


def _enter_text(cwd: str) -> str:
    path = quote(cwd if cwd.startswith("/") else f"./{cwd}")
    return (
        f"cd {path} 2>/dev/null || {{ if [ ! -e {path} ]; then cr_nl=missing; elif [ ! -d {path} ]; "
        "then cr_nl=file; else cr_nl=denied; fi; printf '%s %s\\n' \"$cr_token\" $cr_nl; exit 126; }; "
    )


def _argv_text(argv: Sequence[str]) -> str:
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

    def hello(self) -> bool:
        """Whether the launcher has said who it is and waits for its line (or has had it)."""
        return self._hello is not None

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


# --- ending a process tree ---------------------------------------------------------------------
#
# One small program runs beside what it is to end, in the same process namespace, and is driven
# over its standard input: a line names a signal (0: none), it sends that to every member of the
# tree and answers with the members that are alive. It finds them through /proc by process group,
# session, parenthood and an environment marker, with shell built-ins only (a grep that looks beyond a
# NUL, which busybox's does not, only as a shortcut).

_SWEEP = r"""
alive() {
  cr_table= cr_found=" "
  if [ -n "$marker" ] && printf 'a\0b' | grep -qF b 2>/dev/null; then
    cr_marked=" $(grep -lsF -e "$marker" /proc/[0-9]*/environ 2>/dev/null | while IFS= read -r f; do
      f=${f#/proc/}; printf '%s ' "${f%/environ}"; done)"
  else cr_marked=; fi
  for d in /proc/[0-9]*; do
    q=${d#/proc/}
    [ "$q" = "$$" ] && continue
    { IFS= read -r s <"$d/stat"; } 2>/dev/null || continue
    n=${s#*\(}; n=${n%\)*}
    set -- ${s##*\) }
    case $1 in Z|X|x) continue;; esac
    cr_table="$cr_table $q:$2"
    case $mode in
      foreground) 
        if [ "$q" != "$root" ] && [ "$3" = "$front" ] && [ "$4" = "$root" ]; then member "$q"; continue; fi;;
      *) if [ "$q" = "$root" ] || [ "$3" = "$root" ] || [ "$4" = "$root" ]; then member "$q"; continue; fi;;
    esac
    case $cr_marked in *" $q "*) member "$q"; continue;; esac
    if [ -n "$marker" ] && [ -z "$cr_marked" ] && marked "$d"; then member "$q"; fi
  done
  cr_more=1
  while [ -n "$cr_more" ]; do
    cr_more=
    for e in $cr_table; do
      case $cr_found in *" ${e%%:*} "*) continue;; esac
      case $cr_found in *" ${e##*:} "*) member "${e%%:*}"; cr_more=1;; esac
    done
  done
}
member() { cr_found="$cr_found$1 "; }
marked() {
  while IFS= read -r e || [ -n "$e" ]; do
    case $e in *"$marker"*) return 0;; esac
  done 2>/dev/null <"$1/environ"
  return 1
}
front() { { IFS= read -r s <"/proc/$root/stat"; } 2>/dev/null && set -- ${s##*\) } && front=$6; }
front=$root
printf '%s ready\n' "$token"
while IFS= read -r signal; do
  [ "$mode" = foreground ] && front
  alive
  if [ "$signal" != 0 ]; then
    for q in $cr_found; do kill "-$signal" "$q" 2>/dev/null; done
    [ "$signal" = KILL ] || for q in $cr_found; do kill -CONT "$q" 2>/dev/null; done
    alive
  fi
  printf '%s' "$token"
  for q in $cr_found; do
    n='?'; { IFS= read -r s <"/proc/$q/stat"; } 2>/dev/null && n=${s#*\(} && n=${n%\)*}
    printf ' %s=%s' "$q" "${n%% *}"
  done
  printf ' .\n'
done
"""


def sweep_argv(pid: int, *, marker: str, foreground: bool, token: str) -> list[str]:
    """The program that ends the tree of a process (pid as seen where it runs).

    marker      an environment entry that marks members, or ""
    foreground  only what runs in the foreground of the terminal whose shell is pid; spare the shell
    """
    head = f"root={pid} mode={'foreground' if foreground else 'tree'} marker={quote(marker)} token={token}\n"
    return ["sh", "-c", head + _SWEEP, "sh"]


def read_sweep(line: bytes) -> tuple[Survivor, ...] | None:
    """The members that a sweep says are alive, from one answer line; None for the ready line."""
    words = line.decode("utf-8", "replace").split()
    if words[1:] == ["ready"]:
        return None
    pairs = [word.partition("=") for word in words[1:] if word != "."]
    return tuple(Survivor(pid=int(pid), name=name) for pid, _, name in pairs)


# --- named shells ------------------------------------------------------------------------------
#
# A named shell is an interactive bash or sh on a terminal, without start-up files, line editor,
# history or echo. Interactive, because only then Ctrl-C brings it back to its prompt with its state;
# but bash runs what is in PROMPT_COMMAND as a script would (no job numbers, no "exit"), so a command is
# handed over in two assignments. It cannot eat its own end mark: the shell has parsed that before
# the command begins. Both marks are operating system commands (OSC, ECMA-48 8.3.89) written to
# /dev/tty, so redirecting the shell's own output does not lose them, and hold numbers that are
# new for each command. xtrace, verbose and the DEBUG trap are off between two commands and are
# put back inside the command, so that they never see the frame.

_OSC = b"\x1b]8671;"
_BEL = b"\x07"
_PROGRAM_UNSET = "builtin unset PROMPT_COMMAND; "
_PROGRAM_EVAL = 'builtin eval "$cr_c" <'
_MAX_LINE_BYTES = 3_500  # a terminal in canonical mode cuts an input line at 4,095 bytes (n_tty.c)

_SHELL_START = (
    "stty -echo -onlcr 2>/dev/null; "
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
    debug_trap  bash only: the command that sets the DEBUG trap again, or ""
    """

    status: int
    flags: str
    cwd: str
    cwd_exists: bool
    debug_trap: str


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
        if self.kind == "bash":
            # 'R' among the flags: the caller made PROMPT_COMMAND readonly, so it carries no command any more.
            head = "local r=; builtin unset PROMPT_COMMAND || r=R; "
            exists, trap, flags = (
                "[[ -d ${PWD-} ]]",
                "builtin trap -p DEBUG >&9; builtin trap - DEBUG; ",
                "$-$r",
            )
            options = (
                f"declare -ft {self.name}; readonly -f {self.name} {self.name}_s; {self._program()}"
                "set +o history +H; history -c; "
            )
        else:
            head, exists, trap, flags, options = "", '[ -d "${PWD-}" ]', "", "$-", ""
        own = self._own
        # Every output of this function goes to descriptor 9; whatever a trap of the caller's prints
        # while it runs goes where the frame sends standard output: nowhere.
        fields = f'"$2" "$1" "{flags}" "${{PWD-}}"'
        report = (
            f"{self.name}() {{ {head}{own}printf '\\033]8671;E;%s;%s;%s;%s;' {fields} >&9; "
            f"if {exists}; then {own}printf '1;' >&9; else {own}printf '0;' >&9; fi; {trap}"
            f"{own}printf ';%s\\007' \"$2\" >&9; {own}set +xv; {own}jobs; {self._prompts()}; }}"
        )
        keep = f'{self.name}_s() {{ return "$1"; }}'
        # An interactive shell ignores SIGTERM; a named shell ends by it as a script would.
        quiet = "trap 'exit 143' TERM; unset MAILCHECK TMOUT"
        enter = f"cd -- {quote(cwd)}; " if cwd else ""
        return encode(f" {report}; {keep}; {options}{self._prompts()}; {quiet}; {enter}:\n")

    @property
    def _own(self) -> str:
        """In front of the frame's own commands: a function of the caller's with that name is passed over."""
        return "builtin " if self.kind == "bash" else "command "

    def _program(self) -> str:
        """bash only: the pieces of a command's program that never change, so that they need not be typed."""
        start, end = self._start_text("@"), self._end_text("@", sane=False)
        first, second = start.split("@")
        third, fourth = end.split("@")
        pieces = (f"{_PROGRAM_UNSET}{first}", f"{second}; {_PROGRAM_EVAL}", f"; {third}", fourth)
        words = " ".join(f"{self.name}_{n}={quote(piece)}" for n, piece in enumerate(pieces, 1))
        return f"readonly {words}; "

    def _start_text(self, nonce: str) -> str:
        return f"{{ {self._own}printf '\\033]8671;S;{nonce}\\007' >/dev/tty; }} >/dev/null 2>&1"

    def _prompts(self) -> str:
        return f"PS1={quote(self.prompt.decode())} PS2="

    def command(self, text: str, *, nonce: str, before: Mark | None, stdin_tty: bool, sane: bool) -> bytes:
        """The bytes to type for one command.

        before     the last mark of this shell: options that were taken off are put back
        stdin_tty  the command's input is the terminal; else /dev/null
        sane       put the terminal's modes right when it has ended (see `probe`)
        """
        check_text("the command", text)
        source = "/dev/tty" if stdin_tty else "/dev/null"
        if self.kind == "bash":
            return self._bash_command(text, nonce, before, source, sane)
        body = f"{self._restore(before, text, ':')}\n{text}"
        controls = sorted(set(re.findall(r"[\x01-\x08\x0b-\x1f\x7f]", body)))
        names = "".join(f"cr_{ord(c):03o}=\"$(printf '\\{ord(c):03o}')\"; " for c in controls)
        head = encode(f" {names}{self._start_text(nonce)}; command eval ")
        return head + self._typed(body, len(head)) + encode(f" <{source}; {self._end_text(nonce, sane)}\n")

    def _bash_command(self, text: str, nonce: str, before: Mark | None, source: str, sane: bool) -> bytes:
        start, end = self._start_text(nonce), self._end_text(nonce, sane)
        if _may_be_unfinished_substitution(text) or (before is not None and "R" in before.flags):
            # An interactive `eval` gives 1 for a syntax error where a script gives 2.
            check = 'case $cr_s in 1) bash -n <<<"$cr_c" || cr_s=2;; esac; builtin unset cr_c; '
            end = self._end_text(nonce, sane, check)
            body = f"{self._restore(before, text, ':')}\n{text}"
            return b" cr_c=" + self._typed(body) + encode(f"; {start}; {_PROGRAM_EVAL}{source}; {end}\n")
        typed = b" cr_c=" + self._typed(f"{self._restore(before, text, 'builtin unset cr_c')}\n{text}")
        if sane:
            program = f"{_PROGRAM_UNSET}{start}; {_PROGRAM_EVAL}{source}; {end}"
            return typed + encode(f" PROMPT_COMMAND={quote(program)}\n")
        parts = f'"${self.name}_1"{nonce}"${self.name}_2"{source}"${self.name}_3"{nonce}"${self.name}_4"'
        return typed + encode(f" PROMPT_COMMAND={parts}\n")

    def probe(self, nonce: str, sane: bool) -> bytes:
        """The bytes to type when the rest of a command's line was dropped (Ctrl-C): asks for its mark.

        sane  the command may have changed the terminal's modes: put them right. An echo would be
              taken out, but busybox ash with echo on edits lines itself, and raw modes lose Ctrl-C.
        """
        return encode(f" {self._end_text(nonce, sane)}\n")

    def _end_text(self, nonce: str, sane: bool, check: str = "") -> str:
        """The shell text that prints the end mark."""
        fix = "stty sane -echo -onlcr </dev/tty; " if sane else ""
        status, after = ("$?", "") if not fix and not check else ("$cr_s", f"; {self._own}unset cr_s")
        before = "" if status == "$?" else f"cr_s=$?; {check}{fix}"
        return f'{{ {before}{self.name} "{status}" {nonce}{after}; }} >/dev/null 2>&1 9>/dev/tty'

    def _restore(self, before: Mark | None, text: str, first: str) -> str:
        words = [first]
        if before is not None:
            flags = "".join(letter for letter in "xv" if letter in before.flags)
            if flags:
                words.append(f"{self._own}set -{flags}")
            if before.debug_trap:
                words.append(before.debug_trap)
            if before.status and "e" not in before.flags and ("$?" in text or "${?" in text):
                words.append(f"{self.name}_s {before.status}")
        return "{ " + "; ".join(words) + "; } >/dev/null 2>&1"

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
            self.mark = _parse_mark(buffer[len(self._end) : end])
            self._buffer = buffer[end + len(self._close) :]
            return True
        if self._end.startswith(buffer) or self._prompt.startswith(buffer):
            return False
        out.append(buffer[: len(_OSC)])  # somebody else's, or a forgery: output like any other
        self._buffer = buffer[len(_OSC) :]
        return True


def strip_marks(data: bytes, prompt: bytes) -> bytes:
    """Data without the frame's prompts and without end marks of earlier commands."""
    data = data.replace(prompt, b"")
    return re.sub(rb"\x1b\]8671;E;([0-9a-f]{16});(?s:.*?);\1\x07", b"", data)


def _parse_mark(body: bytes) -> Mark:
    status, flags, rest = body.split(b";", 2)
    cwd, exists, trap = rest.rsplit(b";", 2) if rest.count(b";") == 2 else _split_trap(rest)
    return Mark(
        status=int(status),
        flags=flags.decode(),
        cwd=cwd.decode("utf-8", "surrogateescape"),
        cwd_exists=exists == b"1",
        debug_trap=trap.decode("utf-8", "surrogateescape").strip(),
    )


def _split_trap(rest: bytes) -> tuple[bytes, bytes, bytes]:
    """Directory and trap may both hold semicolons: the trap begins with `trap -- ` or is empty."""
    found = re.search(rb";([01]);(trap -- (?s:.*)|)\Z", rest)
    if found is None:
        return rest, b"1", b""
    return rest[: found.start()], found[1], found[2]
