"""Starts in the words of Kinesis."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.adapters.kinesis.starts import NOTHING_LEFT, after, iterator_start, sequence_of
from consumer_sdk.checkpoints.positions import decode_sequence, encode_sequence
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtPosition, AtTime, Position, Start, StartPoint

HUGE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898


@pytest.mark.parametrize(
    "start,expected",
    [
        (StartPoint.EARLIEST, IteratorStart("TRIM_HORIZON")),
        (AtTime(1.5), IteratorStart("AT_TIMESTAMP", time=1.5)),
        (AtPosition((HUGE, 0)), IteratorStart("AT_SEQUENCE_NUMBER", HUGE)),
        (AtPosition((HUGE, 7)), IteratorStart("AT_SEQUENCE_NUMBER", HUGE)),
        (AtPosition(after(HUGE)), IteratorStart("AT_SEQUENCE_NUMBER", HUGE)),
    ],
)
def test_start_is_asked_for_exactly(start: Start, expected: IteratorStart) -> None:
    """Kinesis traps 20 and 29: AT the record, and what is known of it is left out afterwards."""
    assert iterator_start(start) == expected


@pytest.mark.parametrize("start", [StartPoint.LATEST, StartPoint.ENDED, StartPoint.BROKER])
def test_start_that_is_no_place_is_refused(start: Start) -> None:
    """Kinesis trap 23: LATEST is never asked of the service, as each time it is another place."""
    with pytest.raises(ValueError, match="is no place in a shard"):
        iterator_start(start)


@pytest.mark.parametrize("position", [7, (7,), (7, 0, 0), ("7", 0), (7, "0"), (7.0, 0), None])
def test_position_of_another_broker_is_refused(position: Position) -> None:
    """It may stand in a checkpoint that was moved, or in a start that somebody wrote."""
    with pytest.raises(ConfigurationError, match="is no position in a shard"):
        sequence_of(position)


def test_positions_are_ordered_as_numbers() -> None:
    """Kinesis trap 11: 56 digits, compared as integers; after a record is before the next one."""
    rising = [
        (0, 0),
        NOTHING_LEFT,
        (1, 0),
        (9, 0),
        (10, 0),
        (10, 1),
        after(10),
        (11, 0),
        (HUGE, 0),
        (HUGE + 1, 0),
    ]
    assert rising == sorted(rising)
    assert [decode_sequence(encode_sequence(position)) for position in rising] == rising
