"""Ranges over ledgers that were closed or deleted, on a real Pulsar: they end, and tell of losses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.records import StartPoint
from tests.adapters.pulsar.ranges.stage import Stage, read, values

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

SENT = [b"%03d" % number for number in range(30)]


async def rolled(stage: Stage, *parts: list[bytes]) -> list[tuple[int, int, int]]:
    """Produces each part into a ledger of its own; their positions."""
    places = []
    for part in parts:
        places += await stage.produce(part)
        await stage.server.unload(stage.topic)
    return places


@pytest.mark.parametrize("admin", [False, True])
async def test_a_range_goes_on_over_ledgers(stage: Stage, *, admin: bool) -> None:
    """Trap 11: a ledger's end is no end, and each place in it is a start."""
    places = await rolled(stage, SENT[:3], SENT[3:7], SENT[7:9])
    assert len({place[0] for place in places}) == 3
    async with stage.open(admin=admin) as ranges:
        whole = await stage.whole(ranges)
        assert values(await read(ranges, whole)) == SENT[:9]
        for number, place in enumerate(places):
            behind = (place[0], place[1] + 1, 0)
            assert (
                values(await read(ranges, stage.range(behind, whole.stop)))
                == (SENT[number + 1 : 9])
            )
            assert (
                values(await read(ranges, stage.range(whole.start, behind))) == (SENT[: number + 1])
            )


async def test_a_stop_that_no_record_reaches_ends(stage: Stage) -> None:
    """Trap 10: a range whose last part holds nothing ends, instead of waiting for its stop."""
    places = await rolled(stage, SENT[:3])
    async with stage.open() as ranges:
        start = places[0]
        for stop in ((start[0], 99, 0), (start[0] + 99, 0, 0), (start[0], 3, 5)):
            async with asyncio.timeout(300):
                assert values(await read(ranges, stage.range(start, stop))) == SENT[:3]


async def test_a_deleted_ledger_is_a_loss(pulsar_server: PulsarServer) -> None:
    """Trap 8: what retention took from a range is told, also without the REST API."""
    stage = Stage(pulsar_server)
    await stage.create(kept=False)
    old = await rolled(stage, SENT[:3])
    await stage.server.create_subscription(stage.topic, "kept", "latest")
    await stage.produce(SENT[3:5])
    await stage.trim(old[0][0])
    for admin in (False, True):
        async with stage.open(admin=admin) as ranges:
            first = (await ranges.positions([stage.partition], StartPoint.EARLIEST))[
                stage.partition
            ]
            assert first is not None
            assert first[0] > old[0][0]
            with pytest.raises(PositionOutOfRangeError, match="were deleted"):
                await read(ranges, stage.range(old[0], (old[0][0], 3, 0)))
            with pytest.raises(PositionOutOfRangeError, match="were deleted"):
                await read(ranges, stage.range((old[0][0] - 1, 1, 0), (old[0][0], 3, 0)))


async def test_the_end_of_a_ledger_that_was_deleted_is_no_loss(
    pulsar_server: PulsarServer, caplog: pytest.LogCaptureFixture
) -> None:
    """An idle topic without retention drops the ledger in which its last position lies: a warning.

    That of its last record, to be read again, is one.
    """
    stage = Stage(pulsar_server)
    await stage.create(kept=False)
    old = await rolled(stage, SENT[:3])
    await stage.server.create_subscription(stage.topic, "kept", "latest")
    await stage.produce(SENT[3:5])
    await stage.trim(old[0][0])
    for admin in (False, True):
        async with stage.open(admin=admin) as ranges:
            whole = await stage.whole(ranges)
            behind = (old[2][0], old[2][1] + 1, 0)
            caplog.clear()
            assert values(await read(ranges, stage.range(behind, whole.stop))) == SENT[3:5]
            assert stage.topic.rpartition("/")[2] in caplog.text
            assert "was deleted" in caplog.text
            with pytest.raises(PositionOutOfRangeError, match="were deleted"):
                await read(ranges, stage.range(old[2], whole.stop))


@pytest.mark.parametrize("admin", [False, True])
async def test_an_empty_topic_has_an_empty_range(stage: Stage, *, admin: bool) -> None:
    """Both ends are one position, which stays below all that comes."""
    async with stage.open(admin=admin) as ranges:
        whole = await stage.whole(ranges)
        assert whole.start == whole.stop
        assert await read(ranges, whole) == []
        await stage.produce(SENT[:2])
        later = await stage.whole(ranges)
        assert whole.start <= later.start
        assert values(await read(ranges, stage.range(whole.stop, later.stop))) == SENT[:2]


@pytest.mark.parametrize("admin", [False, True])
async def test_the_latest_position_of_an_emptied_topic_does_not_go_back(
    pulsar_server: PulsarServer, *, admin: bool
) -> None:
    """All records were deleted; who had seen the end before is told of no earlier one."""
    stage = Stage(pulsar_server)
    await stage.create(kept=False)
    old = await stage.produce(SENT[:3])
    async with stage.open(admin=admin) as ranges:
        before = (await stage.whole(ranges)).stop
        await stage.server.create_subscription(stage.topic, "kept", "latest")
        await stage.server.unload(stage.topic)
        await stage.trim(old[0][0])
        after = await stage.whole(ranges)
        assert after.stop >= before
        assert await read(ranges, stage.range(before, after.stop)) == []
        await stage.produce(SENT[3:5])
        later = await stage.whole(ranges)
        assert values(await read(ranges, stage.range(before, later.stop))) == SENT[3:5]
