"""One shard: a hash range, its records, and where a reader stands in it. Pure.

A sequence number has 56 digits, laid out as Kinesis does. From the top, in hexadecimal digits: ``2``,
the second in which the shard was made (9), the last digit of the shard's number (1), the record's
index (16), two zeros, the second of the record's arrival (9), the shard's number (8), ``2``. So they
grow within a shard, a child's are above its parent's, and the number after one that was given is
not one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis.errors import invalid, used
from consumer_sdk.testing.kinesis.limiter import Limiter

__all__ = ["FakeRecord", "FakeShard"]


@dataclass(frozen=True, slots=True)
class FakeRecord:
    """A stored record.

    Attributes:
        sequence: its number.
        key: partition key.
        data: the blob.
        time: of arrival, seconds since the epoch.
    """

    sequence: int
    key: str
    data: bytes
    time: float

    @property
    def size(self) -> int:
        """Bytes of data and key, as AWS counts them."""
        return len(self.data) + len(self.key.encode())


LAST_INDEX = 2**63 - 1
"""The index in the ending sequence number of a closed shard, as on AWS."""


def _compose(born: int, shard: int, index: int, second: int) -> int:
    """The sequence number of a record.

    Args:
        born: second in which the shard was made.
        shard: its number.
        index: 0 is the shard's start, 1 its first record.
        second: of the arrival.
    """
    top = 2 << 184 | born << 148 | (shard & 15) << 144
    return top | index << 80 | second << 36 | shard << 4 | 2


def _index_of(sequence: int, born: int, shard: int) -> int | None:
    """The index in a sequence number of this shard; None: it is none of its."""
    index = (sequence >> 80) & (2**64 - 1)
    second = (sequence >> 36) & (2**36 - 1)
    return index if _compose(born, shard, index, second) == sequence else None


class FakeShard:
    """A shard of a `FakeStream`.

    A *position* is the number of records that were stored before the one to be read next.

    Args:
        number: of the shard in its stream.
        hashes: first and last hash key.
        parents: the shards that it came of: none, one (split) or two (merge).
        born: second that its sequence numbers begin with.
        created: seconds since the epoch.

    Attributes:
        children: the shards that it was split or merged into; it is closed then.
        closed: when that was, seconds since the epoch; None: it is open.
        watchers: called when a record arrives, the shard is closed, or a subscription ends.
        empty_pages: empty answers given since the last one with records.
        answers: given since the last one that was false.
    """

    def __init__(
        self,
        number: int,
        hashes: tuple[int, int],
        *,
        parents: Sequence[FakeShard] = (),
        born: int,
        created: float,
        limiter: Limiter,
    ) -> None:
        self.id = f"shardId-{number:012d}"
        self.number = number
        self.hashes = hashes
        self.parents = tuple(parent.id for parent in parents)
        self.born = born
        self.created = created
        self.limiter = limiter
        self.children: list[FakeShard] = []
        self.closed: float | None = None
        self.watchers: list[Callable[[], None]] = []
        self.empty_pages = 0
        self.answers = 0
        self._records: list[FakeRecord] = []
        self._trimmed = 0
        self._last_trimmed = self.start

    @property
    def start(self) -> int:
        """The starting sequence number; no record has it."""
        return _compose(self.born, self.number, 0, self.born)

    @property
    def end(self) -> int | None:
        """The ending sequence number of a closed shard."""
        if self.closed is None:
            return None
        return _compose(self.born, self.number, LAST_INDEX, int(self.closed))

    @property
    def tip(self) -> int:
        """The position after the last record."""
        return self._trimmed + len(self._records)

    @property
    def horizon(self) -> int:
        """The position of the oldest record that is stored."""
        return self._trimmed

    def stored(self) -> Sequence[FakeRecord]:
        """All records that are not trimmed."""
        return tuple(self._records)

    def append(self, key: str, data: bytes, time: float) -> FakeRecord:
        """Stores a record.

        Raises:
            RefusedError: the shard is closed.
        """
        if self.closed is not None:
            raise invalid(f"Shard {self.id} is closed")
        sequence = _compose(self.born, self.number, self.tip + 1, int(time))
        record = FakeRecord(sequence, key, data, time)
        self._records.append(record)
        self.wake()
        return record

    def read(self, position: int, limit: int) -> Sequence[FakeRecord]:
        """Records from a position on; one that is trimmed counts as the oldest."""
        first = max(position - self._trimmed, 0)
        return self._records[first : first + limit]

    def close(self, children: Sequence[FakeShard], time: float) -> None:
        """No record comes after this.

        Raises:
            RefusedError: the shard is closed already.
        """
        if self.closed is not None:
            raise used(f"Shard {self.id} is closed")
        self.closed = time
        self.children += children
        self.wake()

    def has_older(self, before: float) -> bool:
        """Whether there may be something to trim: asked of every shard in every call."""
        oldest = self._records[0].time if self._records else self.closed
        return oldest is not None and oldest < before

    def trim(self, before: float) -> bool:
        """Drops older records; returns whether the shard itself has expired."""
        kept = (i for i, record in enumerate(self._records) if record.time >= before)
        if count := next(kept, len(self._records)):
            self._last_trimmed = self._records[count - 1].sequence
            del self._records[:count]
            self._trimmed += count
        return self.closed is not None and self.closed < before and not self._records

    def locate(self, start: IteratorStart, wall: float) -> int:
        """The position of a start; ``kind`` may be LATEST too.

        Raises:
            RefusedError: a sequence number that the shard never gave, or a time to come.
        """
        if start.kind == "TRIM_HORIZON":
            return self._trimmed
        if start.kind == "LATEST":
            return self.tip
        if start.kind == "AT_TIMESTAMP" and start.time is not None:
            return self._at_time(start.time, wall)
        if start.sequence is not None and start.kind == "AT_SEQUENCE_NUMBER":
            return self._at_sequence(start.sequence, 0)
        if start.sequence is not None and start.kind == "AFTER_SEQUENCE_NUMBER":
            return self._at_sequence(start.sequence, 1)
        raise invalid(f"{start} is no shard iterator type with what it needs")

    def sequence_before(self, position: int) -> int:
        """The number after which a reader at this position goes on."""
        index = min(position, self.tip) - self._trimmed
        return self._records[index - 1].sequence if index > 0 else self._last_trimmed

    def wake(self) -> None:
        """Tells the watchers."""
        for watcher in tuple(self.watchers):
            watcher()

    def _at_time(self, time: float, wall: float) -> int:
        if time > wall:
            raise invalid(f"Timestamp {time} is in the future, it is {wall} now")
        found = (i for i, record in enumerate(self._records) if record.time >= time)
        return self._trimmed + next(found, len(self._records))

    def _at_sequence(self, sequence: int, offset: int) -> int:
        index = _index_of(sequence, self.born, self.number)
        if index is None or not self._was_given(sequence, index):
            raise invalid(f"Sequence number {sequence} did not come from shard {self.id}")
        if index == LAST_INDEX:
            return self.tip
        return max(index - 1 + offset if index else 0, self._trimmed)

    def _was_given(self, sequence: int, index: int) -> bool:
        """Of what is trimmed only the form is known."""
        if index > self.tip:
            return sequence == self.end
        if index <= self._trimmed:
            return True
        return self._records[index - 1 - self._trimmed].sequence == sequence
