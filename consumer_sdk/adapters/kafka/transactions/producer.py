"""A producer of transactions: one epoch of a transactional id, and at most one transaction at a time.

It writes all records of a transaction at once, without linger, and without a future for each record. Records and
positions are sent once. If that fails, the transaction is aborted, and a new epoch begins. Requests that open and end a
transaction are repeated until there is an answer. If an answer was lost, a new epoch begins after that transaction too.
So a delayed request can never land in a later transaction (KIP-360), where a late commit would show outputs without
their positions. aiokafka's own producer commits positions without naming the member of the group, and stays unusable
after some errors.

Transactions are those of all brokers from Kafka 2.5 on: partitions are added by a request of their own, and an epoch lasts
until something fails (KIP-890 calls that version 1; brokers of Kafka 4 serve it).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, for_code
from aiokafka.partitioner import murmur2
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.connections import loop_time
from consumer_sdk.adapters.kafka.client.faults import (
    COORDINATOR_MOVED,
    STALE,
    code_name,
    describe,
    name_of,
    translate,
)
from consumer_sdk.adapters.kafka.client.lookups import Coordinator, CoordinatorKind
from consumer_sdk.adapters.kafka.commits.structs import codes_in
from consumer_sdk.adapters.kafka.transactions.structs import NOBODY, InitProducerId, ProducerId
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ProducerFencedError,
    TransientAdapterError,
)
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records.outputs import Output

__all__ = ["FENCED", "TransactionalProducer"]

log = logging.getLogger(__name__)

FENCED = frozenset({47, 90})
"""Of an epoch that is not the newest."""
CONCURRENT = 51
"""The transaction before is not complete."""
NO_SUCH_TRANSACTION = frozenset({48, 49})
"""None is open; or the broker has forgotten the transactional id."""
BAD_TIMEOUT = 50
REFUSED = frozenset({29, 30, 53})
"""This principal may not: topic, group, transactional id."""
TOO_LARGE = frozenset({10, 18})
INVALID = 87
NOT_ATTEMPTED = 55
DUPLICATE = 46
UNKNOWN_TOPIC = frozenset({3, 100})
ACKS_OF_ALL = -1
POSITIVE = 0x7FFFFFFF
LAST_SEQUENCE = 2**31 - 1

SHORT_REST = 0.005
LONG_REST = 0.5
"""Seconds between tries."""
PATIENCE = 10.0
"""Seconds that the transaction before may take to complete."""
TOPIC_PATIENCE = 10.0
"""Seconds for which a topic may be unknown: no broker is told of a new one at once."""
REQUEST_BYTES = 16 * 1024 * 1024
"""Of batches in a request: a broker takes 100 MiB by default (``socket.request.max.bytes``)."""
MAGIC = 2
CODECS: Mapping[str, int] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""``compression_type`` → its bits in a record batch."""

Batch = tuple[bytes, int]
"""A record batch as it is stored, and how many records it has."""


