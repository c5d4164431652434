"""This machine: subprocess for pipes, ptyprocess for terminals."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping

import ptyprocess

from sandbox.errors import BackendError
from sandbox.values import Chunk, PtySize, SpawnRequest

_READ_BYTES = 64 * 1024
# Names that a program needs to work at all; secrets of the host are not among them.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "TMPDIR")


def base_environment(host: Mapping[str, str], inherit_all: bool) -> dict[str, str]:
    """What a program on this machine starts with: an allow-list, or everything if asked for."""
    if inherit_all:
        return dict(host)
    kept = {name: host[name] for name in INHERITED if name in host}
    kept.setdefault("PATH", os.defpath)
    kept.setdefault("HOME", "/")
    kept.setdefault("LANG", "C.UTF-8")
    return {**kept, "TERM": "dumb"}


class LocalBackend:
    """Programs on this machine, as the user who runs coderig. There is no isolation."""

    def __init__(self, *, inherit_env: bool = False) -> None:
        self._env = base_environment(os.environ, inherit_env)

    def spawn(self, request: SpawnRequest) -> PipeProcess | PtyProcess:
        """See Backend.spawn."""
        env = {**self._env, **request.env}
        try:
            if request.pty is None:
                return PipeProcess(list(request.argv), env)
            return PtyProcess(list(request.argv), env, request.pty)
        except (OSError, ptyprocess.PtyProcessError) as error:
            raise BackendError(f"cannot start {request.argv[0]!r} on this machine: {error}") from error

    def close(self) -> None:
        """Nothing is held for the place itself."""


class PipeProcess:
    """A program on three pipes, in a session of its own."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self._child = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            cwd="/",
        )
        assert self._child.stdin and self._child.stdout and self._child.stderr
        self._stdin = self._child.stdin
        self._open = {self._child.stdout.fileno(): "stdout", self._child.stderr.fileno(): "stderr"}
        self._poller = select.poll()
        for fd in self._open:
            self._poller.register(fd, select.POLLIN)
        os.set_blocking(self._stdin.fileno(), False)
        self._lock = threading.Lock()

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        got = {"stdout": b"", "stderr": b""}
        ready = self._poller.poll(timeout_s * 1000) if self._open else []
        with self._lock:  # see _write
            for fd, _ in ready:
                if fd not in self._open:
                    continue
                data = os.read(fd, _READ_BYTES)
                got[self._open[fd]] = data
                if not data:
                    self._poller.unregister(fd)
                    del self._open[fd]
            return Chunk(got["stdout"], got["stderr"], eof=not self._open)

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write."""
        return _write(
            lambda: None if self._stdin.closed else self._stdin.fileno(), self._lock, data, timeout_s
        )

    def close_stdin(self) -> None:
        """See Process.close_stdin."""
        with self._lock:
            self._stdin.close()

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal."""

    def poll(self) -> int | None:
        """See Process.poll."""
        return _status(self._child.poll())

    def close(self) -> None:
        """See Process.close."""
        with self._lock:
            self._open.clear()
            for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
                if stream is not None:
                    stream.close()
            if self._child.poll() is None:
                # Left alone on purpose; a thread waits for it, so that it is not a zombie afterwards.
                threading.Thread(target=self._child.wait, daemon=True, name="coderig-reap").start()


class PtyProcess:
    """A program on a terminal, in a session of its own."""

    def __init__(self, argv: list[str], env: dict[str, str], size: PtySize) -> None:
        self._child = ptyprocess.PtyProcess.spawn(
            argv, env=env, cwd="/", echo=False, dimensions=(size.rows, size.columns)
        )
        self._fd: int = self._child.fd
        os.set_blocking(self._fd, False)
        self._poller = select.poll()
        self._poller.register(self._fd, select.POLLIN)
        self._lock = threading.Lock()
        self._closed = False

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        if self._closed:
            return Chunk(eof=True)
        if not self._poller.poll(timeout_s * 1000):
            return Chunk()
        with self._lock:
            return Chunk(eof=True) if self._closed else self._read()

    def _read(self) -> Chunk:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return Chunk()
        except OSError as error:
            # EIO is how Linux reports a terminal whose other side is closed.
            if error.errno in (errno.EIO, errno.EBADF):
                return Chunk(eof=True)
            raise
        return Chunk(stdout=data, eof=not data)

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write."""
        return _write(lambda: None if self._closed else self._fd, self._lock, data, timeout_s)

    def close_stdin(self) -> None:
        """A terminal has no end of input to give."""

    def resize(self, columns: int, rows: int) -> None:
        """See Process.resize."""
        with self._lock:
            if not self._closed:
                self._child.setwinsize(rows, columns)

    def poll(self) -> int | None:
        """See Process.poll."""
        with self._lock:
            if self._child.isalive():
                return None
        if self._child.signalstatus is not None:
            return 128 + int(self._child.signalstatus)
        return int(self._child.exitstatus or 0)

    def close(self) -> None:
        """See Process.close."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._child.fileobj.close()
            self._child.closed = True
        if self.poll() is None:
            # The kernel has hung up on the session; a leader that ignores this is ended.
            threading.Thread(target=self._reap, daemon=True, name="coderig-reap").start()

    def _reap(self) -> None:
        try:
            os.kill(self._child.pid, signal.SIGHUP)
            os.waitpid(self._child.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def _write(descriptor: Callable[[], int | None], lock: threading.Lock, data: bytes, timeout_s: float) -> int:
    """Write under the lock that closing takes too, asking for the descriptor each time.

    A descriptor's number is given to the next file that is opened once it is closed: a thread that still
    wrote to the number would feed one program's input to another. The same holds for reading."""
    until = time.monotonic() + timeout_s
    while True:
        with lock:
            fd = descriptor()
            if fd is None:
                return len(data)
            try:
                return os.write(fd, data[:_READ_BYTES])
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EIO, errno.EBADF):
                    return len(data)
                raise
        left_s = until - time.monotonic()
        if left_s <= 0:
            return 0
        # Waiting on a number that has changed hands only wakes too early; the lock's side decides.
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        poller.poll(min(left_s, 0.05) * 1000)


def _status(code: int | None) -> int | None:
    return code if code is None or code >= 0 else 128 - code
