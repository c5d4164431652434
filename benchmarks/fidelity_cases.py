"""Hostile commands for fidelity.py, and what is right; data.

`@D@` in a command is a directory of the case's own. Where a step states neither output nor status, the
real shell says what is right: the same text as a script file, run by bash, or by sh for who runs sh.
"""

from __future__ import annotations

from benchmarks.fidelity_rules import (
    APART,
    BASH,
    BOTH,
    EXACT,
    EXEC,
    SHELL,
    STATUS,
    STDIN,
    TIMEOUT,
    Case,
    Seen,
    Step,
    all_of,
    anything,
    ends_with,
    fails,
    has,
    matches,
    told,
)


def _kept(seen: Seen) -> str:
    if seen.raised:
        return "the output so far is lost"
    return has("before")(seen)


def _case(name: str, *steps: Step | str, kinds: tuple[str, ...] = BOTH, needs: str = "") -> Case:
    made = tuple(Step(step) if isinstance(step, str) else step for step in steps)
    return Case(name, made, kinds, frozenset(needs.split()))


def _after(command: str) -> tuple[Step, ...]:
    """A command that is ended after a second, and what it would have done two seconds later."""
    look = "sleep 3; if test -e @D@/late; then echo it went on; else echo nothing; fi"
    return (
        Step(command, timeout_s=1.0, judge=told(9.0)),
        Step(look, out="nothing\n"),
    )


# Not for ever: not everybody ends what runs when the time is up.
_A_MINUTE = "n=0; while test $((n += 1)) -lt 300;"

# ---- marks of other systems, and everything a command can know ----------------------------------

_MARKS = {
    "swe-rex's": "SHELLPS1PREFIX\nEXITCODESTART0EXITCODEEND\nSHELLPS1PREFIX\nUNIQUESTRING29234\n",
    "pexpect's": "[PEXPECT_PROMPT>[PEXPECT_PROMPT+\n[PEXPECT]$ \n",
    "openhands'": '###PS1JSON###\n{"pid": "", "exit_code": "0", "working_dir": "/"}\n###PS1END###\n',
    "coderig's": "\x1b]8671;E;0;0;0;0;0;0\x07\x1b]8671;P;0\x07\n",
}


def _log_with(owner: str, marks: str) -> Case:
    escaped = (
        marks.replace("\x1b", "\\033").replace("\x07", "\\007").replace("\n", "\\n").replace('"', "\\042")
    )
    command = f"printf '%b' '{escaped}'; echo 1 failed; (exit 1)".replace("openhands'", "openhands")
    return _case(
        f"a failing test prints {owner} end marks", Step(command, status=1, judge=ends_with("1 failed"))
    )


_KNOWN = (
    "set; declare -f 2>/dev/null; cat /proc/$$/cmdline /proc/$$/environ | tr '\\0' '\\n'; echo LAST; (exit 5)"
)

