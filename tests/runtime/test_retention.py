"""Retention overtakes the fetch: what is in memory is finished before the new epoch begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk import Consumer, Message, Ordering, Partition, Retry
from consumer_sdk.records import AtPosition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter
from tests.runtime.bench import QUICK, Bench, bench

KEPT = range(35, 40)
"""What the broker has left of forty records when a consumer has fetched the first ones."""


async def _run(
    b: Bench,
    handler: Callable[[Message], Awaitable[None]] | None = None,
    *,
    ordering: Ordering = Ordering.KEY,
    **options: Any,
) -> tuple[Consumer, range]:
    """Runs until all is over; returns the positions that were in hand when retention came."""
    b.append(*[f"k{n % 7}={n}" for n in range(40)])
    consumer = b.consumer(max_in_flight=20, fetch_records=10, **options)

    async def overtake() -> int:
        await asyncio.sleep(0.5)
        b.broker.truncate("s", 0, KEPT[0])
        return consumer.stats().fetched

    overtaking = asyncio.create_task(overtake())

    async def slow(message: Message) -> None:
        await asyncio.sleep(1)
        b.seen.append(message)

    await b.run(consumer, handler or slow, concurrency=3, ordering=ordering, seconds=300)
    in_hand = range(await overtaking)
    assert 0 < len(in_hand) < KEPT[0]
    return consumer, in_hand


def _positions(b: Bench) -> list[int]:
    return sorted(message.position for message in b.seen)


@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.PARTITION])
@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize("policy,rest", [("earliest", KEPT), ("latest", ())])
def test_records_in_hand_are_finished_before_the_consumer_goes_on(
    policy: str, rest: range, ordering: Ordering, *, has_store: bool
) -> None:
    """Each is handed out once, and only what was never read is lost."""

    async def test(b: Bench) -> None:
        store = MemoryStore() if has_store else None
        consumer, in_hand = await _run(b, ordering=ordering, store=store, out_of_range=policy)
        assert _positions(b) == [*in_hand, *rest]
        assert {message.attempt for message in b.seen} == {1}
        assert consumer.stats().lost == 40 - len(in_hand) - len(rest)
        assert b.committed() == {"0": 40}

    bench(test)


def test_retries_and_dead_letters_in_hand_are_finished_too() -> None:
    """A record that waits for its retry is delivered again, and one at its limit is kept."""

    async def test(b: Bench) -> None:
        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.position == 1:
                raise ValueError
            if message.position == 2 and message.attempt == 1:
                raise Retry(delay=60)

        consumer, in_hand = await _run(b, _slowly(handle), out_of_range="earliest")
        assert {*_positions(b)} == {*in_hand, *KEPT}
        assert [m.attempt for m in b.seen if m.position == 2] == [1, 2]
        assert [letter.position for letter in b.letters.kept] == ["1"]
        assert consumer.stats().lost == KEPT[0] - len(in_hand)
        assert b.committed() == {"0": 40}

    bench(test)


def _slowly(handler: Callable[[Message], Awaitable[None]]) -> Callable[[Message], Awaitable[None]]:
    async def handle(message: Message) -> None:
        await asyncio.sleep(1)
        await handler(message)

    return handle


def test_consumer_that_pulls_gets_what_was_in_hand_before_the_rest() -> None:
    """What it has not acked yet stands between the two epochs, and is said to."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        consumer = b.consumer(out_of_range="earliest", max_in_flight=4, fetch_records=4)
        async with consumer:
            first = await anext(consumer)
            b.broker.truncate("s", 0, 8)
            old = [first, *[await anext(consumer) for _ in range(3)]]
            assert all(message.ack() for message in old[1:])
            pulling = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(60)
            assert not pulling.done()
            assert "the broker no longer stores" in str(consumer.explain()[Partition("s", "0")])
            assert first.ack()
            new = [await pulling, await anext(consumer)]
            assert [m.position for m in new] == [8, 9]
            assert {m.assignment.epoch for m in new}.isdisjoint(m.assignment.epoch for m in old)
            assert consumer.stats().lost == 4

    bench(test)


