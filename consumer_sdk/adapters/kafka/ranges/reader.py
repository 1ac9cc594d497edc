"""The range reader of Kafka: what Spark and tools see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient

from consumer_sdk.adapters.kafka.client.asking import time_of
from consumer_sdk.adapters.kafka.client.lookups import GroupOffset
from consumer_sdk.adapters.kafka.client.options import check_client_options, read_servers
from consumer_sdk.adapters.kafka.client.topics import FORBIDDEN, LOOK_AGAIN, PROPAGATION
from consumer_sdk.adapters.kafka.decoding.record_batches import MAX_BATCH_BYTES
from consumer_sdk.adapters.kafka.options import IsolationLevel
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.adapters.kafka.ranges.group import GroupPosition
from consumer_sdk.adapters.kafka.ranges.options import (
    CONSUMERS_OWN,
    OURS,
    RangeOptions,
    parse_url,
)
from consumer_sdk.adapters.kafka.ranges.reading import RangeRead
from consumer_sdk.adapters.kafka.ranges.sizes import stored_sizes
from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.errors import AdapterError, ConfigurationError, ConsumerClosedError
from consumer_sdk.options import given_fields, kinds_of, names_of
from consumer_sdk.range_reads import Columns, PartitionRange, RangeReader
from consumer_sdk.records import (
    AtPosition,
    Committed,
    Outcome,
    Partition,
    Position,
    Start,
    StartPoint,
)

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka.share.offsets import ShareOffset

__all__ = ["KafkaRanges", "Selection"]


class KafkaRanges(RangeReader):
    """Reads ranges of Kafka topics, as no member of any group.

    Topics are never created. Positions are offsets.

    Args:
        topics: one name, or several.
        pattern: a regular expression instead: all topics whose whole names it matches, new ones
            too, but not Kafka's internal ones.
        partitions: topic → numbers instead: these partitions only.
        bootstrap_servers: ``"host:port"``, several with commas or in a sequence.
        group: whose position `commit` moves, and ``BROKER`` stands for.
        isolation_level: ``"read_committed"``, or ``"read_uncommitted"``: also records of
            transactions that are open or aborted.
        connect_timeout: seconds that `open` waits for the servers, which may be restarting.
        read_timeout: seconds without any answer after which a question, or a part of a range,
            is given up.
        seen_within: seconds after which `partitions` shows new ones.
        require_topics: `open` fails when a topic that is named does not exist. A task that only
            reads ranges need not ask for that: other topics' ranges can be read.
        whole_names: ``pattern`` has to match the whole name of a topic. With False a part of the
            name is enough, as for the patterns of Kafka's Java consumer and of Spark.
        client_rack: where this client is, as ``broker.rack`` has it: records are read from a replica
            there, if the brokers choose one (``replica.selector.class``, KIP-392).
        client_id: the name that the broker's logs and quotas know this client by.
        max_batch_bytes: bytes that a compressed record batch may have when it is decompressed; one
            that has more is an `UnreadableRecordError`. A broker's limits count compressed bytes.
        client_options: any other option of ``AIOKafkaClient``, such as ``security_protocol``,
            ``ssl_context`` (which cannot be pickled) or ``sasl_mechanism``.

    Attributes:
        broker_calls: requests sent so far, for benchmarks.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    broker: ClassVar[str] = "kafka"

    def __init__(
        self,
        topics: str | Sequence[str] = (),
        *,
        bootstrap_servers: str | Sequence[str],
        pattern: str | None = None,
        partitions: Mapping[str, Collection[int]] | None = None,
        group: str | None = None,
        isolation_level: IsolationLevel = "read_committed",
        connect_timeout: float = 10.0,
        read_timeout: float = 30.0,
        seen_within: float = 3.0,
        require_topics: bool = True,
        whole_names: bool = True,
        client_rack: str = "",
        client_id: str = "consumer-sdk",
        max_batch_bytes: int = MAX_BATCH_BYTES,
        **client_options: Any,
    ) -> None:
        own = kinds_of(RangeOptions)
        check_client_options(client_options, AIOKafkaClient.__init__, OURS, own)
        topics = list(names_of((topics,))) if topics else []
        servers = read_servers(bootstrap_servers)
        self._options = RangeOptions(**given_fields(RangeOptions, locals()))
        self.group = group
        self._opened: Connection | None = None
        self._opened_group: GroupPosition | None = None
        self._looked_at: Collection[TopicPartition] = ()
        self._is_closed = False

    @classmethod
    def from_url(cls, url: str) -> KafkaRanges:
        """The reader for ``kafka://host:port[,host:port]/topic[,topic]?group=g&option=value``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        topics, options = parse_url(url)
        return cls(topics, **options)

    @classmethod
    def consumer_options(cls) -> Collection[str]:
        """Options of a consumer's URL that have no meaning here."""
        return CONSUMERS_OWN

    @property
    def _connection(self) -> Connection:
        if self._is_closed:
            raise ConsumerClosedError("the Kafka range reader is closed; make a new one")
        if self._opened is None:
            raise ConsumerClosedError("the Kafka range reader is not open")
        return self._opened

    @property
    def _group(self) -> GroupPosition:
        if self._opened_group is None:  # it remembers the coordinator
            self._opened_group = GroupPosition(self._connection, self.group)
        return self._opened_group

    @property
    def broker_calls(self) -> int:
        """Requests sent so far."""
        return 0 if self._opened is None else self._opened.calls

    @property
    def requests_per_look(self) -> int:
        """How many leaders were asked where their partitions end, the last time."""
        leaders = map(self._connection.cluster.metadata.known_leader, self._looked_at)
        return len({leader and leader.node for leader in leaders}) or 1

    async def open(self) -> None:
        if self._opened is not None or self._is_closed:
            raise ConsumerClosedError("a Kafka range reader can be opened once; make a new one")
        self._opened = Connection(self._options)
        try:
            await self._opened.open()
            await Selection(self._opened).check()
        except BaseException:
            await self.aclose()
            raise

    async def partitions(self) -> Sequence[Partition]:
        return await Selection(self._connection).partitions()

    def is_chosen(self, partition: Partition) -> bool:
        numbers = (self._options.partitions or {}).get(partition.stream)
        is_number = numbers is None or partition.id in map(str, numbers)
        return is_number and self._options.chooses(partition.stream)

    async def positions(
        self, partitions: Collection[Partition], at: Start
    ) -> Mapping[Partition, Position | None]:
        found = await self._positions([_tp(partition) for partition in partitions], at)
        return {partition: found.get(_tp(partition)) for partition in partitions}

    async def _positions(
        self, tps: Collection[TopicPartition], at: Start
    ) -> Mapping[TopicPartition, int | None]:
        if not tps:
            return {}
        if isinstance(at, AtPosition):
            return dict.fromkeys(tps, int(at.position))
        if at is StartPoint.BROKER:
            return await self._group.committed(tps)
        if at is StartPoint.ENDED:
            return {}
        if at is StartPoint.LATEST:
            self._looked_at = tps
        return await self._connection.look_up(tps, time_of(at))

    async def records(self, ranges: Collection[PartitionRange]) -> Mapping[Partition, int]:
        """As many as there are offsets: what gaps hold is not known."""
        return {each.partition: max(each.stop - each.start, 0) for each in ranges}

    async def cut(self, wanted: PartitionRange, records: int) -> Position:
        return min(wanted.start + max(records, 1), wanted.stop)

    async def record_size(self, partitions: Collection[Partition]) -> Mapping[Partition, float]:
        """From the newest batches: one fetch of at most 64 KiB for each partition."""
        sizes = await stored_sizes(self._connection, map(_tp, partitions))
        return {p: sizes[_tp(p)] for p in partitions if _tp(p) in sizes}

    def read_range(
        self, wanted: PartitionRange, *, with_headers: bool = False, max_bytes: int = 8 * 2**20
    ) -> AsyncIterator[Columns]:
        tp, start, stop = _tp(wanted.partition), int(wanted.start), int(wanted.stop)
        if max_bytes < 1:
            raise ConfigurationError(f"max_bytes={max_bytes}: give at least 1")
        read = RangeRead(self._connection, tp, start, stop)
        return read.parts(with_headers=with_headers, max_bytes=max_bytes)

    async def commit(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, Outcome]:
        if self.group is None:
            error = ConfigurationError("commit needs a group: KafkaRanges(…, group='name')")
            return dict.fromkeys(positions, Outcome.retry(error))
        wanted = {_tp(partition): int(at) for partition, at in positions.items()}
        try:
            outcomes = await self._group.commit(wanted)
        except ConsumerClosedError as error:
            return dict.fromkeys(positions, Outcome.retry(error))
        return {partition: outcomes[_tp(partition)] for partition in positions}

    async def committed(
        self, group: str, partitions: Collection[Partition]
    ) -> Mapping[Partition, Committed | None]:
        commits = await GroupPosition(self._connection, group).commits([*map(_tp, partitions)])
        return {each: _committed(group, each, commits.get(_tp(each))) for each in partitions}

    async def shared(
        self, group: str, partitions: Collection[Partition]
    ) -> Mapping[Partition, ShareOffset]:
        """How far a share group has come.

        Raises:
            AdapterError: its coordinator did not answer, or refused.
        """
        # Not above: the workers of Spark, which start often, ask for no share group.
        from consumer_sdk.adapters.kafka.share.offsets import share_offsets

        opened, tps = self._connection, [*map(_tp, partitions)]
        found = await opened.persist(
            f"asking how far share group {group!r} has come",
            lambda: share_offsets(opened.cluster, group, tps),
        )
        return {each: found[_tp(each)] for each in partitions}

    async def members(self, group: str, partitions: Collection[Partition]) -> Sequence[str]:  # noqa: ARG002
        """Those of the group, whatever they read."""
        return await GroupPosition(self._connection, group).members()

    async def check_group(self, group: str) -> None:
        await GroupPosition(self._connection, group).check_access()

    async def reset(
        self, group: str, positions: Mapping[Partition, Position]
    ) -> Mapping[Partition, Outcome]:
        """The broker refuses it while the group has members."""
        wanted = {_tp(partition): int(at) for partition, at in positions.items()}
        outcomes = await GroupPosition(self._connection, group).reset(wanted)
        return {partition: outcomes[_tp(partition)] for partition in positions}

    def encode_position(self, position: Position) -> str:
        return str(int(position))

    def decode_position(self, text: str) -> Position:
        return decode_offset(text)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._opened is not None:
                await self._opened.aclose()


