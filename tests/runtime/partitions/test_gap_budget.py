"""The hole budget: what it warns of, pauses or gives up, and that nothing ever waits for ever."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import ConfigurationError, Consumer, Message, Ordering, Retry, RetryPolicy
from consumer_sdk.abc import DeadLetters
from consumer_sdk.records import Explanation, Partition
from consumer_sdk.runtime.partitions.gap_budget import HoleBudget
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.trackers import WatermarkTracker
from tests.runtime.bench import Bench, Letters, bench
from tests.runtime.consumer_options import options_of
from tests.runtime.partitions.held import Held, in_loop

ZERO = Partition("s", "0")
FOREVER = RetryPolicy(max_attempts=None, initial=30.0, maximum=30.0, jitter=0.0)


async def _take(consumer: Consumer, count: int) -> list[Message]:
    return [await anext(consumer) for _ in range(count)]


async def _until(b: Bench, moment: float) -> None:
    await asyncio.sleep(moment - b.simulation.clock.monotonic())


def test_old_hole_is_told_once_when_it_is_too_old_and_once_when_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line names the record, what it is doing, and what to do; fetching goes on."""

    async def test(b: Bench) -> None:
        b.append(*"0123")
        async with b.consumer(max_hole_age=10, hole_policy="warn") as consumer:
            messages = await _take(consumer, 4)
            messages[0].ack()
            messages[3].ack()
            await _until(b, 10.5)
            assert consumer.stats().over_hole_budget == ()
            await _until(b, 30.5)
            stats = consumer.stats()
            assert (stats.over_hole_budget, stats.hole_alarms, stats.paused) == ((ZERO,), 1, ())
            b.append("4")
            await _take(consumer, 1)
            messages[1].ack()
            messages[2].ack()
            await _until(b, 31.5)
            assert (consumer.stats().over_hole_budget, consumer.stats().hole_alarms) == ((), 1)

    with caplog.at_level(logging.INFO, "consumer_sdk.runtime.partitions.gap_budget"):
        bench(test)
    told = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "consumer_sdk.runtime.partitions.gap_budget"
    ]
    assert told == [
        (
            "WARNING",
            "s/0 is over its hole budget (max_holes=10000, max_hole_age=10): pinned by 1 (open, age 11.0 s, failed attempts 0); holes 1, unsettled 2, bytes 2; settle that record: is its handler stuck, or its ack forgotten?",
        ),
        (
            "INFO",
            "s/0 is back under its hole budget: pinned by 4 (open, age 0.5 s, failed attempts 0); holes 0, unsettled 1, bytes 1",
        ),
    ]


def test_old_record_with_nothing_settled_behind_it_is_no_hole() -> None:
    """It holds nothing up but itself."""

    async def test(b: Bench) -> None:
        b.append(*"012")
        async with b.consumer(max_hole_age=10, drain_timeout=0.1) as consumer:
            (await _take(consumer, 3))[0].ack()
            await asyncio.sleep(100)
            assert consumer.stats().hole_alarms == 0

    bench(test)


def test_partition_with_an_old_hole_is_not_fetched_until_its_holes_are_young() -> None:
    """Another partition goes on; half of the age is what ends the pause."""

    async def test(b: Bench) -> None:
        for partition in (0, 1):
            b.broker.append("s", b"%d stuck" % partition, partition=partition)
            b.broker.append("s", b"", partition=partition)
        stuck: list[Message] = []

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"0 stuck":
                stuck.append(message)
                await released.wait()

        released = asyncio.Event()
        consumer = b.consumer(max_hole_age=10)
        running = asyncio.create_task(consumer.run(handle))
        await _until(b, 12)
        assert consumer.stats().paused == (ZERO,)
        for partition in (0, 1):
            b.broker.append("s", b"%d later" % partition, partition=partition)
        await _until(b, 100)
        assert b.values[4:] == ["1 later"]
        released.set()
        await _until(b, 102)
        assert consumer.stats().paused == ()
        assert b.values[4:] == ["1 later", "0 later"]
        consumer.stop()
        await running
        assert b.committed() == {"0": 3, "1": 3}

    bench(test, partitions=2)


