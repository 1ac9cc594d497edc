"""A plain model of a partition that transactions write to and Kafka's log cleaner compacts, and of what a broker answers.

The rules are those of Kafka 4.3: ``LocalLog.read``, ``TransactionIndex.collectAbortedTxns``, ``Cleaner.cleanSegments``,
``CleanedTransactionMetadata``. A read takes no lock: see `TransactionalLog.read`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.adapters.kafka.decoding.test_unpacking import control, emptied, rebase, with_checksum

__all__ = ["Answer", "TransactionalLog", "compact", "write_by_chance"]

LAST_DELTA_AT = 23


@dataclass(slots=True)
class Transaction:
    """Of one producer.

    Attributes:
        first: offset of its first record.
        last: offset of its marker; None while it is open.
        is_aborted: how it has ended.
        stable: the last stable offset when it had ended, by which a broker knows that it has looked far enough.
    """

    producer: int
    first: int
    last: int | None = None
    is_aborted: bool = False
    stable: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch.

    Attributes:
        last: offset of what was once its last record.
        keys: offset and key of each record that is left.
        is_marker: of its transaction's end.
        is_spared: the cleaner has said of a marker that the next pass may take it.
        raw: as it is on the wire.
    """

    base: int
    last: int
    producer: int
    transaction: Transaction | None
    keys: Mapping[int, bytes]
    is_marker: bool = False
    is_spared: bool = False
    raw: bytes = b""

    @property
    def is_wanted(self) -> bool:
        """Its records count for who reads what is committed."""
        return self.transaction is None or not self.transaction.is_aborted

    @property
    def is_empty(self) -> bool:
        """The cleaner has left its head alone."""
        return not self.keys


def stored(base: int, keys: Mapping[int, bytes], producer: int, of: Transaction | None) -> Stored:
    """A batch of records; their values are their offsets."""
    return encoded(Stored(base, max(keys), producer, of, keys))


def encoded(batch: Stored) -> Stored:
    """With its bytes, as its other fields say."""
    if batch.is_marker:
        assert batch.transaction is not None
        raw = control(batch.base, batch.producer, abort=batch.transaction.is_aborted)
    else:
        is_transactional = batch.transaction is not None
        builder = DefaultRecordBatchBuilder(2, 0, is_transactional, batch.producer, 0, 0, 1 << 20)
        for offset, key in (batch.keys or {batch.last: b""}).items():
            builder.append(offset - batch.base, 0, key, b"%d" % offset, [])
        made = bytearray(rebase(bytes(builder.build()), batch.base))
        struct.pack_into(">i", made, LAST_DELTA_AT, batch.last - batch.base)
        raw = with_checksum(bytes(made))
    return replace(batch, raw=emptied(raw) if batch.is_empty else raw)


