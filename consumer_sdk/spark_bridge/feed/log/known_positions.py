"""Which records a feed contains, so that one that comes again is recognised."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from consumer_sdk.spark_bridge.columns import Place, Rows, are_numbers
from consumer_sdk.spark_bridge.feed.log.intervals import IntervalSet, intervals_of
from consumer_sdk.spark_bridge.feed.manifests import Manifest

__all__ = ["Contents", "ranges_of", "texts_of"]


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


class Contents:
    """The positions of every manifest read so far.

    Integer positions are kept for ever, in O(gaps) of memory. Others cost memory each, since
    which positions lie between two of them, nobody but the broker can tell; those are forgotten
    by age, stream by stream.
    """

    __slots__ = ("_ages", "_ranges", "_texts")

    def __init__(self, ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None) -> None:
        self._ranges: dict[str, IntervalSet] = {}
        # With the last manifest that has it: a text that was forgotten may come again.
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
        """Drops text positions that are so much older than their stream's newest.

        Not than another stream's: one whose consumer stands still is what is fed again later.
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
