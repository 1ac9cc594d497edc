"""What can be seen of a running consumer: states of the stuck record, snapshots, health, events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk import (
    ConfigurationError,
    Consumer,
    Hooks,
    Message,
    Ordering,
    Partition,
    Reject,
    RetryPolicy,
)
from consumer_sdk.abc import Clock
from consumer_sdk.records import Assignment
from consumer_sdk.runtime import Snapshot
from consumer_sdk.runtime.dispatch.workers import current_message
from consumer_sdk.runtime.observing.events import KEPT, Events
from consumer_sdk.runtime.observing.health import HealthInputs, assess
from consumer_sdk.runtime.observing.snapshots import PartitionSnapshot
from consumer_sdk.runtime.observing.stats import REMEMBERED, PartitionTotals
from consumer_sdk.runtime.observing.timing import MOST_NAMES, OTHER, Timing
from consumer_sdk.runtime.partitions.partition_state import Pauses
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import Bench, Letters, bench

ZERO, ONE = Partition("s", "0"), Partition("s", "1")


class _OwnClock(Clock):
    """A consumer's own, which does not begin when the event loop's does."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + 1000.0

    def wall(self) -> float:
        return asyncio.get_running_loop().time()


async def _fail(_message: Message) -> None:
    raise OSError("down")


async def _hang(_message: Message) -> None:
    await asyncio.sleep(1000)


def _explained(
    handler: Any, values: Sequence[str], *, after: float = 2.0, **options: Any
) -> tuple[str | None, bytes | None, float | None]:
    """State, key and running time of what pins the partition after so many seconds."""
    found: list[tuple[str | None, bytes | None, float | None]] = []

    async def test(b: Bench) -> None:
        b.append(*values)
        consumer = b.consumer(**options)

        def look() -> None:
            (explained,) = consumer.explain().values()
            found.append((explained.state, explained.key, explained.running))
            consumer.stop()

        asyncio.get_running_loop().call_later(after, look)
        await consumer.run(handler, concurrency=1)

    bench(test)
    return found[0]


def test_explain_says_since_when_a_handler_runs() -> None:
    """With the key, so that a person finds the record."""
    for after in (0.5, 2.0):
        state, key, since = _explained(_hang, ["a=1"], after=after)
        assert (state, key) == ("running", b"a")
        assert since == pytest.approx(after, abs=0.1)


def test_explain_tells_of_one_partition_if_it_is_named() -> None:
    """Or of each that is held."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(1)
            assert set(consumer.explain(ONE)) == {ONE}
            assert set(consumer.explain()) == {ZERO, ONE}
            pulling = consumer.snapshot()
            assert (pulling.handlers, pulling.handlers_limit) == (0, 0)
            assert [each.trees for each in pulling.partitions] == [0, 0]

    bench(test, partitions=2)


@pytest.mark.parametrize("batch_size", [None, 2], ids=["messages", "batches"])
def test_consumer_with_its_own_clock_knows_how_long_a_handler_runs(batch_size: int | None) -> None:
    """Deliveries are timed by the event loop, whatever clock the consumer was given."""
    running: list[float | None] = []

    async def test(b: Bench) -> None:
        b.append("1", "2")
        consumer = b.consumer(clock=_OwnClock())

        async def handle(_given: Any) -> None:
            await asyncio.sleep(2)
            (explained,) = consumer.explain().values()
            running.append(explained.running)
            consumer.stop()

        await consumer.run(handle, concurrency=1, batch_size=batch_size, batch_wait=0)

    bench(test)
    assert running
    assert set(running) == {2.0}


def test_explain_says_retrying_and_its_key() -> None:
    """The record waits for its next delivery; who waits behind it is no pin."""
    slow = RetryPolicy(max_attempts=9, initial=60.0, jitter=0.0)
    assert _explained(_fail, ["a=1", "a=2"], retry=slow)[:2] == ("retrying", b"a")


def test_explain_says_dead_lettering() -> None:
    """The destination is away."""

    async def test(b: Bench) -> None:
        b.append("a=1")
        b.letters.failures = 1000
        consumer = b.consumer(retry=RetryPolicy(max_attempts=1))
        running = asyncio.create_task(consumer.run(_fail))
        await asyncio.sleep(5)
        (found,) = consumer.explain().values()
        assert (found.state, found.key) == ("dead-lettering", b"a")
        b.letters.failures = 0
        await asyncio.sleep(20)
        assert consumer.snapshot().dead_letters == {"OSError": 1}
        consumer.stop()
        await running

    bench(test)


def test_explain_says_awaiting_branches() -> None:
    """The handler has returned, and a branch is open."""

    async def branch(message: Message) -> None:
        with message.tree() as tree:
            tree.branch()

    assert _explained(branch, ["a=1"])[:2] == ("awaiting branches", b"a")


def test_explain_says_queued_and_behind_a_retry() -> None:
    """Pure: what `Lanes` finds of records that are in no handler."""

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2", "b=3")

        async def handle(message: Message) -> None:
            if message.value == b"1":
                raise OSError
            await asyncio.sleep(1000)

        consumer = b.consumer(
            retry=RetryPolicy(max_attempts=9, initial=500.0, maximum=500.0, jitter=0.0)
        )
        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await asyncio.sleep(1)
        engine = consumer._engine
        (holding,) = engine.holdings.values()
        assert engine.context.queue.find(holding, 1)[0] == "behind a retry"
        assert consumer.snapshot().partitions[0].blocked == 1
        consumer.stop()
        await running

    bench(test)


def test_pulled_record_is_queued_then_handed_out() -> None:
    """Nobody knows what a puller does with it."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer() as consumer:
            first = await anext(consumer)
            assert consumer.explain()[ZERO].state == "handed out"
            first.ack()
            assert consumer.explain()[ZERO].state == "queued"
            (await anext(consumer)).ack()

    bench(test)


