"""What records of a range carry: keys, headers, times, schemas' bytes, chunks; on a real Pulsar."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest
from pulsar.schema import JsonSchema, Record, String

from consumer_sdk.adapters.pulsar.ranges import reading
from consumer_sdk.adapters.pulsar.ranges.native_readers import NativeReader
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Position, StartPoint
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


@pytest.mark.parametrize(
    "admin, step",
    [
        (False, 1),
        (True, 2),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in [(False, 2), (False, 5), (True, 1), (True, 5)]
        ),
    ],
)
async def test_chunked_messages_are_whole_in_every_split(
    stage: Stage, *, admin: bool, step: int
) -> None:
    """Messages in overlapping chunks, cut anywhere: each is in the range of its last chunk, once."""
    sent = await asyncio.to_thread(interleaved, stage, messages=3, chunks=2)
    async with stage.open() as knowing:
        whole = await stage.whole(knowing)
    async with stage.open(admin=admin) as ranges:
        ledger, last, _ = whole.stop
        cuts: list[Position] = [(ledger, entry, 0) for entry in range(step, last, step)]
        got: list[bytes | None] = []
        for low, high in pairwise([whole.start, *cuts, whole.stop]):
            got += values(await read(ranges, PartitionRange(stage.partition, low, high)))
        at_once = values(await read(ranges, whole))
    # By their numbers: the values are megabytes, and pytest would show them.
    numbers = {value: number for number, value in enumerate(sent)}
    in_parts = [None if each is None else numbers[each] for each in got]
    assert in_parts == [None if each is None else numbers[each] for each in at_once]
    assert sorted(map(str, in_parts)) == sorted(map(str, numbers.values()))


@pytest.mark.parametrize("begin", [0, 1])
async def test_a_chunked_message_that_comes_late_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    """A broker may take its time, and a message that is whole is in the range, however late."""
    await asyncio.to_thread(interleaved, stage, messages=1, chunks=2)
    read_in_thread = NativeReader.run
    late = iter(range(5))

    async def run(self: NativeReader, work: Any, *arguments: Any) -> Any:
        if work.__name__ == "_read" and next(late, None) is not None:
            return False  # nothing came
        return await read_in_thread(self, work, *arguments)

    monkeypatch.setattr(NativeReader, "run", run)
    monkeypatch.setattr(reading, "QUIET", -1.0)
    async with stage.open() as ranges:
        whole = await stage.whole(ranges)
        assert whole.stop[1] == 2
        wanted = stage.range((whole.stop[0], begin, 0), whole.stop)
        assert len(values(await read(ranges, wanted))) == 1


async def test_chunks_of_no_whole_message_end_a_range(stage: Stage) -> None:
    """A stop in the middle of a chunked message: what is below it is no record, and no stall."""
    await asyncio.to_thread(interleaved, stage, messages=1, chunks=3)
    async with stage.open() as ranges:
        whole = await stage.whole(ranges)
        assert whole.stop[1] == 3
        async with asyncio.timeout(300):
            assert await read(ranges, stage.range(whole.start, (whole.stop[0], 2, 0))) == []


async def test_latest_behind_a_chunked_message_needs_the_admin_url(stage: Stage) -> None:
    """A reader that begins at its last chunk does not get it; that is told, with the way out."""
    await asyncio.to_thread(interleaved, stage, messages=1, chunks=2)
    async with stage.open(admin=False) as ranges:
        with pytest.raises(TransientAdapterError, match="give admin_url="):
            await ranges.positions([stage.partition], StartPoint.LATEST)
