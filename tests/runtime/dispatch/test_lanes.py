"""`Lanes` alone: what is counted as waiting behind a retry, and what is not handed out."""

from __future__ import annotations

from collections import deque

from consumer_sdk.records import Assignment, Checkpoint, Message, Partition, Redelivery, Run
from consumer_sdk.runtime import Ordering
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from tests.runtime.partitions.held import Clock


def _with_ordering_key(message: Message, key: bytes) -> Message:
    """A record as Pulsar's may be."""
    copy = Redelivery.of(message, 1)
    copy.ordering_key = key
    return copy


class _Field:
    """Lanes, with one holding.

    Args:
        attempts: position → (failures, due) of the checkpoint that it starts from.
        ordering: of the lanes.
        beside: a field of another partition, in the same lanes.
    """

    def __init__(
        self,
        attempts: dict[int, tuple[int, float]] | None = None,
        *,
        ordering: Ordering = Ordering.PARTITION,
        beside: _Field | None = None,
    ) -> None:
        self.clock: Clock = Clock() if beside is None else beside.clock
        policy = RetryPolicy(max_attempts=9, initial=1.0, jitter=0.0)
        self.assignment = Assignment(Partition("s", "0" if beside is None else "1"), epoch=1)
        tracker = WatermarkTracker(self.assignment, policy=policy)
        self.lanes: Lanes = Lanes(ordering) if beside is None else beside.lanes
        context = ConsumerContext(clock=self.clock, queue=self.lanes)
        callbacks = PartitionCallbacks(dead_letter=lambda *_: None, reschedule=lambda _: None)
        self.holding = HeldPartition(self.assignment, tracker, context, callbacks)
        tracker.restore(Checkpoint(attempts=attempts or {}), 0.0, 0.0, durable=True)
        self.last = -1

    def put(
        self, count: int, *, key: bytes | None = None, ordering_key: bytes | None = None
    ) -> list[Message]:
        """So many new records; those whose retry is not due yet are held."""
        positions = range(self.last + 1, self.last + 1 + count)
        self.last += count
        own = self.assignment
        messages = [Message.make(own, at, b"", key=key) for at in positions]
        if ordering_key is not None:
            messages = [_with_ordering_key(message, ordering_key) for message in messages]
        run = Run(own, messages)
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
    field.put(1)
    assert (field.lanes.available, field.holding.blocked) == (6, 0)
    taken = field.lanes.take(10)
    assert taken is not None
    assert [(m.position, m.attempt) for m in taken[1]] == [(0, 2), (1, 1)]


def test_held_retry_that_is_due_behind_another_one_waits_like_any_record() -> None:
    """It is no retry any more, and its lane is still parked or waits for a nacked one."""
    field = _Field({0: (1, 7.0), 1: (1, 5.0)})
    field.put(3)
    assert field.take(10) == []
    field.pass_time(5.0)
    assert field.lanes.available == 0
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


def test_records_of_a_lost_partition_are_not_handed_out_before_they_are_swept() -> None:
    """Nor after: those of the others are, and are counted."""
    for is_swept in (False, True):
        lost = _Field()
        kept = _Field(beside=lost)
        lost.put(2)
        kept.put(3)
        lost.holding.close()
        assert len(lost.lanes.sweep() if is_swept else []) == is_swept
        assert kept.lanes.available == (3 if is_swept else 5)
        assert kept.take(10) == [0, 1, 2]
        assert kept.lanes.available == 0
        assert kept.take(10) == []
        assert kept.lanes.sweep() == []


