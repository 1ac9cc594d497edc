"""A position that another program has set: honoured once, whenever the consumer is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from consumer_sdk import Consumer, FencedError, TransientStoreError
from consumer_sdk.records import AckFlush, Outcome, OutcomeKind, Partition
from consumer_sdk.runtime.observing.stats import ConsumerStats
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter
from tests.runtime.bench import QUICK, Bench, bench
from tests.runtime.partitions.test_assignments import Thief

PARTITION = Partition("s", "0")
NEVER = 10**6


def consumer(
    b: Bench, store: MemoryStore | None, seam: Faults | None = None, **options: Any
) -> Consumer:
    """A consumer whose calls to the broker may fail."""
    adapter = MemoryAdapter(b.broker, "s", group="g", faults=seam)
    return Consumer(
        adapter, store=store, retry=QUICK, clock=b.simulation.clock, drain_timeout=0.1, **options
    )


async def take(b: Bench, store: MemoryStore, count: int) -> tuple[list[int], ConsumerStats]:
    """The positions that a healthy consumer is handed; all of them are settled and durable."""
    async with consumer(b, store.handle()) as healthy:
        taken = [await anext(healthy) for _ in range(count)]
        assert all(message.ack() for message in taken)
        await healthy.flush()
        await asyncio.sleep(1)  # the broker is told after the store
        return [message.position for message in taken], healthy.stats()


async def live_in_vain(b: Bench, store: MemoryStore, seam: Faults | None = None) -> None:
    """A consumer that holds its partition back, for as long as it lives."""
    async with consumer(b, store, seam) as held:
        pulling = asyncio.ensure_future(anext(held))
        await asyncio.sleep(30)
        assert held.stats().fetched == 0
        pulling.cancel()


async def prepare(b: Bench, reset: int) -> MemoryStore:
    """Five of ten records are settled, and an operator has reset the group."""
    b.append(*map(str, range(10)))
    store = MemoryStore()
    await take(b, store, 5)
    b.broker.reset("g", PARTITION, reset)
    return store


def test_reset_that_the_store_could_not_keep_is_honoured_by_the_next() -> None:
    """Killed before the pin: nothing was handed out, and nothing is forgotten."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        faults = Faults(error=lambda _: TransientStoreError("down"))
        faults.fail_next("save", times=NEVER)
        faults.fail_next("read_back", times=NEVER)
        await live_in_vain(b, store.handle(faults=faults))
        taken, stats = await take(b, store, 1)
        assert (taken, stats.resets) == ([2], 1)

    bench(test)


def test_reset_that_the_broker_did_not_hear_of_is_no_reset_the_next_time() -> None:
    """Killed between the pin and the broker: its position is the store's own start."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        faults = Faults()
        faults.fail_next("commit", times=NEVER)
        await live_in_vain(b, store.handle(), faults)
        taken, stats = await take(b, store, 2)
        assert (taken, stats.resets) == ([2, 3], 0)
        taken, stats = await take(b, store, 1)
        assert (taken, stats.resets) == ([4], 0)

    bench(test)


def test_broker_is_told_before_the_first_record_whatever_comes_of_that() -> None:
    """Killed before a later commit: its position is ours, behind the store's, and no reset."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        faults = Faults()
        async with consumer(b, store.handle(), faults) as killed:
            message = await anext(killed)
            faults.fail_next("commit", times=NEVER)
            message.ack()
            await killed.flush()
        assert b.committed() == {"0": 2}
        taken, stats = await take(b, store, 1)
        assert (taken, stats.resets) == ([3], 0)

    bench(test)


