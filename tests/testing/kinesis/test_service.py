"""Claims about the adapter's seam on the model, on virtual time."""

import asyncio

import pytest

from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    IteratorStart,
    Page,
    Shard,
    ShardGoneError,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.errors import (
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
)
from consumer_sdk.testing import Faults, Simulation, simulate
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService

SHARD = "shardId-000000000000"
HORIZON = IteratorStart("TRIM_HORIZON")


def fake(simulation: Simulation) -> FakeKinesis:
    """A fake on the simulation's time, with one stream of one shard."""
    kinesis = FakeKinesis(simulation.clock)
    kinesis.create_stream("orders")
    return kinesis


def test_page_has_what_was_put() -> None:
    """In columns; time in milliseconds, keys as bytes."""

    async def main(simulation: Simulation) -> Page:
        kinesis = fake(simulation)
        service = FakeService(kinesis, "orders")
        kinesis.put("orders", b"data", "key")
        return await service.records(await service.iterator(SHARD, HORIZON), 10)

    page = simulate(main)
    assert (page.keys, page.data, page.times) == ([b"key"], [b"data"], [1_700_000_000_000])
    assert (page.size, page.behind, page.has_children) == (7, 0, False)
    assert page.next is not None


def test_shards_name_their_parents() -> None:
    """Closed ones are listed too, as such."""

    async def main(simulation: Simulation) -> list[Shard]:
        kinesis = fake(simulation)
        kinesis.split("orders", SHARD)
        return [*await FakeService(kinesis, "orders").shards()]

    ids = ["shardId-000000000001", "shardId-000000000002"]
    closed = Shard(SHARD, (), is_closed=True)
    assert simulate(main) == [closed, *(Shard(each, (SHARD,)) for each in ids)]


def test_missing_stream_is_found_when_opening() -> None:
    """A mistake of the configuration then; later the stream has been deleted."""

    async def main(simulation: Simulation) -> None:
        service = FakeService(FakeKinesis(simulation.clock), "orders")
        with pytest.raises(ConfigurationError):
            await service.open()
        with pytest.raises(ShardGoneError):
            await service.describe()

    simulate(main)


def test_identity_changes_when_the_stream_is_made_again() -> None:
    """Though the name is the same, and no time has passed."""

    async def main(simulation: Simulation) -> None:
        kinesis = fake(simulation)
        service = FakeService(kinesis, "orders")
        before = await service.open()
        kinesis.delete_stream("orders")
        kinesis.create_stream("orders")
        assert (await service.describe()).identity != before.identity

    simulate(main)


def test_refusals_have_the_adapters_types() -> None:
    """Kinesis trap 25: each calls for something else."""

    async def main(simulation: Simulation) -> None:
        service = FakeService(fake(simulation), "orders")
        with pytest.raises(PositionOutOfRangeError):
            await service.iterator(SHARD, IteratorStart("AT_SEQUENCE_NUMBER", 12))
        with pytest.raises(ShardGoneError):
            await service.iterator("shardId-000000000009", HORIZON)
        token = await service.iterator(SHARD, HORIZON)
        for _ in range(5):
            await service.records(token, 10)
        with pytest.raises(ThrottledError):
            await service.records(token, 10)
        await asyncio.sleep(301)
        for iterator in (token, "made up"):
            with pytest.raises(IteratorExpiredError):
                await service.records(iterator, 10)

    simulate(main)


def test_time_is_never_ahead() -> None:
    """As in a Date header: cut to seconds."""

    async def main(simulation: Simulation) -> float:
        await asyncio.sleep(1.75)
        return await FakeService(fake(simulation), "orders").time()

    assert simulate(main) == 1_700_000_001.0


@pytest.mark.parametrize("strike,kept", [("before", 0), ("after", 1)])
def test_fault_is_on_its_side_of_the_effect(strike: str, kept: int) -> None:
    """A registration whose answer is lost has taken place; the next call finds it."""

    async def main(simulation: Simulation) -> None:
        kinesis = fake(simulation)
        faults = Faults()
        faults.fail_next("consumer", "before" if strike == "before" else "after")
        service = FakeService(kinesis, "orders", faults)
        with pytest.raises(TransientAdapterError):
            await service.consumer("app")
        assert len(kinesis.fan_out.consumers("orders")) == kept
        assert await service.consumer("app") == kinesis.fan_out.consumers("orders")[0].arn

    simulate(main)


def test_consumer_is_active_when_it_is_given() -> None:
    """The wait is the service's; so a subscription is possible at once."""

    async def main(simulation: Simulation) -> None:
        kinesis = fake(simulation)
        service = FakeService(kinesis, "orders")
        kinesis.put("orders", b"a")
        pages = service.subscribe(await service.consumer("app"), SHARD, HORIZON)
        assert (await anext(pages)).data == [b"a"]
        await pages.aclose()

    simulate(main)


def test_subscription_is_woken_by_a_record() -> None:
    """Not by a heartbeat: it comes at the moment of the put, and each continues the last."""

    async def main(simulation: Simulation) -> None:
        kinesis = fake(simulation)
        service = FakeService(kinesis, "orders")
        pages = service.subscribe(await service.consumer("app"), SHARD, HORIZON)
        task = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(1.25)
        _, record = kinesis.put("orders", b"a")
        page = await task
        assert simulation.clock.wall() == pytest.approx(record.time)
        assert page.next == str(record.sequence)
        await pages.aclose()

    simulate(main)


def test_idle_subscription_has_60_heartbeats_less_the_last() -> None:
    """Kinesis trap 27: it ends by itself after five minutes."""

    async def main(simulation: Simulation) -> list[Page]:
        service = FakeService(fake(simulation), "orders")
        consumer = await service.consumer("app")
        return [page async for page in service.subscribe(consumer, SHARD, HORIZON)]

    pages = simulate(main)
    assert len(pages) == 59
    assert len({page.next for page in pages}) == 1


def test_subscription_that_is_too_young_is_busy() -> None:
    """Kinesis trap 27: and five seconds later it is taken over."""

    async def main(simulation: Simulation) -> None:
        service = FakeService(fake(simulation), "orders")
        consumer = await service.consumer("app")
        older = service.subscribe(consumer, SHARD, HORIZON)
        ended = asyncio.ensure_future(anext(older, None))
        await asyncio.sleep(1)
        with pytest.raises(SubscriptionBusyError):
            await anext(service.subscribe(consumer, SHARD, HORIZON))
        await asyncio.sleep(4.5)
        assert (await ended) is not None  # its heartbeat
        ended = asyncio.ensure_future(anext(older, None))
        newer = service.subscribe(consumer, SHARD, HORIZON)
        begun = asyncio.ensure_future(anext(newer))
        assert await ended is None
        assert (await begun).data == []
        await newer.aclose()

    simulate(main)


def test_dead_process_hangs() -> None:
    """In a call, and in a subscription that has something to tell."""

    async def main(simulation: Simulation) -> None:
        kinesis = fake(simulation)
        faults = Faults()
        service = FakeService(kinesis, "orders", faults)
        pages = service.subscribe(await service.consumer("app"), SHARD, HORIZON)
        calls = [asyncio.ensure_future(anext(pages))]
        await asyncio.sleep(1)
        faults.die()
        kinesis.put("orders", b"a")
        describing = asyncio.ensure_future(service.describe())
        await asyncio.sleep(1000)
        assert not describing.done()
        assert not calls[0].done()
        for task in (describing, *calls):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    simulate(main)
