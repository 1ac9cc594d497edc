"""Checkpoints out of one store and into another.

Rules of an import:

- Every entry is read and compared before anything is written. If one of them cannot be used, or
  would move a partition back, nothing is written at all.
- Writing goes through `claim` and `save`: a partition that a running consumer holds is taken from
  it, its next save is refused, and it goes on from what was imported. The claim brings no fence,
  so that of the store stays.
- What is stored is compared again when it has been claimed: what its owner has saved meanwhile is
  not overwritten.
- Each partition is written by itself. An import that was killed is repeated: what it has written
  is there already, and stays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.checkpoints.positions import POSITION_READERS
from consumer_sdk.errors import (
    CheckpointFormatError,
    ConfigurationError,
    FencedError,
    StoreError,
    TransientStoreError,
)
from consumer_sdk.leases.stores import ended_partitions, reopen
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores.exchange.lines import Entry, Lines, line_of
from consumer_sdk.stores.exchange.verdicts import ImportRefusedError, Judge, Readers

__all__ = [
    "ImportRefusedError",
    "Imported",
    "export_checkpoints",
    "import_checkpoints",
    "is_start_of",
    "stored_entries",
]

BATCH = 500
BATCH_SIZE = 4_000_000
"""Checkpoints, and characters of them, that are in memory at a time."""

ROUNDS = 5
"""How often a partition is claimed that somebody else claims at the same time."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        written: checkpoints and pinned starts that were written; with ``dry_run`` those that would
            be.
        kept: entries that the store has already, and pinned starts that it keeps in spite of
            ``force``.
    """

    written: int
    kept: int


async def export_checkpoints(
    store: CheckpointStore, group: str, *, stream: str | None = None, readers: Readers | None = None
) -> AsyncIterator[str]:
    """The lines of a group's pinned starts and checkpoints, each with its line feed.

    Nothing is claimed, and consumers may run: each line is what was stored at some moment.

    Args:
        store: is open; `read_storm_kafka`, `read_kinesis_spout` and `read_kcl_leases` read what
            others wrote.
        group: whose they are.
        stream: of this one alone.
        readers: see `import_checkpoints`.

    Raises:
        CheckpointFormatError: the store has what no import takes; says of which partition.
        StoreError: the store cannot be read.
    """
    judge = _judge(readers)
    lines = Lines()
    lines.add(lines.first.encode())
    yield lines.first
    async for entry in stored_entries(store, group, stream):
        if entry.id is not None:
            judge.check(entry)
        line = line_of(entry)
        lines.add(line.encode())
        yield line
    yield lines.last


def _judge(readers: Readers | None, *, force: bool = False) -> Judge:
    return Judge({**POSITION_READERS, **(readers or {})}, force=force)


async def stored_entries(
    store: CheckpointStore, group: str, stream: str | None
) -> AsyncIterator[Entry]:
    """A group's pinned starts, then its checkpoints, in order; of one stream, or of any."""
    for name, start in sorted((await store.pins(group)).items()):
        if is_start_of(stream, name):
            yield Entry("the store", group, name, None, start)
    partitions = sorted(p for p in await store.list(group) if stream in (None, p.stream))
    for first in range(0, len(partitions), BATCH):
        texts = await store.peek(group, partitions[first : first + BATCH])
        for partition, text in texts.items():
            if text is not None:  # it was deleted since it was listed
                yield Entry("the store", group, *partition, text)


def is_start_of(stream: str | None, name: str) -> bool:
    """Whether a start is pinned for the stream; None: for any.

    It is for an identity of the stream, and for an application: ``orders@5f0c#v2``.
    """
    return stream is None or name == stream or name.startswith((f"{stream}@", f"{stream}#"))


async def import_checkpoints(
    store: CheckpointStore,
    entries: Iterable[Entry],
    *,
    force: bool = False,
    dry_run: bool = False,
    readers: Readers | None = None,
) -> Imported:
    """Writes checkpoints and pinned starts into a store.

    Stop the group's consumers first. A consumer that runs loses its partitions for a moment. Only
    with ``force`` may it then start before a position that it has saved.

    Args:
        store: is open.
        entries: are read twice: a list, or a `CheckpointFile`.
        force: overwrites also what is ahead, cannot be compared, or belongs to consumers whose
            leases say that they run. A start that is pinned stays: it is pinned once.
        dry_run: only reads and compares.
        readers: broker → ``decode_position`` of its adapter, for brokers that are not built in.

    Raises:
        CheckpointFormatError: an entry is no checkpoint, or is there twice. Nothing was written.
        CheckpointMismatchError: one belongs to another partition. Nothing was written.
        ImportRefusedError: the store is ahead, or consumers run. Nothing was written, unless the
            message says how much.
        FencedError: others took a partition back as often as it was claimed.
        StoreError: the store cannot be read or written; if it is transient, import again.
        ConfigurationError: ``entries`` can be read only once.

    Cancellation: leaves each partition whole; import again.
    """
    if iter(entries) is entries:
        raise ConfigurationError("entries are read twice: give a list or a CheckpointFile")
    judge = _judge(readers, force=force)
    checking = _Checking(store, judge)
    await checking.run(entries)
    if dry_run:
        return Imported(checking.to_write, checking.count - checking.to_write)
    writing = _Writing(store, judge)
    await writing.run(entries)
    return Imported(writing.written, checking.count - writing.written)


