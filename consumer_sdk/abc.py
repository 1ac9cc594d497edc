"""The contracts between adapter, tracker, store and runtime.

Every rule comes from an observation on a real broker. ``consumer_sdk.testing.conformance`` has a
case for each rule. An implementation that passes the suite works with `Consumer`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Checkpoint,
    Committed,
    DeadLetter,
    Due,
    Explanation,
    LeaseView,
    Message,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Run,
    Start,
    Tracked,
    Verdict,
)
from consumer_sdk.records.outputs import Output

__all__ = [
    "AckTracker",
    "Adapter",
    "AssignmentOwner",
    "CheckpointStore",
    "Clock",
    "DeadLetters",
    "LeaseSource",
    "Leases",
    "MakesLetters",
    "StoreItem",
    "Transactions",
]


class Clock(Protocol):
    """The source of the time; tests give a virtual one."""

    def monotonic(self) -> float:
        """Seconds that never go back; the event loop's time."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...


class AssignmentOwner(ABC):
    """The runtime, as an adapter sees it.

    Called from the adapter's own task (`Adapter.run` or the client's callbacks), concurrently
    with fetch, commit and pause.
    """

    __slots__ = ()

    @abstractmethod
    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """Claims and decodes checkpoints, and returns where each assignment starts.

        `Adapter.fetch` returns no run of an assignment before this has returned and the seek is
        done. An assignment that is missing from the result is not granted: the adapter releases it.
        If this raises an error, the partitions stay gated, and the adapter tries again after a
        back-off. `Adapter.fetch` raises the error if it is not transient.

        Cancellation: the adapter may cancel it, and ends it before it calls `revoked`.
        """

    @abstractmethod
    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Drops queued records, drains, flushes a last time, and closes the trackers.

        It never awaits a fetch. It raises no error, not even CancelledError. Afterwards no write of
        those epochs succeeds. Unknown and closed assignments are skipped.

        Args:
            deadline: loop time by which it returns.
        """

    @abstractmethod
    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Closes the trackers at once, without a flush. Idempotent; callable during `revoked`."""

    def lapsed(self, assignment: Assignment, positions: Collection[Position]) -> None:  # noqa: B027 - may be ignored
        """Says that a queue's broker has taken these records back. The assignment goes on.

        Those that wait are not handed out: the broker redelivers them, to any consumer. Running
        handlers go on. Positions that are unknown, settled or in handlers are skipped.
        """