def test_what_is_settled_and_not_durable_yet_is_not_counted_as_lost() -> None:
    """The new epoch waits for the flush, however often that fails."""

    async def test(b: Bench) -> None:
        faults = Faults()
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        b.append(*map(str, range(10)))
        consumer = Consumer(
            adapter,
            retry=QUICK,
            out_of_range="earliest",
            max_in_flight=4,
            fetch_records=4,
            clock=b.simulation.clock,
        )
        async with consumer:
            old = [await anext(consumer) for _ in range(4)]
            faults.fail_next("commit", times=5)
            b.broker.truncate("s", 0, 8)
            assert all(message.ack() for message in old)
            assert (await anext(consumer)).position == 8
            assert consumer.stats().lost == 4

    bench(test)


def test_only_record_in_hand_never_ends_hole_age_gives_it_up() -> None:
    """With nothing settled behind it, it is no hole; but the partition waits for it."""

    async def test(b: Bench) -> None:
        b.append("0")
        consumer = b.consumer(out_of_range="earliest", max_hole_age=1, hole_policy="dead_letter")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.position == 0:
                b.append(*map(str, range(1, 10)))
                b.broker.truncate("s", 0, 8)
                await asyncio.get_running_loop().create_future()

        await b.run(consumer, handle, seconds=60)
        assert _positions(b) == [0, 8, 9]
        assert [letter.value for letter in b.letters.kept] == [b"0"]
        assert b.committed() == {"0": 10}

    bench(test)


def test_fenced_partition_is_given_up_at_once() -> None:
    """Another owner has it: what is in hand is no business of this consumer any more."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        store = MemoryStore()
        consumer = b.consumer(
            store=store, out_of_range="earliest", max_in_flight=4, fetch_records=4
        )
        async with consumer:
            old = [await anext(consumer) for _ in range(4)]
            b.broker.truncate("s", 0, 8)
            await asyncio.sleep(5)
            thief = store.handle()
            await thief.open()
            assignments = [old[0].assignment]
            await thief.claim("g", assignments)
            assert old[0].ack()
            assert (await anext(consumer)).position == 8
            assert not any(each.ack() for each in old[1:])

    bench(test)


@pytest.mark.parametrize(
    "start,policy,rest,lost", [("latest", "earliest", 8, 4), ("earliest", "latest", 10, 6)]
)
def test_consumer_that_keeps_no_position_goes_on_as_asked_too(
    start: str, policy: Any, rest: int, lost: int
) -> None:
    """It knows where it was: ``start`` is where its process began, and says nothing about retention."""

    async def test(b: Bench) -> None:
        consumer = b.consumer(
            group=None, start=start, out_of_range=policy, max_in_flight=4, fetch_records=4
        )
        async with consumer:
            await asyncio.sleep(1)
            b.append(*map(str, range(10)))
            old = [await anext(consumer) for _ in range(4)]
            b.broker.truncate("s", 0, 8)
            await asyncio.sleep(10)
            assert all(message.ack() for message in old)
            await asyncio.sleep(10)
            b.append("new")
            assert (await anext(consumer)).position == rest
            assert consumer.stats().lost == lost

    bench(test)


def test_partition_that_was_overtaken_once_begins_at_start_when_it_comes_again() -> None:
    """Nobody has kept where it was since: what was known then is not taken for it."""

    async def test(b: Bench) -> None:
        options: dict[str, Any] = {"max_in_flight": 4, "fetch_records": 4}
        async with b.consumer(
            group=None, start="latest", out_of_range="earliest", **options
        ) as consumer:
            await asyncio.sleep(1)
            b.append(*map(str, range(10)))
            old = [await anext(consumer) for _ in range(4)]
            b.broker.truncate("s", 0, 8)
            assert all(message.ack() for message in old)
            assert (await anext(consumer)).position == 8
            owner = consumer._engine._assignments
            (held,) = owner.holdings
            owner.lost([held])
            again = replace(held, epoch=held.epoch + 1)
            assert await owner.assigned([again]) == {again: AtPosition(10)}

    bench(test)
