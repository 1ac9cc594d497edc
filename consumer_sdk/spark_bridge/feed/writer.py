"""The feed's file work: synchronous, used by one thread.

A commit has three steps:

1. drop the records that the feed has;
2. write the others to a segment, under a name of this writer's own, and make it durable;
3. claim the next manifest number for the segment.

A writer that loses the claim reads the winner's manifest, drops what that one contains, and tries again.
So each record is in the feed once, whoever wrote it, also after a crash between any two of these steps,
and after a writer was stopped between any two of them for however long (see `manifest_log` for what was
deleted meanwhile). There is no leader: the log's numbers are the fence.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from consumer_sdk.errors import ConsumerClosedError
from consumer_sdk.records import Message, Position
from consumer_sdk.spark_bridge.arrow import warm_up
from consumer_sdk.spark_bridge.errors import FeedError, FeedRecordError
from consumer_sdk.spark_bridge.feed.files import Files, create, translated
from consumer_sdk.spark_bridge.feed.index import FeedIndex, Unread, ranges_of, texts_of
from consumer_sdk.spark_bridge.feed.manifest_log import (
    FOLDERS,
    MANIFESTS,
    SEGMENTS,
    SUMMARIES,
    WRITERS,
    ManifestLog,
)
from consumer_sdk.spark_bridge.feed.manifests import Manifest, Summary, Writer
from consumer_sdk.spark_bridge.feed.reader_marks import read_marks
from consumer_sdk.spark_bridge.feed.segments import Rows, count_rows, encode, place_text, rows_of

__all__ = ["DeadWriters", "FeedWriter", "Retention", "Seen", "WriterLock"]

log = logging.getLogger(__name__)

# Deleting goes on at the next opportunity: records must not wait for thousands of deletions.
_MOST_DELETED = 500
# A summary names every gap in the positions: with millions of them, writing one takes seconds, in
# which no record is committed. So no more than a twentieth of the time goes into that.
_PACE = 20


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a writer keeps what Spark has committed.

    Attributes:
        segments: seconds that a segment is kept after its commit was seen.
        texts: seconds for which positions that are not integers are recognised.
    """

    segments: float = 300.0
    texts: float = 3600.0


