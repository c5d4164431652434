"""`coderig serve-script`: a script as a model, for trials of any client."""

from __future__ import annotations

import threading
from pathlib import Path

from coderig.guard import UsageError
from coderig.signals import OK, Interrupted
from coderig.terminal_io import Stream
from codetools.render import clean
from runtime.models.script_server import ScriptServer
from runtime.models.scripted import read_script


def serve_script(file: Path, host: str, port: int) -> int:
    """Serve until a signal. Raises UserError for a bad script, UsageError where it cannot listen."""
    answers = read_script(file)
    try:
        server = ScriptServer(answers, host=host, port=port)
    except OSError as error:
        raise UsageError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
    remarks = Stream(2, quiet=True)

    def tell(path: str, status: int, words: str) -> None:
        remarks.write(f"{status} {clean(path)}{': ' if words else ''}{clean(words)}\n")

    server.on_answer = tell
    with server:
        try:
            Stream(1).write(f"openai     {server.openai_url}\nanthropic  {server.url}\n")
            threading.Event().wait()
        except Interrupted:
            return OK
    return OK
