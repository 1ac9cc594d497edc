"""`FetchLoop` alone: what it asks for, when it pauses, and what becomes of answers and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk.errors import (
    AdapterError,
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.records import Assignment, Checkpoint, Kind, Message, Partition, Run
from consumer_sdk.runtime.dispatch.lanes import Lanes, Ordering
from consumer_sdk.runtime.fetch_loop import BLOCKER, RESTARTED, FetchLoop
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.testing import MemoryAdapter, MemoryBroker, Simulation, simulate
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from tests.runtime.consumer_options import options_of


class _Adapter:
    """Answers fetches from a list, and then never; notes what it is asked and told."""

    def __init__(self, answers: Sequence[list[Run] | Exception], kind: Kind) -> None:
        memory = MemoryAdapter(MemoryBroker(), "s", group="g").capabilities
        self.capabilities = replace(memory, kind=kind, max_deliveries=2)
        self.answers = list(answers)
        self.asked: list[tuple[float, int, int, float]] = []
        self.told: list[tuple[str, str]] = []

    async def fetch(self, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        now = asyncio.get_running_loop().time()
        self.asked.append((now, max_records, max_bytes, max_wait))
        if not self.answers:
            await asyncio.sleep(1000)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, assignment: Assignment) -> None:
        self.told.append(("pause", assignment.partition.id))

    def resume(self, assignment: Assignment) -> None:
        self.told.append(("resume", assignment.partition.id))


class _Field:
    """A fetch loop with its partitions."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        partitions: int = 1,
        answers: Sequence[list[Run] | Exception] = (),
        kind: Kind = Kind.LOG,
        ordering: Ordering = Ordering.NONE,
        has_dead_letters: bool = True,
        attempts: dict[int, tuple[int, float]] | None = None,
        **options: Any,
    ) -> None:
        self.adapter = _Adapter(answers, kind)
        self.queue = Lanes(ordering)
        self.context = ConsumerContext(clock=simulation.clock, queue=self.queue)
        self.dead: list[tuple[int, int, BaseException | str]] = []
        self.rescheduled: list[HeldPartition] = []
        self.overtaken: list[HeldPartition] = []
        adapter: Any = self.adapter
        self.loop = FetchLoop(
            adapter,
            options_of(**options),
            self.context,
            overtaken=self.overtaken.append,
            has_dead_letters=has_dead_letters,
        )
        callbacks = PartitionCallbacks(
            dead_letter=lambda _, index, message, error: self.dead.append(
                (index, message.attempt, error)
            ),
            reschedule=self.rescheduled.append,
        )
        policy = RetryPolicy(max_attempts=3, initial=10.0, jitter=0.0)
        for number in range(partitions):
            assignment = Assignment(Partition("s", str(number)), epoch=1)
            tracker = WatermarkTracker(assignment, policy=policy)
            holding = HeldPartition(assignment, tracker, self.context, callbacks)
            tracker.restore(Checkpoint(attempts=attempts or {}), 0.0, 0.0, durable=True)
            self.context.holdings[assignment] = holding
        self.held = list(self.context.holdings.values())

    def run(self, *positions: int, of: int = 0, size: int = 0, **options: Any) -> Run:
        """Records of a partition, as fetched."""
        own = self.held[of].assignment
        return Run(own, [Message.make(own, at, b"") for at in positions], size=size, **options)

    def take(self, *positions: int, of: int = 0, size: int = 0) -> list[Message]:
        """They were fetched."""
        run = self.run(*positions, of=of, size=size)
        self.loop._take(run)
        return run.messages

    def has_room(self) -> bool:
        """Whether another fetch would be sent now."""
        return self.loop._has_room()

    async def for_seconds(self, seconds: float) -> None:
        """Runs the loop for so long."""
        running = asyncio.create_task(self.loop.run())
        await asyncio.wait({running}, timeout=seconds)
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()


def _simulated(test: Callable[[Simulation], Any]) -> None:
    async def main(simulation: Simulation) -> None:
        made = test(simulation)
        if made is not None:
            await made

    simulate(main)


def _gaps(times: Sequence[float]) -> list[float]:
    return [round(b - a, 3) for a, b in pairwise(times)]


# -- asking ---------------------------------------------------------------------------------------