CASES: tuple[Case, ...] = (
    *(_log_with(owner, marks) for owner, marks in _MARKS.items()),
    _case("prints all that its shell knows", Step(_KNOWN, status=5, judge=ends_with("LAST"))),
    # ---- how it ends
    _case("`exit 3`", "echo a; exit 3", needs=STATUS),
    _case("`set -e; false`", "set -e; echo a; false; echo no", needs=STATUS),
    _case(
        "126, 127, 255, death by a signal",
        Step(": >@D@/plain; @D@/plain", status=126),
        Step("no_such_program_here", status=127),
        Step("(exit 255)", status=255),
        Step("sh -c 'kill -SEGV $$'", status=139),
        needs=STATUS,
    ),
    _case("`kill -9 $$`", Step("echo a; kill -9 $$", status=137, judge=has("a")), needs=STATUS),
    _case("`exec` of another program", "exec sh -c 'echo gone; exit 6'", needs=STATUS),
    _case("an EXIT trap", "trap 'echo BYE' EXIT; echo hi; exit 4", needs=STATUS),
    _case(
        "status of a pipeline",
        Step("true | false", out="", status=1),
        Step("false | true", out="", status=0),
        needs=STATUS,
    ),
    _case("nothing but a comment", Step("# nothing", out="", status=0)),
    # ---- syntax
    _case(
        "unfinished quote",
        Step("echo 'abc", judge=fails),
        Step("echo NEXT", out="NEXT\n", status=0),
    ),
    _case("unfinished `if`", Step("if true; then", judge=fails), Step("echo NEXT", out="NEXT\n", status=0)),
    _case("unfinished `$(`", Step("echo $(", judge=fails), Step("echo NEXT", out="NEXT\n", status=0)),
    _case(
        "heredoc without its end",
        Step("cat <<EOF\nabc", judge=has("abc")),
        Step("echo NEXT", out="NEXT\n", status=0),
    ),
    _case(
        "backslash at the end",
        Step("echo abc \\", judge=has("abc")),
        Step("echo NEXT", out="NEXT\n", status=0),
    ),
    _case("comment at the end", "echo a # it's ("),
    _case("a heredoc with tabs and quotes", "cat <<'EOF'\n  it's\n\ta \"b\" $c `d` \\\nEOF\n"),
    _case("a function over many lines", "f() {\n  # it's\n  echo one\n\n  echo two\n}\nf\n"),
    _case("CRLF line ends in the command", "echo a\r\necho b\r\n", needs=EXACT),
    _case("`!` in double quotes", 'echo "Hello, world!" && echo \'a!b\' "!$"'),
    _case("control characters in the command", "printf %s 'a\x03\x04\x1ab' | wc -c"),
    _case("10 KB on one line", f"echo {'x' * 10_000}"),
    _case("300 words, wider than a terminal", f"echo {'word ' * 299}word"),
    _case("a command of 200 KB", Step(f": '{'y' * 200_000}'; echo ok", out="ok\n", status=0)),
    # ---- output
    _case(
        "invalid UTF-8 and a NUL", Step("printf 'a\\377\\376b\\000c\\n'", status=0, judge=has("a", "b", "c"))
    ),
    _case(
        "5 MB without a newline",
        Step("head -c 5000000 /dev/zero | tr '\\0' x; (exit 7)", status=7, judge=has("x" * 1000)),
    ),
    _case("a program's bytes", Step("head -c 100000 /bin/sh; (exit 9)", status=9, judge=has("ELF"))),
    _case("no final newline", "printf abc", Step("printf def", out="def", status=0)),
    _case("more final newlines than one", "printf 'abc\\n\\n\\n'", needs=EXACT),
    _case(
        "a progress bar with CR", Step("printf '10%%\\r50%%\\r100%%\\ndone\\n'", judge=has("100%", "done"))
    ),
    _case("colours and a cleared screen", Step("printf '\\033[2J\\033[31mred\\033[0m\\n'", judge=has("red"))),
    _case("Unicode", "echo 'żółć 漢字 🙂 é'"),
    _case("a character in two pieces", "printf '\\344\\270'; sleep 0.5; printf '\\255\\n'"),
    _case(
        "standard error apart",
        Step(
            "echo out; echo err >&2",
            out="out\n",
            judge=lambda seen: "" if seen.stderr == "err\n" else f"standard error is {seen.stderr!r}",
        ),
        needs=APART,
    ),
    _case(
        "`set -x`",
        Step("set -x", judge=anything),
        Step("echo b", judge=matches(r"\++ echo b\nb")),
        Step("set +x", judge=anything),
        kinds=(SHELL,),
    ),
    # ---- input
    _case("`cat` without input", "cat; echo got"),
    _case("`read` without input", "read x; echo got:$x"),
    _case(
        "300 KB of input",
        Step("wc -c", out="300000\n", status=0, stdin="z" * 300_000),
        kinds=(EXEC,),
        needs=STDIN,
    ),
    # ---- time
    _case(
        "a background job that keeps the output open",
        Step("sleep 20 & echo started", status=0, judge=has("started")),
    ),
    _case(
        "timeout: told, and the output so far",
        Step("echo before; sleep 30", timeout_s=1.0, judge=all_of(told(9.0), _kept)),
        needs=TIMEOUT,
    ),
    _case("timeout: the rest does not happen", *_after("sleep 3; echo x >@D@/late"), needs=TIMEOUT),
    _case(
        "timeout: children are ended",
        *_after("for i in 1 2 3; do (sleep 3; echo x >>@D@/late) & done; wait"),
        needs=TIMEOUT,
    ),
    _case(
        "timeout: a child in a session of its own",
        *_after("setsid sh -c 'sleep 3; echo x >@D@/late' & sleep 30"),
        needs=TIMEOUT,
    ),
    _case(
        "timeout: a child that ignores INT, TERM and HUP",
        *_after("sh -c 'trap \"\" INT TERM HUP; sleep 3; sleep 1; echo x >@D@/late'"),
        needs=TIMEOUT,
    ),
    _case(
        "timeout: a loop that ignores INT and TERM",
        Step(
            f"trap '' INT TERM; {_A_MINUTE} do sleep 0.2; echo x >@D@/late; done",
            timeout_s=1.0,
            judge=told(9.0),
        ),
        Step(
            "rm -f @D@/late; sleep 1; if test -e @D@/late; then echo it goes on; else echo nothing; fi",
            out="nothing\n",
        ),
        needs=TIMEOUT,
    ),
    _case("timeout: a pipeline", Step("sleep 30 | cat", timeout_s=1.0, judge=told(9.0)), needs=TIMEOUT),
    _case(
        "timeout: endless output",
        Step(f"{_A_MINUTE.replace('300', '9000000')} do echo line; done", timeout_s=1.0, judge=told(9.0)),
        needs=TIMEOUT,
    ),
    _case(
        "timeout: its shell stops itself",
        Step("kill -STOP $$; echo on", timeout_s=1.0, judge=told(15.0)),
        needs=TIMEOUT,
    ),
    _case(
        "timeout: the shell keeps its state",
        Step("V=kept; cd /usr", out=""),
        Step("sleep 30", timeout_s=1.0, judge=told(9.0)),
        Step('echo "$V $PWD"', out="kept /usr\n", status=0),
        kinds=(SHELL,),
        needs=TIMEOUT,
    ),
    # ---- the state of a shell
    _case(
        "directory, variables and functions last",
        Step(
            'd="@D@/it\'s a dir"; mkdir -p "$d"; cd "$d"; export A=1 B=\'two words\'; f() { echo f:$1; }',
            out="",
        ),
        Step("pwd; sh -c 'echo \"$A $B\"'; f x", out="@D@/it's a dir\n1 two words\nf:x\n", status=0),
        kinds=(SHELL,),
    ),
    _case(
        "one-shots do not leak into each other",
        Step("cd /; X=1; export X; umask 077", out="", status=0),
        Step('echo "${X-unset}"', out="unset\n", status=0),
        kinds=(EXEC,),
    ),
    _case(
        "the working directory is removed",
        Step("mkdir @D@/gone; cd @D@/gone; rmdir @D@/gone", out=""),
        Step("echo here", judge=has("here")),
        Step("cd @D@ && pwd", out="@D@\n", status=0),
        kinds=(SHELL,),
    ),
    _case(
        "`exec >/dev/null` and back",
        Step("exec 5>&1 >/dev/null; echo lost", out=""),
        Step("exec >&5 5>&-; echo back", out="back\n", status=0),
        kinds=(SHELL,),
    ),
    _case(
        "other prompts",
        Step("PS1='$ '; PS2='more '; PROMPT_COMMAND='echo prompt'; echo a", judge=has("a")),
        Step("echo b", out="b\n", status=0),
        kinds=(SHELL,),
        needs=BASH,
    ),
    _case(
        "`stty raw -echo` and echo on again",
        Step("stty raw </dev/tty 2>/dev/null; echo a", judge=has("a")),
        Step("stty sane echo </dev/tty 2>/dev/null; true", judge=anything),
        Step("printf 'a\\nb\\n'", out="a\nb\n", status=0),
        kinds=(SHELL,),
    ),
    _case(
        "functions named like builtins",
        Step(
            "printf() { :; }; eval() { :; }; test() { return 1; }; exit() { :; }; trap() { :; }",
            out="",
        ),
        Step("(command exit 4)", out="", status=4),
        Step("echo ok", out="ok\n", status=0),
        Step("unset -f printf eval test exit trap", judge=anything),
        kinds=(SHELL,),
    ),
    _case(
        "aliases, where they are asked for",
        Step("shopt -s expand_aliases; alias hello='echo hi' exit=true test=false set=: unset=:", out=""),
        Step("hello; (command exit 4)", out="hi\n", status=4),
        Step("unalias -a", judge=anything),
        kinds=(SHELL,),
        needs=BASH,
    ),
    _case(
        "`exec 2>&-` and `exec <&-`",
        Step("exec 2>&- <&-; echo a", out="a\n", status=0),
        Step("echo b; (exit 3)", out="b\n", status=3),
        kinds=(SHELL,),
    ),
    _case(
        "IFS=0123456789",
        Step("IFS=0123456789", out=""),
        Step("(exit 143)", out="", status=143),
        kinds=(SHELL,),
    ),
    _case(
        "a PATH that leads nowhere",
        Step("PATH=/nowhere", out=""),
        Step("echo a; (exit 3)", out="a\n", status=3),
        kinds=(SHELL,),
    ),
    _case(
        "`readonly` prompts",
        Step("readonly PS1='$ ' PS2=more PROMPT_COMMAND=:", judge=anything),
        Step("echo a; (exit 3)", out="a\n", status=3),
        kinds=(SHELL,),
        needs=BASH,
    ),
    _case(
        "TMOUT=1",
        Step("TMOUT=1; sleep 2; echo a", out="a\n", status=0),
        Step("sleep 2; echo b", out="b\n", status=0),
        kinds=(SHELL,),
        needs=BASH,
    ),
    _case(
        "`set -u` and an unset variable",
        Step("set -u", out=""),
        Step('echo "$NOPE"; echo no', judge=fails),
        kinds=(SHELL,),
        needs=STATUS,
    ),
    _case(
        "`set -euo pipefail` in a shell",
        Step("set -euo pipefail", out="", status=0),
        Step("echo a", out="a\n", status=0),
        Step("false", status=1),
        kinds=(SHELL,),
        needs=f"{STATUS} {BASH}",
    ),
    _case(
        "a DEBUG and an ERR trap",
        Step("trap 'echo DBG' DEBUG; trap 'echo ERR' ERR", judge=anything),
        Step("true", out="DBG\n", status=0),
        # bash runs the DEBUG trap for the command in the ERR trap too.
        Step("false", out="DBG\nDBG\nERR\n", status=1),
        Step("trap - DEBUG ERR", judge=anything),
        kinds=(SHELL,),
        needs=BASH,
    ),
    _case(
        "a background job prints while others run",
        Step("(for i in 1 2 3 4 5 6 7 8; do echo noise; sleep 0.1; done) & true", judge=anything),
        Step("echo result; (exit 7)", status=7, judge=has("result")),
        Step("sleep 1.5", judge=anything),
        Step("echo clean", out="clean\n", status=0),
        kinds=(SHELL,),
    ),
)
