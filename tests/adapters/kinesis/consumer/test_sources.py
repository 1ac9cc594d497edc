"""Pages that are pushed, on the fake's subscriptions and on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from consumer_sdk.adapters.kinesis.consumer.sources import SILENCE, FanOut
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, Page, SubscriptionBusyError
from consumer_sdk.adapters.kinesis.starts import after
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Start, StartPoint
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, Quirks
from tests.adapters.kinesis.stage import SHARD, Stage
from tests.adapters.kinesis.stage import play as play_stage

FIVE_MINUTES = 300.0


class NotedService(FakeService):
    """Notes the starts of subscriptions, and how many are open."""

    def __init__(self, kinesis: FakeKinesis, faults: Faults) -> None:
        super().__init__(kinesis, "s", faults)
        self.starts: list[IteratorStart] = []
        self.open_ones = 0

    async def subscribe(
        self, consumer: str, shard: str, start: IteratorStart
    ) -> AsyncGenerator[Page, None]:
        """Notes it."""
        self.starts.append(start)
        self.open_ones += 1
        try:
            async with aclosing(super().subscribe(consumer, shard, start)) as pages:
                async for page in pages:
                    yield page
        finally:
            self.open_ones -= 1


class Scene:
    """One shard of a stream ``s`` with a consumer, and a subscriber to it."""

    def __init__(self, simulation: Simulation, quirks: Quirks) -> None:
        self.clock = simulation.clock
        self.kinesis = FakeKinesis(simulation.clock, quirks=quirks)
        self.kinesis.create_stream("s")
        self.error: Callable[[str], Exception] = TransientAdapterError
        self.faults = Faults(error=lambda seam: self.error(seam))
        self.service = NotedService(self.kinesis, self.faults)
        self.cursor: Start = StartPoint.EARLIEST
        self.found: list[str] = []
        self.errors: list[str] = []

    async def open(self) -> Scene:
        """Registers the consumer."""
        self.reader: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(0))
        self.arn = await self.service.consumer("c")
        self.source = self.another()
        return self

    def another(self) -> FanOut:
        """One more subscriber of the same consumer to the same shard."""
        return FanOut(self.service, SHARD, self.arn)

    def put(self, *values: str) -> list[int]:
        """Stores records; returns their sequence numbers."""
        return [self.kinesis.put("s", each.encode())[1].sequence for each in values]

    async def read(self) -> list[str]:
        """The next page's values; the cursor follows as a reader's would."""
        page = await self.source.read(self.cursor)
        if page.sequences:
            self.cursor = AtPosition(after(page.sequences[-1]))
        return [each.decode() for each in page.data]

    def follow(self) -> None:
        """Reads from now on into ``found``; what fails is tried again after two seconds."""
        self.reader = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                self.found += await self.read()
            except TransientAdapterError as error:
                self.errors.append(str(error))
                await asyncio.sleep(2)

    async def stop(self) -> None:
        """Stops following, as a session cancels its readers."""
        self.reader.cancel()
        await asyncio.gather(self.reader, return_exceptions=True)


def play(test: Callable[[Scene], Awaitable[None]], quirks: Quirks | None = None) -> None:
    """Runs a test on virtual time; afterwards no subscription is open."""

    async def main(simulation: Simulation) -> None:
        scene = await Scene(simulation, quirks or Quirks()).open()
        try:
            await test(scene)
        finally:
            await scene.stop()
            await scene.source.reset()
        assert scene.service.open_ones == 0

    simulate(main)


def after_sequence(number: int) -> IteratorStart:
    """After a record."""
    return IteratorStart("AFTER_SEQUENCE_NUMBER", number)


HORIZON = IteratorStart("TRIM_HORIZON")


def test_subscription_goes_on_after_five_minutes_where_it_ended() -> None:
    """Kinesis trap 27: from the continuation, AFTER it; each record comes once."""

    async def test(scene: Scene) -> None:
        scene.follow()
        last = 0
        for number in range(65):
            (last,) = scene.put(f"{number}")
            await asyncio.sleep(10)
        assert scene.found == [f"{number}" for number in range(65)]
        kinds = [start.kind for start in scene.service.starts]
        assert kinds == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
        assert scene.cursor == AtPosition(after(last))
        assert not scene.errors

    play(test)


def test_continuation_is_kept_while_the_shard_is_idle() -> None:
    """Kinesis trap 27: an hour without a record, and the next one comes."""

    async def test(scene: Scene) -> None:
        (first,) = scene.put("a")
        scene.follow()
        await asyncio.sleep(3600)
        scene.put("b")
        await asyncio.sleep(1)
        assert scene.found == ["a", "b"]
        assert set(scene.service.starts) == {HORIZON, after_sequence(first)}

    play(test)


def test_first_subscription_of_an_idle_shard_is_not_asked_for_its_start_again() -> None:
    """Kinesis trap 23: "latest" as a time would fall behind the retention period one day."""

    async def test(scene: Scene) -> None:
        await asyncio.sleep(10)
        scene.cursor = AtTime(scene.clock.wall() - 5)
        scene.follow()
        await asyncio.sleep(2 * FIVE_MINUTES)
        scene.put("a")
        await asyncio.sleep(1)
        assert scene.found == ["a"]
        assert [each.kind for each in scene.service.starts[1:]] == ["AFTER_SEQUENCE_NUMBER"] * 2

    play(test)


@pytest.mark.parametrize("null_with_last_records", [True, False])
def test_event_without_a_continuation_is_the_end_of_the_shard(null_with_last_records: Any) -> None:
    """Kinesis trap 27: with the last records, or after them."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        scene.kinesis.split("s", SHARD)
        pages = [await scene.source.read(scene.cursor)]
        if pages[-1].next is not None:
            pages.append(await scene.source.read(scene.cursor))
        assert [each.data for each in pages if each.data] == [[b"a"]]
        assert (pages[-1].next, pages[-1].has_children) == (None, True)
        assert len(pages) == (1 if null_with_last_records else 2)

    play(test, Quirks(null_with_last_records=null_with_last_records))


