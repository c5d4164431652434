"""This machine: a program on three pipes, or on a terminal."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from sandbox.errors import BackendError
from sandbox.limits import with_limit
from sandbox.values import Ahead, Chunk, PtySize, SpawnRequest

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 64 * 1024
# What Linux gives a pipe, and what a program that fills it gets instead: half the work for floods.
_PIPE_BYTES, _WIDE_PIPE_BYTES = 64 * 1024, 1 << 20
# The end of the streams comes a moment before the end of the program.
_STATUS_WAIT_S = 0.05
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

    ahead = Ahead(programs=2)

    def __init__(self, *, inherit_env: bool = False) -> None:
        self._env = base_environment(os.environ, inherit_env)

    def spawn(self, request: SpawnRequest) -> PipeProcess | PtyProcess:
        """See Backend.spawn."""
        env = {**self._env, **request.env}
        try:
            if request.pty is None:
                return PipeProcess(list(request.argv), env)
            return PtyProcess(list(request.argv), env, request.pty)
        except OSError as error:
            message = f"cannot start {request.argv[0]!r} on this machine: {error}"
            raise BackendError(with_limit(message, error)) from error

    def close(self) -> None:
        """Nothing is held for the place itself."""


class _Child:
    """A child process of ours. Its end can be waited for, and its status is fetched once.

    end_fd  a descriptor that is readable when the child has ended; None once that is known, and
            where the kernel has no such descriptors (then `poll` is asked now and then)
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.end_fd: int | None = None
        self.status: int | None = None
        self._lost = ""
        self._told = False
        self._lock = threading.Lock()
        try:
            self.end_fd = os.pidfd_open(pid)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise

    def poll(self) -> int | None:
        """See Process.poll."""
        with self._lock:
            if self.status is None and not self._lost:
                self._wait(os.WNOHANG)
        if self._lost:
            raise BackendError(self._lost)
        return self.status

    @property
    def untold(self) -> bool:
        """Whether the child is known to have ended, and no read has been cut short to tell it."""
        return self.status is not None and not self._told

    def tell(self) -> None:
        """A read comes back with nothing, so that its caller asks for the status."""
        self._told = self.status is not None

    def forget(self) -> None:
        """Nobody asks any more: a child that still runs is waited for by a thread, or stays a zombie."""
        with self._lock:
            running = self.status is None and not self._lost
            self._close()
        if running:
            _reap(self.pid)

    def signal(self, number: int) -> None:
        with self._lock:
            if self.status is None and not self._lost:
                os.kill(self.pid, number)

    def _wait(self, options: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            self._lost = (
                f"the status of process {self.pid} is lost: this program ignores SIGCHLD, "
                "or another part of it has waited for the process"
            )
            self._close()
            return
        if pid:
            code = os.waitstatus_to_exitcode(status)
            self.status = code if code >= 0 else 128 - code
            self._close()

    def _close(self) -> None:
        if self.end_fd is not None:
            os.close(self.end_fd)
            self.end_fd = None


_unreaped: list[int] = []


def _reap(pid: int) -> None:
    """Wait for children that were let go, each in a thread; where none can be started, the next time."""
    _unreaped.append(pid)
    with contextlib.suppress(RuntimeError, IndexError):
        while True:
            waiting = _unreaped.pop()
            try:
                threading.Thread(target=_wait_for, args=(waiting,), daemon=True, name="coderig-reap").start()
            except RuntimeError:
                _unreaped.append(waiting)
                raise


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


class PipeProcess:
    """A program on three pipes, in a session of its own."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        fds: list[int] = []
        try:
            for _ in range(3):
                fds += os.pipe()
            program = subprocess.Popen(
                argv, env=env, stdin=fds[0], stdout=fds[3], stderr=fds[5], start_new_session=True, cwd="/"
            )
            # From here on it is waited for by _Child: Popen takes a status that is lost for a 0.
            program.returncode = 0
            self._child = _Child(program.pid)
        except BaseException:
            _close_all(fds)
            raise
        _close_all((fds[0], fds[3], fds[5]))
        self._stdin: int | None = fds[1]
        self._open = {fds[2]: "stdout", fds[4]: "stderr"}
        for fd in (fds[1], fds[2], fds[4]):
            os.set_blocking(fd, False)
        self._lock = threading.Lock()

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        got = {"stdout": b"", "stderr": b""}
        ready = _ready((*self._open, self._child.end_fd), 0 if self._child.untold else timeout_s)
        with self._lock:  # see _write
            for fd in ready:
                if fd not in self._open:
                    continue
                data = _read(fd)
                if data is None:
                    continue
                got[self._open[fd]] = data
                if len(data) == _PIPE_BYTES:
                    # Refused where the user's pipes hold as much as they may.
                    with contextlib.suppress(OSError):
                        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WIDE_PIPE_BYTES)
                if not data:
                    del self._open[fd]
                    os.close(fd)
            eof = not self._open
        if eof:
            _ready((self._child.end_fd,), min(timeout_s, _STATUS_WAIT_S))
        if self._child.end_fd in ready or eof:
            self._child.poll()
        if not (got["stdout"] or got["stderr"]):
            self._child.tell()
        return Chunk(got["stdout"], got["stderr"], eof=eof)

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write."""
        return _write(lambda: self._stdin, self._lock, data, timeout_s)

    def close_stdin(self) -> None:
        """See Process.close_stdin."""
        with self._lock:
            if self._stdin is not None:
                os.close(self._stdin)
                self._stdin = None

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal."""

    def poll(self) -> int | None:
        """See Process.poll."""
        return self._child.poll()

    def close(self) -> None:
        """See Process.close."""
        self.close_stdin()
        with self._lock:
            _close_all(self._open)
            self._open.clear()
        self._child.forget()


class PtyProcess:
    """A program on a terminal, in a session of its own."""

    def __init__(self, argv: list[str], env: dict[str, str], size: PtySize) -> None:
        fd, terminal = os.openpty()
        try:
            modes = termios.tcgetattr(terminal)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(terminal, termios.TCSANOW, modes)
            termios.tcsetwinsize(terminal, (size.rows, size.columns))
            self._child = _Child(_start_on_terminal(argv, env, os.ttyname(terminal)))
            os.set_blocking(fd, False)
        except BaseException:
            os.close(fd)
            raise
        finally:
            os.close(terminal)
        self._fd: int | None = fd
        self._lock = threading.Lock()

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        ready = _ready((self._fd, self._child.end_fd), 0 if self._child.untold else timeout_s)
        with self._lock:
            if self._fd is None:
                return Chunk(eof=True)
            data = self._read() if self._fd in ready else None
        if self._child.end_fd in ready:
            self._child.poll()
        if not data:
            self._child.tell()
        return Chunk(data or b"", eof=data == b"")

    def _read(self) -> bytes | None:
        assert self._fd is not None
        try:
            return _read(self._fd)
        except OSError as error:
            # EIO is how Linux reports a terminal whose other side is closed.
            if error.errno == errno.EIO:
                return b""
            raise

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write."""
        return _write(lambda: self._fd, self._lock, data, timeout_s)

    def close_stdin(self) -> None:
        """A terminal has no end of input to give."""

    def resize(self, columns: int, rows: int) -> None:
        """See Process.resize."""
        with self._lock:
            if self._fd is not None:
                termios.tcsetwinsize(self._fd, (rows, columns))

    def poll(self) -> int | None:
        """See Process.poll."""
        return self._child.poll()

    def close(self) -> None:
        """See Process.close."""
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
            # The kernel has hung up on the foreground; the leader is told as well.
            self._child.signal(signal.SIGHUP)
            self._child.forget()


def _start_on_terminal(argv: list[str], env: dict[str, str], terminal: str) -> int:
    """Start a program on a terminal that becomes its controlling one; its pid.

    By posix_spawn, because a fork of this program costs milliseconds for every 100 MB that it holds, and
    because it can put back the signals that whoever started us chose to ignore (nohup, a shell's `&`)."""
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "no such program", argv[0])
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=[
            # Opened by the leader of a new session, it becomes the session's terminal.
            (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
            *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def _inheritable() -> list[int]:
    """Descriptors that a program would get from us beside its own three."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only
        with contextlib.suppress(OSError):
            fd = int(name)
            if fd > 2 and not fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                found.append(fd)
    return found


def _ready(fds: Iterable[int | None], timeout_s: float) -> set[int]:
    """Which of these descriptors have something to read, or are at their end, within the time.

    Waiting on a number that has changed hands only wakes too early; what reads looks again under its lock."""
    poller = select.poll()
    some = False
    for fd in fds:
        if fd is not None:
            poller.register(fd, select.POLLIN)
            some = True
    return {fd for fd, _ in poller.poll(timeout_s * 1000)} if some else set()


def _read(fd: int) -> bytes | None:
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return None


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


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
                return os.write(fd, data[:_WRITE_BYTES])
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EIO):
                    return len(data)
                raise
        left_s = until - time.monotonic()
        if left_s <= 0:
            return 0
        # Waiting on a number that has changed hands only wakes too early; the lock's side decides.
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        poller.poll(min(left_s, 0.05) * 1000)
