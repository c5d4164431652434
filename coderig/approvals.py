"""Asks a person, in the terminal, about the calls of a run that need an answer."""

from __future__ import annotations

import sys
import termios
import unicodedata
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.text import Text

from coderig.terminal_io import Stream, console
from codetools.render import clean
from runtime import PendingApproval

_HELP = (
    "y runs it; n refuses it; n WORDS refuses it and tells the model WORDS; "
    "a runs it and everything that follows; q stops here, to go on later"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person decided. `words`: for the model, with a "no"."""

    kind: Literal["yes", "no", "all", "stop"]
    words: str = ""


def can_ask() -> bool:
    """Whether a person sits at a terminal: standard input to answer with, standard error to be asked on."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def ask(call: PendingApproval, stream: Stream) -> Answer:
    """Show one call and wait for the answer. The end of the input means "stop"."""
    screen = console(stream)
    show(call, screen)
    # What was typed before the question was shown does not answer it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    while True:
        screen.print(Text("  run it? [y/n/a/q/?] ", style="bold"), end="")
        line = sys.stdin.readline()
        if not line:
            return Answer("stop")
        answer = read_answer(line)
        if answer is not None:
            return answer
        screen.print(Text(f"  {_HELP}", style="dim"))


def read_answer(line: str) -> Answer | None:
    """What a line of a person means; None if it is no answer."""
    first, _, words = line.strip().partition(" ")
    match first.lower():
        case "y" | "yes" if not words:
            return Answer("yes")
        case "n" | "no":
            return Answer("no", words.strip())
        case "a" | "all" if not words:
            return Answer("all")
        case "q" | "quit" if not words:
            return Answer("stop")
    return None


def show(call: PendingApproval, screen: Console) -> None:
    """One call as a person is shown it: the tool, the rule, and exactly what it would do."""
    screen.print(Text(f"? {plain(call.tool)} needs an answer ({plain(call.call_id)})", style="bold yellow"))
    if call.reason:
        screen.print(Text(f"  {plain(call.reason)}", style="dim"))
    for line in plain(call.preview).splitlines() or [""]:
        screen.print(Text("  | ", style="dim").append(line, style=diff_style(line)))


def plain(text: str) -> str:
    """Text that looks like what it is: no control sequences, invisible characters as escapes."""
    return "".join(
        f"\\u{ord(letter):04x}" if unicodedata.category(letter) == "Cf" else letter for letter in clean(text)
    )


def diff_style(line: str) -> str:
    """How a line of a patch is shown."""
    if line.startswith("***") or line.startswith("@@"):
        return "cyan"
    return "green" if line.startswith("+") else "red" if line.startswith("-") else ""
