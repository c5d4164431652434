"""What `coderig up` tells: words for a person, or JSON lines for a program."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from coderig.guard import complain
from coderig.terminal_io import Stream
from sandbox.values import StreamName


class UpView:
    """Progress goes to standard error and the end to standard output; with JSON, all to standard output."""

    def __init__(self, *, json_lines: bool) -> None:
        self.json_lines = json_lines
        self._out, self._err = Stream(1), Stream(2, quiet=True)
        self._lock = threading.Lock()

    def say(self, words: str) -> None:
        """One line of progress."""
        if self.json_lines:
            self._json({"type": "progress", "text": words})
        else:
            self._err.write(f"{words}\n")

    def remark(self, words: str) -> None:
        """Something that a person should know."""
        if self.json_lines:
            self._json({"type": "remark", "text": words})
        else:
            complain(words)

    def output(self, stage: str, stream: StreamName, data: bytes) -> None:
        """What a lifecycle command prints."""
        if self.json_lines:
            text = data.decode("utf-8", "replace")
            self._json({"type": "output", "stage": stage, "stream": stream, "text": text})
            return
        with self._lock:
            # Standard output holds the result alone.
            self._err.write_bytes(data)

    def end(self, code: int, status: str, words: str, **more: Any) -> int:
        """How it ended; returns the exit code."""
        if self.json_lines:
            self._json({"type": "end", "status": status, "exit_code": code, "message": words, **more})
        elif code:
            complain(words)
        else:
            self._out.write(f"{words}\n")
        return code

    def _json(self, value: dict[str, Any]) -> None:
        with self._lock:
            self._out.write_bytes(json.dumps(value).encode("ascii") + b"\n")


class Log:
    """The log of a container's lifecycle commands, which `coderig logs` shows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append; a disk that is full costs the log, not the command."""
        with self._lock:
            try:
                self._path.touch(mode=0o600)
                with self._path.open("ab") as file:
                    file.write(data)
            except OSError as error:
                complain(f"cannot write {self._path}: {error.strerror}")
