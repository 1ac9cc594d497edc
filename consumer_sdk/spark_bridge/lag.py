"""How far a source is behind, from the offsets in Spark's progress reports. Pure.

Spark hands on two JSON texts of a source: where the micro-batch ended, and what the source said was
the latest. Those of the bridge are ``{"version": 1, "positions": {"orders": {"0": "41"}}}`` (pull) and
``{"next": 7}`` (feed, which counts segments).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from consumer_sdk.records import Partition

__all__ = ["FEED", "Lag", "LagUnit", "read_lag"]

LagUnit: TypeAlias = Literal["positions", "segments"]

FEED = Partition("feed", "segments")
"""What stands for a whole feed, whose segments are in one order."""

_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a source's newest record a micro-batch ended.

    Attributes:
        unit: ``"positions"``, which are as many records except where a topic was compacted or has
            transactions; or ``"segments"`` of a feed.
        behind: for each partition; None where it is not known, as with positions that are no
            numbers (Pulsar), or in a partition that was not read yet or is gone.
    """

    unit: LagUnit
    behind: Mapping[Partition, int | None]

    @property
    def total(self) -> int | None:
        """The sum of what is known; None if nothing is."""
        known = self._known()
        return sum(known) if known else None

    @property
    def least(self) -> int | None:
        """Of the partition that is least behind."""
        return min(self._known(), default=None)

    @property
    def most(self) -> int | None:
        """Of the partition that is furthest behind."""
        return max(self._known(), default=None)

    @property
    def average(self) -> float | None:
        """Of the partitions of which it is known."""
        known = self._known()
        return sum(known) / len(known) if known else None

    def _known(self) -> list[int]:
        return [each for each in self.behind.values() if each is not None]


def read_lag(end: str | None, latest: str | None) -> Lag | None:
    """The lag that two offsets mean; None when they are of another source than the bridge's.

    Args:
        end: the JSON of a micro-batch's end.
        latest: the JSON of the latest offset that the source knew of; may be none at all, or
            older than the end.
    """
    places = _places(end)
    if places is None:
        return None
    unit, read = places
    there = _places(latest)
    newest = there[1] if there and there[0] == unit else {}
    partitions = sorted(read.keys() | newest.keys())
    return Lag(unit, {each: _behind(read.get(each), newest.get(each)) for each in partitions})


def _behind(read: int | None, newest: int | None) -> int | None:
    # The source looks for the latest offset now and then: a batch may have ended behind it.
    return None if read is None or newest is None else max(0, newest - read)


def _places(offset: str | None) -> tuple[LagUnit, dict[Partition, int | None]] | None:
    found = _json(offset)
    if not isinstance(found, dict):
        return None
    if found.keys() - {"since"} == {"next"} and type(found["next"]) is int:
        return "segments", {FEED: found["next"]}
    positions = found.get("positions")
    if found.get("version") != 1 or not isinstance(positions, dict):
        return None
    return "positions", _numbers(positions)


def _numbers(positions: dict[str, Any]) -> dict[Partition, int | None]:
    return {
        Partition(stream, number): _number(text)
        for stream, places in positions.items()
        if isinstance(places, dict)
        for number, text in places.items()
    }


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else None


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:  # Spark writes "None" and "null" for no offset
        return None
