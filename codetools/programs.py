"""What is known of programs that run others: their options, and how they are given a program. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codetools.commands import Stdin, Word
from codetools.grammar import names
from codetools.quoting import UNKNOWN

Words = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Carrier:
    """How a program that runs another one takes its own options.

    flags   letters of options without a value; `valued` of those with one; long options likewise
    skip    how many words stand between the options and the inner program
    own     it needs a rule of its own, because it changes who or where the inner program is
    """

    flags: str = ""
    valued: str = ""
    long_flags: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    skip: int = 0
    own: bool = False
    assigns: bool = False


def _carrier(
    flags: str = "", valued: str = "", long: str = "", skip: int = 0, own: bool = False, assigns: bool = False
) -> Carrier:
    words = long.split()
    long_flags = frozenset(name for name in words if not name.endswith("="))
    long_valued = frozenset(name[:-1] for name in words if name.endswith("="))
    return Carrier(flags, valued, long_flags, long_valued, skip, own, assigns)


_SUDO = _carrier(
    "AbBEeHiKklnPsSVv", "aCcDghpRrtTuU",
    "background preserve-env login non-interactive reset-timestamp set-home shell stdin user= group= host= "
    "chdir= prompt= chroot= role= type= close-from= command-timeout=",
    own=True, assigns=True,
)  # fmt: skip
CARRIERS = {
    "env": _carrier("i0v", "uC", "ignore-environment null debug unset= chdir=", assigns=True),
    "sudo": _SUDO,
    "doas": _carrier("Lns", "aCu", own=True),
    "nohup": _carrier(),
    "setsid": _carrier("cfw", "", "ctty fork wait"),
    "nice": _carrier("", "n", "adjustment="),
    "ionice": _carrier("t", "cn", "ignore class= classdata="),
    "chrt": _carrier("abdfioRrv", "DPT", "", skip=1),
    "taskset": _carrier("ac", "", "cpu-list", skip=1),
    "time": _carrier("apqvV", "fo", "append portability quiet verbose format= output="),
    "timeout": _carrier("fpv", "ks", "foreground preserve-status verbose kill-after= signal=", skip=1),
    "stdbuf": _carrier("", "ioe", "input= output= error="),
    "unbuffer": _carrier("p"),
    "command": _carrier("p"),
    "builtin": _carrier(),
    "exec": _carrier("cl", "a"),
    "coproc": _carrier(),
    "caffeinate": _carrier("dimsu", "tw"),
    "xargs": _carrier(
        "0prtxoe", "adEILnPs",
        "null no-run-if-empty interactive verbose exit open-tty arg-file= delimiter= eof= replace= "
        "max-lines= max-args= max-procs= max-chars= process-slot-var=",
    ),
    "strace": _carrier("cCdDfFhikqrtTvVwxyYzZn", "abeEIoOpPsSuUX", own=True),
    "ltrace": _carrier("bcCfhiLrStTV", "aADeElnopsuwxX", own=True),
    "chroot": _carrier("", "", "skip-chdir userspec= groups=", skip=1, own=True),
    "flock": _carrier("exsnuo", "wE", "exclusive shared nonblock unlock close timeout= wait=", skip=1),
    "watch": _carrier("bcdegtxw", "n", "beep color differences errexit chgexit no-title exec interval="),
}  # fmt: skip
PIPES_ARGUMENTS = {"xargs"}
LATE_SHELL_TEXT = {"watch"}

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh"}
_INLINE = {
    "python": "c", "pypy": "c", "ipython": "c", "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep",
    "php": "rBRE", "lua": "e", "luajit": "e", "osascript": "e", "Rscript": "e", "R": "e", "ghc": "e",
    "deno": "", "bun": "e", "tclsh": "", "guile": "c", "sqlite3": "", "gdb": "",
}  # fmt: skip
_INLINE_LONG = {"--eval", "--print", "--run", "--command", "--init-eval-command"}
NEUTRAL = names(": true false [ test exit return break continue wait shift set shopt umask")
NEUTRAL_DECLARATIONS = names("export declare typeset readonly local unset")
_ARITHMETIC = NEUTRAL_DECLARATIONS | names("let read printf test [ mapfile readarray wait getopts")
_REMOTE = names("ssh rsh telnet mosh parallel nsenter unshare systemd-run at batch crontab")
_HIDDEN_RUNNERS = {
    "bind": ("-x",),
    "complete": ("-C", "-F"),
    "compgen": ("-C", "-F"),
    "mapfile": ("-C",),
    "readarray": ("-C",),
    "hash": ("-p",),
    "enable": ("-f",),
    "fc": ("",),
    "history": ("-s", "-p"),
}
GIT_VALUED = names("-C --git-dir --work-tree --namespace --super-prefix --attr-source --list-cmds")
GIT_FLAGS = names(
    "-p --paginate -P --no-pager --no-replace-objects --bare --literal-pathspecs --glob-pathspecs"
    " --noglob-pathspecs --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice"
)
GIT_HARMLESS = re.compile(
    r"(?:color|advice|column|user|format)\.|core\.(?:quotepath|autocrlf)=|init\.defaultbranch=", re.IGNORECASE
)


def after_options(carrier: Carrier, words: Words) -> tuple[int, str]:
    """Where a carrier's own options end, and a doubt if they cannot be told apart from the rest."""
    at = 1
    while at < len(words):
        text = words[at].text
        if words[at].dynamic and not text.startswith(UNKNOWN + "="):
            return at, "an option is made when it runs" if text.startswith(("-", UNKNOWN)) else ""
        if text == "--":
            return at + 1, ""
        if not text.startswith("-") or text == "-" and carrier.skip:
            return at, ""
        step = _option_width(carrier, text)
        if not step:
            return at + 1, f"the option {text} is not known"
        at += step
    return at, ""


