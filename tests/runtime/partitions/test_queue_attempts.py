"""The failed deliveries of a queue's records, in a store that its consumers share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk import Consumer, RetryPolicy
from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, Partition
from consumer_sdk.runtime.partitions.queue_attempts import QueueAttempts, merge
from consumer_sdk.stores import LocalStore, MemoryStore, ZooKeeperStore
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.runtime.bench import Bench, Letters, bench
from tests.runtime.consumer_options import options_of

T = TypeVar("T")

FIVE = RetryPolicy(max_attempts=5, initial=1.0, jitter=0.0)
PARTITION = Partition("s", "0")


def member(b: Bench, store: CheckpointStore) -> Consumer:
    """A consumer of the queue."""
    adapter = MemoryAdapter(b.broker, "s", group="g", subscription="shared")
    clock = b.simulation.clock
    return Consumer(adapter, store=store, retry=FIVE, dead_letters=b.letters, clock=clock)


async def fails(consumer: Consumer, delay: float = 0.5) -> int:
    """The next delivery fails, and that is saved; its attempt."""
    message = await anext(consumer)
    attempt = message.attempt
    message.nack(delay=delay)
    await consumer.flush()
    return attempt


async def go_on_over_restarts(open_store: Callable[[], CheckpointStore]) -> None:
    """Each life of the consumer fails once with the record."""
    broker, letters = MemoryBroker(), Letters()
    broker.create_stream("s", 1)
    broker.append("s", b"poison")
    policy = RetryPolicy(max_attempts=3, initial=0.01, jitter=0.0)
    for life in (1, 2, 3):
        adapter = MemoryAdapter(broker, "s", group="g", subscription="shared")
        async with Consumer(
            adapter, store=open_store(), retry=policy, dead_letters=letters
        ) as each:
            assert await fails(each, delay=0.0) == life
    assert [letter.attempts for letter in letters.kept] == [3]
    assert broker.backlog("g", "s") == 0


async def test_attempts_go_on_over_restarts_in_memory() -> None:
    """Up to the limit, and then the record is a dead letter."""
    store = MemoryStore()
    await go_on_over_restarts(store.handle)


async def test_attempts_go_on_over_restarts_in_a_file(tmp_path: Path) -> None:
    """The same."""
    await go_on_over_restarts(lambda: LocalStore(tmp_path / "c.db"))


@pytest.mark.zookeeper
async def test_attempts_go_on_over_restarts_in_zookeeper(
    zookeeper_server: ZooKeeperEndpoint, tmp_path: Path
) -> None:
    """The same."""
    root = f"/attempts-{tmp_path.name}-{id(tmp_path)}"
    await go_on_over_restarts(lambda: ZooKeeperStore(zookeeper_server.hosts, root=root))


def test_failures_at_two_members_add_up() -> None:
    """A record fails twice at one, which goes, and once at another that was there all along."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        first = member(b, store.handle())
        async with first, member(b, store.handle()) as second:
            b.append("poison")
            pulls = [asyncio.create_task(fails(each)) for each in (first, second)]
            done, waiting = await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result() for task in done] == [1]
            mine, other = (first, second) if pulls[0] in done else (second, first)
            assert await fails(mine) == 2
            await mine.aclose()
            # It could not know when it was handed the record; saving its failure, it learns.
            assert await waiting.pop() == 1
            assert await fails(other) == 4
            assert await fails(other) == 5
        assert [letter.attempts for letter in b.letters.kept] == [5]

    bench(test)


def test_attempts_of_a_record_that_was_settled_leave_the_store() -> None:
    """So it grows with what fails, not with what failed."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        async with member(b, store) as consumer:
            b.append("a", "b")
            await fails(consumer)
            await fails(consumer)
            assert await _stored(store) == 2
            for _ in range(2):
                (await anext(consumer)).ack()
            await consumer.flush()
            assert await _stored(store) == 0
            assert b.broker.backlog("g", "s") == 0

    bench(test)


async def _stored(store: CheckpointStore) -> int:
    """How many records it has attempts of."""
    text = (await store.peek("g", [PARTITION]))[PARTITION] or ""
    return text.count("[1,")


class Seam:
    """Does something before, or instead of, a call of the store.

    Attributes:
        calls: the names of those that were made.
    """

    def __init__(self, act: Callable[[str], Awaitable[None]]) -> None:
        self.calls: list[str] = []
        self._act = act

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Around one call."""
        self.calls.append(seam)
        await self._act(seam)
        return await call()


