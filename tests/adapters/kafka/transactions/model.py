"""A coordinator of transactions and the logs that it writes to, in memory: requests are lost, late and refused by a script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from aiokafka.record import MemoryRecords

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.commits.structs import TxnOffsetCommit
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.groups.coordinator import Stamp
from consumer_sdk.adapters.kafka.transactions.producer import TransactionalProducer
from consumer_sdk.adapters.kafka.transactions.structs import InitProducerId
from consumer_sdk.adapters.kafka.transactions.transactions import KafkaTransactions
from consumer_sdk.records import AckFlush, Checkpoint, Outcome
from consumer_sdk.records.outputs import Output
from consumer_sdk.trackers.outputs import OutputBook

__all__ = ["Bench", "ModelCluster", "lost"]

Trouble = Callable[["ModelCluster", Any], Awaitable[Any]]
FENCED, BAD_STATE, CONCURRENT, UNKNOWN_PARTITION, METADATA_TOO_LARGE = 90, 48, 51, 3, 12


async def lost(_cluster: ModelCluster, _request: Any) -> Any:
    """The connection breaks before the broker reads the request."""
    raise KafkaConnectionError("the answer is lost")


class ModelCluster:
    """Stands for `Cluster`; one topic ``out``.

    Attributes:
        troubles: kind of request → what happens to the next ones, in order.
        visible: what a reader of committed records sees.
        positions: what the group has committed: partition → (offset, metadata).
        limit: characters of metadata that a commit may have.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.troubles: defaultdict[type[Any], list[Trouble]] = defaultdict(list)
        self._count: int = partitions
        self.metadata = SimpleNamespace(
            partitions=lambda topic: frozenset(range(self._count if topic == "out" else 0)),
            check_topic=lambda _topic: None,
        )
        self.is_closed = False
        self.sent: list[str] = []
        self.visible: list[str] = []
        self.positions: dict[int, tuple[int, str]] = {}
        self.limit, self.most_bytes = 4096, 10**6
        self.epoch, self.state, self._last_epoch = -1, "empty", -1
        self._written: list[str] = []
        self._pending: dict[int, tuple[int, str]] = {}

    def resize(self, partitions: int) -> None:
        """The topic has so many."""
        self._count = partitions

    def watch(self, _topics: Any) -> None:
        """Other topics."""

    async def refresh(self) -> None:
        """Nothing is new."""

    def request_refresh(self) -> None:
        """So here."""

    def forget(self, _coordinator: Any) -> None:
        """There is one alone."""

    def leader_of(self, _tp: TopicPartition) -> Any:
        """One node."""
        return SimpleNamespace(node=1)

    async def coordinator(self, _of: Any) -> int:
        """The same."""
        return 1

    async def aclose(self) -> None:
        """Whatever is asked then fails."""
        self.is_closed = True

    async def send(self, _to: Any, request: Any, **_options: Any) -> Any:
        """The answer, or what the script says."""
        if self.is_closed:
            raise NodeNotReadyError("the connections are closed")
        self.sent.append(type(request).__name__)
        troubles = self.troubles[type(request)]
        return await (troubles.pop(0)(self, request) if troubles else self.answer(request))

    async def answer(self, request: Any) -> Any:
        """What the broker does with a request that arrives now."""
        answers: dict[type[Any], Callable[[Any], Any]] = {
            InitProducerId: self._begin,
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsetsToTxnRequest: self._add_offsets,
            ProduceRequest: self._produce,
            TxnOffsetCommit: self._commit_offsets,
            EndTxnRequest: self._end,
        }
        return answers[type(request)](request)

    def _begin(self, request: Any) -> Any:
        """As KIP-360 has it: who asks again gets the same epoch; an open transaction is aborted first, and fences."""
        known, epoch = request.fields["producer_id"], request.fields["producer_epoch"]
        code = 0
        if self.state == "open":
            self._finish(is_commit=False)
            self.epoch, self._last_epoch, code = self.epoch + 1, -1, CONCURRENT
        elif known == -1 or epoch == self.epoch:
            self.epoch, self._last_epoch = self.epoch + 1, epoch
            self.state = "empty"
        elif epoch != self._last_epoch:
            code = FENCED
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _opened(self, request: Any) -> int:
        if request._producer_epoch != self.epoch:
            return FENCED
        self.state = "open"
        return 0

    def _add_partitions(self, request: Any) -> Any:
        known = all(n < self._count for _topic, numbers in request._topics for n in numbers)
        code = self._opened(request) if known else UNKNOWN_PARTITION
        errors = [(t, [(n, code) for n in numbers]) for t, numbers in request._topics]
        return SimpleNamespace(errors=errors)

    def _add_offsets(self, request: Any) -> Any:
        return SimpleNamespace(error_code=self._opened(request))

    def _produce(self, request: Any) -> Any:
        code = 0 if self.state == "open" else BAD_STATE
        for _topic, partitions in request._topics:
            for _number, data in partitions:
                batches = MemoryRecords(data)
                while (batch := batches.next_batch()) is not None:
                    if code or batch.producer_epoch != self.epoch:
                        code = code or FENCED
                        break
                    self._written += [record.value.decode() for record in batch]
        topics = [(t, [(n, code, 0, -1) for n, _ in each]) for t, each in request._topics]
        return SimpleNamespace(topics=topics)

    def _commit_offsets(self, request: Any) -> Any:
        is_refused = self.state != "open" or request.fields["producer_epoch"] != self.epoch
        size = sum(len(entry.metadata) for _, each in request.fields["topics"] for entry in each)
        topics = []
        for topic, each in request.fields["topics"]:
            codes = []
            for entry in each:
                is_too_large = len(entry.metadata) > self.limit
                code = (
                    FENCED
                    if is_refused
                    else -1
                    if size > self.most_bytes
                    else METADATA_TOO_LARGE * is_too_large
                )
                if not code:
                    self._pending[entry.partition] = entry.offset, entry.metadata
                codes.append((entry.partition, code))
            topics.append((topic, codes))
        return SimpleNamespace(topics=topics)

    def _end(self, request: Any) -> Any:
        is_commit = request._transaction_result
        done = "committed" if is_commit else "aborted"
        if request._producer_epoch != self.epoch:
            return SimpleNamespace(error_code=FENCED)
        if self.state != "open":
            return SimpleNamespace(error_code=0 if self.state == done else BAD_STATE)
        self._finish(is_commit=is_commit)
        self.state = done
        return SimpleNamespace(error_code=0)

    def _finish(self, *, is_commit: bool) -> None:
        if is_commit:
            self.visible += self._written
            self.positions |= self._pending
        self._written, self._pending, self.state = [], {}, "empty"


