"""Where a query begins and ends, in Spark's option names."""

from __future__ import annotations

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtTime, Partition, StartPoint
from consumer_sdk.spark_bridge.pull.options.options import ending, starting
from consumer_sdk.spark_bridge.pull.planning.starts import PositionText, Starts

A0, A1, B0 = Partition("a", "0"), Partition("a", "1"), Partition("b", "0")
EARLIEST, LATEST, BROKER = StartPoint.EARLIEST, StartPoint.LATEST, StartPoint.BROKER
EACH = '{"b":{"0":-1},"a":{"1":-2,"0":23}}'
TIMES = '{"a":{"0":1500}}'
STRATEGY = "startingOffsetsByTimestampStrategy"


@pytest.mark.parametrize(
    "options, starts",
    [
        ({}, None),
        ({"startingOffsets": "earliest"}, Starts(EARLIEST)),
        ({"startingOffsets": " Latest "}, Starts(LATEST)),
        ({"startingOffsets": "committed"}, Starts(BROKER)),
        (
            {"startingOffsets": EACH},
            Starts(None, ((A0, PositionText("23")), (A1, EARLIEST), (B0, LATEST))),
        ),
        (
            {"startingOffsets": '{"a":{"0":"7:1:-1"}}'},
            Starts(None, ((A0, PositionText("7:1:-1")),)),
        ),
        ({"startingTimestamp": "1500"}, Starts(AtTime(1.5), option="startingTimestamp")),
        (
            {"startingTimestamp": "0", STRATEGY: "latest"},
            Starts(AtTime(0), option="startingTimestamp", late=LATEST),
        ),
        (
            {"startingTimestamp": "0", STRATEGY: "LATEST"},
            Starts(AtTime(0), option="startingTimestamp", late=LATEST),
        ),
        (
            {"startingOffsetsByTimestamp": TIMES},
            Starts(None, ((A0, AtTime(1.5)),), option="startingOffsetsByTimestamp"),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":1500,"1":-2},"b":{"0":"-1"}}'},
            Starts(
                None,
                ((A0, AtTime(1.5)), (A1, EARLIEST), (B0, LATEST)),
                "startingOffsetsByTimestamp",
            ),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":"1500"}}', STRATEGY: "error"},
            Starts(None, ((A0, AtTime(1.5)),), option="startingOffsetsByTimestamp"),
        ),
    ],
)
def test_starts_are_those_of_spark(options: dict[str, str], starts: Starts | None) -> None:
    """And "committed", and the texts of positions that are no integers."""
    assert starting(options) == starts


def test_times_come_before_positions() -> None:
    """Spark's order: one time for all, times, positions."""
    options = {"startingOffsets": EACH, "startingOffsetsByTimestamp": TIMES}
    assert starting(options) == starting({"startingOffsetsByTimestamp": TIMES})
    options["startingTimestamp"] = "1500"
    assert starting(options) == starting({"startingTimestamp": "1500"})


@pytest.mark.parametrize(
    "options, ends",
    [
        ({}, None),
        ({"endingOffsets": "latest"}, Starts(LATEST, option="endingOffsets")),
        (
            {"endingOffsets": '{"a":{"0":9}}'},
            Starts(None, ((A0, PositionText("9")),), option="endingOffsets"),
        ),
        (
            {"endingTimestamp": "1500"},
            Starts(AtTime(1.5), option="endingTimestamp", late=LATEST),
        ),
        (
            {"endingOffsetsByTimestamp": TIMES},
            Starts(None, ((A0, AtTime(1.5)),), "endingOffsetsByTimestamp", LATEST),
        ),
    ],
)
def test_ends_are_those_of_spark(options: dict[str, str], ends: Starts | None) -> None:
    """A time after the last record is the latest one."""
    assert ending(options) == ends


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"startingOffsets": "newest"}, "startingOffsets='newest'.*earliest, latest, committed or"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-3 of a/0"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "True of a/0"),
        ({"startingOffsets": '{"a":{"0":1.5}}'}, "1.5 of a/0"),
        ({"startingOffsets": '{"a":[0]}'}, "give earliest"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday'"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-3}}'}, "startingOffsetsByTimestamp='-3'"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":null}}'}, "None of a/0: .*milliseconds"),
        ({STRATEGY: "earliest"}, "give one of error, latest"),
    ],
)
def test_a_wrong_start_says_what_is_allowed(options: dict[str, str], complaint: str) -> None:
    """With the option and the value."""
    with pytest.raises(ConfigurationError, match=complaint):
        starting(options)


@pytest.mark.parametrize("text", ["earliest", "committed", '{"a":{"0":-2}}'])
def test_a_query_cannot_end_where_nothing_was_read(text: str) -> None:
    """As in Spark."""
    with pytest.raises(ConfigurationError, match="endingOffsets"):
        ending({"endingOffsets": text})
