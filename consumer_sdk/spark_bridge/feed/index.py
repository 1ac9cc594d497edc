"""One writer's index of a feed: which records the feed has, and which segments wait for Spark.

- `FeedIndex` follows the manifest log.
- `KnownPositions` has the positions of every record in the feed, so that one that comes again is
  recognised.
- `IntervalSet` keeps a partition's integer positions, in memory that grows with the gaps alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from consumer_sdk.spark_bridge.feed.manifest_log import ManifestLog
from consumer_sdk.spark_bridge.feed.manifests import Manifest, Summary
from consumer_sdk.spark_bridge.feed.segments import Place, Rows, are_numbers

__all__ = [
    "FeedIndex",
    "IntervalSet",
    "KeptSegment",
    "KnownPositions",
    "Unread",
    "intervals_of",
    "ranges_of",
    "texts_of",
]


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
class KeptSegment:
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
    """Follows a manifest log, and takes in the manifests that count by its rule about the floor.

    It measures ages by this writer's own clock, from the moment at which it saw a manifest. For
    manifests that were there before it first looked, it uses the times that they say, and only how
    much older than the last one each of them is: clocks of writers may differ by as much as
    ``remember``.

    Args:
        log: what to follow.
        remember: seconds for which text positions are known at least.
        clock: seconds, never falling.
    """

    def __init__(self, log: ManifestLog, remember: float, clock: Callable[[], float]) -> None:
        self._log = log
        self._remember = remember
        self._clock = clock
        self.known = KnownPositions()
        self.kept: list[KeptSegment] = []
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
                self.known.forget(2 * self._remember)
            if self._log.floor() == summary.number:
                self.known.renew(self._clock())
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
        self.known.forget(self._remember)

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

    def note_committed(self, number: int) -> None:
        """Notes that every reader has committed what is below ``number``, and when this was seen."""
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
        self.known = KnownPositions(summary.ranges)
        self.kept = []
        self.floor = self.next = summary.number
        self._rows = self._size = 0
        self._dropped = 0, 0
        self.at = max(self.at, summary.at)
        for first, last in summary.remembered:
            for number in range(first, last + 1):
                if manifest := self._log.find(number):
                    self.known.add(manifest, manifest.at / 1000)

    def _take(self, manifest: Manifest, age: float) -> None:
        self.known.add(manifest, age)
        self.next = manifest.number + 1
        self.at = max(self.at, manifest.at)
        self._rows += manifest.rows
        self._size += manifest.size
        kept = KeptSegment(manifest.number, manifest.segment, self._rows, self._size, manifest.at)
        self.kept.append(kept)

    def _before(self, number: int) -> tuple[int, int]:
        """Rows and bytes of all that was seen before ``number``, one of those kept."""
        at = number - self.floor
        if at:
            return self.kept[at - 1].rows, self.kept[at - 1].size
        return self._dropped


# -- which records the feed has ------------------------------------------------------------


def ranges_of(rows: Sequence[Rows]) -> dict[str, list[tuple[int, int]]]:
    """The integer positions of ``rows``, which hold each partition once, as a manifest's."""
    numbers = {run.partition.path: _numbers(run.places) for run in rows}
    return {key: _intervals(places) for key, places in numbers.items() if places}


def texts_of(rows: Sequence[Rows]) -> dict[str, list[str]]:
    """The other positions of ``rows``, likewise."""
    texts = {run.partition.path: _texts(run.places) for run in rows}
    return {key: places for key, places in texts.items() if places}


@dataclass(frozen=True, slots=True)
class _Remembered:
    age: float
    number: int
    texts: Mapping[str, Sequence[str]]


