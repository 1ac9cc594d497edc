"""A share session with one leader, played without a leader."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from consumer_sdk.adapters.kafka.share.locks import SPLITS, AckGroup, Locks, Ticket
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
    assert played.session.poll(0.0, [A], 0) is None
    first = played.fetch()
    assert (first.epoch, set(first.topics)) == (0, {A})
    assert (first.max_records, first.batch_size) == (100, 100)
    assert played.session.poll(0.0, [A], 0) is None
    assert played.session.poll(0.0, (), 100) is None
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
    """A broker would refuse the second one if it came first: no renewal is due meanwhile."""
    played = Played()
    played.session.locks[B].acquire([AcquiredRange(0, 4, 1)], 0.0, 30.0)
    assert played.session.wake_at() == 15.0
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.session.wake_at() == math.inf
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
    assert (opening.max_records, opening.batch_size) == (1, 1)
    played.answer(opening, ShareFetchAnswer())
    assert played.poll().topics == {A: [AckBatch(0, 0, (1,))]}


@pytest.mark.parametrize("most, wanted", [(100, [A]), (0, [])])
def test_session_that_opens_anew_reads_what_there_is_room_for(
    most: int, wanted: list[TopicIdPartition]
) -> None:
    """An acknowledgement waits behind that fetch: the broker is not to wait long."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 0, 1))
    played.settle(0)
    played.answer(played.poll(), ShareAcknowledgeAnswer(error=123))
    opening = played.session.poll(1.0, [A], most)
    assert isinstance(opening, ShareFetch)
    assert (opening.epoch, opening.max_wait) == (0, 0.1)
    assert opening.topics == {tip: [] for tip in wanted}


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


def test_answer_to_another_request_changes_nothing() -> None:
    """The one under way was sent after that was given up."""
    played = Played()
    given_up = played.session.poll(0.0, [A], 100)
    assert given_up is not None
    played.session.failed(given_up, OSError())
    acquired = FetchedPartition(acquired=(AcquiredRange(0, 3, 1),))
    late = ShareFetchAnswer(partitions={A: acquired})
    assert played.answer(given_up, late) == Received()
    played.session.failed(given_up, OSError())
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.answer(given_up, late) == Received()
    played.session.failed(given_up, OSError())
    assert played.session.is_asking
    assert not played.session.locks[A].offsets
    assert played.answer(request, late).partitions == {A: acquired}
    assert played.session.locks[A].offsets == [0, 1, 2, 3]


def gaps(played: Played, *offsets: int) -> None:
    """Says that nothing is there, which nobody waits to hear of."""
    group = played.session.locks[A].settle(offsets, AckType.GAP, 1.0)
    played.session.acknowledge(A, group)


def test_gaps_that_nobody_waits_for_are_said_until_they_are_heard() -> None:
    """Also with a request after one without an answer."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.session.acknowledge(A, None)
    assert not played.session.has_acks
    gaps(played, 3, 4)
    request = played.poll()
    gaps(played, 7)
    played.session.failed(request, OSError())
    played.fetch()
    again = played.poll()
    assert again.topics == {A: [AckBatch(3, 4, (0,)), AckBatch(7, 7, (0,))]}
    assert not played.refuse(again, 0).refusals
    assert not played.session.has_acks
    gaps(played, 8)
    assert list(played.refuse(played.poll(), 6).lost) == [A]
    assert not played.session.has_acks


def test_partition_that_goes_away_takes_its_acks_with_it() -> None:
    """They are late, and who waits is told; an answer about it comes to nothing."""
    for code in (0, 121, 6):
        played = Played()
        played.fetch([A], AcquiredRange(0, 9, 1))
        played.settle(0)
        request = played.session.poll(1.0, [A], 100)
        assert request is not None
        played.settle(1, 2)
        gaps(played, 3)
        played.session.drop(A)
        assert [ticket.late for ticket in played.tickets] == [0, 2]
        assert (played.answers, played.session.has_acks) == ([None], False)
        part = FetchedPartition(ack_error=code, acquired=(AcquiredRange(20, 29, 1),))
        played.answer(request, ShareFetchAnswer(partitions={A: part}))
        assert played.answers == [None, None]
        assert played.session.poll(40.0, (), 0) is None
        assert A not in played.session.locks


def test_partition_that_goes_away_while_a_request_fails_is_not_held_again() -> None:
    """Who waits hears of the failure."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0)
    request = played.poll()
    played.session.drop(A)
    played.session.failed(request, error := OSError())
    assert played.answers == [error]
    assert A not in played.session.locks