@pytest.mark.parametrize("takeover_error", [True, False])
def test_another_subscriber_takes_over_and_this_one_comes_back_without_a_loss(
    takeover_error: Any,
) -> None:
    """Kinesis trap 27: from the fifth second on; before that it is refused."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        scene.follow()
        await asyncio.sleep(1)
        other = scene.another()
        with pytest.raises(SubscriptionBusyError):
            await other.read(StartPoint.EARLIEST)
        await asyncio.sleep(5)
        page = await other.read(StartPoint.EARLIEST)
        assert page.data == [b"a"]
        await asyncio.sleep(10)
        scene.put("b")
        await asyncio.sleep(10)
        await other.reset()
        assert scene.found == ["a", "b"]

    play(test, Quirks(takeover_error=takeover_error))


def test_error_inside_the_stream_goes_on_after_the_last_event() -> None:
    """Kinesis trap 27: as an event of its own, in the middle of records."""

    async def test(scene: Scene) -> None:
        scene.follow()
        last = 0
        for number in range(20):
            (last,) = scene.put(f"{number}")
            if number % 5 == 3:
                scene.faults.fail_next("event")
            await asyncio.sleep(10)
        assert scene.found == [f"{number}" for number in range(20)]
        assert len(scene.errors) == 4
        assert scene.service.starts[-1] != after_sequence(last)

    play(test)


def test_silence_is_taken_for_death_and_the_place_is_kept() -> None:
    """Kinesis trap 27: half a minute; an event comes every five seconds."""

    async def test(scene: Scene) -> None:
        (first,) = scene.put("a")
        scene.follow()
        await asyncio.sleep(1)
        scene.faults.die()
        while not scene.errors:
            await asyncio.sleep(1)
        assert SILENCE <= asyncio.get_running_loop().time() <= SILENCE + 5
        assert "no event of the subscription for 30 s" in scene.errors[0]
        assert scene.service.open_ones == 0
        await asyncio.sleep(3)
        assert scene.service.starts == [HORIZON, after_sequence(first)]

    play(test)


def test_cancelled_read_unsubscribes_and_loses_nothing() -> None:
    """Kinesis trap 27: the generator is closed, whose connection would stay otherwise."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        assert await scene.read() == ["a"]
        reading = asyncio.create_task(scene.read())
        await asyncio.sleep(3)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert scene.service.open_ones == 0
        await asyncio.sleep(3)
        scene.put("b")
        assert await scene.read() == ["b"]

    play(test)


