"""How commands are framed in dash and busybox ash; pure text in, text out."""

from __future__ import annotations

from sandbox.framing import (
    DEAF,
    RIGHT,
    Framed,
    controls_in,
    hint_of,
    may_exit_on_error,
    one_word,
)
from sandbox.marks import Mark
from sandbox.shell import encode, quote
from sandbox.sweep import kib_of

_OWN = "\\command "
_QUIET = " >/dev/null 2>&1 9>/dev/tty"


class ShFrame:
    """See Frame. `name` and `token` are random."""

    may_be_silent = False

    def __init__(self, name: str, token: str, pid: int) -> None:
        self._name = name
        self._token = token
        self.hint = hint_of(token, pid)

    def setup(self, cwd: str | None) -> bytes:
        """See Frame.setup."""
        n = self._name
        # One write for the whole mark, or the output of a background job could stand inside it. What may
        # hold anything (the directory's name) stands between nonces, which nothing can know before.
        # A variable that is still there shows that `command` is not the shell's; then the hint is shown.
        there = (
            f'if ! {_OWN}test "${n}_d" -ef .; then {n}_x=0; '
            f"{n}_k=$({_OWN}pwd -P; {_OWN}printf x); {n}_k=${{{n}_k%??}}; "
            f'if {_OWN}test -d "${n}_k"; then {n}_x=1 {n}_d=${n}_k; fi; fi; '
        )
        mark = (
            f"{_OWN}printf '\\033]8671;E;%s;%s;%s;%s;%s;%s;%s\\007' "
            f'"$2" "$1" "${n}_f${n}_r" "${n}_x" "$2" "${n}_d" "$2" >&9; '
            f"{_OWN}jobs; \\unset {n}_f {n}_x {n}_k {n}_d {n}_r {n}_v {n}_c"
        )
        # busybox ash: an error in a forked child jumps to the handler of the frame's `command` in the child's
        # copy of the stack, so that the child comes to the end mark. It ends there, as in a script.
        child = f'{n}_g() {{ {_OWN}test /proc/self -ef "/proc/$$" || \\exit "$1"; }}'
        report = (
            f'{n}() {{ {n}_g "$1"; {n}_f=$-; \\set +axv; {n}_v=$1 {n}_k=x {n}_r= {n}_x=1 {n}_d=${{PWD-}}; '
            f"{_OWN}unset {n}_k PS1 PS2 || {n}_r=R; "
            f"case ${{{n}_k-}} in x) ;; *) case ${n}_r in '') PS1= PS2=; esac; {there}{mark};; esac; }}"
        )
        keep = f'{n}_s() {{ return "$1"; }}'
        # An interactive shell ignores SIGTERM; a named shell ends by it as a script would. The prompts came
        # in through the environment: unset, they are no longer exported.
        # A shell shows its pid for the two characters at the end.
        shown = quote(hint_of(self._token, "$$").decode())
        quiet = "set -I; trap 'exit 143' TERM; unset MAILCHECK PS1 PS2 ENV"
        enter = (
            b" %bcd -- %b; unset OLDPWD\n" % (encode(self._controls(cwd)), one_word(cwd, f"{n}_"))
            if cwd
            else b""
        )
        no_proc = f"{_OWN}test /proc/self -ef /proc/$$ || {n}_g() {{ :; }}"
        return encode(f" {report}; {keep}; {child}; {no_proc}; {quiet}; {n}_p={shown} PS1= PS2=\n") + enter

    def command(self, what: Framed) -> bytes:
        """See Frame.command."""
        n = self._name
        first = self._first_line(what)
        body = f"{first}\n{what.text}" if first else what.text
        start = f"{{ {_OWN}printf '\\033]8671;S;{what.nonce}\\007' >/dev/tty; }} >/dev/null 2>&1; "
        readonly = what.before is not None and "R" in what.before.flags
        # Shown by a shell that waits for a line, with its pid.
        hint = "" if readonly else f"PS1=${n}_p; "
        source = "/dev/tty" if what.stdin_tty else "/dev/null"
        end = f" <{source}; {self._end_text(what.nonce, f'${{{n}_v-$?}}', what.sane)}\n"
        if may_exit_on_error(what):
            head = encode(f" {self._controls(body)}{hint}{n}_c=")
            end = f'; {start}{self._seeing_status()}\\command eval "${n}_c"{end}'
        else:
            head = encode(f" {self._controls(body)}{hint}{start}\\command eval ")
        return head + one_word(body, f"{n}_", len(head)) + encode(end)

    def _seeing_status(self) -> str:
        """Let a line of the frame's end the text, if that is whole: so says the shell's own parser.

        It reads the text in a branch that is never taken, so nothing of it runs behind a stray `}`.
        `set -e` has let a failing command pass: it must not see the frame's `eval` fail."""
        n = self._name
        line = f'{n}_c="${n}_c\n{{ {n}_v=\\$?; }} 2>/dev/null"'
        return (
            f'case $({{ \\command eval "case x in y) {n}_k() {{\n${n}_c\n}};; esac"; }} >/dev/null 2>&1 && '
            f"{_OWN}printf y) in y) {line};; esac; "
        )

    def _controls(self, text: str) -> str:
        """Shell text that sets the variables that stand for control bytes."""
        numbers = [f"{ord(each):03o}" for each in controls_in(text)]
        return "".join(f"{self._name}_{each}=\"$({_OWN}printf '\\{each}')\"; " for each in numbers)

    def probe(self, nonce: str, sane: bool) -> bytes:
        """See Frame.probe."""
        n = self._name
        mend = "\\unset -f command printf test pwd jobs read stty 2>/dev/null; "
        return encode(f" {n}_v=${{{n}_v-$?}}; {mend}{self._end_text(nonce, f'${n}_v', sane)}\n")

    def release(self, nonce: str) -> bytes:
        """See Frame.release."""
        return f"\n{nonce}\n".encode()

    def as_typed(self, data: bytes, command: str) -> bytes:
        """See Frame.as_typed."""
        return data

    def _end_text(self, nonce: str, status: str, sane: bool) -> str:
        """The shell text that prints the end mark."""
        n = self._name
        if not sane:
            return f'{{ {n} "{status}" {nonce}; }}{_QUIET}'
        # `read` fails at the end of a terminal that is gone, and where a signal with a trap comes.
        drop = (
            f'{n}_d=; until {_OWN}test "${n}_d" = {nonce}; do IFS= {_OWN}read -r {n}_d || '
            f"{_OWN}stty || break; done </dev/tty; \\unset {n}_d {n}_v"
        )
        return (
            f'{{ {n}_v={status}; {n}_g "${n}_v"; {_OWN}{DEAF} </dev/tty; {n} "${n}_v" {nonce}; {drop}; '
            f"{_OWN}{RIGHT} </dev/tty || :; }}{_QUIET}"
        )

    def _first_line(self, what: Framed) -> str:
        """What a command's text begins with: the state that was put by after the last one; mostly nothing."""
        n, before = self._name, what.before
        words = []
        if what.mark:
            words.append(f"{_OWN}ulimit -S -m {kib_of(what.mark)} || :")
        if before is None:
            before = Mark(0, "", "", True)
        if options := "".join(letter for letter in "axv" if letter in before.flags):
            words.append(f"\\set -{options}")
        if before.status:
            # No errexit for that.
            words.append(f"{n}_s {before.status} && :")
        return "{ " + "; ".join(words) + "; } >/dev/null 2>&1" if words else ""
