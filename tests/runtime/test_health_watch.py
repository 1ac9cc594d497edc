"""What would end in silence is said once."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.runtime.health_watch import HealthWatch, LagWatch
from consumer_sdk.runtime.options import LoopClock
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.testing import Faults, MemoryAdapter, SimulationLoop
from tests.runtime.bench import Bench, bench
from tests.runtime.consumer_options import options_of
from tests.runtime.observing.test_consumer_log import texts
from tests.runtime.partitions.held import Held, in_loop


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


# -- the watches by themselves ----------------------------------------------------------------


class Loop:
    """What a fetch loop tells the watch."""

    def __init__(self) -> None:
        self.is_full = False
        self.unsettled = 0
        self.paused: list[HeldPartition] = []


class Watched:
    """A watch with one partition, which has five records, two of them settled."""

    def __init__(self) -> None:
        self.held = Held(5)
        for message in self.held.messages[:2]:
            message.ack()
        self.context = self.held.context
        self.context.clock = LoopClock()
        self.context.holdings[self.held.it.assignment] = self.held.it
        self.loop = Loop()
        self.loop.unsettled = 3
        loop: Any = self.loop
        self.watch = HealthWatch(self.context, loop)
        self.counts = self.context.log.events.counts

    def ack(self, number: int) -> None:
        """One more is settled."""
        self.held.messages[number].ack()
        self.loop.unsettled -= 1


def watching(test: Callable[[Watched], Awaitable[None]]) -> None:
    """Runs a test beside the watch."""

    async def both() -> None:
        watched = Watched()
        assert (watched.watch.turned, watched.watch.late) == (math.inf, 0.0)
        task = asyncio.create_task(watched.watch.run())
        await test(watched)
        assert not task.done()
        task.cancel()

    in_loop(both)


def block(seconds: float) -> None:
    """What a handler does that computes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    loop.jump(seconds)


def test_loop_is_known_to_turn_and_how_late() -> None:
    """From the first look on, twice a second."""

    async def test(watched: Watched) -> None:
        await asyncio.sleep(0.1)
        assert (watched.watch.turned, watched.watch.late) == (0.0, 0.0)
        await asyncio.sleep(0.5)
        assert watched.watch.turned == pytest.approx(0.5)
        assert watched.watch.late == pytest.approx(0.0)
        block(2.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert watched.watch.turned == pytest.approx(2.6)
        assert watched.watch.late == pytest.approx(1.6)
        await asyncio.sleep(0.5)
        assert watched.watch.late == pytest.approx(0.0)

    watching(test)


def test_loop_that_is_blocked_for_more_than_a_second_is_an_event() -> None:
    """Again only where it is blocked for more than twice as long."""

    async def test(watched: Watched) -> None:
        counts = []
        for seconds in (0.9, 1.6, 2.0, 3.0, 3.3, 6.0):
            before = watched.watch.turned
            while watched.watch.turned == before:
                await asyncio.sleep(0.01)
            block(seconds + 0.5)
            await asyncio.sleep(1.0)
            counts.append(watched.counts["loop-blocked"])
        assert counts == [0, 1, 1, 1, 2, 2]

    watching(test)


def test_no_ack_for_half_a_minute_while_nothing_is_fetched_is_an_event() -> None:
    """Once. An ack, or a fetch in between, begins the half minute anew."""

    async def test(watched: Watched) -> None:
        await asyncio.sleep(100)
        watched.loop.is_full = True
        await asyncio.sleep(29)
        watched.ack(2)
        await asyncio.sleep(29)
        watched.loop.is_full = False
        await asyncio.sleep(1)
        watched.loop.is_full = True
        await asyncio.sleep(29)
        assert watched.counts["no-ack"] == 0
        await asyncio.sleep(2)
        assert watched.counts["no-ack"] == 1
        (event,) = watched.context.log.events.all()
        assert event.text == "no record was settled for 30 s"
        assert event.partitions == (Partition("s", "0"),)
        watched.ack(3)
        await asyncio.sleep(100)
        assert watched.counts["no-ack"] == 1

    watching(test)


@pytest.mark.parametrize(
    "reason, count", [("share", 1), ("lag", 0), ("hand", 0), ("holes", 0), ("none", 0)]
)
def test_partition_that_is_not_fetched_for_another_reason_is_no_event(
    reason: str, count: int
) -> None:
    """That is said elsewhere; one that has used up its share waits for acks."""

    async def test(watched: Watched) -> None:
        held = watched.held.it
        held.is_over_lag = reason == "lag"
        held.paused_by_hand = "why" if reason == "hand" else None
        held.is_over_budget = reason == "holes"
        watched.loop.paused = [] if reason == "none" else [held]
        await asyncio.sleep(60)
        assert watched.counts["no-ack"] == count

    watching(test)


def test_counts_that_the_log_owes_are_written_while_nothing_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the watch, and not by the next failure."""

    async def test(watched: Watched) -> None:
        for _ in range(30):
            watched.context.log.failed(watched.held.messages[4], "no", 0.0)
        await asyncio.sleep(60)

    watching(test)
    assert "29 more deliveries were nacked" in caplog.text


class Asked:
    """An adapter that is asked for lags."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.lag_is: int | None = 7

    async def lag(self, assignments: Sequence[Assignment]) -> dict[Assignment, int | None]:
        """As it is; and of one that is not held any more."""
        self.times.append(asyncio.get_running_loop().time())
        gone = Assignment(Partition("s", "9"), epoch=9)
        return {**dict.fromkeys(assignments, self.lag_is), gone: 3}


@pytest.mark.parametrize("max_lag, count", [(None, 6), (6, 20), (7, 20)])
def test_lag_is_asked_for_while_somebody_wants_it(max_lag: int | None, count: int) -> None:
    """For a minute after the last question, or always, where there is a limit."""

    async def test() -> None:
        held, adapter = Held(1), Asked()
        asked: Any = adapter
        options = options_of(clock=LoopClock(), max_lag=max_lag)
        watch = LagWatch(asked, options, {held.it.assignment: held.it})
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(99)
        assert len(adapter.times) == (0 if max_lag is None else 9)
        watch.wanted_at = asyncio.get_running_loop().time()
        await asyncio.sleep(106)
        assert len(adapter.times) == count
        assert adapter.times[0] == (100.0 if max_lag is None else 10.0)
        assert held.it.lag == 7
        assert held.it.is_behind == (max_lag == 6)
        task.cancel()

    in_loop(test)


@pytest.mark.parametrize("max_lag", [None, 5])
def test_lag_is_news_unless_it_is_and_was_none(max_lag: int | None) -> None:
    """A partition that is read to its end is not looked at again and again."""

    async def test() -> None:
        held, adapter = Held(1), Asked()
        asked: Any = adapter
        watch = LagWatch(
            asked, options_of(clock=LoopClock(), max_lag=max_lag), {held.it.assignment: held.it}
        )
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(1)
        news = []
        for lag, was_news in (
            (None, False),
            (0, False),
            (0, False),
            (0, True),
            (2, False),
            (2, False),
            (0, False),
            (None, False),
        ):
            adapter.lag_is, held.it.is_news = lag, was_news
            watch.wanted_at = asyncio.get_running_loop().time()
            await asyncio.sleep(10)
            news.append(held.it.is_news)
        assert news == [False, True, False, True, True, True, True, True]
        task.cancel()

    in_loop(test)
