"""What an import looks at before it writes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.errors import CheckpointFormatError, StoreError
from consumer_sdk.stores.exchange.lines import Entry
from consumer_sdk.stores.exchange.verdicts import Judge

__all__ = ["BATCH", "Checking", "batches"]

BATCH = 500
BATCH_SIZE = 4_000_000
"""Checkpoints, and characters of them, that are in memory at a time."""


class Checking:
    """Reads and compares every entry.

    Attributes:
        count: entries.
        to_write: those that are not stored yet.
    """

    def __init__(self, store: CheckpointStore, judge: Judge) -> None:
        self._store = store
        self._judge = judge
        self._seen: set[tuple[str, ...]] = set()
        self._pins: dict[str, Mapping[str, str]] = {}
        self._looked_at: set[tuple[str, str]] = set()
        self.count = 0
        self.to_write = 0

    async def run(self, entries: Iterable[Entry]) -> None:
        """Sees that all can be written.

        Raises:
            StoreError: one cannot; says which.
        """
        for group, batch in batches(entries):
            for entry in batch:
                self._check(entry)
            to_write = await self._to_write(group, batch)
            for entry in to_write:
                await self._check_nobody_runs(entry)
            self.count += len(batch)
            self.to_write += len(to_write)
        self._judge.raise_refusals("nothing was written")

    def _check(self, entry: Entry) -> None:
        key = (entry.group, entry.stream, *(() if entry.id is None else (entry.id,)))
        if key in self._seen:
            raise CheckpointFormatError(f"{entry} is there twice: remove one of them")
        self._seen.add(key)
        if (size := len(entry.text.encode())) > self._store.max_size:
            raise StoreError(
                f"{entry} has {size} bytes, the store takes {self._store.max_size}: let a consumer "
                f"settle the records that hold its watermark back, and export it again"
            )
        if entry.id is not None:
            self._judge.check(entry)

    async def _to_write(self, group: str, batch: Sequence[Entry]) -> list[Entry]:
        if group not in self._pins:
            self._pins[group] = await self._store.pins(group)
        pins = [e for e in batch if e.id is None and self._is_unpinned(e)]
        checkpoints = [e for e in batch if e.id is not None]
        stored = await self._store.peek(group, [e.partition for e in checkpoints])
        return pins + [e for e in checkpoints if self._judge.is_written(e, stored[e.partition])]

    def _is_unpinned(self, entry: Entry) -> bool:
        stored = self._pins[entry.group].get(entry.stream)
        if stored is not None:
            self._judge.check_pin(entry, stored)
        return stored is None

    async def _check_nobody_runs(self, entry: Entry) -> None:
        """Leases alone say who lives: the last claim of a partition may be of long ago."""
        key = entry.group, entry.stream
        if entry.id is None or self._judge.force or key in self._looked_at:
            return
        self._looked_at.add(key)
        leases = self._store.leases(*key)
        if leases is not None and (members := (await leases.view()).members):
            names = ", ".join(sorted(members))
            self._judge.refuse(entry, f"consumers of the stream run, stop them first: {names:.200}")


def batches(entries: Iterable[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Groups and entries of them, in order, a bounded amount at a time."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == BATCH or size > BATCH_SIZE or batch[0].group != entry.group):
            yield batch[0].group, batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry.text)
    if batch:
        yield batch[0].group, batch
