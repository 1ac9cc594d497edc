"""How large records are as they are stored, by what a probe of the newest ones brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from consumer_sdk.adapters.kafka.client.lookups import EARLIEST, LATEST
from consumer_sdk.adapters.kafka.ranges.sizes import (
    PROBE_BYTES,
    PROBED_TOGETHER,
    RECENT,
    stored_sizes,
)
from tests.adapters.kafka.ranges.test_batches import batch

A, B, C, U = (TopicPartition(*each) for each in (("t", 0), ("t", 1), ("t", 2), ("u", 0)))


class Probed:
    """A connection to brokers that answer probes.

    Attributes:
        firsts, ends: where the log of each partition begins and ends.
        leaders: the node of each; 1 of the others.
        stored: what each answers.
        codes: an error of the first answer for a partition.
        probes: node, topic, partition, offset and bytes of each question.
    """

    def __init__(self) -> None:
        self.firsts: dict[TopicPartition, int | None] = {}
        self.ends: dict[TopicPartition, int | None] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.stored: dict[TopicPartition, bytes | None] = {}
        self.codes: dict[TopicPartition, int] = {}
        self.probes: list[tuple[int, str, int, int, int]] = []
        self.requests: list[Any] = []
        self.options = SimpleNamespace(level=1)
        self.what = ""

    def add(
        self, tp: TopicPartition, data: bytes | None, first: int | None = 0, end: int | None = 9
    ) -> None:
        """One more partition."""
        self.firsts[tp], self.ends[tp], self.stored[tp] = first, end, data

    async def look_up(
        self, tps: Sequence[TopicPartition], time: int
    ) -> dict[TopicPartition, int | None]:
        """As `Connection` does; so with the others."""
        found = {EARLIEST: self.firsts, LATEST: self.ends}[time]
        return {tp: found[tp] for tp in tps}

    def leader(self, tp: TopicPartition) -> int:
        return self.leaders.get(tp, 1)

    async def persist(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        self.what = what
        for _ in range(3):
            try:
                return await ask()
            except NotLeaderForPartitionError:
                continue
        raise AssertionError("it is asked without end")

    async def send(self, node: int, request: Any) -> Any:
        self.requests.append(request)
        topics = []
        for topic, partitions in request._topics:
            self.probes += [(node, topic, *each) for each in partitions]
            tps = [TopicPartition(topic, number) for number, *_rest in partitions]
            parts: list[Any] = [
                (tp.partition, self.codes.pop(tp, 0), 9, 9, [], self.stored[tp]) for tp in tps
            ]
            topics.append((topic, parts))
        return SimpleNamespace(topics=topics)

    async def sizes(self, *tps: TopicPartition) -> dict[TopicPartition, float]:
        """What is found out."""
        connection: Any = self
        return await stored_sizes(connection, iter(tps))


def old_record(value: bytes) -> bytes:
    """A record of the format before Kafka 0.11."""
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, 5, None, value)
    return bytes(builder.build())


async def test_size_is_the_mean_of_what_is_stored() -> None:
    """Over batches of several records, and over the last one too, which may be cut off behind its head."""
    one, two = batch(range(3), value=b"x" * 100), batch(range(5), base=3, value=b"y" * 10)
    probed = Probed()
    probed.add(A, one + two)
    probed.add(B, one + two[:-20])
    probed.add(C, one + two[:61])
    mean = (len(one) + len(two)) / 8
    assert await probed.sizes(A, B, C) == {A: mean, B: mean, C: mean}
    assert probed.what == "probing t[0], t[1], t[2]"


async def test_compressed_records_count_as_they_are_stored() -> None:
    """That is what a broker sends."""
    data = batch(range(10), codec=1, value=b"x" * 1000)
    probed = Probed()
    probed.add(A, data)
    assert await probed.sizes(A) == {A: len(data) / 10}


async def test_records_of_old_formats_count_one_by_one() -> None:
    """Beside batches, too."""
    one, two, three = old_record(b"x" * 50), old_record(b"y"), batch(range(2))
    probed = Probed()
    probed.add(A, one + two)
    probed.add(B, one + three)
    sizes = await probed.sizes(A, B)
    assert sizes == {A: (len(one) + len(two)) / 2, B: (len(one) + len(three)) / 3}


@pytest.mark.parametrize("cut", [17, 57, 58, 60])
async def test_batch_that_is_cut_off_before_its_count_does_not_count(cut: int) -> None:
    """A part of the count would say that it has no record, or few."""
    one, two = batch(range(3)), batch(range(300), base=3)
    probed = Probed()
    probed.add(A, one + two[:cut])
    assert await probed.sizes(A) == {A: len(one) / 3}


@pytest.mark.parametrize("data", [None, b"", batch(range(1))[:60], batch([])])
async def test_partition_whose_probe_shows_no_record_has_no_size(data: bytes | None) -> None:
    """A batch that compaction has emptied has no record either."""
    probed = Probed()
    probed.add(A, data)
    probed.add(B, batch(range(1)))
    assert (await probed.sizes(A, B)).keys() == {B}


@pytest.mark.parametrize("first, end", [(None, 9), (0, None), (9, 9), (10, 9)])
async def test_empty_partition_is_not_probed(first: int | None, end: int | None) -> None:
    """Nor one that nobody knows of."""
    probed = Probed()
    probed.add(A, batch(range(1)), first, end)
    assert await probed.sizes(A) == {}
    assert probed.probes == []


async def test_newest_records_are_probed_together_by_their_leaders() -> None:
    """From a thousand before the end on, or from the first that is there."""
    probed = Probed()
    probed.add(A, batch(range(1)), 5, RECENT + 4)
    probed.add(B, batch(range(1)), 5, RECENT + 6)
    probed.add(C, batch(range(1)), 8, 9)
    probed.add(U, batch(range(1)))
    probed.leaders[C] = 2
    assert len(await probed.sizes(A, B, C, U)) == 4
    assert sorted(probed.probes) == [
        (1, "t", 0, 5, PROBE_BYTES),
        (1, "t", 1, 6, PROBE_BYTES),
        (1, "u", 0, 0, PROBE_BYTES),
        (2, "t", 2, 8, PROBE_BYTES),
    ]
    assert len(probed.requests) == 2
    for request in probed.requests:
        assert (request._max_wait_ms, request._min_bytes) == (0, 0)
        assert (request._max_bytes, request._isolation_level) == (PROBE_BYTES * PROBED_TOGETHER, 1)


async def test_answer_is_never_larger_than_a_bound_of_many_probes() -> None:
    """Of thousands of partitions several requests are made."""
    tps = [TopicPartition("t", number) for number in range(2 * PROBED_TOGETHER + 1)]
    probed = Probed()
    for tp in tps:
        probed.add(tp, batch(range(1)))
    assert (await probed.sizes(*tps)).keys() == set(tps)
    counts = [sum(len(parts) for _topic, parts in each._topics) for each in probed.requests]
    assert sorted(counts) == [1, PROBED_TOGETHER, PROBED_TOGETHER]


async def test_what_was_answered_is_not_probed_again_after_an_error() -> None:
    """Of a partition whose leader has changed, say."""
    probed = Probed()
    probed.leaders[B] = 2
    for tp in (A, B):
        probed.add(tp, batch(range(1)))
    probed.codes[B] = 6
    assert (await probed.sizes(A, B)).keys() == {A, B}
    asked = [(node, partition) for node, _topic, partition, *_rest in probed.probes]
    assert asked.count((2, 1)) == 2
    assert asked.count((1, 0)) <= 2
