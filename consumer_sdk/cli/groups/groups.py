"""Where a group stands, as the broker's commits and the store tell, without joining it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.adapters.urls import open_for_tools, share_group_of
from consumer_sdk.cli.groups.checkpoints import opened_store
from consumer_sdk.cli.groups.moves import Bounds
from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    PartitionLostError,
)
from consumer_sdk.range_reads import RangeReader
from consumer_sdk.records import Assignment, Checkpoint, Partition, StartPoint
from consumer_sdk.runtime.starts.inputs import StartInputs
from consumer_sdk.trackers import decode_checkpoint

__all__ = ["Group", "of_partitions", "opened_group", "opened_reader"]


@dataclass(frozen=True, slots=True)
class Group:
    """A group, seen from outside.

    Attributes:
        reader: reads its streams.
        name: of the group or subscription.
        store: has its checkpoints; None: only the broker's commits tell where it stands.
    """

    reader: RangeReader
    name: str
    store: CheckpointStore | None

    async def checkpoints(
        self, partitions: Collection[Partition]
    ) -> Mapping[Partition, Checkpoint | None]:
        """What a consumer would start from now, as the store and the broker have it; None: nothing.

        Raises:
            CheckpointFormatError: the store has what is no checkpoint.
            AdapterError, StoreError: one of them does not answer.
        """
        committed = await self.reader.committed(self.name, partitions)
        stored = await self._stored(partitions)
        inputs = {
            partition: StartInputs(
                assignment=Assignment(partition, 0),
                stored=stored.get(partition),
                committed=committed[partition],
                redelivers=self.reader.broker == "pulsar",
            )
            for partition in partitions
        }
        return {each: found.reset or found.known for each, found in inputs.items()}

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        """What the broker stores of each partition.

        Raises:
            PartitionLostError: one is gone.
            AdapterError: the broker does not answer.
        """
        first = await self.reader.positions(partitions, StartPoint.EARLIEST)
        ends = await self.reader.positions(partitions, StartPoint.LATEST)
        for each in partitions:
            if first[each] is None or ends[each] is None:
                raise PartitionLostError(
                    f"{each}: the broker does not say where it ends: is it gone?"
                )
        return {each: Bounds(first[each], ends[each]) for each in partitions}

    async def _stored(self, partitions: Collection[Partition]) -> dict[Partition, Checkpoint]:
        if self.store is None:
            return {}
        texts = await self.store.peek(self.name, list(partitions))
        return {each: self._decoded(each, text) for each, text in texts.items() if text is not None}

    def _decoded(self, partition: Partition, text: str) -> Checkpoint:
        try:
            return decode_checkpoint(
                text,
                broker=self.reader.broker,
                partition=partition,
                identity=None,
                decode_position=self.reader.decode_position,
            )
        except (CheckpointFormatError, CheckpointMismatchError) as error:
            raise type(error)(f"{partition} in the store: {error}") from error


@asynccontextmanager
async def opened_reader(url: str) -> AsyncIterator[tuple[RangeReader, str | None]]:
    """A reader of a consumer's URL, and the group that the URL names; closed in the end."""
    reader, group = open_for_tools(url)
    try:
        await reader.open()
        yield reader, group
    finally:
        await reader.aclose()


@asynccontextmanager
async def opened_group(url: str, store: str | None) -> AsyncIterator[Group]:
    """A group by its consumers' URL and store; closed in the end.

    Raises:
        ConfigurationError: nothing names it.
        ConsumerSdkError: it cannot be opened.
    """
    if (shared := share_group_of(url)) is not None:
        raise ConfigurationError(
            f"share group {shared!r} has no positions that could be read or moved here: the command lag tells how far "
            f"it has come, and Kafka's own kafka-share-groups.sh --reset-offsets moves it"
        )
    async with opened_reader(url) as (reader, name):
        if name is None:
            raise ConfigurationError(
                "no group: give ?group=name in the URL (of Pulsar: ?subscription=name), as the "
                "consumers are given it"
            )
        if store is None:
            yield Group(reader, name, None)
            return
        async with opened_store(store, must_exist=True) as opened:
            yield Group(reader, name, opened)


def of_partitions(
    partitions: Sequence[Partition], chosen: Collection[str] | None
) -> list[Partition]:
    """The partitions that an operator has named by their ids, or all.

    Raises:
        ConfigurationError: there is no such partition.
    """
    if not chosen:
        return list(partitions)
    ids = {each.id for each in partitions}
    for id_ in chosen:
        if id_ not in ids:
            known = ", ".join(sorted(ids)[:10])
            raise ConfigurationError(f"--partition {id_}: there is none, only {known}")
    return [each for each in partitions if each.id in chosen]