def test_group_of_another_client_is_ours_before_the_first_record() -> None:
    """Or a crash after it would look like a reset to where that client had stopped."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        store = MemoryStore()
        b.broker.reset("g", PARTITION, 3)
        faults = Faults()
        faults.fail_next("commit", times=NEVER)
        await live_in_vain(b, store.handle(), faults)
        faults = Faults()
        async with consumer(b, store.handle(), faults) as killed:
            message = await anext(killed)
            faults.fail_next("commit", times=NEVER)
            message.ack()
            await killed.flush()
        taken, stats = await take(b, store, 1)
        assert (taken, stats.resets) == ([4], 0)

    bench(test)


@pytest.mark.parametrize("seam", ["save", "commit"])
@pytest.mark.parametrize("end", [4, None])
def test_start_that_is_tried_again_is_counted_once(
    end: int | None, seam: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever part of it was durable by then."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        if end is not None:
            b.broker.truncate("s", 0, end)
        faults = Faults(error=TransientStoreError if seam == "save" else None)
        faults.fail_next(seam, times=5)
        handle = store.handle(faults=faults if seam == "save" else None)
        async with consumer(b, handle, faults, out_of_range="earliest") as tried:
            assert (await anext(tried)).position == (end or 2)
            assert (tried.stats().resets, tried.stats().lost) == (1, end - 2 if end else 0)

    bench(test)
    assert caplog.text.count("another program has set the group's position") == 1


def test_loss_that_is_decided_again_is_counted_once() -> None:
    """The store does not take the new start at first; the log ends elsewhere then, and the last decision counts."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        store = MemoryStore()
        await take(b, store, 2)
        b.broker.truncate("s", 0, 5)
        faults = Faults(error=TransientStoreError)
        faults.fail_next("save", times=10)
        async with consumer(b, store.handle(faults=faults), out_of_range="earliest") as tried:
            await asyncio.sleep(1)
            assert tried.stats().lost == 3
            b.broker.truncate("s", 0, 6)
            assert (await anext(tried)).position == 6
            assert tried.stats().lost == 4

    bench(test)


LAG: dict[str, Any] = {"max_lag": 3, "lag_policy": "skip"}


@pytest.mark.parametrize("options", [LAG, {"out_of_range": "latest"}])
@pytest.mark.parametrize("has_store", [False, True])
def test_skip_that_was_durable_without_an_answer_is_said_and_counted(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture, *, has_store: bool
) -> None:
    """The next try finds nothing to decide."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        store = MemoryStore()
        async with consumer(b, store.handle() if has_store else None) as healthy:
            for _ in range(2):
                (await anext(healthy)).ack()
            await healthy.flush()
            await asyncio.sleep(1)
        if options is not LAG:
            b.broker.truncate("s", 0, 6)
        faults = Faults(error=TransientStoreError if has_store else None)
        if has_store:
            faults.fail_next("save", "after")
            faults.fail_next("read_back")
            skipping = consumer(b, store.handle(faults=faults), **options)
        else:
            faults.fail_next("commit", "after")
            skipping = consumer(b, None, faults, **options)
        async with skipping:
            await asyncio.sleep(8)
            b.append("new")
            assert (await anext(skipping)).value == b"new"
            assert (skipping.stats().lost, skipping.stats().resets) == (8, 0)

    bench(test)
    assert "skipped" in caplog.text


def test_reset_and_skip_are_decided_once_whenever_the_consumer_is_killed() -> None:
    """What came after the decision is not skipped by deciding again."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        faults = Faults()
        faults.fail_next("commit", times=NEVER)
        async with consumer(b, store.handle(), faults, **LAG):
            await asyncio.sleep(30)
        async with consumer(b, store.handle(), **LAG) as skipping:
            await asyncio.sleep(8)
            b.append(*"abcdefgh")
            assert skipping.stats().lost == 8
        async with consumer(b, store.handle()) as healthy:
            assert [(await anext(healthy)).value for _ in range(8)] == [
                b"%c" % c for c in b"abcdefgh"
            ]

    bench(test)


class OneSave:
    """A store that takes one save, and none after it."""

    def __init__(self) -> None:
        self._saves = 0

    async def around(self, seam: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Around each call to the store."""
        self._saves += seam == "save"
        if self._saves > 1 and seam in ("save", "read_back"):
            raise TransientStoreError("down")
        return await call()


def test_skip_after_a_reset_is_durable_before_the_first_record() -> None:
    """The store takes the reset, and then fails: what came after the skip is not skipped by deciding again."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        async with consumer(b, store.handle(faults=OneSave()), **LAG) as held:
            pulling = asyncio.ensure_future(anext(held))
            await asyncio.sleep(8)
            b.append(*"abcdefgh")
            await asyncio.sleep(30)
            assert held.stats().fetched == 0
            pulling.cancel()

    bench(test)


class Evicted(MemoryAdapter):
    """A member that the group has put out, and that has not heard of it."""

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Refused."""
        stale = FencedError("stale generation")
        return [Outcome(OutcomeKind.FENCED, error=stale) for _ in flushes]


def test_no_record_is_handed_out_before_the_broker_has_taken_the_mark() -> None:
    """Of a member that may not commit any more, either."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        evicted = Consumer(
            Evicted(b.broker, "s", group="g"), store=store.handle(), clock=b.simulation.clock
        )
        async with evicted:
            pulling = asyncio.ensure_future(anext(evicted))
            await asyncio.sleep(30)
            assert evicted.stats().fetched == 0
            pulling.cancel()

    bench(test)


