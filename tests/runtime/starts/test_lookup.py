"""What a start that moves stood for when the group first asked."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from consumer_sdk import (
    AtTime,
    CheckpointFormatError,
    CheckpointMismatchError,
    Consumer,
    TransientStoreError,
)
from consumer_sdk.abc import StoreItem
from consumer_sdk.records import Assignment, Checkpoint, Partition, Position, Start, StartPoint
from consumer_sdk.runtime.starts.lookup import ResolvedStart, StartLookup, resolve
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.memory import MemoryAdapter
from consumer_sdk.trackers import encode_checkpoint
from tests.runtime.bench import Bench, bench
from tests.runtime.consumer_options import options_of
from tests.testing.memory.test_adapter import Owner

HELD = [Assignment(Partition("s", str(number)), 1) for number in range(2)]
NAME = "s@s#1"


class Broken(MemoryAdapter):
    """A broker that cannot say where its partitions end."""

    async def positions(self, assignments: Any, at: Any) -> dict[Assignment, None]:
        """Says nothing."""
        return dict.fromkeys(assignments)


class Growing(MemoryAdapter):
    """A record comes after the first question for a time."""

    is_grown = False

    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """The answer is from before it."""
        if isinstance(at, AtTime):
            await asyncio.sleep(2)
        found = await super().positions(assignments, at)
        if isinstance(at, AtTime) and not self.is_grown:
            self.is_grown = True
            self.memory.append("s", b"new")
        return found


class Outage:
    """Nobody reaches the store until it is over."""

    is_over = False

    async def around(self, seam: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Around each call."""
        if not self.is_over:
            raise TransientStoreError(f"{seam}: down")
        return await call()


class Stopped(MemoryAdapter):
    """A process that was stopped beyond its session: it hears from its group after five seconds."""

    def held_until(self) -> float:
        """Over, until then."""
        now = asyncio.get_running_loop().time()
        return now if now < 5 else math.inf


class Claims:
    """Keeps when the store was asked for a claim."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def around(self, seam: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Around each call."""
        if seam == "claim":
            self.times.append(asyncio.get_running_loop().time())
        return await call()


async def _resolve(b: Bench, store: MemoryStore | None, **options: Any) -> list[ResolvedStart]:
    """What start= stands for in both partitions; the adapter is open for that long."""
    adapter = MemoryAdapter(b.broker, "s", group="g")
    return await _resolve_with(adapter, store, **options)


async def _resolve_with(
    adapter: MemoryAdapter, store: MemoryStore | None, **options: Any
) -> list[ResolvedStart]:
    await adapter.open(Owner())
    await asyncio.sleep(0.1)
    try:
        found = await resolve(adapter, store, options_of(**options), HELD)
        return [found.get(assignment, ResolvedStart()) for assignment in HELD]
    finally:
        await adapter.aclose()


def test_ends_are_pinned_for_the_group_and_the_first_pin_stays() -> None:
    """Whoever asks later is told where the group began."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        b.append("1", "2", "3")
        first = await _resolve(b, store, start=StartPoint.LATEST)
        b.append("4", "5", "6")
        assert await _resolve(b, store.handle(), start=StartPoint.LATEST) == first
        assert [each.position for each in first] == [2, 1]
        pin = (await store.pins("g"))[NAME]
        assert json.loads(pin) == {"version": 1, "positions": {"0": "2", "1": "1"}}

    bench(test, partitions=2)


def test_time_is_pinned_as_it_was_given() -> None:
    """It stands for a position of each partition; for the end where no record is that new."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        b.append("1", "2")
        await asyncio.sleep(10)
        then = b.simulation.clock.wall()
        b.broker.append("s", b"3", partition=0)
        first = await _resolve(b, store, start=AtTime(then))
        assert first == [ResolvedStart(1), ResolvedStart(1)]
        assert await _resolve(b, store, start=AtTime(then - 100)) == first
        assert json.loads((await store.pins("g"))[NAME]) == {"version": 1, "time": then}

    bench(test, partitions=2)


@pytest.mark.parametrize("has_store", [False, True])
def test_record_that_comes_while_a_time_is_looked_up_is_not_lost(*, has_store: bool) -> None:
    """The end that stands for "no record is that new" is asked first."""

    async def test(b: Bench) -> None:
        b.append("old")
        then = b.simulation.clock.wall() + 1
        adapter = Growing(b.broker, "s", group="g")
        store = MemoryStore() if has_store else None
        async with Consumer(adapter, store=store, start=AtTime(then)) as consumer:
            await asyncio.sleep(2)
            assert (await anext(consumer)).value == b"new"

    bench(test)


def test_partition_that_the_pin_does_not_name_is_later() -> None:
    """The group started before there was one."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        await store.pin("g", NAME, '{"version":1,"positions":{"0":"0"}}')
        b.append("1", "2")
        found = await _resolve(b, store, start=StartPoint.LATEST)
        assert found == [ResolvedStart(0), ResolvedStart(is_later=True)]

    bench(test, partitions=2)


def test_each_new_application_has_a_pin_of_its_own() -> None:
    """It starts anew: from the end as it is then."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        for number, name in enumerate(("a", "b"), 1):
            b.append("1", "2")
            options: dict[str, Any] = {"application_id": name, "restart": "from_start"}
            found = await _resolve(b, store, start=StartPoint.LATEST, **options)
            assert found == [ResolvedStart(number), ResolvedStart(number)]
        assert set(await store.pins("g")) == {f"{NAME}#a", f"{NAME}#b"}

    bench(test, partitions=2)