def test_failed_fetches_are_tried_again_ever_later_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An answer ends the series; the next failure begins a new one."""
    away = TransientAdapterError("away")

    async def test(simulation: Simulation) -> None:
        field = _Field(simulation, answers=[*[away] * 8, [], away, away])
        await field.for_seconds(30)
        gaps = _gaps([asked[0] for asked in field.adapter.asked])
        assert gaps == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.0, 0.1, 0.2]
        assert field.context.totals.fetch_errors == 10
        assert field.context.log.events.counts["fetch-error"] == 10

    _simulated(test)
    assert "fetch failed, trying again in 0.1 s: " in caplog.text


def test_fetch_waits_briefly_only_while_a_partition_is_paused() -> None:
    """It may have room long before another one has a record; each fetch in vain waits longer."""

    async def test(simulation: Simulation) -> None:
        field = _Field(simulation, partitions=2, fetch_records=7, fetch_bytes=9, fetch_wait=2.0)
        record = [field.run(0, of=1)]
        field.adapter.answers = [[], *[[]] * 7, record, []]
        field.held[0].paused_by_hand = "tired"
        await field.for_seconds(1)
        waits = [asked[3] for asked in field.adapter.asked]
        assert waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5, 0.5, 0.02, 0.04]
        assert {asked[1:3] for asked in field.adapter.asked} == {(7, 9)}
        assert field.context.log.timing.requests()[("receive", None)].counts[0] == 10

        field = _Field(simulation, fetch_wait=2.0, answers=[[], []])
        await field.for_seconds(1)
        assert [asked[3] for asked in field.adapter.asked] == [2.0, 2.0, 2.0]

        quick = _Field(simulation, fetch_wait=0.03, answers=[[], []])
        quick.held[0].paused_by_hand = "tired"
        await quick.for_seconds(1)
        assert [asked[3] for asked in quick.adapter.asked] == [0.02, 0.03, 0.03]

    _simulated(test)


def test_fetch_of_a_queue_asks_for_what_there_is_room_for() -> None:
    """Nobody else can have what is fetched and waits; of a log the limit alone counts."""

    def test(simulation: Simulation) -> None:
        for kind, expected in ((Kind.QUEUE, [10, 7, 9, 1]), (Kind.LOG, [20, 20, 20, 20])):
            field = _Field(
                simulation, kind=kind, max_in_flight=10, fetch_records=20, max_retrying=2
            )
            asked = [field.loop._most_records()]
            messages = field.take(0, 1, 2)
            assert field.has_room()
            asked.append(field.loop._most_records())
            for message in messages:
                message.nack(50.0)
            assert field.has_room()
            asked.append(field.loop._most_records())  # two of three retries take no room
            field.take(*range(3, 20))
            asked.append(field.loop._most_records())
            assert asked == expected

        field = _Field(simulation, kind=Kind.QUEUE, max_in_flight=10)
        field.take(0, 1, 2)[0].nack(50.0)
        for _ in range(2):
            field.held[0].note_change()
            assert field.has_room()
            assert field.loop._most_records() == 8

    _simulated(test)


# -- room -----------------------------------------------------------------------------------------


def test_full_window_has_room_again_when_half_of_it_is_settled() -> None:
    """Of records and of bytes; a retry takes no room, up to the limit."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, max_in_flight=4, max_retrying=1)
        messages = field.take(0, 1, 2)
        assert field.has_room()
        messages += field.take(3)
        assert not field.has_room()
        field.loop.is_full = True
        assert messages[0].ack()
        messages[1].nack(50.0)
        assert not field.has_room()  # two in flight
        assert messages[2].ack()
        assert field.has_room()

        heavy = _Field(simulation, max_in_flight_bytes=100)
        messages = heavy.take(0, 1, 2, size=99)
        assert heavy.has_room()
        messages += heavy.take(3, size=1)
        assert not heavy.has_room()
        heavy.loop.is_full = True
        messages[0].ack()
        messages[1].ack()
        assert not heavy.has_room()  # 50
        messages[2].ack()
        assert heavy.has_room()

    _simulated(test)


