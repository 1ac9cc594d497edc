"""Reads a feed directory in Spark.

The offset is the number of the next manifest to read. So a range of offsets names a fixed list of
segments, and reading it again, on any executor, yields the same rows. An instance can be pickled to
executors at any time, because it holds no client, file or thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from consumer_sdk.spark_bridge.collector import begin_call
from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed.files import Files
from consumer_sdk.spark_bridge.feed.manifest_log import ManifestLog
from consumer_sdk.spark_bridge.feed.manifests import Manifest
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.spark_bridge.feed.segments import SegmentFile, pack, read_segments
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.pull.planning.admission import Limit
from consumer_sdk.spark_bridge.read_limits import (
    NextBatch,
    SupportsTriggerAvailableNow,
    to_spark,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

__all__ = ["Backlog", "FeedBatchReader", "FeedStreamReader", "WaitingSegment"]


# What a query without a reader name starts at. Spark asks for the start again when it restarts in
# its first batch, and nobody has held that one's segments: where it began is in the batch's end.
_UNRESOLVED = {"next": -1}

# Spark's default trigger asks for news 90 times a second. An idle answer is held back for this
# long, which is short enough that stopping a query does not wait for it.
_IDLE_STEPS = 10
_IDLE_STEP = 0.02


class Segments(InputPartition):
    """What one Spark task reads."""

    def __init__(self, files: Sequence[SegmentFile]) -> None:
        super().__init__(None)
        self.files = files


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader of one feed directory.

    Args:
        url: what to read.
        tasks: the most tasks for one micro-batch.
    """

    def __init__(self, url: FeedUrl, tasks: int) -> None:
        self._url = url
        self._tasks = tasks
        self._files = url.files()
        self._log = ManifestLog(self._files)
        self._mark = None if url.reader is None else ReaderMark(self._files, url.reader)
        self._backlog: Backlog | None = None
        self._first: int | None = None
        self._end_at = 0
        self._target: int | None = None
        self._next = NextBatch(self.initialOffset, _limit(url))
        self._let_go = -math.inf

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The first manifest that is kept. It is always the same, because a crash would skip records otherwise.

        A query with a reader name holds it from now on, so that it is the same also when Spark
        asks again after a restart. Without one it is a constant, which the end of the first
        batch resolves.
        """
        if self._mark is None:
            return _UNRESOLVED
        if self._first is None:
            self._first = self._mark.hold_all()
        return _offset(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The URL's limit for one micro-batch."""
        return to_spark(_limit(self._url))

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        """The end of the next micro-batch; ``start`` itself, after a short wait, if there are no new segments."""
        is_logged = start is not None or self._next.is_asked
        begin, admitted = self._next.asked(start, limit)
        end = self._end(begin, admitted, is_logged=is_logged)
        self._next.answered(end)
        return end

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Reads no further than what is there now."""
        first = self._backlog.end if self._backlog else self._log.floor()
        self._target = first + sum(1 for _ in self._log.news(first))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the feed as last seen, for progress reports.

        It also has the source's labels, and what waits behind the last answered end: see
        `spark_bridge.metrics.lag`.
        """
        if self._backlog is None:
            return None
        waiting = self._backlog.behind(self._end_at)
        report: dict[str, Any] = {
            **_offset(self._backlog.end),
            "broker": "feed",
            "group": self._url.reader,
            "directory": str(self._files.directory),
            "records": sum(each.rows for each in waiting),
        }
        if waiting and waiting[0].at:
            report["waiting"] = waiting[0].at / 1000
        return report

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The segments between two offsets, in few tasks."""
        self._next.planned(end)
        if start == end:
            return []
        first = _number(end, "since") if start == _UNRESOLVED else _number(start)
        manifests = self._manifests(first, _number(end))
        if self._mark:
            # A batch of before a restart: its checkpoint may be older than what the mark says.
            self._mark.hold(first)
        return _tasks([SegmentFile.of(manifest) for manifest in manifests], self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return _read(self._files, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Spark has logged everything below ``end`` as committed: it may be deleted.

        Raises:
            FeedError: another query uses the same reader name.
        """
        if self._mark:
            self._mark.move(_number(end))

    def _end(self, start: dict[str, int], limit: Limit, *, is_logged: bool) -> dict[str, int]:
        """Where the micro-batch from ``start`` ends.

        Args:
            start: where it begins.
            limit: what it may take.
            is_logged: Spark has logged what ends at ``start`` as committed. Before PySpark 4.2 it
                may ask before it repeats a micro-batch that a crash has left undone.
        """
        begin = self._begin(start)
        # A checkpoint of another feed must let nothing be deleted.
        self._known(begin)
        if self._mark and is_logged and not self._url.is_async:
            # Spark calls `commit` only when it has planned the next micro-batch, which a full
            # feed would wait for in vain.
            self._mark.move(begin)
        end = self._news(begin) if self._target is None else self._frozen(begin)
        end = self._known(begin).admit(begin, end, limit)
        if end > begin:
            self._let_go = time.monotonic()
        self._end_at = end
        if start == _UNRESOLVED:
            return {**_offset(end), "since": begin}
        return start if end == begin else _offset(end)

    def _begin(self, start: dict[str, int]) -> int:
        if start != _UNRESOLVED:
            return _number(start)
        if self._first is None:
            self._first = self._log.floor()
        return self._first

    def _manifests(self, first: int, last: int) -> list[Manifest]:
        found = [self._log.find(number) for number in range(first, last)]
        # The floor afterwards: below it,
        # 1. a manifest that Spark has planned may have been deleted,
        # 2. a writer that was stopped meanwhile may have claimed its number, for other records,
        # 3. and this has read that one.
        self._log.check_kept(first)
        return [each or self._log.read(first + at) for at, each in enumerate(found)]

    def _known(self, begin: int) -> Backlog:
        """The backlog from ``begin`` on, without looking for news."""
        if self._backlog is None:
            self._check_start(begin)
            self._backlog = Backlog(first=begin)
        self._backlog.drop_below(begin)
        return self._backlog

    def _check_start(self, begin: int) -> None:
        self._log.check_complete()
        self._log.check_kept(begin)
        if begin > self._log.floor():
            self._log.read(begin - 1)

    def _look(self, begin: int) -> int:
        """Takes in new manifests; returns the end."""
        backlog = self._known(begin)
        for manifest in self._log.news(backlog.end):
            backlog.segments.append(WaitingSegment(manifest.rows, manifest.size, manifest.at))
        return backlog.end

    def _news(self, begin: int) -> int:
        end = self._wait(begin)
        # The floor afterwards: a manifest that is not there may have been deleted, rather than not
        # be written yet.
        self._log.check_kept(begin)
        return end

    def _wait(self, begin: int) -> int:
        for _ in range(_IDLE_STEPS):
            if (end := self._enough(begin)) > begin:
                return end
            time.sleep(_IDLE_STEP)
        return self._enough(begin)

    def _enough(self, begin: int) -> int:
        """The end, if as many rows wait as a batch has at least, or for long enough."""
        end = self._look(begin)
        is_due = time.monotonic() >= self._let_go + self._url.max_delay
        return end if is_due or self._known(begin).rows >= (self._url.min_rows or 0) else begin

    def _frozen(self, begin: int) -> int:
        """The target of an AvailableNow run; what Spark planned before may lie beyond it."""
        self._look(begin)
        return max(begin, self._target or 0)


