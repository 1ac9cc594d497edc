"""What an open `MemoryAdapter` does at the broker; nothing here waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.memory.broker import MemoryBroker
from consumer_sdk.adapters.memory.calls import Seam
from consumer_sdk.adapters.memory.commits import Commits
from consumer_sdk.adapters.memory.holding import Holding, PositionHolding, resolve
from consumer_sdk.adapters.memory.kinds import Options
from consumer_sdk.adapters.memory.membership import Membership
from consumer_sdk.adapters.memory.reader import Reader
from consumer_sdk.adapters.memory.subscribed import SubscribedHolding
from consumer_sdk.errors import AdapterError, PartitionLostError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Committed,
    Outcome,
    OutcomeKind,
    Position,
    Run,
    Start,
)

__all__ = ["Session"]


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
        seam: Seam | None,
        owner: AssignmentOwner,
        on_news: Callable[[], None],
    ) -> None:
        for stream in options.streams:
            broker.stream(stream)
        self._broker = broker
        self._options = options
        self._seam = seam
        self._reader = Reader(seam, on_news)
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
        holding = self.membership.holding(assignment)
        return None if holding is None else holding.lag()

    # -- commits ------------------------------------------------------------------------

    def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Stores positions, or acks records; fenced by what is held."""
        return [self._commit(flush) for flush in flushes]

    def _commit(self, flush: AckFlush) -> Outcome:
        strike = self._seam.strike("commit.partition") if self._seam else None
        if strike != "before":
            outcome = self._apply(flush)
        if self._seam and strike:
            return Outcome.retry(self._seam.error("commit.partition"))
        return outcome

    def _apply(self, flush: AckFlush) -> Outcome:
        membership, partition = self.membership, flush.assignment.partition
        holding = membership.holding(flush.assignment)
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
        if self._seam is None or not flush.settled:
            return False
        return self._seam.strike("acks") is not None

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
        holding = self.membership.holding(assignment)
        return holding.identity if holding else self._broker.identity(assignment.partition)

    def cut(self) -> None:
        """Breaks the connections."""
        for holding in self.membership.holdings.values():
            if isinstance(holding, SubscribedHolding):
                holding.cut()
