"""What others keep their acks in, as plain as it can be written.

Each tracks a run, settles a record by its position and tells the watermark at a flush; none
has retries, timeouts, cumulative acks, or ranges for a checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sortedcontainers import SortedSet

from benchmarks.trackers.ours import Driven, Ours
from consumer_sdk.records import Position, Run

__all__ = ["PEERS", "DequeAndSet", "DictAndSet", "LinkedList", "SortedSets"]


class SortedSets:
    """storm-kinesis' KinesisRecordsManager: sorted sets of what was emitted and of what was acked.

    Its commit takes the acked ones below the first emitted one.
    """

    def __init__(self) -> None:
        self.emitted = SortedSet()
        self.acked = SortedSet()
        self.watermark: Position | None = None

    def track(self, run: Run) -> None:
        self.emitted.update([message.position for message in run.messages])

    def ack(self, position: Position) -> bool:
        try:
            self.emitted.remove(position)
        except KeyError:
            return False
        self.acked.add(position)
        return True

    def flush(self) -> Position | None:
        acked, emitted = self.acked, self.emitted
        end = acked.bisect_left(emitted[0]) if emitted else len(acked)
        if end:
            self.watermark = acked[end - 1]
            del acked[:end]
        return self.watermark


class _Node:
    __slots__ = ("following", "last", "previous")

    def __init__(self, position: Position, previous: _Node | None) -> None:
        self.last = position
        self.previous = previous
        self.following: _Node | None = None


class LinkedList:
    """Redpanda Connect's checkpoint: a list of pending records; a settled one joins the previous.

    A dict leads from a position to its node, so that settling twice is noticed.
    """

    def __init__(self) -> None:
        self.nodes: dict[Position, _Node] = {}
        self.tail: _Node | None = None
        self.watermark: Position | None = None

    def track(self, run: Run) -> None:
        nodes, tail = self.nodes, self.tail
        for message in run.messages:
            node = nodes[message.position] = _Node(message.position, tail)
            if tail is not None:
                tail.following = node
            tail = node
        self.tail = tail

    def ack(self, position: Position) -> bool:
        node = self.nodes.pop(position, None)
        if node is None:
            return False
        previous, following = node.previous, node.following
        if previous is None:
            self.watermark = node.last
        else:
            previous.last, previous.following = node.last, following
        if following is None:
            self.tail = previous
        else:
            following.previous = previous
        return True

    def flush(self) -> Position | None:
        return self.watermark


class DequeAndSet:
    """Decaton's and Arroyo's: all records in order, those that are done in a set."""

    def __init__(self) -> None:
        self.records: deque[Position] = deque()
        self.done: set[Position] = set()
        self.watermark: Position | None = None

    def track(self, run: Run) -> None:
        self.records.extend([message.position for message in run.messages])

    def ack(self, position: Position) -> bool:
        records, done = self.records, self.done
        if position in done or not records or position < records[0]:
            return False
        done.add(position)
        while records and records[0] in done:
            self.watermark = records.popleft()
            done.remove(self.watermark)
        return True

    def flush(self) -> Position | None:
        return self.watermark


class DictAndSet:
    """Retriable-Kafka-Client's: pending ones in a dict, done ones in a set, sorted out by a flush."""

    def __init__(self) -> None:
        self.pending: dict[Position, None] = {}
        self.done: set[Position] = set()
        self.watermark: Position | None = None

    def track(self, run: Run) -> None:
        self.pending.update(dict.fromkeys([message.position for message in run.messages]))

    def ack(self, position: Position) -> bool:
        try:
            del self.pending[position]
        except KeyError:
            return False
        self.done.add(position)
        return True

    def flush(self) -> Position | None:
        first = min(self.pending, default=None)
        below = {position for position in self.done if first is None or position < first}
        self.done -= below
        self.watermark = max(below, default=self.watermark)
        return self.watermark


PEERS: dict[str, Callable[[], Driven]] = {
    "ours": Ours,
    "SortedSet": SortedSets,
    "linked list": LinkedList,
    "deque and set": DequeAndSet,
    "dict and set": DictAndSet,
}