class Adapter(ABC):
    """One broker subscription.

    Attributes:
        broker: the broker's name, such as ``"kafka"``; stored with every checkpoint.
        group: the group whose position this is, or None for none.
        capabilities: what this instance can do.
    """

    __slots__ = ()

    broker: ClassVar[str]
    group: str | None
    capabilities: Capabilities

    @abstractmethod
    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        """Connects, verifies (stream exists, options are valid) and joins.

        Args:
            owner: the owner, which is told of assignments.
            leases: makes a member of a group, if ``capabilities.needs_leases``.

        Raises:
            ConfigurationError: an option or stream that cannot work.
            AdapterError: the broker cannot be reached, or refused.
        """

    @abstractmethod
    async def run(self) -> None:
        """Background duties (watchdog, leases, discovery), also while paused.

        Runs in the runtime's task group until it is cancelled; raises fatal errors. It may return
        if there are no duties.
        """

    @abstractmethod
    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """Returns the next runs of unpaused assignments; waits up to ``max_wait`` seconds for them.

        ``max_bytes`` is soft. A bad partition raises no error: its run has a ``fault``. A record
        that cannot be read is such a fault, an `UnreadableRecordError`, each time that it is
        fetched, and is never skipped. If the adapter knows how far the damage reaches, see
        `Run.unreadable`. A run of an assignment that was revoked meanwhile may still be returned;
        the runtime drops it.

        Raises:
            TransientAdapterError: the runtime waits and calls again.
            AdapterError: fatal.

        Cancellation: loses no record. Concurrency: one fetch at a time.
        """

    @abstractmethod
    def pause(self, assignment: Assignment) -> None:
        """Stops fetching a partition, and keeps position and membership; one more run may come.

        The owner may call it while it is asked where to start. Then no record is fetched at all.
        """

    @abstractmethod
    def resume(self, assignment: Assignment) -> None:
        """Undoes `pause`; after `Run.unreadable`, goes on after the unreadable record.

        `pause` and `resume` have no effect on an assignment that is not held.
        """

    @abstractmethod
    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Commits flushes at the broker; one outcome for each flush, in order.

        It raises no error for one bad partition, never moves the broker's position backwards, and
        carries the fence of the epoch. Without a store, it makes a flush durable.

        With ``capabilities.wants_settled`` it acks each record of `AckFlush.settled` by itself,
        answers RETRY while it is disconnected, and SENT if the broker does not confirm acks. With
        ``capabilities.wants_ends`` it gets checkpoints that have ended, when the store has them. It
        releases the lease as ended, and the assignment is over.
        """

    @abstractmethod
    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        """The group's position at the broker; None if the broker has none.

        Not called for a queue, which always starts at `StartPoint.BROKER`.
        """

    @abstractmethod
    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """The current positions of `EARLIEST`, `LATEST` (the next position) or a time.

        None: the broker cannot tell, or no record is that new. It may be called for partitions that
            are not held (their epoch is 0).
        """

    async def time(self) -> float:
        """The broker's clock when the adapter was opened, in seconds since the epoch; never ahead.

        "latest" is pinned as this time, so records that arrive while the first start is delayed are
        read. Called only if ``capabilities.knows_ends`` is False.
        """
        raise NotImplementedError

    @abstractmethod
    async def partitions(self, stream: str) -> Sequence[Partition]:
        """All partitions of one of its streams, whichever member holds them."""

    async def gone(self, partitions: Sequence[Partition]) -> Sequence[Partition]:  # noqa: ARG002 - for overriders
        """The partitions that have no records and no owner, and never will.

        Called from time to time for all partitions with a checkpoint, if
        ``capabilities.wants_ends``. The runtime removes the checkpoints of the returned ones. By
        default, and in doubt, there are none.

        Raises:
            AdapterError: the broker does not answer.
            StoreError: nobody knows who holds them.
        """
        return ()

    @abstractmethod
    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """How far behind the fetch position is, in ``capabilities.lag_unit``; None where unknown.

        For a queue: how many records its group has not settled, including those of other consumers.
        """

    @abstractmethod
    def drop(self, assignment: Assignment) -> None:
        """Stops fetching a partition, because the store has answered FENCED.

        If the partition still belongs to this consumer, it is granted again with a new epoch.
        """

    def held_until(self) -> float:
        """The loop time until which no other member can have got the held partitions.

        It is one session, or one lease, after the start of the last answered heartbeat or renewal;
        infinite if no member takes partitions over because of time. A process that was stopped, or
        whose loop was blocked, hands out no record and claims no partition before this time is in
        the future again.
        """
        return math.inf

    @abstractmethod
    def identity(self, assignment: Assignment) -> str | None:
        """Text that changes when the stream is deleted and made again; None where unknown."""

    def gaps(self, positions: Sequence[Position]) -> Sequence[int]:
        """Where records may lie between the given positions.

        Called for a log with ``capabilities.wants_settled``, whose broker may deliver a record
        late: a record in a gap was never seen, so it does not count as settled. By default there is
        a gap before each position but the first.

        Args:
            positions: ascending.

        Returns:
            the offsets of those that have room for a record between them and the one before.
        """
        return range(1, len(positions))

    @abstractmethod
    def encode_position(self, position: Position) -> str:
        """The position's text form, stable across versions.

        A ``start=AtPosition(…)`` that `decode_position` does not read back is refused: this may raise
        a TypeError, ValueError, LookupError or AttributeError of what is no position.
        """

    @abstractmethod
    def decode_position(self, text: str) -> Position:
        """Reads `encode_position` back.

        Raises:
            CheckpointFormatError: ``text`` is not a position of this broker.
        """

    def dead_letters(self) -> DeadLetters | None:
        """The destination used when the consumer was given none; None for none."""
        return None

    @abstractmethod
    async def aclose(self) -> None:
        """First revokes everything it holds, then leaves. Bounded and idempotent."""


class AckTracker(ABC):
    """The acks of one assignment; pure: no clock, no I/O, no asyncio.

    ``now`` is monotonic, ``wall`` wall-clock, both in seconds. Each tracked record gets an *index*,
    dense and growing, with which it is settled. A call that is late, comes twice or names an
    unknown record raises no error and moves no checkpoint backwards: it returns False and is
    counted.

    Attributes:
        ignored: how many such calls there were.
    """

    __slots__ = ()

    ignored: int

    @abstractmethod
    def restore(self, checkpoint: Checkpoint, now: float, wall: float, *, durable: bool) -> None:
        """Starts from a checkpoint. Call it before the first `track`.

        Args:
            durable: False: the first flush writes the checkpoint although no record was acked (a
                pin).

        Raises:
            ConfigurationError: something was tracked before.
        """

    @abstractmethod
    def track(self, run: Run, now: float) -> Tracked:
        """Gives consecutive indices to the records of a run, which may be empty.

        `Tracked.bind` tells the messages their indices, `Tracked.arrivals` what to do with each.

        Raises:
            AdapterError: the run of a log has new records out of order. No record was tracked.
        """

    @abstractmethod
    def handed_out(self, messages: Sequence[Message], now: float) -> Sequence[Message]:
        """Starts the ack timeouts, if any; returns the deliveries that are still wanted."""

    @abstractmethod
    def ack(self, index: int) -> bool:
        """Settles one record; False if that changed nothing."""

    @abstractmethod
    def ack_all(self, indices: Sequence[int]) -> int:
        """Settles many at once (fast for a ``range``); returns how many that settled."""

    @abstractmethod
    def ack_cumulative(self, index: int) -> int:
        """Settles everything handed out up to ``index``; returns how many that settled.

        Retrying records too, but never one that waits for its dead letter.
        """

    @abstractmethod
    def nack(
        self, index: int, attempt: int, now: float, delay: float | None = None, item: Any = None
    ) -> Verdict:
        """Counts a failed delivery.

        `due` returns ``item`` later, unless the record is settled meanwhile. IGNORED: the nack is
        late, from an older attempt.

        Raises:
            ConfigurationError: ``delay`` is negative or not finite, or ``now`` is no time.
        """

    @abstractmethod
    def extend(
        self, index: int, attempt: int, now: float, seconds: float, item: Any = None
    ) -> bool:
        """Moves the ack timeout of this delivery to ``seconds`` from now; 0 turns it off.

        With ``item``, it also starts a timeout that is off, and `due` returns ``item`` later.
        Without ``item``, it returns False then.

        Raises:
            ConfigurationError: ``seconds`` is negative or not finite, or ``now`` is no time.
        """

    @abstractmethod
    def reject(self, index: int, attempt: int | None) -> bool:
        """Takes the record out of delivery; it is settled by `dead_lettered`.

        Args:
            attempt: the delivery that is rejected; None: whichever, also one that is yet to come.
        """

    @abstractmethod
    def dead_lettered(self, index: int) -> bool:
        """Settles a record whose dead letter is durable."""

    def release(self, index: int) -> bool:  # noqa: ARG002 - for overriders
        """Gives a record that waits for its next attempt back to the broker, by the next flush.

        For a queue whose ``capabilities.longest_hold`` is shorter than the wait. By default no
        record is given back.
        """
        return False

    @abstractmethod
    def due(self, now: float, most: int | None = None) -> Due:
        """Returns retries that are due and deliveries that have expired, in the order in which the records were tracked.

        Args:
            most: most records, the earliest due first; `next_due` tells of the rest. A million at
                once would block the event loop for seconds.
        """

    @abstractmethod
    def next_due(self) -> float | None:
        """When `due` will return a record, or None."""

    @abstractmethod
    def flush(self, now: float, wall: float, *, force: bool = False) -> AckFlush | None:
        """Returns what has to be made durable now, or None. One flush at a time is under way.

        Args:
            force: do not wait for the interval; the result is still None if nothing has changed.
        """

    @abstractmethod
    def flushed(self, flush: AckFlush, outcome: Outcome) -> None:
        """Takes the outcome of a flush; a flush that is not under way is ignored.

        DURABLE and SENT confirm it. After any other outcome the next flush carries all of it again:
        after RETRY at once, after FENCED and GONE when something else changes.
        """

    def flush_failed(self, flush: AckFlush) -> None:
        """Says that the flush got no outcome (an error, a cancellation); works like RETRY."""
        self.flushed(flush, Outcome(OutcomeKind.RETRY))

    @property
    @abstractmethod
    def flush_number(self) -> int:
        """The number of the next flush, for which a wait for durability waits."""

    @property
    @abstractmethod
    def durable_number(self) -> int:
        """The last flush that is durable."""

    @property
    @abstractmethod
    def is_dirty(self) -> bool:
        """Whether something was settled, counted or moved that no flush carries yet."""

    @property
    @abstractmethod
    def flush_due(self) -> float | None:
        """When `flush` will return something; None if nothing has changed, or while a flush is under way."""

    @property
    @abstractmethod
    def unsettled(self) -> int:
        """How many records are tracked and not settled, in all states."""

    @abstractmethod
    def is_settled(self, index: int) -> bool:
        """Whether nothing is left to do for a record: it is settled, or was never tracked."""

    @property
    @abstractmethod
    def retrying(self) -> int:
        """Records that wait for their next delivery."""

    @property
    @abstractmethod
    def unsettled_bytes(self) -> int:
        """Their size, estimated from the mean size of the records around them."""

    @abstractmethod
    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        """The current state, independent of a flush under way.

        Raises:
            ConsumerClosedError: after `close`, which has dropped the open records: a checkpoint
                without them would pass them.
        """

    @abstractmethod
    def explain(self, now: float) -> Explanation:
        """What pins the watermark, and since when."""

    @abstractmethod
    def close(self) -> None:
        """Frees the memory. Every later call is a counted no-op, except `checkpoint`."""


@dataclass(frozen=True, slots=True)
class StoreItem:
    """One partition to save: whose it is, and its checkpoint as text."""

    assignment: Assignment
    text: str


class Leases(ABC):
    """Shares the partitions of one stream among the members of a group, for brokers that do not assign partitions.

    An object is one member of the group, under a name that nobody has had before. Nothing happens
    in the background; an adapter's own loop calls, at least every third of ``duration``::

        lost(await leases.renew())
        todo = moves(await leases.view())
        granted = await leases.take(todo.take)      # its fences go into the assignments
        await leases.unwant(todo.unwant)
        await leases.want(todo.want)
        ...                                         # hand todo.hand_over over, in another task
        await leases.changed(leases.duration / 3)

    **Ownership.** A lease belongs to its owner until another member takes it. Each take has a fence
    above all earlier ones. When the new owner has claimed the checkpoint, the store refuses the
    former owner, however late that one learns of its loss.

    **Death.** A member counts as dead for another one that has seen no renewal for ``duration``
    seconds, by its own monotonic clock, without the time in which it could not read the store.
    Clocks of different hosts are never compared. The member itself stops ``duration`` seconds after
    its last renewal began.

    **Handover.** The owner of a wanted partition has ``handover`` seconds to drain, flush and
    release it; after ``handover + duration`` it is taken from it.

    Every method but `aclose` raises:

    Raises:
        TransientStoreError: the store did not answer; a change may have been made or not. Calling
            again later is all that is needed: a lease that was granted without a word shows up
            in `view` as owned and not held, and can be taken again.
        StoreError: what is stored cannot be used; nothing was changed.
        ConsumerClosedError: after `aclose`.

    Cancellation: leaves what an error leaves. Concurrency: calls may overlap.

    Attributes:
        member: this member's name.
        duration: seconds.
        handover: seconds.
    """

    __slots__ = ()

    member: str
    duration: float
    handover: float

    @abstractmethod
    async def sync(
        self, parents: Mapping[str, Sequence[str]], *, identity: str | None = None
    ) -> None:
        """Adds the partitions that the broker lists, each with its parents.

        One that is no longer listed stays until it has ended and its children have been taken.

        Args:
            parents: all that the broker lists; a part of them would let children start early.
            identity: changes when the stream is deleted and made again. Then all leases start
                anew, and nobody owns any; None: not known. What stands before its last ``@``, if
                there is one, is the stream's own name.

        Raises:
            CheckpointMismatchError: the leases are those of a stream of another name.
        """

    @abstractmethod
    async def view(self) -> LeaseView:
        """What is stored, who is alive, and what is overdue."""

    @abstractmethod
    async def take(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Takes partitions, whoever owns them, if nobody has taken them since they were seen.

        Args:
            seen: the fence that the view showed, by partition.

        Returns:
            the new fence of each that was taken. Those that cannot be read now are left out.
        """

    @abstractmethod
    async def want(self, partitions: Sequence[str]) -> None:
        """Asks the owners of these to hand them over."""

    async def unwant(self, partitions: Sequence[str]) -> None:  # noqa: B027 - older stores lack it
        """Takes back what `want` asked for, where no other member has asked since.

        By default nothing is taken back: what was wanted long ago, and is again, may be taken
        without a handover.
        """

    @abstractmethod
    async def renew(self) -> Sequence[str]:
        """Joins, or says that this member lives; returns the partitions that it lost.

        After ``duration`` seconds without an answer it raises no more: then all are lost.
        """

    @abstractmethod
    async def release(self, held: Mapping[str, int], *, ended: bool = False) -> None:
        """Gives partitions up, where they are still held under that fence.

        From the call on they are not held, whatever becomes of it.

        Args:
            held: the fence of each.
            ended: they were read to their end and every record is settled: nobody takes them
                again, and their children can be read.
        """

    @abstractmethod
    async def reopen(self, partitions: Sequence[str] | None = None) -> None:
        """Takes back that these have ended, and takes them from their owners: they are read again.

        For an operator, and for whoever has deleted or replaced their checkpoints: an end says that
        all records of a partition are settled in its checkpoint. Needs no membership.

        Args:
            partitions: None for all of the stream. Those without a lease are left out.
        """

    async def evict(self, seen: Mapping[str, int]) -> Sequence[str]:  # noqa: ARG002 - older stores lack it
        """Takes partitions from their owners, if nobody else has since they were seen.

        For an operator. They are nobody's then, under the same fence: who should have them takes
        them, under a higher one, and goes on at the checkpoint. An owner that lives learns of it
        with its next renewal, as of any loss. Until then it may go on, also beside the next owner,
        whose claim has the store refuse what it saves. Needs no membership. A store that lacks it
        refuses.

        Args:
            seen: the fence that the view showed, by partition.

        Returns:
            those that were taken from their owners.
        """
        raise ConfigurationError(f"{type(self).__name__} cannot take leases from their owners")

    async def clear(self) -> bool:
        """Removes all leases of the stream, also what cannot be read as leases.

        For an operator. Members that run lose what they hold, and take it again, as after a forced
        takeover: fences go on above all earlier ones. What has ended is found in the checkpoints.
        Needs no membership. A store that lacks it refuses.

        Returns:
            whether there were any.
        """
        raise ConfigurationError(f"{type(self).__name__} cannot remove leases")

    @abstractmethod
    async def changed(self, timeout: float) -> bool:
        """Waits until there is something that the last `view` did not show.

        That is an owner, a wish, an end, a partition, a member that has come or gone. Death is
        not: nobody tells of it.

        Returns:
            False after ``timeout`` seconds without.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Releases all and leaves. Idempotent and bounded; an error is left to the others."""


