"""`KafkaTransactions`: outputs and positions in one transaction each (KIP-98, KIP-447).

A flush is a transaction: it writes the outputs, then the positions with their settled ranges and attempts, under the
member's current epoch. The broker refuses a former owner of a partition there, and its outputs are never visible.

What may come between:

- The member is in another epoch, or a partition has moved: the broker refuses the positions. The transaction is
  aborted, and the flush put back.
- A partition is lost before it is known that the broker has accepted its position: the transaction is aborted.
  Otherwise the partition may have come back, have read the group's position before this one was accepted, and go on
  from there.
- It is lost after that: the transaction still commits. The next owner gets the group's position only after that
  (``require_stable``).
- The positions are too large for the broker: the transaction is aborted, and the next flush has less metadata.
- The answer to the commit is lost: the consumer asks until it is known, and does nothing else meanwhile.
- A wait for the flush is cancelled: the transaction goes on, and the next one waits for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from aiokafka.errors import KafkaError

from consumer_sdk.abc import Adapter, DeadLetters, MakesLetters, Transactions
from consumer_sdk.adapters.kafka.adapter import KafkaAdapter
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import COORDINATOR_MOVED, translate
from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.commits.metadata import offset_of, write_metadata
from consumer_sdk.adapters.kafka.commits.structs import OffsetEntry, TxnOffsetCommit, codes_in
from consumer_sdk.adapters.kafka.consumer.committing import (
    BATCH_TOO_LARGE,
    FEWEST_BYTES,
    MOST_BYTES,
    Answer,
    Answers,
    Draft,
    in_batches,
)
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.session import Session
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.kafka.transactions.producer import FENCED, TransactionalProducer
from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerSdkError,
    OutputError,
    PartitionLostError,
    ProducerFencedError,
    TransientAdapterError,
)
from consumer_sdk.options import COUNT, NAME, NAMES, SECONDS, OptionType, check_options, choice
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, Outcome
from consumer_sdk.records.outputs import Output
from consumer_sdk.trackers.outputs import Choice, OutputBook

__all__ = ["KafkaTransactions"]

log = logging.getLogger(__name__)

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

NEEDED: Mapping[int, tuple[int, str]] = {
    9: (9, "OffsetFetch"),
    22: (3, "InitProducerId"),
    28: (3, "TxnOffsetCommit"),
}
"""API key → the version that the brokers need, and its name."""
OVERHEAD = 82
"""Bytes of a record in a batch of its own, beside key, value and headers: the batch's head, and numbers."""
HEADER_OVERHEAD = 10
OPENING_PATIENCE = 60.0
"""Seconds that the servers, once they are reached, may take for the first epoch: a new cluster makes its topic of transactions
then, and what a former producer has left open is aborted."""
CLOSE_PATIENCE = 5.0
"""Seconds that closing waits for a transaction to end."""
BATCH_BYTES = 256 * 1024

