"""The rows of "Where a consumer starts", for a broker and a store: whole consumers, nothing faked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from consumer_sdk import (
    AtPosition,
    AtTime,
    CheckpointFormatError,
    CheckpointMismatchError,
    Consumer,
    Message,
    PositionOutOfRangeError,
)
from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.records import Assignment, Checkpoint, Partition
from consumer_sdk.runtime.observing.stats import ConsumerStats
from consumer_sdk.testing.conformance.adapters import AdapterHarness, Record
from consumer_sdk.trackers import encode_checkpoint

__all__ = ["Scene", "StartCases", "StoredStartCases"]

GROUP = "g"
PATIENCE = 300.0
"""Seconds until something that has to happen counts as missing."""
ALL = range(1000)
LONG_AGO = 1_600_000_000.0


class Scene:
    """A stream of ten records, 0 to 9, and consumers of it.

    Args:
        broker: where it is.
        make_store: a new handle on one store; None for none.

    Attributes:
        first_time: when record 0 was made, record 1 a millisecond later; None for now.
    """

    def __init__(
        self, broker: AdapterHarness, make_store: Callable[[], CheckpointStore] | None
    ) -> None:
        self.broker = broker
        self._make_store = make_store
        self.has_store = make_store is not None
        self.stream = ""
        self.first_time: float | None = None

    async def prepare(self, count: int = 10, partitions: int = 1) -> None:
        """Makes the stream."""
        self.stream = await self.broker.create_stream(partitions)
        for partition in range(partitions):
            await self.append(*range(count), partition=partition)

    async def append(self, *values: int, partition: int = 0) -> None:
        """Appends numbers."""
        first = self.first_time
        times = [None if first is None else int(first * 1000) + value for value in values]
        records = [
            Record(b"%d" % value, timestamp=time) for value, time in zip(values, times, strict=True)
        ]
        await self.broker.append(self.stream, records, partition)

    async def reset(self, position: int) -> None:
        """Another program sets the group's position."""
        await self.broker.reset(self.stream, GROUP, position)

    def group(self, name: str = GROUP) -> str:
        """The group's name at the broker and in the store."""
        return self.broker.make_adapter(self.stream, name).group or ""

    def consumer(self, group: str = GROUP, **options: Any) -> Consumer:
        """A consumer that is not open yet."""
        options.setdefault("drain_timeout", 0.05)
        store = self._make_store() if self._make_store else None
        return Consumer(self.broker.make_adapter(self.stream, group), store=store, **options)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[CheckpointStore]:
        """A handle of the test's own."""
        assert self._make_store is not None
        store = self._make_store()
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()

    async def plant(self, checkpoint: Checkpoint) -> None:
        """Another process has saved this."""
        assignment = Assignment(Partition(self.stream, "0"), 1)
        broker = self.broker.make_adapter(self.stream, "nobody").broker
        text, _ = encode_checkpoint(
            checkpoint, broker=broker, partition=assignment.partition, encode_position=str
        )
        async with self.store() as store:
            await store.claim(self.group(), [assignment])
            await store.save(self.group(), [StoreItem(assignment, text)])

    async def take(
        self, count: int, ack: range | set[int] = range(0), **options: Any
    ) -> tuple[list[int], ConsumerStats]:
        """What a consumer is handed first, of which it settles these; it is closed then."""
        async with asyncio.timeout(PATIENCE), self.consumer(**options) as consumer:
            taken = [await anext(consumer) for _ in range(count)]
            for message in taken:
                if _value(message) in ack:
                    assert message.ack()
            await consumer.flush()
            return [_value(message) for message in taken], consumer.stats()

    async def take_after(self, *values: int, count: int, **options: Any) -> list[int]:
        """The same, where nothing comes before these are appended."""
        async with asyncio.timeout(PATIENCE), self.consumer(**options) as consumer:
            pulling = asyncio.create_task(self._take(consumer, count))
            await until_granted(consumer)
            await self.append(*values)
            return await pulling

    @staticmethod
    async def _take(consumer: Consumer, count: int) -> list[int]:
        return [_value(await anext(consumer)) for _ in range(count)]


def _value(message: Message) -> int:
    return int(message.value or b"-1")


async def until_granted(consumer: Consumer) -> None:
    """Waits until it holds its partitions, and its start is decided and durable."""
    async with asyncio.timeout(PATIENCE):
        while not any(lag is not None for lag in (await consumer.lag()).values()):
            await asyncio.sleep(0.01)


