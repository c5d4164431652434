"""`coderig shell`: a real terminal in a place, until its program ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from coderig.guard import UsageError, complain
from sandbox import BackendError, Sandbox
from sandbox.backend import Process
from sandbox.values import PtySize, SpawnRequest

_READ_S = 0.1
_WRITE_S = 0.2
_STATUS_S = 5.0
_IDLE_READS = 10
# $0 is the directory, then the variables to take away, "--", and the program; without one, a shell.
_LAUNCH = """
cd -- "$0" || exit 126
while [ "$1" != -- ]; do unset "$1"; shift; done; shift
[ $# -gt 0 ] && exec "$@"
command -v bash >/dev/null 2>&1 && exec bash -i
exec sh -i
"""


def interactive(
    box: Sandbox,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    without: Sequence[str] = (),
) -> int:
    """Give this terminal to a program in a place until it ends; returns its exit code.

    command  a program and its arguments; empty: a shell, bash where there is one
    env      set for the program; `without`: taken away from it

    Raises UsageError without a terminal, SandboxError if the place fails, Interrupted. The terminal is put
    back as it was in every case."""
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("shell needs a terminal for its input and output; `coderig exec` does without")
    argv = ["sh", "-c", _LAUNCH, box.cwd, *without, "--", *command]
    process = box.backend.spawn(SpawnRequest(argv=argv, env=dict(env), pty=_size()))
    try:
        with _raw_terminal() as terminal:
            return _Bridge(process, terminal).run()
    finally:
        process.close()


def _size() -> PtySize:
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        return PtySize()
    return PtySize(columns or 80, rows or 24)


class _Terminal:
    """This terminal, raw; and cooked again while this process is stopped."""

    def __init__(self) -> None:
        self._before = termios.tcgetattr(0)
        self.resized = threading.Event()

    def raw(self) -> None:
        tty.setraw(0, termios.TCSADRAIN)

    def back(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def on_resize(self, number: int, frame: FrameType | None) -> None:
        self.resized.set()

    def on_stop(self, number: int, frame: FrameType | None) -> None:
        """Somebody stops this process from outside: the terminal is theirs meanwhile."""
        self.back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.raw()
        self.resized.set()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[_Terminal]:
    terminal = _Terminal()
    before = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGWINCH, terminal.on_resize),
            (signal.SIGTSTP, terminal.on_stop),
        )
    }
    try:
        terminal.raw()
        yield terminal
    finally:
        terminal.back()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Bridge:
    """Bytes from this terminal to the program and back, unchanged."""

    def __init__(self, process: Process, terminal: _Terminal) -> None:
        self._process, self._terminal = process, terminal
        self._over = threading.Event()
        self._wake, self._waker = os.pipe()
        self._failed: list[BackendError] = []

    def run(self) -> int:
        typing = threading.Thread(target=self._type, name="coderig-shell-keys", daemon=True)
        typing.start()
        try:
            return self._show()
        finally:
            self._over.set()
            os.write(self._waker, b"x")
            typing.join()
            os.close(self._wake)
            os.close(self._waker)

    def _show(self) -> int:
        idle = 0
        while True:
            if self._terminal.resized.is_set():
                self._terminal.resized.clear()
                size = _size()
                self._process.resize(size.columns, size.rows)
            chunk = self._process.read(_READ_S)
            if chunk.stdout and not _put(chunk.stdout):
                return 128 + signal.SIGHUP
            if self._failed:
                raise self._failed[0]
            if chunk.eof:
                return self._status()
            idle = 0 if chunk.stdout else idle + 1
            # Its end comes with the end of the stream, unless something that it left behind holds that open.
            if idle and idle % _IDLE_READS == 0 and (status := self._process.poll()) is not None:
                return self._rest(status)

    def _rest(self, status: int) -> int:
        """The program is over; what it had printed still comes."""
        while (chunk := self._process.read(_READ_S)).stdout:
            if not _put(chunk.stdout):
                break
        return status

    def _status(self) -> int:
        waited = threading.Event()
        for _ in range(int(_STATUS_S / _READ_S)):
            status = self._process.poll()
            if status is not None:
                return status
            waited.wait(_READ_S)
        complain("the terminal was closed, and its program still runs")
        return 128 + signal.SIGHUP

    def _type(self) -> None:
        try:
            while not self._over.is_set():
                ready, _, _ = select.select([0, self._wake], [], [])
                if self._wake in ready:
                    return
                data = _typed()
                if not data:
                    self._process.close()
                    return
                while data and not self._over.is_set():
                    data = data[self._process.write(data, _WRITE_S) :]
        except BackendError as error:
            self._failed.append(error)


def _typed() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:
        return b""


def _put(data: bytes) -> bool:
    """Show all of it; False if the terminal is gone."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except OSError:
        return False
    return True


def run_shell(target: str | None, place: str | None, text: str | None, env: Sequence[str]) -> int:
    """`coderig shell`: in a dev container, or in any place. Raises what `guard.guarded` knows.

    text  a command for sh instead of a shell for a person; None: the shell
    """
    from coderig.containers import record_for, remark_changes
    from coderig.devcontainer_record import Records
    from coderig.exec_cli import read_environment
    from coderig.place import parse_place
    from coderig.store import home
    from coderig.up_commands import caller_env, open_container

    command = ["sh", "-c", text] if text is not None else []
    given = {**caller_env(), **read_environment(env)}
    if place is not None:
        if target is not None:
            raise UsageError("give a TARGET or --place, not both")
        with parse_place(place).open(warm=False) as box:
            return interactive(box, command, env=given)
    records = Records(home(os.environ))
    record = record_for(target, records)
    config = remark_changes(record)
    with open_container(record) as box:
        if config is not None and config.stages.get("postAttach"):
            from coderig.up_commands import run_stage
            from coderig.up_view import Log, UpView

            log = Log(records.log(record.name))
            run_stage("postAttach", config.stages["postAttach"], box, record, UpView(json_lines=False), log)
        set_here = {name: value for name, value in record.remote_env.items() if value is not None}
        without = [name for name, value in record.remote_env.items() if value is None]
        code = interactive(box, command, env={**set_here, **given}, without=without)
    if code and not command and sys.stderr.isatty():
        complain(f"the shell ended with exit code {code}")
    return code
