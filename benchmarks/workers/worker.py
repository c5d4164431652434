"""One contender at one place, in a process of its own; asked over JSON lines by contenders.py.

    python worker.py CONTENDER PLACE ACCESS

It takes the time itself, around the contender's own call, so the conversation is not counted. A contender
that blocks is used from threads where several things are to happen at once, an asynchronous one from tasks.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from way import Answer, Command, Opened, Way, Ways

Question = dict[str, Any]
Reply = dict[str, Any]
T = TypeVar("T")
_BRACKETS = re.compile(r"\x1b\[\?2004[hl]")
"""What readline prints around a line for a terminal that may paste; some peers give it to their caller."""


class WrongAnswer(Exception):
    """The contender did not do the work."""


async def settled(value: T | Awaitable[T]) -> T:
    """The value of a plain or an asynchronous call."""
    return await value if inspect.isawaitable(value) else value


async def at_once(jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]], blocking: bool) -> list[T]:
    """Run all at the same time: threads for a contender that blocks, else tasks."""
    if not blocking:
        return list(await asyncio.gather(*(job() for job in jobs)))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        return list(pool.map(lambda job: asyncio.run(job()), jobs))


def check(answer: Answer, expect: str) -> None:
    """Refuse an answer that is not the command's. Not every contender keeps line ends, or the last one."""
    said = _BRACKETS.sub("", answer.output.replace("\r\n", "\n")).strip()
    if said != expect.strip() or answer.status not in (0, None):
        raise WrongAnswer(f"status {answer.status} and {answer.output[:200]!r}")


class Desk:
    """Answers questions about one contender."""

    def __init__(self, ways: Ways, again: Callable[[], AbstractAsyncContextManager[Ways]]) -> None:
        self._ways, self._again = ways, again
        self._opened: dict[str, list[Opened]] = {kind: [] for kind in ways}
        self._blocking = {kind: not inspect.iscoroutinefunction(way.open) for kind, way in ways.items()}

    async def _get(self, kind: str, count: int = 1) -> list[Opened]:
        opened = self._opened[kind]
        while len(opened) < count:
            opened.append(await settled(self._ways[kind].open()))
        return opened[:count]

    async def close(self) -> None:
        """Close what was opened."""
        for opened in self._opened.values():
            while opened:
                await settled(opened.pop().close())

    async def ask_turn(self, question: Question) -> Reply:
        """Time calls: {kind, command, expect, seconds, calls} and {pause_s, stdin, width}."""
        kind, width = question["kind"], question.get("width", 1)
        opened = await self._get(kind, width)
        jobs = [partial(self._take, each, kind, question) for each in opened]
        if width == 1:
            return {"samples": await jobs[0]()}
        taken = await at_once(jobs, self._blocking[kind])
        return {"samples": [sample for samples in taken for sample in samples]}

    async def _take(self, opened: Opened, kind: str, question: Question) -> list[float]:
        command = Command(question["command"], stdin=question.get("stdin"))
        expect, pause_s = question["expect"], question.get("pause_s", 0.0)
        samples: list[float] = []
        until = time.perf_counter() + question["seconds"]
        for _ in range(question["calls"]):
            began = time.perf_counter()
            answer = opened.call(command)
            if inspect.isawaitable(answer):
                answer = await answer
            samples.append(time.perf_counter() - began)
            check(answer, expect)
            if time.perf_counter() > until:
                break
            if pause_s:
                await asyncio.sleep(pause_s)
        return samples

    async def ask_once(self, question: Question) -> Reply:
        """One call and its answer: {kind, command} and {timeout_s, stdin}."""
        opened = (await self._get(question["kind"]))[0]
        command = Command(question["command"], question.get("timeout_s"), question.get("stdin"))
        began = time.perf_counter()
        try:
            answer = await settled(opened.call(command))
        except Exception as error:  # what a contender raises is its answer
            return {"raised": _words(error), "seconds": time.perf_counter() - began}
        return {
            "output": answer.output,
            "status": answer.status,
            "stderr": answer.stderr,
            "timed_out": answer.timed_out,
            "note": answer.note,
            "seconds": time.perf_counter() - began,
        }

    async def ask_fresh(self, question: Question) -> Reply:
        """Close the shell and open a new one: {kind}."""
        kind = question["kind"]
        while self._opened[kind]:
            await settled(self._opened[kind].pop().close())
        await self._get(kind)
        return {}

    async def ask_start(self, question: Question) -> Reply:
        """Open the contender once more and make one call: {kind, command, expect}."""
        began = time.perf_counter()
        async with self._again() as ways:
            opened = await settled(ways[question["kind"]].open())
            answer = await settled(opened.call(Command(question["command"])))
            seconds = time.perf_counter() - began
            check(answer, question["expect"])
            await settled(opened.close())
        return {"seconds": seconds}

    async def ask_flood(self, question: Question) -> Reply:
        """One call with much output, its time and what it costs in memory: {kind, command}."""
        opened = (await self._get(question["kind"]))[0]
        before = reset_peak_bytes()
        began = time.perf_counter()
        answer = await settled(opened.call(Command(question["command"], timeout_s=question["timeout_s"])))
        seconds = time.perf_counter() - began
        growth = memory_bytes("VmHWM") - before
        total = len(answer.output.encode("utf-8", "replace")) if answer.total is None else answer.total
        if answer.status not in (0, None):
            raise WrongAnswer(f"status {answer.status}")
        return {"seconds": seconds, "bytes": total, "kept": len(answer.output), "growth": growth}

    async def ask_crowd(self, question: Question) -> Reply:
        """Many at once: {kind, count, command, expect, calls}. Each opens its own and makes its calls."""
        kind, count = question["kind"], question["count"]
        way, blocking = self._ways[kind], self._blocking[kind]
        before = footprint()
        began = time.perf_counter()
        opened = await at_once([partial(self._open, way)] * count, blocking)
        opening_s = time.perf_counter() - began
        turn = {"expect": question["expect"], "command": question["command"]}
        turn |= {"calls": question["calls"], "seconds": 3600.0}
        jobs = [partial(self._take, each, kind, turn) for each in opened]
        began = time.perf_counter()
        try:
            taken = await at_once(jobs, blocking)
            seconds = time.perf_counter() - began
            after = footprint()
        finally:
            # What is left open would go on costing everybody else.
            await at_once([partial(self._close, each) for each in opened], blocking)
        samples = [sample for samples in taken for sample in samples]
        grown = {name: after[name] - before[name] for name in after}
        return {"opening_s": opening_s, "seconds": seconds, "samples": samples, "grown": grown}

    async def _open(self, way: Way) -> Opened:
        return await settled(way.open())

    async def _close(self, opened: Opened) -> None:
        try:
            await settled(opened.close())
        except Exception as error:  # a contender that cannot close one keeps its figures
            sys.stderr.write(f"{_words(error)}\n")

    async def ask_beside(self, question: Question) -> Reply:
        """How long a quick command takes that is asked for at the same moment as a slow one:
        {kind, slow, command, expect}."""
        kind = question["kind"]
        first, second = await self._get(kind, 2)
        began = time.perf_counter()

        async def slow() -> float:
            await settled(first.call(Command(question["slow"])))
            return time.perf_counter() - began

        async def quick() -> float:
            check(await settled(second.call(Command(question["command"]))), question["expect"])
            return time.perf_counter() - began

        slow_s, quick_s = await at_once([slow, quick], self._blocking[kind])
        return {"slow_s": slow_s, "quick_s": quick_s}


