"""Runs, checkpoints and trackers for the tests of the log tracker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from consumer_sdk.records import (
    Assignment,
    Checkpoint,
    Message,
    Outcome,
    Partition,
    Position,
    Run,
    Tracked,
)
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker

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


def look(tracker: WatermarkTracker) -> Checkpoint:
    """The checkpoint now."""
    return tracker.checkpoint(NOW, WALL)


def settled(tracker: WatermarkTracker) -> tuple[Position | None, list[tuple[Position, Position]]]:
    """Watermark and ranges now."""
    checkpoint = look(tracker)
    return checkpoint.watermark, list(checkpoint.ranges)


def flush_durably(tracker: WatermarkTracker, now: float = NOW) -> Checkpoint:
    """Flushes, confirms it and returns what became durable."""
    flush = tracker.flush(now, WALL, force=True)
    assert flush is not None
    tracker.flushed(flush, Outcome.durable())
    return flush.checkpoint
