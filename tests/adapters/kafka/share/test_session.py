"""A share session with one leader, played without a leader."""

from __future__ import annotations

import math
from collections.abc import Sequence

from consumer_sdk.adapters.kafka.share.locks import AckGroup, Locks, Ticket
from consumer_sdk.adapters.kafka.share.messages import (
    AckBatch,
    AcknowledgedPartition,
    AckType,
    AcquiredRange,
    FetchedPartition,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    TopicIdPartition,
)
from consumer_sdk.adapters.kafka.share.session import FetchLimits, Received, Request, ShareSession

A, B = TopicIdPartition(b"a" * 16, 0), TopicIdPartition(b"a" * 16, 1)
LAST_EPOCH = 2**31 - 1


class Played:
    """A session, and what a test makes its leader answer."""

    def __init__(self, *, renews: bool = True) -> None:
        self.session = ShareSession("g", "me", FetchLimits(), renews=renews)
        self.session.locks |= {A: Locks(), B: Locks()}
        self.answers: list[Exception | None] = []
        self.tickets: list[Ticket] = []

    def fetch(
        self, wanted: Sequence[TopicIdPartition] = (A,), *acquired: AcquiredRange, now: float = 0.0
    ) -> ShareFetch:
        """One fetch that is answered, with what it acquires of the first partition."""
        request = self.session.poll(now, wanted, 100)
        assert isinstance(request, ShareFetch), request
        self.answer(request, ShareFetchAnswer(partitions={A: FetchedPartition(acquired=acquired)}))
        return request

    def answer(
        self, request: Request, answer: ShareFetchAnswer | ShareAcknowledgeAnswer
    ) -> Received:
        """The leader's answer."""
        return self.session.answered(request, answer)

    def refuse(self, request: Request, code: int, tip: TopicIdPartition = A) -> Received:
        """The leader refuses the acknowledgements of one partition."""
        if isinstance(request, ShareFetch):
            return self.answer(
                request, ShareFetchAnswer(partitions={tip: FetchedPartition(ack_error=code)})
            )
        parts = {tip: AcknowledgedPartition(code)}
        return self.answer(request, ShareAcknowledgeAnswer(partitions=parts))

    def settle(self, *offsets: int, now: float = 1.0) -> AckGroup:
        """Accepts these of the first partition."""
        ticket = Ticket(self.answers.append)
        self.tickets.append(ticket)
        group = self.session.locks[A].settle(offsets, AckType.ACCEPT, now, ticket)
        assert group is not None
        self.session.acknowledge(A, group)
        return group

    def poll(self, now: float = 1.0, wanted: Sequence[TopicIdPartition] = ()) -> ShareAcknowledge:
        """The acknowledgement that is due."""
        request = self.session.poll(now, wanted, 0)
        assert isinstance(request, ShareAcknowledge), request
        return request


def test_session_opens_with_epoch_0_and_counts_up() -> None:
    """A request names what is new, and forgets what is read no more."""
    played = Played()
    assert played.session.poll(0.0, (), 100) is None
    first = played.fetch()
    assert (first.epoch, set(first.topics)) == (0, {A})
    second = played.fetch([A, B])
    assert (second.epoch, set(second.topics), second.forgotten) == (1, {B}, frozenset())
    third = played.fetch([B])
    assert (third.epoch, third.topics, third.forgotten) == (2, {}, frozenset({A}))


def test_epoch_after_the_last_one_is_1() -> None:
    """0 would open another session."""
    played = Played()
    played.fetch()
    played.session.epoch = LAST_EPOCH
    assert played.fetch().epoch == LAST_EPOCH
    assert played.fetch().epoch == 1


def test_one_request_is_under_way_at_a_time() -> None:
    """A broker would refuse the second one if it came first."""
    played = Played()
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.session.poll(0.0, [A], 100) is None
    played.answer(request, ShareFetchAnswer())
    assert played.session.poll(0.0, [A], 100) is not None