def test_without_a_store_nothing_is_pinned_here() -> None:
    """A time is looked up for now; the end is the one that the decision knows."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        assert await _resolve(b, None, start=AtTime(0.0)) == [ResolvedStart(0), ResolvedStart(0)]
        assert await _resolve(b, None, start=StartPoint.LATEST) == [ResolvedStart()] * 2

    bench(test, partitions=2)


def test_what_does_not_move_is_not_pinned() -> None:
    """The configuration says it as well the next time."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        assert await _resolve(b, store, start=StartPoint.EARLIEST) == [ResolvedStart()] * 2
        assert await store.pins("g") == {}

    bench(test, partitions=2)


def test_broker_that_cannot_say_has_nothing_pinned() -> None:
    """An empty pin would make every partition a later one."""

    async def test(b: Bench) -> None:
        store, adapter = MemoryStore(), Broken(b.broker, "s", group="g")
        found = await _resolve_with(adapter, store, start=StartPoint.LATEST)
        assert found == [ResolvedStart()] * 2
        assert await store.pins("g") == {}

    bench(test, partitions=2)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "null", "1", "[]", "{}", '"latest"', '{"version":2,"time":1.0}'),
        *('{"time":1.0}', '{"version":2,"positions":{"0":"0"}}'),
        *(
            '{"version":1}',
            '{"version":1,"time":true}',
            '{"version":1,"time":1}',
            '{"version":1,"time":"1"}',
        ),
        *('{"version":1,"time":NaN}', '{"version":1,"time":Infinity}'),
        *('{"version":1,"positions":["0"]}', '{"version":1,"positions":{"0":0}}'),
        *('{"version":1,"positions":{"0":"x"}}', '{"version":1,"positions":{"0":"-1"}}'),
        '{"version":1,"positions":{"0":"' + "9" * 5000 + '"}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_pin_that_is_none_is_refused_and_stays(text: str) -> None:
    """The error names group and stream; nothing is resolved anew."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        await store.pin("g", NAME, text)
        with pytest.raises(CheckpointFormatError, match="group 'g' has pinned for 's@s#1' is none"):
            await _resolve(b, store, start=StartPoint.LATEST)
        assert await store.pins("g") == {NAME: text}

    bench(test, partitions=2)


def test_checkpoint_of_a_stream_that_was_made_again_says_what_to_run() -> None:
    """Starting anew in its place would skip records, or repeat them, in silence."""

    async def test(b: Bench) -> None:
        store, adapter = MemoryStore(), MemoryAdapter(b.broker, "s", group="my group")
        text, _ = encode_checkpoint(
            Checkpoint(4, 5, identity="before"),
            broker="memory",
            partition=HELD[0].partition,
            encode_position=str,
        )
        await store.claim("my group", HELD)
        await store.save("my group", [StoreItem(HELD[0], text)])
        await adapter.open(Owner())
        lookup = StartLookup(adapter, store, options_of())
        command = r"`consumer-sdk checkpoints delete STORE_URL 'my group' --stream s`"
        with pytest.raises(CheckpointMismatchError, match=command):
            await lookup.ask(HELD)
        await adapter.aclose()

    bench(test, partitions=2)


def test_partition_claimed_later_starts_where_the_group_did() -> None:
    """A member whose store was down meanwhile skips nothing of what came."""

    async def test(b: Bench) -> None:
        shared, outage = MemoryStore(), Outage()
        b.append("0=old", "1=old")
        slow = b.consumer(store=shared.handle(faults=outage), start="latest")
        fast = b.consumer(store=shared.handle(), start="latest")
        async with slow, fast:
            await asyncio.sleep(20)
            assert (len(slow.stats().partitions), len(fast.stats().partitions)) == (0, 1)
            for number in range(2):
                b.broker.append("s", b"new", partition=number)
            outage.is_over = True
            assert [(await anext(each)).value for each in (slow, fast)] == [b"new"] * 2

    bench(test, partitions=2)


def test_nothing_is_claimed_before_the_session_is_known_to_last() -> None:
    """Another member may own the partition by now, and would lose it to this claim."""

    async def test(b: Bench) -> None:
        claims = Claims()
        adapter = Stopped(b.broker, "s", group="g")
        async with Consumer(adapter, store=MemoryStore(faults=claims), clock=b.simulation.clock):
            await asyncio.sleep(10)
        assert claims.times
        assert min(claims.times) >= 5

    bench(test)


@pytest.mark.parametrize("is_time", [True, False])
def test_time_that_replaces_what_is_gone_is_looked_up(*, is_time: bool) -> None:
    """And only where ``out_of_range`` is a time."""

    async def test(b: Bench) -> None:
        b.append("old")
        await asyncio.sleep(10)
        policy = AtTime(b.simulation.clock.wall()) if is_time else "earliest"
        b.append("new")
        adapter = MemoryAdapter(b.broker, "s", group="g")
        await adapter.open(Owner())
        lookup = StartLookup(adapter, None, options_of(out_of_range=policy))
        (found,) = await lookup.ask(HELD[:1])
        assert found.replacement == (1 if is_time else None)
        await adapter.aclose()

    bench(test)
