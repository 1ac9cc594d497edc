"""What is taken of many partitions from a small buffer, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.kafka.consumer.fetching import FetchBuffer
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import Fetcher
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.consumer.test_salvaging import OPTIONS
from tests.adapters.kafka.fetch.fake_cluster import FakeCluster

PARTITIONS = [TopicPartition("t", n) for n in range(6)]


class Taking:
    """A buffer over the grants of all partitions, and a cluster in which each has records."""

    def __init__(self, options: FetchOptions, batches: int) -> None:
        self.cluster = FakeCluster()
        self.grants = AssignmentBook[Grant]()
        self.buffer = FetchBuffer(self.cluster, self.grants, OPTIONS)
        buffer: Any = self.buffer
        buffer._fetcher = Fetcher(self.cluster, options, self.buffer.wake)
        for tp in PARTITIONS:
            self.cluster.create(tp, 1 + tp.partition % 3)
            for _ in range(batches):
                self.cluster.append(tp, 4)

    def open(self, tp: TopicPartition) -> Grant:
        """Holds a partition, from its first offset on."""
        grant = Grant(tp, None)
        grant.state = GrantState.OPEN
        grant.cursor.seek(0)
        self.buffer.add(grant.cursor)
        grant.cursor.resume()
        self.grants.offer(grant)
        return grant

    async def read(self, records: int, seconds: float) -> dict[TopicPartition, list[int]]:
        """Takes until so many have come."""
        seen: dict[TopicPartition, list[int]] = {tp: [] for tp in PARTITIONS}
        async with asyncio.timeout(seconds):
            while sum(map(len, seen.values())) < records:
                runs = self.buffer.take(3, 1 << 20)
                if not runs:
                    await self.buffer.wait(60)
                for run in runs:
                    tp = TopicPartition(
                        run.assignment.partition.stream, int(run.assignment.partition.id)
                    )
                    seen[tp] += [message.position for message in run.messages]
        return seen


@pytest.mark.parametrize("room", [500, 3000, 100_000])
def test_all_is_read_through_a_buffer_of_any_size(room: int) -> None:
    """Also one that each answer overfills."""

    async def main(_simulation: Simulation) -> None:
        taking = Taking(FetchOptions(max_bytes=room, max_partition_bytes=400), 50)
        for tp in PARTITIONS:
            taking.open(tp)
        seen = await taking.read(200 * len(PARTITIONS), 20)
        assert seen == {tp: list(range(200)) for tp in PARTITIONS}
        await taking.buffer.aclose()

    simulate(main)


def test_whoever_makes_room_has_the_others_fetched() -> None:
    """1. One partition fills the buffer; 2. a part of it is taken, and it is paused; 3. nobody asks for the others.

    It has enough still, and is not asked for itself.
    """

    async def main(_simulation: Simulation) -> None:
        taking = Taking(FetchOptions(max_bytes=1500, max_partition_bytes=2000), 0)
        one, other = PARTITIONS[:2]
        taking.cluster.append(one, 4)
        first = taking.open(one)
        await asyncio.sleep(1)
        for _ in range(10):
            taking.cluster.append(one, 4)
        taking.cluster.append(other, 4)
        await asyncio.sleep(1)
        late = taking.open(other)
        await asyncio.sleep(1)
        assert not late.cursor.queue, "there is room"
        (run,) = taking.buffer.take(4, 1 << 20)
        first.pause()
        assert len(run.messages) == 4
        assert (await taking.read(4, 20))[other] == [0, 1, 2, 3]
        await taking.buffer.aclose()

    simulate(main)


def test_whoever_reads_the_last_record_has_the_next_one_fetched() -> None:
    """1. A partition has enough, and its node is not asked; 2. all of it is taken; 3. nobody asks for more."""

    async def main(_simulation: Simulation) -> None:
        taking = Taking(FetchOptions(max_partition_bytes=400), 0)
        taking.cluster.append(PARTITIONS[0], 20)
        taking.open(PARTITIONS[0])
        await asyncio.sleep(1)
        taking.cluster.append(PARTITIONS[0], 20)
        await asyncio.sleep(1)
        assert (await taking.read(40, 20))[PARTITIONS[0]] == list(range(40))
        await taking.buffer.aclose()

    simulate(main)


def test_what_is_paused_makes_no_room_and_takes_none_from_the_others() -> None:
    """It is kept; when it is resumed, it comes."""

    async def main(_simulation: Simulation) -> None:
        taking = Taking(FetchOptions(max_bytes=1000, max_partition_bytes=400), 50)
        paused = [taking.open(tp) for tp in PARTITIONS[:3]]
        await asyncio.sleep(1)
        for grant in paused:
            grant.pause()
        for tp in PARTITIONS[3:]:
            taking.open(tp)
        seen = await taking.read(600, 20)
        for grant in paused:
            assert not seen[grant.tp]
            grant.resume()
        rest = await taking.read(600, 20)
        assert [*seen.values()][3:] == [*rest.values()][:3] == [list(range(200))] * 3
        await taking.buffer.aclose()

    simulate(main)


def test_grants_share_what_is_taken() -> None:
    """One that always has records does not keep the others from theirs."""

    async def main(_simulation: Simulation) -> None:
        taking = Taking(FetchOptions(max_partition_bytes=400), 50)
        for tp in PARTITIONS:
            taking.open(tp)
        seen = await taking.read(150, 20)
        assert all(seen.values())
        await taking.buffer.aclose()

    simulate(main)
