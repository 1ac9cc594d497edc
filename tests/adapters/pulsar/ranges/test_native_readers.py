"""The native readers: awaited, kept open between ranges, and how much is sent ahead of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.ranges import PulsarRanges, native_readers
from consumer_sdk.adapters.pulsar.ranges.native_readers import QUEUE_BYTES, NativeReader, Queue
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import Position, StartPoint
from tests.adapters.pulsar.ranges.stage import Stage, gone, read, readers, values

Result = _pulsar.Result


class Native:
    """A native reader that answers with these results."""

    def __init__(self, *results: Any) -> None:
        self._results = list(results)

    def has_message_available_async(self, done: Callable[..., None]) -> None:
        """There is a message, unless the answer is an error."""
        done(self._results.pop(0), True)


async def has_more(*results: Any) -> bool:
    """What a reader says whose broker answers so."""
    with ThreadPoolExecutor(1) as threads:
        reader = NativeReader(None, "t", threads, patience=60.0)
        reader._native = Native(*results)
        return await reader.has_more()


async def test_reader_that_the_broker_has_just_closed_asks_again() -> None:
    """As after each seek: it is open again a moment later."""
    assert await has_more(Result.BrokerMetadataError, Result.NotConnected, Result.Ok)


async def test_what_time_does_not_mend_is_told_at_once() -> None:
    """Credentials, for instance."""
    with pytest.raises(AdapterError, match="AuthorizationError"):
        await has_more(Result.AuthorizationError)


SENT = [b"%04d" % number for number in range(1000)]
FEW = SENT[:100]


async def next_of(ranges: PulsarRanges, stage: Stage) -> Position:
    """The topic's end."""
    found = (await ranges.positions([stage.partition], StartPoint.LATEST))[stage.partition]
    assert found is not None
    return found


@pytest.mark.pulsar
@pytest.mark.parametrize("batch", [False, True])
async def test_ranges_that_follow_on_each_other_have_one_reader(
    stage: Stage, *, batch: bool
) -> None:
    """As a stream's batches do; each record once, and closing leaves no reader."""
    got: list[bytes | None] = []
    seen: set[str] = set()
    async with stage.open() as ranges:
        start = await next_of(ranges, stage)
        for low in range(0, 100, 10):
            await stage.produce(FEW[low : low + 10], batch=batch)
            stop = await next_of(ranges, stage)
            got += values(await read(ranges, stage.range(start, stop)))
            seen |= await readers(stage)
            start = stop
    assert got == FEW
    assert len(seen) == 1
    await gone(stage)


@pytest.mark.pulsar
async def test_a_kept_reader_serves_each_split_of_a_batch(stage: Stage) -> None:
    """The next range may begin in the middle of an entry."""
    places = await stage.produce(FEW, batch=True)
    async with stage.open() as ranges:
        cuts = [*places[::7], await next_of(ranges, stage)]
        parts = [await read(ranges, stage.range(*pair)) for pair in pairwise(cuts)]
        assert [value for part in parts for value in values(part)] == FEW
        assert len(await readers(stage)) == 1


@pytest.mark.pulsar
async def test_a_range_elsewhere_has_another_reader(stage: Stage) -> None:
    """Before, behind, or a little behind what was read: the records are right, and none is left."""
    places = await stage.produce(SENT)
    async with stage.open() as ranges:
        for low, high in ((0, 100), (130, 200), (200, 210), (50, 60), (800, 820), (0, 5)):
            found = values(await read(ranges, stage.range(places[low], places[high])))
            assert found == SENT[low:high]
        assert len(await readers(stage)) <= 1


@pytest.mark.pulsar
async def test_a_kept_reader_survives_an_unload(stage: Stage) -> None:
    """Or another one takes its place; each record once."""
    got: list[bytes | None] = []
    async with stage.open() as ranges:
        start = await next_of(ranges, stage)
        for low in range(0, 100, 20):
            await stage.produce(FEW[low : low + 20])
            stop = await next_of(ranges, stage)
            got += values(await read(ranges, stage.range(start, stop)))
            await stage.server.unload(stage.topic)
            start = stop
    assert got == FEW


@pytest.mark.pulsar
@pytest.mark.parametrize("admin", [False, True])
async def test_large_messages_are_sent_ahead_in_small_numbers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, admin: bool
) -> None:
    """About 32 MiB; with the REST API from the first one on. None is lost or repeated by that."""
    monkeypatch.setattr(native_readers, "IDLE", 3600.0)
    size = 1 << 20
    sent = [bytes([number]) * size for number in range(60)]
    await stage.produce(sent)
    async with stage.open(admin=admin) as ranges:
        whole = await stage.whole(ranges)
        got: list[bytes | None] = []
        async for part in ranges.read_range(whole, max_bytes=2 * size):
            got += part.values
            [stats] = await stage.server.stats(stage.topic)
            ahead = [
                consumer["availablePermits"] + consumer["unackedMessages"]
                for name, each in stats["subscriptions"].items()
                if name != "kept"
                for consumer in each["consumers"]
            ]
            if admin or len(got) > 4:
                assert all(permits <= 2 * QUEUE_BYTES // size for permits in ahead)
        assert got == sent
        await gone(stage)  # what holds as much is not kept


@pytest.mark.parametrize(
    "size,length", [(100, 1000), (2**15, 1000), (2**20, 32), (5 * 2**20, 6), (2**26, 1)]
)
def test_a_queue_is_bounded_by_its_bytes_and_by_its_number(size: int, length: int) -> None:
    """One message is always sent ahead."""
    queue = Queue(1000)
    assert not queue.may_stay(1)  # what its messages weigh is not known yet
    assert queue.length == 1000
    queue.weigh(10, 10 * size)
    assert queue.length == length
    assert queue.is_too_long(1000) is (length < 500)
    assert queue.may_stay(length) is (size == 100)
