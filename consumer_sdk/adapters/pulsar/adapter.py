"""The Pulsar adapter: what the runtime sees."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from consumer_sdk.abc import Adapter, AssignmentOwner, DeadLetters, LeaseSource
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.ids import gaps, is_whole
from consumer_sdk.adapters.pulsar.consumer.acks import seen_whole
from consumer_sdk.adapters.pulsar.consumer.messages import id_of
from consumer_sdk.adapters.pulsar.consumer.retrying import RetryTopics
from consumer_sdk.adapters.pulsar.consumer.session import Session
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.adapters.pulsar.options import (
    CryptoFailureAction,
    InitialPosition,
    PulsarOptions,
    SubscriptionType,
    parse_url,
)
from consumer_sdk.adapters.urls import shown
from consumer_sdk.checkpoints.positions import decode_message_id, encode_message_id
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    ConsumerSdkError,
    PartitionLostError,
    TransientAdapterError,
)
from consumer_sdk.options import given_fields, make_options, names_of
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Committed,
    Message,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Run,
    SettledRecords,
    Start,
)

__all__ = ["PulsarAdapter"]


class PulsarAdapter(Adapter):
    """Reads Pulsar topics through a subscription of any type.

    ================  ========================================================================
    ``exclusive``     a log: one consumer, order kept; a second one waits until the first is gone
    ``failover``      a log: each partition has one active consumer, the others stand by
    ``shared``        a queue: records take turns, no order
    ``key_shared``    a queue: a key stays with one consumer between reconnects
    ================  ========================================================================

    For every type, records are acked one by one, also in the middle of a producer's batch, because
    cumulative acks lose chunked messages. The SDK retries and dead-letters; the client's own means
    for that are not used. Acks that were made without a connection are sent again. A settled record
    that the broker redelivers is not delivered to the handler.

    A position is ``(ledger, entry, index in the batch)``.

    Args:
        topics: their names, one by one or in a list; of another namespace as ``tenant/namespace/name``.
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``.
        subscription: the subscription's name. Stores keep checkpoints under it, as for a group.
        type: ``"exclusive"`` and ``"failover"`` are logs, ``"shared"`` and ``"key_shared"`` queues; see
            the table.
        pattern: instead of topics, a regular expression that a topic's whole name has to match; for
            another namespace ``tenant/namespace/regex``. Needs ``admin_url``.
        initial_position: where a new subscription begins: ``"earliest"`` or ``"latest"``.
        consumer_name: this consumer's name in the broker's statistics; unique in a subscription.
        admin_url: the REST API, ``http://host:8080``. It is needed for patterns and for the consumer's
            ``start=``. With it, a missing topic is an error when the consumer is opened, and a
            consumer of a failover subscription learns within a second that it is no longer the
            active one. Separate several hosts by commas. ``https://`` uses the options of TLS.
        admin_token: a JWT for the REST API. It is sent only to hosts that ``admin_url`` or
            ``service_url`` names.
        receiver_queue: messages that the broker sends ahead, for each partition. They count as
            unacked at the broker. The client keeps them in memory whatever their size: 2000
            messages of 1 MiB take 2 GiB for each partition. Give less for large messages.
        buffer_bytes: bytes that the adapter receives ahead of fetches, for each partition, in
            addition to ``receiver_queue``. While the event loop is busy, up to 3 MiB and 3 messages
            more.
        memory_limit: bytes that all partitions together receive ahead of fetches, ``receiver_queue``
            included. None: each partition has the two limits above. The limit holds as long as no
            message, and no producer's batch, is larger than ``max_message_size`` before compression.
            It shortens the receiver queues, to one message at least. If ``max_message_size`` is
            large, they are much shorter than small messages need.
        max_message_size: bytes of the largest message, for ``memory_limit``; by default that of the
            broker's ``maxMessageSize``.
        cumulative_acks: ack all records up to the first unsettled one with one command (exclusive and
            failover). Use it only if no producer sends chunked messages, because such an ack loses
            those in between. It ends at the last record that was not sent in a batch. It is not used
            with a ``crypto_key_reader``, nor if positions were passed over.
        busy_timeout: seconds that `open` waits for another process to leave the subscription.
        discovery_interval: seconds between two searches for new partitions and topics.
        persist_time: seconds after which an ack survives any crash (exclusive and failover): the
            broker has written it, and the client would have noticed a dead broker. If a record
            arrives again that was settled longer ago, an operator has set the cursor back, and the
            record is delivered again. If it was settled later, it is only acked again.
        retry_topic: read the retry topics ``<topic>-<subscription>-RETRY`` too, and let
            `reconsume_later` write to them (shared and key_shared).
        retry_limit: how often one record may go through a retry topic.
        crypto_key_reader: a ``pulsar.CryptoKeyReader``, to decrypt messages.
        encryption_keys: names of keys of ``crypto_key_reader``, to encrypt copies for the retry topic and
            the dead letters. Without them, a consumer with a ``crypto_key_reader`` has no retry topic
            and no default dead letters.
        crypto_failure_action: what to do with a message that cannot be decrypted. ``"fail"``: the client
            logs an error, and the broker sends the message again with the next connection.
            ``"discard"``: the client acks it, and it is lost. ``"consume"``: the handler gets it as
            it is stored, with ``details.is_encrypted``. A producer's batch arrives as one message; a
            batch that a key reader fails to decrypt never arrives. ``"consume"`` turns retry topics
            and Pulsar's dead letters off, because nobody could decrypt the copies.
        max_pending_chunked_message: most chunked messages of a partition that the client assembles at a
            time. If there are more, the client drops the oldest, and the broker sends it again
            with the next connection.
        is_read_compacted: read the latest record of each key where the topic was compacted
            (exclusive and failover).
        key_shared_policy: a ``pulsar.ConsumerKeySharedPolicy``: sticky hash ranges, or delivery out of
            order.
        properties: names and texts that the broker's statistics show for this consumer.
        replicate_subscription_state_enabled: the broker replicates the subscription's position to
            other clusters.
        connection: any other option of `Connection`, such as ``token``, ``tls_trust_certs``,
            ``oauth2``, ``operation_timeout`` or ``log_level``.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    broker: ClassVar[str] = "pulsar"

    def __init__(
        self,
        *topics: str | Sequence[str],
        service_url: str,
        subscription: str,
        type: SubscriptionType = "exclusive",  # noqa: A002 - Pulsar's own word
        pattern: str | None = None,
        initial_position: InitialPosition = "earliest",
        consumer_name: str | None = None,
        admin_url: str | None = None,
        admin_token: str | None = None,
        receiver_queue: int = 2000,
        buffer_bytes: int = 16 << 20,
        memory_limit: int | None = None,
        max_message_size: int = 5 << 20,
        cumulative_acks: bool = False,
        busy_timeout: float = 30.0,
        discovery_interval: float = 60.0,
        persist_time: float = 180.0,
        retry_topic: bool = False,
        retry_limit: int = 16,
        crypto_key_reader: Any = None,
        encryption_keys: Sequence[str] = (),
        crypto_failure_action: CryptoFailureAction = "fail",
        max_pending_chunked_message: int = 100,
        is_read_compacted: bool = False,
        key_shared_policy: Any = None,
        properties: Mapping[str, str] = {},
        replicate_subscription_state_enabled: bool = False,
        **connection: Any,
    ) -> None:
        made = make_options(Connection, {"service_url": service_url, **connection})
        given = {**locals(), "topics": names_of(topics), "connection": made}
        self._options = PulsarOptions(**given_fields(PulsarOptions, given))
        self.group = subscription
        self.capabilities = self._options.capabilities
        self._opened: Session | None = None
        self._retries = RetryTopics(self._options) if retry_topic else None
        self._is_closed = False

    @classmethod
    def from_url(cls, url: str) -> PulsarAdapter:
        """The adapter for ``pulsar://host:port/topic?subscription=s&type=shared&option=value``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        topics, options = parse_url(url)
        if "subscription" not in options:
            raise ConfigurationError(
                f"{shown(url)}: subscription= is missing in the URL: give its name"
            )
        return cls(*topics, **options)

    def __repr__(self) -> str:
        options = self._options
        topics = ", ".join(map(repr, options.topics)) or f"pattern={options.pattern!r}"
        return (
            f"PulsarAdapter({topics}, service_url={options.connection.service_url!r}, "
            f"subscription={options.subscription!r}, type={options.type!r})"
        )

    @property
    def _session(self) -> Session:
        if self._opened is None or self._is_closed:
            state = "closed; make a new one" if self._is_closed else "not open"
            raise ConsumerClosedError(f"the Pulsar adapter is {state}")
        return self._opened

    async def open(
        self,
        owner: AssignmentOwner,
        leases: LeaseSource | None = None,  # noqa: ARG002 - the broker shares partitions out
    ) -> None:
        if self._opened is not None or self._is_closed:
            raise ConsumerClosedError("a Pulsar adapter can be opened once; make a new one")
        self._opened = Session(self._options, owner)
        try:
            await self._opened.open()
        except BaseException:
            await self.aclose()
            raise

    async def run(self) -> None:
        if not self._is_closed:
            await self._session.run()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        return await self._session.fetch(max_records, max_bytes, max_wait)

    # -- one partition --------------------------------------------------------------------

    def _subscriber(self, assignment: Assignment) -> Subscriber | None:
        return None if self._opened is None else self._opened.subscriber_of(assignment)

    def pause(self, assignment: Assignment) -> None:
        self._pause(assignment, is_paused=True)

    def resume(self, assignment: Assignment) -> None:
        self._pause(assignment, is_paused=False)

    def _pause(self, assignment: Assignment, *, is_paused: bool) -> None:
        subscriber = self._subscriber(assignment)
        if subscriber is not None:
            subscriber.pause(is_paused=is_paused)

    def drop(self, assignment: Assignment) -> None:
        subscriber = self._subscriber(assignment)
        if subscriber is not None:
            subscriber.end()

    def identity(self, assignment: Assignment) -> str | None:  # noqa: ARG002 - Pulsar has none
        return None

    # -- acks -----------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Acks each settled record. SENT: the broker has received the acks, as far as the client can tell."""
        return list(await asyncio.gather(*map(self._commit, flushes)))

    async def _commit(self, flush: AckFlush) -> Outcome:
        subscriber = self._subscriber(flush.assignment)
        partition = flush.assignment.partition
        if subscriber is None:
            return _lost(partition)
        if not flush.settled:
            return Outcome(OutcomeKind.SENT)
        await subscriber.wait_for_first_redelivery()
        if not subscriber.is_connected:  # the client would drop the acks, and say nothing
            return Outcome.retry(TransientAdapterError(f"{partition} is disconnected"))
        if subscriber.assignment is not flush.assignment:  # what came first has shown a reset
            return _lost(partition)
        # Nothing waits from here to `confirm`, so that these acks are made under this assignment. It may end
        # while `confirm` waits: the flush's watermark goes to the `resets` of this assignment all the same.
        resets = subscriber.resets
        self._ack(subscriber, flush)
        # 1. A cumulative ack is lost with its connection. 2. The flush is tried again. 3. The client takes that
        # ack for done, and sends nothing. So after an ack that was not confirmed each record is acked alone.
        # It is said before the wait, which may be cancelled.
        subscriber.acks_each = True
        try:
            await subscriber.confirm()
        except ConsumerSdkError as error:
            return Outcome.retry(error)
        subscriber.acks_each = False
        if resets is not None:
            resets.acked(flush.checkpoint.watermark, flush.checkpoint.unseen)
        return Outcome(OutcomeKind.SENT)

    def _ack(self, subscriber: Subscriber, flush: AckFlush) -> None:
        watermark = seen_whole(flush.checkpoint)
        settled = flush.settled
        options = self._options
        is_cumulative = options.cumulative_acks and options.crypto_key_reader is None
        is_cumulative = is_cumulative and not subscriber.acks_each
        if is_cumulative and watermark is not None:
            # Not in the middle of a producer's batch: the broker would forget which indexes behind
            # it were acked before, and the entry would never be whole.
            whole = [pair for pair in settled if pair[0] <= watermark and is_whole(pair[0])]
            if whole:
                last, native = max(whole, key=lambda pair: pair[0])
                subscriber.ack_cumulative(id_of(native))
                settled = [pair for pair in settled if pair[0] > last]
        subscriber.ack(SettledRecords.of(settled))

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        """An existing subscription has a cursor, but the client does not tell its position."""
        found = {a: self._subscriber(a) for a in assignments}
        cursor = Committed(Checkpoint())
        return {a: cursor if sub is None else sub.committed for a, sub in found.items()}

    # -- positions ------------------------------------------------------------------------

    async def positions(
        self,
        assignments: Sequence[Assignment],
        at: Start,  # noqa: ARG002 - the client tells of none of them
    ) -> Mapping[Assignment, Position | None]:
        return dict.fromkeys(assignments)

    async def time(self) -> float:
        opened_at = self._session.opened_at
        if opened_at is None:
            raise ConfigurationError("pulsar: a time of the broker's clock needs admin_url=…")
        return opened_at

    async def partitions(self, stream: str) -> Sequence[Partition]:
        session = self._session
        if session.admin is not None and not await session.admin.has_topic(stream):
            return []
        return await session.discovery.partitions(stream)

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        return dict.fromkeys(assignments)

    def gaps(self, positions: Sequence[Position]) -> Sequence[int]:
        return gaps(positions)

    def encode_position(self, position: Position) -> str:
        return encode_message_id(position)

    def decode_position(self, text: str) -> Position:
        return decode_message_id(text)

    # -- records that are written again -----------------------------------------------------

    async def reconsume_later(self, message: Message, delay: float) -> None:
        """Asks the broker to deliver a record again after a time, to any consumer of the subscription.

        It writes a copy of the record to the retry topic, and returns when the broker has stored
        the copy. Then ack the record: in a handler, return. A crash in between leaves both, with
        the same ``ORIGIN_MESSAGE_ID`` in their headers. ``RECONSUMETIMES`` counts up; the attempts
        of the copy begin anew.

        Args:
            message: of this adapter, and not settled yet.
            delay: seconds.

        Raises:
            Reject: the record went through the retry topic ``retry_limit`` times. If the handler
                lets this error pass, the record goes to the dead letters.
            ConfigurationError: the adapter has no ``retry_topic=True``.
            AdapterError: the broker refuses or does not answer; the copy may have been written.

        Cancellation: the copy may have been written.
        """
        if self._retries is None:
            raise ConfigurationError("reconsume_later needs PulsarAdapter(…, retry_topic=True)")
        if not 0 <= delay < math.inf:
            raise ConfigurationError(f"delay={delay!r}: give seconds, 0 or more")
        await self._retries.send(message, delay)

    def dead_letters(self) -> DeadLetters | None:
        """Topics named ``<topic>-<subscription>-DLQ`` on the same servers.

        None if messages are encrypted and ``encryption_keys`` were not given.
        """
        from consumer_sdk.adapters.pulsar.dead_letters import PulsarDeadLetters

        options = self._options
        if not options.may_write:
            return None
        keys = options.encryption_keys
        return PulsarDeadLetters(
            encryption_keys=keys,
            crypto_key_reader=options.crypto_key_reader if keys else None,
            **options.connection.as_options(),
        )

    # -- the end --------------------------------------------------------------------------

    async def aclose(self) -> None:
        self._is_closed = True
        try:
            if self._opened is not None:
                await self._opened.aclose()
        finally:
            if self._retries is not None:
                await self._retries.aclose()


def _lost(partition: Partition) -> Outcome:
    error = PartitionLostError(f"{partition} is not held any more")
    return Outcome(OutcomeKind.FENCED, error=error)
