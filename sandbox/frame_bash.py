"""How commands are framed in bash; pure text in, text out.

bash runs what is in PROMPT_COMMAND as a script would (no job numbers, no "exit"), so a command is
handed over in two assignments, its text and the program that evaluates it, and runs before the next
prompt. What costs a system call or a builtin is done only where something asks for it: the shell of a
command that changed nothing answers with one write.
"""

from __future__ import annotations

import re

from sandbox.framing import DEAF, RIGHT, Framed, hint_of, may_exit_on_error, one_word
from sandbox.shell import encode, quote
from sandbox.sweep import kib_of

# Variables of the caller's that would act between two commands. An assignment cannot be kept from
# them before bash 5.3 without giving up a command, so they do not last.
_ACTING = "PROMPT_COMMAND TMOUT PS0 PS1 PS2"
_QUIET = "$-:$BASHOPTS"
# A line editor would read the terminal in its own way.
_EDITORS = ":$SHELLOPTS: != *:@(emacs|vi):*"


class BashFrame:
    """See Frame. `name` and `token` are random."""

    may_be_silent = True

    def __init__(self, name: str, token: str, pid: int) -> None:
        self._name = name
        self._token = token
        self.hint = hint_of(token, pid)
        self._heal = f"PROMPT_COMMAND=${name}_h; "
        self._eval = f'\\builtin eval -- "${name}_c" <'
        self._end = f'{{ {name} "$?" '
        # The pieces of a command's program that never change need not be typed.
        self._pieces = {
            "p": f"\\e]8671;P;{token};$$\\a",
            "h": f"{{ {name}_h; }} >/dev/null 2>&1",
            "1": f"{self._heal}\\builtin printf '\\033]8671;S;",
            "2": f"\\007' >&0; {self._eval}/dev/null; {self._end}",
            "3": f"{self._heal}{self._eval}/dev/null; {self._end}",
            "4": f"; }} >/dev/null 2>&1 || PS1=${name}_p",
        }

    def setup(self, cwd: str | None) -> bytes:
        """See Frame.setup."""
        n = self._name
        words = " ".join(f"{n}_{key}={quote(text)}" for key, text in self._pieces.items())
        functions = "; ".join((self._quick(), self._careful(), self._sane()))
        helpers = "; ".join((*self._states(), self._input(), self._healing()))
        names = " ".join(n + suffix for suffix in ("", "_w", "_z", "_s", "_d", "_i", "_h"))
        # Aliases are a matter for the caller's own commands, as in a script: off until asked for.
        # An interactive shell ignores SIGTERM; a named shell ends by it as a script would. The prompts came
        # in through the environment: unset, they are no longer exported.
        options = (
            f"readonly -f {names}; shopt -u expand_aliases; set -o ignoreeof; set +o history +H; history -c; "
            f"trap 'exit 143' TERM; unset -v MAILCHECK ENV {_ACTING}"
        )
        # As in a script, there was no directory before; bash has the name exported all the same.
        enter = b" cd -- %b; unset -v OLDPWD; export OLDPWD\n" % one_word(cwd) if cwd else b""
        return encode(f" {functions}\n {helpers}\n readonly {words}; {options}\n") + enter

    def _quick(self) -> str:
        """The end mark of a command that changed nothing that matters here; else `_careful` is called.

        One write for the whole mark, or the output of a background job could stand inside it. What may
        hold anything (the directory's name) stands between nonces, which nothing can know before. Asking
        for the jobs marks them as told, so that bash does not tell of their end. A command's text that
        is still there shows that `builtin` is not bash's; then bash shows the hint and is asked again."""
        n = self._name
        return (
            f"{n}() {{ if \\builtin unset -v {_ACTING} {n}_c && "
            f"[[ -z ${{{n}_c+x}} && -t 0 && ${{PWD-}} -ef . && $- != *[axvt]* && "
            f"$BASHOPTS != *expand_aliases* && {_EDITORS} ]]; "
            "then \\builtin printf '\\033]8671;E;%s;%s;%s;1;%s;%s;%s\\007' "
            f'"$2" "$1" "$-" "$2" "$PWD" "$2" >&0 || PS1=${n}_p {n}_v=$1; else {n}_w "$1" "$2"; fi; '
            "\\builtin jobs || [[ 1 ]]; }"
        )

    def _careful(self) -> str:
        """The end mark after anything: takes off what would show or disturb the frame, and says so.

        Its own parameters are: status, nonce, options, more flags, directory, whether that exists."""
        n = self._name
        return (
            f'{n}_w() {{ \\builtin set -- "$1" "$2" "${{{n}_f-{_QUIET}}}" "" "${{PWD-}}" 1; '
            f'\\builtin unset -v {_ACTING} {n}_f {n}_v {n}_c || \\builtin set -- "${{@:1:3}}" R "${{@:5}}"; '
            f"{n}_i; \\builtin set +axvt; \\builtin shopt -u expand_aliases; "
            f"[[ {_EDITORS} ]] || \\builtin set +o emacs +o vi; "
            f"if [[ ! $5 -ef . ]]; then {n}_d=$(\\builtin pwd -P; \\builtin printf x); "
            f"{n}_d=${{{n}_d%$'\\n'x}}; "
            f'if [[ -d ${n}_d ]]; then \\builtin set -- "${{@:1:4}}" "${n}_d" 1; '
            f'else \\builtin set -- "${{@:1:5}}" 0; fi; \\builtin unset -v {n}_d; fi; '
            '[[ $3 != *expand_aliases* ]] || \\builtin set -- "${@:1:3}" "$4A" "${@:5}"; '
            f"[[ -z ${{{n}_c+x}} ]] && \\builtin printf '\\033]8671;E;%s;%s;%s;%s;%s;%s;%s\\007' "
            f'"$2" "$1" "${{3%%:*}}$4${{{n}_t:+D}}" "$6" "$2" "$5" "$2" >&0 || PS1=${n}_p {n}_v=$1; '
            "\\builtin jobs || [[ 1 ]]; }"
        )

    def _sane(self) -> str:
        """As `_careful`; then what was typed is dropped up to the nonce, and the terminal put right."""
        n = self._name
        # `read` fails at the end of a terminal that is gone, and where a signal with a trap comes.
        return (
            f'{n}_z() {{ \\builtin command {DEAF} <&0; {n}_w "$1" "$2"; {n}_d=; '
            f'until [[ ${n}_d == "$2" ]]; do IFS= \\builtin read -r {n}_d || '
            f"\\builtin command stty || break; done <&0; \\builtin unset -v {n}_d; "
            f"\\builtin command {RIGHT} <&0 || [[ 1 ]]; }}"
        )

    def _states(self) -> tuple[str, str]:
        """What puts back the status of the command before, and with it its DEBUG trap."""
        n, back = self._name, '\\builtin return "$1"'
        return (
            f"{n}_s() {{ {back}; }}",
            f'{n}_d() {{ \\builtin eval "${n}_t"; {n}_t=; {back}; }}',
        )

    def _input(self) -> str:
        """What makes the terminal the shell's input again.

        A command may close what bash keeps it in meanwhile, and an interrupt may catch bash before it
        has put it back; it would then read the end of /dev/null as the end of its commands. In POSIX mode,
        `exec` is found before a function of that name."""
        back = "\\exec <>/dev/tty"
        return (
            f"{self._name}_i() {{ [[ ! -t 0 ]] || return 0; if [[ -o posix ]]; then {back}; "
            f"else POSIXLY_CORRECT=1; {back}; \\unset -v POSIXLY_CORRECT; fi; }}"
        )

    def _healing(self) -> str:
        """What PROMPT_COMMAND holds while a command runs: the end mark takes it out, so it runs after an
        interrupt only, or where the end mark failed. An assignment and a prompt work in any case."""
        n = self._name
        return (
            f"{n}_h() {{ PS1=${n}_p {n}_f={_QUIET}; \\builtin set +axvt; "
            f"\\builtin shopt -u expand_aliases; {n}_i; "
            f"\\builtin printf '\\033]8671;P;{self._token};%s\\007' $$ >&0 && \\builtin unset -v PS1; }}"
        )

    def command(self, what: Framed) -> bytes:
        """See Frame.command."""
        n, nonce = self._name, what.nonce
        first = self._first_line(what)
        body = f"{first}\n{what.text}" if first else what.text
        typed = f" {n}_c=".encode()
        readonly = what.before is not None and "R" in what.before.flags
        if readonly or _may_be_unfinished_substitution(what.text):
            # An interactive `eval` gives 1 for a syntax error where a script gives 2.
            check = f'case ${n}_v in 1) \\builtin command bash -n <<<"${n}_c" || {n}_v=2;; esac; '
            heal = "" if readonly else self._heal
            return typed + one_word(body) + encode(f"; {heal}{self._program(what, check)}\n")
        guarded = may_exit_on_error(what)
        typed += one_word(body)
        if what.traps or guarded or what.sane or what.stdin_tty:
            heal = self._sane_heal(nonce) if what.sane else self._heal
            kept = self._aside() if what.traps else f"{n}_v=$?" if guarded else ""
            program = f"{heal}{self._seeing_status(kept) if kept else ''}{self._program(what, '')}"
            return typed + encode(f" PROMPT_COMMAND={quote(program)}\n")
        parts = f"${n}_1'{nonce}'${n}_2" if what.announced else f"${n}_3"
        return typed + f" PROMPT_COMMAND={parts}'{nonce}'${n}_4\n".encode()

    def probe(self, nonce: str, sane: bool) -> bytes:
        """See Frame.probe."""
        n = self._name
        # In POSIX mode, special builtins are found before functions.
        mend = (
            "POSIXLY_CORRECT=1; \\unset -f builtin command enable; \\unset -v POSIXLY_CORRECT; "
            "command enable builtin; builtin enable printf unset set shopt exec jobs pwd read eval trap"
        )
        function = f"{n}_z" if sane else f"{n}_w"
        mark = f'{function} "${n}_v" {nonce}'
        return encode(f" {{ {n}_v=${{{n}_v-$?}}; {mend}; {mark}; }} >/dev/null 2>&1 || PS1=${n}_p\n")

    def release(self, nonce: str) -> bytes:
        """See Frame.release."""
        return f"\n{nonce}\n".encode()

    def as_typed(self, data: bytes, command: str) -> bytes:
        """See Frame.as_typed."""
        name = self._name.encode()
        program = rb"(?:\$%b_\d\S*%b_4|'(?s:.*?) \|\| PS1=\$%b_p')" % (name, name, name)
        return re.sub(rb"%b_c='(?s:.*?) PROMPT_COMMAND=%b" % (name, program), lambda _: encode(command), data)

    def _program(self, what: Framed, check: str) -> str:
        """The program of a command that needs more than the quick one.

        check  what to do with the command's status, in a variable, before the mark"""
        start = f"\\builtin printf '\\033]8671;S;{what.nonce}\\007' >&0; " if what.announced else ""
        source = "/dev/tty" if what.stdin_tty else "/dev/null"
        return f"{start}{self._eval}{source}; {self._end_text(what, check)}"

    def _end_text(self, what: Framed, check: str) -> str:
        n = self._name
        # `case` leaves `$?` alone.
        before = f"case ${{{n}_v-}} in '') {self._aside()};; esac; " if what.traps else ""
        before += f"{n}_v=${{{n}_v-$?}}; {check}" if check else ""
        return self._marking(what.nonce, sane=what.sane, before=before)

    def _marking(self, nonce: str, *, sane: bool, before: str = "") -> str:
        n = self._name
        function = f"{n}_z" if sane else f"{n}_w"
        status = f'"${{{n}_v-$?}}"'
        return f"{{ {before}{function} {status} {nonce}; }} >/dev/null 2>&1 || PS1=${n}_p"

    def _sane_heal(self, nonce: str) -> str:
        """An interrupted program that could be typed to: what was typed after Ctrl-C is dropped as well."""
        text = f"{self._name}_v=$?; {self._name}_i; {self._marking(nonce, sane=True)}"
        return f"PROMPT_COMMAND={quote(text)}; "

    def _aside(self) -> str:
        """Put the DEBUG trap by; it sees one command of the frame's, whatever is done.

        What looks like one more signal is none, and only there to be expanded before the trap is gone. An
        unfinished `[[` of the caller's leaves bash's parser unable to read another one; `case` it can."""
        n = self._name
        kept = f'"x${{{n}_v:=$?}}${{{n}_t:=$(\\builtin trap -p DEBUG)}}"'
        return (
            f"\\builtin trap - DEBUG {kept} || {n}_v=${n}_v; "
            "case $(\\builtin trap -p TERM) in '') \\builtin trap 'exit 143' TERM;; esac"
        )

    def _seeing_status(self, kept: str) -> str:
        """Let a line of the frame's end the text, if that is whole: so says the shell's own parser.

        It reads the text in a branch that is never taken: a stray `}` of the caller's ends the function that
        stands there, and what follows it must not run for that. A subshell reads it: what an unfinished `[[`
        leaves of the parser's state would be in the way of the text itself.

        An ERR trap has seen a failing command, and `set -e` has let it pass: neither must see the frame's
        `eval` fail as well."""
        n = self._name
        whole = f"\\builtin eval \"case x in y) {n}_k() {{\"$'\\n'\"${n}_c\"$'\\n}};; esac'"
        line = quote(f"\n{{ {kept}; }} >/dev/null 2>&1").replace("\n", "'$'\\n''")
        return f"if [[ $({whole} >/dev/null 2>&1 && \\builtin printf y) ]]; then {n}_c+={line}; fi; "

    def _first_line(self, what: Framed) -> str:
        """What a command's text begins with: the state that was put by after the last one; mostly nothing."""
        n, before = self._name, what.before
        words = []
        flags = before.flags if before is not None else ""
        if what.mark:
            words.append(f"\\builtin ulimit -S -m {kib_of(what.mark)} || :")
        if "A" in flags:
            words.append("\\builtin shopt -s expand_aliases")
        if what.traps and "kill" not in what.text:
            words.append(
                "case $(\\builtin trap -p TERM) in \"trap -- 'exit 143' SIGTERM\") "
                "\\builtin trap - TERM;; esac"
            )
        if options := "".join(letter for letter in "axv" if letter in flags):
            words.append(f"\\builtin set -{options}")
        status = before.status if before is not None else 0
        if "D" in flags:
            words.append(f"{n}_d {status}")
        elif status:
            words.append(f"{n}_s {status}")
        if status:
            # No ERR trap and no errexit for that.
            words[-1] += " && :"
        return "{ " + "; ".join(words) + "; } >/dev/null 2>&1" if words else ""


def _may_be_unfinished_substitution(text: str) -> bool:
    """Whether to keep a text out of PROMPT_COMMAND.

    bash 5.2.15 corrupts its heap when it evaluates an unfinished `$(` while it is not interactive, which
    is how it runs PROMPT_COMMAND (valgrind: reads before the input line in parse_comsub's unwinding; later
    "free(): invalid next size"). Typed as a plain `eval` it does not; that only costs quiet job numbers.
    """
    return (
        "(" in text and any(each in text for each in ("$(", "<(", ">(")) and text.count("(") > text.count(")")
    )