class FeedBatchReader(DataSourceReader):
    """The batch reader: every segment that is there when Spark plans the query."""

    def __init__(self, url: FeedUrl, tasks: int) -> None:
        self._files = url.files()
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """All segments, in few tasks."""
        log = ManifestLog(self._files)
        log.check_complete()
        first = log.floor()
        files = [SegmentFile.of(manifest) for manifest in log.news(first)]
        log.check_kept(first)
        return _tasks(files, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return _read(self._files, partition)


def _tasks(files: Sequence[SegmentFile], most: int) -> list[InputPartition]:
    return [Segments(part) for part in pack(files, most)]


def _read(files: Files, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    begin_call()
    # Spark calls read once, with None, when there was nothing to plan.
    segments = partition.files if isinstance(partition, Segments) else ()
    return read_segments(files, segments)


def _limit(url: FeedUrl) -> Limit:
    if url.max_rows is not None:
        return Limit("max_rows", url.max_rows)
    return Limit("all") if url.max_bytes is None else Limit("max_bytes", url.max_bytes)


def _offset(number: int) -> dict[str, int]:
    return {"next": number}


def _number(offset: dict[str, Any], name: str = "next") -> int:
    number = offset.get(name)
    if type(number) is not int or number < 0:
        raise FeedFormatError(
            f"the query's checkpoint holds the offset {offset!r}, which is not a feed's: "
            "was this checkpoint location used with another source?"
        )
    return number


# -- which of the segments that wait go into the next micro-batch --------------------------


class WaitingSegment(NamedTuple):
    """A segment that Spark has not taken.

    Attributes:
        rows: in it.
        size: bytes of its file.
        at: when it was written, in milliseconds since the epoch.
    """

    rows: int
    size: int
    at: int


@dataclass(slots=True)
class Backlog:
    """Rows and bytes of the segments that Spark has not taken yet.

    Attributes:
        first: the number of the first one.
        segments: each of them, from ``first`` on.
    """

    first: int = 0
    segments: list[WaitingSegment] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.first + len(self.segments)

    @property
    def rows(self) -> int:
        """Of all of them."""
        return sum(each.rows for each in self.segments)

    def behind(self, end: int) -> Sequence[WaitingSegment]:
        """Those that wait behind ``end``."""
        return self.segments[max(0, end - self.first) :]

    def drop_below(self, number: int) -> None:
        """Spark has taken everything below ``number``."""
        del self.segments[: max(0, number - self.first)]
        self.first = max(self.first, number)

    def admit(self, start: int, end: int, limit: Limit) -> int:
        """Where a read that starts at ``start`` ends, at most ``end``; at least one segment."""
        waiting = self.segments[start - self.first : end - self.first]
        match limit.kind:
            case "max_files":
                return start + min(len(waiting), max(1, limit.number))
            case "max_rows":
                return start + _fitting([each.rows for each in waiting], limit.number)
            case "max_bytes":
                return start + _fitting([each.size for each in waiting], limit.number)
            case "min_rows" if sum(each.rows for each in waiting) < limit.number:
                return start
        return start + len(waiting)


def _fitting(costs: Sequence[int], budget: int) -> int:
    """How many of ``costs`` fit; one always does, else a large segment would block for ever."""
    for count, cost in enumerate(costs):
        budget -= cost
        if budget < 0:
            return max(1, count)
    return len(costs)
