"""The Kinesis adapter: what the runtime sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from consumer_sdk.abc import Adapter, AssignmentOwner, DeadLetters, Leases, LeaseSource
from consumer_sdk.adapters.kinesis.connection import Connection
from consumer_sdk.adapters.kinesis.grants import Grant
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.rates import Limits
from consumer_sdk.adapters.kinesis.requests import address
from consumer_sdk.adapters.kinesis.service import Service
from consumer_sdk.adapters.kinesis.session import Session
from consumer_sdk.adapters.kinesis.urls import parse_url
from consumer_sdk.adapters.option_texts import make_options
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    PartitionLostError,
    StoreError,
)
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Committed,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Run,
    Start,
    StartPoint,
)
from consumer_sdk.records.position_texts import decode_sequence, encode_sequence
from consumer_sdk.stores import MemoryStore

__all__ = ["KinesisAdapter"]


class KinesisAdapter(Adapter):
    """Reads a Kinesis stream, in a group or alone.

    In a group the shards are shared with the other members by leases in the consumer's store, and
    handed over when one comes or goes. A shard that was split or merged is read to its end, and
    its children once every record of all their parents is settled, whoever reads them. Records of
    the Kinesis Producer Library come one by one. Alone (``group=None``) all shards are read from
    the consumer's ``start``, and nothing is kept.

    A position is ``(sequence number, sub-sequence number)``. ``start="latest"`` is pinned as the
    time of the service's clock.

    Args:
        stream: its name or ARN.
        group: whose checkpoints and leases these are; what the KCL calls the application.
        region_name: of the stream; by default as the AWS tools find it.
        fan_out: the name of an enhanced fan-out consumer, which is registered if it is not there:
            2 MiB/s for each shard that nobody else shares. None: the shards are polled.
        lease_duration: seconds without a sign of life after which others take a member's shards.
        handover_timeout: seconds that a member has to drain a shard that another one waits for.
        discovery_interval: seconds between two looks at the list of shards.
        poll_interval: seconds between two looks at a shard that has had nothing for a while. A
            shard with records is asked up to five times a second.
        buffer_bytes: records that are read ahead of the consumer, of all shards together; soft by
            one answer (10 MiB at most) for each shard.
        dead_letter_stream: where dead letters go if the consumer is given no other place; it exists.
        limits: what one shard may be asked for; those of AWS by default.
        connection: any other option of `Connection`, such as ``endpoint_url``, ``profile``,
            ``aws_access_key_id``, ``aws_secret_access_key`` or ``fast_decode``.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    broker: ClassVar[str] = "kinesis"

    def __init__(
        self,
        stream: str,
        *,
        group: str | None = None,
        region_name: str | None = None,
        fan_out: str | None = None,
        lease_duration: float = 10.0,
        handover_timeout: float = 30.0,
        discovery_interval: float = 60.0,
        poll_interval: float = 1.0,
        buffer_bytes: int = 64 << 20,
        dead_letter_stream: str | None = None,
        limits: Limits | None = None,
        **connection: Any,
    ) -> None:
        self._options = KinesisOptions(
            stream=stream,
            group=group,
            fan_out=fan_out,
            lease_duration=lease_duration,
            handover_timeout=handover_timeout,
            discovery_interval=discovery_interval,
            poll_interval=poll_interval,
            buffer_bytes=buffer_bytes,
            dead_letter_stream=dead_letter_stream,
            limits=limits or Limits(),
            connection=make_options(Connection, {"region_name": region_name, **connection}),
        )
        region, _ = address(stream)
        if region not in {None, region_name or region}:
            raise ConfigurationError(
                f"region_name={region_name!r}: the stream's ARN names {region}"
            )
        # Dead letters that are named without a region go to the stream's own.
        self._connection = replace(self._options.connection, region_name=region or region_name)
        self.group = group
        self.capabilities = Capabilities(
            commits=False,
            wants_ends=True,
            needs_leases=group is not None,
            lag_unit="milliseconds",
            knows_ends=False,
        )
        self._service: Service | None = None
        self._opened: Session | None = None
        self._identity: str | None = None
        self._is_closed = False

    @classmethod
    def from_url(cls, url: str) -> KinesisAdapter:
        """The adapter for ``kinesis://region/stream?group=g&option=value``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        stream, options = parse_url(url)
        return cls(stream, **options)

    def _make_service(self) -> Service:
        """The seam for simulations."""
        from consumer_sdk.adapters.kinesis.client import ClientService

        return ClientService(self._options.stream, self._connection)

    @property
    def _session(self) -> Session:
        if self._opened is None or self._is_closed:
            state = "closed; make a new one" if self._is_closed else "not open"
            raise ConsumerClosedError(f"the Kinesis adapter is {state}")
        return self._opened

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        if self._service is not None or self._is_closed:
            raise ConsumerClosedError("a Kinesis adapter can be opened once; make a new one")
        self._service = service = self._make_service()
        try:
            facts = await service.open()
            self._identity = facts.identity
            name = self._options.fan_out
            consumer = None if name is None else await service.consumer(name)
            now = await service.time()
            self._check_not_closed()
            self._opened = Session(
                self._options,
                service,
                owner,
                self._join(leases),
                facts,
                now=now,
                consumer=consumer,
            )
        except BaseException:
            await self.aclose()
            raise

    def _check_not_closed(self) -> None:
        """Meanwhile: nobody would close what is begun after that."""
        if self._is_closed:
            raise ConsumerClosedError("the Kinesis adapter was closed while it was opened")

    def _join(self, source: LeaseSource | None) -> Leases:
        """Alone, the leases are this process's own."""
        options = self._options
        group = "" if options.group is None else options.group
        source = MemoryStore().leases if options.group is None else source
        times = {"duration": options.lease_duration, "handover": options.handover_timeout}
        leases = None if source is None else source(group, options.stream_name, **times)
        if leases is None:
            raise ConfigurationError(
                "kinesis: a group needs a store that keeps leases: give the consumer "
                "store=LocalStore(…) or ZooKeeperStore(…)"
            )
        return leases

    async def run(self) -> None:
        if not self._is_closed:
            await self._session.run()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        return await self._session.fetch(max_records, max_bytes, max_wait)

    # -- one shard ------------------------------------------------------------------------

    def _grant(self, assignment: Assignment) -> Grant | None:
        return None if self._opened is None else self._opened.grant_of(assignment)

    def pause(self, assignment: Assignment) -> None:
        if self._opened is not None:
            self._opened.pause(assignment)

    def resume(self, assignment: Assignment) -> None:
        grant = self._grant(assignment)
        if grant is not None:
            grant.resume()

    def drop(self, assignment: Assignment) -> None:
        if self._opened is not None:
            self._opened.drop(assignment)

    def identity(self, assignment: Assignment) -> str | None:  # noqa: ARG002 - one stream, one identity
        return self._identity

    # -- positions ------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Kinesis keeps no positions; of a shard that has ended the lease is released as such."""
        return [await self._commit(flush) for flush in flushes]

    async def _commit(self, flush: AckFlush) -> Outcome:
        session, grant = self._opened, self._grant(flush.assignment)
        if session is None or grant is None:
            lost = PartitionLostError(f"{flush.assignment.partition} is not held any more")
            return Outcome(OutcomeKind.FENCED, error=lost)
        if not flush.checkpoint.ended:
            return Outcome(OutcomeKind.SENT)
        try:
            await session.end(grant)  # also while closing: `revoked` flushes a last time
        except StoreError as error:
            return Outcome.retry(error)
        return Outcome.durable()

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        return dict.fromkeys(assignments)

    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """The service tells of none; where a shard was found trimmed, of its first."""
        session, is_known = self._session, at is StartPoint.EARLIEST
        return {a: session.horizon(a.partition.id) if is_known else None for a in assignments}

    async def time(self) -> float:
        return self._session.opened_at

    async def partitions(self, stream: str) -> Sequence[Partition]:
        if stream != self._options.stream_name:
            return []
        return [Partition(stream, shard) for shard in await self._session.discovery.shards()]

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        now = await self._session.now()
        grants = {a: self._grant(a) for a in assignments}
        return {a: None if grant is None else grant.lag(now) for a, grant in grants.items()}

    def encode_position(self, position: Position) -> str:
        return encode_sequence(position)

    def decode_position(self, text: str) -> Position:
        return decode_sequence(text)

    def dead_letters(self) -> DeadLetters | None:
        """The stream ``dead_letter_stream``, reached in the same way."""
        from consumer_sdk.dead_letters.kinesis import KinesisDeadLetters

        stream = self._options.dead_letter_stream
        return None if stream is None else KinesisDeadLetters(stream, **asdict(self._connection))

    # -- the end --------------------------------------------------------------------------

    async def aclose(self) -> None:
        self._is_closed = True
        if self._opened is not None:
            await self._opened.aclose()
        elif self._service is not None:
            await self._service.aclose()