class LeaseSource(Protocol):
    """Makes a member of a group, as `CheckpointStore.leases` does."""

    def __call__(
        self,
        group: str,
        stream: str,
        *,
        duration: float = ...,
        handover: float = ...,
        most: int | None = ...,
        weight: int = ...,
    ) -> Leases | None:
        """See `CheckpointStore.leases`."""
        ...


class CheckpointStore(ABC):
    """Keeps checkpoints. It is fenced, so a former owner can never overwrite a newer checkpoint.

    A stored checkpoint carries (writer, fence, serial). After a write whose result is unknown
    (reply lost, timed out, cancelled) the store reads it back. The same serial means DURABLE; with
    its own older serial it writes again; otherwise it is FENCED. Text is opaque to the store and at most
    ``max_size`` bytes of UTF-8.
    """

    __slots__ = ()

    max_size: int = 1_000_000

    @abstractmethod
    async def open(self) -> None:
        """Connects and checks that the store can be read and written.

        Raises:
            StoreError: the store cannot be used; the text says what to do. The consumer then stops,
                and never starts elsewhere.
        """

    @abstractmethod
    async def claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        """Reads the checkpoints *and* takes the fence, each partition in one atomic step.

        Returns:
            for each: its text, None for no checkpoint yet, or a FENCED outcome when a newer
            fence is stored. An assignment whose fence is None takes over.

        Raises:
            StoreError: the store cannot be read.
        """

    @abstractmethod
    async def save(self, group: str, items: Sequence[StoreItem]) -> list[Outcome]:
        """Writes all items in as few round trips as possible, each partition atomically.

        It returns one outcome for each item, in order. Items of a former owner are FENCED, and the
        others are written. An outage is RETRY. It raises no error for these.
        """

    @abstractmethod
    async def forget(self, assignments: Sequence[Assignment]) -> None:
        """Drops these claims; a later save under them is FENCED."""

    @abstractmethod
    async def peek(
        self, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, str | None]:
        """Reads without claiming."""

    @abstractmethod
    async def list(self, group: str) -> Sequence[Partition]:
        """The partitions that have a checkpoint in the group."""

    @abstractmethod
    async def delete(self, group: str, partitions: Iterable[Partition]) -> None:
        """Deletes checkpoints, and then reopens the leases that the store has of these partitions.

        A tombstone with the fence stays, so a former owner cannot restore them.
        """

    async def purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        """Removes checkpoints with their fences, of partitions that nobody can hold any more.

        A save under an earlier claim is refused as before; by default this is a `delete`.

        Args:
            checkpoints: the text of each, as it was read; a newer text stays.

        Raises:
            StoreError: some may be left: purge them again.
        """
        await self.delete(group, checkpoints)

    @abstractmethod
    async def pin(self, group: str, stream: str, start: str) -> str:
        """Creates the group's resolved start if absent; returns the one that is stored."""

    @abstractmethod
    async def pins(self, group: str) -> Mapping[str, str]:
        """The resolved starts of the group, by stream."""

    @abstractmethod
    async def unpin(self, group: str, stream: str) -> bool:
        """Deletes the group's resolved start, also one that cannot be read; idempotent.

        The next `pin` stores another one. Checkpoints stay.

        Returns:
            whether there was one.
        """

    def leases(
        self,
        group: str,  # noqa: ARG002 - for overriders
        stream: str,  # noqa: ARG002 - likewise
        *,
        duration: float = 10.0,  # noqa: ARG002 - likewise
        handover: float = 30.0,  # noqa: ARG002 - likewise
        most: int | None = None,  # noqa: ARG002 - likewise
        weight: int = 1,  # noqa: ARG002 - likewise
        clock: Clock | None = None,  # noqa: ARG002 - likewise
    ) -> Leases | None:
        """A new member of the group, with leases kept in this store; None when it has none.

        Args:
            duration: see `Leases`.
            handover: see `Leases`.
            most: partitions that this member is to have at most; all others know it by its name.
            weight: partitions that it is to have for each one of a member of weight 1; likewise.
            clock: the event loop's time by default.

        Raises:
            ConfigurationError: a time or a number that cannot work.
        """
        return None

    async def leased_streams(self, group: str) -> Sequence[str]:  # noqa: ARG002 - for overriders
        """The streams of which the group has leases in this store, in order.

        Raises:
            StoreError: the store cannot be read.
        """
        return []

    @abstractmethod
    async def aclose(self) -> None:
        """Idempotent and bounded."""


