"""The seams: what adapter, tracker, store and runtime owe one another.

Every rule answers something that was seen on a real broker. ``consumer_sdk.testing.conformance``
has a case for each; an implementation that passes the suite can be used with `Consumer`.
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
    """Where time comes from; tests pass a virtual one."""

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
        """Claims and decodes checkpoints, and decides where each assignment starts.

        No run of an assignment comes out of `Adapter.fetch` before this has returned and its
        seek is done. An assignment that is missing from the answer is not granted: the adapter
        releases it. If it raises, the partitions stay gated, the adapter tries again after a
        back-off, and the error surfaces from `Adapter.fetch` when it is not a transient one.

        Cancellation: the adapter may cancel it, and ends it before it calls `revoked`.
        """

    @abstractmethod
    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Purges what is queued, drains, flushes a last time, and closes the trackers.

        Never awaits a fetch. Nothing leaves it, not even CancelledError. Afterwards no write of
        those epochs succeeds. Unknown and closed assignments are skipped.

        Args:
            deadline: loop time by which it returns.
        """

    @abstractmethod
    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Closes the trackers at once, without a flush. Idempotent; callable during `revoked`."""

    def lapsed(self, assignment: Assignment, positions: Collection[Position]) -> None:  # noqa: B027 - may be ignored
        """A queue's broker has taken these records back; the assignment goes on.

        What waits of them is not handed out, here: it comes again, to whomever. Handlers that
        run go on. Positions that are unknown, settled or in handlers are skipped.
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
            owner: whom it tells of assignments.
            leases: makes a member of a group, where ``capabilities.needs_leases``.

        Raises:
            ConfigurationError: an option or stream that cannot work.
            AdapterError: the broker cannot be reached, or refused.
        """

    @abstractmethod
    async def run(self) -> None:
        """Background duties (watchdog, leases, discovery), also while paused.

        Runs in the runtime's task group until cancelled; raises what is fatal. Returning is
        allowed: then there are none.
        """

    @abstractmethod
    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """The next runs of unpaused assignments, waiting up to ``max_wait`` seconds for some.

        ``max_bytes`` is soft. One bad partition never raises: it is a run with a ``fault``.
        What cannot be read is such a fault, `UnreadableRecordError`, whenever it is fetched, and
        is never passed over; where the adapter knows how far it reaches, see `Run.unreadable`.
        A run of an assignment that was revoked meanwhile may still come out; the runtime
        throws it away.

        Raises:
            TransientAdapterError: the runtime waits and calls again.
            AdapterError: fatal.

        Cancellation: loses no record. Concurrency: one fetch at a time.
        """

    @abstractmethod
    def pause(self, assignment: Assignment) -> None:
        """Stops fetching it, keeping position and membership; one more run may come.

        The owner may call it while it is asked where to start: then nothing is fetched at all.
        """

    @abstractmethod
    def resume(self, assignment: Assignment) -> None:
        """Undoes `pause`; after `Run.unreadable`, goes on behind that.

        Both do nothing on an assignment that is not held.
        """

    @abstractmethod
    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Tells the broker; one outcome for each flush, in order.

        Never raises for one bad partition, never moves the broker's position backwards, and
        carries the epoch's own fence. Without a store this is what makes a flush durable. With
        ``capabilities.wants_settled`` it acks each of `AckFlush.settled` by itself, answers RETRY
        while it is disconnected, and SENT where the broker does not say that it has heard. With
        ``capabilities.wants_ends`` it is told of checkpoints that have ended, once the store has
        them: it releases the lease as ended, and the assignment is over.
        """

    @abstractmethod
    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        """The broker's own idea of where the group is; None where it has none.

        Not asked of a queue, which always starts at `StartPoint.BROKER`.
        """

    @abstractmethod
    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """What `EARLIEST`, `LATEST` (the next position) or a time stand for now.

        None: the broker cannot say, or no record is that new. Of any partitions, also of some
        that are not held (their epoch is 0).
        """

    async def time(self) -> float:
        """The broker's clock when the adapter was opened, in seconds since the epoch; never ahead.

        What "latest" is pinned as: nothing is passed over that comes while the first start is
        delayed. Asked only where ``capabilities.knows_ends`` is False.
        """
        raise NotImplementedError

    @abstractmethod
    async def partitions(self, stream: str) -> Sequence[Partition]:
        """All partitions of one of its streams, whoever holds them."""

    async def gone(self, partitions: Sequence[Partition]) -> Sequence[Partition]:  # noqa: ARG002 - for overriders
        """Those that have no record any more, never will, and are nobody's: for good.

        Asked from time to time of all that have a checkpoint, where ``capabilities.wants_ends``; then
        their checkpoints are removed. By default, and where there is any doubt, none.

        Raises:
            AdapterError: the broker does not answer.
            StoreError: nobody knows who holds them.
        """
        return ()

    @abstractmethod
    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """How far behind the fetch position is, in ``capabilities.lag_unit``; None where unknown.

        Of a queue: how many records its group has not settled, whoever holds them.
        """

    @abstractmethod
    def drop(self, assignment: Assignment) -> None:
        """The store says FENCED: stop fetching it.

        If it is still ours, it is granted again with a new epoch.
        """

    def held_until(self) -> float:
        """The loop time up to which nobody else can have been given what is held.

        One session, or one lease, after the start of the last heartbeat or renewal that was
        answered; infinite where nobody takes anything over because of time. A process that was
        stopped, or whose loop was blocked, hands nothing out and claims nothing before this lies
        ahead again.
        """
        return math.inf

    @abstractmethod
    def identity(self, assignment: Assignment) -> str | None:
        """Text that changes when the stream is deleted and made again; None where unknown."""

    def gaps(self, positions: Sequence[Position]) -> Sequence[int]:
        """Where records may lie between positions that are given.

        Asked of a log with ``capabilities.wants_settled``, whose broker may deliver a record late: what
        lies in a gap was never seen, and is not taken for settled. By default, before each but the first.

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

    ``now`` is monotonic, ``wall`` wall-clock, both in seconds. An *index* is minted for each
    tracked record, dense and growing: it is the handle that settles it. Nothing that is called
    late, twice or for a stranger raises or moves a checkpoint backwards: it answers False and
    is counted.

    Attributes:
        ignored: how often.
    """

    __slots__ = ()

    ignored: int

    @abstractmethod
    def restore(self, checkpoint: Checkpoint, now: float, wall: float, *, durable: bool) -> None:
        """Starts from a checkpoint; before the first `track`.

        Args:
            durable: False: the first flush writes it although nothing was acked (a pin).

        Raises:
            ConfigurationError: something was tracked before.
        """

    @abstractmethod
    def track(self, run: Run, now: float) -> Tracked:
        """Mints consecutive indices for a whole run, which may be empty.

        `Tracked.bind` tells the messages their indices, `Tracked.arrivals` what to do with each.

        Raises:
            AdapterError: of a log, the run brings new records out of order. Nothing was tracked.
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

        ``item`` comes back through `due`, or is dropped when the record is settled meanwhile.
        IGNORED: an older attempt's late nack.

        Raises:
            ConfigurationError: ``delay`` is negative or not finite, or ``now`` is no time.
        """

    @abstractmethod
    def extend(
        self, index: int, attempt: int, now: float, seconds: float, item: Any = None
    ) -> bool:
        """Moves the ack timeout of this delivery to ``seconds`` from now; 0 turns it off.

        ``item`` turns on one that is off, and comes back through `due`; without it that is False.

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
        """The dead letter is durable: the record is settled."""

    def release(self, index: int) -> bool:  # noqa: ARG002 - for overriders
        """Gives a record that waits for its next attempt back to the broker, by the next flush.

        Of a queue, where ``capabilities.longest_hold`` is less than the wait. By default, nothing is given back.
        """
        return False

    @abstractmethod
    def due(self, now: float, most: int | None = None) -> Due:
        """What the time has brought, in the order in which the records were tracked.

        Args:
            most: so many records at most, the earliest due first; then `next_due` tells of the
                rest. A million at once would hold the event loop for seconds.
        """

    @abstractmethod
    def next_due(self) -> float | None:
        """When `due` will have something, or None."""

    @abstractmethod
    def flush(self, now: float, wall: float, *, force: bool = False) -> AckFlush | None:
        """What is to be made durable now, or None. One in the air at a time.

        Args:
            force: do not wait for the interval; still None when nothing has changed.
        """

    @abstractmethod
    def flushed(self, flush: AckFlush, outcome: Outcome) -> None:
        """The answer to a flush, whatever it is; one that is not in the air is ignored.

        DURABLE and SENT confirm it. After any other answer the next flush carries all of it
        again: after RETRY it is due, after FENCED and GONE as soon as something else changes.
        """

    def flush_failed(self, flush: AckFlush) -> None:
        """Nobody has answered the flush (an error, a cancellation): as after RETRY."""
        self.flushed(flush, Outcome(OutcomeKind.RETRY))

    @property
    @abstractmethod
    def flush_number(self) -> int:
        """The number that the next flush will have: what a receipt waits for."""

    @property
    @abstractmethod
    def durable_number(self) -> int:
        """The last flush that is durable."""

    @property
    @abstractmethod
    def is_dirty(self) -> bool:
        """Something is settled (or counted, or moved) that no flush carries yet."""

    @property
    @abstractmethod
    def flush_due(self) -> float | None:
        """When `flush` will have something; None when clean or while a flush is in the air."""

    @property
    @abstractmethod
    def unsettled(self) -> int:
        """Records tracked and not settled, in all states."""

    @abstractmethod
    def is_settled(self, index: int) -> bool:
        """Nothing is left to do for a record: it is settled, or was never tracked."""

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
        """The state now, whatever flush is in the air.

        Raises:
            ConsumerClosedError: after `close`, which has forgotten it: a checkpoint without the
                open records would pass them.
        """

    @abstractmethod
    def explain(self, now: float) -> Explanation:
        """What pins the watermark, and since when."""

    @abstractmethod
    def close(self) -> None:
        """Every later call is a counted no-op, but `checkpoint`; holds no memory."""


@dataclass(frozen=True, slots=True)
class StoreItem:
    """One partition to save: whose it is, and its checkpoint as text."""

    assignment: Assignment
    text: str


class Leases(ABC):
    """Who reads which partition of one stream, in one group, where the broker does not say.

    An object is one member of the group, under a name that nobody has had before. Nothing happens
    in the background; an adapter's own loop calls, at least every third of ``duration``::

        lost(await leases.renew())
        todo = moves(await leases.view())
        granted = await leases.take(todo.take)      # its fences go into the assignments
        await leases.unwant(todo.unwant)
        await leases.want(todo.want)
        ...                                         # hand todo.hand_over over, in another task
        await leases.changed(leases.duration / 3)

    **Ownership.** A lease is its owner's until another member takes it. Each take has a fence
    above all earlier ones: the checkpoint store refuses an owner of before from the moment at
    which the new one has claimed, however late it learns of its loss.

    **Death.** A member is dead for another one that has looked for ``duration`` seconds and seen
    no renewal, by its own monotonic clock and counting no time in which the store could not be
    read. Clocks of different hosts are never compared. The member itself gives up ``duration``
    seconds after its last renewal began.

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
    """Where checkpoints live; fenced, so that a former owner can never overwrite.

    A stored record carries (writer, fence, serial): after a write whose result is unknown
    (reply lost, timed out, cancelled) the store reads it back: same serial: durable; its own
    older serial: written again; else FENCED. Text is opaque to the store and at most
    ``max_size`` bytes of UTF-8.
    """

    __slots__ = ()

    max_size: int = 1_000_000

    @abstractmethod
    async def open(self) -> None:
        """Connects and checks that the store can be read and written.

        Raises:
            StoreError: it cannot; says what to do. Never means "start at latest".
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
        """Writes all in as few round trips as can be, each partition atomically.

        One outcome for each item, in order. A stale owner's is FENCED alone, the rest are
        written; an outage is RETRY; never raises for them.
        """

    @abstractmethod
    async def forget(self, assignments: Sequence[Assignment]) -> None:
        """Drops what the store remembers of these claims; a later save of theirs is FENCED."""

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

        A tombstone with the fence stays, so that a stale owner cannot bring them back.
        """

    async def purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        """Removes checkpoints with their fences, of partitions that nobody can hold any more.

        A save under an earlier claim is refused as before; by default this is a `delete`.

        Args:
            checkpoints: the text of each, as it was read; what has been written over it stays.

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
    """A destination for records that were given up."""

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
