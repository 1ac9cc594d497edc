"""``kill -9`` of consumers, and of the broker, under load; a broker that is frozen: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Ordering, RetryPolicy
from consumer_sdk.dead_letters import MemoryDeadLetters
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.pulsar_consumer import RETRY
from tests.integration.pulsar_field import (
    GROUP,
    PATIENCE,
    Child,
    Field,
    Handled,
    numbers,
    running,
    until,
    until_true,
)

pytestmark = pytest.mark.pulsar

ATTEMPTS = RETRY.max_attempts or 0
PER_KILL = 400


async def kill_consumers(
    server: PulsarServer, kind: str, folder: Path, kills: int, *, with_store: bool = False
) -> None:
    """One after the other, at random moments, and each is replaced; checks that nothing is missing."""
    field = await Field(server, "kill").create()
    count, chance = PER_KILL * (kills + 1), random.Random(kills)
    child = Child(folder / "handled")
    store = [str(folder / "checkpoints.db")] if with_store else []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(field.load(count))
        for _ in range(kills):
            before = len(child.lines())
            await child.start(field, kind, *store)
            # A quick process goes past its goal before it is killed; more than all never comes.
            goal = min(before + chance.randrange(1, PER_KILL), count)
            await child.until(lambda lines, goal=goal: len(lines) >= goal)  # type: ignore[misc]
            await child.kill()
        await child.start(field, kind, *store)
        try:
            await child.until(lambda lines: _handled(lines).keys() >= set(numbers(count)))
            await field.until_acked()
        finally:
            await child.kill()
    times = _handled(child.lines())
    print(  # noqa: T201 - what a slow test was run for
        f"{kind}: {kills} kills, {count} records, 0 lost, "
        f"{sum(n > 1 for n in times.values())} handled again"
    )


def _handled(lines: list[str]) -> Counter[bytes]:
    return Counter(line.split()[1].encode() for line in lines if len(line.split()) == 3)


async def _attempts(folder: Path, group: str) -> list[int]:
    """What the store has counted, of all records."""
    async with asyncio.timeout(PATIENCE):
        store = LocalStore(folder / "checkpoints.db")
        await store.open()
        try:
            found = (await store.peek(group, await store.list(group))).values()
        finally:
            await store.aclose()
    return [count for text in found if text for count, _ in json.loads(text)["attempts"].values()]


@pytest.mark.campaign
async def test_attempts_of_a_queue_go_on_over_kills_up_to_the_dead_letters(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """Pulsar's own count is 0 after each: a poison record would be tried for ever."""
    field = await Field(pulsar_server, "poison").create()
    await pulsar_server.create_topic(f"{field.topic}-{GROUP}-DLQ")
    await pulsar_server.create_subscription(f"{field.topic}-{GROUP}-DLQ", "dead-letters")
    await field.produce([b"poison"])
    child = Child(tmp_path / "handled")
    for life in range(1, ATTEMPTS + 1):
        await child.start(field, "shared", str(tmp_path / "checkpoints.db"))
        await child.until(lambda lines, life=life: len(lines) >= life)  # type: ignore[misc]
        if life < ATTEMPTS:

            async def is_saved(life: int = life) -> bool:
                found = await _attempts(tmp_path, GROUP)
                return max(found, default=0) >= life or len(child.lines()) >= ATTEMPTS

            await until_true(is_saved)
            await child.kill()
    try:
        await field.until_acked()
    finally:
        await child.kill()
    # One that was made while the machine was busy, and not saved before the kill, is made again.
    attempts = [int(line.split()[2]) for line in child.lines()]
    assert attempts == sorted(attempts)
    assert set(attempts) == {*range(1, ATTEMPTS + 1)}
    assert len(attempts) < 2 * ATTEMPTS
    assert await pulsar_server.backlog(f"{field.topic}-{GROUP}-DLQ", "dead-letters") == 1