def test_full_window_is_looked_at_ever_later_unless_something_is_settled() -> None:
    """Those who wait for more are told; a nudge ends the wait at once."""

    async def test(simulation: Simulation) -> None:
        field = _Field(simulation, max_in_flight=2)
        messages = field.take(0, 1)
        looks: list[float] = []
        time = asyncio.get_running_loop().time
        field.loop.filled = lambda: looks.append(time())
        running = asyncio.create_task(field.loop.run())
        await asyncio.sleep(3.0)
        assert field.loop.is_full
        assert field.queue.is_full
        assert _gaps(looks)[:8] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]
        looks.clear()
        await asyncio.sleep(0.3)
        field.loop.nudge()
        nudged = time()
        await asyncio.sleep(0.1)
        assert [nudged, *_gaps([at for at in looks if at >= nudged])] == [nudged, 0.02, 0.04]
        assert not field.adapter.asked
        for message in messages:
            message.ack()
        field.loop.nudge()
        await asyncio.sleep(0.001)
        assert len(field.adapter.asked) == 1
        assert (field.loop.is_full, field.queue.is_full) == (False, False)
        running.cancel()
        await asyncio.wait({running})

    _simulated(test)


def test_partition_over_its_share_is_paused_until_half_of_it_is_settled() -> None:
    """The share follows from how many are held, if it is not given."""

    def test(simulation: Simulation) -> None:
        for given, expected in ((None, 4), (3, 3)):
            field = _Field(
                simulation, partitions=2, max_in_flight=6, max_in_flight_per_partition=given
            )
            messages = field.take(*range(expected - 1))
            assert field.has_room()
            assert field.adapter.told == []
            messages += field.take(expected - 1)
            assert field.has_room()
            assert field.adapter.told == [("pause", "0")]
            assert field.loop.paused == {field.held[0]}
            while len(messages) > expected // 2 + 1:
                messages.pop().ack()
            assert field.has_room()
            assert field.adapter.told == [("pause", "0")]
            messages.pop().ack()
            assert field.has_room()
            assert field.adapter.told == [("pause", "0"), ("resume", "0")]
            assert field.loop.paused == set()
        many = _Field(simulation, partitions=9, max_in_flight=2)
        assert many.has_room()
        assert many.adapter.told == []
        many.take(0)
        assert many.has_room()
        assert many.adapter.told == [("pause", "0")]

    _simulated(test)


def test_share_changes_with_the_partitions_and_all_are_looked_at() -> None:
    """One that has less than its share is resumed, though nothing of its own has changed."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, partitions=3, max_in_flight=8)
        field.take(0, 1, 2, 3)
        assert field.has_room()
        assert field.adapter.told == [("pause", "0")]
        for gone in field.held[1:]:
            del field.context.holdings[gone.assignment]
        assert field.has_room()
        assert field.adapter.told == [("pause", "0"), ("resume", "0")]

    _simulated(test)


def test_retries_take_no_room_of_their_partition_up_to_the_limit() -> None:
    """A key that keeps failing holds up no other."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, max_in_flight_per_partition=2, max_retrying=1)
        first, second = field.take(0, 1)
        first.nack(50.0)
        assert field.has_room()
        assert field.adapter.told == []
        field.take(2)
        assert field.has_room()
        assert field.adapter.told == [("pause", "0")]
        second.ack()
        assert field.has_room()
        assert field.adapter.told == [("pause", "0"), ("resume", "0")]

    _simulated(test)


@pytest.mark.parametrize("policy, pauses", [("pause", True), ("warn", False)])
def test_partition_is_paused_by_what_pins_it_and_all_have_to_go(
    policy: str, *, pauses: bool
) -> None:
    """Its holes, if that is their policy, and a person."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, hole_policy=policy)
        (holding,) = field.held
        told: list[tuple[str, str]] = []

        def look(*, over: bool, by: str | None) -> None:
            holding.is_over_budget, holding.paused_by_hand = over, by
            holding.note_change()
            assert field.has_room()
            told[:], field.adapter.told = field.adapter.told, []

        look(over=True, by=None)
        assert told == ([("pause", "0")] if pauses else [])
        look(over=True, by="tired")
        assert told == ([] if pauses else [("pause", "0")])
        look(over=False, by="tired")
        assert told == []
        look(over=False, by=None)
        assert told == [("resume", "0")]
        look(over=False, by=None)
        assert told == []

    _simulated(test)


def test_closed_partition_is_neither_paused_nor_counted() -> None:
    """What it had in flight makes room."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, max_in_flight=2, partitions=2)
        field.held[0].paused_by_hand = "tired"
        field.take(0, 1, size=10)
        assert not field.has_room()
        assert field.loop.paused == {field.held[0]}
        field.held[0].close()
        assert field.has_room()
        assert (field.loop.unsettled, field.loop.paused) == (0, set())
        assert field.adapter.told == [("pause", "0")]
        field.take(2)
        assert (field.loop.unsettled, field.queue.available) == (0, 2)

    _simulated(test)


