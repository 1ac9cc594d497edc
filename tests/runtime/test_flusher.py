"""What becomes of a flush that is cut short, cut to fit, or late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from consumer_sdk import Consumer, Hooks
from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import AdapterError, PartitionLostError, StoreError, TransientAdapterError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Committed,
    Outcome,
    OutcomeKind,
    Partition,
    StartPoint,
)
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter
from consumer_sdk.trackers import decode_checkpoint
from tests.runtime.bench import Bench, Letters, bench

T = TypeVar("T")
PLACE = Partition("s", "0")


class Hanging:
    """A store's seam where the first save that is asked for hangs until it is cancelled."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_wanted = False

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Hangs once, or calls."""
        if seam == "save" and self.is_wanted:
            self.is_wanted = False
            self.has_begun.set()
            await asyncio.get_running_loop().create_future()
        return await call()


class Asking(MemoryAdapter):
    """Notes which starts it is asked about, when the store has claimed them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[Assignment] = []

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        self.asked += assignments
        return await super().committed(assignments)


async def stored(store: MemoryStore) -> Checkpoint:
    """What a restart would find."""
    text = (await store.peek("g", [PLACE]))[PLACE]
    assert text is not None
    return decode_checkpoint(
        text, broker="memory", partition=PLACE, identity=None, decode_position=int
    )


def test_flush_that_a_failure_cancels_is_written_by_the_last_flush() -> None:
    """Another part of the consumer fails while a save is in the air: what it held is put back."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        seam = Hanging()
        store, letters = MemoryStore(faults=seam), Letters(1, raises=StoreError("broken for good"))
        consumer = b.consumer(store=store, dead_letters=letters)
        with pytest.raises(StoreError, match="for good"):
            async with consumer:
                first, second = await anext(consumer), await anext(consumer)
                seam.is_wanted = True
                first.ack()
                await seam.has_begun.wait()
                second.reject("poison")
                await consumer.flush()
        assert (await stored(store)).resume == 1

    bench(test)


def test_claim_of_a_closed_consumer_writes_no_more() -> None:
    """What is over is forgotten by the store: a save that comes late is refused."""

    async def test(b: Bench) -> None:
        b.append("1")
        store = MemoryStore()
        async with b.consumer(store=store) as consumer:
            message = await anext(consumer)
            message.ack()
            await consumer.flush()
        late = await store.save("g", [StoreItem(message.assignment, "late")])
        assert [outcome.kind for outcome in late] == [OutcomeKind.FENCED]
        assert (await stored(store)).resume == 1

    bench(test)


@pytest.mark.parametrize("subscription", ["group", "shared"])
def test_claim_of_an_epoch_that_was_lost_writes_no_more(subscription: Any) -> None:
    """The partition has come back, in a new epoch: a save of the old one that comes late is refused."""

    async def test(b: Bench) -> None:
        b.append("1")
        store = MemoryStore()
        adapter = MemoryAdapter(b.broker, "s", group="g", subscription=subscription)
        async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
            old, again = await anext(consumer), None
            adapter.expire()
            while again is None or again.assignment == old.assignment:
                again = await anext(consumer)
            late = await store.save("g", [StoreItem(old.assignment, "late")])
            assert [outcome.kind for outcome in late] == [OutcomeKind.FENCED]

    bench(test)


def test_claim_of_a_start_that_failed_writes_no_more() -> None:
    """The store has claimed, then the broker did not answer: the claim is forgotten too."""

    async def test(b: Bench) -> None:
        b.append("1")
        faults, store = Faults(), MemoryStore()
        faults.fail_next("committed", times=1000)
        adapter = Asking(b.broker, "s", group="g", faults=faults)
        async with Consumer(adapter, store=store, clock=b.simulation.clock):
            await asyncio.sleep(10)
        assert adapter.asked
        for assignment in adapter.asked:
            late = await store.save("g", [StoreItem(assignment, "late")])
            assert [outcome.kind for outcome in late] == [OutcomeKind.FENCED]

    bench(test)


def test_receipt_stays_open_until_a_checkpoint_in_the_store_holds_it() -> None:
    """A store takes less than there are settled ranges: what was cut is not said to be durable."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(100)))
        store = MemoryStore()
        store.max_size = 300
        async with b.consumer(store=store) as consumer:
            messages = [await anext(consumer) for _ in range(100)]
            for message in messages[1::2]:
                message.ack()
            receipt = asyncio.create_task(messages[-1].durable())
            await consumer.flush()
            await asyncio.sleep(60)
            assert not (await stored(store)).is_settled(99)
            assert not receipt.done()
            assert consumer.stats().truncated > 0
            for message in messages[::2]:
                message.ack()
            await receipt
            assert (await stored(store)).resume == 100

    bench(test)


