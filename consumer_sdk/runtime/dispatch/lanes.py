"""Keeps the order of `Consumer.run`, and decides which record may be processed next.

A lane holds the records that must be processed one after another: those of one key, or of one
partition. Its head is being processed, waits in the ready queue, or waits for its retry; the
rest waits behind it. A record without a key, or without an ordering, gets a lane for itself alone.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice, repeat

from consumer_sdk.records import Batch, Message, Position
from consumer_sdk.runtime.partitions.held_partition import NACKED, SETTLED, HeldPartition
from consumer_sdk.runtime.partitions.queue import NOTHING, Lane, MessageQueue

__all__ = ["LaneBatch", "Lanes", "Ordering"]


class Ordering(enum.Enum):
    """Which records `Consumer.run` processes one after another."""

    NONE = "none"
    """None: everything may run at once, and a retry holds nothing up."""
    KEY = "key"
    """Those with the same key in the same partition; a record without a key is alone.

    Where a record has an ordering key (Pulsar), that stands for its key.
    """
    PARTITION = "partition"
    """Those of the same partition."""


class LaneBatch(Batch):
    """A batch that was taken from lanes.

    Attributes:
        parts: each lane with its records, in the batch's order.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[Lane, list[Message]]] = []

    def add(self, lane: Lane, messages: list[Message]) -> None:
        """Adds records of another lane."""
        self.parts.append((lane, messages))
        self += messages


def _ignore() -> None:
    """Lanes without workers: those of a consumer that is neither pulled from nor run yet."""