def test_partition_with_too_many_holes_is_paused_until_half_of_them_are_gone() -> None:
    """So that a flush never has to carry many more."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(40)))
        options: dict[str, Any] = {"max_holes": 10, "fetch_records": 20}
        async with b.consumer(drain_timeout=0.1, **options) as consumer:
            messages = await _take(consumer, 40)
            for message in messages[1:22:2]:
                message.ack()
            await _until(b, 1.5)
            assert consumer.explain()[ZERO].holes == 11
            assert consumer.stats().paused == (ZERO,)
            b.append("more")
            for message in messages[0:12:2]:
                assert consumer.stats().paused == (ZERO,)
                message.ack()
                await asyncio.sleep(1)
            await asyncio.sleep(1)
            assert consumer.explain()[ZERO].holes == 5
            assert consumer.stats().paused == ()
            assert (await anext(consumer)).value == b"more"

    bench(test)


def test_partition_that_is_paused_for_two_reasons_goes_on_when_both_are_gone() -> None:
    """Whichever goes first."""

    async def test(b: Bench, *, are_holes_first: bool) -> None:
        b.append(*(str(n) for n in range(20)))
        options: dict[str, Any] = {"max_hole_age": 5, "max_in_flight_per_partition": 8}
        async with b.consumer(fetch_records=20, drain_timeout=0.1, **options) as consumer:
            messages = await _take(consumer, 20)
            messages[1].ack()
            await asyncio.sleep(10)
            assert consumer.stats().over_hole_budget == (ZERO,)
            if are_holes_first:
                messages[0].ack()
            else:
                for message in messages[2:]:
                    message.ack()
            await asyncio.sleep(10)
            stats = consumer.stats()
            assert stats.paused == (ZERO,)
            assert (stats.over_hole_budget == ()) is are_holes_first
            assert (stats.in_flight > 4) is are_holes_first
            messages[19].ack_cumulative()
            await asyncio.sleep(2)
            assert consumer.stats().paused == ()

    for are_holes_first in (False, True):

        async def one(b: Bench, *, are_holes_first: bool = are_holes_first) -> None:
            await test(b, are_holes_first=are_holes_first)

        bench(one)


def test_paused_partition_is_retried_drained_and_left_like_any_other() -> None:
    """A pause holds up the fetch alone: the retry that pins it is what ends it."""

    async def test(b: Bench) -> None:
        b.append("poison", "good")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"poison" and message.attempt < 3:
                raise ValueError

        consumer = b.consumer(max_hole_age=2, retry=FOREVER)
        running = asyncio.create_task(b.run(consumer, handle, seconds=200))
        await _until(b, 20)
        assert consumer.stats().paused == (ZERO,)
        b.append("later")
        await _until(b, 59)
        assert b.values == ["poison", "good", "poison"]
        await _until(b, 70)
        assert b.values == ["poison", "good", "poison", "poison", "later"]
        await running
        began = b.simulation.clock.monotonic()
        b.append("poison", "last")
        async with b.consumer(max_hole_age=2, retry=FOREVER, drain_timeout=5) as again:
            (await anext(again)).nack()
            (await anext(again)).ack()
            await asyncio.sleep(10)
            assert again.stats().paused == (ZERO,)
        assert b.simulation.clock.monotonic() - began < 12  # what waits for a retry is left

    bench(test)


def test_paused_partition_that_moves_starts_anew_with_its_next_owner() -> None:
    """The pause is the assignment's, not the partition's."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(4)))
        first = b.consumer(max_hole_age=2, fetch_records=2, drain_timeout=0.5)
        async with first:
            (await _take(first, 4))[1].ack()
            await asyncio.sleep(10)
            assert first.stats().paused == (ZERO,)
            async with Consumer(MemoryAdapter(b.broker, "s", group="g"), clock=b.simulation.clock):
                await asyncio.sleep(3)
            again = await _take(first, 3)
            assert [m.value for m in again] == [b"0", b"2", b"3"]
            assert first.stats().paused == ()

    bench(test)


def test_holes_of_a_checkpoint_that_fetching_has_not_reached_pause_nothing() -> None:
    """Only fetching can close those."""

    async def test(b: Bench) -> None:
        store = MemoryStore()
        b.append(*(str(n) for n in range(60)))
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            for message in (await _take(consumer, 60))[1::2]:
                message.ack()
        limits: dict[str, Any] = {"max_holes": 4, "max_hole_age": 1000, "max_in_flight": 3}
        limited = b.consumer(store=store, fetch_records=2, **limits)
        async with limited as consumer:
            began = b.simulation.clock.monotonic()
            for _ in range(30):
                message = await anext(consumer)
                await asyncio.sleep(0.5)
                message.ack()
            assert b.simulation.clock.monotonic() - began < 20
            assert consumer.stats().hole_alarms == 0
        assert b.committed() == {"0": 60}

    bench(test)