def test_queue_without_failures_asks_the_store_for_nothing() -> None:
    """Its acks are the broker's."""

    async def test(b: Bench) -> None:
        seam = Seam(lambda _: asyncio.sleep(0))
        async with member(b, MemoryStore(faults=seam)) as consumer:
            b.append("a", "b")
            for _ in range(2):
                (await anext(consumer)).ack()
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 0
        assert seam.calls == ["peek"]

    bench(test)


def test_save_that_another_member_came_in_between_is_made_again() -> None:
    """Whoever claims last may write: what is refused is merged anew."""

    async def test(b: Bench) -> None:
        others = [Assignment(PARTITION, 1) for _ in range(3)]
        store = MemoryStore()

        async def claim(seam: str) -> None:
            if seam == "save" and others:
                await store.claim("g", [others.pop()])

        seam = Seam(claim)
        async with member(b, store.handle(faults=seam)) as consumer:
            b.append("a")
            await fails(consumer)
            assert await _stored(store) == 1
        assert not others

    bench(test)


def test_save_that_others_come_in_between_all_the_time_is_made_later() -> None:
    """It is left after eight rounds, and tried again when they are done; no count is lost."""

    async def test(b: Bench) -> None:
        store, others = MemoryStore(), iter(range(2, 20))

        async def claim(name: str) -> None:
            if name == "save" and (epoch := next(others, None)) is not None:
                await store.claim("g", [Assignment(PARTITION, 1000 + epoch)])

        seam = Seam(claim)
        async with member(b, store.handle(faults=seam)) as consumer:
            b.append("1")
            (await anext(consumer)).nack(delay=600.0)
            await asyncio.sleep(60)
            assert await _stored(store) == 1
            assert seam.calls.count("save") == 19

    bench(test)


def test_partition_that_is_lost_is_claimed_no_more() -> None:
    """Another member has claimed its attempts meanwhile; nothing is kept of it."""

    async def test(b: Bench) -> None:
        store, held = MemoryStore(), Assignment(PARTITION, 2)

        async def lose(name: str) -> None:
            if name == "save":
                await store.claim("g", [Assignment(PARTITION, 9)])
                attempts.forget(held)

        seam = Seam(lose)
        attempts = _attempts(b, store.handle(faults=seam))
        await attempts.load([held])
        counted = {(1, 0): (1, b.simulation.clock.wall())}
        flush = AckFlush(held, 1, Checkpoint(attempts=counted))
        await attempts.save([flush], force=False)
        assert seam.calls == ["peek", "claim", "save"]
        assert (attempts.next_due, attempts._next) == (None, {})

    bench(test)


def test_partition_that_is_lost_waits_for_no_save() -> None:
    """It had one a moment ago, and something to save at the next."""

    async def test(b: Bench) -> None:
        held, wall = Assignment(PARTITION, 2), b.simulation.clock.wall()
        attempts = _attempts(b, MemoryStore().handle())
        await attempts.load([held])
        for count in (1, 2):
            checkpoint = Checkpoint(attempts={(1, 0): (count, wall)})
            await attempts.save([AckFlush(held, count, checkpoint)], force=False)
        waits_until = attempts.next_due
        assert waits_until is not None
        attempts.forget(held)
        assert (attempts.next_due, attempts._next) == (None, {})

    bench(test)


def test_store_that_is_away_delays_no_ack_and_loses_no_count() -> None:
    """What is tried again adds nothing twice."""

    async def test(b: Bench) -> None:
        store, is_away = MemoryStore(), True

        async def fail(seam: str) -> None:
            if seam == "claim" and is_away:
                raise TransientStoreError("away")

        async with member(b, store.handle(faults=Seam(fail))) as consumer:
            b.append(*"abc")
            assert await fails(consumer, delay=600.0) == 1
            for _ in range(2):
                (await anext(consumer)).ack()
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 1
            assert await _stored(store) == 0
            is_away = False
            await asyncio.sleep(10.0)
            assert await _stored(store) == 1

    bench(test)


def test_closing_tries_until_the_store_is_back() -> None:
    """What failed last is saved, though the interval between saves is not over."""

    async def test(b: Bench) -> None:
        store, left = MemoryStore(), 3

        async def fail(seam: str) -> None:
            nonlocal left
            if seam == "claim" and left:
                left -= 1
                raise TransientStoreError("away")

        async with member(b, store.handle(faults=Seam(fail))) as consumer:
            b.append("a")
            (await anext(consumer)).nack(delay=600.0)
        assert (left, await _stored(store)) == (0, 1)

    bench(test)


