"""Where acks are made durable: the broker's group, and before it a checkpoint store if one is set.

Spark's checkpoint is the authority. A store that knows of another position, ahead or behind, is
written over; what it has is read in one case only, to find where a new query with
``startingOffsets=committed`` begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import ConsumerSdkError, StoreError
from consumer_sdk.range_reads import RangeReader
from consumer_sdk.records import AckFlush, Assignment, Outcome, OutcomeKind, Partition, Position
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.stores import store_from_url
from consumer_sdk.trackers import decode_checkpoint, encode_checkpoint

__all__ = ["AckTargets", "stored_positions"]


async def stored_positions(
    options: PullOptions, reader: RangeReader, partitions: Collection[Partition]
) -> dict[Partition, Position]:
    """Where the group stands by its checkpoint store; only partitions that it knows.

    Raises:
        StoreError: the store cannot be read. That never means "nothing is stored".
    """
    if options.store is None or options.group is None:
        return {}
    store = store_from_url(options.store)
    await store.open()
    try:
        texts = await store.peek(options.group, list(partitions))
    finally:
        await store.aclose()
    known = {partition: text for partition, text in texts.items() if text is not None}
    found = {partition: _start(reader, partition, text) for partition, text in known.items()}
    return {partition: at for partition, at in found.items() if at is not None}


def _start(reader: RangeReader, partition: Partition, text: str) -> Position | None:
    return decode_checkpoint(
        text,
        broker=reader.broker,
        partition=partition,
        identity=None,
        decode_position=reader.decode_position,
    ).start


class AckTargets:
    """The store and the group of one query.

    Args:
        options: which group and which store.
        connections: where readers come from.
    """

    def __init__(self, options: PullOptions, connections: Connections) -> None:
        self._options = options
        self._connections = connections
        self._store: CheckpointStore | None = None
        self._claimed: set[Assignment] = set()

    async def write(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """The store first, then the group; what either of them refused is the outcome."""
        try:
            async with self._connections.borrowed(self._options) as reader:
                stored = await self._save(reader, flushes)
                committed = await self._commit(reader, flushes)
        except (ConsumerSdkError, OSError) as error:
            return [Outcome.retry(error) for _ in flushes]
        return [_worse(*each) for each in zip(stored, committed, strict=True)]

    async def aclose(self) -> None:
        """Closes the store."""
        store, self._store = self._store, None
        self._claimed.clear()
        if store is not None:
            await store.aclose()

    async def _commit(self, reader: RangeReader, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if self._options.group is None:
            return [Outcome.durable() for _ in flushes]
        positions = {each.assignment.partition: each.checkpoint.start for each in flushes}
        # What the query no longer reads stays where it was last committed.
        chosen = {each: at for each, at in positions.items() if reader.is_chosen(each)}
        outcomes = {**dict.fromkeys(positions, Outcome.durable()), **await reader.commit(chosen)}
        return [outcomes[partition] for partition in positions]

    async def _save(self, reader: RangeReader, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if self._options.store is None or self._options.group is None:
            return [Outcome.durable() for _ in flushes]
        try:
            return await self._save_in(self._options.store, self._options.group, flushes, reader)
        except StoreError as error:
            await self.aclose()
            return [Outcome.retry(error) for _ in flushes]

    async def _save_in(
        self, url: str, group: str, flushes: Sequence[AckFlush], reader: RangeReader
    ) -> list[Outcome]:
        store = await self._opened(url)
        new = [f.assignment for f in flushes if f.assignment not in self._claimed]
        if new:
            # Their fence is None: this query takes over, whoever wrote before.
            await store.claim(group, new)
            self._claimed.update(new)
        items = [StoreItem(each.assignment, _text(reader, each)) for each in flushes]
        return await store.save(group, items)

    async def _opened(self, url: str) -> CheckpointStore:
        if self._store is None:
            store = store_from_url(url)
            await store.open()
            self._store = store
        return self._store


def _text(reader: RangeReader, flush: AckFlush) -> str:
    text, _ = encode_checkpoint(
        flush.checkpoint,
        broker=reader.broker,
        partition=flush.assignment.partition,
        encode_position=reader.encode_position,
    )
    return text


_BADNESS = (
    OutcomeKind.DURABLE,
    OutcomeKind.SENT,
    OutcomeKind.GONE,
    OutcomeKind.FENCED,
    OutcomeKind.RETRY,
)


def _worse(one: Outcome, other: Outcome) -> Outcome:
    return max(one, other, key=lambda outcome: _BADNESS.index(outcome.kind))
