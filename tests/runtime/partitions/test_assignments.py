"""Assign, revoke, lose: what is claimed, drained, flushed and fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk import (
    AtTime,
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    Consumer,
    Hooks,
    Message,
    PositionOutOfRangeError,
    TransientStoreError,
)
from consumer_sdk.abc import AssignmentOwner, LeaseSource
from consumer_sdk.records import Assignment, Checkpoint, Partition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter
from consumer_sdk.trackers import encode_checkpoint
from tests.runtime.bench import QUICK, Bench, bench


async def _take(consumer: Consumer, count: int) -> list[Message]:
    return [await anext(consumer) for _ in range(count)]


def test_second_member_joins_what_is_settled_is_not_redelivered() -> None:
    """T3: drain, then flush, then fence: the new owner repeats only what was unsettled."""

    async def test(b: Bench) -> None:
        b.append(*[f"k{n % 7}={n}" for n in range(100)])
        done: list[tuple[str, bytes | None]] = []

        def handler(name: str) -> Any:
            async def handle(message: Message) -> None:
                await asyncio.sleep(0.2)
                done.append((name, message.value))

            return handle

        first, second = b.consumer(), b.consumer()
        running = asyncio.create_task(b.run(first, handler("first"), concurrency=4))
        await asyncio.sleep(2)
        joining = asyncio.create_task(b.run(second, handler("second"), concurrency=4))
        await running
        await joining
        values = [value for _, value in done]
        assert len(set(values)) == 100
        assert len(values) == 100
        assert {name for name, _ in done} == {"first", "second"}

    bench(test, partitions=4)


def test_ack_after_the_revoke_commits_nothing() -> None:
    """T1: a late ack of a revoked partition is a counted no-op."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        first = b.consumer(drain_timeout=0.5)
        async with first:
            messages = await _take(first, 2)
            messages[0].ack()
        late = messages[1].ack()
        assert not late
        assert b.committed() == {"0": 1}

    bench(test)


def test_same_partition_granted_again_delivers_every_record() -> None:
    """T2: a stale entry of the last epoch swallows nothing of the next."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        consumer = b.consumer(drain_timeout=0.5)
        async with consumer:
            old = await _take(consumer, 3)
            other = MemoryAdapter(b.broker, "s", group="g")
            joining = asyncio.create_task(_join_and_leave(b, other))
            again = await _take(consumer, 3)
            assert [m.value for m in again] == [b"1", b"2", b"3"]
            assert not any(m.ack() for m in old)
            assert all(m.ack() for m in again)
            await consumer.flush()
            await joining
        assert b.committed() == {"0": 3}

    bench(test)


async def _join_and_leave(b: Bench, adapter: MemoryAdapter) -> None:
    consumer = Consumer(adapter, retry=QUICK, clock=b.simulation.clock)
    async with consumer:
        await asyncio.sleep(3)


def test_queued_records_of_a_revoked_partition_are_not_dispatched() -> None:
    """T28: what waits in the queues is purged by the revoke."""

    async def test(b: Bench) -> None:
        b.append(*[f"k={n}" for n in range(50)])
        consumer = b.consumer(drain_timeout=5)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            await asyncio.sleep(1)

        running = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(3.5)
        consumer.stop()
        await running
        assert len(b.seen) == 4
        assert b.committed() == {"0": 4}

    bench(test)


def test_many_rebalances_leave_no_counter_behind() -> None:
    """T6: after ten rebalances nothing is in flight, nothing is paused, and it still consumes."""

    async def test(b: Bench) -> None:
        b.append(*[f"k{n}={n}" for n in range(300)])
        consumer = b.consumer(max_in_flight=20, drain_timeout=0.2)

        async def handle(message: Message) -> None:
            await asyncio.sleep(0.3)
            b.seen.append(message)

        running = asyncio.create_task(consumer.run(handle, concurrency=10))
        for _ in range(10):
            await asyncio.sleep(0.7)
            await _join_and_leave(b, MemoryAdapter(b.broker, "s", group="g"))
        await asyncio.sleep(60)
        stats = consumer.stats()
        assert (stats.in_flight, stats.retrying, stats.paused) == (0, 0, ())
        assert {m.value for m in b.seen} == {str(n).encode() for n in range(300)}
        consumer.stop()
        await running

    bench(test, partitions=2)


def test_store_checkpoint_keeps_what_was_settled_above_a_hole() -> None:
    """A restart redelivers only the holes."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        b.append(*[str(n) for n in range(10)])
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            for message in await _take(consumer, 10):
                if message.value not in (b"2", b"7"):
                    message.ack()
        async with b.consumer(store=store) as consumer:
            again = await _take(consumer, 2)
            assert [m.value for m in again] == [b"2", b"7"]
            assert consumer.stats().suppressed == 6  # those above the first hole

    bench(test)


