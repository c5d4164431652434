"""The references: real shells that run a script from a file, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox import Sandbox

# As long as a call waits for a background child that keeps a stream open (sandbox/call.py).
_QUIET_S = 0.1
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave. `stderr` is empty where both streams are one."""

    code: int
    stdout: bytes
    stderr: bytes = b""
    timed_out: bool = False


class Runner(Protocol):
    """Runs a program to its end in a directory, with /dev/null as input."""

    def run(self, argv: Sequence[str], cwd: str, merged: bool, timeout_s: float) -> Outcome:
        """merged: both streams are one, in the order of writing."""
        ...


class LocalRunner:
    """Programs of this machine; nothing of the product is used."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)

    def run(self, argv: Sequence[str], cwd: str, merged: bool, timeout_s: float) -> Outcome:
        """See Runner.run."""
        with subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            start_new_session=True,
        ) as child:
            streams, timed_out = _collect(child, time.monotonic() + timeout_s)
            if timed_out:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        return Outcome(status if status >= 0 else 128 - status, *streams, timed_out=timed_out)


def _collect(child: subprocess.Popen[bytes], until_s: float) -> tuple[tuple[bytes, bytes], bool]:
    """Both streams up to the child's end and a little silence; True if time or size ran out."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    with selectors.DefaultSelector() as selector:
        for name in kept:
            stream = getattr(child, name)
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, name)
        quiet_s = 0.002
        over = False
        while selector.get_map() and not over:
            gone = child.poll() is not None
            ready = selector.select(_QUIET_S if gone else quiet_s)
            quiet_s = min(quiet_s * 2, _QUIET_S)
            if gone and not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, 65_536)
                kept[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
            over = time.monotonic() > until_s or len(kept["stdout"]) + len(kept["stderr"]) > _MAX_BYTES
    while not over and child.poll() is None:
        time.sleep(0.0005)
        over = time.monotonic() > until_s
    return (bytes(kept["stdout"]), bytes(kept["stderr"])), over


class PlaceRunner:
    """Programs of another place, carried there by list commands: the place's shell reads a file itself."""

    def __init__(self, box: Sandbox, env: Mapping[str, str]) -> None:
        self._box = box
        self._env = env

    def run(self, argv: Sequence[str], cwd: str, merged: bool, timeout_s: float) -> Outcome:
        """See Runner.run."""
        words = ["env", "-i", *(f"{name}={value}" for name, value in self._env.items()), *argv]
        if merged:
            words = ["sh", "-c", 'exec "$@" 2>&1', "sh", *words]
        result = self._box.exec(words, cwd=cwd, timeout_s=timeout_s)
        return Outcome(
            result.exit_code, result.stdout_output.data, result.stderr_output.data, result.timed_out
        )


def environment(box: Sandbox) -> dict[str, str]:
    """What a one-shot command of the place starts with, less the marker and what every shell sets itself."""
    said = box.exec(["env", "-0"]).stdout_output.data
    own = ("PWD", "OLDPWD", "SHLVL", "_", "CODERIG_EXEC")
    pairs = (each.decode("utf-8", "surrogateescape").partition("=") for each in said.split(b"\0") if each)
    return {name: value for name, _, value in pairs if name not in own}


@dataclass(frozen=True, slots=True)
class State:
    """What a shell handed on: `$?`, its directory as it says and as it is, its exported environment."""

    status: str
    cwd: str
    real_cwd: str
    env: tuple[tuple[str, str], ...]

    def difference(self, other: State) -> str:
        """In words, what `other` has otherwise."""
        words = [
            f"{what}: expected {mine!r}, got {theirs!r}"
            for what, mine, theirs in (
                ("$?", self.status, other.status),
                ("cwd", self.cwd, other.cwd),
                ("real cwd", self.real_cwd, other.real_cwd),
            )
            if mine != theirs
        ]
        missing = dict(set(self.env) - set(other.env))
        more = dict(set(other.env) - set(self.env))
        if missing or more:
            words.append(f"environment: expected {missing!r}, got {more!r}")
        return "; ".join(words)


# Set by every shell for itself, or by the product for what a named shell is: a terminal without pagers.
_UNEQUAL = (
    "_",
    "SHLVL",
    "CODERIG_EXEC",
    "CODERIG_TERMINAL",
    "SSH_TTY",
    "TERM",
    "COLUMNS",
    "LINES",
    "OLDPWD",
    "PS1",
    "PS2",
)  # N1, N2


@dataclass(frozen=True, slots=True)
class Observer:
    """Writes a shell's state to a file, by two programs whose absolute paths nothing can hide."""

    env: str
    readlink: str
    path: str

    def line(self) -> str:
        """Shell text for one line; nothing that a script changed redirects it."""
        return (
            f'{self.env} -0 CR_FUZZ_STATUS="$?" CR_FUZZ_PWD="${{PWD-}}" '
            f">|{self.path} 2>/dev/null </dev/null; "
            f"{self.readlink} /proc/self/cwd >>{self.path} 2>/dev/null </dev/null"
        )

    @staticmethod
    def parse(data: bytes) -> State | None:
        """What `line` wrote; None if it was not reached."""
        if not data:
            return None
        *pairs, real = data.split(b"\0")
        env: dict[str, str] = {}
        for pair in pairs:
            name, _, value = pair.decode("utf-8", "surrogateescape").partition("=")
            env[name] = value
        status, cwd = env.pop("CR_FUZZ_STATUS", "?"), env.pop("CR_FUZZ_PWD", "?")
        kept = tuple(sorted((name, value) for name, value in env.items() if name not in _UNEQUAL))
        return State(status, cwd, real.decode("utf-8", "surrogateescape").rstrip("\n"), kept)
