"""A partition that this member reads beside others: the records that it has acquired, and those that wait to be handed out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from aiokafka import TopicPartition
from aiokafka.errors import UnsupportedCodecError

from consumer_sdk.adapters.assignment_book import BaseGrant
from consumer_sdk.adapters.kafka.client.faults import name_of, translate
from consumer_sdk.adapters.kafka.decoding.salvage import Unreadable, unreadable_error
from consumer_sdk.adapters.kafka.share.locks import AckGroup, Locks, Ticket
from consumer_sdk.adapters.kafka.share.messages import AckType, FetchedPartition, TopicIdPartition
from consumer_sdk.adapters.kafka.share.reading import AcquiredRecords, Taken
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import AckFlush, Assignment, Message, Run

__all__ = ["ShareGrant"]

log = logging.getLogger(__name__)


class ShareGrant(BaseGrant):
    """One assignment of one partition.

    Args:
        most: bytes that a batch may have, decompressed.
        checks: checksums are compared.
        limit: records that the broker lets the group acquire of it.
        deliveries: of a record that the broker makes.

    Attributes:
        tip: the partition, by the id of its topic.
        locks: what is held of it.
        node: who leads it; None while that is not known.
        is_ending: no more is fetched of it.
        has_fault: its last run was a fault: it is read no more until it is resumed.
        rests_until: it is not read before.
    """

    __slots__ = (
        "_checks",
        "_chunks",
        "_deliveries",
        "_most",
        "_spans",
        "has_fault",
        "is_ending",
        "locks",
        "node",
        "rests_until",
        "said",
        "tip",
        "tp",
    )

    def __init__(
        self,
        assignment: Assignment,
        tip: TopicIdPartition,
        *,
        most: int,
        checks: bool,
        limit: int = 2000,
        deliveries: int | None = None,
    ) -> None:
        super().__init__(assignment)
        self.tip = tip
        self.tp = TopicPartition(assignment.partition.stream, tip.partition)
        self.locks = Locks(limit)
        self.node: int | None = None
        self.has_fault = self.is_ending = False
        self.rests_until = 0.0
        self.said: deque[AckGroup] = deque()
        self._deliveries = deliveries
        self._most = most
        self._checks = checks
        self._chunks: deque[AcquiredRecords] = deque()
        self._spans: dict[int, int] = {}

    # -- reading --------------------------------------------------------------------------------

    def wants_records(self, now: float) -> bool:
        """Whether records of it are to be fetched."""
        is_ready = self.is_fetched and not self.has_fault and self.rests_until <= now
        return is_ready and not self.locks.is_full and not self.is_ending

    @property
    def buffered(self) -> int:
        """Records that wait to be handed out."""
        return sum(map(len, self._chunks))

    def add(self, part: FetchedPartition) -> None:
        """Keeps records that a fetch has acquired."""
        chunk = AcquiredRecords(
            part.records,
            part.acquired,
            most=self._most,
            checks=self._checks,
            acquisition=self.locks.acquisitions,
            losses=self.locks.losses,
            limit=self._deliveries,
        )
        if (
            self.is_ending
        ):  # 1. A fetch is sent. 2. The partition is taken away. 3. It brings records.
            chunk.keep_last_deliveries()
        if not chunk.is_empty:
            self._chunks.append(chunk)

    def finish(self) -> bool:
        """No more is fetched, and only what is on its last delivery is handed out still.

        The broker would give it up when it is released; whoever gets it writes it to the dead letters before.

        Returns:
            whether there is such a record.
        """
        self.is_ending = True
        for chunk in self._chunks:
            chunk.keep_last_deliveries()
        self._chunks = deque(chunk for chunk in self._chunks if not chunk.is_empty)
        return self.has_run

    @property
    def has_run(self) -> bool:
        """`take` may have something."""
        return bool(self._chunks) and self.is_fetched and not self.has_fault

    def take(self, max_records: int, max_bytes: int) -> Run | None:
        """Returns the next run; `said` gets the acknowledgements of gaps and of unreadable records."""
        while self.has_run:
            chunk = self._chunks[0]
            try:
                taken = chunk.take(self.assignment, max_records, max_bytes)
            except UnsupportedCodecError as error:
                self.has_fault = True
                fault = translate(error, f"fetching {name_of(self.tp)}")
                return Run(self.assignment, fault=fault)
            if chunk.is_empty:
                self._chunks.popleft()
            self._say(taken, chunk)
            if taken.unreadable is not None:
                return self._unreadable_run(taken.unreadable, chunk)
            if messages := self._held(taken.messages, chunk):
                return self._run_of(messages, taken.size, chunk)
        return None

    def _held(self, messages: list[Message], chunk: AcquiredRecords) -> list[Message]:
        """Leaves out records whose locks ended while they waited: the broker has delivered them again, perhaps to this member."""
        if self.locks.losses == chunk.losses:
            return messages
        is_held, of = self.locks.is_held, chunk.acquisition
        return [message for message in messages if is_held(message.position, of)]

    def _run_of(self, messages: list[Message], size: int, chunk: AcquiredRecords) -> Run:
        known = chunk.deliveries
        deliveries = (
            {m.position: known[m.position] for m in messages if m.position in known}
            if known
            else None
        )
        return Run(self.assignment, messages, size=size, ascends=True, deliveries=deliveries)

    def _say(self, taken: Taken, chunk: AcquiredRecords) -> None:
        """Acknowledges gaps, and releases what could not be read, so that it comes again."""
        if taken.error is not None:
            log.warning(
                "%s: %d records from offset %d on are released, to be read again: %r",
                *(name_of(self.tp), len(taken.released), taken.released[0], taken.error),
                extra=REPEATS,
            )
        for offsets, kind in ((taken.gaps, AckType.GAP), (taken.released, AckType.RELEASE)):
            held = [at for at in offsets if self.locks.is_held(at, chunk.acquisition)]
            group = self.locks.settle(held, kind, 0.0)
            if group is not None:
                self.said.append(group)

    def _unreadable_run(self, found: Unreadable, chunk: AcquiredRecords) -> Run:
        """Makes one message that stands for an unreadable range; no handler sees it."""
        self.has_fault = True
        first = found.first
        last = first if found.last is None else found.last
        if last > first:
            self._spans[first] = last
        else:  # It came with others before, which have a message of their own now.
            self._spans.pop(first, None)
        message = Message.make(self.assignment, first, found.raw)
        where = f"fetching {name_of(self.tp)}"
        fault = unreadable_error(where, found, "have another program reject it")
        run = Run.unreadable(
            message, None, fault, first=str(first), last=str(last), last_position=last
        )
        if counts := chunk.counts(first, last):
            run.deliveries = {first: max(counts)}
        return run

    def resume(self) -> None:
        """Goes on after a pause, or a fault."""
        self.is_paused = self.has_fault = False

    # -- acknowledging --------------------------------------------------------------------------

    def acks_of(self, flush: AckFlush, now: float, ticket: Ticket) -> list[AckGroup]:
        """Makes the acknowledgements of a flush, for records whose locks are still held."""
        positions: Sequence[int] = getattr(flush.settled, "positions", None) or [
            position for position, _ in flush.settled
        ]
        others = dict.fromkeys(flush.rejected, AckType.REJECT)
        if self._spans:
            positions = self._with_spans(positions, others)
        found = [
            self.locks.settle(positions, AckType.ACCEPT, now, ticket, others),
            self.locks.settle(flush.released, AckType.RELEASE, now, ticket),
        ]
        return [group for group in found if group is not None]

    def _with_spans(self, positions: Sequence[int], others: dict[int, AckType]) -> Sequence[int]:
        """A message that stands for a range settles all of it."""
        whole = list(positions)
        for position in positions:
            last = self._spans.get(position)
            if last is not None:
                whole += range(position + 1, last + 1)
                others |= dict.fromkeys(range(position, last + 1), AckType.REJECT)
        return whole

    def tell_given_up(self) -> None:
        """Before what is held is released: the broker gives up what is on its last delivery, and says so to nobody."""
        limit = self._deliveries
        counts = self.locks.counts() if limit is not None else ()
        if lost := sum(count >= (limit or 0) for count in counts):
            log.error(
                "%s: %d records were taken away on their last delivery before they reached the dead letters: the broker "
                "gives them up. Raise share.delivery.count.limit of the group",
                *(name_of(self.tp), lost),
            )

    def lose(self) -> int:
        """Nothing is held any more; what was not handed out is forgotten, and comes again.

        Returns:
            how many records were held.
        """
        self._chunks.clear()
        return len(self.locks.clear())

    def close(self) -> None:
        super().close()
        self._chunks.clear()
