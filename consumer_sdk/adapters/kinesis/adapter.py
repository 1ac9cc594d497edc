"""The Kinesis adapter: what the runtime sees."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from consumer_sdk.abc import Adapter, AssignmentOwner, DeadLetters, Leases, LeaseSource
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.read_ahead_budget import ReadAheadBudget
from consumer_sdk.adapters.kinesis.consumer.session import OneQuestion, Place, Session, Sessions
from consumer_sdk.adapters.kinesis.options import KinesisOptions, parse_url, read_streams
from consumer_sdk.adapters.kinesis.service.connection import Connection
from consumer_sdk.adapters.kinesis.service.rates import Limits
from consumer_sdk.adapters.kinesis.service.requests import address
from consumer_sdk.adapters.kinesis.service.service import Service
from consumer_sdk.adapters.kinesis.starts import sequence_of
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.checkpoints.positions import decode_sequence, encode_sequence
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    PartitionLostError,
    StoreError,
)
from consumer_sdk.leases.memory import private_leases
from consumer_sdk.options import given_fields, make_options
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

if TYPE_CHECKING:
    from consumer_sdk.adapters.kinesis.service.client import ClientService

__all__ = ["KinesisAdapter"]


class KinesisAdapter(Adapter):
    """Reads a Kinesis stream, or several, in a group or alone.

    In a group, the members share the shards by leases in the consumer's store, and hand them over
    when a member joins or leaves. A shard that was split or merged is read to its end. Its children
    are read when every record of all their parents is settled, whichever member reads them. An
    aggregate of the Kinesis Producer Library is delivered as its single records.

    Alone (``group=None``), the adapter reads all shards from the consumer's ``start``, and stores
    no position.

    A position is ``(sequence number, sub-sequence number)``. ``start="latest"`` is pinned as the
    time of the service's clock.

    Args:
        stream: its name or ARN; several one by one or in a sequence. Each stream has leases of its
            own, so its shards are shared independently of the others.
        group: the consumer group, which the KCL calls the application. Its members share checkpoints and leases.
        region_name: of the stream; by default as the AWS tools find it.
        fan_out: the name of an enhanced fan-out consumer, which is registered if it does not exist. It
            has 2 MiB/s of its own for each shard. None: the shards are polled.
        lease_duration: seconds without a renewal after which other members take a member's shards.
        handover_timeout: seconds that a member has to drain a shard that another member is to get.
        max_shards: most shards of a stream that this member holds; by default its even share. Shards
            above the limits of all members are logged, and not read until another member joins.
        weight: this member's part of the shards, relative to the other members, for hosts of
            different size: of 9 shards a member of weight 2 gets 6, and one of weight 1 gets 3.
        discovery_interval: seconds between two requests for the list of shards.
        poll_interval: seconds between two reads of an idle shard. A shard with records is read up to
            four times a second at its end, and five times a second behind the end; less often while
            other groups read it too.
        buffer_bytes: bytes that are read ahead of the consumer, for all shards together. Each shard
            may exceed it by one response (10 MiB at most). A full buffer stops the reading, for
            however long, and loses no record.
        dead_letter_stream: an existing stream for dead letters, unless the consumer is given
            ``dead_letters``. `consumer_sdk.dead_letters.decode_letter` reads them.
        limits: calls and bytes a second for one shard; by default those of AWS. Give others for test
            servers, or to leave more to other groups.
        connection: any other option of `Connection`, such as ``endpoint_url``, ``profile``,
            ``aws_access_key_id``, ``aws_secret_access_key`` or ``fast_decode``.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    broker: ClassVar[str] = "kinesis"

    def __init__(
        self,
        stream: str | Sequence[str],
        *more: str,
        group: str | None = None,
        region_name: str | None = None,
        fan_out: str | None = None,
        lease_duration: float = 10.0,
        handover_timeout: float = 30.0,
        max_shards: int | None = None,
        weight: int = 1,
        discovery_interval: float = 60.0,
        poll_interval: float = 1.0,
        buffer_bytes: int = 64 << 20,
        dead_letter_stream: str | None = None,
        limits: Limits | None = None,
        **connection: Any,
    ) -> None:
        regions = read_streams([stream, *more], region_name)
        made = make_options(Connection, {"region_name": region_name, **connection})
        given = {**locals(), "stream": next(iter(regions)), "connection": made}
        self._options = KinesisOptions(**given_fields(KinesisOptions, given))
        self._streams = {
            stream: replace(
                self._options,
                stream=stream,
                connection=replace(self._options.connection, region_name=region),
            )
            for stream, region in regions.items()
        }
        self._check_dead_letters({*regions.values()})
        self.group = group
        self.capabilities = Capabilities(
            commits=False,
            wants_ends=True,
            needs_leases=group is not None,
            lag_unit="milliseconds",
            knows_ends=False,
        )
        self._services: list[Service] = []
        self._opened: Sessions | None = None
        self._identities: dict[str, str] = {}
        self._is_closed = False

    @classmethod
    def from_url(cls, url: str) -> KinesisAdapter:
        """The adapter for ``kinesis://region/stream[,stream]?group=g&option=value``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        streams, options = parse_url(url)
        return cls(*streams, **options)

    def __repr__(self) -> str:
        return f"KinesisAdapter({', '.join(map(repr, self._streams))}, group={self.group!r})"

    def _check_dead_letters(self, regions: Collection[str | None]) -> None:
        """Those that are named without a region go to the streams' own."""
        name = self._options.dead_letter_stream
        if name is not None and len(regions) > 1 and address(name)[0] is None:
            raise ConfigurationError(
                f"dead_letter_stream={name!r}: the streams are of several regions: give its ARN"
            )

    def client_service(self) -> ClientService:
        """Another client of the stream, not open yet: for tools.

        Raises:
            ConfigurationError: there are several streams.
        """
        if len(self._streams) > 1:
            raise ConfigurationError(f"{', '.join(self._streams)}: give one stream")
        return self._client_service(next(iter(self._streams.values())))

    @staticmethod
    def _client_service(options: KinesisOptions) -> ClientService:
        from consumer_sdk.adapters.kinesis.service.client import ClientService

        return ClientService(options.stream, options.connection)

    def _make_service(self, options: KinesisOptions) -> Service:
        """The seam for simulations."""
        return self._client_service(options)

    @property
    def _sessions(self) -> Sessions:
        if self._opened is None or self._is_closed:
            state = "closed; make a new one" if self._is_closed else "not open"
            raise ConsumerClosedError(f"the Kinesis adapter is {state}")
        return self._opened

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        if self._services or self._is_closed:
            raise ConsumerClosedError("a Kinesis adapter can be opened once; make a new one")
        self._services += map(self._make_service, self._streams.values())
        try:
            places = [
                await self._find(options, service)
                for options, service in zip(self._streams.values(), self._services, strict=True)
            ]
            self._check_not_closed()
            joined = [self._join(leases, place.options) for place in places]
            self._opened = self._begin(OneQuestion(owner), places, joined)
        except BaseException:
            await self.aclose()
            raise

    async def _find(self, options: KinesisOptions, service: Service) -> Place:
        patience = options.connection.connect_timeout
        facts = await keep_trying(lambda _: service.open(), patience)
        self._identities[options.stream_name] = facts.identity
        name = options.fan_out
        consumer = None
        if name is not None:
            consumer = await keep_trying(lambda _: service.consumer(name), patience)
        return Place(options, service, facts, consumer, await service.time())

    def _begin(
        self, owner: AssignmentOwner, places: Sequence[Place], joined: Sequence[Leases]
    ) -> Sessions:
        news = asyncio.Event()
        by_stream: dict[str, Session] = {}
        room = ReadAheadBudget(
            lambda: [grant for session in by_stream.values() for grant in session.grants],
            self._options.buffer_bytes,
        )
        for place, leases in zip(places, joined, strict=True):
            by_stream[place.options.stream_name] = Session(place, owner, leases, room, news)
        return Sessions(by_stream, news)

    def _check_not_closed(self) -> None:
        """Meanwhile: nobody would close what is begun after that."""
        if self._is_closed:
            raise ConsumerClosedError("the Kinesis adapter was closed while it was opened")

    @staticmethod
    def _join(source: LeaseSource | None, options: KinesisOptions) -> Leases:
        """Alone, the leases are this process's own."""
        group = "" if options.group is None else options.group
        source = private_leases if options.group is None else source
        terms: dict[str, Any] = {
            "duration": options.lease_duration,
            "handover": options.handover_timeout,
        }
        if options.max_shards is not None:  # a store of somebody's own may not know it
            terms["most"] = options.max_shards
        if options.weight != 1:  # likewise
            terms["weight"] = options.weight
        leases = None if source is None else source(group, options.stream_name, **terms)
        if leases is None:
            raise ConfigurationError(
                "kinesis: a group needs a store that keeps leases: give the consumer "
                "store=LocalStore(…) or ZooKeeperStore(…)"
            )
        return leases

    async def run(self) -> None:
        if not self._is_closed:
            await self._sessions.run()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        return await self._sessions.fetch(max_records, max_bytes, max_wait)

    # -- one shard ------------------------------------------------------------------------

    def _session_of(self, assignment: Assignment) -> Session | None:
        return None if self._opened is None else self._opened.of(assignment.partition.stream)

    def _grant(self, assignment: Assignment) -> Grant | None:
        return None if self._opened is None else self._opened.grant_of(assignment)

    def pause(self, assignment: Assignment) -> None:
        if (session := self._session_of(assignment)) is not None:
            session.pause(assignment)

    def resume(self, assignment: Assignment) -> None:
        grant = self._grant(assignment)
        if grant is not None:
            grant.resume()

    def drop(self, assignment: Assignment) -> None:
        if (session := self._session_of(assignment)) is not None:
            session.drop(assignment)

    def held_until(self) -> float:
        return math.inf if self._opened is None else self._opened.held_until

    def identity(self, assignment: Assignment) -> str | None:
        return self._identities.get(assignment.partition.stream)

    # -- positions ------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Releases the lease of a shard that has ended. Kinesis itself keeps no positions."""
        held = {f.assignment: grant for f in flushes if (grant := self._grant(f.assignment))}
        ends: dict[str, list[Grant]] = {}
        for flush in flushes:
            if flush.checkpoint.ended and flush.assignment in held:
                ends.setdefault(flush.assignment.partition.stream, []).append(
                    held[flush.assignment]
                )
        outcomes = await asyncio.gather(*(self._end(*each) for each in ends.items()))
        told = dict(zip(ends, outcomes, strict=True))
        return [_outcome(flush, told, is_held=flush.assignment in held) for flush in flushes]

    async def _end(self, stream: str, grants: Sequence[Grant]) -> Outcome:
        """In one step, also while closing: `revoked` flushes a last time."""
        session = None if self._opened is None else self._opened.of(stream)
        try:
            if session is not None:
                await session.end(grants)
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
        """Kinesis reports no positions; the adapter knows the first one of a shard that it has found trimmed."""
        opened, is_known = self._sessions, at is StartPoint.EARLIEST
        sessions = {a: opened.of(a.partition.stream) for a in assignments}
        return {
            a: session.horizon(a.partition.id) if is_known and session is not None else None
            for a, session in sessions.items()
        }

    async def time(self) -> float:
        return self._sessions.opened_at

    async def partitions(self, stream: str) -> Sequence[Partition]:
        session = self._sessions.of(stream)
        if session is None:
            return []
        return [Partition(stream, shard) for shard in await session.discovery.shards()]

    async def gone(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        by_stream: dict[str, list[str]] = {}
        for stream, shard in partitions:
            by_stream.setdefault(stream, []).append(shard)
        gone: list[Partition] = []
        for stream, shards in by_stream.items():
            if (session := self._sessions.of(stream)) is not None:
                gone += [Partition(stream, shard) for shard in await session.gone(shards)]
        return gone

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        now, loop_time = await self._sessions.now(), asyncio.get_running_loop().time()
        grants = {a: self._grant(a) for a in assignments}
        return {a: None if g is None else g.lag(now, loop_time) for a, g in grants.items()}

    def encode_position(self, position: Position) -> str:
        sequence_of(position)  # or it says what a position is
        return encode_sequence(position)

    def decode_position(self, text: str) -> Position:
        return decode_sequence(text)

    def dead_letters(self) -> DeadLetters | None:
        """The stream ``dead_letter_stream``, reached in the same way."""
        from consumer_sdk.adapters.kinesis.dead_letters import KinesisDeadLetters

        stream = self._options.dead_letter_stream
        connection = next(iter(self._streams.values())).connection
        return None if stream is None else KinesisDeadLetters(stream, **asdict(connection))

    # -- the end --------------------------------------------------------------------------

    async def aclose(self) -> None:
        self._is_closed = True
        if self._opened is not None:
            await self._opened.aclose()
        else:
            await asyncio.gather(*(service.aclose() for service in self._services))


def _outcome(flush: AckFlush, told: Mapping[str, Outcome], *, is_held: bool) -> Outcome:
    partition = flush.assignment.partition
    if not is_held:
        lost = PartitionLostError(f"{partition} is not held any more")
        return Outcome(OutcomeKind.FENCED, error=lost)
    return told[partition.stream] if flush.checkpoint.ended else Outcome(OutcomeKind.SENT)
