"""How far a source is behind, from the offsets in Spark's progress reports. Pure.

Spark hands on two JSON texts of a source: where the micro-batch ended, and what the source said was
the latest. `read_offset` parses each once. Those of the bridge are ``{"version": 1, "positions": {"orders": {"0": "41"}}}`` (pull) and
``{"next": 7}`` (feed, which counts segments).

The latest one is no checkpoint, so it also says what an end has no place for: ``broker`` and ``group``
(and of a feed ``directory``), and what waits behind the end that the source has just chosen. That is
``"waiting": {"orders": {"0": 1790000000.5}}`` for a pull (since when, in seconds since the epoch), and
``"waiting": 1790000000.5, "records": 200`` for a feed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from consumer_sdk.records import Partition

__all__ = ["FEED", "Lag", "LagUnit", "Origin", "read_lag", "read_offset", "read_origin"]

LagUnit: TypeAlias = Literal["positions", "segments"]

FEED = Partition("feed", "segments")
"""What stands for a whole feed, whose segments are in one order."""

_NUMBER = re.compile(r"[0-9]{1,19}")
_BESIDE = {"since", "broker", "group", "directory", "waiting", "records"}
"""What may stand beside ``next``."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a source's newest record a micro-batch ended.

    Attributes:
        unit: ``"positions"`` (as many as records, unless the topic was compacted or has
            transactions), or ``"segments"`` of a feed.
        behind: for each partition; None if unknown: positions that are no numbers (Pulsar), and
            partitions that were not read yet or are gone.
        waiting: when the first unread record began to wait, in seconds since the epoch, for
            partitions where that is known. For a feed: when its segment was written.
        feed_records: records in those segments, if known; None for positions.
    """

    unit: LagUnit
    behind: Mapping[Partition, int | None]
    waiting: Mapping[Partition, float] = field(default_factory=dict)
    feed_records: int | None = None

    def records(self, partition: Partition) -> int | None:
        """Records behind; None if unknown."""
        return self.feed_records if self.unit == "segments" else self.behind[partition]

    def seconds(self, partition: Partition, now: float) -> float | None:
        """How long the first unread record has waited: 0 if there is none, None if unknown.

        Args:
            now: seconds since the epoch.
        """
        if self.behind[partition] == 0:
            return 0.0
        since = self.waiting.get(partition)
        return None if since is None else max(0.0, now - since)

    @property
    def total(self) -> int | None:
        """The sum over partitions whose lag is known; None if there are none."""
        known = self._known()
        return sum(known) if known else None

    @property
    def least(self) -> int | None:
        """The lag of the partition that is least behind."""
        return min(self._known(), default=None)

    @property
    def most(self) -> int | None:
        """The lag of the partition that is furthest behind."""
        return max(self._known(), default=None)

    @property
    def average(self) -> float | None:
        """The mean over partitions whose lag is known."""
        known = self._known()
        return sum(known) / len(known) if known else None

    def _known(self) -> list[int]:
        return [each for each in self.behind.values() if each is not None]


class Origin(NamedTuple):
    """What a source reads from.

    Attributes:
        broker: ``"kafka"``, ``"pulsar"`` or ``"feed"``.
        group: whose position it moves, or the feed's reader; None for nobody's.
        directory: of a feed, else None.
    """

    broker: str
    group: str | None
    directory: str | None = None


def read_offset(text: str | None) -> Mapping[str, Any] | None:
    """The JSON object that Spark reports as an offset; None where it has none, or it is none."""
    try:
        found = None if text is None else json.loads(text)
    except ValueError:  # Spark writes "None" and "null" for no offset
        return None
    return found if isinstance(found, dict) else None


def read_origin(latest: Mapping[str, Any] | None) -> Origin | None:
    """What a source of the bridge reads from, by its latest offset; None where that does not say."""
    if latest is None or not isinstance(latest.get("broker"), str):
        return None
    return Origin(latest["broker"], _text(latest.get("group")), _text(latest.get("directory")))


def read_lag(end: Mapping[str, Any] | None, latest: Mapping[str, Any] | None) -> Lag | None:
    """The lag that two offsets mean; None when they are of another source than the bridge's.

    Args:
        end: where a micro-batch ended.
        latest: the latest offset that the source knew of; there may be none, or it may be older
            than the end.
    """
    places = _places(end)
    if places is None:
        return None
    unit, read = places
    there = _places(latest)
    newest = there[1] if there and there[0] == unit else {}
    if latest is None or not newest:
        return Lag(unit, dict.fromkeys(sorted(read)))
    partitions = sorted(read.keys() | newest.keys())
    behind = {each: _behind(read.get(each), newest.get(each)) for each in partitions}
    return Lag(unit, behind, *_waiting(latest, unit))


def _behind(read: str | None, newest: str | None) -> int | None:
    if read is None or newest is None:
        return None
    if read == newest:
        return 0  # whatever the positions are
    if not _NUMBER.fullmatch(read) or not _NUMBER.fullmatch(newest):
        return None
    # The source looks for the latest offset now and then: a batch may have ended behind it.
    return max(0, int(newest) - int(read))


def _places(offset: Mapping[str, Any] | None) -> tuple[LagUnit, dict[Partition, str]] | None:
    if offset is None:
        return None
    if offset.keys() - _BESIDE == {"next"} and type(offset["next"]) is int:
        return "segments", {FEED: str(offset["next"])}
    positions = offset.get("positions")
    if offset.get("version") != 1 or not isinstance(positions, dict):
        return None
    return "positions", _by_partition(positions, str)


def _waiting(latest: Mapping[str, Any], unit: LagUnit) -> tuple[dict[Partition, float], int | None]:
    waiting, records = latest.get("waiting"), latest.get("records")
    if unit == "segments":
        since = {FEED: waiting} if isinstance(waiting, int | float) else {}
        return since, records if type(records) is int else None
    return _by_partition(waiting, (int, float)) if isinstance(waiting, dict) else {}, None


def _by_partition(streams: dict[str, Any], kind: type | tuple[type, ...]) -> dict[Partition, Any]:
    return {
        Partition(stream, number): value
        for stream, values in streams.items()
        if isinstance(values, dict)
        for number, value in values.items()
        if isinstance(value, kind)
    }


def _text(found: Any) -> str | None:
    return found if isinstance(found, str) else None
