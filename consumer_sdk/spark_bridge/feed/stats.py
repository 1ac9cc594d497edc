"""Counts and state of a feed's writer, as a value."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FeedStats"]


@dataclass(frozen=True, slots=True)
class FeedStats:
    """What a feed has done since it was opened.

    Attributes:
        written: records that it made durable.
        dropped: records that were not written, because the directory had them already.
        pending: records whose segment is not durable yet.
        segments: segments in the directory, of all writers, as this writer last saw them.
        backlog_rows: records in segments that some reader of Spark has not committed, as last seen.
        backlog_bytes: bytes of those segments.
        committed: the first segment that some reader may still need, as last seen; None without
            a reader.
        is_full: the backlog is at its limit, and records wait for Spark.
        directory: of the feed.
        is_open: records can be put. If False, all values are those of the close, except this
            writer's own counts.
        backlog_segments: segments that some reader of Spark has not committed.
        backlog_age: seconds since the first segment of the backlog was written, by its writer's
            clock; 0 without one, None if unknown.
        segment_age: seconds since the last segment was written, of all writers; None without one.
    """

    written: int
    dropped: int
    pending: int
    segments: int
    backlog_rows: int
    backlog_bytes: int
    committed: int | None
    is_full: bool
    directory: str
    is_open: bool
    backlog_segments: int
    backlog_age: float | None
    segment_age: float | None
