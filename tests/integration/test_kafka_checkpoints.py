"""What a group's commits on a real Kafka bring back without a store, and say beside one."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.stores import LocalStore
from tests.integration.field import PATIENCE, Field, Place, place, until

pytestmark = pytest.mark.kafka

SLOW_RETRIES = RetryPolicy(max_attempts=1000, initial=0.1, multiplier=1.0, jitter=0.0)


def _places(path: Path) -> list[Place]:
    if not path.exists():
        return []
    lines = map(str.split, path.read_text().splitlines())
    return [(int(partition), int(position)) for partition, position in lines]


async def test_kill_above_holes_redelivers_only_what_was_not_settled(
    field: Field, tmp_path: Path
) -> None:
    """Promise 3 without a store: ``kill -9`` brings back the holes, and nothing above them."""
    await field.create()
    produced = await field.append(2_000, keys=2_000)
    stuck, above = [3, 700, 1_500], ((4, 699), (701, 1_499), (1_501, 1_999))
    first, second = tmp_path / "first", tmp_path / "second"
    command = [sys.executable, "-m", "tests.integration.consumer_process"]
    command += [
        f"kafka://{field.kafka.servers}/{field.topic}?group={field.group}&session_timeout=30",
        "",
    ]
    process = await asyncio.create_subprocess_exec(*command, str(first), *map(str, stuck))
    try:
        async with asyncio.timeout(PATIENCE):
            while not _places(first):
                await asyncio.sleep(0.02)
            while (await field.checkpoint()).ranges != above:
                await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
    assert await field.committed() == {0: 3}
    await field.kafka.end_sessions(field.group)
    process = await asyncio.create_subprocess_exec(*command, str(second))
    try:
        async with asyncio.timeout(PATIENCE):
            while (await field.committed()) != {0: 2_000}:
                await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
    assert {*_places(first), *_places(second)} == produced
    assert sorted(_places(second)) == [(0, position) for position in stuck]


async def test_retrying_record_counts_on_after_a_restart(field: Field) -> None:
    """The retry limit is one of the record, not of the process: attempts are in the commit."""
    await field.create()
    await field.append(4)
    attempts: list[int] = []

    async def fail_the_first(message: Message) -> None:
        if message.position == 0:
            attempts.append(message.attempt)
            raise RuntimeError("not yet")

    for _ in range(3):
        before = len(attempts)
        consumer = field.consumer(retry=SLOW_RETRIES)
        async with field.running(consumer, fail_the_first, ordering=Ordering.NONE) as task:
            await until(partial(_has_grown, attempts, before + 3), "it is tried", task)
    assert attempts == list(range(1, len(attempts) + 1))


def _has_grown(seen: Sequence[object], size: int) -> bool:
    return len(seen) >= size


async def test_rebalance_hands_ranges_and_attempts_to_the_next_owner(field: Field) -> None:
    """Who takes over gets the hole with its count, and nothing of what is settled above it."""
    await field.create(2)
    produced = await field.append(200) | await field.append(200, partition=1)
    seen: dict[str, list[tuple[Place, int]]] = {"old": [], "new": []}

    def handler(name: str) -> Callable[[Message], Awaitable[None]]:
        async def handle(message: Message) -> None:
            seen[name].append((place(message), message.attempt))
            if message.position == 0:
                raise RuntimeError("not yet")

        return handle

    def consumer() -> Consumer:
        return field.consumer(retry=SLOW_RETRIES, adapter={"rebalance_timeout": 10.0})

    old, new = consumer(), consumer()
    async with field.running(old, handler("old"), ordering=Ordering.NONE) as task:
        tried = seen["old"]
        await until(lambda: len({at for at, _ in tried}) == len(produced), "all is seen", task)
        await until(lambda: len(tried) > len(produced) + 6, "holes are retried", task)
        async with field.running(new, handler("new"), ordering=Ordering.NONE) as other:
            await until(lambda: bool(seen["new"]), "one partition moves", task, other)
    moved, attempt = seen["new"][0]
    assert {at for at, _ in seen["new"]} == {moved}
    assert moved[1] == 0
    assert attempt == 1 + sum(at == moved for at, _ in tried)
    assert attempt > 2


async def test_receipt_above_a_hole_is_durable_without_a_store(field: Field) -> None:
    """What the commit carries is durable before the hole is settled, and stays so."""
    await field.create()
    await field.append(3)
    async with asyncio.timeout(PATIENCE), field.consumer(drain_timeout=0.1) as consumer:
        taken = [await anext(consumer) for _ in range(3)]
        assert taken[1].ack()
        await taken[1].durable()
        assert (await field.checkpoint()).ranges == ((1, 1),)
        assert await field.committed() == {0: 0}


async def test_ten_thousand_random_holes_neither_stall_nor_lose_anything(field: Field) -> None:
    """T8: what does not fit is redelivered, what fits is not, and the position gets to the end."""
    total = 40_000
    await field.create()
    await field.append(total)
    chance = random.Random(8)
    unsettled = {n for n in range(total) if chance.random() < 0.5}
    options: dict[str, Any] = {"max_in_flight": 50_000, "max_holes": None, "drain_timeout": 0.1}
    async with asyncio.timeout(PATIENCE), field.consumer(**options) as consumer:
        taken = [await anext(consumer) for _ in range(total)]
        chance.shuffle(taken)
        for count, message in enumerate(taken):
            if message.position not in unsettled:
                message.ack()
            if count % 1000 == 0:
                await asyncio.sleep(0)
        await consumer.flush()
    kept = (await field.checkpoint()).ranges
    covered = kept[-1][1]
    assert len(kept) > 3_000
    left = {n for n in range(total) if n in unsettled or n > covered}
    async with asyncio.timeout(PATIENCE), field.consumer(**options) as consumer:
        again = [await anext(consumer) for _ in left]
        assert {message.position for message in again} == left
        assert all(message.ack() for message in again)
        await consumer.flush()
        assert await field.committed() == {0: total}


@pytest.mark.parametrize("offset", [2, 5, 8])
async def test_reset_by_an_operator_is_where_it_goes_on(field: Field, offset: int) -> None:
    """What was settled before a reset is processed again: that is what a reset is for."""
    await field.create()
    await field.append(10)
    async with asyncio.timeout(PATIENCE), field.consumer(drain_timeout=0.1) as consumer:
        taken = [await anext(consumer) for _ in range(10)]
        assert all(message.ack() for message in taken if message.position != 5)
        await consumer.flush()
    assert (await field.checkpoint()).ranges == ((6, 9),)
    await field.commit_as_another(offset)
    async with asyncio.timeout(PATIENCE), field.consumer(drain_timeout=0.1) as consumer:
        again = [(await anext(consumer)).position for _ in range(10 - offset)]
    assert again == list(range(offset, 10))


async def test_beside_a_store_the_commit_is_a_mark_and_a_reset_is_seen_by_its_absence(
    field: Field, tmp_path: Path
) -> None:
    """The broker hears the position alone, O(1); the store's ranges count until an operator's do."""
    await field.create()
    await field.append(10)
    for expected in (list(range(10)), [4], list(range(2, 10))):
        store = LocalStore(tmp_path / "state.db")
        consumer = field.consumer(store=store, drain_timeout=0.1)
        async with asyncio.timeout(PATIENCE), consumer:
            taken = [await anext(consumer) for _ in expected]
            assert [message.position for message in taken] == expected
            assert all(message.ack() for message in taken if message.position != 4)
            await consumer.flush()
            assert consumer.stats().resets == (expected[0] == 2)
        assert await field.committed() == {0: 4}
        assert (await field.commit()).metadata.startswith("consumer-sdk/1 copy ")
        assert (await field.commit()).metadata.isascii()
        if expected == [4]:
            await field.commit_as_another(2)


async def _take(field: Field, count: int, **options: Any) -> tuple[list[int], int]:
    """The next positions, acked and durable; and how many resets were honoured."""
    async with asyncio.timeout(PATIENCE), field.consumer(drain_timeout=0.1, **options) as consumer:
        taken = [await anext(consumer) for _ in range(count)]
        assert all(message.ack() for message in taken)
        await consumer.flush()
        return [message.position for message in taken], consumer.stats().resets


async def test_store_follows_a_consumer_that_went_on_without_it(
    field: Field, tmp_path: Path
) -> None:
    """Whose commit it is, the commit says: the store's copy, or the word of who had none."""
    await field.create()
    await field.append(10)
    stores = [LocalStore(tmp_path / "state.db") for _ in range(3)]
    assert await _take(field, 4, store=stores[0]) == ([0, 1, 2, 3], 0)
    await field.until_committed({0: 4})
    assert await _take(field, 3) == ([4, 5, 6], 0)
    assert await _take(field, 2, store=stores[1]) == ([7, 8], 1)
    await field.until_committed({0: 9})
    assert await _take(field, 1, store=stores[2]) == ([9], 0)