def test_purge_of_one_partition_leaves_those_of_others() -> None:
    """In lanes of a single record too; what is in a handler stays there."""
    for ordering in (Ordering.PARTITION, Ordering.NONE):
        gone = _Field(ordering=ordering)
        kept = _Field(beside=gone, ordering=ordering)
        gone.put(3)
        kept.put(2)
        assert gone.take(1) == [0]
        (purged,) = gone.lanes.purge([gone.holding]).values()
        assert [message.position for message in purged] == [1, 2]
        assert gone.lanes.available == 2
        assert sorted([*kept.take(2), *kept.take(2)]) == [0, 1]
        assert kept.take(1) == []
        assert gone.lanes.purge([gone.holding, kept.holding]) == {
            gone.holding: [],
            kept.holding: [],
        }


def test_record_is_found_with_what_it_waits_for() -> None:
    """A worker, or a retry ahead of it; one in a handler is not found here."""
    field = _Field()
    first, *_ = field.put(2)
    assert field.lanes.find(field.holding, 0) == ("queued", first)
    assert field.take(1) == [0]
    assert field.lanes.find(field.holding, 0) == ("queued", None)
    first.nack(5.0)
    field.done()
    state, found = field.lanes.find(field.holding, 1)
    assert (state, found and found.position) == ("behind a retry", 1)
    parked = _Field({0: (1, 5.0)})
    parked.put(2)
    assert parked.take(1) == []
    assert parked.lanes.find(parked.holding, 1)[0] == "behind a retry"


def test_key_of_a_lane_is_known_by_the_retry_that_it_waits_for() -> None:
    """A partition's lane has none."""
    field = _Field(ordering=Ordering.KEY)
    other = field.put(1, key=b"other")
    first = field.put(2, key=b"k")
    assert sorted([*field.take(1), *field.take(1)]) == [0, 1]
    for message in (*other, first[0]):
        message.nack(5.0)
    for key in (b"other", b"k"):
        field.lanes.done(field.holding.lanes[key])
    assert field.lanes.key_of(field.holding, 0) == b"other"
    assert field.lanes.key_of(field.holding, 1) == b"k"
    assert field.lanes.key_of(field.holding, 2) is None

    ordered = _Field()
    (message,) = ordered.put(1)
    assert ordered.take(1) == [0]
    message.nack(5.0)
    ordered.done()
    assert ordered.lanes.key_of(ordered.holding, 0) is None


def test_records_of_one_ordering_key_share_a_lane_and_those_without_any_are_alone() -> None:
    """It stands for the key; an empty key is none."""
    field = _Field(ordering=Ordering.KEY)
    for key, ordering_key in ((b"a", b"o"), (b"b", b"o"), (b"a", None), (b"", None), (b"", None)):
        field.put(1, key=key, ordering_key=ordering_key)
    assert set(field.holding.lanes) == {b"o", b"a"}
    assert sorted(field.take(1) for _ in range(5)) == [[], [0], [2], [3], [4]]


def test_retry_of_a_record_without_a_lane_is_available_at_once() -> None:
    """Ahead of new ones; it is counted while it waits."""
    field = _Field(ordering=Ordering.NONE)
    (first,) = field.put(1)
    assert field.take(1) == [0]
    first.nack(1.0)
    field.put(1)
    field.pass_time(1.0)
    assert field.lanes.available == 2
    assert [*field.take(1), *field.take(1)] == [0, 1]
    assert field.lanes.available == 0


def test_cumulative_ack_ends_the_wait_for_retries_up_to_its_record_and_for_no_later_one() -> None:
    """Whether the handler of what it acks goes on or has returned."""
    for is_running in (False, True):
        field = _Field()
        first, second, third, _ = field.put(4)
        assert field.take(3) == [0, 1, 2]
        first.nack(5.0)
        third.nack(5.0)
        if not is_running:
            field.done()
        assert field.holding.ack_cumulative(second)
        if is_running:
            field.done()
        assert field.take(10) == []
        field.pass_time(5.0)
        assert field.take(10) == [2, 3]