def test_attempts_survive_a_restart() -> None:
    """The retry limit counts deliveries across restarts, and the delay goes on."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        b.append("x")
        async with b.consumer(store=store) as consumer:
            (message,) = await _take(consumer, 1)
            message.nack(100.0)
        start = b.simulation.clock.wall()
        async with b.consumer(store=store) as consumer:
            (message,) = await _take(consumer, 1)
            assert message.attempt == 2
            assert 99.0 <= b.simulation.clock.wall() - start <= 100.0 + 1e-6

    bench(test)


def test_latest_is_pinned_before_the_first_record() -> None:
    """A restart before the first ack leaves no gap."""

    async def test(b: Bench) -> None:
        b.append("old")
        async with b.consumer(start="latest") as consumer:
            asyncio.get_running_loop().call_later(5, consumer.stop)
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)
        b.append("between")
        async with b.consumer(start="latest") as consumer:
            (message,) = await _take(consumer, 1)
            assert message.value == b"between"

    bench(test)


class Small(MemoryAdapter):
    """A broker that says, when it is asked, that its commits have no room for a checkpoint."""

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        """Says so."""
        self.capabilities = replace(self.capabilities, metadata_size=0)
        await super().open(owner, leases)


def test_start_that_the_broker_cannot_keep_is_refused_when_that_is_known() -> None:
    """Only an open adapter knows how much its commits can carry."""

    async def test(b: Bench) -> None:
        b.append("1")
        adapter = Small(b.broker, "s", group="g")
        consumer = Consumer(
            adapter, restart="from_start", application_id="v1", clock=b.simulation.clock
        )
        with pytest.raises(ConfigurationError, match="no room for one"):
            await b.run(consumer)
        assert not b.seen

    bench(test)


class Thief:
    """Another owner claims the partition just before the first save arrives."""

    def __init__(self, store: MemoryStore) -> None:
        self._other = store.handle()
        self._has_struck = False

    async def around(self, seam: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Around each call to the store."""
        if seam == "save" and not self._has_struck:
            self._has_struck = True
            await self._other.claim("g", [Assignment(Partition("s", "0"), 99)])
        return await call()


def test_start_that_is_fenced_is_not_granted_and_the_consumer_goes_on() -> None:
    """A pin that another owner overtakes: the partition is theirs, or comes in a new epoch."""

    async def test(b: Bench) -> None:
        shared = MemoryStore()
        store = shared.handle(faults=Thief(shared))
        async with b.consumer(store=store, start="latest") as consumer:
            asyncio.get_running_loop().call_later(5, b.append, "new")
            (message,) = await _take(consumer, 1)
            assert message.value == b"new"
            counts = consumer.snapshot().event_counts
            assert (counts["fenced"], counts["assigned"]) == (1, 1)
            assert "lost" not in counts  # it had not come yet

    bench(test)


def test_start_at_a_time() -> None:
    """``AtTime`` starts with the first record stored at or after it."""

    async def test(b: Bench) -> None:
        b.append("old")
        await asyncio.sleep(10)
        at = b.simulation.clock.wall()
        b.append("new")
        async with b.consumer(start=AtTime(at)) as consumer:
            (message,) = await _take(consumer, 1)
            assert message.value == b"new"

    bench(test)


@pytest.mark.parametrize("policy,first,lost", [("earliest", b"5", 5), ("latest", b"new", 8)])
def test_checkpoint_behind_the_log_follows_the_policy(policy: str, first: bytes, lost: int) -> None:
    """T12: retention passed the checkpoint: fail by default, or go on and count what is lost."""

    async def test(b: Bench) -> None:
        b.append("0")
        async with b.consumer(drain_timeout=0.1) as consumer:
            await _take(consumer, 1)
            await consumer.flush()
        await _commit_zero(b)
        b.append(*[str(n) for n in range(1, 8)])
        b.broker.truncate("s", 0, 5)
        with pytest.raises(PositionOutOfRangeError, match="out_of_range="):
            await b.run(b.consumer())
        async with b.consumer(out_of_range=policy) as consumer:
            asyncio.get_running_loop().call_later(1, b.append, "new")
            (message,) = await _take(consumer, 1)
            assert message.value == first
            assert consumer.stats().lost == lost

    bench(test)


async def _commit_zero(b: Bench) -> None:
    """A checkpoint at position 0: the record was nacked, so that its attempt is kept."""
    async with b.consumer(drain_timeout=0.1) as consumer:
        (message,) = await _take(consumer, 1)
        message.nack(1)
        await consumer.flush()