def _option_width(carrier: Carrier, text: str) -> int:
    """How many words an option takes; 0 if it is not known."""
    if text == "-":
        return 1
    if text.startswith("--"):
        name, equals, _ = text[2:].partition("=")
        if name in carrier.long_valued:
            return 1 if equals else 2
        return 1 if name in carrier.long_flags else 0
    for index, letter in enumerate(text[1:], 1):
        if letter in carrier.valued:
            return 1 if index + 1 < len(text) else 2
        if letter not in carrier.flags:
            return 1 if re.fullmatch(r"-\d+", text) else 0
    return 1


def hidden(name: str, words: Words) -> str:
    """Builtins that keep or evaluate text which runs later."""
    if name in _HIDDEN_RUNNERS and any(
        w.text.startswith(o) for w in words[1:] for o in _HIDDEN_RUNNERS[name]
    ):
        return f"{name} can make the shell run text later"
    if name in _REMOTE:
        return f"{name} runs commands where they cannot be seen"
    if name in _ARITHMETIC and any(re.search(r"\$\(|`", w.text) for w in words[1:]):
        return "the shell may evaluate text that holds a command"
    return ""


def inline(name: str, words: Words, stdin: Stdin) -> str:
    """Interpreters that are given a program on the command line or on their input."""
    base = re.sub(r"[\d.]+$", "", name) or name
    letters = _INLINE.get(name, _INLINE.get(base))
    if letters is None:
        return ""
    script = False
    for word in words[1:]:
        text = word.text
        if text in _INLINE_LONG or text.split("=")[0] in _INLINE_LONG:
            return f"{name} is given a program on the command line"
        if text == "-" or word.dynamic and not script:
            return f"{name} is given a program that is not in a file"
        if not text.startswith("-"):
            script = True
            break
        if letters and not text.startswith("--") and any(letter in text for letter in letters):
            return f"{name} is given a program on the command line"
        if text in {"-m", "-V", "--version", "-h", "--help"} or text.startswith("-m"):
            script = True
            break
    return (
        ""
        if script or stdin == "inherited" and len(words) > 1
        else f"{name} reads its program from its input"
    )


def git_runner(rest: Words) -> str:
    """Git options that name a program to run."""
    if not rest:
        return ""
    runs = (
        "-O",
        "--open-files-in-pager",
        "--ext-diff",
        "--upload-pack",
        "--receive-pack",
        "-u",
        "--exec",
        "-x",
        "--extcmd",
    )
    commands = {
        "grep",
        "log",
        "diff",
        "show",
        "fetch",
        "pull",
        "clone",
        "ls-remote",
        "rebase",
        "difftool",
        "archive",
    }
    by_option = any(w.text.startswith(runs) for w in rest[1:]) and rest[0].text in commands
    exact = any(w.text.split("=")[0] in runs or w.text.startswith("-O") for w in rest[1:])
    return "an option of git names a program to run" if by_option and exact else ""