def test_consumer_whose_claim_was_replaced_begins_anew_where_the_store_is() -> None:
    """Its ack moves nothing: the record is delivered again, in a new assignment."""

    async def test(b: Bench) -> None:
        b.append("1")
        store = MemoryStore()
        async with b.consumer(store=store) as consumer:
            message = await anext(consumer)
            await store.claim("g", [Assignment(PLACE, 99)])
            message.ack()
            again = await anext(consumer)
            assert again.position == message.position
            assert again.assignment.epoch > message.assignment.epoch
            with pytest.raises(PartitionLostError):
                await message.durable()

    bench(test)


class LateAdapter(MemoryAdapter):
    """Whose broker has given the records to others before they were settled."""

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Done with, and not durable."""
        error = PartitionLostError("they come again")
        return [Outcome(OutcomeKind.DURABLE, error=error) for _ in flushes]


@pytest.mark.parametrize("waits_for_all", [False, True])
def test_whoever_waits_for_what_was_settled_too_late_is_told(*, waits_for_all: bool) -> None:
    """The records are delivered again: nothing of that is durable. Nothing is flushed again."""

    async def test(b: Bench) -> None:
        b.append("a", "b")
        adapter = LateAdapter(b.broker, "s", group="g", subscription="shared")
        async with Consumer(adapter, clock=b.simulation.clock, flush_interval=1) as consumer:
            first, second = await anext(consumer), await anext(consumer)
            first.ack()
            await asyncio.sleep(0.1)  # its flush is over
            second.ack()
            with pytest.raises(PartitionLostError, match="they come again"):
                await (consumer.flush() if waits_for_all else second.durable())
            assert consumer.stats().flushes == 2

    bench(test)


class Told(MemoryAdapter):
    """Notes what the broker is told, and answers RETRY while it is away.

    Attributes:
        told: each assignment of each commit, and whether it repeats what a store has.
        is_away: it does not answer.
        patience: seconds until that is known.
        held: partitions that its consumer has.
        late: what was told of others.
    """

    def __init__(
        self, *args: Any, keeps_positions: bool = True, wants_ends: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.capabilities = replace(
            self.capabilities, commits=keeps_positions, wants_ends=wants_ends
        )
        self.told: list[tuple[Assignment, bool]] = []
        self.is_away, self.patience = False, 0.0
        self.held: Callable[[], Collection[Partition]] = lambda: self.memory.partitions("s")
        self.late: list[Partition] = []

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """As the broker does; or not at all."""
        self.told += [(flush.assignment, flush.is_copy) for flush in flushes]
        places = [flush.assignment.partition for flush in flushes]
        self.late += [place for place in places if place not in self.held()]
        if self.is_away:
            await asyncio.sleep(self.patience)
            return [Outcome.retry(TransientAdapterError("away")) for _ in flushes]
        return await super().commit(flushes)


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, [True]),  # for its lag tools
        ({"subscription": "failover"}, [False]),  # what is settled, and once
        ({"keeps_positions": False}, []),
        ({"keeps_positions": False, "wants_ends": True}, []),  # none has ended
    ],
)
def test_broker_hears_of_what_the_store_has_as_it_can_use_it(
    options: dict[str, Any], told: list[bool]
) -> None:
    """A copy of the position, or the acks themselves; a broker without positions is told nothing."""

    async def test(b: Bench) -> None:
        b.append("1")
        adapter, store = Told(b.broker, "s", group="g", **options), MemoryStore()
        async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
            (await anext(consumer)).ack()
            await consumer.flush()
            await asyncio.sleep(60)
            assert [is_copy for _, is_copy in adapter.told] == told
        assert (await store.peek("g", [PLACE]))[PLACE] is not None

    bench(test)


def test_broker_that_keeps_the_checkpoint_hears_of_it_once() -> None:
    """A copy of the position alone would take the settled ranges away."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        adapter = Told(b.broker, "s", group="g")
        async with Consumer(adapter, clock=b.simulation.clock) as consumer:
            _, *others = [await anext(consumer) for _ in range(3)]
            for message in others:
                message.ack()
            await consumer.flush()
            await asyncio.sleep(60)
            assert [is_copy for _, is_copy in adapter.told] == [False]
        async with b.consumer() as again:
            assert (await anext(again)).value == b"1"
            assert again.stats().suppressed == 2

    bench(test)


