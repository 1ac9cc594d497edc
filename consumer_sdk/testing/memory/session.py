"""What an open `MemoryAdapter` does at the broker: it reads and commits. Nothing here waits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.checkpoints.json import decode_checkpoint, fit_checkpoint
from consumer_sdk.errors import AdapterError, PartitionLostError, TransientAdapterError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Committed,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Run,
    Start,
)
from consumer_sdk.records.outputs import Output
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.memory.broker import MemoryBroker
from consumer_sdk.testing.memory.group import Commit, Group
from consumer_sdk.testing.memory.holding import Holding, PositionHolding, SubscribedHolding, resolve
from consumer_sdk.testing.memory.membership import Membership
from consumer_sdk.testing.memory.options import Options

__all__ = ["Session"]


class Reader:
    """Reads the holdings that may have something, within limits of records and (soft) bytes.

    A fetch looks at no other: it costs the same however many partitions are held.

    Args:
        on_news: called when there may be something to fetch.
    """

    def __init__(self, faults: Faults | None, on_news: Callable[[], None]) -> None:
        self._faults = faults
        self._on_news = on_news
        self._ready: OrderedDict[Holding, None] = OrderedDict()

    def add(self, holding: Holding) -> None:
        """There may be something to read in it."""
        self._ready[holding] = None
        self._on_news()

    def read(self, max_records: int, max_bytes: int) -> list[Run]:
        """The next runs; moves the positions."""
        runs: list[Run] = []
        for _ in range(len(self._ready)):
            if max_records <= 0 or max_bytes <= 0:
                break
            run = self._read_next(max_records, max_bytes)
            if run is not None:
                runs.append(run)
                max_records -= len(run.messages)
                max_bytes -= run.size
        return runs

    def _read_next(self, max_records: int, max_bytes: int) -> Run | None:
        holding, _ = self._ready.popitem(last=False)
        if not holding.is_fetched:
            return None  # it is added again when it may be read
        run = self._fault(holding) or holding.read(max_records, max_bytes)
        if run is not None and run.fault is None and holding.has_more:
            self._ready[holding] = None
        return run

    def _fault(self, holding: Holding) -> Run | None:
        if self._faults is not None and self._faults.should_fail("fetch.partition"):
            return holding.fault(self._faults.error("fetch.partition"))
        return None


class Commits:
    """Writes and reads a group's commits.

    Args:
        max_size: characters of checkpoint that a commit may carry.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size

    def store(self, membership: Membership, flush: AckFlush, log_start: int) -> Outcome:
        """Commits a flush; says how far its ranges are covered."""
        partition, checkpoint = flush.assignment.partition, flush.checkpoint
        position = log_start if checkpoint.resume is None else checkpoint.resume
        text, covered, forgotten = self.fit(partition, checkpoint, log_start)
        member = membership.member
        owner = (member.id, member.generation, flush.assignment.epoch)
        new = Commit(position, text, owner, flush.number, flush.is_copy)
        membership.group.commit(partition, new)
        return Outcome.durable(covered, forgotten)

    def load(self, group: Group, partition: Partition, identity: str | None) -> Committed | None:
        """What the group has committed for a partition."""
        committed = group.committed.get(partition)
        if committed is None:
            return None
        if committed.text is None:
            bare = Checkpoint(resume=committed.position)
            return Committed(bare, is_foreign=committed.is_foreign, is_copy=committed.is_copy)
        checkpoint = decode_checkpoint(
            committed.text,
            broker="memory",
            partition=partition,
            identity=identity,
            decode_position=int,
        )
        if checkpoint.watermark == -1:
            checkpoint = replace(checkpoint, watermark=None)
        return Committed(checkpoint, is_copy=committed.is_copy)

    def fit(self, partition: Partition, checkpoint: Checkpoint, log_start: int) -> Fitted:
        """The text that fits, None if none does."""
        if checkpoint.watermark is None:
            # Positions are integers here: nothing below the first one to read is unsettled.
            # -1 for the very first makes a budget's answer "nothing is covered" sayable. A range
            # that retention has cut into may begin below the position.
            position = log_start if checkpoint.resume is None else checkpoint.resume
            first = min([position, *(first for first, _ in checkpoint.ranges[:1])])
            checkpoint = replace(checkpoint, watermark=first - 1)
        fitted = fit_checkpoint(
            checkpoint,
            broker="memory",
            partition=partition,
            encode_position=str,
            max_size=self._max_size,
        )
        if len(fitted.data) <= self._max_size:
            return fitted
        covered = checkpoint.watermark if checkpoint.ranges else None
        return Fitted(None, covered, len(checkpoint.attempts))