def test_refused_group_is_halved_until_what_counts_of_it_is_found() -> None:
    """One record's lock had ended at the broker: it alone was late. Each half costs one request."""
    played, accepted, requests = Played(), set[int](), 0
    played.fetch([A], AcquiredRange(0, 63, 1))
    played.settle(*range(64))
    while (request := played.session.poll(1.0, (), 0)) is not None:
        said = {o for first, last, _ in request.topics[A] for o in range(first, last + 1)}
        played.refuse(request, 121 if 5 in said else 0)
        accepted |= set() if 5 in said else said
        requests += 1
    assert (accepted, requests) == (set(range(64)) - {5}, 1 + 2 * SPLITS)
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
    played.settle(1, 2, 3)
    request = played.session.poll(2.0, [A], 100)
    assert isinstance(request, ShareFetch)
    part = FetchedPartition(ack_error=121, acquired=(AcquiredRange(2, 2, 2),))
    played.answer(request, ShareFetchAnswer(partitions={A: part}))
    for left in (1, 3):
        assert played.answers == []
        request = played.poll(2.0)
        assert request.topics == {A: [AckBatch(left, left, (1,))]}
        played.answer(request, ShareAcknowledgeAnswer())
    assert played.answers == [None]
    assert played.session.locks[A].offsets == [0, 2]
    assert played.session.locks[A].late == 1


def test_gap_that_comes_again_is_not_said_of_the_next_delivery() -> None:
    """Nobody waits for it; what is beside it is said."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    gaps(played, 1)
    gaps(played, 3)
    lost = played.poll()
    played.answer(lost, ShareAcknowledgeAnswer(error=122))
    played.fetch([A], AcquiredRange(1, 2, 2))
    assert played.poll().topics == {A: [AckBatch(3, 3, (0,))]}


def test_new_acks_wait_for_those_that_are_in_doubt() -> None:
    """A late record of one flush makes no other flush late."""
    played = Played()
    played.fetch((A,), AcquiredRange(0, 9, 1))
    played.settle(0, 1)
    played.refuse(played.poll(), 121)
    played.settle(4)
    for offset in (0, 1, 4):
        request = played.poll()
        assert request.topics == {A: [AckBatch(offset, offset, (1,))]}
        played.answer(request, ShareAcknowledgeAnswer())
    assert played.answers == [None, None]


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
    assert list(received.refusals) == ["no reason given (error 6)"]
    assert played.answers == [None]
    assert [ticket.late for ticket in played.tickets] == [1]
    assert played.session.locks[A].late == 1


@pytest.mark.parametrize("code", [3, 6, 74, 100])
def test_partition_that_is_led_elsewhere_or_gone_is_lost(code: int) -> None:
    """Whatever a broker calls it; the broker's words are handed on."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0)
    request = played.session.poll(1.0, [A], 100)
    assert request is not None
    part = FetchedPartition(ack_error=code, ack_message="moved")
    received = played.answer(request, ShareFetchAnswer(partitions={A: part}))
    assert (list(received.lost), received.refusals) == ([A], [f"moved (error {code})"])
    assert (played.answers, played.session.locks[A].late) == ([None], 1)


@pytest.mark.parametrize("code", [121, 42])
def test_ack_that_is_refused_alone_is_late(code: int) -> None:
    """Its record's lock has ended, or it is not in flight at all."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 9, 1))
    played.settle(0)
    assert not played.refuse(played.poll(), code).lost
    assert (played.answers, played.session.locks[A].late) == ([None], 1)


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
    assert played.session.wake_at() == math.inf
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


@pytest.mark.parametrize("error", [0, 122])
def test_renewal_that_is_not_heard_goes_again(error: int) -> None:
    """Without what was settled meanwhile; the session is opened before, and reads nothing by that."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    request = played.poll(15.0)
    if error:
        played.answer(request, ShareAcknowledgeAnswer(error=error))
    else:
        played.session.failed(request, OSError())
    played.session.locks[A].settle([1], AckType.ACCEPT, 16.0)
    opening = played.session.poll(16.0, (), 0)
    assert isinstance(opening, ShareFetch)
    assert opening.topics == {}
    played.answer(opening, ShareFetchAnswer())
    again = played.poll(16.0)
    assert again.has_renewals
    assert again.topics == {A: [AckBatch(0, 0, (4,)), AckBatch(2, 3, (4,))]}


def test_renewal_of_what_is_settled_meanwhile_is_not_sent() -> None:
    """There is nothing left to renew."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    played.answer(played.poll(15.0), ShareAcknowledgeAnswer(error=122))
    played.settle(0, 1, 2, 3, now=16.0)
    opening = played.session.poll(16.0, (), 0)
    assert isinstance(opening, ShareFetch)
    played.answer(opening, ShareFetchAnswer())
    assert not played.poll(16.0).has_renewals
    assert played.session.poll(16.0, (), 0) is None


def test_renewal_that_meets_trouble_of_the_broker_is_tried_again_soon() -> None:
    """Its records stay held meanwhile."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    played.refuse(played.poll(15.0), 56)
    assert played.session.wake_at() == 15.5
    assert played.session.poll(15.4, (), 0) is None
    assert played.poll(15.5).has_renewals
    assert played.session.locks[A].offsets == [0, 1, 2, 3]


