"""The ack tracker of a log: a watermark, and settled ranges above it.

The ideas are storm-kafka's PartitionManager (pending and failed offsets of one partition),
kinesis-storm-spout's InflightRecordTracker (acked runs between unacked records, retries) and
Pulsar's acknowledgment grouping (acks collected between flushes); the structure is
`consumer_sdk.trackers.chunks`.

Rules, beside those of `consumer_sdk.trackers.deliveries`:
 1. A position at or below the last one seen gets no index: it is a re-fetch.
 2. A range is made of neighbours in arrival order: nothing that this epoch saw lies in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

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
from consumer_sdk.trackers.chunks import DONE, Span
from consumer_sdk.trackers.deliveries import Deliveries
from consumer_sdk.trackers.found import Found
from consumer_sdk.trackers.restored import Restored
from consumer_sdk.trackers.settled import Unsent
from consumer_sdk.trackers.window import is_ascending

__all__ = ["WatermarkTracker"]

_POSITION = attrgetter("position")


class WatermarkTracker(Deliveries):
    """Tracks one assignment of a log.

    Args:
        keeps_ranges: whoever stores the flushes keeps ranges and attempts too. If not, flushes
            carry a position alone, which costs the same however many holes there are, and
            receipts above a hole stay open until it closes.
        names_settled: flushes name each settled record with its native handle, and a record
            that the broker redelivers although it was settled is named again.
        options: see `Deliveries`.

    Concurrency: one thread. O(1) amortised for each record, memory O(unsettled + holes).
    """

    __slots__ = (
        "_ended",
        "_is_cut",
        "_keeps_ranges",
        "_last_seen",
        "_next_position",
        "_span_end",
    )

    def __init__(
        self,
        assignment: Assignment,
        wake: Callable[[], None] = lambda: None,
        *,
        keeps_ranges: bool = True,
        names_settled: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(assignment, wake, settled=Unsent() if names_settled else None, **options)
        self._keeps_ranges = keeps_ranges
        self._is_cut = False
        self._last_seen: Position | None = None
        self._span_end: Position | None = None  # of the restored range that it lies in
        self._next_position: Position | None = None
        self._ended = False

    # -- tracking -------------------------------------------------------------------------

    def restore(self, checkpoint: Checkpoint, now: float, wall: float, *, durable: bool) -> None:
        self._window.prefix = self._last_seen = checkpoint.watermark
        self._restored = Restored(checkpoint, now, wall, self._policy.maximum)
        self._ended = checkpoint.ended
        self._identity = self._identity or checkpoint.identity
        self._application = checkpoint.application
        if not durable:
            self._dirty()

    def track(self, run: Run, now: float) -> Tracked:
        if self._is_closed:
            return Tracked(0, 0, dropped=range(len(run.messages)))
        positions = [message.position for message in run.messages]
        self._moved(run, is_empty=not positions)
        if not positions:
            return Tracked(self._window.minted, 0)
        if not self._restored.is_over or not self._are_new(positions, ascend=run.ascends):
            return self._track_slowly(run, positions, now)
        self._last_seen = positions[-1]
        first = self._window.mint(positions, run.size, self._fresh, now)
        if self._settled is not None:
            self._window.set_natives(first, [message.native for message in run.messages])
        return Tracked(first, len(positions))

    def _are_new(self, positions: Sequence[Position], *, ascend: bool) -> bool:
        """All are. A broker that redelivers may do so in the middle of a run."""
        if not self._is_new(positions[0]):
            return False
        is_known = ascend or self._settled is None
        return is_known or is_ascending(positions)

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
        found = Found()
        first = self._window.minted
        size = run.size // len(positions)
        for offset, position in enumerate(positions):
            if self._is_new(position):
                self._last_seen = position
                self._track_one(run.messages[offset], size, now, found)
            else:
                found.dropped.append(offset)
        self._restored.passed(self._last_seen)
        if self._settled is not None:
            self._name_again(self._settled, [run.messages[offset] for offset in found.dropped])
        if found.dropped or found.settled:
            self._dirty()  # the position may have moved with nothing left to ack
        return found.tracked(first, self._window.minted)

    def _track_one(self, message: Message, size: int, now: float, found: Found) -> None:
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

    def _name_again(self, settled: Unsent, messages: Sequence[Message]) -> None:
        """The broker has redelivered these: it knows them by new native handles."""
        ascending = sorted(messages, key=_POSITION)
        indices = self._window.find([message.position for message in ascending])
        for index, message in zip(indices, ascending, strict=True):
            if index >= 0:
                self._window.replace_native(index, message.native)
            else:
                settled.add(message.position, message.native)

    # -- flushing -------------------------------------------------------------------------

    def _take(self, number: int, now: float, wall: float) -> AckFlush:
        checkpoint = self.checkpoint(now, wall) if self._keeps_ranges else self._position_only()
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

    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        watermark, ranges = self._settled_spans()
        first = self._window.first_unsettled()
        return Checkpoint(
            watermark=watermark,
            resume=self._resume(first, watermark),
            ranges=tuple(ranges),
            attempts=self._attempts(now, wall),
            ended=self._ended and first < 0,
            identity=self._identity,
            application=self._application,
        )

    def _position_only(self) -> Checkpoint:
        first, watermark = self._window.first_unsettled(), self._window.watermark()
        self._is_cut = first >= 0 and self.unsettled < self._window.minted - first
        return Checkpoint(
            watermark=watermark,
            resume=self._resume(first, watermark),
            ended=self._ended and first < 0,
            identity=self._identity,
            application=self._application,
        )

    def _settled_spans(self) -> tuple[Position | None, list[Span]]:
        return self._restored.append_to(*self._window.settled_spans())

    def _resume(self, first_unsettled: int, watermark: Position | None) -> Position | None:
        if first_unsettled >= 0:
            return self._window.position(first_unsettled)
        if self._next_position is not None:
            return self._next_position
        return watermark if self._window.minted else self._restored.resume

    def _holes(self) -> tuple[Position | None, int]:
        watermark, ranges = self._settled_spans()
        return watermark, len(ranges)
