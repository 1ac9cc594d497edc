"""What records of a range carry: keys, headers, times, schemas' bytes, chunks; on a real Pulsar."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from pulsar.schema import JsonSchema, Record, String

from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Position
from tests.adapters.pulsar.ranges.stage import Stage, interleaved, producing, read, values

pytestmark = pytest.mark.pulsar


class Order(Record):  # type: ignore[misc]  # the client has no types
    """A record with a schema."""

    customer = String()


async def test_columns_hold_what_was_sent(stage: Stage) -> None:
    """Keys, properties as headers, and the publish time, not the event time."""
    before = time.time() * 1000 - 1
    with producing(stage.server, stage.topic) as producer:
        producer.send(b"a", partition_key="k", properties={"x": "1"}, event_timestamp=5)
        producer.send(b"")
    async with stage.open() as ranges:
        parts = await read(ranges, await stage.whole(ranges), with_headers=True)
    keys = [key for part in parts for key in part.keys]
    headers = [each for part in parts for each in part.headers or ((),) * len(part)]
    times = [stamp for part in parts for stamp in part.timestamps]
    assert values(parts) == [b"a", b""]
    assert keys == [b"k", None]
    assert [tuple(each) for each in headers] == [(("x", b"1"),), ()]
    assert all(stamp and before <= stamp <= time.time() * 1000 + 1 for stamp in times)


async def test_headers_that_nobody_asked_for_are_left_out(stage: Stage) -> None:
    """They cost time for each record."""
    with producing(stage.server, stage.topic) as producer:
        producer.send(b"a", properties={"x": "1"})
    async with stage.open() as ranges:
        [part] = await read(ranges, await stage.whole(ranges))
    assert part.headers is None


async def test_schema_leaves_the_bytes_alone(stage: Stage) -> None:
    """A value is what lies in the topic, also of a topic with a schema."""
    with producing(stage.server, stage.topic, schema=JsonSchema(Order)) as producer:
        producer.send(Order(customer="c"))
    async with stage.open() as ranges:
        [part] = await read(ranges, await stage.whole(ranges))
    assert b'"customer"' in (part.values[0] or b"")


async def test_parts_are_about_as_large_as_asked(stage: Stage) -> None:
    """One record more than fits at most."""
    await stage.produce([b"x" * 1000] * 50)
    async with stage.open() as ranges:
        parts = await read(ranges, await stage.whole(ranges), max_bytes=5000)
    assert all(len(part) <= 5 for part in parts)
    assert sum(map(len, parts)) == 50


async def test_partitions_are_read_apart(stage: Stage) -> None:
    """Each partition of a topic is a log of its own."""
    apart = Stage(stage.server)
    await apart.create(3)
    sent = [b"%d" % number for number in range(30)]
    await apart.produce(sent)
    async with apart.open() as ranges:
        partitions = await ranges.partitions()
        found = [await read(ranges, await apart.whole(ranges, each)) for each in partitions]
    assert [each.id for each in partitions] == ["0", "1", "2"]
    assert sorted(values([part for parts in found for part in parts]), key=str) == (
        sorted(sent, key=str)
    )


async def test_chunked_messages_are_whole_in_every_split(stage: Stage) -> None:
    """Messages in overlapping chunks, cut anywhere: each is in the range of its last chunk, once."""
    sent = interleaved(stage, producers=3, each=2, chunks=3)
    async with stage.open() as ranges:
        whole = await stage.whole(ranges)
        [*parts] = await read(ranges, whole)
        assert sorted(values(parts), key=str) == sorted(sent, key=str)
        ledger, last, _ = whole.stop
        cuts: list[Position] = [(ledger, entry, 0) for entry in range(last + 1)]
        for step in (1, 2, 5):
            stops = [*cuts[step::step], whole.stop]
            got: list[Any] = []
            for low, high in pairwise([whole.start, *stops]):
                got += values(await read(ranges, PartitionRange(stage.partition, low, high)))
            assert [len(each or b"") for each in got] == [
                len(each or b"") for each in values(parts)
            ]
            assert got == values(parts)
