"""The ack tracker of a log: a watermark, and settled ranges above it.

The ideas are storm-kafka's PartitionManager (pending and failed offsets of one partition),
kinesis-storm-spout's InflightRecordTracker (acked runs between unacked records, retries) and
Pulsar's acknowledgment grouping (acks collected between flushes); the structure is
`consumer_sdk.trackers.chunks`.

Rules, beside those of `consumer_sdk.trackers.base_tracker`:
 1. Of a broker that is read by position, a position at or below the last one seen gets no index: it
    is a re-fetch. A run that brings new records out of order is refused, since they could not be
    told from those.
 2. Of a broker that redelivers, a record that was never seen is not settled. If it lies below the last
    position seen, in a gap between seen ones (`consumer_sdk.trackers.unseen`), it is delivered late. Its
    index follows the order of arrival. Settled spans leave it out, and its gap stays in checkpoints
    until it is settled.
 3. A range is made of neighbours in arrival order: nothing that this epoch saw lies in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Unpack

from consumer_sdk.errors import AdapterError
from consumer_sdk.options import FLAG
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    Outcome,
    Position,
    Run,
    Tracked,
)
from consumer_sdk.records.ranges import Interval, Span
from consumer_sdk.records.runs import TrackedLists
from consumer_sdk.trackers.base_tracker import BaseTracker
from consumer_sdk.trackers.chunks import DONE
from consumer_sdk.trackers.options import CALLABLE, TrackerOptions
from consumer_sdk.trackers.restored import Restored
from consumer_sdk.trackers.unflushed import Unflushed
from consumer_sdk.trackers.unseen import Gaps, Unseen, every_gap, trusted
from consumer_sdk.trackers.window import is_ascending

__all__ = ["WatermarkTracker"]


class WatermarkTracker(BaseTracker):
    """Tracks one assignment of a log.

    Args:
        keeps_ranges: whoever stores the flushes keeps ranges and attempts too. If not, flushes
            carry a position alone, which costs the same however many holes there are, and
            receipts above a hole stay open until it closes.
        names_settled: flushes name each settled record with its native handle. A record that the
            broker redelivers although it was settled here, or in the checkpoint, is named again; one
            that it delivers late, below others, is tracked.
        gaps: with ``names_settled``: of ascending positions, the offsets of those with room for a
            record between them and the one before. By default there is room before each. Beyond
            4096 such places (256 in a checkpoint) the lowest are forgotten, with what was settled
            below them: should the broker redeliver that, it is delivered again.
        options: see `TrackerOptions`.

    Raises:
        ConfigurationError: an option that cannot work.

    Concurrency: one thread. O(1) amortised for each record, memory O(unsettled + holes).
    """

    __slots__ = (
        "_ended",
        "_gaps",
        "_is_cut",
        "_keeps_ranges",
        "_last_seen",
        "_late_index",
        "_next_position",
        "_passed_over",
        "_span_end",
    )

    def __init__(
        self,
        assignment: Assignment,
        wake: Callable[[], None] = lambda: None,
        *,
        keeps_ranges: bool = True,
        names_settled: bool = False,
        gaps: Gaps = every_gap,
        **options: Unpack[TrackerOptions],
    ) -> None:
        FLAG.check("keeps_ranges", keeps_ranges)
        FLAG.check("names_settled", names_settled)
        CALLABLE.check("gaps", gaps)
        super().__init__(
            assignment, wake, settled=Unflushed() if names_settled else None, **options
        )
        self._keeps_ranges = keeps_ranges
        self._gaps = gaps
        self._passed_over = Unseen(gaps) if names_settled else None
        self._late_index: dict[Position, int] = {}  # of what came late, until it is settled
        self._is_cut = False
        self._last_seen: Position | None = None
        self._span_end: Position | None = None  # of the restored range that it lies in
        self._next_position: Position | None = None
        self._ended = False

    # -- tracking -------------------------------------------------------------------------

    def _restore(self, checkpoint: Checkpoint, now: float, wall: float) -> None:
        self._window.prefix = self._last_seen = checkpoint.watermark
        if self._passed_over is not None:
            checkpoint, unseen = trusted(checkpoint)
            self._passed_over = Unseen(self._gaps, unseen)
        self._restored = Restored(checkpoint, now, wall, self._policy.maximum)
        self._ended = checkpoint.ended

    def close(self) -> None:
        super().close()
        self._late_index = {}
        self._passed_over = None

    def track(self, run: Run, now: float) -> Tracked:
        if self._is_closed:
            return Tracked(0, 0, dropped=range(len(run.messages)))
        self._has_tracked = True
        positions = run.positions
        ascend = run.ascends or self._ascend(positions)
        if not ascend:
            self._check_order(positions)
        if run.last is not None:
            self._reopen(positions[0], run.last)
        self._moved(run, is_empty=not positions)
        if not positions:
            return Tracked(self._window.minted, 0)
        if not (ascend and self._restored.is_over and self._is_new(positions[0])):
            return self._track_slowly(run, positions, now)
        if self._passed_over is not None:
            self._passed_over.seen(self._last_seen, positions)
        self._last_seen = positions[-1]
        first = self._window.mint(positions, run.size, self._fresh, now)
        if self._settled is not None:
            self._window.set_natives(first, run.natives)
        return Tracked(first, len(positions))

    def _reopen(self, first: Position, last: Position) -> None:
        """What comes as one message is settled only if all of it is: else none of it counts as that.

        The message stands at its first position. Were that one known to be settled, the adapter
        would go on behind the last, and pass what was not.
        """
        if self._restored.reopen(first, last):
            self._span_end = None
        is_seen_in_part = not self._is_new(first) and self._is_new(last)
        if is_seen_in_part and not self._window.minted:  # the checkpoint's watermark lies in it
            self._window.prefix = self._last_seen = None

    def _ascend(self, positions: list[Position]) -> bool:
        """Sorting what is sorted is the cheapest look: a quarter of `is_ascending` for integers.

        It lets a record pass that stands twice in a run, which is then delivered twice. A broker
        that redelivers may do that, and acks each by its handle.
        """
        return sorted(positions) == positions if self._settled is None else is_ascending(positions)

    def _check_order(self, positions: Sequence[Position]) -> None:
        """What was seen before may come again, also in the middle of a run; but in order.

        A new record below the last one seen would count as seen: settled with the next ack above
        it, and lost.
        """
        new = list(dict.fromkeys(filter(self._is_new, positions)))
        for before, after in pairwise(new):
            if after < before:
                raise AdapterError(
                    f"{self._assignment.partition}: a run goes back from position {before!r} to "
                    f"{after!r}, which is new; a log's records come in ascending order. Sort them, "
                    f"or use a QueueTracker where the broker keeps no order"
                )

    def _is_new(self, position: Position) -> bool:
        return self._last_seen is None or bool(position > self._last_seen)

    def _moved(self, run: Run, *, is_empty: bool) -> None:
        before, after = self._next_position, run.next_position
        moved = after is not None and (before is None or bool(after > before))
        if moved:
            self._next_position = after
        if (moved and is_empty) or (run.ended and not self._ended):
            self._dirty()
        self._ended = self._ended or run.ended

    def _track_slowly(self, run: Run, positions: list[Position], now: float) -> Tracked:
        found = TrackedLists()
        first = self._window.minted
        size = run.size // len(positions)
        passed: list[int] = []
        for offset, position in enumerate(positions):
            if self._is_new(position) and self._reach(position):
                self._track_one(run.messages[offset], size, now, found)
            else:
                passed.append(offset)
        self._restored.passed(self._last_seen, self._passed_over or ())
        minted = self._window.minted
        if self._passed_over is None:
            found.dropped = passed
        else:
            self._track_passed(self._passed_over, run, passed, now, found)
        if found.dropped or found.settled:
            self._dirty()  # the position may have moved with nothing left to ack
        return found.tracked(first, minted)

    def _reach(self, position: Position) -> bool:
        """It is the highest now; False: the checkpoint has it in a settled range, but as not seen."""
        last, self._last_seen = self._last_seen, position
        if self._passed_over is None:
            return True
        self._passed_over.passed(last, self._restored.ranges_below(position), position)
        is_missing = not self._restored.is_over and position in self._passed_over
        return not is_missing or self._restored.end_of(position) is None

    def _track_one(self, message: Message, size: int, now: float, found: TrackedLists) -> None:
        position = message.position
        span_end = self._restored.end_of(position)
        if self._span_end not in (None, span_end):
            self._window.reach(self._span_end)
        self._span_end = span_end
        if span_end is not None:
            found.settled.append(self._window.mint([position], size, DONE, now))
            if self._settled is not None:
                self._settled.add(position, message.native)
            return
        index = self._window.mint([position], size, self._fresh, now)
        if self._settled is not None:
            self._window.set_natives(index, [message.native])
        self._resume_delivery(index, message, now, found)

    def _track_passed(
        self, passed_over: Unseen, run: Run, offsets: Sequence[int], now: float, found: TrackedLists
    ) -> None:
        """The broker has sent records below the last one seen: most of them once more."""
        assert self._settled is not None  # noqa: S101 - it has told of what was passed over
        self._learn_settled_late()
        ascending = sorted(offsets, key=lambda offset: run.messages[offset].position)
        late: dict[Position, int] = {}
        positions = [run.messages[offset].position for offset in ascending]
        in_line = self._window.find(positions)
        for at, offset, position in zip(in_line, ascending, positions, strict=True):
            index = self._late_index.get(position, at)
            native = run.messages[offset].native
            if index >= 0:  # it knows this one by a new native handle
                self._window.replace_native(index, native)
            elif position not in passed_over:
                self._settled.add(position, native)
            elif late.setdefault(position, offset) == offset:
                continue
            found.dropped.append(offset)
        found.dropped.sort()
        self._track_late(run, list(late.values()), now, found)

    def _track_late(
        self, run: Run, offsets: Sequence[int], now: float, found: TrackedLists
    ) -> None:
        if not offsets:
            return
        messages = [run.messages[offset] for offset in offsets]
        positions = [message.position for message in messages]
        size = run.size * len(messages) // len(run.messages)
        first = self._window.mint_late(positions, size, self._fresh, now)
        self._window.set_natives(first, [message.native for message in messages])
        for index, message in enumerate(messages, first):
            self._late_index[message.position] = index
            self._resume_delivery(index, message, now, found)
            self._restored.attempts.pop(message.position, None)
        found.late = dict(zip(offsets, range(first, first + len(offsets)), strict=True))

    def _learn_settled_late(self) -> None:
        """Looks which of the records that came late are settled: where they lay is known then."""
        done = [position for position, index in self._late_index.items() if self.is_settled(index)]
        if not done or self._passed_over is None:
            return
        for position in done:
            del self._late_index[position]
        still_open = sorted(self._late_index)
        for position in done:
            self._passed_over.settled(position, still_open)

    def _stored_unseen(self) -> tuple[Interval, ...]:
        if self._passed_over is None:
            return ()
        self._learn_settled_late()
        return self._passed_over.stored()

    # -- flushing -------------------------------------------------------------------------

    def _take(self, number: int, now: float, wall: float) -> AckFlush:
        checkpoint = self._checkpoint(now, wall) if self._keeps_ranges else self._position_only()
        settled = () if self._settled is None else self._settled.take()
        return AckFlush(self._assignment, number, checkpoint, settled)

    def _confirmed(self, outcome: Outcome, now: float) -> bool:  # noqa: ARG002 - of a queue only
        if self._settled is not None:
            self._settled.confirm()
        # Where a size budget dropped the top ranges, their receipts stay open until a later
        # flush covers them.
        return outcome.covered is None and not self._is_cut

    def _put_back(self) -> None:
        if self._settled is not None:
            self._settled.put_back()

    def _checkpoint(self, now: float, wall: float) -> Checkpoint:
        watermark, ranges = self._settled_spans()
        first = self._window.first_unsettled()
        attempts = self._attempts(now, wall)
        return Checkpoint(
            watermark=watermark,
            resume=self._resume(first, watermark),
            ranges=tuple(ranges),
            attempts=attempts,
            ended=self._ended and first < 0,
            identity=self._identity,
            application=self._application,
            written=self._written(attempts, wall),
            unseen=self._stored_unseen(),
        )

    def _position_only(self) -> Checkpoint:
        self._window.thin_out()  # where ranges are kept, looking for them does
        first, watermark = self._window.first_unsettled(), self._window.watermark()
        self._is_cut = first >= 0 and self.unsettled < self._window.minted - first
        return Checkpoint(
            watermark=watermark,
            resume=self._resume(first, watermark),
            ended=self._ended and first < 0,
            identity=self._identity,
            application=self._application,
            unseen=self._stored_unseen(),
        )

    def _settled_spans(self) -> tuple[Position | None, list[Span]]:
        return self._restored.append_to(*self._window.settled_spans())

    def _resume(self, first_unsettled: int, watermark: Position | None) -> Position | None:
        if first_unsettled >= 0:
            late = [p for p, index in self._late_index.items() if not self.is_settled(index)]
            in_line = self._window.first_unsettled_position()
            return min(late if in_line is None else (in_line, *late))
        if self._next_position is not None:
            return self._next_position
        return watermark if self._window.minted else self._restored.resume

    def _holes(self) -> tuple[Position | None, int]:
        watermark, ranges = self._settled_spans()
        return watermark, len(ranges)