def test_snapshot_shows_counts_times_and_events() -> None:
    """And all of it can be written as JSON."""

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.2)
        if message.value == b"bad":
            raise KeyError("bad")

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2", "b=bad")
        consumer = b.consumer()
        before = consumer.snapshot()
        assert (before.state, before.partitions) == ("new", ())
        assert not before.health.ready
        await b.run(consumer, handle, seconds=30)
        seen = consumer.snapshot()
        assert seen.state == "closed"
        assert seen.handler_times["s", None].counts[6] == 2
        assert seen.handler_times["s", "KeyError"].total == 3
        assert seen.handler_times["s", None].sum == pytest.approx(0.4)
        assert seen.dead_letters == {"KeyError": 1}
        (left,) = seen.partitions
        assert (left.is_held, left.settled, left.failed, left.redelivered) == (False, 3, 3, 2)
        assert (left.assigned, left.revoked, left.lost) == (1, 1, 0)
        assert [e.kind for e in seen.events] == ["assigned", "dead-lettered", "revoked"]
        assert seen.request_times["commit", None].total == seen.stats.flushes
        plain = json.loads(seen.to_json())
        assert plain["partitions"][0]["partition"] == ["s", "0"]
        assert Snapshot.from_plain(plain) == seen

    bench(test)


@pytest.mark.parametrize("plain", [None, [], {}, {"health": 3}, {"health": {}, "stats": {}}])
def test_what_is_no_snapshot_is_refused(plain: Any) -> None:
    """With what to give instead."""
    with pytest.raises(ConfigurationError, match=r"^this is no snapshot .*json\.loads"):
        Snapshot.from_plain(plain)


def test_snapshot_is_read_back_from_its_json() -> None:
    """Of a consumer that holds something, is paused, and is full of what hangs."""

    async def test(b: Bench) -> None:
        b.append("a=1", "b=2")
        consumer = b.consumer(max_in_flight=1)
        consumer.pause(ONE, reason="why")
        running = asyncio.create_task(consumer.run(_hang, handle_signals=False))
        await asyncio.sleep(5)
        seen = consumer.snapshot()
        assert seen.partitions[0].pinned is not None
        assert seen.partitions[0].pinned.key == b"a"
        assert Snapshot.from_plain(json.loads(seen.to_json())) == seen
        running.cancel()
        await asyncio.wait({running})

    bench(test)


@pytest.mark.parametrize("concurrency", [5, 100])
def test_slow_deliveries_between_quick_ones_are_measured_one_by_one(concurrency: int) -> None:
    """A handler that suspends is never counted among the quick ones."""

    async def handle(message: Message) -> None:
        if message.value == b"slow":
            await asyncio.sleep(0.7)

    async def test(b: Bench) -> None:
        b.append(*(f"{n}={'slow' if n % 2 else 'quick'}" for n in range(200)))
        consumer = b.consumer()
        await b.run(consumer, handle, concurrency=concurrency)
        counts = consumer.snapshot().handler_times["s", None].counts
        assert (counts[0], counts[8], sum(counts)) == (100, 100, 200)

    bench(test)


