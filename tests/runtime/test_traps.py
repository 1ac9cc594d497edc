"""Traps that need no broker: late and double settles, keys, filters, a close that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import Bench, Letters, bench


def test_double_late_and_crossed_settles_are_counted_and_hold_nothing_up() -> None:
    """T11: ack twice, nack and reject after it, an ack of a nacked delivery: the commit goes on."""

    async def test(b: Bench) -> None:
        b.append("0", "1", "2", "3")
        async with b.consumer() as consumer:
            first, second, third, fourth = [await anext(consumer) for _ in range(4)]
            assert first.ack()
            assert not first.ack()
            assert not first.nack()
            assert not first.reject("late")
            assert not first.ack_cumulative()
            assert third.ack()
            assert second.nack(1.0)
            assert not second.nack(1.0)
            again = await anext(consumer)
            assert (again.value, again.attempt) == (b"1", 2)
            assert not second.ack()
            assert again.ack()
            assert fourth.ack_cumulative()
            assert not again.ack()
            await consumer.flush()
            assert b.committed() == {"0": 4}
            assert consumer.stats().settled == 4
            assert b.letters.kept == []

    bench(test)


def test_same_key_in_two_partitions_is_two_lanes() -> None:
    """T24: a key orders its own partition, and equal bytes are one key whatever object they are."""

    async def test(b: Bench) -> None:
        for partition in (0, 1):
            for n in range(2):
                b.broker.append(
                    "s", b"%d%d" % (partition, n), key=bytes([107]), partition=partition
                )

        async def handle(message: Message) -> None:
            b.seen.append(message)
            await asyncio.sleep(10)

        running = asyncio.create_task(b.run(b.consumer(), handle, ordering=Ordering.KEY))
        await asyncio.sleep(5)
        assert sorted(b.values) == ["00", "10"]
        await running
        assert len(b.values) == 4

    bench(test, partitions=2)


def test_filtered_rejected_and_empty_records_let_the_position_pass() -> None:
    """T29: a tombstone, a record that the handler skips, and a rejected one are all settled."""

    async def test(b: Bench) -> None:
        b.broker.append("s", None, key=b"gone")
        b.append("skip", "bad", "good")

        async def handle(message: Message) -> None:
            if message.value is None or message.value == b"skip":
                return
            if message.value == b"bad":
                raise Reject("bad")
            b.seen.append(message)

        await b.run(b.consumer(), handle)
        assert b.values == ["good"]
        assert [letter.value for letter in b.letters.kept] == [b"bad"]
        assert b.committed() == {"0": 4}

    bench(test)


def test_nacked_record_neither_rewinds_the_fetch_nor_disturbs_what_runs() -> None:
    """T22: five failures of one record; each other record is delivered once, and fetched once."""

    async def test(b: Bench) -> None:
        b.append(*[str(n) for n in range(50)])

        async def handle(message: Message) -> None:
            b.seen.append(message)
            await asyncio.sleep(1)
            if message.value == b"7" and message.attempt <= 5:
                raise ValueError

        consumer = b.consumer(retry=RetryPolicy(max_attempts=9, initial=0.5, jitter=0.0))
        running = asyncio.create_task(b.run(consumer, handle, concurrency=5))
        await asyncio.sleep(50)
        assert consumer.stats().fetched == 50
        assert consumer.stats().suppressed == 0
        await running
        assert sorted(b.values) == sorted([str(n) for n in range(50)] + ["7"] * 5)
        assert b.committed() == {"0": 50}

    bench(test)


class _Broken(Letters):
    """Dead letters that cannot be closed."""

    async def aclose(self) -> None:
        raise OSError("the disk is full")


class _ClosedOnce(MemoryStore):  # type: ignore[misc]  # final for users; here it only counts
    """Counts how often it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()


def test_step_of_the_close_that_fails_leaves_no_other_undone() -> None:
    """T27: the group is left, the store closed and the acks durable; the error is raised."""

    async def test(b: Bench) -> None:
        b.append("0", "1")
        store = _ClosedOnce()
        consumer = b.consumer(dead_letters=_Broken(), store=store)
        with pytest.raises(OSError, match="disk is full"):
            async with consumer:
                (await anext(consumer)).ack()
                (await anext(consumer)).ack()
        assert store.closed == 1
        assert b.committed() == {"0": 2}
        began = b.simulation.clock.monotonic()
        b.append("2")
        async with b.consumer(store=store) as successor:
            assert (await anext(successor)).value == b"2"
        assert b.simulation.clock.monotonic() - began < 5  # not a session timeout later

    bench(test)


class _Slow(Letters):
    """Dead letters that take their time, and fail at first."""

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        await asyncio.sleep(20)
        return await super().send(letters)


def test_dead_letter_on_its_way_when_the_partition_moves_is_written_and_not_lost() -> None:
    """T1, T13: whoever gets the partition sees the record fail again, or finds it settled."""

    async def test(b: Bench) -> None:
        b.append("poison")
        letters = _Slow(failures=1)
        first = b.consumer(dead_letters=letters, drain_timeout=1)
        async with first:
            (await anext(first)).reject("why")
            await asyncio.sleep(1)
        assert b.committed().get("0", 0) == 0
        assert letters.kept == []
        async with b.consumer() as second:
            (await anext(second)).reject("why")
            await second.flush()
            await asyncio.sleep(1)
        assert [letter.error for letter in b.letters.kept] == ["why"]
        assert b.committed() == {"0": 1}

    bench(test)


def test_consumer_keeps_its_membership_however_slow_the_handler() -> None:
    """T16: minutes in a handler, many sessions long: one epoch, no second delivery."""

    async def test(b: Bench) -> None:
        b.append("0", "1", "2")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            await asyncio.sleep(200)

        adapter = MemoryAdapter(b.broker, "s", group="g")
        consumer = Consumer(adapter, max_in_flight=1, fetch_records=1, clock=b.simulation.clock)
        await b.run(consumer, handle, seconds=700, concurrency=1)
        assert b.values == ["0", "1", "2"]
        assert len({m.assignment.epoch for m in b.seen}) == 1
        assert b.committed() == {"0": 3}

    bench(test)