def test_rest_gives_the_connection_back_and_keeps_the_place() -> None:
    """Kinesis trap 27: a slow handler; the service holds nothing for it meanwhile."""

    async def test(scene: Scene) -> None:
        (first,) = scene.put("a")
        assert await scene.read() == ["a"]
        await scene.source.rest()
        assert scene.service.open_ones == 0
        scene.put("b", "c")
        await asyncio.sleep(600)
        assert await scene.read() == ["b", "c"]
        assert scene.service.starts == [HORIZON, after_sequence(first)]

    play(test)


def test_reset_asks_by_the_cursor_again() -> None:
    """What was read ahead was forgotten."""

    async def test(scene: Scene) -> None:
        first, _ = scene.put("a", "b")
        assert await scene.read() == ["a", "b"]
        await scene.source.reset()
        await asyncio.sleep(10)
        scene.cursor = AtPosition((first, 0))
        assert await scene.read() == ["a", "b"]
        assert scene.service.starts[-1] == IteratorStart("AT_SEQUENCE_NUMBER", first)

    play(test)


# -- through the adapter ------------------------------------------------------------------------


def test_consumer_that_is_slow_for_minutes_loses_nothing() -> None:
    """Kinesis traps 12 and 27: unsubscribed after five seconds without room, and back again."""

    async def test(stage: Stage) -> None:
        member = await stage.member(fan_out="c", buffer_bytes=500)
        await member.holding(SHARD)
        expected = [f"{number}{'x' * 100}" for number in range(48)]
        found: list[str] = []
        for number, value in enumerate(expected):
            stage.put(value)
            await asyncio.sleep((0.1, 20, 400)[number % 3])
            if number % 4 == 3:
                found += await member.read(0.1, max_records=2)
        while len(found) < len(expected):
            await asyncio.sleep(30)
            more = await member.read(0.1, max_records=3)
            found += more
        assert found == expected

    play_stage(test)


def test_split_shard_is_followed_by_its_children() -> None:
    """Kinesis traps 20 and 27: the end is told once, the children begin at their horizon."""

    async def test(stage: Stage) -> None:
        consumer = stage.consumer(adapter={"fan_out": "c"})
        seen: list[str] = []

        async def handle(message: Any) -> None:
            seen.append(message.value.decode())

        async with consumer:
            loop = asyncio.get_running_loop()
            loop.call_later(10, lambda: stage.put("a"))
            loop.call_later(20, lambda: stage.kinesis.split("s", SHARD))
            loop.call_later(21, lambda: stage.put("b"))
            loop.call_later(200, consumer.stop)
            await consumer.run(handle)
            assert len(consumer.stats().partitions) == 2
        assert seen == ["a", "b"]

    play_stage(test)


def test_failures_long_ago_do_not_make_later_ones_wait_longer() -> None:
    """A subscription that works again is no longer failing."""

    async def test(stage: Stage) -> None:
        member = await stage.member(fan_out="c")
        await member.holding(SHARD)
        for number in range(12):
            await member.read(60)
            member.faults.fail_next("event")
            stage.put(f"{number}")
            assert await member.read(8) == [f"{number}"]

    play_stage(test)


@pytest.mark.parametrize("names_children", [True, False])
def test_event_that_does_not_say_how_to_read_on_is_no_end_of_an_open_shard(
    names_children: Any,
) -> None:
    """Kinesis traps 20 and 27: each third event; nothing is lost, and the real end is found."""

    async def test(stage: Stage) -> None:
        member = await stage.member(fan_out="c")
        await member.holding(SHARD)
        found: list[str] = []
        for number in range(20):
            stage.put(f"{number}")
            found += await member.read(10)
        assert found == [f"{number}" for number in range(20)]
        assert not member.ends
        stage.kinesis.split("s", SHARD)
        await member.read(120)
        assert member.ends == [SHARD]

    play_stage(test, quirks=Quirks(false_ends=3, names_children=names_children))