def test_unreadable_store_stops_the_consumer_at_start() -> None:
    """A store that cannot be read never means "start at latest"."""

    async def test(b: Bench) -> None:
        faults = Faults(error=lambda _: TransientStoreError("down"))
        faults.fail_next("claim", times=3)
        b.append("x")
        async with b.consumer(store=MemoryStore(faults=faults)) as consumer:
            (message,) = await _take(consumer, 1)
            assert message.value == b"x"  # transient: gated and tried again

    bench(test)


def test_checkpoint_of_another_broker_or_stream_is_refused() -> None:
    """A foreign or garbled checkpoint is a typed error, and is not overwritten."""

    async def test(b: Bench) -> None:
        for text, error in (
            ("garbage", CheckpointFormatError),
            (await _checkpoint_of_other_stream(b), CheckpointMismatchError),
        ):
            store = MemoryStore()
            await _plant(store, text)
            b.append("x")
            with pytest.raises(error):
                await b.run(b.consumer(store=store))
            partition = Partition("s", "0")
            assert (await store.peek("g", [partition]))[partition] == text

    bench(test)


async def _plant(store: MemoryStore, text: str) -> None:
    from consumer_sdk.abc import StoreItem

    await store.open()
    assignment = Assignment(Partition("s", "0"), 1)
    await store.claim("g", [assignment])
    await store.save("g", [StoreItem(assignment, text)])


async def _checkpoint_of_other_stream(b: Bench) -> str:
    store = MemoryStore()
    b.broker.create_stream("other")
    b.broker.append("other", b"x")
    adapter = MemoryAdapter(b.broker, "other", group="g")
    async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
        (await anext(consumer)).ack()
        await consumer.flush()
    partition = Partition("other", "0")
    text = (await store.peek("g", [partition]))[partition]
    assert text is not None
    return text


def test_starts_that_fail_let_a_lost_handler_clean_up() -> None:
    """It was cancelled when its partition was lost, and no try to start another cancels it again."""

    async def test(b: Bench) -> None:
        b.append("1")
        ended: list[str] = []

        async def handle(message: Message) -> None:
            if message.value != b"1" or ended:
                return
            try:
                await asyncio.sleep(10_000)
            finally:
                ended.append("cleans up")
                await asyncio.sleep(60)
                ended.append("is clean")

        faults = Faults()
        adapter = MemoryAdapter(b.broker, "s", group="g")
        store = MemoryStore(faults=faults)
        consumer = Consumer(adapter, store=store, retry=QUICK, clock=b.simulation.clock)
        running = asyncio.create_task(b.run(consumer, handle, seconds=200))
        await asyncio.sleep(5)
        faults.fail_next("claim", times=10)
        adapter.expire()
        await running
        assert ended == ["cleans up", "is clean"]

    bench(test)


def test_stuck_handler_of_a_revoked_partition_gives_its_place_back() -> None:
    """What is processed for a lost partition is in vain: it ends, and the rest goes on."""

    async def test(b: Bench) -> None:
        b.append(*[f"k{n}={n}" for n in range(40)])
        cancelled: list[bytes | None] = []
        seen: set[bytes | None] = set()

        async def stuck(message: Message) -> None:
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                cancelled.append(message.value)
                raise

        async def handle(message: Message) -> None:
            if message.partition.id == "1" and not joined.is_set():
                await stuck(message)
            seen.add(message.value)

        joined = asyncio.Event()
        first = b.consumer(drain_timeout=1)
        running = asyncio.create_task(b.run(first, handle, concurrency=1, seconds=100))
        await asyncio.sleep(5)
        assert len(seen) < 40
        second = b.consumer(drain_timeout=1)
        joining = asyncio.create_task(b.run(second, handle, seconds=60))
        await asyncio.sleep(3)
        joined.set()
        await joining
        await running
        assert cancelled
        assert len(seen) == 40

    bench(test, partitions=2)


class _Told(Hooks):
    """Keeps the partitions that are said to have come, and to be over."""

    def __init__(self) -> None:
        self.come: list[Partition] = []
        self.over: list[Partition] = []

    def partitions_assigned(self, partitions: Sequence[Partition]) -> None:
        self.come += partitions

    def partitions_revoked(self, partitions: Sequence[Partition]) -> None:
        self.over += partitions


def _ways(consumer: Consumer) -> dict[Partition, tuple[int, int, int]]:
    """How often each came, was revoked and was lost."""
    seen = consumer.snapshot().partitions
    return {each.partition: (each.assigned, each.revoked, each.lost) for each in seen}


