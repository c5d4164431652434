"""One producer, many consumers: nobody waits for anybody, and what is missed is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from runtime_kit import Bench, calls, script

from runtime import Fanout, Gap, Published, RunCompleted, RunError, Scripted, ScriptedFailure, run
from runtime.fanout import Subscription


def played(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run an async test."""
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def rest(subscription: Subscription[Any]) -> list[Any]:
    """All that is left to read."""
    return [found async for found in subscription]


@pytest.mark.spec("FN-01", "FN-02", "FN-11", "FN-10")
def test_a_slow_consumer_delays_nobody_and_is_told_what_it_missed() -> None:
    async def scenario() -> None:
        fanout: Fanout[str] = Fanout()
        slow, quick = fanout.subscribe(buffer=2), fanout.subscribe()
        fanout.publish("e1")
        assert await anext(slow) == Published(1, "e1")
        for number in range(2, 8):
            fanout.publish(f"e{number}")
        fanout.close()
        assert await rest(slow) == [
            Gap(last_good=1, dropped=4, next=6),
            Published(6, "e6"),
            Published(7, "e7"),
        ]
        assert [found.number for found in await rest(quick)] == [1, 2, 3, 4, 5, 6, 7]
        assert fanout.publish("late") == 0

    played(scenario)


@pytest.mark.spec("FN-03", "FN-08")
def test_who_comes_late_gets_what_is_kept_then_what_comes_and_a_gap_for_the_rest() -> None:
    async def scenario() -> None:
        fanout: Fanout[int] = Fanout(replay=3)
        for number in range(1, 7):
            fanout.publish(number)
        late, all_kept, live = fanout.subscribe(1, buffer=1), fanout.subscribe(4), fanout.subscribe()
        fanout.publish(7)
        fanout.close()
        assert [getattr(found, "number", found) for found in await rest(all_kept)] == [5, 6, 7]
        assert await rest(live) == [Published(7, 7)]
        first, *others = await rest(late)
        assert first.dropped >= 2 and first.last_good == 1 and first.next == others[0].number

    played(scenario)


@pytest.mark.spec("FN-04")
def test_a_number_of_another_producer_is_answered_at_once() -> None:
    async def scenario() -> None:
        fanout: Fanout[int] = Fanout()
        fanout.publish(1)
        stale = fanout.subscribe(50)
        assert await anext(stale) == Gap(last_good=0, dropped=50, next=2)
        fanout.publish(2)
        assert await anext(stale) == Published(2, 2)
        fanout.close()
        assert await anext(fanout.subscribe(50)) == Gap(last_good=0, dropped=50, next=3)

    played(scenario)


@pytest.mark.spec("FN-05", "FN-09")
def test_a_producer_that_ended_tells_what_cannot_be_read_any_more() -> None:
    async def scenario() -> None:
        fanout: Fanout[int] = Fanout(replay=0)
        for number in range(1, 4):
            fanout.publish(number)
        fanout.close()
        assert await rest(fanout.subscribe(1)) == [Gap(last_good=1, dropped=2, next=0, at_end=True)]
        assert await rest(fanout.subscribe(3)) == []

    played(scenario)


@pytest.mark.spec("FN-06")
def test_cancelling_ends_a_consumer_without_a_gap() -> None:
    async def scenario() -> None:
        fanout: Fanout[int] = Fanout()
        subscription = fanout.subscribe(buffer=1)
        waiting = asyncio.create_task(rest(subscription))
        await asyncio.sleep(0)
        threading.Thread(target=subscription.cancel).start()
        assert await waiting == []
        behind = fanout.subscribe(buffer=1)
        fanout.publish(1)
        fanout.publish(2)
        behind.cancel()
        assert await rest(behind) == []

    played(scenario)


@pytest.mark.spec("FN-07", "FN-10")
def test_numbers_are_in_order_for_everyone_though_many_publish() -> None:
    async def scenario() -> None:
        fanout: Fanout[int] = Fanout()
        readers = [asyncio.create_task(rest(fanout.subscribe(buffer=5000))) for _ in range(2)]

        def work() -> None:
            for number in range(500):
                fanout.publish(number)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
        fanout.close()
        for reader in readers:
            assert [found.number for found in await reader] == list(range(1, 2001))

    played(scenario)


@pytest.mark.spec("RX-168")
def test_a_run_is_read_by_several_and_its_failure_is_raised_where_it_is_relayed() -> None:
    async def scenario() -> None:
        fanout: Fanout[Any] = Fanout()
        readers = [asyncio.create_task(rest(fanout.subscribe(0))) for _ in range(2)]
        await fanout.relay(run(Bench().agent(script(calls("ls"), "done")), "go")[0])
        first, second = await readers[0], await readers[1]
        assert first == second and isinstance(first[-1].event, RunCompleted)
        failing: Fanout[Any] = Fanout()
        broken = script(Scripted(error=ScriptedFailure(message="down")))
        reader = asyncio.create_task(rest(failing.subscribe()))
        with pytest.raises(RunError):
            await failing.relay(run(Bench().agent(broken), "go")[0])
        assert all(type(found.event).__name__ == "TurnStarted" for found in await reader)

    played(scenario)