def test_nothing_is_looked_at_closely_where_few_records_are_unsettled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer records than `max_holes` cannot make more holes; nothing at all has no age."""

    def explain(*_: object) -> Explanation:
        raise AssertionError

    async def test(b: Bench) -> None:
        b.append(*"0123")
        async with (
            b.consumer(drain_timeout=0.1) as counted,
            b.consumer("h", max_hole_age=1) as aged,
        ):
            (await _take(counted, 4))[1].ack()
            for message in await _take(aged, 4):
                message.ack()
            await asyncio.sleep(100)

    monkeypatch.setattr(WatermarkTracker, "explain", explain)
    bench(test)


# -- dead_letter ------------------------------------------------------------------------------


def test_oldest_records_are_given_up_until_the_rest_is_young_enough() -> None:
    """Stuck handlers: their late returns change nothing, and what is young enough is kept."""

    async def test(b: Bench) -> None:
        async def handle(message: Message) -> None:
            b.seen.append(message)
            if (message.value or b"").startswith(b"stuck"):
                await asyncio.sleep(200)

        consumer = b.consumer(max_hole_age=60, hole_policy="dead_letter")
        running = asyncio.create_task(b.run(consumer, handle, seconds=300))
        b.append("stuck 1", "good", "stuck 2", "good")
        await _until(b, 40)
        b.append("stuck 3", "good")
        await _until(b, 61.5)
        assert [letter.value for letter in b.letters.kept] == [b"stuck 1", b"stuck 2"]
        assert b.letters.kept[0].error == (
            "over the hole budget (max_holes=10000, max_hole_age=60): pinned by 0 (open, age 61.0 s, "
            "failed attempts 0); holes 3, unsettled 3, bytes 16"
        )
        assert {letter.error_type for letter in b.letters.kept} == {"rejected"}
        assert b.committed() == {"0": 4}
        assert consumer.stats().hole_alarms == 1
        await _until(b, 99)
        assert len(b.letters.kept) == 2
        await running
        assert len(b.seen) == 6
        assert [letter.value for letter in b.letters.kept][2:] == [b"stuck 3"]
        assert (consumer.stats().settled, consumer.stats().dead_lettered) == (6, 3)
        assert b.committed() == {"0": 6}

    bench(test)


def test_no_more_is_given_up_while_the_dead_letters_are_down() -> None:
    """The first one may be all that it takes, and is settled only when it is durable."""

    async def test(b: Bench) -> None:
        b.append(*"0123")
        b.letters = Letters(failures=8)
        options: dict[str, Any] = {"max_holes": 1, "hole_policy": "dead_letter"}
        async with b.consumer(drain_timeout=0.1, **options) as consumer:
            messages = await _take(consumer, 4)
            messages[1].ack()
            messages[3].ack()
            await asyncio.sleep(10)
            assert not messages[0].ack()
            assert consumer.explain()[ZERO].dead_lettering == 1
            await asyncio.sleep(60)
            assert [letter.value for letter in b.letters.kept] == [b"0"]
            assert messages[2].ack()

    bench(test)


@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.NONE])
def test_record_that_fails_for_ever_is_given_up_as_it_waits_for_its_retry(
    ordering: Ordering,
) -> None:
    """Its key goes on at once."""

    async def test(b: Bench) -> None:
        b.append("k=poison", "k=1", "other=2")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"poison":
                raise ValueError

        consumer = b.consumer(retry=FOREVER, max_hole_age=100, hole_policy="dead_letter")
        await b.run(consumer, handle, seconds=110, ordering=ordering)
        is_key = ordering is Ordering.KEY
        assert [v for v in b.values if v != "poison"] == (["2", "1"] if is_key else ["1", "2"])
        assert b.values.count("poison") == 4
        (letter,) = b.letters.kept
        assert (letter.value, letter.attempts) == (b"poison", 4)
        assert "(retrying, age 101.0 s, failed attempts 4)" in letter.error
        assert b.committed() == {"0": 3}

    bench(test)


def test_record_that_waits_for_a_worker_is_not_given_up() -> None:
    """Nobody has had it, however long it waits."""

    async def test(b: Bench) -> None:
        b.append("k=0", "1", "k=2", "3", "4")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"4":
                await asyncio.sleep(100.5)

        consumer = b.consumer(max_hole_age=5, hole_policy="dead_letter")
        running = asyncio.create_task(b.run(consumer, handle, seconds=120, concurrency=1))
        await _until(b, 50)
        assert b.values == ["0", "1", "3", "4"]
        assert consumer.explain()[ZERO].pinned_by == 2
        assert consumer.stats().over_hole_budget == (ZERO,)
        await running
        assert b.values[4:] == ["2"]
        assert b.letters.kept == []

    bench(test)


def test_record_that_waits_to_be_pulled_is_not_given_up() -> None:
    """Neither among runs that nobody has begun, nor in the middle of one."""

    async def test(b: Bench) -> None:
        b.append(*"012345678")
        store = MemoryStore()
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            (await _take(consumer, 9))[8].ack()
        options: dict[str, Any] = {"max_hole_age": 5, "hole_policy": "dead_letter"}
        async with b.consumer(store=store, fetch_records=4, **options) as consumer:
            first, *rest = await _take(consumer, 4)
            first.ack()
            for message in rest:
                message.ack()
            await asyncio.sleep(20)
            assert consumer.explain()[ZERO].pinned_by == 4
            (await anext(consumer)).ack()
            await asyncio.sleep(20)
            assert consumer.explain()[ZERO].pinned_by == 5
            assert consumer.stats().over_hole_budget == (ZERO,)
            assert b.letters.kept == []
            for message in await _take(consumer, 3):
                message.ack()
        assert b.committed() == {"0": 9}

    bench(test)


def test_retry_from_before_a_restart_is_not_given_up_before_it_is_due() -> None:
    """Nobody has had it in this process; then it is like any other."""

    async def test(b: Bench) -> None:
        b.append(*"01")
        store = MemoryStore()
        async with b.consumer(store=store, drain_timeout=0.1, retry=FOREVER) as consumer:
            first, second = await _take(consumer, 2)
            first.nack()
            second.ack()
        options: dict[str, Any] = {"max_hole_age": 5, "hole_policy": "dead_letter"}
        async with b.consumer(store=store, retry=FOREVER, **options) as consumer:
            waiting = asyncio.create_task(anext(consumer))
            await asyncio.sleep(20)
            assert consumer.stats().over_hole_budget == (ZERO,)
            assert b.letters.kept == []
            assert (await waiting).attempt == 2
            await asyncio.sleep(2)
            assert [letter.attempts for letter in b.letters.kept] == [2]

    bench(test)


def test_hooks_are_told_of_what_was_given_up_once() -> None:
    """And of nothing that its handler says later."""
    from tests.runtime.test_hooks import Told

    async def test(b: Bench) -> None:
        told = Told()
        b.append("stuck", "good")
        options: dict[str, Any] = {"max_hole_age": 5, "hole_policy": "dead_letter"}
        async with b.consumer(hooks=told, **options) as consumer:
            stuck, good = await _take(consumer, 2)
            good.ack()
            await asyncio.sleep(10)
            assert not stuck.ack()
            assert not stuck.nack()
        assert [call[:2] for call in told.calls] == [
            ("settled", "good"),
            ("dead_lettered", "stuck"),
        ]

    bench(test)


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"max_holes": 0}, {"max_hole_age": -1}, {"hole_policy": "ignore"}]
)
def test_bad_budget_is_refused_when_built(options: dict[str, Any]) -> None:
    """It names itself, and what to give."""
    broker = MemoryBroker()
    broker.create_stream("s")
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Consumer(MemoryAdapter(broker, "s", group="g"), **options)


def test_budget_may_be_off() -> None:
    """No limit, no look."""

    async def test(b: Bench) -> None:
        b.append(*"012")
        async with b.consumer(max_holes=None, drain_timeout=0.1) as consumer:
            (await _take(consumer, 3))[1].ack()
            await asyncio.sleep(10_000)
            assert consumer.stats().hole_alarms == 0

    bench(test)


class _KeepsNoDeadLetters(MemoryAdapter):
    """Its broker has no place for them."""

    def dead_letters(self) -> DeadLetters:
        return None  # type: ignore[return-value]  # like the base class


def test_giving_up_without_a_place_for_it_is_refused_when_built() -> None:
    """Not when the first record is too old."""
    broker = MemoryBroker()
    broker.create_stream("s")
    with pytest.raises(ConfigurationError, match="dead_letters="):
        Consumer(_KeepsNoDeadLetters(broker, "s", group="g"), hole_policy="dead_letter")


def test_page_shows_what_is_really_said(caplog: pytest.LogCaptureFixture) -> None:
    """The examples of "Why does my position not move?" come from here."""
    shown = Path(__file__).parents[3] / "docs" / "snippets" / "stuck"

    async def test(b: Bench) -> None:
        b.broker.create_stream("orders", 2)
        b.broker.skip("orders", 0, 1040)
        for partition, values in (
            (0, ("good", "hangs", "good", "fails", "good")),
            (1, ["good"] * 18),
        ):
            for key, value in enumerate(values, 41):
                b.broker.append(
                    "orders", f"{value:42}".encode(), key=b"%d" % key, partition=partition
                )

        async def handle(message: Message) -> None:
            value = (message.value or b"").strip()
            if value == b"fails" or (value == b"hangs" and message.attempt == 1):
                raise Retry(delay=0.5 if value == b"hangs" else 1000.0)
            if value == b"hangs":
                await asyncio.sleep(1000)

        adapter = MemoryAdapter(b.broker, "orders", group="g")
        consumer = Consumer(adapter, max_hole_age=300, drain_timeout=1, clock=b.simulation.clock)
        running = asyncio.create_task(consumer.run(handle))
        await _until(b, 312)
        lines = [f"{partition} {found}" for partition, found in consumer.explain().items()]
        assert lines == (shown / "explained.txt").read_text(encoding="utf-8").splitlines()
        consumer.stop()
        await running

    bench(test)
    told = [
        r.getMessage()
        for r in caplog.records
        if r.name == "consumer_sdk.runtime.partitions.gap_budget"
    ]
    assert told == (shown / "alarm.txt").read_text(encoding="utf-8").splitlines()


# -- the budget by itself ---------------------------------------------------------------------


class Budgeted:
    """A partition with five records, all but the first of which are settled, and its budget."""

    def __init__(self, *, age: float = 100.0, acked: int = 4, **options: Any) -> None:
        self.held = Held(5, with_messages=True)
        for message in self.held.messages[5 - acked :]:
            message.ack()
        self.held.it.counted = self.held.it.load()
        self.held.clock.now = age
        context = self.held.context
        context.holdings[self.held.it.assignment] = self.held.it
        self.counts = context.log.events.counts
        given = options_of(clock=self.held.clock, dead_letters=Letters(), **options)
        self.budget = HoleBudget(given, context, unsettled=lambda: self.held.it.tracker.unsettled)

    def look(self) -> tuple[int, int, list[int]]:
        """Alarms, ends of alarms, and what was given up, after one more look."""
        in_loop(self._look)
        return self.counts["hole-alarm"], self.counts["hole-alarm-over"], self.held.lettered

    async def _look(self) -> None:
        await self.budget._look_at_all()


@pytest.mark.parametrize("policy, given_up", [("warn", []), ("pause", []), ("dead_letter", [0])])
def test_record_is_given_up_where_that_is_the_policy_alone(
    policy: str, given_up: list[int]
) -> None:
    """Also where hooks have the consumer keep the message of each record."""
    budgeted = Budgeted(max_hole_age=10, hole_policy=policy)
    assert budgeted.look() == (1, 0, given_up)
    assert budgeted.held.context.totals.hole_alarms == 1
    assert budgeted.look() == (1, 0, given_up)
    if policy != "dead_letter":
        budgeted.held.messages[0].ack()
        assert budgeted.look() == (1, 1, [])


def test_partition_that_is_revoked_or_over_is_not_looked_at() -> None:
    """Its drain ends soon, and what it leaves is the next owner's."""
    draining = Budgeted(max_hole_age=10, hole_policy="dead_letter")
    draining.held.it.start_draining()
    assert draining.look() == (0, 0, [])
    closed = Budgeted(max_hole_age=10, hole_policy="pause")
    assert closed.look() == (1, 0, [])
    closed.held.it.close()
    assert closed.look() == (1, 0, [])
    assert closed.budget._over == set()


@pytest.mark.parametrize("is_overtaken, alarms", [(False, 0), (True, 1)])
def test_age_of_a_record_that_holds_nothing_up_counts_where_a_new_epoch_waits_for_it(
    *, is_overtaken: bool, alarms: int
) -> None:
    """Nothing is settled behind it."""
    budgeted = Budgeted(acked=0, max_hole_age=0.5, hole_policy="pause")
    budgeted.held.it.is_overtaken = is_overtaken
    assert budgeted.look() == (alarms, 0, [])
