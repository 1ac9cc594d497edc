"""Reading by shard iterators: what one stands for, and what one GetRecords answers. Pure.

What GetShardIterator gives is a place in a shard, and when it was made (`Cursor`).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from consumer_sdk.testing.kinesis.errors import expired, invalid
from consumer_sdk.testing.kinesis.options import Quirks
from consumer_sdk.testing.kinesis.shard import FakeRecord, FakeShard

__all__ = [
    "LIFETIME",
    "SLACK",
    "Answer",
    "Cursor",
    "behind",
    "ends_in",
    "fitting",
    "pretends_end",
    "read",
]

SLACK = 1e-6
"""Seconds; a timer may fire by a rounding error too early."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Records of a shard, and how to read on.

    Attributes:
        position: where to read on; None: the shard is closed, and this was its end, or a lie.
        behind: milliseconds behind the tip.
        children: the shards that come after this one, if it has ended.
        next: the next shard iterator; filled in by `FakeKinesis`.
    """

    records: Sequence[FakeRecord]
    position: int | None
    behind: int
    children: Sequence[FakeShard] = ()
    next: str | None = None

    @property
    def size(self) -> int:
        """Bytes of data and keys."""
        return sum(record.size for record in self.records)


def read(
    shard: FakeShard, position: int, *, limit: int, most: int, wall: float, quirks: Quirks
) -> Answer:
    """Reads a shard once.

    Args:
        limit: records at most.
        most: bytes at most, though never less than one record.
        wall: seconds since the epoch.
    """
    position = max(position, shard.horizon)
    records = fitting(shard.read(position, limit), most)
    if records and shard.empty_pages < quirks.empty_pages:
        shard.empty_pages += 1
        return Answer((), position, behind(shard, position, wall))
    shard.empty_pages = 0
    position += len(records)
    late = behind(shard, position, wall)
    is_end = position == shard.tip and ends_in(shard, wall, quirks) <= SLACK
    if is_end and (quirks.null_with_last_records or not records):
        return Answer(records, None, late, shard.children if quirks.names_children else ())
    return Answer(records, None if pretends_end(shard, quirks) else position, late)


def pretends_end(shard: FakeShard, quirks: Quirks) -> bool:
    """Whether the answer that is given now pretends to be the end."""
    shard.answers += 1
    if not quirks.false_ends or shard.answers < quirks.false_ends:
        return False
    shard.answers = 0
    return True


def ends_in(shard: FakeShard, wall: float, quirks: Quirks) -> float:
    """Seconds until readers are told that the shard is closed; infinite: it is open."""
    return math.inf if shard.closed is None else shard.closed + quirks.close_lag - wall


def fitting(records: Sequence[FakeRecord], most: int) -> Sequence[FakeRecord]:
    """As many of the first records as fit into so many bytes; one at least."""
    size = 0
    for count, record in enumerate(records):
        size += record.size
        if size > most and count:
            return records[:count]
    return records


def behind(shard: FakeShard, position: int, wall: float) -> int:
    """Milliseconds that a reader at this position is behind the tip; 0 only at the tip."""
    waiting = shard.read(position, 1)
    return max(1, int((wall - waiting[0].time) * 1000)) if waiting else 0


LIFETIME = 300.0
"""Seconds that an iterator can be used, as often as one likes."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """What an iterator stands for.

    Attributes:
        stream: the stream's name.
        created: when the stream was; one of the same name that was made later is another.
        shard: the shard's id.
        position: records before the one to be read next.
        made: the clock's monotonic seconds.
    """

    stream: str
    created: float
    shard: str
    position: int
    made: float

    def token(self) -> str:
        """The iterator as the service gives it."""
        return base64.b64encode(json.dumps(astuple(self)).encode()).decode()

    @staticmethod
    def of(token: str) -> Cursor:
        """What a token stands for.

        Raises:
            RefusedError: it is none of the fake's.
        """
        try:
            return Cursor(*json.loads(base64.b64decode(token, validate=True)))
        except (ValueError, TypeError):
            raise invalid("Invalid ShardIterator") from None

    def check(self, now: float) -> None:
        """Looks at its age.

        Raises:
            RefusedError: it is too old.
        """
        if now - self.made > LIFETIME:
            raise expired(f"Iterator expired: it is {now - self.made:.0f} seconds old")