def test_snapshot_of_idle_partitions_is_the_one_of_before() -> None:
    """A look costs what has changed."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer() as consumer:
            batch = await anext(consumer.batches(max_wait=1))
            busy = consumer.snapshot().partitions
            batch.ack()
            await asyncio.sleep(11)  # lags are looked at
            first = consumer.snapshot().partitions
            await asyncio.sleep(1)
            second = consumer.snapshot().partitions
            assert sum(each.in_flight for each in busy) == 2
            assert [each.settled for each in first] == [1, 1]
            assert [(each.lag, each.lag_seconds) for each in first] == [(0, 0.0)] * 2
            assert all(a is b for a, b in zip(first, second, strict=True))
            b.append("3", "4")
            await asyncio.sleep(1)
            assert [each.in_flight for each in consumer.snapshot().partitions] == [1, 1]

    bench(test, partitions=2)


def test_many_busy_partitions_have_right_counts_though_not_all_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What pins the others is looked at next time."""
    monkeypatch.setattr("consumer_sdk.runtime.observer.CLOSELY", 1)

    async def test(b: Bench) -> None:
        b.append(*map(str, range(8)))
        async with b.consumer() as consumer:
            await anext(consumer.batches(max_wait=1))
            seen = consumer.snapshot().partitions
            assert [each.in_flight for each in seen] == [2, 2, 2, 2]
            assert sum(each.pinned is not None for each in seen) == 1
            for _ in range(3):
                seen = consumer.snapshot().partitions
            assert all(each.pinned is not None for each in seen)

    bench(test, partitions=4)