def test_partition_that_is_lost_while_a_revoke_drains_is_over_once() -> None:
    """The session of one ends before the drain does: it was lost, and not revoked as well."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        hooks = _Told()
        async with b.consumer(hooks=hooks) as consumer:
            await anext(consumer)
            owner, now = consumer._engine._assignments, asyncio.get_running_loop().time()
            lost, kept = owner.holdings
            revoking = asyncio.create_task(owner.revoked([lost, kept], deadline=now + 10))
            await asyncio.sleep(1)
            owner.lost([lost])
            await revoking
            assert _ways(consumer) == {lost.partition: (1, 0, 1), kept.partition: (1, 1, 0)}
            assert hooks.over == [lost.partition, kept.partition]

    bench(test, partitions=2)


def test_partitions_that_are_lost_while_a_revoke_closes_are_over_once() -> None:
    """Many are closed in turns of the event loop: the session ends when it was the turn of some."""

    async def test(b: Bench) -> None:
        hooks = _Told()
        async with b.consumer(hooks=hooks) as consumer:
            await asyncio.sleep(1)
            owner, now = consumer._engine._assignments, asyncio.get_running_loop().time()
            held = list(owner.holdings)
            revoking = asyncio.create_task(owner.revoked(held, deadline=now + 10))
            while len(owner.holdings) == len(held):
                await asyncio.sleep(0)
            assert owner.holdings
            owner.lost(held)
            await revoking
            assert set(_ways(consumer).values()) == {(1, 1, 0), (1, 0, 1)}
            assert len(hooks.over) == len(set(hooks.over)) == len(held)

    bench(test, partitions=600)


def test_partition_that_is_fenced_by_the_last_flush_of_a_revoke_is_over_once() -> None:
    """Another owner has claimed it meanwhile: it was lost, and not revoked as well."""

    async def test(b: Bench) -> None:
        b.append("1")
        hooks, shared = _Told(), MemoryStore()
        store = shared.handle()
        async with b.consumer(hooks=hooks, store=store, flush_interval=60.0) as consumer:
            message = await anext(consumer)
            owner, now = consumer._engine._assignments, asyncio.get_running_loop().time()
            held = list(owner.holdings)
            revoking = asyncio.create_task(owner.revoked(held, deadline=now + 10))
            await asyncio.sleep(1)
            await shared.claim("g", [Assignment(held[0].partition, 9)])
            message.ack()
            await revoking
            assert _ways(consumer) == {held[0].partition: (1, 0, 1)}
            assert hooks.over == [held[0].partition]

    bench(test)


def test_partition_that_was_read_to_its_end_has_ended_and_is_not_lost() -> None:
    """The adapter gives it back in the same way."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        async with b.consumer() as consumer:
            await anext(consumer)
            owner = consumer._engine._assignments
            ended, lost = owner.holdings
            owner.holdings[ended].has_ended = True
            owner.lost([ended, lost])
            assert _ways(consumer) == {ended.partition: (1, 1, 0), lost.partition: (1, 0, 1)}
            counts = consumer.snapshot().event_counts
            assert (counts["ended"], counts["lost"]) == (1, 1)

    bench(test, partitions=2)


def test_partition_whose_checkpoint_says_that_it_ended_has_ended_when_it_is_granted() -> None:
    """Nothing is left to read of it."""

    async def test(b: Bench) -> None:
        store, partition = MemoryStore(), Partition("s", "0")
        text, _ = encode_checkpoint(
            Checkpoint(4, 5, ended=True), broker="memory", partition=partition, encode_position=str
        )
        await _plant(store, text)
        async with b.consumer(store=store) as consumer:
            await asyncio.sleep(1)
            (holding,) = consumer._engine._assignments.holdings.values()
            assert holding.has_ended

    bench(test)


def test_records_that_wait_for_lost_partitions_take_no_memory() -> None:
    """Each time that some are lost."""

    async def test(b: Bench) -> None:
        b.append(*[f"k{n}={n}" for n in range(100)])
        async with b.consumer() as consumer:
            first = await anext(consumer)
            await asyncio.sleep(1)
            owner = consumer._engine._assignments
            queue: Any = owner._context.queue
            for assignment in [a for a in owner.holdings if a != first.assignment]:
                before = queue.count
                owner.lost([assignment])
                await asyncio.sleep(0.01)
                assert queue.count < before
            assert queue.count == 0

    bench(test, partitions=3)


class Slow:
    """Each save takes a minute."""

    async def around(self, seam: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Around each call to the store."""
        if seam == "save":
            await asyncio.sleep(60)
        return await call()


def test_close_while_a_start_is_stored_tells_of_no_partition() -> None:
    """It was never said that the partition had come, so nobody is told that it is over."""

    async def test(b: Bench) -> None:
        hooks, store = _Told(), MemoryStore(faults=Slow())
        async with b.consumer(hooks=hooks, store=store, start="latest") as consumer:
            await asyncio.sleep(1)
            (assignment,) = consumer._engine._assignments.holdings
            assert hooks.come == []
        assert hooks.over == []
        assert _ways(consumer) == {assignment.partition: (0, 0, 0)}

    bench(test)
