"""Runs, checkpoints and trackers for the tests of both kinds of tracker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Run,
    Tracked,
)
from consumer_sdk.trackers import QueueTracker, RetryPolicy, WatermarkTracker

ASSIGNMENT = Assignment(Partition("orders", "0"), epoch=1)
POLICY = RetryPolicy(max_attempts=3, initial=1.0, multiplier=2.0, maximum=8.0, jitter=0.0)
NOW, WALL = 100.0, 1_000_000.0


def make_run(
    positions: Iterable[Position], next_position: Position | None = None, *, ended: bool = False
) -> Run:
    """A run of records of 8 bytes each."""
    messages = [Message.make(ASSIGNMENT, position, b"8 bytes.") for position in positions]
    return Run(ASSIGNMENT, messages, next_position, ended=ended, size=8 * len(messages))


def make_tracker(*, policy: RetryPolicy = POLICY, **options: Any) -> WatermarkTracker:
    """A tracker that flushes at once, in chunks of 4 records unless told otherwise."""
    defaults: dict[str, Any] = {"flush_interval": 0.0, "chunk_bits": 2, "random": lambda: 0.0}
    return WatermarkTracker(ASSIGNMENT, policy=policy, **(defaults | options))


def tracking(positions: Iterable[Position], **options: Any) -> WatermarkTracker:
    """A tracker that tracks ``positions``; record number i has index i."""
    tracker = make_tracker(**options)
    track(tracker, positions)
    return tracker


def track(
    tracker: WatermarkTracker,
    positions: Iterable[Position],
    next_position: Position | None = None,
    *,
    ended: bool = False,
    now: float = NOW,
) -> Tracked:
    """Tracks a run of ``positions``."""
    return tracker.track(make_run(positions, next_position, ended=ended), now)


def restored(
    watermark: Position | None = None,
    resume: Position | None = None,
    ranges: tuple[tuple[Position, Position], ...] = (),
    attempts: Mapping[Position, tuple[int, float]] | None = None,
    **options: Any,
) -> WatermarkTracker:
    """A tracker that starts from a durable checkpoint."""
    tracker = make_tracker(**options)
    checkpoint = Checkpoint(watermark, resume, ranges, attempts or {})
    tracker.restore(checkpoint, NOW, WALL, durable=True)
    return tracker


def look(tracker: QueueTracker | WatermarkTracker) -> Checkpoint:
    """The checkpoint now."""
    return tracker.checkpoint(NOW, WALL)


def settled(tracker: WatermarkTracker) -> tuple[Position | None, list[tuple[Position, Position]]]:
    """Watermark and ranges now."""
    checkpoint = look(tracker)
    return checkpoint.watermark, list(checkpoint.ranges)


def flush_durably(tracker: QueueTracker | WatermarkTracker, now: float = NOW) -> Checkpoint:
    """Flushes, confirms it and returns what became durable."""
    flush = tracker.flush(now, WALL, force=True)
    assert flush is not None
    tracker.flushed(flush, Outcome.durable())
    return flush.checkpoint


# -- with the adapter's own handles -----------------------------------------------------------


class Native(Message):
    """A message with the adapter's own handle."""

    __slots__ = ("native",)


def make_queue(*, policy: RetryPolicy = POLICY, **options: Any) -> QueueTracker:
    """A queue's tracker that flushes at once, in chunks of 4 records unless told otherwise."""
    defaults: dict[str, Any] = {"flush_interval": 0.0, "chunk_bits": 2, "random": lambda: 0.0}
    return QueueTracker(ASSIGNMENT, policy=policy, **(defaults | options))


def make_delivery(positions: Iterable[Position], connection: str = "first") -> Run:
    """A run whose handles name the connection and the position."""
    messages = [Native.make(ASSIGNMENT, position, b"8 bytes.") for position in positions]
    for message in messages:
        message.native = f"{connection} {message.position}"
    return Run(ASSIGNMENT, messages, size=8 * len(messages))


def deliver(
    tracker: QueueTracker | WatermarkTracker,
    positions: Iterable[Position],
    connection: str = "first",
) -> Tracked:
    """Tracks a run of ``positions``, whose handles name the connection."""
    return tracker.track(make_delivery(positions, connection), NOW)


def take(tracker: QueueTracker | WatermarkTracker, now: float = NOW) -> AckFlush:
    """A flush on its way."""
    flush = tracker.flush(now, WALL + now - NOW, force=True)
    assert flush is not None
    return flush


def send(
    tracker: QueueTracker | WatermarkTracker, now: float = NOW
) -> Sequence[tuple[Position, Any]]:
    """Flushes, confirms it, and returns what it named."""
    flush = take(tracker, now)
    tracker.flushed(flush, Outcome(OutcomeKind.SENT))
    return sorted(flush.settled)