def _tp(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.stream, int(partition.id))


def _committed(group: str, partition: Partition, commit: GroupOffset | None) -> Committed | None:
    if commit is None:
        return None
    # Not above: the workers of Spark, which start often, ask for no group's commits.
    from consumer_sdk.adapters.kafka.commits.metadata import read_metadata

    text, offset = commit.metadata, commit.offset
    return read_metadata(text, offset, group=group, partition=partition, identity=None)[0]


class Selection:
    """The topics, or the pattern, or the partitions that were asked for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._options = connection.options

    async def check(self) -> None:
        """Sees that the topics that are named exist, where they have to.

        Raises:
            ConfigurationError: one does not, or has no such partition.
            AdapterError: the broker did not answer, or refused.
        """
        if not self._options.names or not self._options.require_topics:
            return
        await self._await_topics()
        for name in self._options.names:
            self._check(name)

    async def _await_topics(self) -> None:
        """Those that are absent may still appear: the last look begins when they should have."""
        metadata, now = self._connection.cluster.metadata, asyncio.get_running_loop().time
        deadline = now() + PROPAGATION
        is_late = False
        while not (is_late or set(self._options.names) <= set(metadata.topics)):
            await asyncio.sleep(LOOK_AGAIN)
            is_late = now() >= deadline
            await self._connection.persist("looking for new topics", self._connection.refresh)

    def _check(self, name: str) -> None:
        metadata = self._connection.cluster.metadata
        if name not in metadata.topics:
            raise ConfigurationError(
                f"topic {name!r} does not exist on {', '.join(self._options.servers)}, "
                f"and reading never creates one: check the name, or create it first"
            )
        if metadata.troubled.get(name) == FORBIDDEN:
            raise AdapterError(
                f"topic {name!r}: this principal may not describe it; grant it "
                f"Describe and Read (ACLs)"
            )
        known = metadata.partitions(name)
        absent = set((self._options.partitions or {}).get(name, ())) - known
        if absent and name not in metadata.troubled:
            raise ConfigurationError(
                f"topic {name!r} has no partition {min(absent)}: it has {len(known)}, from 0 up"
            )

    async def partitions(self) -> Sequence[Partition]:
        """Those that there are, in the order of topic and number.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        await self._connection.persist("looking for new partitions", self._look)
        return [Partition(topic, str(n)) for topic, n in sorted(self._chosen())]

    async def _look(self) -> None:
        if self._connection.cluster.age >= self._options.seen_within:
            await self._connection.refresh()
        for topic in self._topics():
            self._connection.cluster.metadata.check_topic(topic)

    def _chosen(self) -> Iterator[tuple[str, int]]:
        for topic in self._topics():
            numbers = self._connection.cluster.metadata.partitions(topic)
            chosen = (self._options.partitions or {}).get(topic, numbers)
            yield from ((topic, number) for number in numbers & set(chosen))

    def _topics(self) -> Sequence[str]:
        if self._options.pattern is None:
            return self._options.names
        metadata = self._connection.cluster.metadata
        topics = set(metadata.topics) - set(metadata.internal)
        return [topic for topic in sorted(topics) if self._options.chooses(topic)]
