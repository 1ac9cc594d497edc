"""What handlers send, until a transaction has committed it with the positions of their records.

Rules:
 1. What a delivery sends is kept with its record. A delivery that ends without settling the record drops it.
 2. The outputs of a settled record go into the transaction that commits what covers it: a position behind it,
    or a settled range that holds it. A record that does not fit into the commit keeps its outputs until it does.
 3. What was committed stays covered. A commit may hold a limited number of settled ranges. A range that an
    earlier commit had is in each later one until the position has passed it: else a restart would deliver
    its records again, and their outputs would be written twice. So new ranges take only the room that is left.
 4. Outputs stay here until their transaction has committed. One that has not committed changes nothing.
 5. They are written in the order in which their records were settled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from consumer_sdk.checkpoints.forms import Fitted, covered
from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.records.outputs import Output
from consumer_sdk.records.ranges import Span, holds

__all__ = ["Choice", "OutputBook"]

Fit = Callable[[Checkpoint], Fitted]
"""What of a checkpoint a commit can carry."""


@dataclass(slots=True)
class _Sent:
    """What one delivery has sent."""

    position: Position
    attempt: int
    outputs: list[Output] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """What one transaction is to commit for one assignment.

    Attributes:
        checkpoint: what the commit covers.
        fitted: the commit as it is written.
        outputs: those of the records that it covers and no transaction has committed yet, in order.
        records: the indices of those records.
    """

    checkpoint: Checkpoint
    fitted: Fitted
    outputs: tuple[Output, ...]
    records: tuple[int, ...]


class OutputBook:
    """The outputs of one assignment.

    Args:
        committed: what the assignment starts from: its records are settled, and their outputs are written.

    Attributes:
        size: bytes of memory that the outputs take, about.
    """

    __slots__ = ("_committed", "_given_up", "_is_closed", "_open", "_settled", "size")

    def __init__(self, committed: Checkpoint) -> None:
        self._committed = committed
        self._open: dict[int, _Sent] = {}
        self._settled: dict[int, _Sent] = {}
        self._given_up: set[int] = set()
        self._is_closed = False
        self.size = 0

    # -- what deliveries do ---------------------------------------------------------------

    def send(self, index: int, position: Position, attempt: int, output: Output) -> bool:
        """Keeps an output of a delivery.

        Returns:
            False: the delivery is over, and the output is not kept.
        """
        sent = self._open.get(index)
        if index in self._given_up or (sent is not None and attempt < sent.attempt):
            return False
        if sent is None or attempt > sent.attempt:
            self.drop(index)
            sent = self._open[index] = _Sent(position, attempt)
        sent.outputs.append(output)
        sent.size += output.held
        self.size += output.held
        return True

    def drop(self, index: int) -> None:
        """The delivery of a record has failed, or there is another one."""
        sent = self._open.pop(index, None)
        if sent is not None:
            self.size -= sent.size

    def give_up(self, index: int) -> None:
        """The record waits for its dead letter: what its handler has sent, or still sends, does not count."""
        self.drop(index)
        self._given_up.add(index)

    def settled(self, index: int) -> None:
        """The record is settled: what its delivery has sent is to be committed with it."""
        sent = self._open.pop(index, None)
        if sent is not None:
            self._settled[index] = sent

    def settled_up_to(self, index: int, is_settled: Callable[[int], bool]) -> None:
        """The same of all records up to one that are settled now."""
        for each in sorted(self._open):
            if each <= index and is_settled(each):
                self.settled(each)

    def dead_lettered(self, index: int, position: Position, letter: Output | None) -> None:
        """The record is settled with its dead letter; None: that was written elsewhere."""
        self._given_up.discard(index)
        if letter is not None:
            self.send(index, position, 1, letter)
            self.settled(index)

    def close(self) -> None:
        """The assignment is over: what no transaction has committed is dropped, and so are its positions."""
        self._is_closed = True
        self._open, self._settled, self._given_up, self.size = {}, {}, set(), 0

    # -- what transactions do -------------------------------------------------------------

    def choose(self, checkpoint: Checkpoint, fit: Fit) -> Choice | None:
        """What a transaction can commit of a checkpoint.

        Args:
            checkpoint: what is settled.
            fit: what of a checkpoint the commit can carry; ``covered`` is None where that is all of it.

        Returns:
            None: nothing, since the commit has no room for what earlier ones cover, or the checkpoint is
            an older one, or the assignment is over.
        """
        # 1. A flush waits for the transaction before it. 2. The revoke runs out of time, and the holding is closed: its
        # outputs are dropped. 3. The transaction begins, and the adapter has not closed the grant yet. The position
        # alone would lose the outputs.
        if self._is_closed:
            return None
        if not checkpoint.covers(self._committed):
            return None
        fitted = fit(checkpoint)
        if fitted.covered is not None:
            found = self._cut(checkpoint, fitted, fit)
            if found is None:
                return None
            checkpoint, fitted = found
        records = tuple(self._covered_by(checkpoint))
        outputs = tuple(each for index in records for each in self._settled[index].outputs)
        return Choice(checkpoint, fitted, outputs, records)

    def _cut(
        self, checkpoint: Checkpoint, fitted: Fitted, fit: Fit
    ) -> tuple[Checkpoint, Fitted] | None:
        """The lowest ranges that fit beside what is committed above them."""
        ranges = checkpoint.ranges
        kept = bisect_right([last for _, last in ranges], fitted.covered)
        lowest = replace(checkpoint, ranges=ranges[:kept])
        if not self._owed(lowest):
            return lowest, fitted
        best, bare = None, replace(checkpoint, attempts={}, written=None)
        fewest, most = 0, kept
        while fewest <= most:
            middle = (fewest + most) // 2
            lowest = replace(bare, ranges=ranges[:middle])
            tried = replace(lowest, ranges=lowest.ranges + self._owed(lowest))
            fitted = fit(tried)
            if fitted.covered is None:
                told = Fitted(fitted.data, covered(checkpoint, middle), len(checkpoint.attempts))
                best, fewest = (tried, told), middle + 1
            else:
                most = middle - 1
        return best

    def _owed(self, lowest: Checkpoint) -> tuple[Span, ...]:
        """The ranges of earlier commits above all of a checkpoint."""
        end = _end_of(lowest)
        return tuple(each for each in self._committed.ranges if end is None or each[0] > end)

    def _covered_by(self, checkpoint: Checkpoint) -> Iterator[int]:
        last, ranges = checkpoint.watermark, checkpoint.ranges
        for index, sent in self._settled.items():
            at: Any = sent.position
            if (last is not None and at <= last) or holds(ranges, (at, at)):
                yield index

    def committed(self, choice: Choice) -> None:
        """The transaction has committed."""
        self._committed = choice.checkpoint
        for index in choice.records:
            sent = self._settled.pop(index, None)
            if sent is not None:
                self.size -= sent.size


def _end_of(checkpoint: Checkpoint) -> Position | None:
    """The last position that it settles."""
    return checkpoint.ranges[-1][1] if checkpoint.ranges else checkpoint.watermark