class StartCases:
    """With and without a store."""

    pytestmark = pytest.mark.asyncio

    async def test_checkpoint_comes_before_start(self, scene: Scene) -> None:
        """What was settled is not delivered again, whatever start= says."""
        await scene.prepare()
        await scene.take(5, ack=ALL)
        assert (await scene.take(2, start="latest"))[0] == [5, 6]

    async def test_start_earliest_is_the_first_record_stored(self, scene: Scene) -> None:
        """The default."""
        await scene.prepare()
        await scene.broker.truncate(scene.stream, 4)
        assert (await scene.take(1))[0] == [4]

    async def test_start_latest_is_pinned_before_the_first_record(self, scene: Scene) -> None:
        """What comes between the first start and the first ack is not lost."""
        await scene.prepare()
        assert await scene.take_after(10, count=1, start="latest") == [10]
        await scene.append(11)
        assert (await scene.take(2, start="latest"))[0] == [10, 11]

    async def test_start_at_a_time_and_at_a_position(self, scene: Scene) -> None:
        """The first record stored at or after it."""
        scene.first_time = LONG_AGO
        await scene.prepare()
        assert (await scene.take(1, start=AtTime(LONG_AGO + 0.006), group="time"))[0] == [6]
        assert (await scene.take(1, start=AtPosition(7), group="position"))[0] == [7]

    async def test_start_at_a_time_that_no_record_has_reached_is_the_end(
        self, scene: Scene
    ) -> None:
        """And is pinned there."""
        await scene.prepare()
        assert await scene.take_after(10, count=1, start=AtTime(9e9)) == [10]
        assert (await scene.take(1, start=AtTime(9e9)))[0] == [10]

    async def test_new_application_starts_anew_once(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Aloud; a restart of the same one resumes, also when nothing was settled before it."""
        await scene.prepare()
        await scene.take(5, ack=ALL, application_id="v1", restart="from_start")
        v2: dict[str, Any] = {"application_id": "v2", "restart": "from_start"}
        with caplog.at_level(logging.WARNING):
            assert (await scene.take(2, **v2))[0] == [0, 1]
        assert "application 'v2' starts anew" in caplog.text
        caplog.clear()
        assert (await scene.take(3, ack=ALL, **v2))[0] == [0, 1, 2]
        assert (await scene.take(1, **v2))[0] == [3]
        assert (await scene.take(1, restart="resume"))[0] == [3]
        assert "starts anew" not in caplog.text
        assert (await scene.take(1, application_id="v3", restart="from_start"))[0] == [0]

    async def test_new_application_from_latest_keeps_that_end(self, scene: Scene) -> None:
        """From start= means from start=, pinned for that application."""
        await scene.prepare()
        await scene.take(3, ack=ALL, application_id="v1")
        v2: dict[str, Any] = {"application_id": "v2", "restart": "from_start", "start": "latest"}
        assert await scene.take_after(10, count=1, **v2) == [10]
        assert (await scene.take(1, **v2))[0] == [10]

    async def test_partition_that_appears_is_read_from_its_earliest(self, scene: Scene) -> None:
        """Also by a group that started at the end."""
        await scene.prepare()
        async with asyncio.timeout(PATIENCE), scene.consumer(start="latest") as consumer:
            await until_granted(consumer)
            await scene.broker.grow(scene.stream, 2)
            await scene.append(0, 1, partition=1)
            found = [await anext(consumer) for _ in range(2)]
        assert [(m.partition.id, _value(m)) for m in found] == [("1", 0), ("1", 1)]

    async def test_start_out_of_range_fails_by_default(self, scene: Scene) -> None:
        """Before any record, and again at the next start."""
        await scene.prepare()
        await scene.take(2, ack=ALL)
        await scene.broker.truncate(scene.stream, 6)
        for _ in range(2):
            with pytest.raises(PositionOutOfRangeError, match="at 2, but the broker's log starts"):
                await scene.take(1)

    @pytest.mark.parametrize("policy, lost", [("earliest", 4), ("latest", 8)])
    async def test_start_out_of_range_follows_the_policy_once(
        self, scene: Scene, policy: str, lost: int
    ) -> None:
        """What is lost is counted; the next start finds the decision."""
        await scene.prepare()
        await scene.take(2, ack=ALL)
        await scene.broker.truncate(scene.stream, 6)
        async with asyncio.timeout(PATIENCE), scene.consumer(out_of_range=policy) as consumer:
            await until_granted(consumer)
            assert consumer.stats().lost == lost
        await scene.append(10)
        taken, stats = await scene.take(1)
        assert (taken, stats.lost) == ([6 if policy == "earliest" else 10], 0)

    async def test_start_out_of_range_goes_on_at_a_time(self, scene: Scene) -> None:
        """At its first record; at the earliest that is stored, or the end, where none is there."""
        scene.first_time = LONG_AGO
        await scene.prepare()
        await scene.take(2, ack=ALL)
        await scene.broker.truncate(scene.stream, 6)
        for group, late, lost in (("early", 0.0, 4), ("mid", 0.008, 6), ("late", 1e6, 8)):
            options = {"start": AtPosition(2), "out_of_range": AtTime(LONG_AGO + late)}
            async with scene.consumer(group, **options) as consumer:
                await until_granted(consumer)
                assert consumer.stats().lost == lost
        policy = AtTime(datetime.fromtimestamp(LONG_AGO + 0.008, UTC))
        assert (await scene.take(1, out_of_range=policy))[0] == [8]
        assert (await scene.take(1))[0] == [8]

    async def test_position_out_of_range_given_as_start_follows_the_policy(
        self, scene: Scene
    ) -> None:
        """It is no reason to try for ever."""
        await scene.prepare()
        await scene.broker.truncate(scene.stream, 6)
        with pytest.raises(PositionOutOfRangeError):
            await scene.take(1, start=AtPosition(2))
        taken, stats = await scene.take(1, start=AtPosition(2), out_of_range="earliest")
        assert (taken, stats.lost) == ([6], 4)

    async def test_lag_beyond_the_limit_is_said(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        """At the limit nothing is; the records come all the same."""
        await scene.prepare()
        with caplog.at_level(logging.WARNING):
            assert (await scene.take(1, max_lag=10))[0] == [0]
            assert "behind the end" not in caplog.text
            assert (await scene.take(1, max_lag=9))[0] == [0]
        assert "it starts at 0, 10 positions behind the end (max_lag=9)" in caplog.text

    async def test_lag_beyond_the_limit_pauses_until_resume(self, scene: Scene) -> None:
        """Nothing is fetched, and stats() shows it."""
        await scene.prepare()
        options: dict[str, Any] = {"max_lag": 5, "lag_policy": "pause"}
        async with asyncio.timeout(PATIENCE), scene.consumer(**options) as consumer:
            pulling = asyncio.ensure_future(anext(consumer))
            await until_granted(consumer)
            await asyncio.wait({pulling}, timeout=0.5)
            stats, partition = consumer.stats(), Partition(scene.stream, "0")
            assert (stats.fetched, stats.paused, stats.over_max_lag) == (
                0,
                (partition,),
                (partition,),
            )
            assert "call consumer.resume(partition)" in str(consumer.explain()[partition])
            assert not consumer.resume(Partition(scene.stream, "7"))
            assert consumer.resume(partition)
            assert _value(await pulling) == 0
            assert not consumer.resume(partition)
            assert (consumer.stats().paused, consumer.stats().over_max_lag) == ((), ())
            assert consumer.explain()[partition].held_back is None

    async def test_lag_beyond_the_limit_is_skipped_and_counted_once(self, scene: Scene) -> None:
        """Durably: a restart does not skip what came meanwhile."""
        await scene.prepare()
        options: dict[str, Any] = {"max_lag": 5, "lag_policy": "skip"}
        async with asyncio.timeout(PATIENCE), scene.consumer(**options) as consumer:
            await until_granted(consumer)
            assert consumer.stats().lost == 10
        await scene.append(10, 11)
        taken, stats = await scene.take(1, **options)
        assert (taken, stats.lost) == ([10], 0)

    async def test_position_that_another_program_set_is_where_it_starts(self, scene: Scene) -> None:
        """Back or forth; it is a reset where a store says otherwise, and only once."""
        await scene.prepare()
        await scene.take(5, ack=ALL)
        for position in (2, 8):
            await scene.reset(position)
            taken, stats = await scene.take(1)
            assert (taken, stats.resets) == ([position], int(scene.has_store))
            taken, stats = await scene.take(1, ack=ALL)
            assert (taken, stats.resets) == ([position], 0)
            taken, stats = await scene.take(1)
            assert (taken, stats.resets) == ([position + 1], 0)

    async def test_group_of_another_client_is_taken_over(self, scene: Scene) -> None:
        """Its position counts, and is ours from then on."""
        await scene.prepare()
        await scene.reset(3)
        taken, stats = await scene.take(2, ack=ALL, start="latest")
        assert (taken, stats.resets) == ([3, 4], 0)
        taken, stats = await scene.take(1)
        assert (taken, stats.resets) == ([5], 0)

    async def test_reset_comes_before_a_new_application(self, scene: Scene) -> None:
        """It has erased what would say whether that one had started anew before."""
        await scene.prepare()
        v1: dict[str, Any] = {"application_id": "v1", "restart": "from_start"}
        await scene.take(5, ack=ALL, **v1)
        await scene.reset(7)
        assert (await scene.take(1, ack=ALL, **v1))[0] == [7]
        assert (await scene.take(1, **v1))[0] == [8]


class StoredStartCases(StartCases):
    """What takes a store."""

    async def test_partition_newer_than_the_group_is_not_read_from_latest(
        self, scene: Scene
    ) -> None:
        """It appeared while nobody was there to see it; the group's pin does not name it."""
        await scene.prepare()
        assert await scene.take_after(10, count=1, start="latest") == [10]
        await scene.broker.grow(scene.stream, 2)
        await scene.append(100, 101, partition=1)
        assert sorted((await scene.take(3, start="latest"))[0]) == [10, 100, 101]

    async def test_latest_is_that_of_the_group_for_a_partition_claimed_later(
        self, scene: Scene
    ) -> None:
        """Of two partitions one had no checkpoint yet; what came meanwhile is not skipped."""
        await scene.prepare(partitions=2)
        async with asyncio.timeout(PATIENCE), scene.consumer("scout", start="latest") as scout:
            await until_granted(scout)
        async with scene.store() as store:
            pins = await store.pins(scene.group("scout"))
            ((name, start),) = pins.items()
            await store.pin(
                scene.group(), name, start
            )  # GROUP's first member held partition 0 alone
        await scene.append(10, partition=1)
        assert (await scene.take(1, start="latest"))[0] == [10]

    async def test_time_is_that_of_the_groups_first_start(self, scene: Scene) -> None:
        """Members that count back from their own start agree."""
        scene.first_time = LONG_AGO
        await scene.prepare(partitions=2)
        async with scene.store() as store:
            async with (
                asyncio.timeout(PATIENCE),
                scene.consumer("s", start=AtTime(LONG_AGO + 0.006)) as c,
            ):
                await until_granted(c)
            ((name, start),) = (await store.pins(scene.group("s"))).items()
            await store.pin(scene.group(), name, start)
        assert set((await scene.take(2, start=AtTime(LONG_AGO + 0.009), fetch_records=1))[0]) <= {
            6,
            7,
        }

    async def test_garbled_pin_stops_the_consumer(self, scene: Scene) -> None:
        """It never means that "latest" is asked anew."""
        await scene.prepare()
        async with asyncio.timeout(PATIENCE), scene.consumer("s", start="latest") as consumer:
            await until_granted(consumer)
        async with scene.store() as store:
            ((name, _),) = (await store.pins(scene.group("s"))).items()
            await store.pin(scene.group(), name, '{"version":1,"positions":["0"]}')
        with pytest.raises(CheckpointFormatError, match="has pinned for"):
            await scene.take(1, start="latest")

    async def test_store_comes_before_a_group_that_never_committed(self, scene: Scene) -> None:
        """The broker has nothing, or has let it expire."""
        await scene.prepare()
        await scene.plant(Checkpoint(3, 4, ((6, 7),)))
        assert (await scene.take(3))[0] == [4, 5, 8]

    async def test_reset_to_where_the_store_is_reads_what_is_settled_above_again(
        self, scene: Scene
    ) -> None:
        """Whoever sets a position wants all from there on."""
        await scene.prepare()
        await scene.take(4, ack={0, 2})
        await scene.reset(1)
        taken, stats = await scene.take(2)
        assert (taken, stats.resets) == ([1, 2], 1)

    async def test_reset_to_where_the_store_reads_on_below_its_watermark_reads_that_again(
        self, scene: Scene
    ) -> None:
        """What it would read there and drop, since all of it was settled out of order."""
        await scene.prepare()
        await scene.plant(Checkpoint(watermark=6, resume=4))
        await scene.reset(4)
        taken, stats = await scene.take(2)
        assert (taken, stats.resets) == ([4, 5], int(scene.has_store))

    async def test_reset_is_said_aloud(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        """With both places."""
        await scene.prepare()
        await scene.take(4, ack={0, 2})
        await scene.reset(3)
        with caplog.at_level(logging.WARNING):
            assert (await scene.take(1))[0] == [3]
        assert "another program has set the group's position to 3; going on there" in caplog.text
        assert "checkpoint (1, with 1 settled ranges above it)" in caplog.text

    async def test_partition_that_was_read_to_its_end_is_not_read_again(self, scene: Scene) -> None:
        """Whatever the broker still stores of it."""
        await scene.prepare()
        await scene.plant(Checkpoint(9, 10, ended=True))
        async with asyncio.timeout(PATIENCE), scene.consumer() as consumer:
            pulling = asyncio.ensure_future(anext(consumer))
            while not consumer.stats().partitions:
                await asyncio.sleep(0.01)
            await asyncio.wait({pulling}, timeout=0.3)
            assert consumer.stats().fetched == 0
            pulling.cancel()

    async def test_stream_made_again_is_refused(self, scene: Scene) -> None:
        """Other records have the positions now; the checkpoint stays for whoever looks."""
        await scene.prepare()
        await scene.take(5, ack=ALL)
        await scene.broker.recreate(scene.stream)
        await scene.append(*range(10))
        with pytest.raises(CheckpointMismatchError, match="made for identity"):
            await scene.take(1)
