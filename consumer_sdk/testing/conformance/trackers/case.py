"""What the tracker suites need of a tracker, and what their cases share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    Outcome,
    Partition,
    Position,
    Redelivery,
    Run,
    Tracked,
)
from consumer_sdk.trackers import RetryPolicy

__all__ = ["ASSIGNMENT", "DURABLE", "NOW", "POLICY", "WALL", "TrackerCase"]

ASSIGNMENT = Assignment(Partition("orders", "0"), epoch=1)
POLICY = RetryPolicy(max_attempts=3, initial=1.0, multiplier=2.0, maximum=10.0, jitter=0.0)
NOW, WALL = 100.0, 1_700_000_000.0
DURABLE = Outcome.durable()
RECORDS = 20
"""More than any case tracks."""


class Handled(Message):
    """A message with the adapter's own handle."""

    __slots__ = ("native",)


class TrackerCase:
    """Makes trackers, and says what they are told and asked in numbers of records."""

    def make_tracker(
        self,
        assignment: Assignment,
        wake: Callable[[], None],
        *,
        policy: RetryPolicy,
        flush_interval: float,
        ack_timeout: float | None,
    ) -> AckTracker:
        """A new tracker."""
        raise NotImplementedError

    def position(self, number: int) -> Position:
        """Where record ``number`` is; with gaps, as in a compacted log."""
        return number * 10

    def carried(self, flush: AckFlush) -> set[int]:
        """The records that a flush makes durable, as numbers."""
        raise NotImplementedError

    def tracker(
        self,
        records: int = 0,
        *,
        wake: Callable[[], None] = lambda: None,
        policy: RetryPolicy = POLICY,
        flush_interval: float = 0.0,
        ack_timeout: float | None = None,
    ) -> AckTracker:
        """A tracker that has tracked so many records."""
        tracker = self.make_tracker(
            ASSIGNMENT,
            wake,
            policy=policy,
            flush_interval=flush_interval,
            ack_timeout=ack_timeout,
        )
        if records:
            self.track(tracker, range(records))
        return tracker

    def track(
        self,
        tracker: AckTracker,
        numbers: Iterable[int],
        next_number: int | None = None,
        *,
        ended: bool = False,
        connection: str = "first",
    ) -> Tracked:
        """Tracks a run of records."""
        messages = self.messages(numbers, connection)
        following = None if next_number is None else self.position(next_number)
        return tracker.track(
            Run(ASSIGNMENT, messages, following, ended=ended, size=len(messages)), NOW
        )

    def messages(self, numbers: Iterable[int], connection: str = "first") -> list[Message]:
        """Untracked messages, of one byte each; their indices are their numbers."""
        made: list[Message] = []
        for number in numbers:
            message = Handled.make(ASSIGNMENT, self.position(number), b"v")
            message.index, message.native = number, f"{connection} {number}"
            made.append(message)
        return made

    def redelivery(self, message: Message, index: int, attempt: int) -> Redelivery:
        """A later delivery, as the runtime makes it."""
        again = Redelivery.of(message, attempt)
        again.index = index
        return again

    def restored(self, tracker: AckTracker, **fields: Any) -> AckTracker:
        """The tracker, started from a checkpoint whose positions are given as numbers.

        Nothing below the lowest of them was handed out, as one of a broker that redelivers says.
        """
        watermark, resume = fields.get("watermark"), fields.get("resume")
        settled = [first for first, _ in fields.get("ranges", ())]
        lowest = min([*settled, *([] if watermark is None else [watermark])], default=None)
        checkpoint = Checkpoint(
            watermark=None if watermark is None else self.position(watermark),
            resume=None if resume is None else self.position(resume),
            ranges=tuple(
                (self.position(first), self.position(last))
                for first, last in fields.get("ranges", ())
            ),
            attempts={
                self.position(number): attempt
                for number, attempt in fields.get("attempts", {}).items()
            },
            unseen=() if lowest is None else ((None, self.position(lowest)),),
        )
        tracker.restore(checkpoint, NOW, WALL, durable=fields.get("durable", True))
        return tracker

    def flush(self, tracker: AckTracker, now: float = NOW) -> AckFlush:
        """A forced flush that must have something."""
        flush = tracker.flush(now, WALL + now - NOW, force=True)
        assert flush is not None
        return flush

    def make_durable(self, tracker: AckTracker) -> AckFlush:
        """Flushes, and confirms it."""
        flush = self.flush(tracker)
        tracker.flushed(flush, DURABLE)
        return flush