@pytest.mark.parametrize("closely, looked_at", [(5, 2), (7, 2), (9, 3)])
def test_look_at_many_records_of_a_partition_costs_more(
    closely: int, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One and a fourth of them each; the counts of the others are right nevertheless."""
    monkeypatch.setattr("consumer_sdk.runtime.observer.CLOSELY", closely)

    async def test(b: Bench) -> None:
        b.append(*map(str, range(48)))
        async with b.consumer() as consumer:
            batches = consumer.batches(max_messages=48, max_wait=1)
            batch = await anext(batches)
            seen = consumer.snapshot().partitions
            assert [each.in_flight for each in seen] == [12] * 4
            assert sum(each.pinned is not None for each in seen) == looked_at
            for message in batch:
                if message.position != 5:
                    message.ack()
            assert [each.in_flight for each in consumer.snapshot().partitions] == [1] * 4

    bench(test, partitions=4)


@pytest.mark.parametrize(
    "state, key", [("queued", None), ("retrying", b"a"), ("awaiting branches", b"a")]
)
def test_snapshot_tells_what_pins_a_partition(state: str, key: bytes | None) -> None:
    """Which key is queued is not worth a search."""

    async def handle(message: Message) -> None:
        if message.key == b"b":
            await asyncio.sleep(1000)
        if state == "awaiting branches":
            with message.tree() as tree:
                tree.branch()
        else:
            raise OSError

    async def test(b: Bench) -> None:
        b.append("a=1", "b=2")
        wait = 1.0 if state == "queued" else 100.0
        retry = RetryPolicy(max_attempts=9, initial=wait, maximum=wait, jitter=0.0)
        consumer = b.consumer(retry=retry)
        running = asyncio.create_task(consumer.run(handle, concurrency=1, handle_signals=False))
        await asyncio.sleep(5)
        (seen,) = consumer.snapshot().partitions
        assert seen.pinned is not None
        assert (seen.pinned.state, seen.pinned.key) == (state, key)
        await asyncio.sleep(400)
        stuck = consumer.snapshot().health
        assert stuck.live
        assert stuck.reasons
        running.cancel()
        await asyncio.wait({running})

    bench(test)


def test_snapshot_in_turns_lets_the_loop_turn_and_bears_what_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says of each partition what a snapshot would; one that has gone meanwhile is not in it."""
    monkeypatch.setattr("consumer_sdk.runtime.observer.TOGETHER", 2)

    async def test(b: Bench) -> None:
        b.append(*map(str, range(8)))
        async with b.consumer() as consumer:
            await anext(consumer.batches(max_wait=1))
            taking, turns = asyncio.create_task(consumer.snapshot_in_turns()), 0
            while not taking.done():
                await asyncio.sleep(0)
                turns += 1
            assert turns > 4
            assert taking.result().partitions == consumer.snapshot().partitions
            assert [each.in_flight for each in taking.result().partitions] == [1] * 8

            taking = asyncio.create_task(consumer.snapshot_in_turns())
            await asyncio.sleep(0)
            next(iter(consumer._engine.holdings.values())).seen = None  # as if just granted
            assert [each.in_flight for each in (await taking).partitions] == [1] * 8

            taking = asyncio.create_task(consumer.snapshot_in_turns())
            await asyncio.sleep(0)
            for holding in list(consumer._engine.holdings.values())[4:]:
                consumer._engine._assignments.lost([holding.assignment])
            partitions = (await taking).partitions
            assert sum(each.is_held for each in partitions) == 4
            assert len(partitions) == 8

    bench(test, partitions=8)


def test_lag_in_seconds_is_the_age_of_the_record_fetched_last() -> None:
    """Where the broker tells records alone."""

    async def test(b: Bench) -> None:
        for n in range(20):
            b.broker.append("s", b"v", timestamp=int((b.simulation.clock.wall() - 50 + n) * 1000))
        consumer = b.consumer(max_in_flight=5, fetch_records=5)
        async with consumer:
            await anext(consumer)
            consumer.snapshot()
            await asyncio.sleep(11)
            (seen,) = consumer.snapshot().partitions
            assert seen.lag
            assert seen.lag_seconds
            assert 50 < seen.lag_seconds < 70

    bench(test)


def test_partition_of_which_nothing_is_known_has_counted_nothing() -> None:
    """A held one, in its first epoch: only what is known is given."""
    assert tuple(PartitionSnapshot(ZERO)) == (
        *(ZERO, True, 0, None, None),
        *(0, 0, 0, 0, 0, 0, 0),
        *(None, None, False, None, None),
        *(0, 0, 0, 0, 0, 0, 0, 0, 0, None),
    )


@pytest.mark.parametrize(
    "marks, reason",
    [
        ({}, None),
        ({"is_paused": True}, "full"),
        ({"is_paused": True, "is_over_budget": True}, "holes"),
        ({"is_over_budget": True}, None),
        ({"is_paused": True, "is_over_lag": True, "is_over_budget": True}, "lag"),
        ({"is_paused": True, "is_over_lag": True, "paused_by_hand": ""}, "operator"),
        ({"is_paused": True, "paused_by_hand": "why", "is_overtaken": True}, "retention"),
    ],
)
def test_snapshot_tells_why_a_partition_is_not_fetched(
    marks: dict[str, Any], reason: str | None
) -> None:
    """Of several reasons the one that lasts longest."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(1)
            (holding,) = consumer._engine.holdings.values()
            for name, value in marks.items():
                setattr(holding, name, value)
            holding.is_news = True
            (seen,) = consumer.snapshot().partitions
            assert (seen.paused, seen.pause_text) == (reason, marks.get("paused_by_hand"))

    bench(test)


@pytest.mark.parametrize(
    "unit, lag, latest, shown",
    [
        ("records", None, -4000, (None, None)),
        ("records", 0, -4000, (0, 0.0)),
        ("records", 3, None, (3, None)),
        ("records", 3, -4000, (3, 4.0)),
        ("records", 3, 4000, (3, 0.0)),
        ("milliseconds", 2500, None, (None, 2.5)),
        ("milliseconds", 0, -4000, (None, 0.0)),
    ],
)
def test_lag_is_shown_in_what_the_broker_counts(
    unit: str, lag: int | None, latest: int | None, shown: tuple[int | None, float | None]
) -> None:
    """A clock that is behind a producer's makes no age below 0."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        async with consumer:
            await asyncio.sleep(1)
            (holding,) = consumer._engine.holdings.values()
            adapter = consumer._engine.adapter
            assert isinstance(adapter, MemoryAdapter)
            adapter.capabilities = replace(adapter.capabilities, lag_unit=unit)
            wall = b.simulation.clock.wall()
            holding.lag = lag
            holding.latest = None if latest is None else round(wall * 1000) + latest
            holding.is_news = True
            (seen,) = consumer.snapshot().partitions
            assert seen.lag == shown[0]
            assert seen.lag_seconds == pytest.approx(shown[1], abs=0.001)

    bench(test)


def test_snapshot_tells_of_each_record_what_it_is_doing() -> None:
    """And how many, with the limits; what a partition has counted goes on when it is lost."""
    letters = Letters(failures=1000)

    async def handle(message: Message) -> None:
        if message.value == b"poison":
            raise Reject("no")
        if message.value == b"bad":
            raise OSError
        if message.value == b"tree":
            with message.tree() as tree:
                tree.branch()
        if message.value == b"long":
            await asyncio.sleep(1000)

    async def test(b: Bench) -> None:
        b.append("x=fine", "a=bad", "c=fine", "a=next", "b=long", "d=tree", "e=poison")
        retry = RetryPolicy(max_attempts=9, initial=500.0, maximum=500.0, jitter=0.0)
        consumer = b.consumer(retry=retry, dead_letters=letters, max_in_flight=9)
        running = asyncio.create_task(consumer.run(handle, concurrency=4, handle_signals=False))
        await asyncio.sleep(5)
        whole = consumer.snapshot()
        (seen,) = whole.partitions
        assert (whole.handlers, whole.handlers_limit, whole.in_flight_limit) == (1, 4, 9)
        assert (seen.partition, seen.is_held, seen.epoch) == (ZERO, True, 1)
        assert (seen.position, seen.in_flight, seen.retrying, seen.blocked) == ("0", 5, 1, 1)
        assert (seen.holes, seen.lanes, seen.trees, seen.is_draining) == (1, 2, 1, False)
        assert (seen.fetched, seen.settled, seen.failed, seen.redelivered) == (7, 2, 1, 0)
        assert seen.in_flight_bytes == sum(
            h.tracker.unsettled_bytes for h in consumer._engine.holdings.values()
        )
        assert seen.pinned is not None
        assert seen.pinned._replace(age=0.0) == ("1", "retrying", 0.0, 1, b"a", None)
        assert seen.pinned.age == pytest.approx(5.0, abs=0.1)
        running.cancel()
        await asyncio.wait({running})
        (left,) = consumer.snapshot().partitions
        assert (left.is_held, left.fetched, left.settled) == (False, 7, 2)

    bench(test)


# -- pausing --------------------------------------------------------------------------------


def test_pause_keeps_what_comes_from_handlers_until_resume() -> None:
    """It is explained, shown, and no stall."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        running = asyncio.create_task(consumer.run(b.see, ordering=Ordering.KEY))
        await asyncio.sleep(1)
        consumer.pause(ZERO, reason="the database is moved")
        await asyncio.sleep(1)
        b.append("1", "2")
        await asyncio.sleep(60)
        assert b.values == ["2"]  # of the other partition
        seen = {each.partition: each for each in consumer.snapshot().partitions}
        assert (seen[ZERO].paused, seen[ONE].paused) == ("operator", None)
        assert seen[ZERO].pause_text == "the database is moved"
        assert "the database is moved" in str(consumer.explain()[ZERO])
        assert consumer.resume(ZERO)
        assert not consumer.resume(ZERO)
        await asyncio.sleep(5)
        assert b.values == ["2", "1"]
        consumer.stop()
        await running

    bench(test, partitions=2)


def test_pause_before_opening_holds_all_and_one_can_be_spared() -> None:
    """A consumer that joins, and reads nothing yet."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        consumer = b.consumer()
        consumer.pause(reason="wait")
        running = asyncio.create_task(consumer.run(b.see))
        await asyncio.sleep(5)
        assert b.values == []
        assert consumer.resume(ONE)
        await asyncio.sleep(5)
        assert b.values == ["2"]
        assert consumer.resume()
        await asyncio.sleep(5)
        assert b.values == ["2", "1"]
        kinds = [event.kind for event in consumer.snapshot().events]
        assert kinds == ["paused", "assigned", "resumed"] or kinds.count("resumed") == 2
        consumer.stop()
        await running

    bench(test, partitions=2)


def test_pause_stays_while_the_partition_goes_and_comes() -> None:
    """A second member takes one of them, and leaves."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        running = asyncio.create_task(consumer.run(b.see))
        await asyncio.sleep(1)
        consumer.pause(ZERO)
        consumer.pause(ONE)
        async with b.consumer():
            await asyncio.sleep(5)
            assert len(consumer.stats().partitions) == 1
        await asyncio.sleep(5)
        b.append("1", "2")
        await asyncio.sleep(5)
        assert [p.paused for p in consumer.snapshot().partitions] == ["operator"] * 2
        assert b.values == []
        consumer.stop()
        await running

    bench(test, partitions=2)


def test_what_is_no_partition_or_reason_is_refused() -> None:
    """Before anything is paused."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        with pytest.raises(ConfigurationError, match="give a Partition"):
            consumer.pause("s/0")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="reason"):
            consumer.pause(ZERO, reason=" ")
        with pytest.raises(ConfigurationError, match="stalled_after"):
            consumer.health(stalled_after=0)

    bench(test)


