"""Kinesis in memory: the front of the model. No I/O and no event loop: time is the clock's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumer_sdk.abc import Clock
from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.runtime.options import LoopClock
from consumer_sdk.testing.kinesis.errors import invalid, missing, throttled, used
from consumer_sdk.testing.kinesis.fanout import FanOut
from consumer_sdk.testing.kinesis.options import MEBIBYTE, Quirks, ShardLimits
from consumer_sdk.testing.kinesis.reading import Answer, Cursor, read
from consumer_sdk.testing.kinesis.shard import FakeRecord, FakeShard
from consumer_sdk.testing.kinesis.stream import FakeStream, hash_key

__all__ = ["FakeKinesis"]

DAY = 86_400.0
LONGEST_KEY = 256
MOST_RECORDS = 10_000
"""The highest ``Limit`` of GetRecords."""


class FakeKinesis:
    """The streams of one account in one region.

    Every method answers at once, and raises `RefusedError` where AWS would refuse.

    Args:
        clock: the service's; the running loop's time and the system's wall clock by default.
        limits: of every shard.
        quirks: where implementations differ.
        retention: seconds until a record is trimmed.

    Attributes:
        fan_out: the consumers of its streams, and their subscriptions.

    Concurrency: to be used from one thread.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        limits: ShardLimits | None = None,
        quirks: Quirks | None = None,
        retention: float = DAY,
        region: str = "us-east-1",
        account: str = "000000000000",
    ) -> None:
        self.clock: Clock = clock or LoopClock()
        self.limits = limits or ShardLimits()
        self.quirks = quirks or Quirks()
        self.retention = retention
        self._arn = f"arn:aws:kinesis:{region}:{account}:stream"
        self.fan_out = FanOut(self.clock, self.quirks, self.stream)
        self._streams: dict[str, FakeStream] = {}
        self._born: dict[str, int] = {}
        self._refused_puts = 0

    # Streams ---------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int = 1) -> FakeStream:
        """Makes an empty stream; it is active at once."""
        if name in self._streams:
            raise used(f"Stream {name} already exists")
        if shards < 1:
            raise invalid(f"ShardCount {shards} is less than 1")
        wall = self.clock.wall()
        # Made again within a second, it gets sequence numbers and a creation time of its own.
        born = max(int(wall), self._born.get(name, -1) + 1)
        stream = FakeStream(
            name,
            f"{self._arn}/{name}",
            shards,
            created=max(wall, float(born)),
            born=born,
            limits=self.limits,
        )
        self._streams[name] = stream
        return stream

    def delete_stream(self, name: str) -> None:
        """Deletes a stream with its records and its consumers; it is gone at once."""
        self.fan_out.forget(name)
        stream = self._streams.pop(self.stream(name).name)
        self._born[name] = stream.born

    def streams(self) -> Sequence[str]:
        """The names of all streams."""
        return sorted(self._streams)

    def stream(self, name: str) -> FakeStream:
        """The stream of that name, without what has expired by now."""
        if name not in self._streams:
            raise missing(f"Stream {name} not found")
        stream = self._streams[name]
        stream.trim(self.clock.wall() - self.retention)
        return stream

    def split(self, stream: str, shard: str, at: int | None = None) -> tuple[FakeShard, FakeShard]:
        """Splits a shard, in its middle or at a hash key; done at once."""
        return self.stream(stream).split(shard, at, self.clock.wall())

    def merge(self, stream: str, shard: str, adjacent: str) -> FakeShard:
        """Merges two shards that lie side by side; done at once."""
        return self.stream(stream).merge(shard, adjacent, self.clock.wall())

    def trim(self, stream: str, before: float) -> None:
        """Drops what arrived earlier, as retention does.

        Args:
            before: seconds since the epoch.
        """
        self.stream(stream).trim(before)

    # Records ---------------------------------------------------------------------------

    def put(
        self,
        stream: str,
        data: bytes,
        key: str = "key",
        *,
        shard: str | None = None,
        hash_value: int | None = None,
        time: float | None = None,
    ) -> tuple[FakeShard, FakeRecord]:
        """Stores a record; returns where.

        Args:
            shard: an open one; that of the key if None.
            hash_value: instead of the key's, as ``ExplicitHashKey``.
            time: of arrival; now if None.
        """
        if len(data) > MEBIBYTE or not 1 <= len(key) <= LONGEST_KEY:
            raise invalid("a record has 1 MiB of data at most, and a key of 1 to 256 characters")
        if self._refused_puts:
            self._refused_puts -= 1
            raise throttled(f"Rate exceeded for stream {stream}")
        found = self.stream(stream)
        value = hash_key(key) if hash_value is None else hash_value
        target = found.shard(shard) if shard is not None else found.shard_for(value)
        return target, target.append(key, data, self.clock.wall() if time is None else time)

    def refuse_puts(self, times: int) -> None:
        """Throttles the next records that are put."""
        self._refused_puts += times

    def shards(self, stream: str) -> Sequence[FakeShard]:
        """What ListShards tells of: all shards that have not expired, closed ones too."""
        latest = self.clock.wall() - self.quirks.list_lag
        found = self.stream(stream)
        return tuple(each for each in found.shards() if not each.parents or each.created <= latest)

    def shard_iterator(self, stream: str, shard: str, start: IteratorStart) -> str:
        """A shard iterator; ``kind`` of the start may be LATEST too."""
        found = self.stream(stream)
        place = found.shard(shard)
        place.limiter.check_iterator(self.clock.monotonic())
        position = place.locate(start, self.clock.wall())
        return self._cursor(found, shard, position).token()

    def get_records(self, iterator: str, limit: int = MOST_RECORDS) -> Answer:
        """One GetRecords."""
        if not 1 <= limit <= MOST_RECORDS:
            raise invalid(f"Limit {limit} is not between 1 and {MOST_RECORDS}")
        cursor = Cursor.of(iterator)
        stream = self._stream_of(cursor)
        shard = stream.shard(cursor.shard)
        now = self.clock.monotonic()
        cursor.check(now)
        shard.limiter.check_read(now)
        answer = read(
            shard,
            cursor.position,
            limit=limit,
            most=self.limits.answer,
            wall=self.clock.wall(),
            quirks=self.quirks,
        )
        shard.limiter.gave(now, answer.size)
        if answer.position is None:
            return answer
        return replace(answer, next=self._cursor(stream, shard.id, answer.position).token())

    def _cursor(self, stream: FakeStream, shard: str, position: int) -> Cursor:
        return Cursor(stream.name, stream.created, shard, position, self.clock.monotonic())

    def _stream_of(self, cursor: Cursor) -> FakeStream:
        stream = self.stream(cursor.stream)
        if stream.created != cursor.created:
            raise missing(f"Stream {cursor.stream} of this iterator was deleted")
        return stream
