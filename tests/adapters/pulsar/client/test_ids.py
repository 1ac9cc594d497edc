"""Message ids as positions."""

from __future__ import annotations

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client.ids import id_at, next_place, place_of
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX


def test_record_outside_of_a_batch_stands_for_its_whole_entry() -> None:
    """Pulsar trap 30: Pulsar's -1 would sort before the entry's indexes, where acks mean all of them."""
    assert place_of(_pulsar.MessageId(0, 17, 4, -1)) == (17, 4, LAST_BATCH_INDEX)
    assert place_of(_pulsar.MessageId(0, 17, 4, 3)) == (17, 4, 3)


@pytest.mark.parametrize("partition", [-1, 0, 7])
def test_partition_is_no_part_of_the_place(partition: int) -> None:
    """Pulsar trap 18: it is -1 in ids that were made anew, and equality would fail."""
    assert place_of(_pulsar.MessageId(partition, 17, 4, 0)) == (17, 4, 0)


def test_places_are_ordered_over_ledgers_entries_and_indexes() -> None:
    """Pulsar trap 18: a ledger that rolled starts at entry 0."""
    ids = [(17, 4, 0), (17, 4, 63), (17, 4, 64), (17, 4, -1), (17, 5, 0), (18, 0, 0), (18, 0, -1)]
    places = [place_of(_pulsar.MessageId(0, *each)) for each in ids]
    assert places == sorted(set(places))


def test_next_place_is_above_all_of_an_entry_and_at_the_next() -> None:
    """Nothing lies in between."""
    assert (17, 4, LAST_BATCH_INDEX) < next_place((17, 4, 2)) <= (17, 5, 0)


def test_id_to_seek_to_is_the_entry_as_a_whole() -> None:
    """Seeks are inclusive; the place's own entry comes first, all of it."""
    made = id_at((17, 4, 3))
    assert (made.ledger_id(), made.entry_id(), made.batch_index()) == (17, 4, -1)
