"""The feed's file work: synchronous, used by one thread.

A commit: drop the records that the feed has → write a segment under a name of this writer's own
and make it durable → claim the next manifest number for it. A writer that loses the claim reads
the winner's manifest, drops what that one contains, and tries again; so each record is in the
feed once, whoever wrote it, also after a crash between any two of these steps.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.records import Assignment, Message, Partition, Position
from consumer_sdk.spark_bridge.columns import Place, Rows, are_numbers, encode, warm_up
from consumer_sdk.spark_bridge.contents import Contents, ranges_of, texts_of
from consumer_sdk.spark_bridge.errors import FeedRecordError
from consumer_sdk.spark_bridge.files import sync_directory, translated, write_durably
from consumer_sdk.spark_bridge.manifest import Manifest
from consumer_sdk.spark_bridge.manifest_log import MANIFESTS, SEGMENTS, ManifestLog
from consumer_sdk.spark_bridge.writer_lock import DeadWriters, WriterLock

__all__ = ["FeedWriter", "place_text"]

_WRITERS = "writers"
_INT64 = range(-(2**63), 2**63)


def place_text(position: Position) -> str:
    """A position's text form where no other is asked for.

    Raises:
        ConfigurationError: it is neither an integer, nor text, nor a tuple of integers.
    """
    if isinstance(position, int | str):
        return str(position)
    if isinstance(position, tuple) and all(isinstance(part, int) for part in position):
        return ":".join(map(str, position))
    raise ConfigurationError(
        f"position {position!r} has no text form of its own: "
        "pass SparkFeed(..., encode_position=adapter.encode_position)"
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """A durable segment that no manifest names yet."""

    path: Path
    rows: Sequence[Rows]
    size: int
    crc32: int

    def manifest(self, number: int) -> Manifest:
        """What commits it as ``number``."""
        return Manifest(
            number=number,
            segment=self.path.name,
            rows=_count(self.rows),
            size=self.size,
            crc32=self.crc32,
            ranges=ranges_of(self.rows),
            texts=texts_of(self.rows),
        )


class FeedWriter:
    """One writer of a feed directory. Concurrency: one call at a time."""

    def __init__(self, directory: Path, encode_position: Callable[[Position], str]) -> None:
        self.directory = directory
        self.dropped = 0
        self.written = 0
        self.segments = 0
        self._encode_position = encode_position
        self._contents = Contents()
        self._log = ManifestLog(directory)
        self._next = 0
        self._serial = itertools.count()
        self._lock: WriterLock | None = None

    def open(self) -> None:
        """Makes the folders, reads every manifest, and clears up after dead writers."""
        warm_up()
        with translated(self.directory):
            for name in (SEGMENTS, MANIFESTS, _WRITERS):
                (self.directory / name).mkdir(parents=True, exist_ok=True)
            sync_directory(self.directory)
            self._lock = WriterLock(self.directory / _WRITERS)
            self._load()

    def _load(self) -> None:
        litter = (self.directory / SEGMENTS, self.directory / MANIFESTS)
        dead = DeadWriters(self.directory / _WRITERS, litter)
        try:
            self._log.check_complete()
            for manifest in self._follow():
                dead.keep(manifest.segment)
            dead.bury()
        finally:
            dead.release()

    def commit(self, entries: Sequence[Sequence[Message]]) -> list[FeedRecordError | None]:
        """Makes every message of ``entries`` durable, once.

        Returns:
            for each entry what is wrong with it, if a record of it cannot be stored; nothing of
            that entry is stored then.

        Raises:
            TransientFeedError: the write failed; nothing is known to be stored.
            FeedFormatError: another writer's manifest is damaged.
        """
        try:
            self._commit(itertools.chain.from_iterable(entries))
        except FeedRecordError:
            # One bad record must not take its neighbours with it.
            faults = [self._fault(entry) for entry in entries]
            sound = [entry for entry, fault in zip(entries, faults, strict=True) if not fault]
            self._commit(itertools.chain.from_iterable(sound))
            return faults
        return [None] * len(entries)

    def close(self) -> None:
        """Gives the writer's name up. Idempotent, and allowed after a failed `open`."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _commit(self, messages: Iterable[Message]) -> None:
        rows = self._by_partition(messages)
        with translated(self.directory):
            stored = self._store(rows)
        self.dropped += _count(rows) - stored

    def _store(self, rows: Sequence[Rows]) -> int:
        """Commits what is new of ``rows``; returns how many that were."""
        fresh = self._contents.unseen(rows)
        segment = None
        while fresh:
            segment = segment or self._write(fresh)
            if self._claim(segment):
                self.written += _count(fresh)
                return _count(fresh)
            left = self._contents.unseen(fresh)
            if _count(left) < _count(fresh):
                segment.path.unlink(missing_ok=True)
                segment = None
            fresh = left
        # A sync may have failed after these were found: they count only once it has succeeded.
        self._log.sync(self._next)
        return 0

    def _write(self, rows: Sequence[Rows]) -> Segment:
        data = encode(rows)
        path = self.directory / SEGMENTS / self._own_name(".arrow")
        write_durably(path, data)
        try:
            sync_directory(path.parent)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return Segment(path, rows, len(data), zlib.crc32(data))

    def _claim(self, segment: Segment) -> bool:
        number = self._next
        try:
            self._log.claim(segment.manifest(number), self._own_name(".tmp"))
        except OSError:
            # A claim that raised may have succeeded; then the manifest needs its segment.
            if not self._log.path(number).exists():
                segment.path.unlink(missing_ok=True)
            raise
        # Over a network a link can succeed and yet be reported as lost: the manifest itself says
        # whose it is.
        return segment.path.name in [manifest.segment for manifest in self._follow()]

    def _follow(self) -> Iterable[Manifest]:
        """Takes in the manifests that have appeared."""
        for manifest in self._log.news(self._next):
            self._contents.add(manifest)
            self._next = manifest.number + 1
            self.segments += 1
            yield manifest

    def _own_name(self, suffix: str) -> str:
        if self._lock is None:
            raise ConsumerClosedError(f"the writer of {self.directory} is closed")
        return f"{self._lock.name}-{next(self._serial)}{suffix}"

    def _by_partition(self, messages: Iterable[Message]) -> list[Rows]:
        granted: defaultdict[Assignment, list[Message]] = defaultdict(list)
        for message in messages:
            granted[message.assignment].append(message)
        # A partition that was lost and granted again may be here under both assignments.
        parts: defaultdict[Partition, list[Message]] = defaultdict(list)
        for assignment, part in granted.items():
            parts[assignment.partition] += part
        return [Rows(key, part, self._places(part)) for key, part in parts.items()]

    def _places(self, messages: Sequence[Message]) -> list[Place]:
        positions = [message.position for message in messages]
        if are_numbers(positions) and min(positions) in _INT64 and max(positions) in _INT64:
            return positions
        return [self._place(position) for position in positions]

    def _place(self, position: Position) -> Place:
        if type(position) is int and position in _INT64:
            return position
        return self._encode_position(position)

    def _fault(self, entry: Sequence[Message]) -> FeedRecordError | None:
        for message in entry:
            try:
                encode(self._by_partition([message]))
            except FeedRecordError as fault:
                return FeedRecordError(f"{message!r}: {fault}")
        return None


def _count(rows: Sequence[Rows]) -> int:
    return sum(len(run.messages) for run in rows)
