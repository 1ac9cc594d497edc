"""A plain model of a partition that transactions write to and Kafka's log cleaner compacts, and of what a broker answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from tests.adapters.kafka.decoding.test_unpacking import control, emptied

__all__ = ["Answer", "TransactionalLog"]

NOBODY = -1
LAST_DELTA_AT = 23


@dataclass(slots=True)
class Transaction:
    """Of one producer.

    Attributes:
        first: offset of its first record.
        last: offset of its marker; None while it is open.
        is_aborted: how it has ended.
    """

    producer: int
    first: int
    last: int | None = None
    is_aborted: bool = False


@dataclass(slots=True)
class Stored:
    """A batch, as it is in the log now.

    Attributes:
        last: offset of what was once its last record.
        keys: offset and key of each record that is left.
        is_marker: of its transaction's end.
        is_spared: the cleaner has said of a marker that the next pass may take it.
        is_bare: a marker without its record.
    """

    base: int
    last: int
    producer: int
    transaction: Transaction | None
    keys: dict[int, bytes] = field(default_factory=dict)
    is_marker: bool = False
    is_spared: bool = False
    is_bare: bool = False

    @property
    def is_wanted(self) -> bool:
        """Its records count for who reads what is committed."""
        return self.transaction is None or not self.transaction.is_aborted

    def raw(self) -> bytes:
        """As it is on the wire."""
        if self.is_marker:
            assert self.transaction is not None
            marker = control(self.base, self.producer, abort=self.transaction.is_aborted)
            return emptied(marker) if self.is_bare else marker
        is_transactional = self.transaction is not None
        builder = DefaultRecordBatchBuilder(2, 0, is_transactional, self.producer, 0, 0, 1 << 20)
        for offset, key in (self.keys or {self.last: b""}).items():
            builder.append(offset - self.base, 0, key, b"%d" % offset, [])
        made = bytearray(builder.build())
        struct.pack_into(">q", made, 0, self.base)
        struct.pack_into(">i", made, LAST_DELTA_AT, self.last - self.base)
        struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
        return bytes(made) if self.keys else emptied(bytes(made))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a fetch brings.

    Attributes:
        data: the batches; the last may be cut off.
        aborted: producer and first offset of aborted transactions.
        end: the offset behind the last complete batch.
    """

    data: bytes
    aborted: Sequence[tuple[int, int]]
    end: int


class TransactionalLog:
    """A partition.

    Attributes:
        end: the offset behind all.
        batches: what is stored.
        index: the aborted transactions that the broker tells of.
    """

    def __init__(self) -> None:
        self.end = 0
        self.batches: list[Stored] = []
        self.index: list[Transaction] = []
        self._open: dict[int, Transaction] = {}

    def write(self, producer: int, keys: Sequence[bytes], *, is_transactional: bool) -> None:
        """Appends a batch, and begins a transaction if there is none."""
        base, self.end = self.end, self.end + len(keys)
        transaction = None
        if is_transactional:
            transaction = self._open.setdefault(producer, Transaction(producer, base))
        rows = dict(enumerate(keys, base))
        self.batches.append(Stored(base, self.end - 1, producer, transaction, rows))

    def finish(self, producer: int, *, is_aborted: bool) -> None:
        """Ends a transaction, if there is one."""
        transaction = self._open.pop(producer, None)
        if transaction is None:
            return
        transaction.last, transaction.is_aborted = self.end, is_aborted
        if is_aborted:
            self.index.append(transaction)
        self.batches.append(Stored(self.end, self.end, producer, transaction, is_marker=True))
        self.end += 1

    @property
    def stable(self) -> int:
        """The offset behind all that is decided."""
        return min((one.first for one in self._open.values()), default=self.end)

    def wanted(self, start: int) -> list[int]:
        """Offsets of the committed records from there on."""
        batches = [b for b in self.batches if b.is_wanted and b.base < self.stable]
        return [offset for batch in batches for offset in batch.keys if offset >= start]

    # -- the cleaner --------------------------------------------------------------------------

    def clean(self, bound: int, *, has_active: bool) -> None:
        """Compacts what ends before an offset, by the rules of Kafka's log cleaner.

        Args:
            has_active: the producers' last batches are kept, though perhaps without their records.
        """
        below = [b for b in self.batches if b.last < min(bound, self.stable)]
        if not below:
            return
        kept = {id(below[-1])}
        if has_active:
            last = {b.producer: b for b in self.batches if b.producer >= 0 and not b.is_marker}
            kept |= {id(batch) for batch in last.values()}
        newest = {k: o for b in below if b.is_wanted for o, k in b.keys.items()}
        left = list(self._cleaned(below, newest, kept))
        self.batches = left + self.batches[len(below) :]

    def _cleaned(
        self, below: Sequence[Stored], newest: Mapping[bytes, int], kept: set[int]
    ) -> Iterator[Stored]:
        seen: set[int] = set()
        for batch in below:
            if batch.is_marker:
                if self._is_left(batch, is_kept=id(batch) in kept, has_data=_of(batch) in seen):
                    yield batch
                continue
            seen.add(_of(batch))
            rows = batch.keys.items() if batch.is_wanted else ()
            batch.keys = {offset: key for offset, key in rows if newest[key] == offset}
            if batch.keys or id(batch) in kept:
                yield batch

    def _is_left(self, marker: Stored, *, is_kept: bool, has_data: bool) -> bool:
        """A marker outlives the batches of its transaction by one pass, the broker's knowledge of it does not."""
        if has_data:
            return True
        self.index = [one for one in self.index if one is not marker.transaction]
        can_go, marker.is_spared = marker.is_spared, True
        marker.is_bare |= can_go
        return is_kept or not can_go

    # -- the broker ---------------------------------------------------------------------------

    def fetch(self, start: int, most: int, cut: int, beyond: int) -> Answer | None:
        """What a broker sends of what is decided; None where nothing is left.

        Args:
            most: batches.
            cut: bytes of one more, at most.
            beyond: offsets behind the answer of which the list tells, too: a broker knows the end of an answer roughly.
        """
        found = [b for b in self.batches if b.last >= start and b.base < self.stable]
        if not found:
            return None
        sent, rest = found[:most], found[most:]
        data = b"".join(batch.raw() for batch in sent)
        if rest:
            part = rest[0].raw()
            data += part[: min(cut, len(part) - 1)]
        end = sent[-1].last + 1
        listed = [
            (one.producer, one.first)
            for one in self.index
            if one.last is not None and one.last >= start and one.first < end + beyond
        ]
        return Answer(data, listed, end)


def _of(batch: Stored) -> int:
    return id(batch.transaction)
