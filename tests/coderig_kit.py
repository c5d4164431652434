"""Drives the real command line: as a process, with pipes or on a terminal."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ptyprocess

ROOT = Path(__file__).parent.parent
LIMIT_S = 30.0
Script = list[Mapping[str, Any] | str]
"""What a scripted model says, answer by answer."""


def wait_until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Wait for a condition, a bounded time."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"waited {limit_s:g} s for {what}"
        time.sleep(0.02)


def call(name: str, id: str = "", **arguments: Any) -> dict[str, Any]:
    """A call in a script."""
    return {"name": name, "arguments": arguments, **({"id": id} if id else {})}


def command(cmd: str, id: str = "", **more: Any) -> dict[str, Any]:
    """An answer in a script that runs one command."""
    return {"calls": [call("exec_command", id, cmd=cmd, **more)]}


def _trace(text: str) -> bool:
    return any(line.startswith("Traceback") for line in text.splitlines())


@dataclass
class Finished:
    """What a process left."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; fails on anything else there."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Cli:
    """The command line with a home of its own. `work`: the directory it is started in."""

    home: Path
    work: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What the process gets; nothing of the developer's settings but the path."""
        base = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        return {**base, "PYTHONPATH": str(ROOT), "CODERIG_HOME": str(self.home / "state"), **self.env}

    @property
    def argv(self) -> list[str]:
        """How it is started."""
        return [sys.executable, "-m", "coderig"]

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start it, with pipes for what is not given, and no input."""
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        return subprocess.Popen(
            [*self.argv, *arguments],
            cwd=self.work,
            env={**self.environment, **(env or {})},
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            **streams,
        )

    def run(
        self, *arguments: str, input: str | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> Finished:
        """Run it to its end."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, env=env, **options)
        try:
            out, err = process.communicate(input, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{arguments} did not end: {process.communicate()}") from None
        finished = Finished(process.returncode, out or "", err or "")
        assert not _trace(finished.out + "\n" + finished.err), finished
        return finished

    def script(self, answers: Sequence[Mapping[str, Any] | str], name: str = "script.jsonl") -> str:
        """A model that says this; its name for --model."""
        lines = [json.dumps({"text": each} if isinstance(each, str) else each) for each in answers]
        (self.work / name).write_text("\n".join(lines), "utf-8")
        return f"script:{name}"

    def ids(self) -> list[str]:
        """The runs that are kept."""
        runs = self.home / "state" / "runs"
        return sorted(path.name for path in runs.iterdir()) if runs.exists() else []

    @property
    def only_id(self) -> str:
        """The one run that is kept."""
        (found,) = self.ids()
        return found

    def records(self, run_id: str) -> list[dict[str, Any]]:
        """The journal of a run."""
        path = self.home / "state" / "runs" / run_id / "journal.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def outputs(self, run_id: str) -> dict[str, list[str]]:
        """Call id -> the outputs that the conversation holds for it, from the journal."""
        found: dict[str, list[str]] = {}
        for record in self.records(run_id):
            for item in record.get("items", []):
                wire = json.loads(item["raw"])
                if wire["type"] == "function_call":
                    found.setdefault(wire["call_id"], [])
            if record["record"] == "output":
                wire = json.loads(record["item"]["raw"])
                found[wire["call_id"]].append(wire["output"])
        return found

    def terminal(self, *arguments: str) -> Terminal:
        """Start it on a terminal."""
        env = {**self.environment, "TERM": "dumb"}
        child = ptyprocess.PtyProcess.spawn(
            [*self.argv, *arguments], cwd=str(self.work), env=env, echo=False, dimensions=(40, 200)
        )
        return Terminal(child)


class Terminal:
    """The command line on a terminal, as a person has it."""

    def __init__(self, child: Any) -> None:
        self._child = child
        self._at = 0
        self.seen = ""

    def expect(self, text: str) -> None:
        """Read until the text has come, behind what was expected before."""
        end = time.monotonic() + LIMIT_S
        while (found := self.seen.find(text, self._at)) < 0:
            assert self._read(end), f"{text!r} did not come: {self.seen!r}"
        self._at = found + len(text)

    def _read(self, end_s: float) -> bool:
        """More of the screen; False at its end, or when the time is over."""
        ready, _, _ = select.select([self._child.fd], [], [], max(0.0, end_s - time.monotonic()))
        try:
            self.seen += self._child.read(65536).decode("utf-8", "replace") if ready else ""
        except EOFError:
            return False
        return bool(ready)

    def type(self, text: str) -> None:
        """What a person types."""
        self._child.write(text.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        end = time.monotonic() + LIMIT_S
        while self._read(end):
            pass
        assert time.monotonic() < end, self.seen
        self._child.wait()
        assert not _trace(self.seen), self.seen
        status = self._child.exitstatus
        assert status is not None, f"signal {self._child.signalstatus}"
        return int(status)
