"""One grant after another of a partition."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.lookups import GroupOffset
from consumer_sdk.adapters.kafka.consumer.grants import Grant

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