def test_renewal_of_a_partition_that_is_led_elsewhere_loses_it() -> None:
    """All that was to be renewed; one that went away meanwhile has nothing to lose."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    assert list(played.refuse(played.poll(15.0), 6).lost) == [A]
    assert played.session.locks[A].ended == [0, 1, 2, 3]
    played.fetch([A], AcquiredRange(4, 5, 1), now=16.0)
    request = played.poll(31.0)
    played.session.drop(A)
    assert not played.refuse(request, 0).lost


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
    assert played.session.wake_at() == math.inf
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
    played.answer(request, ShareAcknowledgeAnswer())
    assert played.answers == [None]
    assert played.session.close(1.0) is None


def test_close_waits_for_the_request_that_is_under_way() -> None:
    """A broker would refuse the second one if it came first."""
    played = Played()
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.session.close(1.0) is None
    played.answer(request, ShareFetchAnswer())
    assert played.session.close(1.0) is not None


def test_session_that_closes_after_a_request_without_an_answer_releases_all_by_name() -> None:
    """Nobody knows whether the broker has the partitions in the session."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 3, 1))
    played.settle(1)
    played.session.failed(played.poll(), OSError())
    end = played.session.close(1.0)
    assert end is not None
    assert end.topics == {A: [AckBatch(0, 3, (AckType.RELEASE,))]}


def test_end_tells_all_who_wait() -> None:
    """Whether the last request was answered or not; what did not fit into it failed."""
    for error in (None, OSError()):
        played = Played()
        played.fetch([A], AcquiredRange(0, 3, 1))
        played.settle(1)
        played.settle(2).is_doubted = True  # goes alone
        gaps(played, 3)
        assert played.session.close(1.0) is not None
        played.session.end(error)
        assert played.answers[0] is error
        assert played.answers[1] is error or error is None
        assert played.answers[1] is not None
        played.session.end(error)
        assert len(played.answers) == 2


def test_fetch_waits_hardly_where_a_partition_is_full_and_is_being_settled() -> None:
    """The broker gives no more of it before it hears of some; one that is stuck costs no more requests."""
    played = Played()
    played.session.locks[B] = Locks(limit=4)
    played.session.locks[B].acquire([AcquiredRange(0, 4, 1)], 0.0, 30.0)
    assert played.session.locks[B].is_full
    assert played.fetch([A], now=1.0).max_wait == 0.1
    played.session.locks[B].settle([0], AckType.ACCEPT, 1.0)
    assert played.fetch([A], now=1.5).max_wait == 0.01
    assert played.fetch([A], now=2.0).max_wait == 0.1
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


def test_session_that_closes_releases_what_it_had_forgotten_beside_what_waits() -> None:
    """A record of the partition that is settled at the end takes nothing from the others."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 4, 1))
    played.fetch([B])
    played.settle(1)
    end = played.session.close(1.0)
    assert end is not None
    release = int(AckType.RELEASE)
    assert dict(end.topics) == {A: [AckBatch(0, 4, (release, 1, release, release, release))]}


def test_session_that_closes_says_alone_what_was_refused() -> None:
    """The broker takes all that is said of a partition, or nothing: the rest waits for its lock's end then."""
    played = Played()
    played.fetch([A], AcquiredRange(0, 4, 1))
    played.fetch([B])
    played.settle(1).is_doubted = True
    end = played.session.close(1.0)
    assert end is not None
    assert dict(end.topics) == {A: [AckBatch(1, 1, (int(AckType.ACCEPT),))]}


def test_broker_with_too_many_sessions_is_left_alone_for_a_while() -> None:
    """An error of the session that asking again at once does not fix."""
    played = Played()
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    assert played.answer(request, ShareFetchAnswer(133)).error == 133
    for code in (122, 123):
        request = played.session.poll(0.0, [A], 100)
        assert request is not None
        assert played.answer(request, ShareFetchAnswer(code)).error == 0


def test_error_that_is_not_the_sessions_is_handed_on() -> None:
    """With the broker's words; the session opens anew."""
    played = Played()
    played.fetch()
    request = played.session.poll(0.0, [A], 100)
    assert request is not None
    received = played.answer(request, ShareFetchAnswer(30, "no right", throttle=2.0))
    assert (received.error, received.message, received.throttle) == (30, "no right", 2.0)
    assert played.fetch().epoch == 0
