"""Message ids as positions."""

from __future__ import annotations

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client.ids import (
    Place,
    batch_size,
    gaps,
    id_at,
    is_whole,
    next_place,
    place_of,
)
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
    assert made.partition() == -1


def test_only_a_record_outside_of_a_batch_is_its_entry() -> None:
    """An ack of any other one leaves the rest of its entry."""
    assert is_whole(place_of(_pulsar.MessageId(0, 17, 4, -1)))
    assert not is_whole(place_of(_pulsar.MessageId(0, 17, 4, 0)))


WHOLE = LAST_BATCH_INDEX


@pytest.mark.parametrize(
    "places, expected",
    [
        ([], []),
        ([(17, 4, WHOLE)], []),
        ([(17, 4, 0), (17, 4, 1), (17, 5, WHOLE), (17, 6, 2)], []),
        # Of an entry all comes that was not acked: what is missing of one is settled.
        ([(17, 4, 0), (17, 4, 7)], []),
        ([(17, 4, WHOLE), (17, 6, WHOLE)], [1]),
        ([(17, 4, 0), (17, 4, 1), (17, 5, 0), (17, 7, 0), (17, 8, 0), (17, 11, 0)], [3, 5]),
        ([(17, 4, 0), (17, 6, 0), (17, 6, 1)], [1]),
        # Nobody tells that an entry was the last of its ledger.
        ([(17, 4, WHOLE), (18, 0, WHOLE)], [1]),
        ([(17, 4, WHOLE), (18, 4, WHOLE), (18, 5, WHOLE)], [1]),
        ([(17, 4, WHOLE), (18, 5, WHOLE)], [1]),
        ([(17, 17, WHOLE), (18, 0, WHOLE), (18, 1, WHOLE)], [1]),
    ],
)
def test_records_may_lie_where_an_entry_is_missing_or_a_ledger_ends(
    places: list[Place], expected: list[int]
) -> None:
    """A record that comes later, from there, is a new one: it must not count as settled."""
    assert gaps(places) == expected


IN_A_BATCH = b"\x08\x11\x10\x04\x18\x00\x20\x03\x30"
"""Ledger 17, entry 4, partition 0, index 3; the batch's size follows."""


@pytest.mark.parametrize(
    "data, size",
    [
        (IN_A_BATCH + b"\x05", 5),
        (IN_A_BATCH + b"\xac\x02", 300),
        (IN_A_BATCH + b"\x81\x81\x04", 65_665),
        (b"\x08\x11\x10\x04\x18\x00", 0),
        # In chunks: the id of the first chunk is a message in the message, and nothing of it counts.
        (b"\x08\x11\x10\x06\x18\x00\x3a\x06\x08\x11\x10\x04\x30\x05", 0),
    ],
)
def test_size_of_a_batch_is_read_from_the_id(data: bytes, size: int) -> None:
    """An entry that counts as smaller than it is would be acked before all of it is settled."""
    assert batch_size(_pulsar.MessageId.deserialize(data)) == size