async def test_copy_by_a_newer_version_leaves_the_store_the_last_word(
    field: Field, tmp_path: Path
) -> None:
    """The head can be read, and it is ours: no reset to a position that lags behind the store."""
    await field.create()
    await field.append(10)
    assert await _take(field, 4, store=LocalStore(tmp_path / "state.db")) == ([0, 1, 2, 3], 0)
    await field.until_committed({0: 4})
    older = (await field.commit()).metadata
    assert await _take(field, 3, store=LocalStore(tmp_path / "state.db")) == ([4, 5, 6], 0)
    await field.until_committed({0: 7})
    await field.commit_as_another(4, older.replace("/1 ", "/2 ") + " and more")
    assert await _take(field, 3, store=LocalStore(tmp_path / "state.db")) == ([7, 8, 9], 0)


async def test_application_without_room_in_the_commit_does_not_start_anew_each_time(
    field: Field,
) -> None:
    """What came while it was down would be skipped: the commit says that something is missing."""
    await field.create()
    await field.append(5)
    options: dict[str, Any] = {"application_id": "v2", "restart": "from_start"}
    assert await _take(field, 3, **options) == ([0, 1, 2], 0)
    name, seal, _ = (await field.commit()).metadata.split(" ", 2)
    await field.commit_as_another(3, f"{name} {seal} -")  # as where a broker takes less
    assert await _take(field, 2, start="latest", **options) == ([3, 4], 0)
