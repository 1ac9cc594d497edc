"""What one writer knows of a feed: its contents, and what segments wait for Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from consumer_sdk.spark_bridge.feed.log.known_positions import Contents
from consumer_sdk.spark_bridge.feed.log.manifest_log import ManifestLog
from consumer_sdk.spark_bridge.feed.manifests import Manifest, Summary

__all__ = ["FeedIndex", "Kept", "Unread"]


class Unread(NamedTuple):
    """Segments that some reader has not committed.

    Attributes:
        rows: records in them.
        size: their bytes.
        segments: how many.
        at: what the first one's manifest says as its time; 0 without one.
    """

    rows: int = 0
    size: int = 0
    segments: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment that is not deleted.

    Attributes:
        number: its manifest's.
        segment: its file name.
        rows: records in all segments that this writer has seen, up to and with this one.
        size: their bytes, likewise.
        at: the time that the manifest says.
    """

    number: int
    segment: str
    rows: int
    size: int
    at: int


class FeedIndex:
    """Follows a log. Only what the log's rule about the floor lets count gets into it.

    Ages are measured by this writer's own clock, from when it saw something. Only of what was
    there before it looked first it believes the manifests' times, and only as to how long before
    the last one a manifest was: clocks of writers may differ by as much as ``remember``.

    Args:
        log: what to follow.
        remember: seconds for which text positions are known at least.
        clock: seconds, never falling.
    """

    def __init__(self, log: ManifestLog, remember: float, clock: Callable[[], float]) -> None:
        self._log = log
        self._remember = remember
        self._clock = clock
        self.contents = Contents()
        self.kept: list[Kept] = []
        self.floor = self.next = 0
        self.at = 0
        """The time that the last manifest says."""
        self._rows = self._size = 0
        self._dropped = 0, 0
        self._commits: deque[tuple[int, float]] = deque()

    def load(self) -> Summary:
        """Reads everything anew; returns the summary of what was deleted."""
        while True:
            summary = self._log.summary()
            self._start(summary)
            self._log.check_complete()
            for manifest in self._log.news(summary.number):
                self._take(manifest, manifest.at / 1000)
                # Twice, since here the manifests' times count: the writers' clocks may differ.
                self.contents.forget(2 * self._remember)
            if self._log.floor() == summary.number:
                self.contents.renew(self._clock())
                return summary

    def follow(self) -> Sequence[Manifest] | None:
        """Takes in the manifests that have appeared.

        Returns:
            them; None if they, or a claim made since, may be below the floor: everything was
            read anew.
        """
        news = list(self._log.news(self.next))
        floor = self._log.floor()
        if floor > self.next:
            self.load()
            return None
        self.drop_below(floor)
        for manifest in news:
            self._take(manifest, self._clock())
        return news

    def forget(self) -> None:
        """Drops text positions that are old enough."""
        self.contents.forget(self._remember)

    def unread(self, committed: int | None) -> Unread:
        """What is kept and not committed by every reader yet.

        Args:
            committed: the first number that some reader may read again; None without a reader.
        """
        first = max(0, (committed or 0) - self.floor)
        if first >= len(self.kept):
            return Unread()
        oldest, last = self.kept[first], self.kept[-1]
        rows, size = self._before(oldest.number)
        return Unread(last.rows - rows, last.size - size, len(self.kept) - first, oldest.at)

    def commits(self, number: int) -> None:
        """Every reader has committed what is below ``number``, as is seen just now."""
        seen = self._commits
        when = self._clock()
        # A reader may fall back, to what was committed when it was ahead.
        while seen and seen[-1][0] >= number:
            when = seen.pop()[1]
        seen.append((number, when))

    def expired(self, keep_for: float, most: int) -> int:
        """The first number that has to be kept, at most ``most`` above the floor.

        Args:
            keep_for: seconds that a segment is kept after this writer saw it committed.
            most: segments.
        """
        limit = self._clock() - keep_for
        while len(self._commits) > 1 and self._commits[1][1] <= limit:
            self._commits.popleft()
        number, when = self._commits[0] if self._commits else (0, limit)
        last = number if when <= limit else self.floor
        return max(self.floor, min(last, self.floor + min(most, len(self.kept))))

    def drop_below(self, number: int) -> None:
        """The segments below ``number`` are deleted."""
        count = max(0, number - self.floor)
        if count:
            last = self.kept[count - 1]
            self._dropped = last.rows, last.size
            del self.kept[:count]
            self.floor = number

    def _start(self, summary: Summary) -> None:
        self.contents = Contents(summary.ranges)
        self.kept = []
        self.floor = self.next = summary.number
        self._rows = self._size = 0
        self._dropped = 0, 0
        self.at = max(self.at, summary.at)
        for first, last in summary.remembered:
            for number in range(first, last + 1):
                if manifest := self._log.find(number):
                    self.contents.add(manifest, manifest.at / 1000)

    def _take(self, manifest: Manifest, age: float) -> None:
        self.contents.add(manifest, age)
        self.next = manifest.number + 1
        self.at = max(self.at, manifest.at)
        self._rows += manifest.rows
        self._size += manifest.size
        kept = Kept(manifest.number, manifest.segment, self._rows, self._size, manifest.at)
        self.kept.append(kept)

    def _before(self, number: int) -> tuple[int, int]:
        """Rows and bytes of all that was seen before ``number``, one of those kept."""
        at = number - self.floor
        if at:
            return self.kept[at - 1].rows, self.kept[at - 1].size
        return self._dropped