def test_lane_waits_for_each_retry_of_a_batch_whose_handler_goes_on() -> None:
    """One that will not come ends the wait for that one alone."""
    field = _Field()
    first, second, _ = field.put(3)
    assert field.take(2) == [0, 1]
    first.nack(5.0)
    second.nack(5.0)
    assert field.holding.take_out(0, first, "too old")
    field.done()
    assert field.take(10) == []
    field.pass_time(5.0)
    assert field.take(10) == [1, 2]


def test_records_that_begin_to_wait_behind_a_retry_are_news_for_the_fetch_loop() -> None:
    """They take no room any more."""
    field = _Field()
    first, *_ = field.put(3)
    assert field.take(1) == [0]
    first.nack(5.0)
    field.holding.context.changed.clear()
    field.done()
    assert field.holding in field.holding.context.changed


def test_delivery_that_ends_after_its_partition_was_lost_leaves_nothing_to_take() -> None:
    """What was behind it in its lane is another consumer's."""
    field = _Field()
    field.put(3)
    taken = field.lanes.take(1)
    assert taken is not None
    field.holding.close()
    assert field.lanes.sweep() == []
    field.lanes.done(taken[0])
    assert (field.lanes.available, len(field.lanes.ready), taken[0].running) == (0, 0, 0)


def test_lane_of_one_record_is_not_running_after_its_delivery() -> None:
    """Else it would count as a busy handler."""
    field = _Field(ordering=Ordering.NONE)
    field.put(1)
    taken = field.lanes.take(1)
    assert taken is not None
    assert taken[0].running == 1
    field.lanes.done(taken[0])
    assert taken[0].running == 0


def test_record_without_a_lane_is_looked_for_in_its_own_partition() -> None:
    """Others have records of the same index and position."""
    mine = _Field(ordering=Ordering.NONE)
    other = _Field(beside=mine)
    first, second = mine.put(2)
    assert mine.take(1) == [0]
    (same,) = other.put(1)
    assert [mine.lanes.is_waiting(mine.holding, each) for each in (first, second)] == [False, True]
    assert mine.lanes.is_waiting(other.holding, same)
    assert mine.lanes.find(mine.holding, 0) == ("queued", None)
    assert mine.lanes.find(mine.holding, 1) == ("queued", second)
    assert mine.lanes.find(other.holding, 0) == ("queued", same)


def test_purge_leaves_held_retries_to_the_tracker_and_nothing_waits_behind_them() -> None:
    """They count as retries: purged as well, they would be taken off what is in flight twice."""
    field = _Field({0: (1, 5.0), 2: (1, 7.0)})
    field.put(4)
    assert field.take(10) == []
    assert field.holding.blocked == 2
    (purged,) = field.lanes.purge([field.holding]).values()
    assert [message.position for message in purged] == [1, 3]
    assert field.holding.blocked == 0

    waiting = _Field()
    first, *_ = waiting.put(3)
    assert waiting.take(1) == [0]
    first.nack(5.0)
    waiting.done()
    assert waiting.holding.blocked == 2
    (purged,) = waiting.lanes.purge([waiting.holding]).values()
    assert [message.position for message in purged] == [1, 2]
    assert waiting.holding.blocked == 0


def test_rest_of_a_batch_waits_again_or_is_taken_out_where_its_lane_was() -> None:
    """A revoke has purged the lane meanwhile: its drain does not wait for what nobody takes."""
    for is_purged in (False, True):
        field = _Field()
        field.put(5)
        assert field.take(4) == [0, 1, 2, 3]
        lane = field.holding.lanes["partition"]
        if is_purged:
            field.lanes.purge([field.holding])
        lane.give_back(1)
        assert lane.running == 1
        assert field.holding.purged == (3 if is_purged else 0)


def test_long_lane_is_as_quick_as_a_short_one() -> None:
    """Most lanes have one record or two, and take little memory; of a long one the head is taken each time."""
    field, kinds = _Field(), []
    for count in (7, 1):
        field.put(count)
        kinds.append(type(field.holding.lanes["partition"].queue))
    assert kinds == [list, deque]
    assert field.take(10) == list(range(8))
