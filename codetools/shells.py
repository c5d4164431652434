"""Named shells as a tool uses them."""

from __future__ import annotations

import shlex


def in_directory(command: str, directory: str) -> str:
    """The command, run in a directory of the shell's choosing; the shell stays there. "" changes nothing.

    If the directory cannot be entered, nothing of the command runs, whatever its shape: it is one argument
    of `eval`. A relative name gets `./`, so that `-` and a CDPATH mean nothing.
    """
    if not directory:
        return command
    path = directory if directory.startswith("/") else f"./{directory}"
    return f"cd -- {shlex.quote(path)} && eval {shlex.quote(command)}"