OWN: Mapping[str, OptionType] = {
    "transactional_id": NAME,
    "timeout": SECONDS,
    "topics": NAMES,
    "max_output_bytes": COUNT,
    "compression": choice(*get_args(Compression)),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """What a transaction holds of one flush."""

    draft: Draft
    book: OutputBook
    choice: Choice

    @property
    def assignment(self) -> Assignment:
        return self.draft.grant.assignment


@dataclass(slots=True)
class _Plan:
    """One transaction: its parts, and why other flushes have none."""

    parts: list[_Part] = field(default_factory=list)
    answers: Answers = field(default_factory=dict)

    @property
    def outputs(self) -> list[Output]:
        return [output for part in self.parts for output in part.choice.outputs]

    def refuse(self, error: Exception) -> None:
        """Notes that nothing of the transaction was committed."""
        for part in self.parts:
            self.answers.setdefault(part.assignment, Answer(part.draft, error))


class KafkaTransactions(Transactions):
    """Commits the outputs of handlers together with the positions of their records.

    Both are on the servers that the records are read from.

    Args:
        transactional_id: the producer's name. Each consumer that runs at the same time has its own, and keeps it when it is
            restarted.
        timeout: seconds after which the brokers abort a transaction that is still open, such as
            that of a killed process. Until then ``read_committed`` readers see no record after its
            outputs.
        topics: the topics that handlers send to. They are looked up before the first record, and an
            output to another topic is refused. Empty: any topic, which is looked up at its first
            output.
        max_output_bytes: bytes of one output; at most ``max.message.bytes`` of its topic.
        compression: of the outputs: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``.

    Raises:
        ConfigurationError: an option cannot work.
    """

    __slots__ = (
        "_adapter",
        "_cluster",
        "_compression",
        "_failure",
        "_lock",
        "_max_bytes",
        "_most_bytes",
        "_producer",
        "_running",
        "_timeout",
        "_topics",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        *,
        timeout: float = 60.0,
        topics: Sequence[str] = (),
        max_output_bytes: int = 1_000_000,
        compression: Compression = "none",
    ) -> None:
        check_options(locals(), OWN, "KafkaTransactions")
        self.transactional_id = transactional_id
        self._timeout = timeout
        self._topics = frozenset(topics)
        self._max_bytes = max_output_bytes
        self._most_bytes = MOST_BYTES
        self._compression: Compression = compression
        self._adapter: KafkaAdapter | None = None
        self._cluster: Cluster | None = None
        self._producer: TransactionalProducer | None = None
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[list[Outcome]]] = set()
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        return f"KafkaTransactions(transactional_id={self.transactional_id!r})"

    # -- opening ------------------------------------------------------------------------------

    def check(self, adapter: Adapter) -> None:
        if not isinstance(adapter, KafkaAdapter):
            raise ConfigurationError(
                f"{self!r} commits positions of Kafka, and the adapter reads {adapter.broker}: leave "
                f"transactions= out, and write with a producer of your own, at least once"
            )
        if self._adapter is not None:
            raise ConfigurationError(
                f"{self!r} belongs to another consumer: make one for each, with an id of its own"
            )

    def check_output(self, output: Output) -> None:
        if self._topics and output.stream not in self._topics:
            raise OutputError(
                f"message.send({output.stream!r}, …): KafkaTransactions(topics=…) names other topics: "
                f"{', '.join(sorted(self._topics))}"
            )
        size = output.size + OVERHEAD + HEADER_OVERHEAD * len(output.headers)
        if size > self._max_bytes:
            raise OutputError(
                f"message.send({output.stream!r}, …): the output has {size:,} bytes, and max_output_bytes allows "
                f"{self._max_bytes:,}: send less, or raise it and max.message.bytes of the topic"
            )

    async def open(self, adapter: Adapter) -> None:
        self.check(adapter)
        assert isinstance(adapter, KafkaAdapter)  # noqa: S101 - as was checked
        self._adapter = adapter
        options = adapter.session.options
        self._cluster = Cluster(options.for_cluster(), self._topics)
        await self._cluster.open(options.connect_timeout)
        await self._check_versions(self._cluster)
        self._check_topics(self._cluster)
        self._producer = TransactionalProducer(
            self._cluster,
            self.transactional_id,
            timeout=self._timeout,
            request_timeout=options.request_timeout,
            compression=self._compression,
            batch_bytes=BATCH_BYTES,
        )
        await self._producer.begin_epoch(max(options.connect_timeout, OPENING_PATIENCE))
        log.info(
            "transactional_id %r: epoch %d", self.transactional_id, self._producer.producer.epoch
        )

    async def _check_versions(self, cluster: Cluster) -> None:
        try:
            versions = await cluster.versions(None)
        except KafkaError as error:
            raise translate(error, "asking for the broker's versions") from error
        for key, (least, name) in NEEDED.items():
            if versions.get(key, (0, -1))[1] < least:
                raise ConfigurationError(
                    f"{self!r}: the broker has no {name} of version {least}, and a consumer that took over could "
                    f"read a position before it is committed: exactly once needs Kafka 3.7 or newer"
                )

    def _check_topics(self, cluster: Cluster) -> None:
        for topic in sorted(self._topics):
            try:
                cluster.metadata.check_topic(topic)
            except KafkaError as error:
                raise translate(error, f"KafkaTransactions(topics=…), topic {topic!r}") from error
            if not cluster.metadata.partitions(topic):
                raise ConfigurationError(
                    f"KafkaTransactions(topics=…): topic {topic!r} does not exist, and no output creates one: "
                    f"create it, or correct its name"
                )

    def letters_of(self, destination: DeadLetters) -> MakesLetters | None:
        """Returns dead letters that are written in the transactions, for the servers that are read from."""
        from consumer_sdk.adapters.kafka.dead_letters import KafkaDeadLetters

        if self._adapter is None or not isinstance(destination, KafkaDeadLetters):
            return None
        is_here = set(destination.servers) == set(self._adapter.session.options.servers)
        return destination.outputs if is_here else None

    # -- transactions -------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if self._failure is not None:
            raise self._failure
        task = asyncio.create_task(self._one_at_a_time(flushes), name="consumer_sdk transaction")
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[list[Outcome]]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error

    async def _one_at_a_time(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                return await self._transact(flushes)
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError):
                    self._failure = error
                raise

    async def _transact(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        assert self._adapter is not None  # noqa: S101 - it is open
        session = self._adapter.session
        plan = await self._planned(session, flushes)
        if plan.parts and await self._written(session, plan):
            for part in plan.parts:
                part.book.committed(part.choice)
        return await session.committer.outcomes(flushes, plan.answers)

    async def _planned(self, session: Session, flushes: Sequence[AckFlush]) -> _Plan:
        plan = _Plan()
        for flush in flushes:
            grant, offset = session.grants.of(flush.assignment), offset_of(flush.checkpoint)
            if grant is None or offset is None:
                continue
            choice = flush.outputs.choose(flush.checkpoint, partial(_fitted, session, grant))
            if choice is None:
                draft = Draft(grant, offset, "", None, 0)
                plan.answers[flush.assignment] = Answer(draft, NO_ROOM)
                continue
            text, covered, forgotten = choice.fitted
            draft = Draft(grant, offset, text, covered, forgotten)
            plan.parts.append(_Part(draft, flush.outputs, choice))
            if choice.checkpoint.ranges:  # some milliseconds, where holes are many
                await asyncio.sleep(0)
        return plan

    async def _written(self, session: Session, plan: _Plan) -> bool:
        """Whether the transaction has committed; if not, all of it is put back.

        Raises:
            ProducerFencedError: there is another producer.
            AdapterError: an output is refused; or it is not known what became of the transaction.
        """
        assert self._producer is not None  # noqa: S101 - it is open
        producer, failure = self._producer, None
        try:
            await producer.write(plan.outputs)
            await producer.add_group(session.options.group or "")
            is_taken = await self._commit_positions(session, plan)
        except ProducerFencedError:
            raise
        except (ConsumerSdkError, KafkaError) as error:
            failure = translate(error, "a transaction")
            is_taken = False
        except BaseException:  # it may be anywhere: nothing of it may be seen
            await producer.abort()
            raise
        if is_taken:
            await producer.commit()
            return True
        await producer.abort()
        if failure is not None and not isinstance(failure, TransientAdapterError):
            raise failure
        plan.refuse(failure or ABORTED)
        return False

    async def _commit_positions(self, session: Session, plan: _Plan) -> bool:
        """Commits the positions; False if the broker has not taken all of them, and then the plan is refused."""
        refused: Answers = {}
        for drafts in in_batches([part.draft for part in plan.parts], self._most_bytes):
            refused |= await self._send_positions(session, drafts)
            if refused:
                break
        # 1. The position is sent. 2. The partition is lost, and comes back in the same epoch of the member; the new
        # grant reads where the group stands. 3. The broker takes the position, and the outputs would be there twice.
        # A grant that comes from here on waits for the transaction's end.
        lost = [part.draft for part in plan.parts if part.draft.grant.is_closed]
        refused |= _answers(
            [draft for draft in lost if draft.grant.assignment not in refused], LOST
        )
        plan.answers |= refused
        if not refused:
            plan.answers |= {part.assignment: Answer(part.draft, 0) for part in plan.parts}
        return not refused

    async def _send_positions(self, session: Session, drafts: Sequence[Draft]) -> Answers:
        """Sends the positions; returns the refusals."""
        # 1. Outputs are written. 2. A partition is lost. 3. Its position would be sent with the stamp of a later epoch,
        # in which another member has it, and be taken. So what is held is looked at last, with the stamp.
        lost = [draft for draft in drafts if draft.grant.is_closed]
        stamp = session.coordinator.stamp
        if lost or stamp.epoch < 0:
            return _answers(lost or drafts, LOST if lost else NOT_JOINED)
        assert self._producer is not None and self._cluster is not None  # noqa: S101, PT018 - it is open
        topics: defaultdict[str, list[OffsetEntry]] = defaultdict(list)
        for draft in drafts:
            topics[draft.grant.tp.topic].append(draft.entry)
        group = session.options.group or ""
        member = (*stamp, session.options.client_options.get("group_instance_id"))
        request = TxnOffsetCommit(
            self.transactional_id, group, self._producer.producer, member, topics
        )
        answer = await self._cluster.send(Coordinator(group), request)
        codes = codes_in(answer.topics)
        found = {d.grant.assignment: Answer(d, codes.get(d.grant.tp, -1), stamp) for d in drafts}
        codes_found = {each.code for each in found.values()}
        self._check(session.options, codes_found)
        if len(drafts) > 1 and not BATCH_TOO_LARGE.isdisjoint(codes_found):
            self._most_bytes = max(self._most_bytes // 2, FEWEST_BYTES)
        return {a: each for a, each in found.items() if each.code}

    def _check(self, options: KafkaOptions, codes: set[Any]) -> None:
        if codes & FENCED:
            raise ProducerFencedError(
                f"committing positions of transactional_id {self.transactional_id!r}: another producer has "
                f"this id: give each consumer an id of its own, and start this one again"
            )
        if codes & COORDINATOR_MOVED and self._cluster is not None:
            self._cluster.forget(Coordinator(options.group or ""))

    # -- closing ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        running = set(self._running)
        if running:
            await asyncio.wait(running, timeout=CLOSE_PATIENCE)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_PATIENCE)
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.aclose()


LOST = PartitionLostError("the partition is no longer held")
NOT_JOINED = TransientAdapterError("the member is joining the group anew")
ABORTED = TransientAdapterError(
    "the transaction was aborted, since others of its positions were refused"
)
NO_ROOM = TransientAdapterError(
    "the commit has no room for the settled ranges that were committed before, whose records must not come again: the "
    "records below are waited for, or raise offset.metadata.max.bytes of the brokers"
)


def _fitted(session: Session, grant: Grant, checkpoint: Checkpoint) -> Fitted:
    """The commit's metadata."""
    return write_metadata(
        checkpoint,
        offset_of(checkpoint) or 0,
        group=session.options.group or "",
        partition=grant.assignment.partition,
        limit=session.limit.size,
    )


def _answers(drafts: Sequence[Draft], code: int | Exception) -> Answers:
    return {draft.grant.assignment: Answer(draft, code) for draft in drafts}
