"""What would end in silence is said once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.testing import Faults, MemoryAdapter
from tests.runtime.bench import Bench, bench
from tests.runtime.observing.test_consumer_log import texts


def about(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    """The warnings that have these words."""
    return [text for text in texts(caplog) if words in text]


@pytest.mark.parametrize("partitions", [1, 2])
def test_pulling_without_acks_is_said_once(
    partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one partition has used up its share, and the consumer as a whole is not full."""

    async def test(b: Bench) -> None:
        for n in range(40):
            b.broker.append("s", str(n).encode(), partition=0)
        async with b.consumer(max_in_flight=10) as consumer:
            for _ in range(10 // partitions):
                await anext(consumer)
            await asyncio.sleep(29)
            assert about(caplog, "no record was settled") == []
            await asyncio.sleep(120)

    bench(test, partitions=partitions)
    (said,) = about(caplog, "no record was settled")
    assert "message.ack()" in said


def test_acks_that_come_slowly_are_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """A full window is how a slow handler looks; one ack in 30 s is enough."""

    async def slow(_message: Message) -> None:
        await asyncio.sleep(20)

    async def test(b: Bench) -> None:
        b.append(*map(str, range(50)))
        await b.run(b.consumer(max_in_flight=5), slow, seconds=200, concurrency=1)

    bench(test)
    assert about(caplog, "no record was settled") == []


def test_idle_consumer_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing to ack is no reason either."""

    async def test(b: Bench) -> None:
        await b.run(b.consumer(), seconds=600)

    bench(test)
    assert texts(caplog) == []


def test_blocked_loop_is_said_with_advice_and_again_when_it_is_twice_as_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each of a hundred handlers that blocks for as long is no news."""

    class Blocking:
        """A clock of which user code can take a part, as a blocked loop does."""

        def __init__(self, clock: Any) -> None:
            self._clock = clock
            self.taken = 0.0

        def monotonic(self) -> float:
            return float(self._clock.monotonic()) + self.taken

        def wall(self) -> float:
            return float(self._clock.wall()) + self.taken

    async def test(b: Bench) -> None:
        clock = Blocking(b.simulation.clock)
        blocks = [0.5, 3.0, 3.5, 4.0, 7.0]
        b.append(*map(str, range(len(blocks))))

        async def handler(message: Message) -> None:
            clock.taken += blocks[int((message.value or b"").decode())]
            await asyncio.sleep(2)

        await b.run(b.consumer(clock=clock), handler, concurrency=1, seconds=30)

    bench(test)
    said = about(caplog, "the event loop was blocked")
    assert [text.partition(" s: ")[0][-3:] for text in said] == ["3.0", "7.0"]
    assert "asyncio.to_thread" in said[0]


def test_consumer_that_keeps_nothing_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """No group and no store: a restart begins anew, which is said at the opening, once."""

    async def test(b: Bench) -> None:
        await b.run(b.consumer(group=None), seconds=60)

    bench(test)
    (said,) = texts(caplog)
    assert said.startswith("memory: without a group no position is kept")


def test_consumer_that_keeps_its_positions_does_not_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group whose broker keeps positions is enough."""

    async def test(b: Bench) -> None:
        await b.run(b.consumer(), seconds=60)

    bench(test)
    assert texts(caplog) == []


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was said of lags, and how loud."""
    mine = [r for r in caplog.records if r.name.endswith("health_watch") and r.levelname != "DEBUG"]
    said = [(record.levelname, record.getMessage()) for record in mine]
    return [(level, text) for level, text in said if not text.startswith("no record was settled")]


async def take(consumer: Consumer, count: int) -> None:
    """Settles so many."""
    for _ in range(count):
        (await anext(consumer)).ack()


def test_lag_that_grows_beyond_the_limit_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Back is at half of the limit, so that one at its limit is not told of again and again."""

    async def test(b: Bench) -> None:
        options: dict[str, Any] = {"max_in_flight": 1, "fetch_records": 1}
        async with b.consumer(max_lag=10, **options) as consumer:
            await asyncio.sleep(1)  # granted at the end
            b.append(*map(str, range(20)))
            await take(consumer, 1)
            await asyncio.sleep(60)
            assert [level for level, _ in lines(caplog)] == ["WARNING"]
            await take(consumer, 10)
            await asyncio.sleep(60)
            assert len(lines(caplog)) == 1
            await take(consumer, 8)
            await asyncio.sleep(60)
        (_, behind), (level, back) = lines(caplog)
        assert behind.startswith("s/0 has fallen ")
        assert behind.endswith(" behind the end (max_lag=10)")
        assert (level, back.split(" behind")[0][:10]) == ("INFO", "s/0 is now")

    with caplog.at_level(logging.DEBUG):
        bench(test)


def test_lag_that_was_said_at_the_start_is_not_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The start's line says it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(20)))
        async with b.consumer(max_lag=10, max_in_flight=1, fetch_records=1) as consumer:
            await take(consumer, 1)
            await asyncio.sleep(60)
        assert lines(caplog) == []
        assert "it starts at 0, 20 positions behind the end" in caplog.text

    with caplog.at_level(logging.DEBUG):
        bench(test)


def test_lag_that_cannot_be_asked_for_is_no_reason_to_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is looked at again later."""

    async def test(b: Bench) -> None:
        faults = Faults()
        faults.fail_next("lag", times=3)
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        options: dict[str, Any] = {"max_in_flight": 1, "fetch_records": 1}
        async with Consumer(adapter, max_lag=10, clock=b.simulation.clock, **options) as consumer:
            await asyncio.sleep(1)
            b.append(*map(str, range(20)))
            await take(consumer, 1)
            await asyncio.sleep(24)
            assert lines(caplog) == []
            await asyncio.sleep(30)
            assert len(lines(caplog)) == 1

    with caplog.at_level(logging.DEBUG):
        bench(test)
