"""Revokes: how long they wait, what they make durable, and what begins anew afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.records import Assignment, Run
from consumer_sdk.runtime.partitions.assignments import Assignments
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter
from tests.runtime.bench import Bench, bench

T = TypeVar("T")


def owner_of(consumer: Consumer) -> Assignments:
    """Whom the adapter tells of a revoke."""
    return consumer._engine._assignments


async def revoke(consumer: Consumer, seconds: float) -> float:
    """Revokes all, with so much time; returns how long that took."""
    owner, began = owner_of(consumer), asyncio.get_running_loop().time()
    await owner.revoked(list(owner.holdings), deadline=began + seconds)
    return asyncio.get_running_loop().time() - began


class Deaf:
    """A store that answers no save."""

    is_deaf = False

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Hangs, or calls."""
        if seam == "save" and self.is_deaf:
            await asyncio.get_running_loop().create_future()
        return await call()


def test_revoke_flushes_until_nothing_is_left() -> None:
    """The store fails at first. The broker has the position before others have the partition."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        faults = Faults()
        async with b.consumer(store=MemoryStore(faults=faults), flush_interval=60) as consumer:
            (await anext(consumer)).ack()
            await consumer.flush()
            await asyncio.sleep(1)  # the broker is told, and not again for a minute
            (await anext(consumer)).ack()
            faults.fail_next("save", times=5)
            assert await revoke(consumer, 10) < 1
            assert b.committed() == {"0": 2}

    bench(test)


def test_revoke_waits_for_handlers_for_most_of_its_time() -> None:
    """The rest is for the flush of what is settled."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(flush_interval=60) as consumer:
            first, _ = await anext(consumer), await anext(consumer)
            await asyncio.sleep(100)
            first.ack()
            assert await revoke(consumer, 10) == pytest.approx(8.0)
            assert b.committed() == {"0": 1}

    bench(test)


def test_revoke_with_nothing_to_flush_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was ever read, or all is durable."""

    async def test(b: Bench) -> None:
        for records in ((), ("1",)):
            b.append(*records)
            async with b.consumer() as consumer:
                for _ in records:
                    (await anext(consumer)).ack()
                await consumer.flush()
                await asyncio.sleep(1)
                assert await revoke(consumer, 10) < 0.01

    bench(test)
    assert "the last flush" not in caplog.text


def test_revoke_does_not_wait_for_records_that_nobody_was_handed() -> None:
    """They were fetched, and are the next owner's."""

    async def test(b: Bench) -> None:
        b.append(*"123")
        async with b.consumer() as consumer:
            (await anext(consumer)).ack()
            assert consumer.stats().fetched == 3
            assert await revoke(consumer, 10) < 0.01
            assert b.committed() == {"0": 1}

    bench(test)


def test_revoke_whose_time_is_up_flushes_what_can_be_flushed_at_once() -> None:
    """It waits for no handler then."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(flush_interval=60) as consumer:
            first, _ = await anext(consumer), await anext(consumer)
            first.ack()
            assert await revoke(consumer, -1) < 0.01
            assert b.committed() == {"0": 1}

    bench(test)


@pytest.mark.parametrize("seconds", [-1.0, 10.0])
def test_revoke_waits_for_a_store_until_its_time_is_up(seconds: float) -> None:
    """What is not durable is delivered again, by whoever has the partition next."""

    async def test(b: Bench) -> None:
        b.append("1")
        seam = Deaf()
        async with b.consumer(store=MemoryStore(faults=seam), flush_interval=60) as consumer:
            seam.is_deaf = True
            (await anext(consumer)).ack()
            assert await revoke(consumer, seconds) == pytest.approx(max(seconds, 0), abs=0.01)
            assert consumer.stats().partitions == ()

    bench(test)


def test_records_that_were_given_up_keep_no_revoke_waiting() -> None:
    """No handler works on them; what is queued behind them is not handed out any more."""

    async def test(b: Bench) -> None:
        b.append(*"1234")
        async with b.consumer() as consumer:
            first, _ = await anext(consumer), await anext(consumer)
            owner_of(consumer).give_up(list(owner_of(consumer).holdings))
            pulling = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(1)
            assert not pulling.done()
            assert first.ack()
            assert await revoke(consumer, 10) < 0.01
            assert b.committed() == {"0": 1}
            pulling.cancel()

    bench(test)


def test_nothing_is_handed_out_from_the_call_on() -> None:
    """Neither what is queued nor what comes while a handler is waited for."""

    async def test(b: Bench) -> None:
        b.append(*"12")
        async with b.consumer() as consumer:
            await anext(consumer)
            owner, loop = owner_of(consumer), asyncio.get_running_loop()
            held, draining = list(owner.holdings), loop.create_future()
            revoking = asyncio.create_task(owner.revoked(held, deadline=loop.time() + 10))
            holding = owner.holdings[held[0]]
            loop.call_soon(lambda: draining.set_result(holding.is_draining))
            pulling = asyncio.ensure_future(anext(consumer))
            assert await draining
            b.append(*"34")
            await asyncio.sleep(5)
            assert not pulling.done()
            await revoking
            assert consumer.stats().fetched == 2
            pulling.cancel()

    bench(test)


def test_revoke_takes_each_partition_in_its_turn() -> None:
    """Of more than are drained at once, the last one is flushed too, and what none had is let be."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(501)))
        async with b.consumer(flush_interval=60) as consumer:
            for _ in range(501):
                (await anext(consumer)).ack()
            owner = owner_of(consumer)
            gone = Assignment(next(iter(owner.holdings)).partition, epoch=99)
            await owner.revoked([*owner.holdings, gone], deadline=10)
            assert owner.holdings == {}
            assert sum(b.committed().values()) == 501

    bench(test, partitions=501)