class TransactionalProducer:
    """Writes and commits transactions.

    Args:
        cluster: connected; it is asked for the topics that are written to.
        timeout: seconds after which the broker aborts an open transaction.
        compression: one of `CODECS`.
        batch_bytes: of a record batch before it is compressed, about.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout: float,
        request_timeout: float,
        compression: str,
        batch_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._name = transactional_id
        self._of = Coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        self._timeout = timeout
        self._request_timeout = request_timeout
        self._codec = CODECS[compression]
        self._batch_bytes = batch_bytes
        self._topics: set[str] = set()
        self._unknown_since: dict[str, float] = {}
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)
        self._is_open = False
        self._has_lost_answer = False
        self.producer = NOBODY

    # -- epochs -------------------------------------------------------------------------------

    async def begin_epoch(self, seconds: float | None = None) -> None:
        """The next epoch: the first one fences every other producer of this transactional id.

        Args:
            seconds: to try for; None: until there is an answer.

        Raises:
            ProducerFencedError: another producer has begun an epoch since.
            ConfigurationError, AdapterError: the broker refuses.
        """
        request = InitProducerId(self._name, self._timeout, self.producer)
        deadline = None if seconds is None else loop_time() + seconds
        found: list[Any] = []

        async def ask() -> int:
            found[:] = [await self._cluster.send(self._of, request)]
            return int(found[0].error_code)

        code = await self._until_answered(ask, deadline)
        if code == BAD_TIMEOUT:
            raise ConfigurationError(
                f"timeout={self._timeout:g} of transactional_id={self._name!r} is longer than the brokers "
                f"allow: give less, or raise their transaction.max.timeout.ms"
            )
        self._check(code, "beginning an epoch")
        self.producer = ProducerId(found[0].producer_id, found[0].producer_epoch)
        self._sequences.clear()
        self._is_open = self._has_lost_answer = False

    def _check(self, code: int, doing: str) -> None:
        where = f"{doing} of transactional_id {self._name!r}"
        if code in FENCED:
            raise ProducerFencedError(
                f"{where}: another producer has this id, or a transaction was open for more than "
                f"{self._timeout:g} s: give each consumer an id of its own, and start this one again"
            )
        if code:
            raise translate(for_code(code)(), where)

    async def _until_answered(
        self, ask: Callable[[], Awaitable[int]], deadline: float | None
    ) -> int:
        """Asks until the coordinator gives a final answer: it may be away, or busy with the transaction before.

        Raises:
            TransientAdapterError: it is still so at the deadline.
            AdapterError: it does not pass; or the connections are closed.
        """
        rest, where = SHORT_REST, f"transactional_id {self._name!r}"
        while True:
            try:
                code = await ask()
                trouble: BaseException = for_code(code)()
            except KafkaError as error:
                code, trouble, self._has_lost_answer = -1, error, True
                if self._cluster.is_closed or not _may_pass(error):
                    raise AdapterError(f"{where}: {describe(error)}") from error
            if code in COORDINATOR_MOVED:
                self._cluster.forget(self._of)
            elif code not in (CONCURRENT, -1):
                return code
            if deadline is not None and loop_time() >= deadline:
                raise TransientAdapterError(f"{where}: {describe(trouble)}") from trouble
            if rest == LONG_REST:
                log.warning("%s: %r", where, trouble, extra=REPEATS)
            await asyncio.sleep(rest)
            rest = min(rest * 2, LONG_REST)

    # -- one transaction ----------------------------------------------------------------------

    async def write(self, outputs: Sequence[Output]) -> None:
        """Writes outputs, all of them, in order for each partition.

        Raises:
            TransientAdapterError: abort; the next transaction may do.
            ProducerFencedError: there is another producer.
            AdapterError: the broker refuses an output.
        """
        if not outputs:
            return
        await self._know({output.stream for output in outputs})
        self._is_open = True
        batches = self._batches(self._placed(outputs))
        await self._add(AddPartitionsToTxnRequest, _by_topic(batches))
        by_leader: dict[int, dict[TopicPartition, list[Batch]]] = defaultdict(dict)
        for tp, theirs in batches.items():
            by_leader[self._leader_of(tp)][tp] = theirs
        wrote = [self._write_to(node, theirs) for node, theirs in by_leader.items()]
        for error in await asyncio.gather(*wrote, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def add_group(self, group: str) -> None:
        """Announces that the transaction will commit positions of the group; to be called before they are sent.

        Raises:
            TransientAdapterError, ProducerFencedError, AdapterError: as `write`.
        """
        self._is_open = True
        await self._add(AddOffsetsToTxnRequest, group)

    async def commit(self) -> None:
        """Commits the transaction, and asks until the coordinator says whether it is committed.

        Raises:
            ProducerFencedError: the broker has aborted it, or it is not known; there is another producer.
            AdapterError: it is not known.
        """
        self._check(await self._end(is_commit=True), "committing a transaction")
        self._is_open = False
        if self._has_lost_answer:
            await self.begin_epoch()

    async def abort(self) -> None:
        """Aborts an open transaction, so that nobody ever reads its outputs, and begins a new epoch.

        Raises:
            ProducerFencedError: there is another producer.
            AdapterError: the broker refuses.
        """
        if not self._is_open:
            return
        code = await self._end(is_commit=False)
        if code not in NO_SUCH_TRANSACTION:
            self._check(code, "aborting a transaction")
        await self.begin_epoch()

    async def _end(self, *, is_commit: bool) -> int:
        request = EndTxnRequest(self._name, *self.producer, is_commit)

        async def ask() -> int:
            return int((await self._cluster.send(self._of, request)).error_code)

        return await self._until_answered(ask, None)

    async def _add(self, kind: Any, what: Any) -> None:
        request = kind(self._name, *self.producer, what)

        async def ask() -> int:
            answer = await self._cluster.send(self._of, request)
            if isinstance(what, str):
                return int(answer.error_code)
            codes = [code for code in codes_in(answer.errors).values() if code]
            return int(max(codes, key=_gravity, default=0))

        code = await self._until_answered(ask, loop_time() + PATIENCE)
        if code in UNKNOWN_TOPIC:
            self._cluster.request_refresh()
        if code and code not in FENCED | REFUSED:
            raise TransientAdapterError(
                f"adding to a transaction of transactional_id {self._name!r}: {code_name(code)}"
            )
        self._check(code, "adding to a transaction")

    # -- records ------------------------------------------------------------------------------

    async def _know(self, topics: Iterable[str]) -> None:
        """Looks up the partitions and leaders of these topics.

        Raises:
            AdapterError: one does not exist.
        """
        wanted = set(topics)
        if not wanted <= self._topics:
            self._topics |= wanted
            self._cluster.watch(self._topics)
        missing = [each for each in sorted(wanted) if not self._cluster.metadata.partitions(each)]
        if missing:
            await self._refresh()
        for topic in missing:
            if self._cluster.metadata.partitions(topic):
                self._unknown_since.pop(topic, None)
            else:
                self._check_absent(topic)

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh()
        except KafkaError as error:
            raise translate(error, "asking for the topics of outputs") from error

    def _check_absent(self, topic: str) -> None:
        try:
            self._cluster.metadata.check_topic(topic)
        except KafkaError as error:
            raise translate(error, f"output to topic {topic!r}") from error
        since = self._unknown_since.setdefault(topic, loop_time())
        text = f"output to topic {topic!r}: it does not exist, and no output creates one"
        if loop_time() - since < TOPIC_PATIENCE:
            raise TransientAdapterError(text)
        raise AdapterError(f"{text}: create it, or correct the name in message.send()")

    def _leader_of(self, tp: TopicPartition) -> int:
        try:
            return int(self._cluster.leader_of(tp).node)
        except KafkaError as error:
            self._cluster.request_refresh()
            raise translate(error, f"output to {name_of(tp)}") from error

    def _placed(self, outputs: Sequence[Output]) -> dict[TopicPartition, list[Output]]:
        """Chooses partitions: by key, as Java's producer does; records without a key go to one partition in each transaction."""
        partitions = {t: self._cluster.metadata.partitions(t) for t in self._topics}
        sticky = {t: random.choice(sorted(each)) for t, each in partitions.items() if each}  # noqa: S311
        hashes: dict[bytes, int] = {}
        placed: defaultdict[TopicPartition, list[Output]] = defaultdict(list)
        for output in outputs:
            topic, key = output.stream, output.key
            # Else the topic was made again, with fewer: it would be refused for ever.
            if output.partition is not None and output.partition in partitions[topic]:
                number = output.partition
            elif key is None:
                number = sticky[topic]
            else:
                if (found := hashes.get(key)) is None:
                    found = hashes[key] = murmur2(key) & POSITIVE
                number = found % len(partitions[topic])
            placed[TopicPartition(topic, number)].append(output)
        return placed

    def _batches(
        self, placed: Mapping[TopicPartition, Sequence[Output]]
    ) -> dict[TopicPartition, list[Batch]]:
        now = int(time.time() * 1000)
        return {tp: list(self._packed(tp, outputs, now)) for tp, outputs in placed.items()}

    def _packed(self, tp: TopicPartition, outputs: Sequence[Output], now: int) -> Iterable[Batch]:
        builder, count = self._builder(tp), 0
        for output in outputs:
            fields = {"key": output.key, "value": output.value, "headers": list(output.headers)}
            if count and builder.append(count, now, **fields) is None:
                yield self._built(tp, builder, count)
                builder, count = self._builder(tp), 0
            if not count:  # the first one is taken whatever its size
                builder.append(0, now, **fields)
            count += 1
        yield self._built(tp, builder, count)

    def _builder(self, tp: TopicPartition) -> Any:
        return DefaultRecordBatchBuilder(
            MAGIC, self._codec, 1, *self.producer, self._sequences[tp], self._batch_bytes
        )

    def _built(self, tp: TopicPartition, builder: Any, count: int) -> Batch:
        self._sequences[tp] = (self._sequences[tp] + count) & LAST_SEQUENCE
        return bytes(builder.build()), count

    async def _write_to(self, node: int, batches: dict[TopicPartition, list[Batch]]) -> None:
        """Writes to one node: each request has one batch of each partition, up to a size, and waits for the one before."""
        for some in _requests(batches):
            codes = await self._produce(node, some)
            for tp, batch in some.items():
                self._check_written(tp, codes.get((tp.topic, tp.partition)), batch)

    async def _produce(
        self, node: int, batches: Mapping[TopicPartition, Batch]
    ) -> dict[tuple[str, int], int]:
        topics: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for tp, (data, _count) in batches.items():
            topics[tp.topic].append((tp.partition, data))
        timeout = round(self._request_timeout * 1000)
        request = ProduceRequest(self._name, ACKS_OF_ALL, timeout, list(topics.items()))
        try:
            answer = await self._cluster.send(node, request)
        except KafkaError as error:
            self._cluster.request_refresh()
            raise translate(error, f"writing outputs of {self._name!r}") from error
        return codes_in(answer.topics)

    def _check_written(self, tp: TopicPartition, code: int | None, batch: Batch) -> None:
        where = f"output to {name_of(tp)}"
        data, count = batch
        if code in (0, DUPLICATE):
            return
        if code in TOO_LARGE and count > 1:
            self._batch_bytes = max(min(self._batch_bytes, len(data)) // 2, 1)
            raise TransientAdapterError(
                f"{where}: {count} records are too many for one batch there"
            )
        if code in TOO_LARGE:
            raise AdapterError(
                f"{where}: the broker refuses a record of this size: raise max.message.bytes of the topic, or "
                f"give KafkaTransactions a smaller max_output_bytes"
            )
        if code in FENCED:
            self._check(code or 0, where)
        if code in REFUSED or code == INVALID:
            raise translate(for_code(code)(), where)
        if code is None or code in STALE:
            self._cluster.request_refresh()
        raise TransientAdapterError(f"{where}: {code_name(code)}")


def _requests(
    batches: Mapping[TopicPartition, Sequence[Batch]],
) -> Iterator[dict[TopicPartition, Batch]]:
    """Batches of a partition in order, each in a request of its own."""
    for number in range(max(map(len, batches.values()))):
        some: dict[TopicPartition, Batch] = {}
        size = 0
        for tp, each in batches.items():
            if number >= len(each):
                continue
            size += len(each[number][0])
            if some and size > REQUEST_BYTES:
                yield some
                some, size = {}, len(each[number][0])
            some[tp] = each[number]
        yield some


def _by_topic(tps: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for tp in tps:
        topics[tp.topic].append(tp.partition)
    return list(topics.items())


def _gravity(code: int) -> tuple[bool, ...]:
    """Ranks the error codes of one answer: fenced, refused, to be tried again, then codes that only follow from another one."""
    is_to_wait = code in COORDINATOR_MOVED or code == CONCURRENT
    return code in FENCED, code in REFUSED, is_to_wait, code != NOT_ATTEMPTED


def _may_pass(error: KafkaError) -> bool:
    return isinstance(translate(error, ""), TransientAdapterError)
