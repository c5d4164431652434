"""A lane: a small sh program in the place that starts one launcher after another, for one command each.

The launcher and its command write straight to the lane's own pipes. When the command has ended, the lane
reports its status between the bytes of the output, marked by a secret number. What the commands of a lane
share is these two pipes, so a lane goes on only if no process holds them any more and their flags are as
they were; otherwise it says so and ends, and what was left behind keeps the pipes to itself, as it would
after a command without a lane.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sandbox.backend import Backend, Process
from sandbox.errors import BackendError
from sandbox.values import START_TIMEOUT_S, Chunk, Deadline, SpawnRequest

_LONG_S = 5.0
_LAST_WORDS_S = 2.0
HEAD = b"kill -0 $PPID || exit 125; "
"""In front of a command's line: a launcher whose lane was killed does not begin, for nobody would report."""
# What marks begin with: a byte that is rare in output, so that looking for one costs nothing.
_RS = b"\x1e"

# $1 the shell of the commands, $2 the launcher, $3 feed or plain.
# The secret comes over standard input, so that no command finds it in /proc. The last process id that
# was given out (loadavg's last field, of our own namespace) tells whether a command started others at
# all; only those can hold the pipes. 125 is a launcher whose input has ended.
_LANE = r"""
IFS= read -r cr_secret || exit 125
# A shell says "Killed" when a signal ended its child: not among the command's own errors. In dash and busybox
# a command's redirections hold while it is waited for, so they stand in a subshell.
exec 6>&2 2>/dev/null
command -v setsid >/dev/null 2>&1 && [ /proc/$$/fd/1 -ef /proc/$$/fd/1 ] || exit 125
last() { read -r cr_x cr_x cr_x cr_x cr_last </proc/loadavg; }
flags() { { read -r cr_x; read -r cr_x cr_flags; } <"/proc/$$/fdinfo/$1"; }
held() {
  if [ "$1" = $$ ] || [ ! -d "/proc/$1" ]; then return 1; fi
  if [ ! -r "/proc/$1/fd" ]; then [ -d "/proc/$1/fd" ]; return; fi
  for cr_f in "/proc/$1/fd/"*; do
    if [ "$cr_f" -ef /proc/$$/fd/1 ] || [ "$cr_f" -ef /proc/$$/fd/6 ]; then return 0; fi
  done
  return 1
}
left() {
  flags 1; [ "$cr_flags" = "$cr_out" ] || return 0
  flags 6; [ "$cr_flags" = "$cr_err" ] || return 0
  [ "$cr_s" != 125 ] || return 0
  cr_from=$((cr_last + 1)); cr_rounds=0
  while :; do
    last
    [ "$cr_last" != "$cr_from" ] || return 1
    if [ "$cr_last" -gt "$cr_from" ] && [ $((cr_last - cr_from)) -lt 200 ]; then
      while [ "$cr_from" -lt "$cr_last" ]; do
        cr_from=$((cr_from + 1)); if held $cr_from; then return 0; fi
      done
    else
      for cr_d in /proc/[0-9]*; do if held "${cr_d#/proc/}"; then return 0; fi; done
      cr_from=$cr_last
    fi
    cr_rounds=$((cr_rounds + 1)); [ $cr_rounds -lt 20 ] || return 0
  done
}
plain() { (exec setsid "$1" -c "$2" "$1" 2>&6 6>&-); }
feed() {
  IFS= read -r cr_n || exit 125
  { head -c "$cr_n" 5>&- 6>&- && printf '%sW;' "$cr_secret" >&5; } |
    setsid "$1" -c "$2" "$1" 2>&6 5>&- 6>&-
}
# Where sh counts itself in SHLVL (busybox, bash), a command would find one more.
if [ "$(sh -c 'echo "${SHLVL-0}"')" = $((${SHLVL-0} + 1)) ]; then
  SHLVL=$((SHLVL - 1)); [ "$SHLVL" != 0 ] || unset SHLVL
fi
if [ "$3" = feed ]; then exec 5>&1; [ "$(printf ab | head -c 1)" = a ] || exit 125; fi
flags 1; cr_out=$cr_flags; flags 6; cr_err=$cr_flags
trap : HUP INT TERM
printf '%sR;' "$cr_secret"
while :; do
  last
  "$3" "$@"
  cr_s=$?
  if left; then cr_e=L; else cr_e=E; fi
  printf '%s%s%s;' "$cr_secret" $cr_e $cr_s
  printf '%s%s;' "$cr_secret" $cr_e >&6
  [ $cr_e = E ] || exit
done
"""