class SlowAgain:
    """Each save takes a minute, once that is wanted."""

    is_slow = False

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Around each call to the store."""
        if seam == "save" and self.is_slow:
            await asyncio.sleep(60)
        return await call()


def test_partition_that_comes_back_and_is_lost_before_its_start_is_stored_is_over_once() -> None:
    """It was there before, and lost: of the second time nobody was told that it had come."""

    async def test(b: Bench) -> None:
        b.append(*"0123")
        seam = SlowAgain()
        store = MemoryStore(faults=seam)
        async with b.consumer(store=store, out_of_range="earliest") as consumer:
            (await anext(consumer)).ack()
            await consumer.flush()
            (old,) = owner_of(consumer).holdings
            seam.is_slow = True
            owner_of(consumer).lost([old])
            b.broker.truncate("s", 0, 3)  # so where it goes on is decided, and stored
            again = Assignment(old.partition, epoch=old.epoch + 1)
            granting = asyncio.create_task(owner_of(consumer).assigned([again]))
            await asyncio.sleep(1)
            assert list(owner_of(consumer).holdings) == [again]
            owner_of(consumer).lost([again])
            assert await granting == {}
            (seen,) = consumer.snapshot().partitions
            assert (seen.assigned, seen.revoked, seen.lost) == (1, 0, 1)

    bench(test)


def test_record_that_lapses_while_a_revoke_drains_is_let_be() -> None:
    """Who had it may settle it as long as its drain lasts."""

    async def test(b: Bench) -> None:
        b.append("0", "1")
        adapter = MemoryAdapter(b.broker, "s", group="g", subscription="shared")
        async with Consumer(adapter, clock=b.simulation.clock) as consumer:
            message: Message = await anext(consumer)
            owner = owner_of(consumer)
            held = list(owner.holdings)
            revoking = asyncio.create_task(owner.revoked(held, deadline=10))
            await asyncio.sleep(1)
            owner.lapsed(held[0], [message.position])
            assert message.ack()
            await revoking
            assert consumer.stats().settled == 1

    bench(test)


def test_handler_of_a_partition_that_is_lost_while_a_revoke_drains_is_cancelled_once() -> None:
    """It may clean up, however the revoke ends."""

    async def test(b: Bench) -> None:
        b.append("1")
        ended: list[str] = []

        async def handle(_message: Message) -> None:
            try:
                await asyncio.sleep(10_000)
            finally:
                ended.append("cleans up")
                await asyncio.sleep(60)
                ended.append("is clean")

        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, handle, seconds=100))
        await asyncio.sleep(5)
        owner = owner_of(consumer)
        held = list(owner.holdings)
        revoking = asyncio.create_task(owner.revoked(held, deadline=15))
        await asyncio.sleep(1)
        owner.lost(held)
        await revoking
        await running
        assert ended == ["cleans up", "is clean"]

    bench(test)


def test_partition_that_starts_anew_is_over_before_it_comes_again() -> None:
    """It was revoked, and not lost. If nothing was ever read of it, nobody can say what is lost."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(1)
            owner = owner_of(consumer)
            (old,) = owner.holdings
            owner.start_anew_when_finished(owner.holdings[old])
            assert owner.holdings == {}
            assert consumer.stats().lost == 1
            await asyncio.sleep(1)
            (new,) = owner.holdings
            assert new.epoch > old.epoch
            (seen,) = consumer.snapshot().partitions
            assert (seen.assigned, seen.revoked, seen.lost) == (2, 1, 0)

    bench(test)


def test_failures_that_no_commit_tells_of_are_remembered_until_their_records_are_settled() -> None:
    """Those of deliveries that blocked the event loop: the partition was lost by that."""

    async def test(b: Bench) -> None:
        b.append(*"012345")
        async with b.consumer(store=MemoryStore()) as consumer:
            owner = owner_of(consumer)

            async def come_again() -> HeldPartition:
                (old,) = owner.holdings
                owner.lost([old])
                new = replace(old, epoch=old.epoch + 1)
                await owner.assigned([new])
                return owner.holdings[new]

            messages = [await anext(consumer) for _ in range(6)]
            for settled in (messages[0], messages[2]):
                settled.ack()
            await consumer.flush()
            (holding,) = owner.holdings.values()
            holding.blamed = {0: 1, 1: 2, 2: 1, 3: 1}
            for _ in range(2):
                holding = await come_again()
                assert holding.blockers == {1: 2, 3: 1}
                found = holding.tracker.checkpoint(0.0, 0.0).attempts
                assert {at: count for at, (count, _) in found.items()} == {1: 2, 3: 1}
                assert consumer.stats().failed == 4
            holding.tracker.track(Run(holding.assignment, messages[1:4]), 0.0)
            holding.tracker.ack_all(range(3))
            await consumer.flush()
            for _ in range(2):
                holding = await come_again()
                assert holding.blockers == {}

    bench(test)
