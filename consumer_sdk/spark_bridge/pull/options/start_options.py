"""Where a query begins and ends, in the option names of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtTime, Partition, StartPoint
from consumer_sdk.spark_bridge.pull.options.option_values import choice, json_object, number
from consumer_sdk.spark_bridge.pull.planning.starts import PositionText, Starts, Wanted

__all__ = ["ENDING", "STARTING", "ending", "starting"]

STARTING = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
)
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

POINTS = {
    "earliest": StartPoint.EARLIEST,
    "latest": StartPoint.LATEST,
    "committed": StartPoint.BROKER,
}
SPECIAL = {-2: StartPoint.EARLIEST, -1: StartPoint.LATEST}
POSITIONS = '{"topic":{"0":23,"1":-2}} (-2: earliest, -1: latest)'
TIMES = '{"topic":{"0":1700000000000,"1":-2}} (milliseconds; -2: earliest, -1: latest)'


def starting(options: Mapping[str, str]) -> Starts | None:
    """Where the query begins; None where no option says.

    A time for all comes before times for each, and these before positions, as in Spark.

    Raises:
        ConfigurationError: a value is wrong.
    """
    strategy = "startingOffsetsByTimestampStrategy"
    given = options.get(strategy, "error").strip().lower()
    is_latest = choice(strategy, given, ("error", "latest")) == "latest"
    return _bound(options, STARTING, tuple(POINTS), StartPoint.LATEST if is_latest else None)


def ending(options: Mapping[str, str]) -> Starts | None:
    """Where a batch query ends; None where no option says. A time too late is the latest record.

    Raises:
        ConfigurationError: a value is wrong.
    """
    found = _bound(options, ENDING, ("latest",), StartPoint.LATEST)
    if found and StartPoint.EARLIEST in dict(found.each).values():
        raise ConfigurationError(f"{found.option}: a query cannot end at -2, the earliest record")
    return found


def _bound(
    options: Mapping[str, str],
    names: tuple[str, ...],
    points: tuple[str, ...],
    late: StartPoint | None,
) -> Starts | None:
    at, each_at, positions, *_ = names
    if (text := options.get(at)) is not None:
        return Starts(_time(at, text), option=at, late=late)
    if (text := options.get(each_at)) is not None:
        return Starts(None, _each(each_at, text, TIMES, _time_of), each_at, late)
    if (text := options.get(positions)) is not None:
        return _positions(positions, text, points)
    return None


def _positions(option: str, text: str, points: tuple[str, ...]) -> Starts:
    point = text.strip().lower()
    if point in points:
        return Starts(POINTS[point], option=option)
    form = f"{', '.join(points)} or {POSITIONS}"
    return Starts(None, _each(option, text, form, _position), option)


def _each(
    option: str, text: str, form: str, read: Callable[[str, Any], Wanted | None]
) -> tuple[tuple[Partition, Wanted], ...]:
    found = []
    for stream, partitions in json_object(option, text, form).items():
        for id_, value in partitions.items():
            wanted = read(option, value)
            if wanted is None:
                raise ConfigurationError(f"{option}: {value!r} of {stream}/{id_}: give {form}")
            found.append((Partition(stream, id_), wanted))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _position(_option: str, value: Any) -> Wanted | None:
    if type(value) is int:
        return PositionText(str(value)) if value >= 0 else SPECIAL.get(value)
    return PositionText(value) if isinstance(value, str) else None


def _time_of(option: str, value: Any) -> Wanted | None:
    if type(value) is not int and not isinstance(value, str):
        return None
    special = {str(number): point for number, point in SPECIAL.items()}
    return special.get(str(value).strip()) or _time(option, str(value))


def _time(option: str, text: str) -> AtTime:
    return AtTime(number(option, text) / 1000)