class Lanes(MessageQueue):
    """The queue of `Consumer.run`: records wait in lanes; pure.

    Args:
        ordering: what shares a lane.
        is_ready: called when lanes have become ready.
        abandoned: called when a partition was closed whose records are still in handlers: their
            outcome has no effect.

    Attributes:
        ready: lanes whose head may be processed.
        available: records of these lanes that could be taken now.
        is_gated: no record may be taken for now.
    """

    def __init__(
        self,
        ordering: Ordering,
        is_ready: Callable[[], None] = _ignore,
        abandoned: Callable[[], None] = _ignore,
    ) -> None:
        self._keys_of: Callable[[Sequence[Message]], Iterable[Hashable | None]] = {
            Ordering.NONE: lambda messages: repeat(None, len(messages)),
            Ordering.KEY: lambda messages: [m.ordering_key or m.key or None for m in messages],
            Ordering.PARTITION: lambda messages: repeat("partition", len(messages)),
        }[ordering]
        self._is_ready = is_ready
        self._abandoned = abandoned
        self.ready: deque[Lane] = deque()
        self.available = 0
        self.is_full = self.is_gated = False

    def _key_of(self, message: Message) -> Hashable | None:
        return next(iter(self._keys_of((message,))))

    # -- coming in ------------------------------------------------------------------------

    def put(self, holding: HeldPartition, messages: list[Message]) -> None:
        """Queues new records, in order."""
        lanes, ready, available = holding.lanes, self.ready, self.available
        for message, key in zip(
            messages, self._keys_of(messages), strict=False
        ):  # strict takes longer
            lane = lanes.get(key)
            if lane is None:
                lane = Lane(holding, key, message)
                ready.append(lane)
                available += 1
                if key is not None:
                    lanes[key] = lane
            else:
                lane.append(message)
                if lane.awaited or lane.is_parked:
                    self._block(lane, not self._is_held(message, holding))
                elif not lane.running:
                    available += 1
        self.available = available
        self._is_ready()

    def hold(self, holding: HeldPartition, message: Message) -> None:
        """Keeps the place of a restored retry that is not due yet."""
        if self._key_of(message) is not None:
            holding.retries[message.index] = False
            self.put(holding, [message])

    def put_back(self, holding: HeldPartition, message: Message) -> None:
        """Puts a due retry back into its lane, ahead of new records."""
        lane, is_held = holding.lanes.get(self._key_of(message)), self._is_held(message, holding)
        holding.retries[message.index] = True
        if is_held and lane is not None:
            self._replace(lane, message)
        else:
            self._insert(lane, holding, message)
        self._is_ready()

    def _replace(self, lane: Lane, message: Message) -> None:
        """A held retry is in the queue already; only its attempt number is new."""
        at = next(i for i, queued in enumerate(lane.queue) if queued.index == message.index)
        lane.queue[at] = message
        self._is_back(lane, at)

    def _insert(self, lane: Lane | None, holding: HeldPartition, message: Message) -> None:
        if lane is None:
            self.available += 1
            self.ready.appendleft(Lane(holding, None, message))
            return
        # The retries of a batch come back in any order, and run in index order; what is still
        # being processed (the handler nacked, and goes on) stays at the head.
        waiting = islice(lane.queue, lane.running, None)
        at = lane.running + sum(1 for queued in waiting if queued.index < message.index)
        lane.queue.insert(at, message)
        if not (lane.awaited or lane.is_parked or lane.running):
            self.available += 1
        self._is_back(lane, at)
        self._stop_waiting(lane, {message.position})

    def _is_back(self, lane: Lane, at: int) -> None:
        if lane.is_parked and at == 0:
            lane.is_parked = False
            self._make_ready(lane)
        elif lane.awaited or lane.is_parked:
            self._block(lane, 1)

    def free(self, holding: HeldPartition, message: Message) -> None:
        """The retry of ``message`` will not come, so its lane no longer waits for it."""
        lane = holding.lanes.get(self._key_of(message))
        if lane is not None:
            self._stop_waiting(lane, {message.position})
            self._is_ready()

    def free_up_to(self, holding: HeldPartition, message: Message) -> None:
        """The same for all up to ``message``.

        Only a cumulative ack does that, and only where a partition has one lane.
        """
        for lane in list(holding.lanes.values()):
            known = lane.awaited.union(m.position for m in islice(lane.queue, lane.running))
            self._stop_waiting(lane, {at for at in known if at <= message.position})
        self._is_ready()

    def _stop_waiting(self, lane: Lane, positions: set[Position]) -> None:
        for message in islice(lane.queue, lane.running):
            # 1. A handler nacks its message and goes on. 2. The retry comes back, or will not come. 3. The
            # handler ends, and `done` would take NACKED for a retry that is awaited: the lane would wait for
            # ever. So the message says that nothing will come.
            if message.index == NACKED and message.position in positions:
                message.index = SETTLED
        if lane.awaited and lane.awaited <= positions:
            lane.awaited = NOTHING
            if not lane.running:
                self._go_on(lane)
        else:
            lane.awaited -= positions

    def _go_on(self, lane: Lane) -> None:
        if lane.queue:
            self._make_ready(lane)
        else:
            self._end(lane)

    def _make_ready(self, lane: Lane) -> None:
        self._block(lane, -lane.blocked)
        self.available += len(lane.queue)
        self.ready.appendleft(lane)

    def _block(self, lane: Lane, records: int) -> None:
        if records:
            lane.blocked += records
            lane.holding.blocked += records
            lane.holding.context.changed[lane.holding] = None

    def _block_all(self, lane: Lane) -> None:
        self._block(lane, sum(not self._is_held(m, lane.holding) for m in lane.queue))

    @staticmethod
    def _is_held(message: Message, holding: HeldPartition) -> bool:
        return not holding.retries.get(message.index, True)

    def set_full(self, *, is_full: bool) -> None:
        """Sets whether fetching has stopped until records are settled. Then no batch waits for more records."""
        self.is_full = is_full
        self._is_ready()

    # -- going out ------------------------------------------------------------------------

    def set_gated(self, *, is_gated: bool) -> None:
        """Sets whether records may be handed out for now."""
        self.is_gated = is_gated
        self._is_ready()

    def take_one(self) -> Lane | None:
        """The next lane that is ready, to process its head; None if there is none.

        The record stays at the head of its queue until the lane is `done`.
        """
        ready = self.ready
        while ready:
            lane = ready.popleft()
            self.available -= len(lane.queue)
            # 1. The partition is lost. 2. A worker looks for a lane. 3. The sweep, which was put off, comes.
            if lane.holding.is_closed:
                continue
            if not lane.holding.retries or self._admits(lane):
                lane.running = 1
                return lane
            self._set_aside(lane)
        return None

    def take(self, most: int) -> tuple[Lane, list[Message]] | None:
        """Like `take_one`, with up to ``most`` records from the head."""
        lane = self.take_one()
        if lane is None:
            return None
        if not lane.holding.retries:
            lane.running = min(most, len(lane.queue))
        while lane.running < most and self._admits(lane):
            lane.running += 1
        return lane, list(islice(lane.queue, lane.running))

    def _admits(self, lane: Lane) -> bool:
        """Whether another record may be taken; drops retries that were settled as they waited."""
        # 1. A retry is due, and takes its place. 2. Whoever had the delivery before, which took longer than
        # the ack timeout, acks it after all; or a cumulative ack passes the record. 3. A worker takes the
        # lane: there is nothing left to deliver.
        queue, retries = lane.queue, lane.holding.retries
        while lane.running < len(queue):
            message = queue[lane.running]
            is_due = retries.get(message.index)
            if not is_due:
                return is_due is None
            del retries[message.index]
            if lane.holding.still_wants(message):
                return True
            del queue[lane.running]
        return False

    def _set_aside(self, lane: Lane) -> None:
        if lane.queue:
            lane.is_parked = True
            self._block_all(lane)
        else:
            self._end(lane)

    def done(self, lane: Lane) -> None:
        """The deliveries of what was taken are over; nacked ones hold the lane."""
        if lane.key is None or lane.holding.is_closed:
            # It has one record; or: 1. its handler runs; 2. a revoke purges the lane, or the partition is
            # lost; 3. the handler ends. What was behind is another consumer's.
            lane.running = 0
            return
        queue = lane.queue
        while lane.running:
            lane.running -= 1
            message = queue[0]
            del queue[0]
            if message.index == NACKED:
                lane.awaited |= {message.position}
        if lane.awaited:
            self._block_all(lane)
        elif queue:
            self.available += len(queue)
            self.ready.append(lane)
        else:  # as in `_end`, without a call: each record without company in its lane comes here
            lane.holding.lanes.pop(lane.key, None)

    @staticmethod
    def _end(lane: Lane) -> None:
        lane.holding.lanes.pop(lane.key, None)

    def is_waiting(self, holding: HeldPartition, message: Message) -> bool:
        """The record waits for a worker."""
        lane = holding.lanes.get(self._key_of(message))
        lanes = [lane] if lane else [each for each in self.ready if each.holding is holding]
        return any(
            queued.position == message.position
            for each in lanes
            for queued in islice(each.queue, each.running, None)
        )

    def find(self, holding: HeldPartition, index: int) -> tuple[str, Message | None]:
        """What an unsettled record that is in no handler does, and its message. O(records)."""
        alone = (lane for lane in self.ready if lane.holding is holding and lane.key is None)
        for lane in (*holding.lanes.values(), *alone):
            for message in islice(lane.queue, lane.running, None):
                if message.index == index:
                    is_behind = bool(lane.awaited) or lane.is_parked
                    return ("behind a retry" if is_behind else "queued"), message
        return "queued", None

    def key_of(self, holding: HeldPartition, position: Position) -> bytes | None:
        """The key of a record whose retry a lane waits for."""
        lanes = (lane for lane in holding.lanes.values() if position in lane.awaited)
        key = next((lane.key for lane in lanes), None)
        return key if isinstance(key, bytes) else None

    def purge(self, holdings: Sequence[HeldPartition]) -> dict[HeldPartition, list[Message]]:
        """Removes and returns the waiting records of these partitions. Records in handlers stay.

        O(partitions + lanes): one pass for all of them.
        """
        purged: dict[HeldPartition, list[Message]] = {holding: [] for holding in holdings}
        kept: deque[Lane] = deque()
        for lane in self.ready:
            if lane.holding not in purged:
                kept.append(lane)
            else:
                self.available -= len(lane.queue)
                if lane.key is None:
                    purged[lane.holding] += self._empty(lane)
        self.ready = kept
        for holding in holdings:
            for lane in holding.lanes.values():
                purged[holding] += self._empty(lane)
            holding.lanes.clear()
        return purged

    def _empty(self, lane: Lane) -> list[Message]:
        """What waits in the lane, but for retries that are not due."""
        waiting = islice(lane.queue, lane.running, None)
        if lane.holding.retries:
            found = [message for message in waiting if not self._is_held(message, lane.holding)]
        else:
            found = list(waiting)
        self._block(lane, -lane.blocked)
        lane.key = None
        return found

    def abandon(self) -> None:
        """These partitions were closed: none of their records is taken from now on."""
        self._abandoned()

    def sweep(self) -> list[object]:
        """Removes and returns the waiting records of closed partitions, in one pass."""
        kept: deque[Lane] = deque()
        gone: list[object] = []
        for lane in self.ready:
            if lane.holding.is_closed:
                gone.append(lane)
                self.available -= len(lane.queue)
            else:
                kept.append(lane)
        if gone:
            self.ready = kept
        return gone

    def close(self) -> None:
        """Does nothing: workers go on until the drain has removed the queued records."""