@pytest.mark.parametrize("kind", ["exclusive", pytest.param("shared", marks=pytest.mark.campaign)])
async def test_killed_three_times_loses_nothing(
    pulsar_server: PulsarServer, kind: str, tmp_path: Path
) -> None:
    """Pulsar trap 6: what was acked and not sent is handled again, nothing else is different."""
    await kill_consumers(pulsar_server, kind, tmp_path, 3)


@pytest.mark.campaign
async def test_killed_three_times_with_a_store_loses_nothing(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """The store's checkpoint, not the broker's cursor, says where it goes on."""
    await kill_consumers(pulsar_server, "exclusive", tmp_path, 3, with_store=True)


@pytest.mark.campaign
async def test_broker_killed_under_load_loses_nothing_and_attempts_are_kept(
    own_pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 10, trap 19: on exclusive and on shared at once; order of keys is kept."""
    server = own_pulsar_server
    fields = {kind: await Field(server, kind).create() for kind in ("exclusive", "shared")}
    count, letters = 3000, MemoryDeadLetters()
    handled = {kind: Handled(_fail_poison) for kind in fields}
    policy = RetryPolicy(max_attempts=4, initial=5, multiplier=1, jitter=0)
    async with asyncio.TaskGroup() as tasks:
        consumers = {
            kind: Consumer(field.adapter(kind), retry=policy, dead_letters=letters)
            for kind, field in fields.items()
        }
        async with (
            running(consumers["exclusive"], handled["exclusive"], Ordering.KEY),
            running(consumers["shared"], handled["shared"]),
        ):
            sending = [tasks.create_task(field.load(count)) for field in fields.values()]
            await until(lambda: all(len(h.calls) > 1000 for h in handled.values()))
            await server.kill()
            await server.restart()
            await asyncio.gather(*sending)
            for kind, field in fields.items():
                await until(lambda kind=kind: handled[kind].has(numbers(count)))  # type: ignore[misc]
                await field.until_acked()
            assert consumers["exclusive"].stats().ignored == 0
    for each in handled.values():
        poisoned = [attempt for value, attempt in each.attempts if value == POISON]
        assert poisoned == [1, 2, 3, 4]
    assert Counter(letter.value for letter in letters.letters) == {POISON: 2}
    handled["exclusive"].check_order()


POISON = b"7"


def _fail_poison(value: bytes, _: int) -> None:
    if value == POISON:
        raise RuntimeError("poison")


@pytest.mark.campaign
async def test_frozen_broker_close_is_bounded_and_nothing_is_lost(
    own_pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 4: close returns soon; what it could not ack is handled again later."""
    field = await Field(own_pulsar_server, "frozen").create()
    await field.produce(numbers(50))
    handled, loop = Handled(), asyncio.get_running_loop()
    adapter = field.adapter("shared", operation_timeout=2)
    consumer = Consumer(adapter, flush_interval=60, drain_timeout=2)
    task = asyncio.create_task(consumer.run(handled, ordering=Ordering.NONE, handle_signals=False))
    await until(lambda: handled.has(numbers(50)))
    own_pulsar_server.pause()
    try:
        began = loop.time()
        consumer.stop()
        await task
        assert loop.time() - began < 25
    finally:
        own_pulsar_server.resume()
    async with running(Consumer(field.adapter("shared")), handled):
        await field.until_acked()
    assert handled.has(numbers(50))


@pytest.mark.campaign
async def test_broker_frozen_for_a_while_is_neither_lost_nor_handled_twice(
    own_pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 19: an ack that nobody has confirmed is made again."""
    field = await Field(own_pulsar_server, "nap").create()
    await field.produce(numbers(50))
    handled = Handled()
    async with running(Consumer(field.adapter("exclusive")), handled):
        await until(lambda: handled.has(numbers(20)))
        own_pulsar_server.pause()
        try:
            await asyncio.sleep(4)  # longer than a flush, and than the patience with a connection
        finally:
            own_pulsar_server.resume()
        await field.produce(numbers(50, 50))
        await until(lambda: handled.has(numbers(100)))
        await field.until_acked()
    assert Counter(handled.calls) == Counter(numbers(100))
