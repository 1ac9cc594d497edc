"""What a member hands out of a partition: only what is still its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from aiokafka.errors import UnsupportedCodecError

from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kafka.share.grants import ShareGrant
from consumer_sdk.adapters.kafka.share.locks import AckGroup, Ticket
from consumer_sdk.adapters.kafka.share.messages import (
    AckType,
    AcquiredRange,
    FetchedPartition,
    TopicIdPartition,
)
from consumer_sdk.adapters.kafka.share.reading import AcquiredRecords
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, Partition, Run, SettledRecords
from tests.adapters.kafka.share.test_reading import batch

LOCK = 30.0
ASSIGNMENT = Assignment(Partition("t", "0"), 1)
ACCEPT, REJECT, RELEASE, GAP = AckType.ACCEPT, AckType.REJECT, AckType.RELEASE, AckType.GAP


def opened(*, deliveries: int | None = None, limit: int = 2000) -> ShareGrant:
    """A grant that is read."""
    grant = ShareGrant(
        ASSIGNMENT,
        TopicIdPartition(b"t" * 16, 0),
        most=1 << 20,
        checks=True,
        limit=limit,
        deliveries=deliveries,
    )
    grant.state = GrantState.OPEN
    return grant


def acquire(grant: ShareGrant, first: int, last: int, *, since: float = 0.0) -> None:
    """A fetch brings these, of a batch of ten."""
    found = (AcquiredRange(first, last, 1),)
    grant.locks.acquire(found, since, LOCK)
    grant.add(FetchedPartition(records=batch(0, list(range(10))), acquired=found))


def handed_out(grant: ShareGrant) -> list[int]:
    """Positions of all that there is."""
    positions: list[int] = []
    while (run := grant.take(3, 1 << 20)) is not None:
        positions += [message.position for message in run.messages]
    return positions


def test_record_whose_lock_has_ended_is_not_handed_out() -> None:
    """It waited too long: another member has it by now."""
    grant = opened()
    acquire(grant, 0, 4)
    acquire(grant, 5, 9, since=10.0)
    assert grant.locks.expire(LOCK) == [0, 1, 2, 3, 4]
    assert handed_out(grant) == [5, 6, 7, 8, 9]


def test_record_that_is_acquired_again_while_it_waits_is_handed_out_once() -> None:
    """The broker had taken it back, for a connection that ended; then it gave it to the same member."""
    grant = opened()
    acquire(grant, 0, 4)
    acquire(grant, 3, 9, since=1.0)
    assert handed_out(grant) == list(range(10))


def test_what_is_on_its_last_delivery_is_handed_out_while_the_rest_is_given_back() -> None:
    """Released, it would be given up; also where a fetch that was under way brings it."""
    grant = opened(deliveries=3)
    for ranges in (
        (AcquiredRange(0, 2, 1), AcquiredRange(3, 3, 3)),
        (AcquiredRange(5, 6, 3), AcquiredRange(7, 9, 2)),
    ):
        grant.locks.acquire(ranges, 0.0, LOCK)
        grant.add(FetchedPartition(records=batch(0, list(range(10))), acquired=ranges))
        assert grant.is_ending or grant.finish()
    assert not grant.wants_records(1.0)
    assert handed_out(grant) == [3, 5, 6]
    assert not grant.has_run
    assert not grant.said
    assert len(grant.locks) == 9


def test_grant_without_a_last_delivery_hands_out_no_more_when_it_is_taken_away() -> None:
    """Others get it."""
    grant = opened(deliveries=3)
    acquire(grant, 0, 4)
    assert not grant.finish()
    assert handed_out(grant) == []


def test_record_that_is_taken_away_on_its_last_delivery_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker gives it up without a word."""
    grant = opened(deliveries=3)
    grant.locks.acquire([AcquiredRange(0, 4, 2)], 0.0, LOCK)
    grant.tell_given_up()
    assert not caplog.records
    grant.locks.acquire([AcquiredRange(5, 6, 3)], 0.0, LOCK)
    grant.tell_given_up()
    assert "t[0]: 2 records were taken away on their last delivery" in caplog.text


# -- reading ---------------------------------------------------------------------------------