def test_acks_ride_on_a_fetch_and_go_alone_where_nothing_is_fetched() -> None:
    """And their waiters are told by the answer."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0, 1, 2)
    assert played.fetch().topics == {A: [AckBatch(0, 2, (1,))]}
    assert played.answers == [None]
    played.settle(5)
    request = played.poll()
    assert (request.epoch, request.topics) == (2, {A: [AckBatch(5, 5, (1,))]})
    played.answer(request, ShareAcknowledgeAnswer())
    assert played.answers == [None, None]
    assert played.session.locks[A].offsets == [3, 4, 6, 7, 8, 9]


def test_ack_of_a_partition_that_is_not_read_does_not_bring_it_back() -> None:
    """A fetch that names it has the broker read it, if it does not forget it too."""
    played = Played()
    played.fetch([A, B], AcquiredRange(0, 9, 1))
    played.fetch([B])
    played.settle(0)
    request = played.fetch([B])
    assert (set(request.topics), request.forgotten) == ({A}, frozenset({A}))
    assert played.session.known == {B}


def test_session_that_opens_carries_no_acks() -> None:
    """They follow; it acquires nothing where nothing is wanted."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0)
    lost = played.poll()
    played.answer(lost, ShareAcknowledgeAnswer(error=122))
    assert not played.answers
    opening = played.session.poll(1.0, (), 0)
    assert isinstance(opening, ShareFetch)
    assert (opening.epoch, opening.topics) == (0, {})
    played.answer(opening, ShareFetchAnswer())
    assert played.poll().topics == {A: [AckBatch(0, 0, (1,))]}


def test_request_without_an_answer_gives_the_acks_back() -> None:
    """Their records are held again; who waits hears of it, and says it again."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0, 1)
    request = played.poll()
    played.settle(5)
    played.session.failed(request, error := OSError())
    assert played.answers == [error, error]
    assert played.session.locks[A].offsets == list(range(10))
    assert played.fetch().epoch == 0


def test_refused_group_is_halved_until_what_counts_of_it_is_found() -> None:
    """One record's lock had ended at the broker: it alone was late."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 7, 1))
    played.settle(*range(8))
    accepted: set[int] = set()
    while (request := played.session.poll(1.0, (), 0)) is not None:
        said = {o for first, last, _ in request.topics[A] for o in range(first, last + 1)}
        played.refuse(request, 121 if 5 in said else 0)
        accepted |= set() if 5 in said else said
    assert accepted == set(range(8)) - {5}
    assert played.session.locks[A].late == 1
    assert played.answers == [None]
    assert [ticket.late for ticket in played.tickets] == [1]


def test_all_that_waits_goes_into_one_request() -> None:
    """Its locks go on ending while it waits for its turn."""
    played = Played()
    played.fetch((A,), AcquiredRange(0, 9, 1))
    for offsets in ((0, 1), (4,), (2, 3)):
        played.settle(*offsets)
    request = played.poll()
    assert request.topics == {A: [AckBatch(0, 4, (1,))]}
    played.answer(request, ShareAcknowledgeAnswer())
    assert played.answers == [None] * 3
    assert not played.session.has_acks


def test_what_is_refused_together_is_said_again_a_group_at_a_time() -> None:
    """A late record of one flush makes no other flush late."""
    played = Played()
    played.fetch((A,), AcquiredRange(0, 9, 1))
    played.settle(0, 1)
    played.settle(4)
    played.refuse(played.poll(), 121)
    assert played.answers == []
    first = played.poll()
    assert first.topics == {A: [AckBatch(0, 1, (1,))]}
    played.answer(first, ShareAcknowledgeAnswer())
    second = played.poll()
    assert second.topics == {A: [AckBatch(4, 4, (1,))]}
    played.refuse(second, 121)
    assert played.answers == [None] * 2
    assert played.session.locks[A].late == 1


def test_ack_of_an_earlier_delivery_is_not_said_of_the_next_one() -> None:
    """The answer that refuses it brings the record again: the handler is about to get it."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    played.settle(1, 2)
    request = played.session.poll(2.0, [A], 100)
    assert isinstance(request, ShareFetch)
    part = FetchedPartition(ack_error=121, acquired=(AcquiredRange(2, 2, 2),))
    played.answer(request, ShareFetchAnswer(partitions={A: part}))
    assert played.poll(2.0).topics == {A: [AckBatch(1, 1, (1,))]}
    assert played.session.locks[A].offsets == [0, 2, 3]
    assert played.session.locks[A].late == 1


def test_flush_whose_last_record_comes_again_is_answered() -> None:
    """There is nothing left to say."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    played.settle(1)
    lost = played.poll()
    played.answer(lost, ShareAcknowledgeAnswer(error=122))
    played.fetch([A], AcquiredRange(1, 1, 2))
    assert played.answers == [None]
    assert [ticket.late for ticket in played.tickets] == [1]
    assert played.session.poll(2.0, (), 0) is None