class Seen(NamedTuple):
    """The directory, as far as a writer has looked; a value, since other threads look at it.

    Attributes:
        unread: what some reader has not committed.
        segments: that are there.
        committed: the first one that some reader may still need; None without a reader.
        at: when the last one was written, in milliseconds since the epoch; 0 without one.
    """

    unread: Unread = Unread()
    segments: int = 0
    committed: int | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A durable segment that no manifest names yet."""

    name: str
    rows: Sequence[Rows]
    size: int
    crc32: int

    def manifest(self, number: int, at: int, writer: Writer) -> Manifest:
        """What commits it as ``number``."""
        return Manifest(
            number=number,
            segment=self.name,
            rows=count_rows(self.rows),
            size=self.size,
            crc32=self.crc32,
            ranges=ranges_of(self.rows),
            texts=texts_of(self.rows),
            at=at,
            writer=writer,
        )


class FeedWriter:
    """One writer of a feed directory. Concurrency: one call at a time; `seen` is for all threads.

    Args:
        files: of the directory.
        encode_position: a text form for positions that are not integers.
        retention: how long it keeps what Spark has committed.
        clock: seconds, never falling.
        wall: seconds since 1970; it is shown, and may be wrong.
    """

    def __init__(
        self,
        files: Files,
        encode_position: Callable[[Position], str] = place_text,
        retention: Retention | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.directory = files.directory
        self.dropped = 0
        self.written = 0
        self.committed: int | None = None
        self.slowest: str | None = None
        self.seen = Seen()
        self._files = files
        self._encode_position = encode_position
        self._retention = retention or Retention()
        self._clock = clock
        self._truncate_at = clock()
        self._wall = wall
        self._log = ManifestLog(files)
        self._index = FeedIndex(self._log, self._retention.texts, clock)
        self._serial = itertools.count()
        self._lock: WriterLock | None = None
        self._name = ""
        self._epoch = self._swept = 0
        self._ignored: frozenset[str] = frozenset()

    def open(self) -> None:
        """Makes the folders, reads every manifest, and clears up after dead writers."""
        warm_up()
        with translated(self.directory):
            self._files.prepare(FOLDERS)
            summary = self._register()
            self._log.sweep(summary)
            self._epoch, self._swept = self._index.next, summary.number
            self._look_at_readers()

    def commit(self, entries: Sequence[Sequence[Message]]) -> list[FeedRecordError | None]:
        """Makes every message of ``entries`` durable, once.

        Returns:
            for each entry what is wrong with it, if records of it cannot be stored; the others
            of that entry are stored nevertheless, in their order.

        Raises:
            TransientFeedError: the write failed; nothing is known to be stored.
            FeedFormatError: another writer's manifest is damaged.
        """
        faults: list[FeedRecordError | None] = [None] * len(entries)
        try:
            self._commit(itertools.chain.from_iterable(entries))
        except FeedRecordError:
            # One bad record must not take its neighbours with it.
            messages = [*itertools.chain.from_iterable(entries)]
            bad = {id(message): reason for message, reason in self._faults(messages)}
            self._commit(message for message in messages if id(message) not in bad)
            faults = [_fault(entry, bad) for entry in entries]
        self._update_seen()
        return faults

    def collect_garbage(self) -> None:
        """Looks how far Spark is, and deletes what it has committed; failures are logged.

        Only what every registered reader has committed goes, long enough after that was seen.
        """
        try:
            self._look_at_readers()
            self._index.forget()
            if self.committed is not None and self._clock() >= self._truncate_at:
                self._truncate()
                self._update_seen()
        except (OSError, FeedError) as error:
            log.warning("nothing more is deleted from %s for now: %s", self.directory, error)
        except Exception:
            # Records can be written all the same: a fault in here must not end that.
            log.exception("nothing more is deleted from %s for now", self.directory)

    def close(self) -> None:
        """Gives the writer's name up. Idempotent, and allowed after a failed `open`."""
        self._name = ""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _register(self) -> Summary:
        local = self._files.local
        if local is None:
            self._name = secrets.token_hex(8)
            return self._index.load()
        self._lock = WriterLock(local / WRITERS)
        self._name = self._lock.name
        litter = [local / folder for folder in (SEGMENTS, MANIFESTS, SUMMARIES)]
        dead = DeadWriters(local / WRITERS, litter)
        # 1. `dead` has locked the names of the dead writers, and listed the files they left: none of
        #    them can commit one any more.
        # 2. The manifests are read: what a dead writer has committed is among them, and is kept.
        # 3. The rest is deleted.
        # With 2 before 1, a writer that commits and dies in between would lose its segment.
        try:
            summary = self._index.load()
            for kept in self._index.kept:
                dead.keep(kept.segment)
            dead.delete_litter()
        finally:
            dead.release()
        return summary

    def _look_at_readers(self) -> None:
        # The marks first, then the log: what a reader has committed was there when it said so. The
        # other way round:
        # 1. this writer reads the log up to manifest 7;
        # 2. another one commits 7, and a query reads it and marks 8;
        # 3. this one reads the mark, beyond all that it knows, and takes it for a damaged one.
        marks = read_marks(self._files)
        self._index.follow()
        sound = {name: at for name, at in marks.items() if at <= self._index.next}
        self._warn_of_bad_marks(frozenset(marks.keys() - sound.keys()))
        self.slowest = min(sound, key=sound.__getitem__, default=None)
        self.committed = None if self.slowest is None else sound[self.slowest]
        self._index.note_committed(self.committed or 0)
        self._update_seen()

    def _update_seen(self) -> None:
        index = self._index
        unread = index.unread(self.committed)
        self.seen = Seen(unread, len(index.kept), self.committed, index.at)

    def _warn_of_bad_marks(self, ignored: frozenset[str]) -> None:
        if ignored - self._ignored:
            log.error(
                "readers %s of %s say that they have committed more than was ever written: they "
                "are ignored. Delete readers/NAME.json, unless the directory was replaced",
                ", ".join(sorted(ignored)),
                self.directory,
            )
        self._ignored = ignored

    def _truncate(self) -> None:
        index = self._index
        floor = index.expired(self._retention.segments, _MOST_DELETED)
        if floor == index.floor:
            return
        known, began = index.known, self._clock()
        summary = Summary(
            number=floor,
            ranges=known.ranges(),
            remembered=known.remembered(floor),
            at=index.at,
        )
        # The summary is durable before anything is deleted. Killed in between, the next writer that
        # opens the feed deletes the rest. Of two writers with the same floor one gets the number of
        # the summary, and that one deletes.
        is_ours = self._log.truncate(summary, self._own_name(".tmp"))
        index.drop_below(floor)
        if is_ours:
            self._log.sweep(summary, self._swept)
            self._swept = floor
        self._truncate_at = self._clock() + _PACE * (self._clock() - began)

    def _commit(self, messages: Iterable[Message]) -> None:
        rows = rows_of(messages, self._encode_position)
        with translated(self.directory, hopeless=()):
            stored = self._store(rows)
        self.dropped += count_rows(rows) - stored

    def _store(self, rows: Sequence[Rows]) -> int:
        """Commits what is new of ``rows``; returns how many that were."""
        fresh = self._index.known.unseen(rows)
        segment = None
        while fresh:
            segment = segment or self._write(fresh)
            if is_ours := self._claim(segment):
                self.written += count_rows(fresh)
                return count_rows(fresh)
            left = self._index.known.unseen(fresh)
            # The number was below the floor (None):
            # 1. this writer had read the manifests below 7, and was stopped;
            # 2. others committed 7 and more, Spark committed those too, and a writer deleted them;
            # 3. this one went on, and claimed 7, whose name was free again.
            # Its manifest 7 counts for nobody, and whoever deletes what is below the floor deletes
            # the segment that it names: so the segment is not used again.
            if is_ours is None or count_rows(left) < count_rows(fresh):
                self._files.delete(f"{SEGMENTS}/{segment.name}")
                segment = None
            fresh = left
        # Nothing is new: other manifests have these records. A sync may have failed after those
        # were found, and a power cut would take them back: they count only once it has succeeded.
        self._log.sync(self._index.next)
        return 0

    def _write(self, rows: Sequence[Rows]) -> Segment:
        data = encode(rows)
        name = self._own_name(".arrow")
        self._files.add(f"{SEGMENTS}/{name}", data)
        return Segment(name, rows, len(data), zlib.crc32(data))

    def _claim(self, segment: Segment) -> bool | None:
        """Whether the segment got the next number; None if that number was below the floor."""
        number = self._index.next
        writer = Writer(self._name, self._epoch, next(self._serial))
        at = max(int(self._wall() * 1000), self._index.at)
        try:
            self._log.claim(segment.manifest(number, at, writer), self._own_name(".tmp"))
        except OSError:
            # The file system may have made the manifest, and then failed: it needs its segment.
            if self._log.find(number) is None:
                self._files.delete(f"{SEGMENTS}/{segment.name}")
            raise
        # Who got the number, the manifest itself says, and not the answer to the claim. Over a
        # network:
        # 1. the server makes the file, and its answer is lost;
        # 2. the client asks again, and is told that the file exists, as if another had been faster.
        news = self._index.follow()
        return None if news is None else segment.name in [found.segment for found in news]

    def _own_name(self, suffix: str) -> str:
        if not self._name:
            raise ConsumerClosedError(f"the writer of {self.directory} is closed")
        return f"{self._name}-{next(self._serial)}{suffix}"

    def _faults(self, messages: Sequence[Message]) -> Iterator[tuple[Message, str]]:
        """Those that cannot be stored, and why; found by halves, since most have none."""
        try:
            encode(rows_of(messages, self._encode_position))
        except FeedRecordError as fault:
            if len(messages) == 1:
                yield messages[0], str(fault)
                return
            middle = len(messages) // 2
            yield from self._faults(messages[:middle])
            yield from self._faults(messages[middle:])


