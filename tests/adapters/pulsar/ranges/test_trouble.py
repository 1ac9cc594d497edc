"""Range reads while the broker unloads, stalls or dies; each record once and in order."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from contextlib import aclosing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.adapters.pulsar.ranges import PulsarRanges, native_readers
from consumer_sdk.errors import AdapterError, ConsumerClosedError, TransientAdapterError
from consumer_sdk.records import OutcomeKind, StartPoint
from tests.adapters.pulsar.ranges.stage import Stage, gone, read, values

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

LOG = "consumer_sdk pulsar log"
"""A thread for as long as the process is."""
MANY = [b"%06d" % number for number in range(20_000)]


@pytest.mark.parametrize("batch", [False, True])
async def test_an_unload_in_the_middle_repeats_and_loses_nothing(
    stage: Stage, *, batch: bool
) -> None:
    """Trap 11: the client connects again, and what the broker sends again is dropped."""
    await stage.produce(MANY[:6000], batch=batch)
    async with stage.open(receiver_queue=50) as ranges:
        whole = await stage.whole(ranges)
        got: list[bytes | None] = []
        async with aclosing(ranges.read_range(whole, max_bytes=3000)) as parts:
            async for part in parts:
                got += part.values
                if len(got) % 1500 < len(part):
                    await stage.server.unload(stage.topic)
    assert got == MANY[:6000]


@pytest.mark.campaign
async def test_a_broker_that_is_killed_and_comes_back_repeats_and_loses_nothing(
    own_pulsar_server: PulsarServer,
) -> None:
    """Positions mean the same afterwards, and the read that was under way goes on."""
    stage = Stage(own_pulsar_server)
    await stage.create()
    places = await stage.produce(MANY[:2000])
    async with stage.open(receiver_queue=50, subscription="g", stall_timeout=60) as ranges:
        whole = await stage.whole(ranges)
        got: list[bytes | None] = []
        async for part in ranges.read_range(whole, max_bytes=3000):
            if not got:
                await own_pulsar_server.kill()
                await own_pulsar_server.restart()
            got += part.values
        assert got == MANY[:2000]
        kind = OutcomeKind.RETRY
        while kind is OutcomeKind.RETRY:  # it may still be loading the topic
            kind = (await ranges.commit({stage.partition: places[7]}))[stage.partition].kind
        assert kind is OutcomeKind.SENT
        stands = await ranges.positions([stage.partition], StartPoint.BROKER)
        assert stands[stage.partition] == (*places[7][:2], 0)


@pytest.mark.campaign
async def test_a_broker_that_stalls_is_a_transient_error(own_pulsar_server: PulsarServer) -> None:
    """Trap 18: a read does not hang, and works again once the broker does."""
    stage = Stage(own_pulsar_server)
    await stage.create()
    places = await stage.produce(MANY[:2000])
    async with stage.open(
        receiver_queue=50, stall_timeout=1, operation_timeout=2, subscription="g"
    ) as ranges:
        whole = await stage.whole(ranges)
        own_pulsar_server.pause()
        try:
            with pytest.raises(TransientAdapterError):
                await read(ranges, whole)
            outcome = (await ranges.commit({stage.partition: places[7]}))[stage.partition]
            assert outcome.kind is OutcomeKind.RETRY
        finally:
            own_pulsar_server.resume()
        async with asyncio.timeout(300):
            while True:
                try:
                    assert values(await read(ranges, whole)) == MANY[:2000]
                    break
                except TransientAdapterError:
                    continue


async def test_closing_early_leaves_the_connection_usable(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 16: a generator that is dropped in the middle takes its reader with it."""
    monkeypatch.setattr(native_readers, "IDLE", 3600.0)
    await stage.produce(MANY[:2000])
    async with stage.open(receiver_queue=50) as ranges:
        whole = await stage.whole(ranges)
        for _ in range(3):
            parts = ranges.read_range(whole, max_bytes=300)
            assert len(await anext(aiter(parts)))
            await parts.aclose()
        await gone(stage)
        assert values(await read(ranges, whole)) == MANY[:2000]


async def test_closing_leaves_no_thread(stage: Stage) -> None:
    """Neither the client's nor ours, of which Python knows, but the one of its log."""

    def threads() -> list[str]:
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if "pulsar" in name and name != LOG]

    await stage.produce(MANY[:10])
    async with stage.open() as ranges:
        await read(ranges, await stage.whole(ranges))
        assert threads()
    async with asyncio.timeout(300):
        while threads():
            await asyncio.sleep(0.01)


async def test_many_ranges_are_read_at_a_time(stage: Stage) -> None:
    """Each has a reader of its own."""
    places = await stage.produce(MANY[:400])
    cuts = [*places[::10], (*places[-1][:1], places[-1][1] + 1, 0)]
    async with stage.open() as ranges:
        wanted = [stage.range(low, high) for low, high in pairwise(cuts)]
        found = await asyncio.gather(*(read(ranges, each) for each in wanted))
    assert [value for parts in found for value in values(parts)] == MANY[:400]


async def test_unopened_reader_can_be_pickled(stage: Stage) -> None:
    """Trap 17: what travels has no client; it is opened where it is used."""
    await stage.produce(MANY[:5])
    ranges: PulsarRanges = pickle.loads(pickle.dumps(stage.ranges()))  # noqa: S301 - our own
    with pytest.raises(ConsumerClosedError, match="not open"):
        await ranges.partitions()
    await ranges.open()
    try:
        assert values(await read(ranges, await stage.whole(ranges))) == MANY[:5]
    finally:
        await ranges.aclose()
    with pytest.raises(ConsumerClosedError, match="closed"):
        await ranges.partitions()


async def test_after_a_fork_the_child_is_refused(stage: Stage) -> None:
    """Trap 17: the client's threads are in the parent; the child neither hangs nor disturbs it."""
    await stage.produce(MANY[:5])
    async with stage.open() as ranges:
        child = os.fork()
        if not child:  # no loop runs here, and none is needed to be refused
            try:
                ranges.partitions().send(None)
            except ConsumerClosedError:
                os._exit(7)
            finally:
                os._exit(8)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert values(await read(ranges, await stage.whole(ranges))) == MANY[:5]


async def test_closing_during_a_read_ends_it(stage: Stage) -> None:
    """With an error of the SDK; and closing again does nothing."""
    await stage.produce(MANY[:2000])
    async with stage.open(receiver_queue=50) as ranges:
        whole = await stage.whole(ranges)
        parts = ranges.read_range(whole, max_bytes=300)
        await anext(aiter(parts))
        await ranges.aclose()
        with pytest.raises((AdapterError, ConsumerClosedError)):
            async for _ in parts:
                pass


async def test_no_broker_is_a_clear_error(own_port: int) -> None:
    """Opening ends, with the address."""
    ranges = PulsarRanges(
        "t", service_url=f"pulsar://127.0.0.1:{own_port}", operation_timeout=1, connect_timeout=1
    )
    with pytest.raises(AdapterError, match=r"persistent|127\.0\.0\.1"):
        await ranges.open()
    await ranges.aclose()