class Session:
    """One consumer at the broker: what it holds, reads and commits.

    Args:
        on_news: called when there may be something to fetch, or an error to raise.

    Raises:
        ConfigurationError: a stream does not exist, or the subscription is of another kind.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        options: Options,
        faults: Faults | None,
        owner: AssignmentOwner,
        on_news: Callable[[], None],
    ) -> None:
        for stream in options.streams:
            broker.stream(stream)
        self._broker = broker
        self._options = options
        self._faults = faults
        self._reader = Reader(faults, on_news)
        self._commits = Commits(options.capabilities.metadata_size)
        kind = options.cursor_kind
        self._subscription = kind and broker.subscribe(
            options.group or "", kind, keeps_indexes=options.batch_index_acks
        )
        self.membership = Membership(
            broker,
            options.streams,
            options.group,
            owner,
            make_holding=self._make_holding,
            on_news=on_news,
            is_alone=options.is_queue,
        )

    def _make_holding(self, assignment: Assignment) -> Holding | None:
        partition = assignment.partition
        log, identity = self._broker.log(partition), self._broker.identity(partition)
        if log is None or identity is None:
            return None
        if self._subscription is None:
            committed = self.membership.group.committed.get(partition)
            at = committed.position if committed else None
            return PositionHolding(
                assignment, log, identity, self._reader.add, self._options.positions, committed=at
            )
        cursor = self._subscription.cursor(partition, log)
        prefetch = self._options.prefetch
        return SubscribedHolding(
            assignment,
            log,
            identity,
            self._reader.add,
            self._options.positions,
            cursor=cursor,
            prefetch=prefetch,
        )

    # -- records ------------------------------------------------------------------------

    def read(self, max_records: int, max_bytes: int) -> list[Run]:
        """The next runs."""
        return self._reader.read(max_records, max_bytes)

    def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """What a start stands for now."""
        return {assignment: self._position(assignment, at) for assignment in assignments}

    def _position(self, assignment: Assignment, at: Start) -> Position | None:
        log = self._broker.log(assignment.partition)
        number = None if log is None else resolve(log, at)
        return None if log is None or number is None else self._options.positions.at(log, number)

    def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """How much there is to read."""
        return {assignment: self._lag(assignment) for assignment in assignments}

    def _lag(self, assignment: Assignment) -> int | None:
        holding = self.membership.holdings.of(assignment)
        return None if holding is None else holding.lag()

    # -- commits ------------------------------------------------------------------------

    def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Stores positions, or acks records; fenced by what is held."""
        return [self._commit(flush) for flush in flushes]

    def _commit(self, flush: AckFlush) -> Outcome:
        failure = self._faults.should_fail("commit.partition") if self._faults else None
        if failure != "before":
            outcome = self._apply(flush)
        if self._faults and failure:
            return Outcome.retry(self._faults.error("commit.partition"))
        return outcome

    def transact(
        self, flushes: Sequence[AckFlush], write: Callable[[Output], None]
    ) -> list[Outcome]:
        """Stores positions, each with the outputs of the records that they cover."""
        return [self._transact(flush, write) for flush in flushes]

    def _transact(self, flush: AckFlush, write: Callable[[Output], None]) -> Outcome:
        partition, holding = (
            flush.assignment.partition,
            self.membership.holdings.of(flush.assignment),
        )
        if holding is None:
            return self._apply(flush)  # which says why not
        start = holding.log.start
        choice = flush.outputs.choose(
            flush.checkpoint, lambda some: self._commits.fit(partition, some, start)
        )
        if choice is None:
            return Outcome.retry(TransientAdapterError(f"{partition}: no room for the ranges"))
        outcome = self._apply(replace(flush, checkpoint=choice.checkpoint))
        if not outcome.is_done:
            return outcome
        for output in choice.outputs:
            write(output)
        flush.outputs.committed(choice)
        return Outcome.durable(choice.fitted.covered, choice.fitted.forgotten)

    def _apply(self, flush: AckFlush) -> Outcome:
        membership, partition = self.membership, flush.assignment.partition
        holding = membership.holdings.of(flush.assignment)
        if holding is None or not membership.is_current(holding):
            lost = PartitionLostError(
                f"{partition} is not held under epoch {flush.assignment.epoch}"
            )
            return Outcome(OutcomeKind.FENCED, error=lost)
        if self._broker.identity(partition) != holding.identity:
            gone = AdapterError(f"stream {partition.stream!r} was deleted")
            return Outcome(OutcomeKind.GONE, error=gone)
        if isinstance(holding, SubscribedHolding):
            return holding.commit(flush, is_lost=self._loses_acks(flush))
        if self._options.group is None:
            return Outcome(OutcomeKind.SENT)  # nobody keeps it, and nobody can show it
        return self._commits.store(membership, flush, holding.log.start)

    def _loses_acks(self, flush: AckFlush) -> bool:
        if self._faults is None or not flush.settled:
            return False
        return self._faults.should_fail("acks") is not None

    def committed(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Committed | None]:
        """Where the group is, as the broker knows it."""
        return {assignment: self._committed(assignment) for assignment in assignments}

    def _committed(self, assignment: Assignment) -> Committed | None:
        if self._options.group is None or self._options.is_queue:
            return None
        partition, identity = assignment.partition, self.identity(assignment)
        if self._subscription is None:
            return self._commits.load(self.membership.group, partition, identity)
        log = self._broker.log(partition)
        if log is None:
            return None
        cursor = self._subscription.cursor(partition, log)
        resume = log.place(cursor.lowest)
        checkpoint = Checkpoint(resume=resume, identity=identity)
        return None if cursor.is_new else Committed(checkpoint)

    def identity(self, assignment: Assignment) -> str | None:
        """Differs between streams of one name, made one after another."""
        holding = self.membership.holdings.of(assignment)
        return holding.identity if holding else self._broker.identity(assignment.partition)

    def cut(self) -> None:
        """Breaks the connections."""
        for holding in self.membership.holdings:
            if isinstance(holding, SubscribedHolding):
                holding.cut()
