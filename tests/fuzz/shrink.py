"""Makes a script that shows a difference as small as it gets, and the same difference still."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


def smallest(script: bytes, shows: Callable[[bytes], bool], budget_s: float = 20.0) -> bytes:
    """Delete lines, then pieces of lines, while `shows` holds; stop after budget_s seconds."""
    until_s = time.monotonic() + budget_s

    def still(candidate: bytes) -> bool:
        return time.monotonic() < until_s and shows(candidate)

    before = None
    while before != script:
        before = script
        script = b"\n".join(_fewer(script.split(b"\n"), lambda parts: still(b"\n".join(parts))))
        script = b";".join(_fewer(script.split(b";"), lambda parts: still(b";".join(parts))))
        script = b" ".join(_fewer(script.split(b" "), lambda parts: still(b" ".join(parts))))
        letters = [bytes((each,)) for each in script]
        script = b"".join(_fewer(letters, lambda parts: still(b"".join(parts))))
    return script


def _fewer(parts: Sequence[bytes], shows: Callable[[Sequence[bytes]], bool]) -> list[bytes]:
    """Delta debugging: drop runs of parts, halving the run's length until single parts."""
    kept = list(parts)
    size = max(1, len(kept) // 2)
    while True:
        at = 0
        while at < len(kept):
            candidate = kept[:at] + kept[at + size :]
            if shows(candidate):
                kept = candidate
            else:
                at += size
        if size == 1:
            return kept
        size //= 2
