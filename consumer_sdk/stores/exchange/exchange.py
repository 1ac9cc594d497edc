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

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.checkpoints.positions import POSITION_READERS
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.stores.exchange.checking import BATCH, Checking
from consumer_sdk.stores.exchange.lines import Entry, Lines, line_of
from consumer_sdk.stores.exchange.verdicts import ImportRefusedError, Judge, Readers
from consumer_sdk.stores.exchange.writing import Writing

__all__ = [
    "ImportRefusedError",
    "Imported",
    "export_checkpoints",
    "import_checkpoints",
    "is_start_of",
    "stored_entries",
]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the entries of an import.

    Attributes:
        written: checkpoints and pinned starts; with ``dry_run`` those that would be.
        kept: the store has them already, or has its own pinned start and was forced.
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

    Stop the group's consumers first. One that runs loses its partitions for a moment, and may
    have saved more in it than it is then told to start from, only if you ``force`` that.

    Args:
        store: is open.
        entries: are read twice: a list, or a `CheckpointFile`.
        force: overwrites also what is ahead, cannot be compared, or belongs to consumers whose
            leases say that they run. A start that is pinned stays: it is pinned once.
        dry_run: reads and compares alone.
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
    checking = Checking(store, judge)
    await checking.run(entries)
    if dry_run:
        return Imported(checking.to_write, checking.count - checking.to_write)
    writing = Writing(store, judge)
    await writing.run(entries)
    return Imported(writing.written, checking.count - writing.written)