class Committer:
    """Says of each flush whether it has an answer of 0; where metadata was too large, there is less the next time."""

    def __init__(self, limit: SimpleNamespace) -> None:
        self.limit = limit

    async def outcomes(self, flushes: Any, answers: Any) -> list[Outcome]:
        """DURABLE or RETRY."""
        found = []
        for flush in flushes:
            answer = answers.get(flush.assignment)
            is_done = answer is not None and answer.code == 0
            if answer is not None and answer.code == METADATA_TOO_LARGE:
                self.limit.size = len(answer.draft.metadata) // 2
            error = OSError(str(answer and answer.code))
            found.append(Outcome.durable() if is_done else Outcome.retry(error))
        return found


class Bench:
    """`KafkaTransactions` on a model, with partitions of topic ``in`` that are held."""

    def __init__(self, partitions: int = 1) -> None:
        self.cluster = ModelCluster()
        self.grants = AssignmentBook[Grant]()
        self.held = [Grant(TopicPartition("in", number)) for number in range(partitions)]
        self.books = [OutputBook(Checkpoint(resume=0)) for _ in self.held]
        for grant in self.held:
            self.grants.offer(grant)
        self.transactions = KafkaTransactions("tx")
        limit = SimpleNamespace(size=4096)
        self.session = SimpleNamespace(
            grants=self.grants,
            options=SimpleNamespace(group="g", client_options={}),
            coordinator=SimpleNamespace(stamp=Stamp(3, "me")),
            committer=Committer(limit),
            limit=limit,
        )
        wired: Any = self.transactions
        wired._adapter = SimpleNamespace(session=self.session)
        wired._cluster = self.cluster
        wired._producer = self.producer = self.make_producer()

    def make_producer(self) -> TransactionalProducer:
        """Of the transactional id."""
        cluster: Any = self.cluster
        options: dict[str, Any] = {"timeout": 60.0, "request_timeout": 5.0, "compression": "none"}
        return TransactionalProducer(cluster, "tx", batch_bytes=1000, **options)

    async def open(self) -> Bench:
        """The first epoch."""
        await self.producer.begin_epoch()
        return self

    def settle(self, *records: int, partition: int = 0) -> None:
        """Each record sends its number."""
        for n in records:
            output = Output.make("out", f"{partition}:{n}".encode(), b"key")
            self.books[partition].send(n, n, 1, output)
            self.books[partition].settled(n)

    def flush(self, *resumes: int, **more: Any) -> list[AckFlush]:
        """All before these positions is settled."""
        flushes = []
        for grant, book, resume in zip(self.held, self.books, resumes, strict=False):
            checkpoint = Checkpoint(resume - 1 if resume else None, resume, **more)
            flush = AckFlush(grant.assignment, 1, checkpoint)
            flush.outputs = book
            flushes.append(flush)
        return flushes

    async def commit(self, *resumes: int, **more: Any) -> list[str]:
        """One transaction; what became of each partition."""
        outcomes = await self.transactions.commit(self.flush(*resumes, **more))
        return [outcome.kind.value for outcome in outcomes]