def test_leader_that_is_none_any_more_loses_what_it_gave() -> None:
    """The acknowledgement counts as late, and whoever runs it is told."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0)
    received = played.refuse(played.poll(), 6)
    assert list(received.lost) == [A]
    assert played.answers == [None]
    assert [ticket.late for ticket in played.tickets] == [1]
    assert played.session.locks[A].late == 1


def test_trouble_of_the_broker_has_acks_sent_again() -> None:
    """Nobody is told before."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0)
    first = played.poll()
    played.refuse(first, 56)
    assert not played.answers
    assert played.poll().topics == first.topics


def test_renewals_go_by_themselves_at_half_the_time() -> None:
    """Before anything else; a record that was settled meanwhile is left out."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    assert played.session.wake_at() == 15.0
    played.settle(1, now=15.0)
    request = played.session.poll(15.0, [A], 100)
    assert isinstance(request, ShareAcknowledge)
    assert request.has_renewals
    assert request.topics == {A: [AckBatch(0, 0, (4,)), AckBatch(2, 3, (4,))]}
    played.answer(request, ShareAcknowledgeAnswer(lock_timeout=30.0))
    assert played.session.wake_at() == 30.0
    assert played.poll(16.0).topics == {A: [AckBatch(1, 1, (1,))]}


def test_renewal_that_is_refused_loses_the_record_that_is_not_held_any_more() -> None:
    """And no other."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    while (request := played.session.poll(15.0, (), 0)) is not None:
        said = {o for first, last, _ in request.topics[A] for o in range(first, last + 1)}
        parts = {A: AcknowledgedPartition(121 if 2 in said else 0)}
        played.answer(request, ShareAcknowledgeAnswer(lock_timeout=30.0, partitions=parts))
    assert played.session.locks[A].offsets == [0, 1, 3]


def test_lock_that_has_ended_wakes_nobody_for_a_renewal() -> None:
    """The process was stopped meanwhile: what it held is others' now."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    assert played.session.poll(31.0, (), 0) is None
    assert played.session.wake_at() == math.inf
    assert played.session.locks[A].offsets == []


def test_old_broker_is_asked_for_no_renewal() -> None:
    """It would not know the type."""
    played = Played(renews=False)
    played.fetch([A], AcquiredRange(0, 3, 1))
    assert played.session.poll(15.0, (), 0) is None


def test_close_ends_a_session_of_any_epoch_and_is_said_once() -> None:
    """With what is to be said; not where there is none."""
    assert Played().session.close(0.0) is None
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    played.settle(1)
    request = played.session.close(1.0)
    assert request is not None
    assert (request.epoch, request.topics) == (-1, {A: [AckBatch(1, 1, (1,))]})
    assert played.session.close(1.0) is None


def test_end_tells_all_who_wait() -> None:
    """Whether the last request was answered or not; what did not fit into it failed."""
    for error in (None, OSError()):
        played = Played()
        played.fetch([A], AcquiredRange(0, 3, 1))
        played.settle(1)
        played.settle(2).is_doubted = True  # goes alone
        assert played.session.close(1.0) is not None
        played.session.end(error)
        assert played.answers[0] is error
        assert played.answers[1] is not None


def test_fetch_waits_hardly_where_a_partition_is_full_and_is_being_settled() -> None:
    """The broker gives no more of it before it hears of some; one that is stuck costs no more requests."""
    played = Played()
    played.session.locks[B] = Locks(limit=4)
    played.session.locks[B].acquire([AcquiredRange(0, 4, 1)], 0.0, 30.0)
    assert played.session.locks[B].is_full
    assert played.fetch([A], now=1.0).max_wait == 0.1
    played.session.locks[B].settle([0], AckType.ACCEPT, 1.0)
    assert played.fetch([A], now=1.5).max_wait == 0.01
    assert played.fetch([A], now=2.5).max_wait == 0.1


def test_fetch_waits_shortly_while_something_is_held() -> None:
    """Its acknowledgement waits behind the fetch."""
    played = Played()
    assert played.fetch([A], AcquiredRange(0, 3, 1)).max_wait == 0.5
    assert played.fetch([A]).max_wait == 0.1


def test_session_that_closes_releases_what_it_had_forgotten() -> None:
    """The broker releases what is acquired of the session's partitions alone; the rest would wait for its lock's end."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 4, 1))
    played.fetch([B])
    assert played.session.known == {B}
    end = played.session.close(1.0)
    assert end is not None
    assert dict(end.topics) == {A: [AckBatch(0, 4, (AckType.RELEASE,))]}


def test_broker_with_too_many_sessions_is_left_alone_for_a_while() -> None:
    """An error of the session that asking again at once does not fix."""
    played = Played()
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.answer(request, ShareFetchAnswer(133)).error == 133
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.answer(request, ShareFetchAnswer(122)).error == 0