class _Checking:
    """What an import looks at before it writes anything: reads and compares every entry.

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
        for group, batch in _batches(entries):
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


def _batches(entries: Iterable[Entry]) -> Iterator[tuple[str, list[Entry]]]:
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


class _Writing:
    """Writes entries that were checked: what it claims is compared once more, and saved.

    Attributes:
        written: entries that are durable, and were not there before.
    """

    def __init__(self, store: CheckpointStore, judge: Judge) -> None:
        self._store = store
        self._judge = judge
        self._saved: set[Partition] = set()  # of one batch
        self.written = 0

    async def run(self, entries: Iterable[Entry]) -> None:
        """Writes what is not there yet.

        Raises:
            StoreError: says how many were written; they stay.
        """
        for group, batch in _batches(entries):
            await self._pin(group, [e for e in batch if e.id is None])
            checkpoints = [e for e in batch if e.id is not None]
            self._saved.clear()
            await self._write(group, checkpoints)
            await self._reopen(group, checkpoints)
            self._judge.raise_refusals(self._outcome)

    @property
    def _outcome(self) -> str:
        return f"{self.written} were written, and stay"

    async def _pin(self, group: str, entries: Sequence[Entry]) -> None:
        before = await self._store.pins(group) if entries else {}
        for entry in entries:
            stored = await self._store.pin(group, entry.stream, entry.text)
            self._judge.check_pin(entry, stored)
            self.written += stored == entry.text and entry.stream not in before

    async def _reopen(self, group: str, entries: Sequence[Entry]) -> None:
        """A lease that has ended is of the checkpoint of before.

        What is kept was perhaps written by an import that was killed before it came to this.
        """
        unended = [e.partition for e in entries if not self._judge.is_ended(e)]
        streams = {partition.stream for partition in unended}
        suspects = self._saved | await ended_partitions(self._store, group, streams)
        await reopen(self._store, group, [p for p in unended if p in suspects])

    async def _write(self, group: str, entries: Sequence[Entry]) -> None:
        left = entries
        for _ in range(ROUNDS):
            stored = await self._store.peek(group, [e.partition for e in left])
            left = [e for e in left if self._judge.is_written(e, stored[e.partition])]
            if not left:
                return
            left = await self._claim_and_save(group, left)
        if left:
            raise FencedError(
                f"{self._outcome}. {left[0]} was claimed by somebody else each time that the "
                f"import had claimed it: stop the group's consumers, and import again"
            )

    async def _claim_and_save(self, group: str, entries: Sequence[Entry]) -> list[Entry]:
        """Those that somebody else has claimed in between."""
        claims = {Assignment(e.partition, number): e for number, e in enumerate(entries)}
        self._saved.update(e.partition for e in entries)
        try:
            stored = await self._store.claim(group, list(claims))
            items = self._items(claims, stored)
            outcomes = await self._store.save(group, items)
        finally:
            await self._store.forget(list(claims))
        self.written += sum(outcome.kind is OutcomeKind.DURABLE for outcome in outcomes)
        saved = zip([claims[item.assignment] for item in items], outcomes, strict=True)
        refused = [claims[a] for a, text in stored.items() if isinstance(text, Outcome)]
        return refused + [entry for entry, outcome in saved if self._is_fenced(entry, outcome)]

    def _items(
        self,
        claims: Mapping[Assignment, Entry],
        stored: Mapping[Assignment, str | Outcome | None],
    ) -> list[StoreItem]:
        texts = {a: text for a, text in stored.items() if not isinstance(text, Outcome)}
        return [
            StoreItem(a, claims[a].text)
            for a, text in texts.items()
            if self._judge.is_written(claims[a], text)
        ]

    def _is_fenced(self, entry: Entry, outcome: Outcome) -> bool:
        if outcome.kind is OutcomeKind.RETRY:
            is_passing = isinstance(outcome.error, TransientStoreError)
            raise (TransientStoreError if is_passing else StoreError)(
                f"{self._outcome}. {entry}: {outcome.error}: import again"
            ) from outcome.error
        return outcome.kind is not OutcomeKind.DURABLE