class KnownPositions:
    """The positions of every manifest read so far.

    Integer positions are kept for ever, in memory that grows with the gaps between them. Each other
    position costs memory, since only the broker knows which positions lie between two of them.
    Those are forgotten by age, stream by stream.
    """

    __slots__ = ("_ages", "_ranges", "_texts")

    def __init__(self, ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None) -> None:
        self._ranges: dict[str, IntervalSet] = {}
        # Each text with the last manifest that has it: a text that was forgotten may come again.
        self._texts: dict[str, dict[str, int]] = {}
        self._ages: defaultdict[str, deque[_Remembered]] = defaultdict(deque)
        self._add_ranges(ranges or {})

    def add(self, manifest: Manifest, age: float) -> None:
        """Everything in ``manifest`` is in the feed; ``age`` never falls."""
        self._add_ranges(manifest.ranges)
        for key, texts in manifest.texts.items():
            self._texts.setdefault(key, {}).update(dict.fromkeys(texts, manifest.number))
        for stream, part in _by_stream(manifest.texts).items():
            self._ages[stream].append(_Remembered(age, manifest.number, part))

    def forget(self, seconds: float) -> None:
        """Drops text positions that are so many seconds older than the newest of their stream.

        The newest of another stream does not count: a stream whose consumer stands still now is fed
        again later, with positions that have to be recognised then.
        """
        for ages in self._ages.values():
            while ages[0].age < ages[-1].age - seconds:
                self._drop(ages.popleft())

    def _drop(self, old: _Remembered) -> None:
        for key, texts in old.texts.items():
            known = self._texts.get(key, {})
            for text in texts:
                if known.get(text) == old.number:
                    del known[text]
            if not known:
                self._texts.pop(key, None)

    def renew(self, age: float) -> None:
        """Gives this age to all text positions."""
        for stream, ages in self._ages.items():
            renewed = (_Remembered(age, each.number, each.texts) for each in ages)
            self._ages[stream] = deque(renewed)

    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        """The integer positions, as a summary's."""
        return {key: list(spans) for key, spans in self._ranges.items()}

    def remembered(self, below: int) -> list[tuple[int, int]]:
        """Closed intervals of the manifests below a number whose texts are not forgotten."""
        numbers = {each.number for ages in self._ages.values() for each in ages}
        return intervals_of(sorted(number for number in numbers if number < below))

    def _add_ranges(self, ranges: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        for key, spans in ranges.items():
            known = self._ranges.setdefault(key, IntervalSet())
            for first, last in spans:
                known.add(first, last)

    def unseen(self, rows: Sequence[Rows]) -> list[Rows]:
        """``rows`` without those that the feed has, and without repeats."""
        fresh = [self._unseen(run) for run in rows]
        return [run for run in fresh if run.messages]

    def _unseen(self, run: Rows) -> Rows:
        key = run.partition.path
        if isinstance(run.places, range) and not self._knows_any(key, run.places):
            return run
        unique = dict(zip(run.places, run.messages, strict=True))
        if len(unique) == len(run.places) and not self._knows_any(key, run.places):
            return run
        ranges, texts = self._ranges.get(key, ()), self._texts.get(key, ())
        kept = [p for p in unique if p not in (ranges if isinstance(p, int) else texts)]
        return Rows(run.partition, [unique[place] for place in kept], kept)

    def _knows_any(self, key: str, places: Sequence[Place]) -> bool:
        texts = self._texts.get(key)
        if texts and not texts.keys().isdisjoint(_texts(places)):
            return True
        ranges = self._ranges.get(key)
        numbers = _numbers(places)
        return bool(ranges and numbers and ranges.overlaps(*_ends(numbers)))


def _intervals(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return intervals_of(numbers if isinstance(numbers, range) else sorted(numbers))


def _numbers(places: Sequence[Place]) -> Sequence[int]:
    if are_numbers(places):
        return cast("Sequence[int]", places)
    return [place for place in places if isinstance(place, int)]


def _ends(numbers: Sequence[int]) -> tuple[int, int]:
    if isinstance(numbers, range):
        return numbers[0], numbers[-1]
    return min(numbers), max(numbers)


def _texts(places: Sequence[Place]) -> list[str]:
    return [] if are_numbers(places) else [place for place in places if isinstance(place, str)]


def _by_stream(texts: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Sequence[str]]]:
    found: defaultdict[str, dict[str, Sequence[str]]] = defaultdict(dict)
    for key, places in texts.items():
        found[key.partition("/")[0]][key] = places  # a slash in a name is quoted
    return found


# -- sets of integers ----------------------------------------------------------------------


def intervals_of(values: Sequence[int]) -> list[tuple[int, int]]:
    """The closed intervals that cover exactly ``values``, which ascend without repeats."""
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < len(values):
        end = _run_end(values, begin)
        found.append((values[begin], values[end - 1]))
        begin = end
    return found


def _run_end(values: Sequence[int], begin: int) -> int:
    """Where the consecutive integers from ``begin`` on end.

    ``value - index`` never falls, and grows at each gap, so that a run is found by bisection.
    """
    base = values[begin] - begin
    low, high = begin + 1, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] - middle > base:
            high = middle
        else:
            low = middle + 1
    return low


class IntervalSet:
    """64-bit integers; memory is 16 bytes for each gap, whatever the range.

    Offsets of a partition arrive nearly in order, so that there are few intervals and an
    addition nearly always extends the last one.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        for first, last in intervals:
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        """Adds ``first..last``, inclusive, joining what it touches."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = array("q", (first,))
        self._lasts[low:high] = array("q", (last,))

    def overlaps(self, first: int, last: int) -> bool:
        """Some integer of ``first..last``, inclusive, is in the set."""
        at = bisect_left(self._lasts, first)
        return at < len(self._lasts) and self._firsts[at] <= last

    def __contains__(self, value: int) -> bool:
        return self.overlaps(value, value)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self._firsts)
