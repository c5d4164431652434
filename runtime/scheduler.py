"""How the calls of one answer run: beside each other, or one after the other.

What one call needs of another is never guessed: a model that needs an output asks for it in an answer of its
own, and reads it before it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

Job = Callable[[], Awaitable[None]]


def is_concurrent(sequential: Sequence[bool | None]) -> bool:
    """Whether calls run beside each other. One value a call: its tool is sequential; None: it has no tool.

    One call that cannot be beside others makes all of them wait for each other; no calls are in order too.
    """
    return bool(sequential) and all(alone is False for alone in sequential)


async def run_jobs(jobs: Sequence[Job], *, concurrent: bool, limit: int = 0) -> None:
    """Run all jobs, at most `limit` at once (0: no limit).

    When one fails, the others are cancelled. What is raised then is the failure of the first job in order;
    a cancellation only if nothing else went wrong.
    """
    if not concurrent:
        for job in jobs:
            await job()
        return
    slots = asyncio.Semaphore(limit) if limit > 0 else nullcontext()
    failures: dict[int, BaseException] = {}

    async def guarded(place: int, job: Job) -> None:
        async with slots:
            try:
                await job()
            except Exception as error:
                failures[place] = error
                raise

    try:
        async with asyncio.TaskGroup() as group:
            for place, job in enumerate(jobs):
                group.create_task(guarded(place, job))
    except ExceptionGroup:
        raise failures[min(failures)] from None
