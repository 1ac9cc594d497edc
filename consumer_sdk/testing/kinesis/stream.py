"""One stream: shards that split and merge, and which of them a record goes to. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from consumer_sdk.testing.kinesis.errors import invalid, missing, used
from consumer_sdk.testing.kinesis.limiter import Limiter
from consumer_sdk.testing.kinesis.options import ShardLimits
from consumer_sdk.testing.kinesis.shard import FakeShard

__all__ = ["FakeStream", "hash_key"]

HASHES = 2**128


def hash_key(key: str) -> int:
    """Where a partition key lies: its MD5, as a number."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest())


class FakeStream:
    """A stream of a `FakeKinesis`, which makes it.

    Args:
        created: seconds since the epoch.

    Attributes:
        born: the highest second that the sequence numbers of any shard begin with.
    """

    def __init__(
        self,
        name: str,
        arn: str,
        shards: int,
        *,
        created: float,
        born: int,
        limits: ShardLimits,
    ) -> None:
        self.name = name
        self.arn = arn
        self.created = created
        self.born = born
        self._limits = limits
        self._shards: dict[str, FakeShard] = {}
        self._made = 0
        bounds = [HASHES * i // shards for i in range(shards + 1)]
        for first, after in pairwise(bounds):
            self._make((first, after - 1), (), created)

    def shards(self) -> Sequence[FakeShard]:
        """All that have not expired, in the order in which they were made."""
        return tuple(self._shards.values())

    def open_shards(self) -> Sequence[FakeShard]:
        """Those that take records."""
        return tuple(shard for shard in self._shards.values() if shard.closed is None)

    def shard(self, shard_id: str) -> FakeShard:
        """The shard of that id.

        Raises:
            RefusedError: there is none, or not any more.
        """
        if shard_id not in self._shards:
            raise missing(f"Shard {shard_id} in stream {self.name} does not exist")
        return self._shards[shard_id]

    def shard_for(self, hash_value: int) -> FakeShard:
        """The open shard that takes a hash key."""
        return next(s for s in self.open_shards() if s.hashes[0] <= hash_value <= s.hashes[1])

    def split(self, shard_id: str, at: int | None, now: float) -> tuple[FakeShard, FakeShard]:
        """Closes a shard, and makes two of it.

        Args:
            at: the second child's first hash key; the middle if None.

        Raises:
            RefusedError: it is closed, or ``at`` is not inside of it.
        """
        parent = self.shard(shard_id)
        first, last = parent.hashes
        middle = (first + last + 1) // 2 if at is None else at
        if not first < middle <= last:
            raise invalid(f"NewStartingHashKey {middle} is not inside of {shard_id}")
        self._check_open(parent)
        children = (
            self._make((first, middle - 1), (parent,), now),
            self._make((middle, last), (parent,), now),
        )
        parent.close(children, now)
        return children

    def merge(self, shard_id: str, adjacent_id: str, now: float) -> FakeShard:
        """Closes two neighbours, and makes one of them; the second is the adjacent parent.

        Raises:
            RefusedError: one is closed, or they do not lie side by side.
        """
        parents = (self.shard(shard_id), self.shard(adjacent_id))
        for parent in parents:
            self._check_open(parent)
        low, high = sorted(parent.hashes for parent in parents)
        if low[1] + 1 != high[0]:
            raise invalid(f"Shards {shard_id} and {adjacent_id} are not adjacent")
        child = self._make((low[0], high[1]), parents, now)
        for parent in parents:
            parent.close((child,), now)
        return child

    def trim(self, before: float) -> None:
        """Drops older records, and closed shards of which nothing is left."""
        for shard in [each for each in self._shards.values() if each.has_older(before)]:
            if shard.trim(before):
                del self._shards[shard.id]

    def _make(self, hashes: tuple[int, int], parents: Sequence[FakeShard], now: float) -> FakeShard:
        # A child's numbers must be above its parent's, even when it is made in the same second.
        born = max([self.born, *(max(parent.born + 1, int(now)) for parent in parents)])
        limiter = Limiter(self._limits)
        shard = FakeShard(
            self._made, hashes, parents=parents, born=born, created=now, limiter=limiter
        )
        self._made += 1
        self.born = max(self.born, born)
        self._shards[shard.id] = shard
        return shard

    def _check_open(self, shard: FakeShard) -> None:
        if shard.closed is not None:
            raise used(f"Shard {shard.id} in stream {self.name} is closed")
