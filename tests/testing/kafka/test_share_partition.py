"""The model of a share partition answers as Kafka 4.3 does."""

from __future__ import annotations

from typing import Any

from consumer_sdk.adapters.kafka.share.messages import AckBatch, AckType, AcquireMode
from consumer_sdk.testing.kafka import Code, Limits, Outcome, PartitionLog, RecordState
from consumer_sdk.testing.kafka.share_log import StoredState
from consumer_sdk.testing.kafka.share_partition import SharePartition

LOCK = 30.0


class Talk:
    """A share partition, its log, and members that are played by hand."""

    def __init__(self, *sizes: int, **limits: Any) -> None:
        self.log, self.stored = PartitionLog(), StoredState()
        self.limits = Limits(**limits)
        for size in sizes:
            self.log.append(size)
        self.now = 0.0
        self.partition = self.load()

    def load(self) -> SharePartition:
        """As another leader reads it."""
        self.partition = SharePartition.load(self.log, self.stored, self.limits, is_latest=False)
        return self.partition

    def fetch(self, member: str = "a", most: int = 500, **options: Any) -> list[tuple[int, ...]]:
        """What it acquires: first and last offset, delivery count."""
        if not self.partition.can_acquire():
            return []
        offset = self.partition.next_offset()
        batches = self.log.read(offset, 1_000_000)
        given = {"max_records": most, **options}
        return list(map(tuple, self.partition.acquire(member, batches, offset, self.now, **given)))

    def ack(self, first: int, last: int, *types: AckType, member: str = "a") -> Code:
        """Acknowledges a range, by default accepting it."""
        kinds = types or (AckType.ACCEPT,)
        return self.partition.acknowledge(member, [AckBatch(first, last, kinds)], self.now)

    def pass_time(self, seconds: float) -> None:
        """Locks end meanwhile."""
        self.now += seconds
        self.partition.expire(self.now)


def test_new_records_are_acquired_by_whole_batches() -> None:
    """The limit may be passed, to the end of a batch; the next member gets what comes after it."""
    talk = Talk(5, 5, 5)
    assert talk.fetch("a", 7) == [(0, 9, 1)]
    assert talk.fetch("b", 7) == [(10, 14, 1)]
    assert talk.fetch("c") == []


def test_ranges_end_with_batches_where_the_batch_size_is_reached() -> None:
    """Acks are cheap in ranges that are alike."""
    talk = Talk(3, 3, 3)
    assert talk.fetch(batch_size=4) == [(0, 5, 1), (6, 8, 1)]


def test_record_limit_is_kept() -> None:
    """The rest of the batch stays available, for anybody."""
    talk = Talk(10)
    limited = {"mode": AcquireMode.RECORD_LIMIT}
    assert talk.fetch("a", 4, **limited) == [(0, 3, 1)]
    assert talk.fetch("b", 4, **limited) == [(4, 7, 1)]
    assert talk.fetch("a", 4, **limited) == [(8, 9, 1)]


def test_accepted_records_move_the_start_offset_only_without_a_gap() -> None:
    """What is in the middle waits for what is before it."""
    talk = Talk(10)
    talk.fetch()
    assert talk.ack(4, 9) is Code.NONE
    assert (talk.partition.start, talk.partition.in_flight) == (0, 10)
    assert talk.ack(0, 3) is Code.NONE
    assert (talk.partition.start, talk.partition.in_flight) == (10, 0)
    assert set(talk.stored.outcomes.values()) == {Outcome.ACCEPTED}


def test_released_records_come_again_to_anybody() -> None:
    """With the next delivery count; the others of their batch do not."""
    talk = Talk(4)
    talk.fetch("a")
    assert talk.ack(0, 3, AckType.ACCEPT, AckType.RELEASE, AckType.RELEASE, AckType.REJECT) == 0
    assert talk.fetch("b") == [(1, 2, 2)]


def test_lock_ends_by_itself() -> None:
    """The record is available then, and the late ack is refused."""
    talk = Talk(2)
    talk.fetch("a")
    talk.pass_time(LOCK)
    assert talk.ack(0, 1) is Code.INVALID_RECORD_STATE
    assert talk.fetch("b") == [(0, 1, 2)]
    assert talk.ack(0, 1, member="a") is Code.INVALID_RECORD_STATE
    assert talk.ack(0, 1, member="b") is Code.NONE


def test_renewed_lock_ends_later() -> None:
    """Only those that were renewed."""
    talk = Talk(3)
    talk.fetch("a")
    talk.pass_time(20.0)
    assert talk.ack(1, 1, AckType.RENEW) is Code.NONE
    talk.pass_time(20.0)
    assert [state for state, *_ in talk.partition.states().values()] == [
        RecordState.AVAILABLE,
        RecordState.ACQUIRED,
        RecordState.AVAILABLE,
    ]
    talk.pass_time(10.0)
    assert talk.fetch("b") == [(0, 0, 2), (1, 1, 2), (2, 2, 2)] or talk.fetch("b") == []


def test_group_that_forbids_renewals_refuses_them() -> None:
    """``share.renew.acknowledge.enable``."""
    talk = Talk(1, is_renewable=False)
    talk.fetch()
    assert talk.ack(0, 0, AckType.RENEW) is Code.INVALID_RECORD_STATE
    assert talk.ack(0, 0) is Code.NONE


def test_acks_of_a_partition_count_together_or_not_at_all() -> None:
    """One that is refused takes the others with it; they can be sent again."""
    talk = Talk(4)
    talk.fetch()
    assert talk.ack(2, 2) is Code.NONE
    assert talk.ack(0, 3) is Code.INVALID_RECORD_STATE
    assert talk.ack(0, 1) is Code.NONE
    assert talk.ack(3, 3) is Code.NONE