@dataclass(slots=True)
class Segment:
    """A file of a log.

    Attributes:
        index: the aborted transactions of which it has the markers.
    """

    base: int
    batches: list[Stored] = field(default_factory=list)
    index: list[Transaction] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(len(batch.raw) for batch in self.batches)

    def marks(self, interval: int) -> Iterator[tuple[int, int]]:
        """What the index of offsets has: a batch's last offset and its place, after each so many bytes."""
        place = since = 0
        for batch in self.batches:
            if since > interval:
                yield batch.last, place
                since = 0
            place += len(batch.raw)
            since += len(batch.raw)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a fetch brings.

    Attributes:
        data: the batches; the last may be cut off.
        aborted: producer and first offset of aborted transactions.
        end: the offset behind the last complete batch.
        stable: the last stable offset.
    """

    data: bytes
    aborted: Sequence[tuple[int, int]]
    end: int
    stable: int


def _nothing() -> None:
    pass


class TransactionalLog:
    """A partition.

    Args:
        interval: bytes between two entries of a segment's index of offsets.

    Attributes:
        start: the first offset that is stored.
        end: the offset behind all.
        segments: in order; the last one is written to.
        origins: the transaction of each record that was ever written, or None.
    """

    def __init__(self, interval: int = 200) -> None:
        self.start = self.end = 0
        self.segments = [Segment(0)]
        self.origins: dict[int, Transaction | None] = {}
        self._interval = interval
        self._open: dict[int, Transaction] = {}

    # -- what producers do ----------------------------------------------------------------------

    def write(self, producer: int, keys: Sequence[bytes], *, is_transactional: bool) -> None:
        """Appends a batch, and begins a transaction if there is none."""
        base, self.end = self.end, self.end + len(keys)
        of = None
        if is_transactional:
            of = self._open.setdefault(producer, Transaction(producer, base))
        self.origins |= dict.fromkeys(range(base, self.end), of)
        self.segments[-1].batches.append(stored(base, dict(enumerate(keys, base)), producer, of))

    def finish(self, producer: int, *, is_aborted: bool) -> None:
        """Ends a transaction, if there is one."""
        of = self._open.pop(producer, None)
        if of is None:
            return
        offset, self.end = self.end, self.end + 1
        of.last, of.is_aborted, of.stable = offset, is_aborted, self.stable
        marker = Stored(offset, offset, producer, of, {offset: b""}, is_marker=True)
        self.segments[-1].batches.append(encoded(marker))
        if is_aborted:
            self.segments[-1].index.append(of)

    @property
    def stable(self) -> int:
        """The offset behind all that is decided."""
        return min((one.first for one in self._open.values()), default=self.end)

    # -- what is right --------------------------------------------------------------------------

    def wanted(self, start: int) -> list[int]:
        """Offsets of the committed records that are stored, from there on."""
        batches = [batch for segment in self.segments for batch in segment.batches]
        return [
            offset
            for batch in batches
            if batch.is_wanted and not batch.is_marker and batch.base < self.stable
            for offset in batch.keys
            if offset >= start
        ]

    def check(self, start: int, end: int, found: Sequence[int]) -> None:
        """Sees that what was found from one offset up to another is what is committed, in order, each once.

        What the cleaner has taken may have been read before.
        """
        self.check_committed(start, end, found)
        missing = {offset for offset in self.wanted(start) if offset < end} - set(found)
        assert not missing, f"left out: {sorted(missing)}"

    def check_committed(self, start: int, end: int, found: Sequence[int]) -> None:
        """Sees that all that was found is committed, and in order, each once."""
        assert all(one < other for one, other in pairwise((start - 1, *found, end))), found
        origins = [self.origins[offset] for offset in found]
        bad = [one for one in origins if one and (one.last is None or one.is_aborted)]
        assert not bad, f"not committed: {bad}"

    # -- what the broker does -------------------------------------------------------------------

    def roll(self) -> None:
        """Begins a segment, unless the last one is new."""
        if self.segments[-1].batches:
            self.segments.append(Segment(self.end))

    def delete(self, count: int) -> None:
        """Segments at the beginning, as retention does; all of them are decided, and none is the last one."""
        bound = min(self.segments[-1].base, self._at(self.stable).base)
        gone = [segment for segment in self.segments[:count] if segment.base < bound]
        self.segments = self.segments[len(gone) :]
        self.start = self.segments[0].base if gone else self.start

    def clean(
        self,
        most: int,
        *,
        keeps_data: bool = False,
        keeps_markers: bool = False,
        meanwhile: Callable[[], None] = _nothing,
    ) -> None:
        """A pass of the log cleaner over what is decided.

        Args:
            most: bytes of neighbouring segments that become one.
            keeps_data: of each producer's last batch at least the head is kept.
            keeps_markers: the same of its last marker.
            meanwhile: called each time a segment is in its place, and those that it replaces are not all gone.
        """
        bound = min(self.segments[-1].base, self._at(self.stable).base)
        below = [segment for segment in self.segments if segment.base < bound]
        newest = {
            key: offset
            for segment in below
            for batch in segment.batches
            if batch.is_wanted and not batch.is_marker
            for offset, key in batch.keys.items()
        }
        kept = self._kept(bound, keeps_data=keeps_data, keeps_markers=keeps_markers)
        seen: set[int] = set()
        for group in _groups(below, most):
            made = Segment(group[0].base)
            for segment in group:
                for batch in segment.batches:
                    made.batches += _cleaned(batch, made, seen, newest, is_kept=batch.last in kept)
            self._replace(group, made, meanwhile)

    def _kept(self, bound: int, *, keeps_data: bool, keeps_markers: bool) -> set[int]:
        """Last offsets of batches of which something is kept: also of what the pass ends with."""
        batches = [batch for segment in self.segments for batch in segment.batches]
        data = {b.producer: b.last for b in batches if b.producer >= 0 and not b.is_marker}
        markers = {b.producer: b.last for b in batches if b.is_marker}
        kept = {bound - 1}
        kept |= set(data.values()) if keeps_data else set()
        return kept | (set(markers.values()) if keeps_markers else set())

    def _replace(
        self, old: Sequence[Segment], made: Segment, meanwhile: Callable[[], None]
    ) -> None:
        at = self.segments.index(old[0])
        self.segments = [*self.segments[:at], made, *self.segments[at + 1 :]]
        for one in old[1:]:
            meanwhile()
            self.segments = [segment for segment in self.segments if segment is not one]

    # -- what is read ---------------------------------------------------------------------------

    def read(
        self, start: int, most: int, meanwhile: Callable[[], None] = _nothing
    ) -> Answer | None:
        """What a broker sends of what is decided; None where nothing is left.

        1. It takes the bytes out of a segment; 2. it looks for aborted transactions in that one, and in those that follow it by
        now. In between the others may have been replaced, or deleted.

        Args:
            most: bytes; the first batch comes in any case.
            meanwhile: called in between, unless the answer ends where the bytes were enough. It may leave out a transaction then,
                too, and who reads it would have to ask twice for each answer.
        """
        stable = self.stable
        segment = self._at(start)
        while not segment.batches or segment.batches[-1].last < start:
            above = self._above(segment)
            if not above:
                return None
            segment = above[0]
        place, found = 0, list[Stored]()
        for batch in segment.batches:
            if batch.last < start:
                place += len(batch.raw)
            elif batch.base < stable:
                found.append(batch)
        if not found:
            return None
        data = b"".join(batch.raw for batch in found)[: max(most, len(found[0].raw))]
        end, size = start, 0
        for batch in found:
            size += len(batch.raw)
            if size <= len(data):
                end = batch.last + 1
        if len(data) < most and end > found[-1].last:
            meanwhile()
        above = self._above(segment)
        marks = (last for last, at in segment.marks(self._interval) if at >= place + len(data))
        bound = next(marks, above[0].base if above else self.end)
        listed = [(one.producer, one.first) for one in _aborted([segment, *above], start, bound)]
        return Answer(data, listed, end, stable)

    def _at(self, offset: int) -> Segment:
        return self.segments[bisect_right([one.base for one in self.segments], offset) - 1]

    def _above(self, segment: Segment) -> Sequence[Segment]:
        return [one for one in self.segments if one.base > segment.base]


def _aborted(segments: Sequence[Segment], start: int, bound: int) -> Iterator[Transaction]:
    for segment in segments:
        for one in segment.index:
            assert one.last is not None
            if one.last >= start and one.first < bound:
                yield one
            if one.stable >= bound:
                return


def _groups(segments: Sequence[Segment], most: int) -> Iterator[Sequence[Segment]]:
    group: list[Segment] = []
    for segment in segments:
        if group and sum(one.size for one in group) + segment.size > most:
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _cleaned(
    batch: Stored, into: Segment, seen: set[int], newest: Mapping[bytes, int], *, is_kept: bool
) -> Iterator[Stored]:
    """What is left of a batch.

    A marker stays as long as a batch of its transaction does, and one pass longer. What the broker knows of an aborted
    transaction goes with the last of its batches.
    """
    of = batch.transaction
    if not batch.is_marker:
        seen.add(id(of))
        rows = batch.keys.items() if batch.is_wanted else ()
        keys = {offset: key for offset, key in rows if newest[key] == offset}
        if keys or is_kept:
            yield batch if len(keys) == len(batch.keys) else encoded(replace(batch, keys=keys))
    elif batch.is_empty:
        if is_kept:
            yield batch
    elif id(of) in seen:
        if of is not None and of.is_aborted:
            into.index.append(of)
        yield batch
    elif not batch.is_spared:
        yield replace(batch, is_spared=True)
    elif is_kept:
        yield encoded(replace(batch, keys={}))


# -- what happens to a log by chance --------------------------------------------------------------


def write_by_chance(log: TransactionalLog, chance: Random, events: int) -> int:
    """Records, the end of a transaction, or a new segment.

    Returns:
        the event, below ``events``: with 10 and above nothing has happened yet.
    """
    keys = [chance.choice([b"a", b"b", b"c", b"d"]) for _ in range(chance.randint(1, 4))]
    event = chance.randrange(events)
    match event:
        case 0 | 1 | 2 | 3:
            log.write(chance.choice([1, 2, 3]), keys, is_transactional=True)
        case 4:
            log.write(chance.choice([-1, 9]), keys, is_transactional=False)
        case 5 | 6 | 7:
            log.finish(chance.choice([1, 2, 3]), is_aborted=chance.random() < 0.6)
        case 8 | 9:
            log.roll()
    return event


def compact(log: TransactionalLog, chance: Random) -> None:
    """A pass of the log cleaner."""
    kept = chance.choice(["", "data", "markers"])
    most = chance.choice([1, 500, 1500, 9000])
    log.clean(most, keeps_data=kept == "data", keeps_markers=kept == "markers")