def memory_bytes(field: str) -> int:
    """A size of this process: VmRSS, or VmHWM for its peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def reset_peak_bytes() -> int:
    """Forget the peak of memory so far; the memory in use now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory_bytes("VmRSS")


def footprint() -> dict[str, int]:
    """What this process holds now."""
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "fds": len(list(Path("/proc/self/fd").iterdir())),
        "rss": memory_bytes("VmRSS"),
    }


async def serve(contender: str, place: str, access: dict[str, str], questions: Any, answers: Any) -> None:
    """Answer questions until there are no more."""

    def say(reply: Reply) -> None:
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()

    loop = asyncio.get_running_loop()
    try:
        driver = importlib.import_module(f"drive_{contender.replace('-', '_')}")
        opener = driver.DRIVERS[place]
        async with opener(access) as ways:
            desk = Desk(ways, lambda: opener(access))
            hello = {
                kind: {"label": way.label, "features": sorted(way.features)} for kind, way in ways.items()
            }
            say({"version": driver.version(), "ways": hello})
            while line := await loop.run_in_executor(None, questions.readline):
                question = json.loads(line)
                try:
                    say(await getattr(desk, f"ask_{question['ask']}")(question))
                except Exception as error:  # the reason belongs into the table
                    say({"error": _words(error)})
            await desk.close()
    except Exception as error:  # as above: the contender could not be opened
        say({"error": _words(error)})
        raise


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _channel() -> tuple[Any, Any]:
    """Where questions come from and answers go to; the contender gets neither.

    Whatever it prints goes to standard error. Its standard input is one on which nothing ever comes, like
    that of a program at a terminal where nobody types."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    quiet, _ = os.pipe()  # the other end stays open as long as this process lives
    os.dup2(quiet, 0)
    os.close(quiet)
    return questions, answers


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), *_channel()))
