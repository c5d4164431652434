"""A machine that is reached over SSH: programs on channels of one connection, or of a few.

The server hands each command line to the user's login shell, whatever that is, so the line is built
from what every shell reads alike; the environment travels in it, because servers refuse to take it.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence

from sandbox.backends.ssh_config import SshOptions, resolve
from sandbox.backends.ssh_connection import SEND_FAILURES, ChannelRefused, Connection, ConnectionGone, Program
from sandbox.backends.ssh_known_hosts import HostKey
from sandbox.backends.ssh_login import connect
from sandbox.errors import (
    BackendError,
    Closed,
    ConnectionLost,
    PlaceUnavailable,
    RequestError,
    TooManyPrograms,
)
from sandbox.values import Ahead, Chunk, Deadline, SpawnRequest

__all__ = ["SshBackend", "SshOptions", "SshProcess", "command_line"]

MAX_LINE_BYTES = 128 * 1024 - 1
"""Longest command line: the login shell gets it as one argument, and Linux takes no longer one."""
DEFAULT_TERM = "xterm-256color"
_READ_BYTES = 256 * 1024
_START_TRIES = 3
# A program on a terminal gets a hang-up first, and may take a moment to end.
_CLOSING_S = 2.0
# The status of a program follows the end of its output at once, but in a packet of its own.
_STATUS_WAIT_S = 0.05
_PROBE = "printf %s 'a\\\\b!c\nd'"
_PROBE_ANSWER = b"a\\\\b!c\nd"
_UNSAFE = re.compile(r"[^ -~]|[!'\\]")


def command_line(argv: Sequence[str], env: Mapping[str, str], *, posix: bool) -> bytes:
    """The line that makes a login shell become this program, with these variables added.

    posix  the login shell is known to read quotes as POSIX says. Otherwise the line holds only
           what sh, csh and fish read alike, and a sh in between restores the rest

    Raises RequestError for what cannot be said in a line."""
    words = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
    script = "exec " + " ".join(shlex.quote(word) for word in [*words, *argv])
    if "\0" in script:
        raise RequestError("an argument contains a NUL character, which no program can be given")
    data = script.encode("utf-8", "surrogateescape")
    if not posix and _UNSAFE.search(script):
        safe = "".join(_octal(byte) for byte in data)
        data = f"exec sh -c 'eval \"$(printf %b \"$0\")\"' '{safe}'".encode("ascii")
    if len(data) > MAX_LINE_BYTES:
        raise RequestError(f"the command line has {len(data)} bytes; at most {MAX_LINE_BYTES} can be carried")
    return data


def _octal(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and chr(byte) not in "!'\\" else f"\\0{byte:03o}"


class SshBackend:
    """A host behind SSH. Connects on the first spawn, and again on the next one after a connection
    was lost. See Backend."""

    ahead = Ahead(programs=2, shared=True)

    def __init__(self, options: SshOptions) -> None:
        """Raises RequestError for options or a config file that make no sense. Connects to nothing."""
        self.options = options
        self.name = resolve(options).name
        self._connections: list[Connection] = []
        self._accepted: dict[str, HostKey] = {}
        self._posix: bool | None = None
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._closed = threading.Event()

    def spawn(self, request: SpawnRequest) -> SshProcess:
        """See Backend.spawn. Raises PlaceUnavailable or BackendError if there is no connection,
        or no channel; then nothing was run."""
        for _ in range(_START_TRIES):
            program = self._open(spare=request.spare)
            try:
                env = dict(request.env)
                term = env.pop("TERM", DEFAULT_TERM) if request.pty is not None else ""
                program.start(command_line(request.argv, env, posix=bool(self._posix)), request.pty, term)
                return SshProcess(program, terminal=request.pty is not None)
            except ConnectionGone:
                program.close()
            except BaseException:
                program.close()
                raise
        raise self._unsteady()

    def _unsteady(self) -> ConnectionLost:
        return ConnectionLost(f"{self.name} drops each connection at once; nothing was run")

    def close(self) -> None:
        """See Backend.close."""
        self._closed.set()
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _open(self, *, spare: bool) -> Program:
        """A channel; if none is left, one that is closed on our side, once the server has closed it too."""
        until = Deadline.after(_CLOSING_S)
        while True:
            try:
                return self._find(spare=spare)
            except TooManyPrograms:
                closing = any(connection.makes_room for connection in self._standing())
                if spare or not closing or until.passed:
                    raise
            time.sleep(0.01)

    def _find(self, *, spare: bool) -> Program:
        """A channel: on a connection that stands, or else on a new one."""
        tried: list[Connection] = []
        # One connection may be lost while we look; more than that is no accident.
        for _ in range(self.options.max_connections + 2):
            for connection in self._standing():
                if connection in tried:
                    continue
                tried.append(connection)
                try:
                    return connection.open(self.options.connect_timeout_s)
                except ChannelRefused as error:
                    if not connection.serves:
                        raise BackendError(f"{self.name} opens no session at all: {error}") from error
                except ConnectionGone:
                    continue
            if spare and tried:
                raise TooManyPrograms(f"{self.name} has no channel to spare")
            self._grow(tried)
        raise self._unsteady()

    def _standing(self) -> list[Connection]:
        if self._closed.is_set():
            raise Closed("the sandbox is closed")
        with self._lock:
            standing = [connection for connection in self._connections if connection.alive]
        # The one with most room first: asking a full one costs a round trip.
        return sorted(standing, key=lambda connection: connection.open_programs)

    def _grow(self, tried: list[Connection]) -> None:
        """One connection more, unless somebody else has just made one."""
        with self._connecting:
            standing = self._standing()
            if any(connection not in tried for connection in standing):
                return
            if len(standing) >= self.options.max_connections:
                count = sum(connection.open_programs for connection in standing)
                raise TooManyPrograms(
                    f"{self.name}: server refused another channel ({count} open on {len(standing)} "
                    "connections; MaxSessions in its sshd_config); nothing was run"
                )
            try:
                made = connect(self.options, self._accepted, self._closed)
            except RequestError as error:
                if self._posix is None:
                    raise
                # What was asked for has worked before, and a caller may have run something since.
                raise PlaceUnavailable(f"{self.name} cannot be reached again: {error}") from error
            try:
                if self._posix is None:
                    self._posix = _reads_posix(made, self.options.connect_timeout_s)
            except (ConnectionGone, ConnectionLost):
                made.close()  # lost before it was used: the next turn makes another
                return
            except BaseException:
                made.close()
                raise
            with self._lock:
                dead = [connection for connection in self._connections if not connection.alive]
                self._connections = [*standing, made]
                closed = self._closed.is_set()
            for connection in dead:
                connection.close()
            if closed:
                self.close()


def _reads_posix(connection: Connection, limit_s: float) -> bool:
    """Whether the login shell reads quotes as POSIX says. Raises BackendError if it runs nothing,
    ConnectionGone or ConnectionLost if the connection is."""
    deadline = Deadline.after(limit_s)
    said = b""
    for line, posix in (
        (_PROBE.encode("ascii"), True),
        (command_line(["printf", "%s", _PROBE_ANSWER.decode("ascii")], {}, posix=False), False),
    ):
        try:
            program = connection.open(deadline.remaining_s())
        except ChannelRefused as error:
            raise BackendError(f"{connection.name} opens no session: {error}") from error
        process = SshProcess(program, terminal=False)
        try:
            program.start(line, None, "")
            process.close_stdin()
            output = _read_all(process, deadline)
        finally:
            process.close()
        # A start file of the shell may print in front of it.
        if output.endswith(_PROBE_ANSWER):
            return posix
        if deadline.passed:
            raise PlaceUnavailable(
                f"{connection.name}: the login shell does not answer within {limit_s:g} s (slow start files?)"
            )
        said = output or said
    text = said.decode("utf-8", "replace").strip()[-300:]
    raise BackendError(f"{connection.name} runs no commands; it said: {text or 'nothing'}")


def _read_all(process: SshProcess, deadline: Deadline) -> bytes:
    output = errors = b""
    while not deadline.passed:
        chunk = process.read(deadline.remaining_s())
        output += chunk.stdout
        errors += chunk.stderr
        if chunk.eof:
            break
    return output or errors


class SshProcess:
    """A program on a channel. See Process."""

    def __init__(self, program: Program, *, terminal: bool) -> None:
        self._program = program
        self._channel = program.channel
        self._terminal = terminal
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        self._ended_s = 0.0

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        until_s = time.monotonic() + timeout_s
        while True:
            self._program.wake.clear()
            chunk, wait_s = self._look()
            if chunk is not None:
                return chunk
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return Chunk(eof=wait_s is not None)
            self._program.wake.wait(left_s if wait_s is None else min(left_s, wait_s))

    def _look(self) -> tuple[Chunk | None, float | None]:
        """What is there, or None; and if it is the end of the output, how long to wait for the status."""
        program = self._program
        if self._closed:
            return Chunk(eof=True), None
        with self._reading:
            # Asked first: what comes in between is found by the next look.
            ended = bool(self._channel.eof_received) or program.over
            lost = program.lost
            out, err = program.take(_READ_BYTES)
        if out or err:
            return Chunk(out, err), None
        if not ended:
            if lost and not self._closed:
                raise self._failure()
            return None, None
        if self._status() is not None or program.over:
            return Chunk(eof=True), None
        now_s = time.monotonic()
        self._ended_s = self._ended_s or now_s
        wait_s = self._ended_s + _STATUS_WAIT_S - now_s
        return (None, wait_s) if wait_s > 0 else (Chunk(eof=True), None)

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write."""
        until_s = time.monotonic() + timeout_s
        if not self._writing.acquire(timeout=max(0.0, timeout_s)):
            return 0
        sent = 0
        try:
            while sent < len(data):
                if self._deaf():
                    return len(data)
                self._channel.settimeout(max(0.0, until_s - time.monotonic()))
                count = self._channel.send(data[sent : sent + _READ_BYTES])
                if count == 0:
                    return len(data)
                sent += count
            return sent
        except TimeoutError:
            return sent
        except SEND_FAILURES as error:
            if self._program.lost and not self._closed:
                raise self._failure() from error
            return len(data)
        finally:
            self._channel.settimeout(0.0)
            self._writing.release()

    def _deaf(self) -> bool:
        """Whether nobody will read what is written."""
        if self._closed:
            return True
        if self._program.lost:
            raise self._failure()
        return bool(self._channel.eof_sent) or self._channel.closed

    def close_stdin(self) -> None:
        """See Process.close_stdin."""
        if not self._terminal and not self._closed:
            try:
                self._channel.shutdown_write()
            except SEND_FAILURES:
                return  # the reader meets the same failure and reports it

    def resize(self, columns: int, rows: int) -> None:
        """See Process.resize."""
        if self._terminal and not self._channel.closed:
            try:
                self._channel.resize_pty(columns, rows)
            except SEND_FAILURES:
                return  # as above

    def poll(self) -> int | None:
        """See Process.poll. Raises ConnectionLost or BackendError if there will never be a status."""
        return self._status()

    def close(self) -> None:
        """See Process.close."""
        if not self._closed:
            self._closed = True
            self._program.close()

    def _status(self) -> int | None:
        program = self._program
        # Asked first: the status comes before the end of the channel.
        hopeless = program.over or program.refused or program.lost
        if program.status is None and hopeless and not self._closed:
            raise self._failure()
        return program.status

    def _failure(self) -> BackendError:
        """Why there is no more to come from a program that has not come to its end."""
        program, name = self._program, self._program.connection.name
        if program.refused:
            what = "a terminal or a program" if self._terminal else "a program"
            return BackendError(f"{name} refused to start {what} on a channel")
        if program.over:
            return ConnectionLost(
                f"{name} closed the channel and did not say how the program ended: outcome unknown"
            )
        return self._lost()

    def _lost(self) -> ConnectionLost:
        connection = self._program.connection
        return ConnectionLost(
            f"the connection to {connection.name} is lost ({connection.why}): outcome unknown; not run again"
        )
