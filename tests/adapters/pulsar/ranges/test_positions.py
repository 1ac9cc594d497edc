"""What starts stand for, how much ranges hold, and where they are cut; on a real Pulsar."""

from __future__ import annotations

import asyncio
import time

import pytest

from consumer_sdk.adapters.pulsar.ranges import PulsarRanges
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import AtPosition, AtTime, Partition, Position, Start, StartPoint
from tests.adapters.pulsar.ranges.stage import Stage, gone, read, values

pytestmark = pytest.mark.pulsar

SENT = [b"%03d" % number for number in range(40)]


async def at(ranges: PulsarRanges, stage: Stage, start: Start) -> Position | None:
    """One position."""
    return (await ranges.positions([stage.partition], start))[stage.partition]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("admin", [False, True])
async def test_a_time_is_the_first_record_published_since(
    stage: Stage, *, admin: bool, batch: bool
) -> None:
    """None where no record is that new."""
    await stage.produce(SENT[:3], batch=batch)
    await asyncio.sleep(0.05)  # the broker's clock has to move
    between = time.time()
    await asyncio.sleep(0.05)  # likewise
    places = await stage.produce(SENT[3:6], batch=batch)
    async with stage.open(admin=admin) as ranges:
        whole = await stage.whole(ranges)
        assert await at(ranges, stage, AtTime(between)) == places[0]
        assert await at(ranges, stage, AtTime(between + 3600)) is None
        early = await at(ranges, stage, AtTime(between - 3600))
        assert values(await read(ranges, stage.range(early, whole.stop))) == SENT[:6]


async def test_a_position_stands_for_itself(stage: Stage) -> None:
    """Inclusive; an end stands for nothing."""
    async with stage.open() as ranges:
        assert await at(ranges, stage, AtPosition((3, 4, 5))) == (3, 4, 5)
        assert await at(ranges, stage, StartPoint.ENDED) is None


async def test_positions_disturb_nobody(stage: Stage) -> None:
    """No subscription is left behind, with and without the REST API."""
    await stage.produce(SENT[:3])
    for admin in (False, True):
        async with stage.open(admin=admin) as ranges:
            for start in (StartPoint.EARLIEST, StartPoint.LATEST, AtTime(0.0)):
                await at(ranges, stage, start)
    await gone(stage)


async def test_a_partition_that_is_not_there_has_no_position(stage: Stage) -> None:
    """The REST API knows that, and makes none."""
    gone = Partition(stage.topic + "-gone", "-1")
    async with stage.open(subscription="g") as ranges:
        for start in (StartPoint.EARLIEST, StartPoint.LATEST, StartPoint.BROKER):
            assert await ranges.positions([gone], start) == {gone: None}


async def test_a_topic_that_is_not_there_is_told_at_the_opening(stage: Stage) -> None:
    """A mistake in a name makes no topic."""
    ranges = PulsarRanges(
        stage.topic + "-gone",
        service_url=stage.server.service_url,
        admin_url=stage.server.admin_url,
    )
    with pytest.raises(ConfigurationError, match="does not exist"):
        await ranges.open()


@pytest.mark.parametrize("batch", [False, True])
async def test_records_are_counted_by_entries_and_batches(stage: Stage, *, batch: bool) -> None:
    """Exact where all batches are alike; 0 for what is empty."""
    await stage.produce(SENT, batch=batch)
    async with stage.open() as ranges:
        whole = await stage.whole(ranges)
        assert await ranges.records([whole]) == {stage.partition: 40}
        empty = stage.range(whole.stop, whole.stop)
        assert await ranges.records([empty]) == {stage.partition: 0}
        [size] = (await ranges.record_size([stage.partition])).values()
        assert 3 <= size <= 200


async def test_a_batch_is_weighed_also_after_an_unload(stage: Stage) -> None:
    """The broker has forgotten how many records came: an entry of the range tells."""
    await stage.produce(SENT, batch=True)
    await stage.server.unload(stage.topic)
    async with stage.open() as ranges:
        assert await ranges.records([await stage.whole(ranges)]) == {stage.partition: 40}


async def test_empty_topic_has_no_size(stage: Stage) -> None:
    """It is left out."""
    async with stage.open() as ranges:
        assert await ranges.record_size([stage.partition]) == {}
        assert await ranges.records([await stage.whole(ranges)]) == {stage.partition: 0}


@pytest.mark.parametrize("step", [1, 3, 7, 100])
async def test_cuts_lead_over_ledgers_to_the_stop(stage: Stage, step: int) -> None:
    """Each is above its start; the parts hold every record once."""
    for low in (0, 10, 11, 25):
        await stage.produce(SENT[low : low + {0: 10, 10: 1, 11: 14, 25: 15}[low]])
        await stage.server.unload(stage.topic)
    async with stage.open() as ranges:
        whole = await stage.whole(ranges)
        got, start = [], whole.start
        while start < whole.stop:
            stop = await ranges.cut(stage.range(start, whole.stop), step)
            assert start < stop <= whole.stop
            part = values(await read(ranges, stage.range(start, stop)))
            assert len(part) <= step
            got += part
            start = stop
    assert got == SENT


async def test_a_cut_in_batches_goes_by_entries(stage: Stage) -> None:
    """A batch is never cut; less than one still leads on."""
    for low in range(0, 40, 10):
        await stage.produce(SENT[low : low + 10], batch=True)
    async with stage.open() as ranges:
        whole = await stage.whole(ranges)
        ledger = whole.start[0]
        assert await ranges.cut(whole, 1) == (ledger, 1, 0)
        assert await ranges.cut(whole, 22) == (ledger, 2, 0)
        assert await ranges.cut(whole, 1000) == whole.stop


async def test_counting_needs_the_admin_url(stage: Stage) -> None:
    """It says which option is missing."""
    async with stage.open(admin=False) as ranges:
        whole = await stage.whole(ranges)
        for asked in (
            ranges.records([whole]),
            ranges.cut(whole, 1),
            ranges.record_size([stage.partition]),
        ):
            with pytest.raises(ConfigurationError, match="give admin_url="):
                await asked


def test_text_of_a_position_is_the_adapters() -> None:
    """``ledger:entry:index``, and nothing else."""
    ranges = PulsarRanges("t", service_url="pulsar://h:1")
    assert ranges.encode_position((1, 2, 3)) == "1:2:3"
    assert ranges.decode_position("1:2:3") == (1, 2, 3)
    with pytest.raises(CheckpointFormatError):
        ranges.decode_position("1:2")