@pytest.mark.parametrize("partitions", [1, 3])
def test_loop_turns_between_fetches_and_while_many_partitions_are_counted(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the adapter has its records at hand; and no time is lost with waiting."""
    monkeypatch.setattr("consumer_sdk.runtime.fetch_loop.SLICE", 1)

    async def test(simulation: Simulation) -> None:
        field = _Field(simulation, partitions=partitions, max_in_flight=4, answers=[[]] * 5)
        for number in range(partitions):
            for message in field.take(0, 1, 2, of=number):
                message.ack()
        seen: list[int] = []

        async def look() -> None:
            for _ in range(10):
                seen.append(len(field.adapter.asked))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await field.for_seconds(1)
        await looking
        assert [asked[0] for asked in field.adapter.asked] == [0.0] * 6
        assert [*dict.fromkeys(seen)] == [0, 1, 2, 3, 4, 5, 6]
        assert seen.count(0) == min(partitions, 2)

    _simulated(test)


def test_partition_that_changed_first_is_counted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is time for some alone; and what is counted is news for a snapshot."""
    monkeypatch.setattr("consumer_sdk.runtime.fetch_loop.SLICE", 1)

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, partitions=3, max_in_flight_per_partition=1)
        for number in (1, 0, 2):
            field.take(0, of=number)
            field.held[number].is_news = False
        for number in (1, 0, 2):
            field.context.changed.move_to_end(field.held[number])
        assert field.has_room()
        assert field.adapter.told == [("pause", "1")]
        assert [holding.is_news for holding in field.held] == [False, True, False]
        assert field.has_room()
        assert field.adapter.told == [("pause", "1"), ("pause", "0")]

    _simulated(test)


# -- faults ---------------------------------------------------------------------------------------


def test_partition_that_fails_for_now_is_resumed_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Unless something has paused it meanwhile, or it is over."""

    async def test(simulation: Simulation) -> None:
        for state in ("held", "paused", "closed"):
            field = _Field(simulation)
            (holding,) = field.held
            field.loop._take(field.run(fault=TransientAdapterError("away")))
            assert field.context.totals.fetch_errors == 1
            (event,) = field.context.log.events.all()
            assert (event.kind, event.partitions) == (
                "fetch-error",
                (holding.assignment.partition,),
            )
            holding.is_paused = state == "paused"
            if state == "closed":
                holding.close()
            await asyncio.sleep(0.09)
            assert field.adapter.told == []
            await asyncio.sleep(0.02)
            assert field.adapter.told == ([("resume", "0")] if state == "held" else [])

    _simulated(test)
    assert "s/0: fetch failed, trying again: " in caplog.text


@pytest.mark.parametrize("out_of_range", ["earliest", "fail"])
def test_position_that_is_gone_starts_anew_or_ends_the_consumer(
    out_of_range: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A new epoch begins, once what was fetched is settled."""
    gone = PositionOutOfRangeError("gone")

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, out_of_range=out_of_range)
        assert field.has_room()
        field.context.changed.clear()
        if out_of_range == "fail":
            with pytest.raises(PositionOutOfRangeError):
                field.loop._take(field.run(fault=gone))
            assert not field.overtaken
        else:
            field.loop._take(field.run(fault=gone))
            assert field.overtaken == field.held
            assert list(field.context.changed) == field.held

    _simulated(test)
    assert ("s/0: gone" in caplog.text) == (out_of_range != "fail")


