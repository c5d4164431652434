"""Exit codes, and what the signals do that ask this process to end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

OK, FAILED, USAGE, APPROVAL_NEEDED = 0, 1, 2, 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked this process to end. A BaseException, as KeyboardInterrupt is."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell reports for such an end."""
        return 128 + self.number


def on_signals(take: Callable[[int], None]) -> None:
    """From now on, `take` gets the number of each such signal, in the main thread."""

    def handle(number: int, frame: FrameType | None) -> None:
        take(number)

    for number in SIGNALS:
        # Who was told to live on (nohup) does.
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def raise_on_signals() -> None:
    """From now on, such a signal raises Interrupted in the main thread."""

    def interrupt(number: int) -> None:
        raise Interrupted(number)

    on_signals(interrupt)
