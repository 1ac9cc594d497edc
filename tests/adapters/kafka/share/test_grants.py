"""What a member hands out of a partition: only what is still its own."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kafka.share.grants import ShareGrant
from consumer_sdk.adapters.kafka.share.messages import (
    AcquiredRange,
    FetchedPartition,
    TopicIdPartition,
)
from consumer_sdk.records import Assignment, Partition
from tests.adapters.kafka.share.test_reading import batch

LOCK = 30.0


def opened(*, deliveries: int | None = None) -> ShareGrant:
    """A grant that is read."""
    grant = ShareGrant(
        Assignment(Partition("t", "0"), 1),
        TopicIdPartition(b"t" * 16, 0),
        most=1 << 20,
        checks=True,
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
        assert grant.finish()
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
