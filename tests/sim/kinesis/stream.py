"""The stream's own life: records come, shards split and merge, retention takes what is old."""

from __future__ import annotations

import random
from itertools import pairwise

from consumer_sdk.records import Partition
from consumer_sdk.testing.kinesis import FakeKinesis, FakeShard
from tests.sim.kinesis.aggregates import aggregate
from tests.sim.kinesis.ledger import STREAM, KinesisLedger
from tests.sim.kinesis.plan import KinesisPlan, Reshard

__all__ = ["Producing"]

MOST_SHARDS = 16
"""That are made in all; more cost time and show nothing new."""


class Producing:
    """Writes to the stream.

    Args:
        poison: where records are noted that can never be processed.
    """

    def __init__(
        self,
        kinesis: FakeKinesis,
        ledger: KinesisLedger,
        plan: KinesisPlan,
        chance: random.Random,
        poison: set[tuple[Partition, int]],
    ) -> None:
        self._kinesis = kinesis
        self._ledger = ledger
        self._plan = plan
        self._chance = chance
        self._poison = poison
        self._stream = kinesis.create_stream(STREAM, plan.partitions)
        self._notice()

    def _notice(self) -> None:
        for shard in self._stream.shards():
            if shard.id not in self._ledger.shards:
                self._ledger.knows(shard)

    # -- records --------------------------------------------------------------------------

    def put(self, count: int, time: float | None = None) -> None:
        """Stores so many records, some of them as aggregates."""
        if count > 1 and self._chance.random() < self._plan.aggregates:
            self._put_aggregate(count, time)
        else:
            for _ in range(count):
                self._put([self._draw()], time)

    def _put_aggregate(self, count: int, time: float | None) -> None:
        records = [self._draw() for _ in range(count)]
        self._put(records, time, aggregate(records))

    def _put(
        self, records: list[tuple[bytes, bytes]], time: float | None, data: bytes | None = None
    ) -> None:
        key, value = records[0]
        stored = value if data is None else data
        shard, record = self._kinesis.put(STREAM, stored, key.decode(), time=time)
        for sub, (user_key, _) in enumerate(records):
            position = record.sequence + sub
            self._ledger.stored(shard, position, user_key, record.time)
            if self._chance.random() < self._plan.poison:
                self._poison.add((Partition(STREAM, shard.id), position))

    def _draw(self) -> tuple[bytes, bytes]:
        key = b"k%d" % self._chance.randrange(self._plan.keys)
        return key, b"v" * self._chance.choice((0, 1, 40))

    # -- shards ---------------------------------------------------------------------------

    def reshard(self, kind: Reshard) -> str:
        """Does it to some shard; returns what was done."""
        if len(self._ledger.shards) >= MOST_SHARDS:
            return "there are enough shards"
        done = getattr(self, f"_{kind}")()
        self._notice()
        return f"{kind}: {done}"

    def _split(self) -> str:
        shard = self._chance.choice(self._stream.open_shards())
        return f"{shard.id} to {_ids(self._kinesis.split(STREAM, shard.id))}"

    def _merge(self) -> str:
        pairs = list(pairwise(sorted(self._stream.open_shards(), key=lambda s: s.hashes)))
        if not pairs:
            return self._split()
        parents = self._chance.choice(pairs)
        child = self._kinesis.merge(STREAM, parents[0].id, parents[1].id)
        return f"{_ids(parents)} to {child.id}"

    def _chain(self) -> str:
        """Two generations at once, perhaps the one between without a record."""
        done = [self._merge()]
        self._notice()
        if self._chance.random() < 0.5:
            self.put(3)
        youngest = max(self._stream.open_shards(), key=lambda shard: shard.number)
        done.append(f"{youngest.id} to {_ids(self._kinesis.split(STREAM, youngest.id))}")
        return ", ".join(done)

    # -- retention ------------------------------------------------------------------------

    def trim(self) -> str:
        """Drops what is old: all of it settled, or whatever is there."""
        now = self._kinesis.clock.wall()
        if self._plan.trims == "settled":
            first = self._ledger.first_undurable()
            before = now if first is None else first
        else:
            before = now - self._chance.uniform(0, 20)
        self._kinesis.trim(STREAM, before)
        self._ledger.trimmed(before)
        return f"what is older than {now - before:.3f} s is gone"


def _ids(shards: tuple[FakeShard, ...]) -> str:
    return " and ".join(shard.id for shard in shards)
