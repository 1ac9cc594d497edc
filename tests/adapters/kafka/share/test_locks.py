"""The records that a member has acquired: what is acknowledged, late, renewed and lost."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.share.locks import AckGroup, Locks, Ticket, ack_batches
from consumer_sdk.adapters.kafka.share.messages import AckBatch, AckType, AcquiredRange

ACCEPT, RELEASE, REJECT = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT


def held(first: int, last: int, *, since: float = 0.0, timeout: float = 30.0) -> Locks:
    """Locks of one range."""
    locks = Locks()
    locks.acquire([AcquiredRange(first, last, 1)], since, timeout)
    return locks


def test_acks_of_a_run_are_one_batch_with_one_type() -> None:
    """However many there are."""
    assert ack_batches(dict.fromkeys(range(5, 900), ACCEPT)) == [AckBatch(5, 899, (1,))]


def test_alternating_acks_are_one_batch_with_a_type_for_each_offset() -> None:
    """A gap ends a batch."""
    types = {3: ACCEPT, 4: REJECT, 5: ACCEPT, 8: RELEASE}
    assert ack_batches(types) == [AckBatch(3, 5, (1, 3, 1)), AckBatch(8, 8, (2,))]


@given(st.dictionaries(st.integers(0, 60), st.sampled_from(list(AckType))))
def test_batches_say_what_was_said_of_each_offset(types: dict[int, AckType]) -> None:
    """Ascending, none twice, and as few as there are runs."""
    said: dict[int, int] = {}
    batches = ack_batches(types)
    for first, last, kinds in batches:
        whole = kinds * (last - first + 1) if len(kinds) == 1 else kinds
        assert len(whole) == last - first + 1
        said |= dict(zip(range(first, last + 1), whole, strict=True))
    assert said == types
    assert len(batches) == sum(offset - 1 not in types for offset in types)


def test_ack_of_what_is_not_held_is_counted_and_says_nothing() -> None:
    """Of a lock that has ended, of an offset that never was, and of one that is settled."""
    locks = held(0, 3)
    assert locks.settle([0, 9], ACCEPT, 1.0) is not None
    assert locks.settle([0], ACCEPT, 1.0) is None
    assert locks.late == 2
    assert locks.settle([1, 2], ACCEPT, 30.0) is None
    assert locks.late == 4


def test_flush_hears_of_what_it_is_late_for() -> None:
    """Nothing is said of it, also where it would have been rejected."""
    locks, ticket = held(0, 3), Ticket(lambda _: None)
    group = locks.settle([0, 8, 9], ACCEPT, 1.0, ticket, {0: REJECT, 9: REJECT})
    assert group is not None
    assert group.types == {0: REJECT}
    assert (ticket.late, locks.late) == (2, 2)
    assert locks.settle([8], ACCEPT, 1.0, ticket) is None
    assert (ticket.late, locks.late) == (3, 3)


def test_partition_that_is_nearly_full_is_full() -> None:
    """The broker gives little of it."""
    locks = Locks(limit=10)
    locks.acquire([AcquiredRange(0, 7, 1)], 0.0, 30.0)
    assert not locks.is_full
    locks.acquire([AcquiredRange(8, 8, 1)], 0.0, 30.0)
    assert locks.is_full


def test_settled_is_told_from_what_never_was() -> None:
    """At any moment of the clock, by any kind of acknowledgement that is sent."""
    locks = held(0, 3)
    assert not locks.has_settled
    assert locks.settle([7], ACCEPT, 1.0) is None
    assert not locks.has_settled
    locks.settle([0], RELEASE, 0.0)
    assert locks.has_settled


def test_what_is_lost_or_comes_again_is_counted() -> None:
    """Whoever keeps records that wait looks at the count, and then at each record."""
    locks = held(5, 9)
    locks.acquire([AcquiredRange(12, 14, 1)], 0.0, 30.0)
    assert (locks.losses, locks.acquisitions) == (0, 2)
    locks.acquire([AcquiredRange(10, 11, 1), AcquiredRange(14, 15, 2)], 0.0, 30.0)
    assert locks.losses == 1
    locks.lose([5])
    assert locks.losses == 2
    assert [locks.is_held(14, acquisition) for acquisition in (1, 2, 3)] == [False, False, True]


def test_what_is_held_again_is_renewed_and_ends() -> None:
    """Also where nothing else was held meanwhile."""
    locks = held(0, 3)
    group = locks.settle(range(4), ACCEPT, 1.0)
    assert group is not None
    locks.lose([0])
    assert (locks.renewal, locks.expire(29.0)) == (math.inf, [])
    locks.hold_again(group.locks)
    assert locks.renewal == 15.0
    assert locks.expire(30.0) == [0, 1, 2, 3]


def test_renewal_of_what_is_lost_is_not_due() -> None:
    """That of the others is."""
    locks = held(0, 3)
    locks.acquire([AcquiredRange(4, 4, 1)], 10.0, 30.0)
    locks.lose(range(4))
    assert locks.renewal == 25.0


def test_what_was_delivered_anew_is_not_held_again_for_the_earlier_delivery() -> None:
    """It may be settled by then."""
    locks = held(0, 3)
    group = locks.settle([1, 2], ACCEPT, 1.0)
    assert group is not None
    locks.acquire([AcquiredRange(2, 2, 2)], 1.0, 30.0)
    locks.overtaken(group, {2})
    assert (group.types, locks.late) == ({1: ACCEPT}, 1)
    locks.settle([2], ACCEPT, 2.0)
    locks.hold_again(group.locks)
    assert locks.offsets == [0, 1, 3]


def test_what_ends_without_a_word_is_told_once() -> None:
    """Its lock has ended, the broker refused to renew it, or another node leads; not what was acknowledged."""
    locks = held(0, 5)
    assert locks.settle([0], ACCEPT, 1.0) is not None
    locks.lose([0, 1])
    assert locks.ended == [1]
    locks.ended = []
    assert locks.expire(29.0) == []
    assert locks.expire(30.0) == [2, 3, 4, 5]
    assert locks.ended == [2, 3, 4, 5]
    locks.ended = []
    locks.acquire([AcquiredRange(7, 7, 1)], 30.0, 30.0)
    locks.clear()
    assert locks.ended == [7]


def test_what_nobody_answered_is_held_again_up_to_the_same_end() -> None:
    """But not what has come again meanwhile."""
    locks = held(0, 3)
    group = locks.settle([0, 1], ACCEPT, 1.0)
    assert group is not None
    locks.acquire([AcquiredRange(1, 1, 2)], 10.0, 30.0)
    locks.hold_again(group.locks)
    assert locks.offsets == [0, 1, 2, 3]
    assert sorted(locks.counts()) == [1, 1, 1, 2]
    assert locks.expire(30.0) == [2, 3, 0]
    assert locks.offsets == [1]


def test_renewal_is_due_at_half_the_time_and_once() -> None:
    """What was settled meanwhile is not renewed; a failed renewal is due again when it is said."""
    locks = held(0, 3)
    assert locks.renewal == 15.0
    assert locks.renewals(14.9) is None
    group = locks.renewals(15.0)
    assert group is not None
    assert ack_batches(group.types) == [AckBatch(0, 3, (4,))]
    assert locks.renewal == math.inf
    assert locks.renewals(16.0) is None
    locks.settle([1], ACCEPT, 16.0)
    locks.renewed(group.types, 15.0, 30.0)
    assert locks.offsets == [0, 2, 3]
    assert locks.renewal == 30.0
    again = locks.renewals(30.0)
    assert again is not None
    locks.renew_at(again.types, 31.0)
    assert locks.renewal == 31.0


def test_lock_that_has_ended_is_not_renewed() -> None:
    """The broker would refuse all that is renewed with it."""
    assert held(0, 3).renewals(30.0) is None


def test_group_is_halved_until_one_is_left() -> None:
    """Both halves have the locks and the ticket of the whole."""
    answers: list[Exception | None] = []
    ticket = Ticket(answers.append)
    group = held(0, 2).settle([0, 1, 2], ACCEPT, 1.0, ticket, {2: REJECT})
    assert group is not None
    first, second = group.halves()
    assert (first.types, second.types) == ({0: ACCEPT}, {1: ACCEPT, 2: REJECT})
    assert not first.halves()
    assert first.ticket is second.ticket is ticket
    ticket.answered()
    assert not answers
    ticket.answered()
    assert answers == [None]


def test_group_is_not_halved_for_ever() -> None:
    """Many that are all too late cost a bounded number of requests."""
    groups, requests = [AckGroup(dict.fromkeys(range(2000), ACCEPT))], 0
    while groups:
        requests += 1
        groups += groups.pop().halves()
    assert requests < 200


def test_error_of_one_group_is_the_flushs() -> None:
    """Told when the last one was answered."""
    answers: list[Exception | None] = []
    ticket, error = Ticket(answers.append), OSError()
    ticket.add()
    ticket.add()
    ticket.answered(error)
    ticket.answered()
    assert answers == [error]