def test_broker_that_was_away_hears_of_the_newest_checkpoint_once() -> None:
    """Its lag tools would be wrong for good if the partition had nothing more to flush."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        adapter, store = Told(b.broker, "s", group="g"), MemoryStore()
        async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
            first, second = await anext(consumer), await anext(consumer)
            adapter.is_away = True
            for message in (first, second):
                message.ack()
                await consumer.flush()
                await asyncio.sleep(1)
            assert b.committed() == {}
            adapter.is_away = False
            await asyncio.sleep(10)
            assert b.committed() == {"0": 2}
            before = len(adapter.told)
            await asyncio.sleep(60)
            assert len(adapter.told) == before

    bench(test)


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_ack_that_the_broker_did_not_take_is_sent_again(kind: str) -> None:
    """The store has it, or only the broker would: in both cases it would redeliver the record for ever."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        adapter, store = Told(b.broker, "s", group="g", subscription=kind), MemoryStore()
        async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
            adapter.is_away = True
            (await anext(consumer)).ack()
            await asyncio.sleep(10)
            assert b.broker.backlog("g", "s") == 2
            adapter.is_away = False
            await asyncio.sleep(10)
            assert b.broker.backlog("g", "s") == 1

    bench(test)


def test_broker_that_redelivers_hears_only_of_what_the_store_took() -> None:
    """It forgets what is acked: a crash before the save would lose the attempts and the order of the acks."""

    async def test(b: Bench) -> None:
        b.append("1")
        faults = Faults()
        adapter = Told(b.broker, "s", group="g", subscription="failover")
        store, clock = MemoryStore(faults=faults), b.simulation.clock
        async with Consumer(adapter, store=store, clock=clock) as consumer:
            message = await anext(consumer)
            faults.fail_next("save", times=3)
            message.ack()
            await asyncio.sleep(0.2)
            assert adapter.told == []
            await consumer.flush()
            assert len(adapter.told) == 1

    bench(test)


def test_broker_that_cannot_be_told_ends_the_consumer_with_its_own_error() -> None:
    """Where no retry helps; what the store has stays."""

    class Broken(MemoryAdapter):
        async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
            raise AdapterError("forbidden")

    async def test(b: Bench) -> None:
        b.append("1", "2")
        adapter, store = Broken(b.broker, "s", group="g"), MemoryStore()
        with pytest.raises(AdapterError, match="forbidden"):
            async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
                (await anext(consumer)).ack()
                await consumer.flush()
                await asyncio.sleep(10)
        assert (await stored(store)).resume == 1

    bench(test)


