"""What this program holds: threads, descriptors, children, memory; and whether it becomes no more."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Census:
    """Counts at one moment, by what they are, so that a difference can be told in words."""

    threads: Counter[str]
    files: Counter[str]
    children: Counter[str]

    @classmethod
    def now(cls) -> Census:
        """Count. Zombies are children too."""
        files: Counter[str] = Counter()
        for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only
            # The descriptor that lists the others is closed by now.
            with contextlib.suppress(OSError):
                files[os.readlink(f"/proc/self/fd/{entry}").partition(":")[0]] += 1  # noqa: PTH115
        return cls(
            Counter(each.name.rstrip("-0123456789_") for each in threading.enumerate()), files, _children()
        )

    def beyond(self, before: Census) -> dict[str, int]:
        """What is here and was not then."""
        more = (
            (self.threads - before.threads) + (self.files - before.files) + (self.children - before.children)
        )
        return dict(more)


def _children() -> Counter[str]:
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            for pid in (task / "children").read_text("ascii").split():
                words = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")
                found[f"child {words[0].partition('(')[2]} {words[2].split()[0]}"] += 1
    return found


def left_over(before: Census, *, spare: int = 0, limit_s: float = 15.0) -> dict[str, int]:
    """What is here beyond `before` and does not go away within the time; {} if nothing is.

    spare  how many more of each kind are fine: programs that stand by come and go"""
    until_s = time.monotonic() + limit_s
    while True:
        more = {what: count for what, count in Census.now().beyond(before).items() if count > spare}
        if not more or time.monotonic() > until_s:
            return more
        time.sleep(0.02)


def resident_bytes() -> int:
    """The memory that this program uses now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