def test_text_that_cannot_be_read_stops_no_other_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither its saves nor anybody's acks."""

    async def test(b: Bench) -> None:
        store, other = MemoryStore(), Partition("s", "1")
        attempts = _attempts(b, store.handle())
        held = [Assignment(PARTITION, 2), Assignment(other, 2)]
        await attempts.load(held)
        stranger = Assignment(PARTITION, 9)
        await store.claim("g", [stranger])
        await store.save("g", [StoreItem(stranger, '{"version": 9}')])
        counted = Checkpoint(attempts={(1, 0): (1, b.simulation.clock.wall())})
        await attempts.save([AckFlush(each, 1, counted) for each in held], force=False)
        texts = await store.peek("g", [PARTITION, other])
        assert texts[PARTITION] == '{"version": 9}'
        assert "[1," in (texts[other] or "")

    bench(test)
    (line,) = caplog.records
    assert line.getMessage().startswith("attempts of s/0: CheckpointFormatError(")


def test_attempts_are_saved_about_once_a_second() -> None:
    """However often something fails; the last ones are saved all the same."""

    async def test(b: Bench) -> None:
        store, seam = MemoryStore(), Seam(lambda _: asyncio.sleep(0))
        async with member(b, store.handle(faults=seam)) as consumer:
            b.append(*map(str, range(100)))
            for _ in range(100):
                (await anext(consumer)).nack(delay=600.0)
                await asyncio.sleep(0.1)
            assert 5 <= seam.calls.count("save") <= 11
            await asyncio.sleep(2.0)
            assert await _stored(store) == 100

    bench(test)