class DeadLetters(ABC):
    """A destination for dead letters."""

    __slots__ = ()

    @abstractmethod
    async def open(self) -> None:
        """Connects.

        Raises:
            ConsumerSdkError: the destination cannot work.
        """

    @abstractmethod
    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Makes them durable; one outcome for each, DURABLE or RETRY. May write one twice.

        Raises:
            OSError, TransientAdapterError, TransientStoreError: as RETRY for all of them.
            Exception: whatever else ends the consumer.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Idempotent and bounded; called after the drain."""


class Transactions(ABC):
    """Commits positions of records together with what their handlers have sent: all of it, or nothing.

    An object belongs to one consumer, and is opened once. A flush is one transaction: what it takes of each
    `AckFlush.outputs` (`OutputBook.choose`), and the positions. Then the book is told (`OutputBook.committed`).
    """

    __slots__ = ()

    @abstractmethod
    def check(self, adapter: Adapter) -> None:
        """Looks at the adapter whose positions are to be committed; opens nothing.

        Raises:
            ConfigurationError: its positions cannot go into these transactions.
        """

    @abstractmethod
    def check_output(self, output: Output) -> None:
        """Looks at what a handler sends.

        Raises:
            OutputError: it cannot be written.
        """

    @abstractmethod
    async def open(self, adapter: Adapter) -> None:
        """Connects, and ends what a former consumer of the same name has left open.

        Args:
            adapter: it is open; nothing was fetched yet.

        Raises:
            ConfigurationError: something cannot work.
            AdapterError: the broker cannot be reached, or refused.
        """

    @abstractmethod
    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """One transaction; one outcome for each flush, in order.

        RETRY: nothing of the flush was committed, and its outputs are in its book still. FENCED, GONE: as
        `Adapter.commit` has them.

        Raises:
            ProducerFencedError: another producer has taken over.
            AdapterError: it cannot go on: the broker refuses an output, or it is not known whether the
                transaction has committed. A restart finds that out.

        Cancellation: a transaction that was begun goes on. The next call waits for its end.
        """

    def letters_of(self, destination: DeadLetters) -> MakesLetters | None:  # noqa: ARG002 - for overriders
        """What makes outputs of dead letters, so that they are written in the transaction too.

        Returns:
            None: they are for another place, and are written there first, at least once.
        """
        return None

    @abstractmethod
    async def aclose(self) -> None:
        """Idempotent and bounded; called after the adapter is closed."""


class MakesLetters(Protocol):
    """Makes an output of each dead letter, and what it is written to if need be."""

    async def __call__(self, letters: Sequence[DeadLetter]) -> Sequence[Output | Exception]:
        """An output for each, or why there is none now."""
        ...
