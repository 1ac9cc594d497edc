"""An operator takes back that partitions have ended: in the checkpoint first, then in the lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.checkpoints.positions import POSITION_READERS
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.leases.stores import ended_partitions, reopen
from consumer_sdk.records import Partition, Position
from consumer_sdk.stores.exchange.exchange import import_checkpoints
from consumer_sdk.stores.exchange.lines import Entry
from consumer_sdk.stores.exchange.verdicts import broker_of
from consumer_sdk.trackers import decode_checkpoint, encode_checkpoint

__all__ = ["reopen_ended"]


async def reopen_ended(
    store: CheckpointStore, group: str, partitions: Sequence[Partition]
) -> Sequence[Partition]:
    """Takes back that partitions have ended: they are read on after what is settled in them.

    Consumers may run: nobody reads a partition that has ended. Its children may have been read by
    then, so that the order of a key across the reshard is not kept for what comes now.

    Args:
        store: is open.

    Returns:
        those that had ended, by their lease or by their checkpoint.

    Raises:
        CheckpointFormatError: a checkpoint cannot be read, or is of a broker that is not built in.
        StoreError: the store cannot be read or written; some may be reopened: call it again.
    """
    ended = await ended_partitions(store, group, {each.stream for each in partitions})
    texts = await store.peek(group, partitions)
    entries = [
        Entry("the store", group, *partition, unended)
        for partition, text in texts.items()
        if text is not None and (unended := _unended(partition, text)) is not None
    ]
    await import_checkpoints(store, entries, force=True)
    await reopen(store, group, [partition for partition in partitions if partition in ended])
    reopened = ended.union(entry.partition for entry in entries)
    return [partition for partition in partitions if partition in reopened]


def _unended(partition: Partition, text: str) -> str | None:
    """The same checkpoint without its end; None where it has none."""
    if (broker := broker_of(text)) not in POSITION_READERS:
        raise CheckpointFormatError(f"{partition}: the positions of {broker!r:.80} are not known")
    checkpoint = decode_checkpoint(
        text,
        broker=broker,
        partition=partition,
        identity=None,
        decode_position=POSITION_READERS[broker],
    )
    if not checkpoint.ended:
        return None
    unended = replace(checkpoint, ended=False)
    return encode_checkpoint(
        unended, broker=broker, partition=partition, encode_position=_position_text
    )[0]


def _position_text(position: Position) -> str:
    """See the table of `consumer_sdk.checkpoints.positions`."""
    return ":".join(map(str, position if isinstance(position, tuple) else (position,)))