def test_pauses_know_one_all_and_all_but_some() -> None:
    """The latest word on a partition counts."""
    pauses = Pauses()
    pauses.pause(ZERO, "one")
    assert (pauses.reason(ZERO), pauses.reason(ONE)) == ("one", None)
    pauses.pause(None, "all")
    pauses.resume(ZERO)
    assert (pauses.reason(ZERO), pauses.reason(ONE)) == (None, "all")
    pauses.pause(ZERO, "again")
    assert pauses.reason(ZERO) == "again"
    pauses.resume(None)
    assert (pauses.reason(ZERO), pauses.reason(ONE)) == (None, None)


# -- hooks, context, health, parts --------------------------------------------------------------


class Told(Hooks):
    """Keeps what it is told of partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[Partition]]] = []

    def partitions_assigned(self, partitions: Sequence[Partition]) -> None:
        """They came."""
        self.calls.append(("assigned", set(partitions)))

    def partitions_revoked(self, partitions: Sequence[Partition]) -> None:
        """They went."""
        self.calls.append(("revoked", set(partitions)))


def test_hooks_are_told_of_a_partition_that_is_fenced() -> None:
    """It is over, also where it is granted again: what was kept for it is of the epoch before."""

    async def test(b: Bench) -> None:
        told, store = Told(), MemoryStore()
        consumer = b.consumer(hooks=told, store=store)

        async def take_over(message: Message) -> None:
            if message.position == 0 and len(told.calls) == 1:
                await store.handle().claim("g", [Assignment(ZERO, 99)])

        b.append("1")
        await b.run(consumer, take_over, seconds=30)
        assert told.calls == [("assigned", {ZERO}), ("revoked", {ZERO})] * 2
        (left,) = consumer.snapshot().partitions
        assert (left.assigned, left.revoked, left.lost) == (2, 1, 1)

    bench(test)


def test_partition_that_a_hook_pauses_while_the_consumer_opens_is_paused() -> None:
    """An adapter may grant before it has opened, as long as it asks the broker for more."""

    class Slow(MemoryAdapter):
        async def open(self, *args: Any) -> None:
            await super().open(*args)
            await asyncio.sleep(5)

    async def test(b: Bench) -> None:
        class Pausing(Hooks):
            def partitions_assigned(self, partitions: Sequence[Partition]) -> None:
                for each in partitions:
                    consumer.pause(each)

        b.append("1")
        consumer = Consumer(Slow(b.broker, "s", group="g"), hooks=Pausing())
        running = asyncio.create_task(consumer.run(b.see))
        await asyncio.sleep(10)
        assert (consumer.snapshot().partitions[0].paused, b.seen) == ("operator", [])
        assert consumer.resume()
        await asyncio.sleep(10)
        assert b.values == ["1"]
        consumer.stop()
        await running

    bench(test)


def test_hooks_are_told_of_partitions() -> None:
    """Of each, when it comes and when it goes, also at the end."""

    async def test(b: Bench) -> None:
        told = Told()
        await b.run(b.consumer(hooks=told), seconds=5)
        assert told.calls == [("assigned", {ZERO, ONE}), ("revoked", {ZERO, ONE})]

    bench(test, partitions=2)


def test_current_message_is_the_one_of_the_handler_around() -> None:
    """In what the handler awaits and starts; of each handler its own; none outside."""
    seen: list[tuple[bytes | None, bytes | None]] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.1)

        async def inner() -> None:
            found = current_message()
            seen.append((message.value, None if found is None else found.value))

        await inner()
        await asyncio.create_task(inner())

    async def test(b: Bench) -> None:
        b.append(*(f"{n}={n}" for n in range(20)))
        assert current_message() is None
        await b.run(b.consumer(), handle, concurrency=5)

    bench(test)
    assert len(seen) == 40
    assert all(given == found for given, found in seen)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_current_message_is_none_in_a_handler_of_batches_and_after_a_handler(
    batch_size: int | None,
) -> None:
    """A task that outlives its handler has none, although the worker waits for more."""
    seen: list[bytes | None] = []

    async def look() -> None:
        for _ in range(2):
            await asyncio.sleep(5)
            found = current_message()
            seen.append(None if found is None else found.value)

    async def test(b: Bench) -> None:
        tasks: list[asyncio.Task[None]] = []

        async def handle(_given: Any) -> None:
            tasks.append(asyncio.create_task(look()))
            await asyncio.sleep(8)

        b.append("1")
        await b.run(b.consumer(), handle, batch_size=batch_size, concurrency=1)
        await tasks[0]

    bench(test)
    assert seen == [b"1" if batch_size is None else None, None]


def test_health_follows_a_life_from_opening_to_failure() -> None:
    """Not ready before it is open, and not live when it has failed."""

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = b.consumer()
        states: list[str] = [consumer.state]
        async with consumer:
            states.append(consumer.state)
            await anext(consumer)
            health = consumer.health()
            assert (health.live, health.ready, health.reasons) == (True, True, ())
            await asyncio.sleep(310)
            stalled = consumer.health(needs_progress=True)
            assert (stalled.live, stalled.ready) == (False, True)
            assert "s/0 is pinned for 31" in stalled.reasons[0]
            consumer.stop()
            states.append(consumer.state)
        assert [*states, consumer.state] == ["new", "running", "stopping", "closed"]
        assert not consumer.health().live
        b.letters.failures, b.letters.raises = 1, RuntimeError("the disk is broken")
        failed = b.consumer(retry=RetryPolicy(max_attempts=1))
        with pytest.raises(RuntimeError, match="disk"):
            await failed.run(_fail)
        assert failed.state == "failed"
        assert "the disk is broken" in failed.health().reasons[1]

    bench(test)


def test_loop_that_does_not_turn_is_dead_and_a_gate_is_not_ready() -> None:
    """Pure."""
    blocked = assess(HealthInputs(state="running", turned=11.0))
    assert (blocked.live, blocked.ready) == (False, False)
    gated = assess(HealthInputs(state="running", is_gated=True))
    assert (gated.live, gated.ready) == (True, False)
    assert len(gated.reasons) == 1


def test_events_of_one_kind_within_a_second_are_one() -> None:
    """A storm of dead letters leaves room for others; the ring is bounded."""
    now = 0.0
    events = Events(lambda: now)
    for number in range(30):
        events.add("dead-lettered", str(number), [Partition("s", str(number))])
        events.add("fetch-error", "away")
    first, second = events.all()
    assert (first.number, first.count, first.text, len(first.partitions)) == (1, 30, "29", 10)
    assert (second.kind, second.count) == ("fetch-error", 30)
    for _ in range(KEPT + 50):
        now += 2
        events.add("assigned", "")
    assert len(events.all()) == KEPT
    assert events.all()[-1].number == KEPT + 52
    events.add("dead-lettered", "after it left the ring")
    assert events.all()[-1].count == 1
    assert events.counts["dead-lettered"] == 31


def test_names_of_errors_and_partitions_that_left_are_bounded() -> None:
    """Each is a time series."""
    timing = Timing()
    for number in range(MOST_NAMES + 20):
        timing.dead_lettered(f"Error{number}")
    assert len(timing.dead_letters) == MOST_NAMES + 1
    assert timing.dead_letters[OTHER] == 20
    partition_totals = PartitionTotals(lambda: {ZERO})
    mine = partition_totals.of(ZERO)
    for number in range(3 * REMEMBERED):
        partition_totals.of(Partition("old", str(number)))
    assert len(partition_totals.all) <= 2 * REMEMBERED + 2
    assert partition_totals.of(ZERO) is mine
