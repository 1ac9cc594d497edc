"""Consumers that share a stream's shards, each in a process of its own; records, and who has what."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from consumer_sdk.abc import CheckpointStore, Leases
from consumer_sdk.checkpoints.positions import decode_sequence
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.testing.servers import KinesisEndpoint
from consumer_sdk.trackers import decode_checkpoint
from tests.integration.kinesis_consumer import GROUP, LEASE, store_at

__all__ = ["ROOT", "Death", "Done", "Place", "Team", "is_settled", "lines_of"]

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
LOOK = 0.02

Place = tuple[str, int]
"""A record's shard and sequence number."""


class Done(NamedTuple):
    """A line of the file: who processed what."""

    pid: int
    place: Place


def lines_of(file: Path) -> Sequence[Done]:
    """What processes have written."""
    rows = map(str.split, file.read_text().splitlines())
    return [Done(int(pid), (shard, int(sequence))) for pid, shard, sequence in rows]


class Death(NamedTuple):
    """One kill.

    Attributes:
        owned: seconds until the survivors owned all shards.
        read: seconds until a survivor had processed a record of each of the dead one's shards.
        line: how many lines the file had.
        durable: by shard of the dead one, what was settled for good.
        was_open: of what it had processed, records that were not.
    """

    owned: float
    read: float
    line: int
    durable: dict[str, Checkpoint]
    was_open: int

    def is_durable(self, place: Place) -> bool:
        """Nobody may see it again."""
        checkpoint = self.durable.get(place[0])
        return checkpoint is not None and is_settled(checkpoint, place[1])


def is_settled(checkpoint: Checkpoint, sequence: int) -> bool:
    """Whether a checkpoint covers a record."""
    at, watermark = (sequence, 0), checkpoint.watermark
    below = watermark is not None and at <= watermark
    return below or any(first <= at <= last for first, last in checkpoint.ranges)


class Team:
    """Members that come and go.

    Args:
        place: the store's; see `store_at`.
        folder: for the file.

    Attributes:
        produced: all records that were put.
        deaths: all kills.
    """

    def __init__(
        self, server: KinesisEndpoint, stream: str, shards: int, place: str, folder: Path
    ) -> None:
        self.server = server
        self.stream = stream
        self.shards = shards
        self.place = place
        self.file = folder / "processed"
        self.file.touch()
        self.members: dict[int, Process] = {}
        self.produced: set[Place] = set()
        self.deaths: list[Death] = []
        self._is_producing = True
        self.store: CheckpointStore
        self._leases: Leases
        self._producing: asyncio.Task[None]
        self._numbers = 0

    @asynccontextmanager
    async def at_work(self, members: int) -> AsyncIterator[None]:
        """So many members, and a producer; all processes are gone in the end."""
        self.store = store_at(self.place)
        await self.store.open()
        leases = self.store.leases(GROUP, self.stream, duration=LEASE)
        assert leases is not None
        self._leases = leases
        self._producing = asyncio.create_task(self._produce())
        try:
            for _ in range(members):
                await self.join()
            yield
        finally:
            self._producing.cancel()
            await asyncio.wait({self._producing})
            for process in self.members.values():
                process.kill()
                await process.wait()
            await leases.aclose()
            await self.store.aclose()

    async def finish(self) -> None:
        """No more records are put; waits until all were processed."""
        self._is_producing = False
        await self._producing
        await self.until(lambda: {done.place for done in self.done()} >= self.produced)

    async def _produce(self) -> None:
        while self._is_producing:
            rows = [(f"k{self._numbers + n}", b"%d" % (self._numbers + n)) for n in range(48)]
            taken = await self.server.put(self.stream, rows)
            self.produced.update((shard, int(sequence)) for shard, sequence in taken)
            self._numbers += len(rows)
            await asyncio.sleep(0.1)

    async def join(self) -> None:
        """One more member."""
        arguments = [self.server.endpoint_url, self.stream, self.place, str(self.file)]
        command = [sys.executable, "-m", "tests.integration.kinesis_consumer", *arguments]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        self.members[process.pid] = process

    async def owners(self) -> dict[str, int]:
        """The process that owns each shard, as the leases say."""
        leases = (await self._leases.view()).leases
        owned = {shard: lease.owner for shard, lease in leases.items() if lease.owner}
        return {shard: int(owner.rpartition("/")[2]) for shard, owner in owned.items()}

    async def until_owned(self, *, is_even: bool = False) -> None:
        """Waits until the members own all shards; in even shares, if asked for."""
        async with asyncio.timeout(PATIENCE):
            while not self._is_owned(await self.owners(), is_even=is_even):
                self._check()
                await asyncio.sleep(LOOK)

    def _is_owned(self, owners: dict[str, int], *, is_even: bool) -> bool:
        counts = Counter(owners.values())
        is_ours = counts.keys() <= self.members.keys() and counts.total() == self.shards
        even = self.shards // len(self.members)
        return is_ours and (not is_even or set(counts.values()) == {even})

    def _check(self) -> None:
        ended = [pid for pid, process in self.members.items() if process.returncode is not None]
        assert not ended, f"members {ended} ended by themselves"

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for what the file has to say."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._check()
                await asyncio.sleep(LOOK)

    async def until_done(self, count: int) -> None:
        """Waits until so many more records were processed."""
        line = len(self.done()) + count
        await self.until(lambda: len(self.done()) >= line)

    def done(self, first: int = 0) -> Sequence[Done]:
        """The lines of the file from one on."""
        return lines_of(self.file)[first:]

    async def kill(self, pid: int) -> None:
        """Kills a member, and waits until the others go on with what it had."""
        orphans = [shard for shard, owner in (await self.owners()).items() if owner == pid]
        process = self.members.pop(pid)
        process.kill()
        killed_at = time.monotonic()
        await process.wait()
        before = self.done()
        durable = await self._durable(orphans)
        await self.until_owned()
        owned = time.monotonic() - killed_at
        death = Death(owned, 0.0, len(before), durable, 0)
        its = {done.place for done in before if done.pid == pid and done.place[0] in orphans}
        was_open = sum(not death.is_durable(place) for place in its)
        await self.until(lambda: self._read_since(len(before)) >= set(orphans))
        read = time.monotonic() - killed_at
        self.deaths.append(death._replace(read=read, was_open=was_open))

    def _read_since(self, line: int) -> AbstractSet[str]:
        return {done.place[0] for done in self.done(line)}

    async def _durable(self, shards: Sequence[str]) -> dict[str, Checkpoint]:
        partitions = [Partition(self.stream, shard) for shard in shards]
        texts = await self.store.peek(GROUP, partitions)
        return {
            partition.id: decode_checkpoint(
                text,
                broker="kinesis",
                partition=partition,
                identity=None,
                decode_position=decode_sequence,
            )
            for partition, text in texts.items()
            if text is not None
        }
