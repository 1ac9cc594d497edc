"""Range reads of Pulsar: what Spark and tools see."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, ClassVar

from consumer_sdk.adapters.pulsar.client.admin import progress_in
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.options import KINDS, InitialPosition
from consumer_sdk.adapters.pulsar.ranges.connection import Connected
from consumer_sdk.adapters.pulsar.ranges.options import (
    SHARED,
    RangeOptions,
    adapter_options,
    parse_range_url,
)
from consumer_sdk.adapters.pulsar.ranges.topic_stats import Entries
from consumer_sdk.checkpoints.positions import decode_message_id, encode_message_id
from consumer_sdk.errors import (
    AdapterError,
    ConsumerClosedError,
    ConsumerSdkError,
    PartitionLostError,
)
from consumer_sdk.options import names_of
from consumer_sdk.range_reads import Columns, PartitionRange, RangeReader
from consumer_sdk.records import Committed, Outcome, OutcomeKind, Partition, Position, Start

__all__ = ["PulsarRanges"]

log = logging.getLogger(__name__)


class PulsarRanges(RangeReader):
    """Reads ranges of Pulsar topics.

    A position is ``(ledger, entry, index in the batch)``, as for the adapter. The position after
    the last message of an entry is ``(ledger, entry + 1, 0)``. Timestamps are publish times.

    Pulsar deletes messages that all subscriptions of a topic have acked. So without a subscription
    of its own, a reader may come too late. With ``subscription=``, `open` and `partitions` create
    it on each partition, and `commit` moves it. Give it to the reader that plans; readers that only
    read ranges need none.

    ==========================================  =====================  ===========================
    question                                    with ``admin_url``     without
    ==========================================  =====================  ===========================
    `positions`: earliest, latest               a request a topic      a reader, about 0.13 s
    `positions`: where the subscription stands  yes                    `ConfigurationError`
    `positions` of an emptied topic             its end                ``(0, 0, 0)`` at first
    `positions`: latest, behind a chunked one   one request            `TransientAdapterError`
    `records`, `cut`, `record_size`             from the ledgers       `ConfigurationError`
    `requests_per_look`                         about 1 a topic        4 a partition
    topics that do not exist                    `open` raises          the broker may make them
    ==========================================  =====================  ===========================

    The position of a chunked message is that of its last chunk. It is read whole even if the range
    begins after its first chunk: up to 512 entries after it, and in another ledger only with
    ``admin_url``. If a range ends with chunks of an incomplete message, the read notices the end
    only with ``admin_url``. Without it the read stalls, and raises an error.

    **Deleted records.** Pulsar deletes whole ledgers, and forgets how many records they had. So a
    read raises `PositionOutOfRangeError` only if a loss is certain: the range's stop is in a
    deleted ledger too (after its first entry), or its start is the position of a record. Otherwise
    the start may be the end of the previous range, in a ledger that was deleted afterwards: every
    idle topic without retention looks like that. Then the read begins at the first record that is
    kept, and logs a warning that names the partition.

    Args:
        topics: their names, one by one or in a list; of another namespace as ``tenant/namespace/name``.
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``.
        subscription: the subscription that `commit` moves; None for none.
        pattern: instead of topics, a regular expression that a topic's whole name has to match;
            of another namespace as ``tenant/namespace/regex``.
            Needs ``admin_url``.
        initial_position: where a new subscription begins: ``"earliest"`` or ``"latest"``. In
            partitions that are created later it begins at the earliest message.
        admin_url: ``http://host:8080``; see the table.
        admin_token: a JWT for it.
        receiver_queue: messages that the broker sends ahead of each read. If messages are large,
            the reader asks for fewer, 32 MiB in all. Without ``admin_url`` it learns their size
            from the first ones.
        stall_timeout: seconds without a message, although there are more, after which a read raises
            an error.
        seen_within: seconds after which `partitions` shows new partitions; several times as long
            with several topics.
        crypto_key_reader: a ``pulsar.CryptoKeyReader``, for messages that are encrypted.
        connection: any other option of the adapter's connection, such as ``token``,
            ``tls_trust_certs``, ``operation_timeout`` or ``log_level``.

    Raises:
        ConfigurationError: an option is unknown or cannot work.

    Concurrency: belongs to the event loop and the process that opened it.
    """

    broker: ClassVar[str] = "pulsar"
    __slots__ = ("_connected", "_is_closed", "_options", "_pid", "group")

    def __init__(
        self,
        *topics: str | Sequence[str],
        service_url: str,
        subscription: str | None = None,
        pattern: str | None = None,
        initial_position: InitialPosition = "earliest",
        admin_url: str | None = None,
        admin_token: str | None = None,
        receiver_queue: int = 1000,
        stall_timeout: float = 30.0,
        seen_within: float = 3.0,
        crypto_key_reader: Any = None,
        **connection: Any,
    ) -> None:
        pulsar = adapter_options(
            names_of(topics),
            subscription,
            {"service_url": service_url, **connection},
            pattern=pattern,
            initial_position=initial_position,
            admin_url=admin_url,
            admin_token=admin_token,
            receiver_queue=receiver_queue,
            crypto_key_reader=crypto_key_reader,
        )
        self._options = RangeOptions(
            pulsar=pulsar, stall_timeout=stall_timeout, seen_within=seen_within
        )
        self._connected: Connected | None = None
        self._is_closed = False
        self._pid: int | None = None
        self.group = subscription

    @classmethod
    def from_url(cls, url: str) -> PulsarRanges:
        """The reader for ``pulsar://host:port/topic[,topic]?subscription=s&admin_url=…``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        topics, options = parse_range_url(url)
        return cls(*topics, **options)

    @classmethod
    def consumer_options(cls) -> Collection[str]:
        """Options of a consumer's URL that have no effect here."""
        return KINDS.keys() - set(SHARED)

    @property
    def _open(self) -> Connected:
        if self._connected is None or self._is_closed:
            state = "closed; make a new one" if self._is_closed else "not open"
            raise ConsumerClosedError(f"this reader of Pulsar's ranges is {state}")
        if self._pid != os.getpid():  # the client's threads are in the parent
            raise ConsumerClosedError("this reader was opened before a fork: make one in the child")
        return self._connected

    @property
    def admin_calls(self) -> int:
        """Requests that were sent to the REST API so far, for benchmarks."""
        return 0 if self._connected is None else self._connected.admin_calls

    @property
    def requests_per_look(self) -> int:
        """How many requests it takes to look up the ends of all partitions: few with ``admin_url``."""
        return 1 if self._connected is None else self._connected.look_cost

    async def open(self) -> None:
        """Looks the topics up, and creates the subscription on partitions that lack it.

        Raises:
            ConfigurationError: an option cannot work, or a topic does not exist.
            AdapterError: the broker cannot be reached, or refused.
        """
        if self._connected is not None or self._is_closed:
            raise ConsumerClosedError("a reader of ranges can be opened once; make a new one")
        self._connected, self._pid = Connected(self._options), os.getpid()
        try:
            await self._connected.open()
        except BaseException:
            await self.aclose()
            raise

    async def partitions(self) -> Sequence[Partition]:
        """All partitions; new ones are seen within ``seen_within`` seconds.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        return await self._open.partitions()

    async def positions(
        self, partitions: Collection[Partition], at: Start
    ) -> Mapping[Partition, Position | None]:
        connected = self._open
        connected.locator.check(at)
        return await connected.locator.find_all(partitions, at)

    async def records(self, ranges: Collection[PartitionRange]) -> Mapping[Partition, int]:
        sizes = self._open.sizes
        found = await asyncio.gather(*map(sizes.records, ranges))
        return {each.partition: count for each, count in zip(ranges, found, strict=True)}

    async def cut(self, wanted: PartitionRange, records: int) -> Position:
        return await self._open.sizes.cut(wanted, records)

    async def record_size(self, partitions: Collection[Partition]) -> Mapping[Partition, float]:
        sizes = self._open.sizes
        found = await asyncio.gather(*map(sizes.record_size, partitions))
        pairs = zip(partitions, found, strict=True)
        return {partition: size for partition, size in pairs if size is not None}

    async def read_range(
        self, wanted: PartitionRange, *, with_headers: bool = False, max_bytes: int = 8 * 2**20
    ) -> AsyncGenerator[Columns, None]:
        reading = self._open.read(wanted, with_headers=with_headers, max_bytes=max_bytes)
        try:
            async for columns in reading:
                yield columns
        finally:
            await reading.aclose()

    async def commit(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, Outcome]:
        """Moves the subscription to the last entry that lies completely below each position.

        If the position is in the middle of a producer's batch, the whole batch is read again,
        because acks of parts of a batch do not survive an unload of the topic.

        Outcomes:

        - SENT: the broker has received the position. It keeps cursors in memory for a while. So a broker
          that is killed may come back with an older one; so may a broker that unloads the topic while it
          makes the cursor's first ledger (some milliseconds after the first commit).
        - FENCED: somebody else holds the subscription, or this reader has none, or is not open. The reader
          holds the subscription only during the commit.
        - GONE, with ``admin_url``: the topic was deleted. Without it, the broker may create the topic again.
        """
        try:
            cursors = self._open.cursors
        except ConsumerClosedError as error:
            return dict.fromkeys(positions, Outcome(OutcomeKind.FENCED, error=error))
        return await cursors.commit(positions)

    async def committed(
        self, group: str, partitions: Collection[Partition]
    ) -> Mapping[Partition, Committed | None]:
        """The positions that a subscription has acked; needs ``admin_url``."""
        admin = self._open.tools()
        topics = map(topic_of, partitions)
        found = await asyncio.gather(*map(admin.internals, topics))
        progress = (None if each is None else progress_in(each, group) for each in found)
        return {
            partition: None if each is None else Committed(each)
            for partition, each in zip(partitions, progress, strict=True)
        }

    async def members(self, group: str, partitions: Collection[Partition]) -> Sequence[str]:
        """The subscription's consumers; needs ``admin_url``."""
        admin = self._open.tools()
        found = await asyncio.gather(
            *(admin.consumers(topic_of(each), group) for each in partitions)
        )
        return sorted({name for names in found for name in names})

    async def reset(
        self, group: str, positions: Mapping[Partition, Position]
    ) -> Mapping[Partition, Outcome]:
        """Sets the subscription to the entry of each position. Its consumers reconnect."""
        found = await asyncio.gather(*(self._reset(group, *each) for each in positions.items()))
        return dict(zip(positions, found, strict=True))

    async def _reset(self, group: str, partition: Partition, position: Place) -> Outcome:
        admin, topic = self._open.tools(), topic_of(partition)
        try:
            if await Entries(topic, admin).splits_message(position):
                return Outcome.retry(AdapterError(_inside_chunks(partition, position)))
            if await admin.reset_cursor(topic, group, position):
                return Outcome.durable()
            gone = PartitionLostError(f"{partition} has no subscription {group!r}")
            return Outcome(OutcomeKind.GONE, error=gone)
        except ConsumerSdkError as error:
            return Outcome.retry(error)

    def encode_position(self, position: Position) -> str:
        return encode_message_id(position)

    def decode_position(self, text: str) -> Position:
        return decode_message_id(text)

    async def aclose(self) -> None:
        self._is_closed = True
        connected, self._connected = self._connected, None
        if connected is not None and self._pid == os.getpid():
            await connected.aclose()


def _inside_chunks(partition: Partition, position: Place) -> str:
    return (
        f"{partition}: a message in chunks ends at {encode_message_id(position)}, and would be lost: "
        f"reset to an earlier position, such as with --shift -1"
    )
