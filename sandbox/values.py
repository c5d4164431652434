"""The values that travel through the sandbox, with every default and unit. All are frozen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sandbox.spill import SpillStore

DEFAULT_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 86_400.0
DEFAULT_LIMIT_BYTES = 1 << 20
MAX_LIMIT_BYTES = 1 << 32
DEFAULT_READ_LIMIT_BYTES = 8 << 20
GRACE_S = 1.0
"""How long a process has between one signal and the next, harder one."""
START_TIMEOUT_S = 30.0
"""How long a place may take to start a shell; not charged to the command's own timeout."""

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, bytes], None]
StrPath = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class PtySize:
    """Size of a terminal in character cells."""

    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """One program to start. What a backend gets; it adds no meaning of its own.

    argv    the program and its arguments, run as given, looked up in the place's PATH
    env     set on top of the environment that the place gives to every program
    pty     a terminal of this size, or None: three pipes
    spare   it only waits for a command that may come: refused (TooManyPrograms) rather than started at
            the cost of another connection
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    pty: PtySize | None = None
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a place bears of programs that are started before they are needed.

    programs  how many may wait; 0: none
    shared    starting one costs so much more than a fork that each should serve many commands
    """

    programs: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read gave. With a terminal, everything is `stdout`. `eof` is final."""

    stdout: bytes = b""
    stderr: bytes = b""
    eof: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """One command to run to its end.

    command      text: run by bash where the place has it, else by sh; a list: run as given
    cwd          None: the sandbox's working directory; relative: below it
    env          set on top of the sandbox's environment, for this command alone
    stdin        None: /dev/null; bytes: these, then end of file
    timeout_s    seconds; 0 or less: the default of 30; more than 86,400 is a RequestError
    limit_bytes  how much of each stream is kept, head and tail; 0 or less: the default of 1 MiB; more
                 than 4 GiB is a RequestError
    spill        keeps the whole of a stream that is longer than limit_bytes; None: its middle is lost
    on_output    called with each piece as it arrives, before it is cut; blocks the command if it blocks
    cancel       set by the caller to end the call; looked at before the timeout
    """

    command: str | Sequence[str]
    cwd: StrPath | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    spill: SpillStore | None = None
    on_output: OnOutput | None = None
    cancel: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Spilled:
    """Where the whole of a stream is that was too long to be kept in memory.

    handle      a SpillStore of the same directory reads the output by it; "": there is no file
    size_bytes  how many bytes of the stream the file holds, from its first on
    problem     "": the file holds all of it; else words that say why not
    """

    handle: str
    size_bytes: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """One captured stream: its head and its tail, and how many bytes were dropped between them.

    spilled  where all of it is, if bytes were dropped and the caller gave a spill store; else None
    """

    head: bytes = b""
    tail: bytes = b""
    dropped_bytes: int = 0
    spilled: Spilled | None = None

    @property
    def data(self) -> bytes:
        """Head and tail joined; the whole stream when nothing was dropped."""
        return self.head + self.tail

    @property
    def text(self) -> str:
        """As text: undecodable bytes become U+FFFD, and a line tells of dropped bytes.

        Where bytes were dropped no character is halved: what is left of one counts as dropped."""
        if not self.dropped_bytes:
            return self.data.decode("utf-8", "replace")
        whole = self.at_characters()
        head = whole.head.decode("utf-8", "replace")
        tail = whole.tail.decode("utf-8", "replace")
        return f"{head}\n[... {whole.dropped_bytes} bytes dropped ...]\n{tail}"

    def at_characters(self) -> Output:
        """The same without the characters of UTF-8 that the gap halves; they count as dropped."""
        if not self.dropped_bytes:
            return self
        head = self.head[: len(self.head) - unfinished_bytes(self.head)]
        start = 0
        while start < min(3, len(self.tail)) and 0x80 <= self.tail[start] < 0xC0:
            start += 1
        lost = len(self.head) - len(head) + start
        return replace(self, head=head, tail=self.tail[start:], dropped_bytes=self.dropped_bytes + lost)


def unfinished_bytes(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character of UTF-8 and not all of it: 0 to 3."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 0 if byte > 0xF4 else 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return back if back < needed else 0
        if byte < 0x80:
            return 0
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A process that was told to die and did not, or could not be told."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How a command ended.

    exit_code   as a shell gives it: 0 to 255, 128+n for signal n, 127 for a program that is not there
    timed_out   killed for exceeding this request's timeout, and nothing else
    survivors   what the kill could not end; empty unless something was killed
    """

    exit_code: int
    stdout_output: Output
    stderr_output: Output
    timed_out: bool = False
    duration_s: float = 0.0
    survivors: tuple[Survivor, ...] = ()

    @property
    def stdout(self) -> str:
        """Standard output as text (see `Output.text`)."""
        return self.stdout_output.text

    @property
    def stderr(self) -> str:
        """Standard error as text (see `Output.text`)."""
        return self.stderr_output.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """How one command in a named shell ended, or how far it has come.

    exit_code   None while the command still runs (`running`), else as in ExecResult
    output      what it printed on the terminal, in the order it printed it
    cwd         the shell's working directory afterwards ("" if unknown)
    timed_out   interrupted for exceeding the timeout
    running     left running on purpose; `poll` gives the rest
    ended       the shell itself is gone; the next use of the name opens a new one
    notice      words for a person: what happened to the shell, if something did
    """

    exit_code: int | None
    captured: Output
    cwd: str = ""
    timed_out: bool = False
    running: bool = False
    ended: bool = False
    notice: str = ""
    duration_s: float = 0.0
    survivors: tuple[Survivor, ...] = ()

    @property
    def output(self) -> str:
        """The output as text (see `Output.text`)."""
        return self.captured.text


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One entry of a directory. `kind` is that of the entry itself: links are not followed."""

    name: str
    kind: Literal["file", "directory", "link", "other"]
    size_bytes: int
    mode: int
    modified_s: int


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, and the caller's cancel event: how long may I still wait?"""

    at_s: float
    cancel: threading.Event | None = None

    @classmethod
    def after(cls, seconds: float, cancel: threading.Event | None = None) -> Deadline:
        """The moment that many seconds from now."""
        return cls(time.monotonic() + seconds, cancel)

    def remaining_s(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the moment has come."""
        return time.monotonic() >= self.at_s

    @property
    def cancelled(self) -> bool:
        """Whether the caller cancelled."""
        return self.cancel is not None and self.cancel.is_set()
