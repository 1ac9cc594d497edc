"""Where partitions begin."""

from __future__ import annotations

import pytest

from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtTime, Partition, Position, Start, StartPoint
from consumer_sdk.spark_bridge.pull.planning.starts import (
    NEW,
    PositionText,
    Starts,
    questions,
    resolve,
)

A0, A1 = Partition("a", "0"), Partition("a", "1")
EARLIEST, LATEST, BROKER = StartPoint.EARLIEST, StartPoint.LATEST, StartPoint.BROKER
AT_FIVE = AtTime(5.0)

BROKERS_VIEW: dict[Start, dict[Partition, Position | None]] = {
    EARLIEST: {A0: 3, A1: 0},
    LATEST: {A0: 90, A1: 10},
    BROKER: {A0: 40, A1: None},
    AT_FIVE: {A0: 55, A1: None},
}


def begun(starts: Starts) -> dict[Partition, Position]:
    """What `resolve` says, from answers to exactly what was asked."""
    asked = questions(starts, [A1, A0])
    answers = {each: {p: BROKERS_VIEW[each][p] for p in of} for each, of in asked.items()}
    return resolve(starts, [A1, A0], answers, decode_offset)


@pytest.mark.parametrize(
    "starts, begins",
    [
        (Starts(EARLIEST), {A0: 3, A1: 0}),
        (Starts(LATEST), {A0: 90, A1: 10}),
        (Starts(BROKER), {A0: 40, A1: 0}),
        (Starts(AT_FIVE, late=LATEST), {A0: 55, A1: 10}),
        (Starts(None, ((A0, PositionText("23")), (A1, LATEST))), {A0: 23, A1: 10}),
        (Starts(None, ((A0, AT_FIVE), (A1, EARLIEST))), {A0: 55, A1: 0}),
        (NEW, {A0: 3, A1: 0}),
    ],
)
def test_each_partition_begins_where_it_was_asked_to(
    starts: Starts, begins: dict[Partition, Position]
) -> None:
    """A group that stands nowhere: earliest; a time too late: latest, where that was asked for."""
    assert begun(starts) == begins


def test_only_what_counts_is_asked() -> None:
    """Each question names the partitions that need it, in order."""
    starts = Starts(None, ((A0, PositionText("23")), (A1, BROKER)))
    assert questions(starts, [A1, A0]) == {BROKER: [A1], EARLIEST: [A1]}
    assert questions(Starts(LATEST), [A1, A0]) == {LATEST: [A0, A1]}


def test_a_time_after_the_last_record_is_an_error() -> None:
    """startingOffsetsByTimestampStrategy=error, the default: says which partition and option."""
    with pytest.raises(ConfigurationError, match=r"startingTimestamp: a/1 .* 5000 ms.*=latest"):
        begun(Starts(AT_FIVE, option="startingTimestamp"))


def test_a_partition_that_is_gone_is_left_out() -> None:
    """Nothing is made up for it."""
    answers: dict[Start, dict[Partition, Position | None]] = {LATEST: {A0: None, A1: 10}}
    assert resolve(Starts(LATEST), [A0, A1], answers, decode_offset) == {A1: 10}


def test_a_position_of_another_broker_is_an_error() -> None:
    """It says which option and partition."""
    starts = Starts(None, ((A0, PositionText("1:2:3")), (A1, LATEST)))
    with pytest.raises(ConfigurationError, match="startingOffsets: '1:2:3' is no position of a/0"):
        begun(starts)


@pytest.mark.parametrize(
    "named, complaint",
    [([A0], "a/1 is left out"), ([A0, A1, Partition("b", "0")], "b/0 is not there")],
)
def test_a_start_for_other_partitions_is_an_error(named: list[Partition], complaint: str) -> None:
    """As in Spark: a mistyped topic does not go unnoticed."""
    starts = Starts(None, tuple((each, LATEST) for each in named))
    with pytest.raises(ConfigurationError, match=complaint):
        questions(starts, [A0, A1])