def bring(grant: ShareGrant, data: bytes, *ranges: tuple[int, int, int]) -> None:
    """A fetch acquires ranges of first, last and delivery count."""
    found = tuple(AcquiredRange(*each) for each in ranges)
    grant.locks.acquire(found, 0.0, LOCK)
    grant.add(FetchedPartition(records=data, acquired=found))


def taken(grant: ShareGrant) -> Run:
    """The next run, which is there."""
    run = grant.take(100, 1 << 20)
    assert run is not None
    return run


def pause(grant: ShareGrant) -> None:
    """By the owner."""
    grant.is_paused = True


def fill(grant: ShareGrant) -> None:
    """With as many records as the broker lets a group have, about."""
    acquire(grant, 0, 8)


def rest(grant: ShareGrant) -> None:
    """For a while, after an error."""
    grant.rests_until = 1.5


def end(grant: ShareGrant) -> None:
    """It is taken away."""
    grant.finish()


def fail(grant: ShareGrant) -> None:
    """Its next record could not be read."""
    grant.has_fault = True


@pytest.mark.parametrize("act", [pause, fill, rest, end, fail])
def test_grant_that_cannot_take_more_is_not_fetched(act: Callable[[ShareGrant], None]) -> None:
    """Each reason is enough."""
    grant = opened(limit=10)
    assert grant.wants_records(1.0)
    act(grant)
    assert not grant.wants_records(1.0)


def test_grant_that_rests_is_fetched_when_that_is_over() -> None:
    """From that moment on; one that is new rests not at all."""
    grant = opened()
    assert grant.wants_records(0.0)
    rest(grant)
    assert grant.wants_records(1.5)


def test_records_wait_until_they_are_handed_out() -> None:
    """They are counted, and not handed out while the owner has paused the partition."""
    grant = opened()
    acquire(grant, 0, 4)
    acquire(grant, 5, 6, since=1.0)
    pause(grant)
    assert (grant.buffered, grant.take(3, 1 << 20)) == (7, None)
    grant.resume()
    assert [message.position for message in taken(grant).messages] == [0, 1, 2, 3, 4]
    assert grant.buffered == 2


def test_run_tells_deliveries_that_are_not_the_first() -> None:
    """The tracker counts attempts on from there."""
    grant = opened()
    bring(grant, batch(0, list(range(10))), (0, 1, 2), (2, 3, 1), (4, 4, 5))
    run = taken(grant)
    assert (run.deliveries, run.ascends) == ({0: 2, 1: 2, 4: 5}, True)
    acquire(grant, 5, 9)
    assert taken(grant).deliveries is None


@pytest.mark.parametrize("act", ["lose", "close"])
def test_grant_that_is_over_hands_out_nothing(act: str) -> None:
    """What waits is others' now."""
    grant = opened()
    acquire(grant, 0, 4)
    taken(grant)
    acquire(grant, 5, 9)
    if act == "close":
        grant.close()
        assert grant.is_closed
    else:
        assert grant.lose() == 10
        assert (len(grant.locks), grant.locks.ended) == (0, list(range(10)))
    assert (grant.buffered, grant.take(100, 1 << 20)) == (0, None)


def said(groups: Iterable[AckGroup]) -> dict[int, AckType]:
    """What is said of each offset."""
    return {offset: kind for group in groups for offset, kind in group.types.items()}


def test_gaps_are_acknowledged_and_what_was_cut_off_comes_again() -> None:
    """Of those that are still held: another member's would have the broker refuse all."""
    grant = opened()
    bring(grant, batch(0, [0, 3], last=5), (0, 7, 1))
    grant.locks.lose([2, 7])
    assert handed_out(grant) == [0, 3]
    assert said(grant.said) == {1: GAP, 4: GAP, 5: GAP, 6: RELEASE}
    assert grant.locks.offsets == [0, 3]


def test_nothing_is_said_of_a_record_that_has_come_again_meanwhile() -> None:
    """1. An answer ends before a record. 2. Its lock ends. 3. The next answer brings it."""
    grant = opened()
    bring(grant, batch(0, [0, 1]), (0, 3, 1))
    bring(grant, batch(2, [0, 1]), (2, 3, 2))
    assert handed_out(grant) == [0, 1, 2, 3]
    assert not grant.said
    assert grant.locks.offsets == [0, 1, 2, 3]


