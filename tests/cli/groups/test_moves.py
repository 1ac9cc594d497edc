"""What a reset repeats and skips, by the checkpoint alone."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX as ALL
from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.cli.groups.moves import (
    Bounds,
    between,
    open_below,
    parse_target,
    settled_from,
    standing,
)
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtPosition, AtTime, Checkpoint, StartPoint

LOG = Bounds(10, 100)
HOLEY = Checkpoint(41, 42, ranges=((50, 59), (70, 70)))


@pytest.mark.parametrize(
    "checkpoint, to, repeats, skips",
    [
        (HOLEY, 10, [(10, 42), (50, 60), (70, 71)], []),
        (HOLEY, 42, [(50, 60), (70, 71)], []),
        (HOLEY, 55, [(55, 60), (70, 71)], [(42, 50)]),
        (HOLEY, 100, [], [(42, 50), (60, 70), (71, 100)]),
        (None, 100, [], [(10, 100)]),
        (Checkpoint(ended=True), 20, [(20, 100)], []),
        (Checkpoint(resume=5), 12, [], [(10, 12)]),
    ],
)
def test_settled_records_are_repeated_and_open_ones_skipped(
    checkpoint: Checkpoint | None, to: int, repeats: list[Any], skips: list[Any]
) -> None:
    """What retention has deleted counts as neither."""
    assert settled_from(checkpoint, to, LOG) == repeats
    assert open_below(checkpoint, to, LOG) == skips


def test_group_stands_at_the_end_of_a_partition_that_has_ended() -> None:
    """A shift goes on from there, and does not repeat all of it."""
    assert standing(Checkpoint(ended=True), LOG) == 100
    assert standing(HOLEY, LOG) == 42
    assert standing(None, LOG) is None


def test_messages_of_pulsar_that_were_not_batched_are_their_entries() -> None:
    """A hole of one entry is one entry."""
    bounds = Bounds((7, 0, 0), (7, 6, 0))
    checkpoint = Checkpoint((7, 1, ALL), (7, 2, ALL), ranges=(((7, 3, ALL), (7, 3, ALL)),))
    assert open_below(checkpoint, bounds.end, bounds) == [
        ((7, 2, 0), (7, 3, 0)),
        ((7, 4, 0), (7, 6, 0)),
    ]


def test_targets_are_read() -> None:
    """A number is a position; a time says that it is one."""
    assert parse_target("latest", decode_offset, 0.0) is StartPoint.LATEST
    assert parse_target("42", decode_offset, 0.0) == AtPosition(42)
    assert parse_target("@42", decode_offset, 0.0) == AtTime(42.0)
    assert [between(at, LOG) for at in (1, 42, 101)] == [10, 42, 100]
    with pytest.raises(ConfigurationError, match="give earliest, latest"):
        parse_target("4 2", decode_offset, 0.0)