def test_flush_that_a_caller_waits_for_has_the_last_attempts() -> None:
    """It was saved a moment ago, and is saved again."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        async with member(b, store.handle()) as consumer:
            b.append("1", "2")
            assert await fails(consumer, 600.0) == 1
            (await anext(consumer)).nack(delay=600.0)
            await asyncio.sleep(0.3)
            assert await _stored(store) == 1
            await consumer.flush()
            assert await _stored(store) == 2

    bench(test)


def test_partition_that_is_lost_while_its_attempts_are_claimed_is_not_saved() -> None:
    """Other members have it, with the records that failed."""

    async def test(b: Bench) -> None:
        seam = Seam(lambda name: asyncio.sleep(5 if name == "claim" else 0))
        async with member(b, MemoryStore().handle(faults=seam)) as consumer:
            b.append("1")
            (await anext(consumer)).nack(delay=600.0)
            await asyncio.sleep(1)
            assert seam.calls[-1] == "claim"
            owner = consumer._engine._assignments
            owner.lost(list(owner.holdings))
            await asyncio.sleep(60)
            assert "save" not in seam.calls

    bench(test)


def test_many_members_do_not_hold_each_other_up() -> None:
    """Twenty that save at the same moment, each call of the store taking milliseconds."""

    async def test(b: Bench) -> None:
        store, chance = MemoryStore(), random.Random(1)

        async def wait(_: str) -> None:
            await asyncio.sleep(chance.uniform(0.001, 0.01))

        async def fail(number: int) -> None:
            seam = store.handle(faults=Seam(wait))
            attempts = _attempts(b, seam, chance.random)
            held = Assignment(PARTITION, 2)
            await attempts.load([held])
            counted = {(number, 0): (1, b.simulation.clock.wall())}
            await attempts.save([AckFlush(held, 1, Checkpoint(attempts=counted))], force=False)

        await asyncio.gather(*(fail(number) for number in range(20)))
        assert await _stored(store) == 20

    bench(test)


def test_loss_while_a_save_is_under_way_adds_nothing_twice() -> None:
    """What it was restored from is no news because nobody holds it any more."""

    async def test(b: Bench) -> None:
        store, clock = MemoryStore(), b.simulation.clock.wall
        first, second = Assignment(PARTITION, 1), Assignment(PARTITION, 2)
        await _save(b, store, first, {(1, 0): (2, clock())})
        lost: list[Assignment] = []

        async def lose(seam: str) -> None:
            if seam == "claim":
                lost.append(second)
                attempts.forget(second)

        attempts = _attempts(b, store.handle(faults=Seam(lose)))
        restored = (await attempts.load([second]))[second].attempts
        counted = {**restored, (2, 0): (1, clock())}
        await attempts.save([AckFlush(second, 1, Checkpoint(attempts=counted))], force=False)
        assert lost == [second]  # nor is it claimed again
        left = (await _attempts(b, store).load([first]))[first].attempts
        assert {position: failures for position, (failures, _) in left.items()} == {(1, 0): 2}

    bench(test)


def _attempts(
    b: Bench, store: CheckpointStore, chance: Callable[[], float] = lambda: 0.5
) -> QueueAttempts:
    """Those of a consumer that holds nothing."""
    adapter = MemoryAdapter(b.broker, "s", group="g", subscription="shared")
    return QueueAttempts(adapter, store, options_of(clock=b.simulation.clock), {}, chance)


async def _save(
    b: Bench, store: CheckpointStore, assignment: Assignment, counted: dict[Any, tuple[int, float]]
) -> None:
    """As a consumer does that has counted these."""
    attempts = _attempts(b, store)
    await attempts.load([assignment])
    await attempts.save([AckFlush(assignment, 1, Checkpoint(attempts=counted))], force=False)


MEMBERS = 3
STEPS = st.lists(st.tuples(st.sampled_from(["fail", "save"]), st.integers(0, MEMBERS - 1)))


@given(STEPS)
def test_merged_counts_are_all_failures_that_were_saved(steps: list[tuple[str, int]]) -> None:
    """In whatever order members fail and save; one that had not learnt of others adds its own."""
    stored: dict[Any, tuple[int, float]] = {}
    mine: list[dict[Any, tuple[int, float]]] = [{} for _ in range(MEMBERS)]
    agreed: list[dict[Any, int]] = [{} for _ in range(MEMBERS)]
    saved = [0] * MEMBERS
    failed = [0] * MEMBERS
    for step, who in steps:
        if step == "fail":
            failed[who] += 1
            mine[who]["x"] = (failed[who], 0.0)
        else:
            stored = dict(merge(stored, agreed[who], mine[who]))
            agreed[who] = {position: count for position, (count, _) in mine[who].items()}
            saved[who] = failed[who]
        assert stored.get("x", (0, 0.0))[0] == sum(saved)


def test_merging_takes_out_what_was_settled_here_alone() -> None:
    """What another has settled does not come back; what it still has stays."""
    theirs = {"here": (2, 1.0), "there": (1, 1.0)}
    agreed = {"here": 2, "gone": 3}
    assert merge(theirs, agreed, {"gone": (3, 1.0)}) == {"there": (1, 1.0)}


def test_merging_leaves_out_what_is_too_old() -> None:
    """Of a record that another has settled without knowing of it, nobody would take it out."""
    theirs = {"old": (2, 9.0), "new": (1, 10.0)}
    assert merge(theirs, {}, {}, oldest=10.0) == {"new": (1, 10.0)}


def test_attempts_of_a_day_ago_leave_the_store() -> None:
    """With the next save, whoever makes it."""

    async def test(b: Bench) -> None:
        store, now = MemoryStore(), b.simulation.clock.wall()
        held = Assignment(PARTITION, 1)
        await _save(b, store, held, {(1, 0): (1, now - 86_000.0)})
        assert await _stored(store) == 1
        await asyncio.sleep(1_000.0)
        await _save(b, store, held, {(2, 0): (1, now)})
        left = (await _attempts(b, store).load([held]))[held].attempts
        assert list(left) == [(2, 0)]

    bench(test)


def test_what_did_not_fit_into_the_store_is_not_taken_for_saved() -> None:
    """It is added as soon as there is room again, with all that was counted."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        store.max_size = 1_000
        async with member(b, store) as consumer:
            b.append(*map(str, range(100)))
            messages = [await anext(consumer) for _ in range(100)]
            for message in messages:
                message.nack(delay=600.0)
            await consumer.flush()
            assert 0 < await _stored(store) < 50
            assert consumer.stats().truncated == 1
            store.max_size = 1_000_000
            b.append("more")
            (await anext(consumer)).nack(delay=600.0)
            await consumer.flush()
            assert await _stored(store) == 101

    bench(test)


def test_delay_that_was_asked_for_is_kept_by_the_queue() -> None:
    """Also when another member has saved in between, and the first one's has ended."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        b.append("later", "other")
        async with member(b, store.handle()) as first:
            assert await fails(first, delay=3600) == 1
            assert await fails(first, delay=1.0) == 1
        async with member(b, store.handle()) as second:
            assert await fails(second, delay=1.0) == 2
        begun = b.simulation.clock.monotonic()
        async with member(b, store.handle()) as third:
            other, later = [await anext(third) for _ in range(2)]
            assert [(other.value, other.attempt), (later.value, later.attempt)] == [
                (b"other", 3),
                (b"later", 2),
            ]
        assert b.simulation.clock.monotonic() - begun > 3500

    bench(test)