def test_resumed_partition_stays_so_when_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """Who was told of its lag once has decided."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        store = MemoryStore()
        options: dict[str, Any] = {"max_lag": 5, "lag_policy": "pause"}
        async with consumer(b, store, **options) as paused:
            pulling = asyncio.ensure_future(anext(paused))
            await asyncio.sleep(5)
            assert paused.stats().over_max_lag == (PARTITION,)
            assert paused.resume(PARTITION)
            assert (await pulling).position == 0
            async with consumer(b, store.handle()):
                await asyncio.sleep(5)
            again = await anext(paused)
            assert (again.position, paused.stats().over_max_lag) == (0, ())

    bench(test)
    assert caplog.text.count("until consumer.resume") == 1


def test_reset_that_another_owner_overtakes_is_not_granted() -> None:
    """The store gives the partition to somebody else while the reset is made durable."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        async with consumer(b, store.handle(faults=Thief(store))) as robbed:
            assert (await anext(robbed)).position == 2
            counts = robbed.snapshot().event_counts
            assert (counts["fenced"], counts["assigned"]) == (1, 1)

    bench(test)


def test_each_reset_of_a_consumer_that_goes_on_is_said_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its partition was lost in between."""

    async def test(b: Bench) -> None:
        store = await prepare(b, reset=2)
        adapter = MemoryAdapter(b.broker, "s", group="g")
        async with Consumer(adapter, store=store, clock=b.simulation.clock) as lasting:
            assert (await anext(lasting)).position == 2
            adapter.expire()
            b.broker.reset("g", PARTITION, 1)
            while (await anext(lasting)).position != 1:
                pass
            assert lasting.stats().resets == 2
            assert lasting.snapshot().event_counts["reset"] == 2

    bench(test)
    assert caplog.text.count("another program has set the group's position") == 2


def test_partition_that_has_caught_up_is_paused_when_it_falls_behind_again() -> None:
    """Who resumed it has decided about that lag alone, as long as it lasted."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        adapter = MemoryAdapter(b.broker, "s", group="g")
        async with Consumer(
            adapter, max_lag=5, lag_policy="pause", clock=b.simulation.clock
        ) as paused:
            pulling = asyncio.ensure_future(anext(paused))
            await asyncio.sleep(5)
            paused.resume(PARTITION)
            await pulling
            for _ in range(2):  # it is behind still
                adapter.expire()
                message = await anext(paused)
                while not (message.position == 0 and paused.stats().over_max_lag == ()):
                    message = await anext(paused)
            for _ in range(9):
                message = await anext(paused)
            assert message.position == 9
            message.ack_cumulative()
            await paused.flush()
            adapter.expire()
            await asyncio.sleep(5)
            assert paused.stats().over_max_lag == ()
            adapter.expire()
            b.append(*map(str, range(10)))
            await asyncio.sleep(5)
            assert paused.stats().over_max_lag == (PARTITION,)

    bench(test)


@pytest.mark.parametrize("heard", [0, 2])
def test_broker_that_missed_the_last_commit_is_told_at_the_next_start(heard: int) -> None:
    """The consumer before was killed between the save and the commit; no record comes."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(5)))
        store, faults = MemoryStore(), Faults()
        if heard:
            await take(b, store, heard)
        faults.fail_next("commit", times=NEVER)
        async with consumer(b, store.handle(), faults) as killed:
            for _ in range(5 - heard):
                (await anext(killed)).ack()
            await killed.flush()
        assert b.committed() == ({"0": heard} if heard else {})
        async with consumer(b, store.handle()):
            await asyncio.sleep(2)
            assert b.committed() == {"0": 5}

    bench(test)


@pytest.mark.parametrize("policy, count", [("pause", 3), ("warn", 10)])
def test_partition_is_paused_for_its_lag_alone(policy: str, count: int) -> None:
    """Neither below ``max_lag``, nor where nobody asked for it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(count)))
        async with consumer(b, None, max_lag=5, lag_policy=policy) as reading:
            assert (await anext(reading)).position == 0
            assert reading.stats().over_max_lag == ()

    bench(test)