def test_damaged_records_come_again_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A bit may have flipped on the way."""
    grant = opened()
    bring(grant, batch(0, [0, 1], bad=True), (0, 1, 1))
    assert handed_out(grant) == []
    assert said(grant.said) == {0: RELEASE, 1: RELEASE}
    assert "t[0]: 2 records from offset 0 on are released" in caplog.text
    assert not grant.has_fault


def test_codec_that_is_missing_is_a_fault_until_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is lost meanwhile."""

    def refuse(*_: Any) -> Any:
        raise UnsupportedCodecError("no snappy")

    grant = opened()
    acquire(grant, 0, 4)
    with monkeypatch.context() as missing:
        missing.setattr(AcquiredRecords, "take", refuse)
        run = taken(grant)
    assert isinstance(run.fault, AdapterError)
    assert "fetching t[0]" in str(run.fault)
    assert (run.messages, grant.take(100, 1 << 20)) == ([], None)
    grant.resume()
    assert handed_out(grant) == [0, 1, 2, 3, 4]


# -- what cannot be read ---------------------------------------------------------------------


def flushed(
    grant: ShareGrant,
    *settled: int,
    rejected: Collection[int] = (),
    released: Collection[int] = (),
    natives: bool = False,
) -> list[dict[int, AckType]]:
    """What a flush of these says, group by group."""
    pairs: Any = [(position, None) for position in settled]
    pairs = SettledRecords.of(pairs) if natives else pairs
    flush = AckFlush(ASSIGNMENT, 1, Checkpoint(), pairs, rejected=rejected, released=released)
    return [group.types for group in grant.acks_of(flush, 1.0, Ticket(lambda _: None))]


def test_unreadable_batch_is_one_message_that_rejects_all_of_it() -> None:
    """Nothing more is handed out before it is dealt with; what is behind it, after that."""
    grant = opened()
    bring(grant, batch(0, [0, 1, 2, 3], bad=True) + batch(4, [0, 1]), (0, 0, 2), (1, 5, 3))
    run = taken(grant)
    assert [message.position for message in run.messages] == [0]
    assert [value for _, value in run.messages[0].headers] == [b"0", b"3"]
    assert (run.last, run.deliveries) == (3, {0: 3})
    assert "fetching t[0]: the offsets 0 to 3 cannot be read" in str(run.fault)
    assert grant.take(100, 1 << 20) is None
    assert not grant.wants_records(1.0)
    grant.resume()
    assert handed_out(grant) == [4, 5]
    assert flushed(grant, 0, 4, rejected={0}) == [{**dict.fromkeys(range(4), REJECT), 4: ACCEPT}]
    assert grant.locks.offsets == [5]
    assert grant.locks.late == 0


def test_unreadable_record_rejects_no_more_than_came_with_it() -> None:
    """1. A batch of four is unreadable. 2. Their locks end. 3. They come again, not all together.

    The others have a message of their own, whose dead letter is not written yet.
    """
    grant = opened()
    data = batch(0, [0, 1, 2, 3], bad=True)
    bring(grant, data, (0, 3, 2))
    assert taken(grant).last == 3
    grant.locks.expire(LOCK)
    for first, last in ((0, 0), (1, 3)):
        grant.resume()
        bring(grant, data, (first, last, 3))
        assert taken(grant).last == last
    assert flushed(grant, 0, rejected={0}) == [{0: REJECT}]
    assert flushed(grant, 1, rejected={1}) == [{1: REJECT, 2: REJECT, 3: REJECT}]


@pytest.mark.parametrize("natives", [True, False])
def test_flush_says_of_each_record_what_became_of_it(*, natives: bool) -> None:
    """Rejected ones are among the settled; released ones go in a group of their own."""
    grant = opened()
    acquire(grant, 0, 6)
    found = flushed(grant, 0, 2, 1, rejected={2}, released=[4, 5], natives=natives)
    assert found == [{0: ACCEPT, 2: REJECT, 1: ACCEPT}, {4: RELEASE, 5: RELEASE}]
    assert flushed(grant, 3) == [{3: ACCEPT}]
    assert flushed(grant, released=[6]) == [{6: RELEASE}]
    assert flushed(grant) == []


def test_nothing_is_told_of_deliveries_where_their_limit_is_not_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker may have been asked in vain."""
    grant = opened()
    grant.locks.acquire([AcquiredRange(0, 4, 7)], 0.0, LOCK)
    grant.tell_given_up()
    assert not caplog.records