@pytest.mark.parametrize(
    "option, has_dead_letters, deliveries, advice",
    [
        ("fail", True, None, "give the consumer unreadable='dead_letter' to keep"),
        ("fail", True, {0: 1}, "give the consumer unreadable='dead_letter' to keep"),
        ("fail", True, {0: 2}, None),
        ("dead_letter", True, None, None),
        ("dead_letter", False, None, "give the consumer dead_letters=… to keep"),
        ("fail", False, {0: 2}, "give the consumer unreadable='dead_letter' to keep"),
    ],
)
def test_unreadable_record_ends_the_consumer_or_is_kept(
    option: str,
    deliveries: dict[int, int] | None,
    advice: str | None,
    caplog: pytest.LogCaptureFixture,
    *,
    has_dead_letters: bool,
) -> None:
    """A queue's last delivery is kept in any case, if it can be: the broker would give it up."""
    fault = UnreadableRecordError("damaged")

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, unreadable=option, has_dead_letters=has_dead_letters)
        run = field.run(0, fault=fault, deliveries=deliveries, size=5)
        if advice is None:
            field.loop._take(run)
            assert field.dead == [(0, 1, fault)]
            assert field.loop.unsettled == 1
            assert field.adapter.told == [("resume", "0")]
        else:
            with pytest.raises(UnreadableRecordError, match=advice) as raised:
                field.loop._take(run)
            assert raised.value.__cause__ is fault
            assert (field.dead, field.adapter.told) == ([], [])

    _simulated(test)
    assert ("its bytes go to the dead letters" in caplog.text) == (advice is None)


@pytest.mark.parametrize("fault", [UnreadableRecordError("damaged"), AdapterError("refused")])
def test_fault_without_a_record_is_raised_as_it_is(fault: Exception) -> None:
    """There are no bytes to keep; and it says nothing of the position."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, unreadable="dead_letter", out_of_range="earliest")
        with pytest.raises(AdapterError) as raised:
            field.loop._take(field.run(fault=fault))
        assert raised.value is fault

    _simulated(test)


def test_unreadable_record_at_its_limit_is_given_up_with_the_fault() -> None:
    """The checkpoint has counted its deliveries; that it cannot be read says more than the limit."""
    fault = UnreadableRecordError("damaged")

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, unreadable="dead_letter", attempts={0: (3, 0.0)})
        field.loop._take(field.run(0, fault=fault))
        assert field.dead == [(0, 1, fault)]

    _simulated(test)


@pytest.mark.parametrize("state", ["gone", "draining", "closed"])
@pytest.mark.parametrize("fault", [None, AdapterError("refused")])
def test_answer_for_a_partition_that_is_over_is_dropped(
    state: str, fault: Exception | None
) -> None:
    """Its records are another consumer's, and so are its faults."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation)
        run = field.run(0, 1, fault=fault)
        (holding,) = field.held
        if state == "gone":
            field.context.holdings.clear()
        elif state == "draining":
            holding.start_draining()
        else:
            holding.close()
        field.loop._take(run)
        assert (holding.fetched, field.queue.available, field.loop.unsettled) == (0, 0, 0)

    _simulated(test)


# -- what the checkpoint knows --------------------------------------------------------------------


def test_records_that_the_checkpoint_knows_are_held_given_up_or_delivered_again() -> None:
    """One that waits for its retry, one at the limit, one that has failed, and a new one."""

    def test(simulation: Simulation) -> None:
        attempts = {0: (1, 50.0), 1: (3, 0.0), 2: (1, 0.0), 4: (3, 0.0)}
        field = _Field(simulation, attempts=attempts)
        (holding,) = field.held
        holding.blockers = {4: 2}
        field.take(0, 1, 2, 3, 4, size=50)
        assert field.dead == [(1, 1, RESTARTED), (4, 2, BLOCKER)]
        assert field.rescheduled == [holding]
        assert field.loop.unsettled == 5
        taken = [field.queue.take(1), field.queue.take(1)]
        found = [(m.position, m.attempt) for each in taken if each for m in each[1]]
        assert found == [(2, 2), (3, 1)]
        assert field.queue.take(1) is None

    _simulated(test)


def test_retry_that_is_not_due_keeps_its_place_in_its_lane() -> None:
    """What is behind it waits."""

    def test(simulation: Simulation) -> None:
        field = _Field(simulation, ordering=Ordering.PARTITION, attempts={0: (1, 50.0)})
        field.take(0, 1)
        assert field.queue.take(10) is None

    _simulated(test)
