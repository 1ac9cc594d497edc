"""Trees opened and acked: in the bare table, and through ``message.tree()``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from benchmarks.trackers.ours import Ours
from benchmarks.trackers.runs import ASSIGNMENT, RUN, make_run
from benchmarks.trackers.timing import Stopwatch, best, take_turns
from consumer_sdk.records import Message
from consumer_sdk.runtime.dispatch.lanes import Lanes, Ordering
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.trackers.trees.edges import new_edge
from consumer_sdk.trackers.trees.table import FIRST_EDGE, TreeTable

__all__ = ["ack_in_table", "fan_out", "make_holding", "rates"]

_TREES = 100_000
_BLOCK = 20
_LIVE = 1_000_000


def rates(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Trees a second, of three edges each; the ids are made in the timed part."""
    trees, others = max(_TREES // shrink, RUN * _BLOCK), _Others(_LIVE // shrink)
    sides = {
        "trees_per_s": lambda: _table(trees),
        "trees_among_million_per_s": lambda: others.seconds(trees),
        "branch_trees_per_s": lambda: _messages(trees),
    }
    found = best(take_turns(sides, rounds))
    return {name: trees / seconds for name, seconds in found.items()}


def _table(trees: int) -> float:
    watch = Stopwatch()
    with watch:
        ack_in_table(TreeTable(), trees)
    return watch.seconds


def ack_in_table(table: TreeTable, trees: int) -> None:
    """Opens trees, each with two edges beside its own, and acks all three."""
    for _ in range(trees):
        root, left, right = table.open(table), new_edge(), new_edge()
        table.xor(root, FIRST_EDGE ^ left ^ right)
        table.xor(root, left)
        table.xor(root, right)


class _Others:
    """A table in which so many other trees are open at any time."""

    def __init__(self, live: int) -> None:
        self._table = TreeTable()
        self._open: deque[tuple[int, int, int]] = deque()
        for _ in range(live):
            self._begin()

    def seconds(self, trees: int) -> float:
        """CPU seconds to open so many trees and to end as many of the oldest."""
        watch = Stopwatch()
        with watch:
            for _ in range(trees):
                self._begin()
                root, left, right = self._open.popleft()
                self._table.xor(root, left)
                self._table.xor(root, right)
        return watch.seconds

    def _begin(self) -> None:
        root, left, right = self._table.open(self), new_edge(), new_edge()
        self._table.xor(root, FIRST_EDGE ^ left ^ right)
        self._open.append((root, left, right))


class _Clock:
    """Stands still."""

    def monotonic(self) -> float:
        return 0.0

    wall = monotonic


def make_holding() -> HeldPartition:
    """What binds messages to their tracker, as in a consumer without hooks."""
    tracker = Ours().tracker
    context = ConsumerContext(clock=_Clock(), queue=Lanes(Ordering.NONE))
    callbacks = PartitionCallbacks(dead_letter=lambda *_: None, reschedule=lambda _: None)
    return HeldPartition(ASSIGNMENT, tracker, context, callbacks)


def _messages(trees: int) -> float:
    holding, watch = make_holding(), Stopwatch()
    for block in range(0, trees, _BLOCK * RUN):
        runs = [make_run(first) for first in range(block, block + _BLOCK * RUN, RUN)]
        for run in runs:
            holding.track(run)
        with watch:
            for run in runs:
                fan_out(run.messages)
    return watch.seconds


def fan_out(messages: Sequence[Message]) -> None:
    """The same through messages, which their trees settle."""
    for message in messages:
        with message.tree() as tree:
            left, right = tree.branch(), tree.branch()
        left.ack()
        right.ack()
