"""What a named shell says of itself amid its output, and how that is told apart; pure.

All of it is operating system commands (OSC, ECMA-48 8.3.89) with numbers that nothing can know before:
`S;nonce` a command begins, `E;nonce;…;nonce` it has ended, `P;token` the shell waits for a line although
its command has not ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OSC = b"\x1b]8671;"
BEL = b"\x07"

# What bash, dash and busybox say, on a line of its own, when they find that a job has ended.
_SHELLS_WORDS = re.compile(
    rb"(?m)^\[\d+\]\s*[+-]?\s+(?:Terminated|Killed|Hangup|Interrupt|Done|Exit)\b.*\n"
    rb'|^\n?Use "exit" to leave shell\.\n'
)


@dataclass(frozen=True, slots=True)
class Mark:
    """What the end mark of a command says of the shell.

    flags  the shell's option letters when the command ended; A, D and R are the frame's own: aliases are on,
           a DEBUG trap is put by, a variable that the frame needs is readonly
    """

    status: int
    flags: str
    cwd: str
    cwd_exists: bool


class MarkReader:
    """Takes the bytes of a terminal and gives a command's own output.

    nonce    the number of the command; marks with another number are output like any other
    hint     what the shell prints when it waits for a line although its command has not ended
    typed    what was typed; if the terminal echoes it, exactly that is taken out
    awaited  whether the command says when it begins; if not, it counts as begun
    prompts  the shell shows prompts that cannot be taken off: what comes before the beginning is dropped
    """

    def __init__(
        self, nonce: str, hint: bytes, typed: bytes, *, awaited: bool = True, prompts: bool = False
    ) -> None:
        number = nonce.encode()
        self._number = number
        self._hint = hint
        self._start = b"%sS;%s%s" % (OSC, number, BEL)
        self._end = b"%sE;%s;" % (OSC, number)
        self._close = b";%s%s" % (number, BEL)
        self._typed = typed
        self._echoed = not awaited
        self._prompts = prompts
        self._buffer = b""
        self.started = not awaited
        self.prompted = False
        self.mark: Mark | None = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes, return the output among them. After the end mark, `rest` holds what followed it."""
        self._buffer += data
        out: list[bytes] = []
        if not self.started:
            early = self._until_start()
            if early is None:
                return b""
            out.append(early)
        elif self._echoed and not self._take_echo():
            return b""
        at = 0
        while self.mark is None:
            at = self._buffer.find(OSC, at)
            if at < 0:
                out.append(self._release())
                break
            if not self._may_be_mark(at):
                at += len(OSC)  # somebody else's, or a forgery: output like any other
                continue
            out.append(self._buffer[:at])
            self._buffer, at = self._buffer[at:], 0
            if not self._take_mark():
                break
        return b"".join(out)

    @property
    def rest(self) -> bytes:
        """Bytes not given out: after the end mark, what other programs printed since."""
        return self._buffer

    def flush(self) -> bytes:
        """The shell is gone: everything that is left is output, but for marks of the frame itself."""
        left, self._buffer = self._buffer, b""
        return strip_marks(left, self._hint) if self.started else b""

    def _until_start(self) -> bytes | None:
        at = self._buffer.find(self._start)
        if at < 0:
            return None
        early = strip_marks(self._buffer[:at], self._hint)
        self._buffer = self._buffer[at + len(self._start) :]
        self.started = True
        if self._prompts:
            return b""
        for echo in (self._typed, self._typed.replace(b"\n", b"\r\n")):
            early = early.replace(echo, b"", 1)
        return _SHELLS_WORDS.sub(b"", early)

    def _take_echo(self) -> bool:
        """Take out an echo that comes first; False: this may become one."""
        if not self._typed.startswith(self._buffer[:8]):
            self._echoed = False
            return True
        for echo in (self._typed, self._typed.replace(b"\n", b"\r\n")):
            if self._buffer.startswith(echo):
                self._buffer = self._buffer[len(echo) :]
                break
            if echo.startswith(self._buffer):
                return False
        self._echoed = False
        return True

    def _release(self) -> bytes:
        """All but a tail that may be the beginning of a mark."""
        at = self._buffer.rfind(b"\x1b", max(0, len(self._buffer) - len(OSC)))
        keep = at if at >= 0 and OSC.startswith(self._buffer[at:]) else len(self._buffer)
        out, self._buffer = self._buffer[:keep], self._buffer[keep:]
        return out

    def _may_be_mark(self, at: int) -> bool:
        """Whether a mark of the frame stands there in the buffer, or the beginning of one at its end."""
        for mark in (self._end, self._hint):
            if self._buffer.startswith(mark, at):
                return True
            if len(self._buffer) - at < len(mark) and mark.startswith(self._buffer[at:]):
                return True
        return False

    def _take_mark(self) -> bool:
        """Take the mark at the head of the buffer; False: more bytes are needed."""
        buffer = self._buffer
        if buffer.startswith(self._end):
            end = buffer.find(self._close, len(self._end) - 1)
            if end < 0:
                return False
            self.mark = _parse_mark(buffer[len(self._end) : end], self._number)
            self._buffer = buffer[end + len(self._close) :]
            return True
        if buffer.startswith(self._hint):
            self.prompted = True
            self._buffer = buffer[len(self._hint) :]
            return True
        return False


def strip_marks(data: bytes, hint: bytes) -> bytes:
    """Data without the frame's hints and without end marks of earlier commands."""
    if OSC not in data:
        return data
    data = data.replace(hint, b"")
    return re.sub(rb"\x1b\]8671;E;([0-9a-f]{16});(?s:.*?);\1\x07", b"", data)


def _parse_mark(body: bytes, number: bytes) -> Mark:
    head, _, cwd = body.partition(b";%s;" % number)
    status, flags, exists = head.split(b";")
    return Mark(
        status=int(status),
        flags=flags.decode(),
        cwd=cwd.decode("utf-8", "surrogateescape"),
        cwd_exists=exists == b"1",
    )
