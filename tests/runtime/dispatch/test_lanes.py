"""`Lanes` alone: what is counted as waiting behind a retry, and what is not handed out."""

from __future__ import annotations

from consumer_sdk.records import Assignment, Checkpoint, Message, Partition, Redelivery, Run
from consumer_sdk.runtime import Ordering
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker

ASSIGNMENT = Assignment(Partition("s", "0"), epoch=1)


class _Clock:
    """Stands still until it is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    wall = monotonic


class _Field:
    """Lanes in partition order, with one holding.

    Args:
        attempts: position → (failures, due) of the checkpoint that it starts from.
    """

    def __init__(self, attempts: dict[int, tuple[int, float]] | None = None) -> None:
        self.clock = _Clock()
        policy = RetryPolicy(max_attempts=9, initial=1.0, jitter=0.0)
        tracker = WatermarkTracker(ASSIGNMENT, policy=policy)
        self.lanes = Lanes(Ordering.PARTITION)
        context = ConsumerContext(clock=self.clock, queue=self.lanes)
        callbacks = PartitionCallbacks(dead_letter=lambda *_: None, reschedule=lambda _: None)
        self.holding = HeldPartition(ASSIGNMENT, tracker, context, callbacks)
        tracker.restore(Checkpoint(attempts=attempts or {}), 0.0, 0.0, durable=True)
        self.last = -1

    def put(self, count: int) -> list[Message]:
        """So many new records; those whose retry is not due yet are held."""
        positions = range(self.last + 1, self.last + 1 + count)
        self.last += count
        run = Run(ASSIGNMENT, [Message.make(ASSIGNMENT, at, b"") for at in positions])
        held = set(self.holding.track(run).held)
        for message in run.messages:
            if message.index in held:
                self.lanes.hold(self.holding, message)
            else:
                self.lanes.put(self.holding, [message])
        return run.messages

    def pass_time(self, seconds: float) -> None:
        """What is due comes back."""
        self.clock.now += seconds
        for index, attempt, message in self.holding.tracker.due(self.clock.now).ready:
            again = Redelivery.of(message, attempt)
            again.holder, again.index = self.holding, index
            self.lanes.put_back(self.holding, again)

    def take(self, most: int) -> list[int]:
        """The positions of what is handed out together, now."""
        taken = self.lanes.take(most)
        return [message.position for message in taken[1]] if taken else []

    def done(self) -> None:
        """The deliveries that were taken are over."""
        self.lanes.done(self.holding.lanes["partition"])


def test_parked_lane_counts_what_waits_behind_its_retries_and_not_the_retries() -> None:
    """The tracker counts a held retry; counted twice, it would make room for one too many."""
    field = _Field({0: (1, 5.0), 2: (1, 7.0)})
    field.put(4)
    assert field.take(10) == []
    assert (field.holding.tracker.retrying, field.holding.blocked) == (2, 2)
    field.put(1)
    assert field.holding.blocked == 3
    field.pass_time(5.0)
    assert (field.holding.tracker.retrying, field.holding.blocked) == (1, 0)
    assert field.take(10) == [0, 1]


def test_held_retry_that_is_due_behind_another_one_waits_like_any_record() -> None:
    """It is no retry any more, and its lane is still parked or waits for a nacked one."""
    field = _Field({0: (1, 7.0), 1: (1, 5.0)})
    field.put(3)
    assert field.take(10) == []
    field.pass_time(5.0)
    assert field.take(10) == []
    assert (field.holding.tracker.retrying, field.holding.blocked) == (1, 2)

    nacked = _Field({1: (1, 5.0)})
    first, *_ = nacked.put(3)
    assert nacked.take(10) == [0]
    first.nack(9.0)
    nacked.done()
    assert (nacked.holding.tracker.retrying, nacked.holding.blocked) == (2, 1)
    nacked.pass_time(5.0)
    assert (nacked.holding.tracker.retrying, nacked.holding.blocked) == (1, 2)
    nacked.pass_time(4.0)
    assert nacked.holding.blocked == 0
    assert nacked.take(10) == [0, 1, 2]


def test_redelivery_settled_while_it_was_queued_is_not_handed_out() -> None:
    """Neither at the head of its lane nor in the middle of a batch; an empty lane ends."""
    field = _Field()
    messages = field.put(4)
    assert field.take(10) == [0, 1, 2, 3]
    for message in messages:
        message.nack(1.0)
    field.done()
    field.pass_time(1.0)
    field.holding.ack(0)
    field.holding.ack(2)
    assert field.take(10) == [1, 3]
    assert field.lanes.available == 0

    ended = _Field()
    (only,) = ended.put(1)
    assert ended.take(10) == [0]
    only.nack(1.0)
    ended.done()
    ended.pass_time(1.0)
    ended.holding.ack(0)
    assert ended.take(10) == []
    assert (ended.holding.lanes, ended.holding.retries) == ({}, {})
    ended.put(1)
    assert ended.take(10) == [1]


def test_retry_of_a_delivery_that_failed_after_its_handler_returned_holds_no_lane() -> None:
    """Its tree failed: the lane has gone on, and still waits for what it has to wait for."""
    field = _Field()
    messages = field.put(4)
    assert field.take(1) == [0]
    field.done()
    assert field.take(1) == [1]
    messages[0].nack(1.0)
    field.pass_time(1.0)
    messages[1].nack(5.0)
    field.done()
    assert field.take(10) == []
    assert field.holding.blocked == 3
    field.pass_time(5.0)
    assert field.take(10) == [0, 1, 2, 3]
    assert (field.lanes.available, field.holding.blocked) == (0, 0)


def test_retry_that_comes_into_a_lane_that_is_ready_or_parked_takes_its_place() -> None:
    """In index order, whatever the lane is doing; and it is counted."""
    field = _Field()
    (first, *_) = field.put(3)
    assert field.take(1) == [0]
    field.done()
    first.nack(1.0)
    field.pass_time(1.0)
    assert field.lanes.available == 3
    assert field.take(10) == [0, 1, 2]
    assert field.lanes.available == 0

    parked = _Field({1: (1, 50.0)})
    (first, *_) = parked.put(3)
    assert parked.take(1) == [0]
    parked.done()
    assert parked.take(1) == []
    first.nack(1.0)
    parked.pass_time(1.0)
    assert parked.take(10) == [0]
    parked.done()
    assert parked.take(10) == []
    parked.pass_time(49.0)
    assert parked.take(10) == [1, 2]
    assert (parked.lanes.available, parked.holding.blocked) == (0, 0)


def test_retry_that_is_given_up_before_its_time_holds_its_lane_no_more() -> None:
    """Whether its handler has returned or goes on; a lane with nothing else in it ends."""
    for is_running in (False, True):
        field = _Field()
        (first, *_) = field.put(2)
        assert field.take(1) == [0]
        first.nack(5.0)
        if not is_running:
            field.done()
        assert field.holding.take_out(0, first, "too old")
        assert not field.holding.take_out(0, first, "too old")
        if is_running:
            assert field.take(1) == []
            field.done()
        assert field.take(1) == [1]
        field.done()
        assert field.holding.lanes == {}

    two = _Field()
    (first, second, _) = two.put(3)
    assert two.take(2) == [0, 1]
    first.nack(5.0)
    second.nack(5.0)
    two.done()
    assert two.holding.take_out(0, first, "too old")
    assert two.take(1) == []
    two.pass_time(5.0)
    assert two.take(2) == [1, 2]

    alone = _Field()
    (only,) = alone.put(1)
    assert alone.take(1) == [0]
    only.nack(5.0)
    alone.done()
    assert alone.holding.take_out(0, only, "too old")
    assert alone.holding.lanes == {}
    assert alone.holding.tracker.next_due() is None