class MarkFinder:
    """Takes a lane's marks out of one of its streams; pure.

    A mark is the secret, a letter, digits and ';'. The letters: R the lane is ready, W the input has been
    handed on whole, E the command ended, L it ended and has left something behind."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._buffer = b""
        self.found: dict[str, int] = {}

    def feed(self, data: bytes) -> bytes:
        """The bytes of the command. What may be the beginning of a mark waits until more has come; what
        follows R or E is not given out but kept for `rest`."""
        data, self._buffer = self._buffer + data, b""
        out: list[bytes] = []
        while "R" not in self.found and "E" not in self.found and (at := data.find(self._secret)) >= 0:
            end = data.find(b";", at)
            out.append(data[:at])
            if end < 0:
                self._buffer = data[at:]
                return b"".join(out)
            mark = data[at + len(self._secret) : end].decode()
            self.found[mark[0]] = int(mark[1:] or "0")
            data = data[end + 1 :]
        if "R" in self.found or "E" in self.found:
            self._buffer = data
        else:
            held = self._held(data)
            out.append(data[: len(data) - held])
            self._buffer = data[len(data) - held :]
        return b"".join(out)

    def rest(self) -> bytes:
        """What was held back."""
        rest, self._buffer = self._buffer, b""
        return rest

    def _held(self, data: bytes) -> int:
        if "L" in self.found:
            return 0
        at = data.rfind(_RS, max(0, len(data) - len(self._secret)))
        return len(data) - at if at >= 0 and self._secret.startswith(data[at:]) else 0


class LaneLost(BackendError):
    """The lane of a command was ended while the command ran."""


class Lane:
    """One lane, as seen from here.

    feed  its commands get input; the lane is told beforehand how many bytes come
    """

    def __init__(self, process: Process, secret: bytes, token: str, prelude: bytes, feed: bool) -> None:
        self.process = process
        self.secret = secret
        self.token = token
        self.feed = feed
        self.early = Chunk()
        self._prelude = prelude

    @classmethod
    def start(
        cls, backend: Backend, launcher: list[str], token: str, prelude: bytes, feed: bool
    ) -> Lane | None:
        """Start one and wait until it is ready; None if the place cannot have one.

        Raises BackendError if the place refuses the program."""
        secret = _RS + secrets.token_hex(12).encode()
        argv = ["sh", "-c", _LANE, "sh", launcher[0], launcher[2], "feed" if feed else "plain"]
        process = backend.spawn(SpawnRequest(argv=argv, spare=True))
        try:
            process.write(secret + b"\n", START_TIMEOUT_S)
            lane = cls(process, secret, token, prelude, feed)
            if lane._is_ready():
                return lane
        except BaseException:
            process.close()
            raise
        process.close()
        return None

    def _is_ready(self) -> bool:
        finder = MarkFinder(self.secret)
        deadline = Deadline.after(START_TIMEOUT_S)
        while "R" not in finder.found:
            chunk = self.process.read(deadline.remaining_s())
            finder.feed(chunk.stdout)
            if chunk.eof or deadline.passed:
                return False
        return self.renew(Chunk(finder.rest()))

    def renew(self, early: Chunk) -> bool:
        """Make ready for the next command; False if the lane does not take it.

        early  what its launcher has said already"""
        self.early = early
        try:
            return self.feed or self.process.write(self._prelude, 1.0) == len(self._prelude)
        except BackendError:
            return False

    def is_there(self) -> bool:
        """Whether it still waits, as far as can be told without asking it."""
        try:
            chunk = self.process.read(0)
        except BackendError:
            return False
        self.early = Chunk(self.early.stdout + chunk.stdout, self.early.stderr + chunk.stderr)
        return not chunk.eof

    def begin(self, size_bytes: int, returned: Callable[[Lane, bool], None]) -> LaneProcess:
        """The process of the next command, whose line and input have so many bytes.

        returned  called once it is closed, with whether the lane can be used again"""
        if self.feed:
            head = b"%d\n%s" % (size_bytes + len(self._prelude), self._prelude)
            # Should it not be taken, the launcher ends at once or does not begin: nothing runs.
            self.process.write(head, START_TIMEOUT_S)
        return LaneProcess(self, returned)

    def end(self) -> None:
        """Let it end: what waits finds the end of its input."""
        let_go(self.process)


def let_go(process: Process) -> None:
    """End a program that only waits for input. One whose place is gone has ended, or will by itself."""
    with suppress(BackendError):
        process.close_stdin()
    with suppress(BackendError):
        process.close()


class LaneProcess:
    """One command in a lane. See Process."""

    def __init__(self, lane: Lane, returned: Callable[[Lane, bool], None]) -> None:
        self._lane = lane
        self._returned = returned
        self._out = MarkFinder(lane.secret)
        self._err = MarkFinder(lane.secret)
        self._eof = self._gone = self._closed = self._quiet = False
        self._began_s = time.monotonic()
        self._lock = threading.Lock()

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        if self._eof:
            return Chunk(eof=True)
        early, self._lane.early = self._lane.early, Chunk()
        chunk = early if early.stdout or early.stderr else self._lane.process.read(timeout_s)
        self._quiet = not (chunk.stdout or chunk.stderr)
        out, err = self._out.feed(chunk.stdout), self._err.feed(chunk.stderr)
        if chunk.eof:
            out, err = out + self._out.rest(), err + self._err.rest()
            self._gone = self._status is None
        self._eof = chunk.eof or self._is_clean
        return Chunk(out, err, eof=self._eof)

    @property
    def _status(self) -> int | None:
        return self._out.found.get("E", self._out.found.get("L"))

    @property
    def _is_clean(self) -> bool:
        return "E" in self._out.found and "E" in self._err.found

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write. Once the command has ended, its input is dropped."""
        return len(data) if self._status is not None else self._lane.process.write(data, timeout_s)

    def close_stdin(self) -> None:
        """The lane knows how much input comes."""

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal."""

    def poll(self) -> int | None:
        """See Process.poll. Raises LaneLost if the lane itself was ended: it alone knew the status."""
        if self._status is None:
            if self._gone and self._quiet:
                raise LaneLost(
                    "the program that watched the command was killed, by the command or by somebody else; "
                    "how the command ended is unknown"
                )
            # Its last words may still be on their way, behind a flood of others: believed at a later look
            # only, after a read that found nothing.
            self._gone = self._lane.process.poll() is not None
        return self._status

    def close(self) -> None:
        """See Process.close. The lane is used again if the command has left nothing behind."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        lane = self._lane
        fed = not lane.feed or "W" in self._out.found
        # Process ids may have come round during a long command, and then the lane cannot be sure.
        short = time.monotonic() - self._began_s < _LONG_S
        again = self._is_clean and fed and short
        if again:
            again = lane.renew(Chunk(self._out.rest(), self._err.rest()))
        if not again:
            lane.end()
        self._returned(lane, again)