@pytest.mark.parametrize("patience", [0.0, 5.0])
def test_broker_hears_no_more_of_a_partition_that_another_consumer_has(patience: float) -> None:
    """A commit waits for the broker, or is on its way; the partition moves; what is told later leaves it out."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3", "4")
        adapter, store = Told(b.broker, "s", group="g"), MemoryStore()
        consumer = Consumer(adapter, store=store, clock=b.simulation.clock)
        async with consumer:
            messages = [await anext(consumer) for _ in range(4)]
            adapter.is_away, adapter.patience = True, patience
            adapter.held = lambda: consumer.stats().partitions
            for message in {m.partition: m for m in reversed(messages)}.values():
                message.ack()
            await consumer.flush()
            await asyncio.sleep(1)
            assert {each for each, _ in adapter.told} == {m.assignment for m in messages}
            async with b.consumer(store=store):
                await asyncio.sleep(10)
                assert len(consumer.stats().partitions) == 1
                adapter.is_away = False
                await asyncio.sleep(10)
        assert adapter.late == []

    bench(test, partitions=2)


@pytest.mark.parametrize("keeps_positions", [False, True])
def test_start_that_moves_is_stored_before_a_record_is_read(*, keeps_positions: bool) -> None:
    """A process that ends without an ack begins where it began, and not at the end of that day."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        adapter = Told(b.broker, "s", group="g", keeps_positions=keeps_positions)
        faults, clock = Faults(), b.simulation.clock
        faults.fail_next("save", times=3)
        store = MemoryStore(faults=faults)
        async with Consumer(adapter, store=store, clock=clock, start=StartPoint.LATEST) as consumer:
            await asyncio.sleep(0.1)  # the end was looked up
            b.append("3")
            assert (await anext(consumer)).value == b"3"
            assert (await stored(store)).start == 2

    bench(test)


class Assigned(Hooks):
    """Notes what the broker keeps when partitions are said to have come."""

    def __init__(self, b: Bench) -> None:
        self._b = b
        self.committed: list[Mapping[str, int]] = []

    def partitions_assigned(self, partitions: Sequence[Partition]) -> None:
        """Once for each round."""
        self.committed.append(self._b.committed())


def test_start_that_moves_is_committed_before_a_record_is_read() -> None:
    """The same where the broker keeps the position."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        hooks = Assigned(b)
        async with b.consumer(start="latest", hooks=hooks):
            await asyncio.sleep(5)
        assert hooks.committed == [{"0": 2}]

    bench(test)


def test_partition_whose_start_cannot_be_stored_is_not_held() -> None:
    """Until it can: nothing of it is read, flushed or counted."""

    async def test(b: Bench) -> None:
        b.append("1")
        faults, clock = Faults(), b.simulation.clock
        store = MemoryStore(faults=faults)
        faults.fail_next("save", times=10)
        async with b.consumer(store=store, clock=clock, start=StartPoint.LATEST) as consumer:
            await asyncio.sleep(2)
            assert consumer.stats().partitions == ()
            await asyncio.sleep(3600)
            assert consumer.stats().partitions == (PLACE,)

    bench(test)


def test_ack_of_a_consumer_that_keeps_no_position_is_done_at_once() -> None:
    """It has neither a group nor a store: nothing lasts longer than the process."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(group=None) as consumer:
            message = await anext(consumer)
            message.ack()
            await message.durable()
            assert (await anext(consumer)).value == b"2"

    bench(test)


@pytest.mark.parametrize("interval, rounds", [(0.1, 2), (0.0, 8)])
def test_partitions_acked_a_moment_apart_share_a_flush(interval: float, rounds: int) -> None:
    """The first one's is at once, the others' ten milliseconds later, unless the interval is shorter."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(8)))
        async with b.consumer(flush_interval=interval) as consumer:
            batch = await anext(consumer.batches(max_messages=8, max_wait=1))
            began = asyncio.get_running_loop().time()
            for message in batch:
                message.ack()
                await asyncio.sleep(0.001)
            await batch[0].durable()
            assert asyncio.get_running_loop().time() - began < 0.009
            await batch[7].durable()
            assert asyncio.get_running_loop().time() - began < 0.02
            assert consumer.stats().flushes == rounds

    bench(test, partitions=8)


def test_partitions_first_acked_at_different_times_share_a_flush_from_then_on() -> None:
    """Each interval has one flush of both, and not one of each."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(200)))
        async with b.consumer() as consumer:
            async for batch in consumer.batches(max_messages=200, max_wait=1):
                of = {
                    p: [m for m in batch if m.partition == p] for p in consumer.stats().partitions
                }
                break
            for place in sorted(of):
                of[place].pop().ack()
                await asyncio.sleep(0.04)
            before = consumer.stats().flushes
            for pair in zip(*of.values(), strict=True):
                for message in pair:
                    message.ack()
                await asyncio.sleep(0.01)
            assert consumer.stats().flushes - before <= 11

    bench(test, partitions=2)