def test_renewal_beside_a_refused_ack_holds() -> None:
    """Kafka renews at once, and does not take it back."""
    talk = Talk(2)
    talk.fetch()
    talk.pass_time(20.0)
    acks = [AckBatch(0, 0, (AckType.RENEW,)), AckBatch(1, 1, (AckType.ACCEPT,))]
    talk.ack(1, 1)
    assert talk.partition.acknowledge("a", acks, talk.now) is Code.INVALID_RECORD_STATE
    talk.pass_time(20.0)
    assert talk.ack(0, 0) is Code.NONE


def test_acks_of_what_was_never_fetched_are_invalid() -> None:
    """Also where a part of the range was."""
    talk = Talk(2, 2)
    talk.fetch(most=2)
    assert talk.ack(0, 3) is Code.INVALID_REQUEST
    assert talk.ack(2, 3) is Code.INVALID_REQUEST
    assert talk.ack(0, 1) is Code.NONE
    assert talk.ack(0, 1) is Code.NONE, "what is before the start offset is past"


def test_delivery_limit_archives() -> None:
    """The last delivery that is not accepted is the end of the record."""
    talk = Talk(1, delivery_count_limit=2)
    assert talk.fetch() == [(0, 0, 1)]
    talk.ack(0, 0, AckType.RELEASE)
    assert talk.fetch() == [(0, 0, 2)]
    talk.pass_time(LOCK)
    assert talk.fetch() == []
    assert talk.stored.outcomes == {0: Outcome.LIMIT}
    assert talk.partition.start == 1


def test_records_that_came_often_come_in_smaller_parts() -> None:
    """Half as many from the third of five deliveries on; the last delivery is of one record alone."""
    talk = Talk(8)
    deliveries = []
    for _ in range(5):
        deliveries.append(talk.fetch())
        talk.ack(0, deliveries[-1][-1][1], AckType.RELEASE)
    assert deliveries == [[(0, 7, 1)], [(0, 7, 2)], [(0, 7, 3)], [(0, 3, 4)], [(0, 0, 5)]]


def test_full_flight_is_bounded() -> None:
    """Nothing new comes; what was released does."""
    talk = Talk(4, 4, 4, max_record_locks=8)
    assert talk.fetch() == [(0, 7, 1)]
    assert talk.fetch() == []
    talk.ack(2, 2, AckType.RELEASE)
    assert talk.fetch() == [(2, 2, 2)]
    talk.ack(0, 3)
    assert talk.fetch() == [(8, 11, 1)]


def test_session_that_ends_releases() -> None:
    """Only what that member has."""
    talk = Talk(2, 2)
    talk.fetch("a", 2)
    talk.fetch("b", 2)
    talk.partition.release("a")
    assert talk.fetch("c") == [(0, 1, 2)]


def test_next_leader_finds_what_was_stored() -> None:
    """What was acquired is available, with the count of its last release; what never came back was never delivered."""
    talk = Talk(3, 3, 3)
    talk.fetch()
    talk.ack(4, 4)
    talk.ack(0, 0, AckType.RELEASE)
    talk.load()
    assert talk.fetch() == [(0, 0, 2), (1, 3, 1), (5, 8, 1)]
    talk.ack(0, 3)
    talk.ack(5, 8)
    assert talk.partition.start == 9


def test_gaps_that_the_last_leader_left_are_fetched_in_order() -> None:
    """Each of them once."""
    talk = Talk(2, 2, 2, 2, 2)
    talk.fetch()
    talk.ack(2, 3)
    talk.ack(6, 7)
    talk.load()
    assert talk.partition.next_offset() == 0
    found = [talk.fetch("a", 1), talk.fetch("b", 1), talk.fetch("c", 1), talk.fetch("a", 1)]
    assert [first for ((first, *_),) in found[:3]] == [0, 4, 8]
    assert found[3] == []


def test_ack_that_cannot_be_stored_is_taken_back() -> None:
    """The record is acquired still."""
    talk = Talk(1)
    talk.fetch()
    talk.partition.is_storing = lambda: False
    assert talk.ack(0, 0) is Code.COORDINATOR_NOT_AVAILABLE
    talk.partition.is_storing = lambda: True
    assert talk.ack(0, 0) is Code.NONE


def test_compacted_batch_is_archived() -> None:
    """Else the start offset would stay before it for ever."""
    talk = Talk(2, 2)
    talk.fetch()
    talk.ack(0, 3, AckType.RELEASE)
    talk.log.compact(0)
    assert talk.fetch() == [(2, 3, 2)]
    talk.ack(2, 3)
    assert talk.partition.start == 4
    assert talk.stored.outcomes[0] is Outcome.REMOVED


def test_compaction_of_all_that_is_available_makes_room() -> None:
    """The flight was full of it."""
    talk = Talk(4, 2, max_record_locks=4)
    talk.fetch()
    talk.ack(0, 3, AckType.RELEASE)
    talk.log.compact(0)
    assert talk.fetch() == []
    assert talk.fetch() == [(4, 5, 1)]


def test_log_that_loses_its_beginning_takes_records_with_it() -> None:
    """Those that are available at once, those that are acquired when their locks end."""
    talk = Talk(2, 2, 2)
    talk.fetch("a", 2)
    talk.fetch("b", 2)
    talk.ack(0, 1, AckType.RELEASE)
    talk.log.remove_before(3)
    talk.partition.log_start_moved()
    assert talk.fetch("c") == [(4, 5, 1)]
    talk.pass_time(LOCK)
    assert talk.stored.outcomes[2] is Outcome.REMOVED
    assert talk.fetch("c") == [(3, 3, 2), (4, 5, 2)]
