"""One grant after another of a partition."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kafka.client.lookups import GroupOffset
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.fetch.cursor import Chunk, Reach
from consumer_sdk.records import Checkpoint, Partition

TP = TopicPartition("t", 0)


def begun(grant: Grant, offset: int = 100, epoch: int = 5) -> Grant:
    """The grant, where the group stands."""
    grant.stands = GroupOffset(offset, "", epoch)
    grant.seek(offset)
    return grant


def test_what_the_group_has_committed_tells_of_its_past() -> None:
    """Only where the grant begins there."""
    assert begun(Grant(TP, None)).cursor.last_epoch == 5
    other = begun(Grant(TP, None))
    other.seek(7)
    assert other.cursor.last_epoch == -1


@pytest.mark.parametrize("end", [50, -1])
def test_past_that_is_lost_is_told_once(end: int) -> None:
    """Else the broker says the same of the same commit, for ever; a later grant is told again."""
    first = begun(Grant(TP, None))
    first.cursor.has_lost_past, first.cursor.past_end = True, end
    second = first.again()
    assert second.within_past(200) == (end if end > 0 else 200)
    assert (second.within_past(20), second.within_past(None)) == (20, None)
    begun(second)
    assert (second.cursor.last_epoch, second.within_past(200)) == (-1, 200)
    assert begun(second.again()).cursor.last_epoch == 5


def test_new_grant_knows_nothing_of_its_partition() -> None:
    """Neither where the group stands nor what was committed; each is a later epoch."""
    first, second = Grant(TP), Grant(TP, discovered=True)
    assert (first.key, first.cursor.tp, first.assignment.partition) == (TP, TP, Partition("t", "0"))
    assert (first.committed, first.number, first.checkpoint) == (-1, 0, Checkpoint())
    assert (first.acquitted, first.reported, first.past_end, first.attempt) == (-1, -1, -1, 0)
    assert (first.topic_id, first.behind, first.stands) == (None, None, None)
    assert not any((first.is_copy, first.has_fault, first.is_salvaged, first.has_lost_past))
    assert (first.assignment.discovered, second.assignment.discovered) == (False, True)
    assert first.assignment.fence is None
    assert second.assignment.epoch > first.assignment.epoch


def opened(state: GrantState = GrantState.OPEN) -> Grant:
    """A grant at offset 5, which is fetched."""
    grant = Grant(TP)
    grant.state = state
    grant.cursor.seek(5)
    grant.resume()
    return grant


@pytest.mark.parametrize("state", [each for each in GrantState if each is not GrantState.OPEN])
def test_grant_that_is_not_open_is_not_fetched(state: GrantState) -> None:
    """Whatever its owner says."""
    grant = opened(state)
    assert not grant.is_fetched
    assert grant.cursor.paused


@pytest.mark.parametrize("why", ["is_paused", "has_fault", "is_salvaged"])
def test_grant_that_is_held_back_is_not_fetched(why: str) -> None:
    """By its owner, or until something is dealt with."""
    grant = opened()
    assert grant.is_fetched
    assert not grant.cursor.paused
    setattr(grant, why, True)
    assert not grant.is_fetched


def test_pause_keeps_what_was_fetched_until_the_grant_is_resumed() -> None:
    """The cursor asks for nothing meanwhile."""
    grant = opened()
    grant.cursor.put(Chunk(b"", 5, Reach(9, 0, is_compressed=False)))
    grant.pause()
    assert (grant.is_paused, grant.cursor.paused, len(grant.cursor.queue)) == (True, True, 1)
    grant.resume()
    assert (grant.is_paused, grant.cursor.paused, len(grant.cursor.queue)) == (False, False, 1)


def test_resume_goes_on_behind_what_cannot_be_read() -> None:
    """Once that was reported, and the owner has decided."""
    grant = opened()
    grant.pause()
    grant.has_fault, grant.behind = True, 0
    grant.resume()
    left: int | None = grant.behind
    assert (grant.cursor.position, left, grant.has_fault) == (0, None, False)
    assert (grant.is_fetched, grant.cursor.paused) == (True, False)


def test_resume_of_a_fault_that_has_no_end_leaves_it_a_fault() -> None:
    """Nobody knows where to go on: it has to be granted again."""
    grant = opened()
    grant.pause()
    grant.has_fault = True
    grant.resume()
    assert (grant.cursor.position, grant.has_fault, grant.cursor.paused) == (5, True, True)


def test_resume_of_what_drains_goes_nowhere() -> None:
    """Its position is what was handed out."""
    grant = opened()
    grant.pause()
    grant.state, grant.behind = GrantState.DRAINING, 9
    grant.resume()
    assert (grant.cursor.position, grant.behind, grant.cursor.paused) == (5, 9, True)


def test_close_ends_the_cursor_too() -> None:
    """Nothing is fetched for it any more."""
    grant = opened()
    grant.close()
    assert (grant.is_closed, grant.cursor.is_closed) == (True, True)


def test_partition_that_is_granted_again_keeps_its_tenure() -> None:
    """And how often in a row it was declined."""
    tenure = object()
    first = Grant(TP, tenure, discovered=True, attempt=2)
    second = first.again()
    assert (second.tp, second.tenure, second.attempt) == (TP, tenure, 3)
    assert second.assignment.discovered
    assert second.assignment.epoch > first.assignment.epoch
    assert (second.has_lost_past, second.past_end) == (False, -1)


@pytest.mark.parametrize("past_end, end", [(0, 0), (50, 50), (300, 200), (-1, 200)])
def test_end_of_the_past_bounds_the_log(past_end: int, end: int) -> None:
    """Also where all of it is lost."""
    grant = Grant(TP)
    grant.past_end = past_end
    assert grant.within_past(200) == end