def _fault(entry: Sequence[Message], bad: Mapping[int, str]) -> FeedRecordError | None:
    """What is wrong with an entry; ``bad`` has the reasons by the messages' ids."""
    found = [(message, bad[id(message)]) for message in entry if id(message) in bad]
    return FeedRecordError.of(found) if found else None


# -- live and dead writers ----------------------------------------------------------------
#
# A writer holds an exclusive flock on a file of its own, whose name begins the name of every file
# that it makes. The kernel releases the lock however the process ends. So whoever gets the lock of
# another writer's file knows that this writer is dead and can commit nothing any more.

_LOCK = ".lock"


class WriterLock:
    """A unique writer name, locked until `release` or the end of the process."""

    __slots__ = ("_handle", "_path", "name")

    def __init__(self, folder: Path) -> None:
        while True:
            self.name = secrets.token_hex(8)
            self._path = folder / f"{self.name}{_LOCK}"
            handle = _lock(self._path, os.O_CREAT | os.O_EXCL)
            if handle is not None:
                self._handle = handle
                return

    def release(self) -> None:
        """Gives the name up."""
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


class DeadWriters:
    """The writers whose process has ended, held until `delete_litter` or `release`.

    Args:
        folder: where the locks are.
        litter: folders with files that the writers may have left uncommitted.
    """

    __slots__ = ("_left", "_locks")

    def __init__(self, folder: Path, litter: Iterable[Path]) -> None:
        self._locks: dict[Path, int] = {}
        for path in folder.glob(f"*{_LOCK}"):
            handle = _lock(path, 0)
            if handle is not None:
                self._locks[path] = handle
        names = {path.stem for path in self._locks}
        self._left = {
            path.name: path
            for place in litter
            for path in place.iterdir()
            if path.name.partition("-")[0] in names
        }

    def keep(self, name: str) -> None:
        """The file ``name`` is committed."""
        self._left.pop(name, None)

    def delete_litter(self) -> None:
        """Deletes what they left and nobody committed."""
        for path in self._left.values():
            path.unlink(missing_ok=True)
        for path in self._locks:
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Gives the locks back."""
        for handle in self._locks.values():
            os.close(handle)
        self._locks.clear()


def _lock(path: Path, flags: int) -> int | None:
    """An exclusively locked handle of ``path``, or None if it is another's, or gone."""
    try:
        handle = create(path, os.O_RDWR | flags)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    if _is(path, handle):
        return handle
    # 1. This writer made or opened the file, and had no lock on it yet.
    # 2. Another one got the lock, took the file for a dead writer's, and deleted it.
    # 3. This one got the lock, of a file without a name: it protects nothing.
    os.close(handle)
    return None


def _is(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
