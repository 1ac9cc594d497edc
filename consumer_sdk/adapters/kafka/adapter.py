"""The Kafka adapter: what the runtime sees."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import AIOKafkaConsumer, TopicPartition

from consumer_sdk.abc import Adapter, AssignmentOwner, DeadLetters, LeaseSource
from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kafka.client.options import (
    check_client_options,
    read_servers,
    read_topics,
)
from consumer_sdk.adapters.kafka.client.protocol import topic_id_text
from consumer_sdk.adapters.kafka.commits.metadata import MOST
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.session import Session
from consumer_sdk.adapters.kafka.decoding.record_batches import MAX_BATCH_BYTES
from consumer_sdk.adapters.kafka.options import (
    LONGEST_HOLD,
    OURS,
    AcquireModeName,
    GroupProtocol,
    InitialPosition,
    IsolationLevel,
    KafkaOptions,
    parse_url,
)
from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.options import given_fields, kinds_of
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Committed,
    Outcome,
    Partition,
    Position,
    Run,
    Start,
    StartPoint,
)

__all__ = ["KafkaAdapter"]


class KafkaAdapter(Adapter):
    """Reads Kafka topics, in a group or alone.

    In a group, the members share the partitions. A member commits in its own name, and only
    positions of partitions that it holds, so a former owner never overwrites a newer position. The
    commit's metadata hold the settled ranges above the position and the attempts of other records,
    as far as the broker has room.

    Alone (``group=None``), the adapter reads all partitions, finds new ones, and keeps no position
    (a store keeps checkpoints by group too). Each start begins at the consumer's ``start``. The
    adapter never creates a topic.

    Args:
        topics: their names, one by one or in a list.
        bootstrap_servers: ``"host:port"``, several with commas or in a sequence.
        group: the consumer group, or None to read alone and keep no position.
        protocol: the group's rebalance protocol: ``"classic"``, ``"consumer"`` (KIP-848, Kafka
            4.0), or ``"auto"``: the newest that the broker offers and the group allows.
        pattern: instead of topics: a regular expression that the whole name of each topic matches. Topics
            that are made later are read too, and topics that are deleted leave.
        isolation_level: ``"read_committed"`` or ``"read_uncommitted"``.
        session_timeout: seconds without a heartbeat after which a classic group gives the partitions
            to others; by default 10.
        rebalance_timeout: seconds that the group waits for a member to give up its partitions:
            the bound of a drain. In a classic group at least two heartbeat intervals and a second.
        heartbeat_interval: seconds between heartbeats; by default 3, or a third of the shorter
            timeout.
        connect_timeout: seconds that `open` waits for the servers, which may be restarting.
        client_id: the name that the broker's logs and quotas know this client by.
        share_group: instead of a group: a share group (KIP-932, Kafka 4.1), for which the topics
            are a queue. Its members share the records of each partition, and the broker keeps which
            were settled.
        acquire_mode: of a share group: ``"batch_optimized"`` acquires whole record batches;
            ``"record_limit"`` acquires at most the records that there is room for (KIP-1206, Kafka
            4.2).
        initial_position: where a new share group begins, unless somebody has set its
            ``share.auto.offset.reset``: ``"earliest"`` or ``"latest"``.
        longest_hold: of a share group: seconds that a failed record may wait in this consumer for
            its next attempt, while the consumer renews its lock. If the record has to wait longer,
            the consumer releases it, and the broker redelivers it at once, to any member. A broker
            before Kafka 4.2 renews no locks, which shortens this.
        max_batch_bytes: bytes that a compressed record batch may have when it is decompressed; one
            that has more is an `UnreadableRecordError`. A broker's limits count compressed bytes.
        client_options: any other option of ``AIOKafkaConsumer``, such as ``security_protocol``,
            ``ssl_context``, ``sasl_mechanism``, ``fetch_max_bytes`` or
            ``partition_assignment_strategy``.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    broker: ClassVar[str] = "kafka"

    def __new__(cls, *_topics: Any, share_group: str | None = None, **_options: Any) -> Self:
        """A member of a share group is another adapter."""
        if share_group is None or cls is not KafkaAdapter:
            return super().__new__(cls)
        from consumer_sdk.adapters.kafka.share.adapter import ShareGroupAdapter

        made: Any = super().__new__(ShareGroupAdapter)
        return made  # type: ignore[no-any-return]  # one of the subclass

    def __init__(
        self,
        *topics: str | Sequence[str],
        bootstrap_servers: str | Sequence[str],
        group: str | None = None,
        pattern: str | None = None,
        protocol: GroupProtocol = "classic",
        isolation_level: IsolationLevel = "read_committed",
        session_timeout: float | None = None,
        rebalance_timeout: float = 30.0,
        heartbeat_interval: float | None = None,
        connect_timeout: float = 10.0,
        client_id: str = "consumer-sdk",
        share_group: str | None = None,
        acquire_mode: AcquireModeName = "batch_optimized",
        initial_position: InitialPosition = "earliest",
        longest_hold: float = LONGEST_HOLD,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        **client_options: Any,
    ) -> None:
        check_client_options(
            client_options, AIOKafkaConsumer.__init__, OURS, kinds_of(KafkaOptions)
        )
        topics, servers = read_topics(topics), read_servers(bootstrap_servers)
        self._options = KafkaOptions(**given_fields(KafkaOptions, locals()))
        self.group = group
        has_group = group is not None
        self.capabilities = Capabilities(commits=has_group, metadata_size=MOST * has_group)
        self._opened: Session | None = None
        self._is_closed = False

    @classmethod
    def from_url(cls, url: str) -> KafkaAdapter:
        """The adapter for ``kafka://host:port[,host:port]/topic[,topic]?group=g&option=value``.

        With ``pattern=`` among the options the path is empty: ``kafka://host:port/?pattern=orders-.*``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        topics, options = parse_url(url)
        return cls(*topics, **options)

    def __repr__(self) -> str:
        options = self._options
        topics = ", ".join(map(repr, options.topics)) or f"pattern={options.pattern!r}"
        return (
            f"KafkaAdapter({topics}, "
            f"bootstrap_servers={','.join(options.servers)!r}, group={self.group!r})"
        )

    @property
    def session(self) -> Session:
        """The open session, for `KafkaTransactions`."""
        return self._session

    @property
    def _session(self) -> Session:
        """Also while it is closing: the last flush commits, and looks at positions."""
        if self._opened is None:
            raise ConsumerClosedError("the Kafka adapter is not open")
        if self._opened.is_closed:
            raise ConsumerClosedError("the Kafka adapter is closed; make a new one")
        return self._opened

    async def open(
        self,
        owner: AssignmentOwner,
        leases: LeaseSource | None = None,  # noqa: ARG002 - the group assigns the partitions
    ) -> None:
        if self._opened is not None or self._is_closed:
            raise ConsumerClosedError("a Kafka adapter can be opened once; make a new one")
        self._opened = Session(self._options, owner)
        try:
            await self._opened.open()
        except BaseException:
            await self.aclose()
            raise
        if self.group is not None:  # what the broker takes may be less than its default
            size = self._opened.limit.size
            self.capabilities = replace(self.capabilities, metadata_size=size)

    async def run(self) -> None:
        if not self._is_closed:
            await self._session.run()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        if self._is_closed:
            raise ConsumerClosedError("the Kafka adapter is closed; make a new one")
        return await self._session.fetch(max_records, max_bytes, max_wait)

    # -- one partition ----------------------------------------------------------------------

    def _grant(self, assignment: Assignment) -> Grant | None:
        return None if self._opened is None else self._opened.grants.of(assignment)

    def pause(self, assignment: Assignment) -> None:
        grant = self._grant(assignment)
        if grant is not None:
            grant.pause()

    def resume(self, assignment: Assignment) -> None:
        grant = self._grant(assignment)
        if grant is not None:
            grant.resume()
            self._session.wake()

    def drop(self, assignment: Assignment) -> None:
        grant = self._grant(assignment)
        if grant is not None and grant.is_held:
            self._session.granting.drop(grant)

    def held_until(self) -> float:
        return math.inf if self._opened is None else self._opened.held_until

    def identity(self, assignment: Assignment) -> str | None:
        grant = self._grant(assignment)
        topic_id = None if grant is None else grant.topic_id
        return None if topic_id is None else topic_id_text(topic_id)

    # -- positions --------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if self.group is None:
            raise ConfigurationError("commit needs a group: KafkaAdapter(…, group='name')")
        if self._opened is None:
            raise ConsumerClosedError("the Kafka adapter is not open")
        return await self._opened.committer.commit(flushes)

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        if self.group is None:
            return dict.fromkeys(assignments)
        return await self._session.committed_offsets.read(
            {a: self.identity(a) for a in assignments}
        )

    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        session = self._session
        found = await session.offsets.at(map(_tp, assignments), at)
        ends = session.grants.of_all(assignments) if at is StartPoint.LATEST else ()
        found |= {grant.tp: grant.within_past(found.get(grant.tp)) for grant in ends}
        return {a: found.get(_tp(a)) for a in assignments}

    async def partitions(self, stream: str) -> Sequence[Partition]:
        return [Partition(stream, str(n)) for n in await self._session.offsets.partitions(stream)]

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        session = self._session
        grants = [g for g in session.grants.of_all(assignments) if g.state is GrantState.OPEN]
        ends = await session.offsets.at([grant.tp for grant in grants], StartPoint.LATEST)
        known = [(g, end) for g in grants if (end := ends.get(g.tp)) is not None]
        lags = {g.assignment: max(end - g.cursor.position, 0) for g, end in known}
        return {a: lags.get(a) for a in assignments}

    def encode_position(self, position: Position) -> str:
        return str(int(position))

    def decode_position(self, text: str) -> Position:
        return decode_offset(text)

    # -- the rest ---------------------------------------------------------------------------

    def dead_letters(self) -> DeadLetters | None:
        """Topics named ``<topic>-<group>-DLQ`` on the same servers, created when first needed."""
        from consumer_sdk.adapters.kafka.dead_letters import KafkaDeadLetters

        return KafkaDeadLetters(**self._options.for_connection())

    async def aclose(self) -> None:
        self._is_closed = True
        if self._opened is not None:
            await self._opened.aclose()


def _signature() -> inspect.Signature:
    """What ``__init__`` takes: ``__new__`` only chooses the class."""
    found = inspect.signature(KafkaAdapter.__init__)
    _self, *parameters = found.parameters.values()
    return found.replace(parameters=parameters)


KafkaAdapter.__signature__ = _signature()  # type: ignore[attr-defined]  # Python's own name for it


def _tp(assignment: Assignment) -> TopicPartition:
    return TopicPartition(assignment.partition.stream, int(assignment.partition.id))
