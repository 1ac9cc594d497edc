"""What a feed's writer has done and sees, as a value."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FeedStats"]


@dataclass(frozen=True, slots=True)
class FeedStats:
    """What a feed has done since it was opened.

    Attributes:
        written: records that it made durable.
        dropped: records that were in the directory already, and so were not written again.
        pending: records that wait for their group to be durable.
        segments: segments in the directory, of all writers, as far as this one has looked.
        backlog_rows: records in segments that Spark's readers have not all committed, likewise.
        backlog_bytes: bytes of those segments.
        committed: the first segment that some reader may still need, as last seen; None without
            a reader.
        is_full: records wait for Spark, because the backlog is at its limit.
        directory: of the feed.
        is_open: records can be put; else all but what it has done is of when it was closed.
        backlog_segments: segments that Spark's readers have not all committed.
        backlog_age: seconds since the first of those was written, by its writer's clock; 0 without
            one, None where it does not say.
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
