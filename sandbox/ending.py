"""The end of a command in a shell, and of the shell: interrupt, terminate, kill, in that order."""

from __future__ import annotations

import time

from sandbox.errors import BackendError
from sandbox.line import Line
from sandbox.values import GRACE_S, Deadline, Survivor

_LOOK_S = 0.05
_PROBE_AFTER_S = 0.3


def stop_command(line: Line) -> tuple[tuple[Survivor, ...], str]:
    """Whatever it takes to have the shell back at its prompt; who survived, and how it was done in a word.

    The shell may still not be back: then the running command has no mark."""
    mark = line.running.mark if line.running is not None else ""
    line.interrupt()
    if _back_within(line, GRACE_S):
        return _end_background(line, mark), "interrupted"
    left = _end_background(line, mark)
    ending = line.sweeper.end(line.pid, part="foreground", pump=line.drain, done=lambda: line.has_mark)
    if not _back_within(line, GRACE_S) and line.running is not None:
        line.interrupt()
        _back_within(line, GRACE_S)
    return left + ending.survivors, "terminated"


def _end_background(line: Line, mark: str) -> tuple[Survivor, ...]:
    """What the command has put in the background ends with it; what earlier ones have is left alone."""
    if not mark or not line.is_alive:
        return ()
    ending = line.sweeper.end(line.pid, mark=mark, part="background", pump=line.drain, done=lambda: True)
    return ending.survivors


def kill_shell(line: Line) -> tuple[Survivor, ...]:
    """End a shell that does not come back, and all that it started; who survived."""
    ending = line.sweeper.end(line.pid, pump=line.drain, done=lambda: not line.is_alive, first="KILL")
    return ending.survivors


def hang_up(line: Line) -> None:
    """Hang up, end what of the session does not obey, and let go of the terminal. Idempotent."""
    # While a command runs, the thread that waits for it reads the terminal.
    pump = line.drain if line.running is None else time.sleep
    try:
        if line.is_alive:
            line.sweeper.end(line.pid, pump=pump, done=lambda: not line.is_alive, first="HUP")
    except BackendError:
        pass  # the place is gone, and the shell with it
    finally:
        line.sweeper.forget(line.pid)
        line.process.close()


def last_status(line: Line) -> int | None:
    """The status of a shell that ended, once its last words are read; None if it has none yet."""
    until = Deadline.after(GRACE_S)
    while (status := line.process.poll()) is None and not until.passed:
        time.sleep(0.001)
    for _ in range(1000):
        chunk = line.read(0)
        if chunk.eof or not chunk.stdout:
            break
    return status


def _back_within(line: Line, seconds: float) -> bool:
    """Whether the shell is back at its prompt in so many seconds, not counting what a probe takes.

    A probe starts a process in the place, which may take long there."""
    deadline = Deadline.after(seconds)
    probe = Deadline.after(_PROBE_AFTER_S)
    probed = False
    while not line.has_mark and not deadline.passed:
        chunk = line.read(min(_LOOK_S, deadline.remaining_s()))
        if chunk.eof or not line.is_alive:
            return False
        running = line.running
        if running is not None and probe.passed and not running.probed:
            # A prompt that the command changed gives no hint.
            line.probe(running)
            probe = Deadline.after(_PROBE_AFTER_S)
        if running is not None and running.probed and not probed:
            probed, deadline = True, Deadline.after(seconds)
    return line.has_mark
