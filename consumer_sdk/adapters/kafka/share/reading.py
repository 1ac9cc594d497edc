"""Makes messages of acquired records. The fetched batches may hold more records than those, or fewer.

- Only offsets within the acquired ranges belong to this member.
- An acquired offset without a record, below the last record that was read, is a gap: compacted, or a transaction's
  marker. It is acknowledged as a gap.
- An acquired offset that the bytes do not reach is released, and delivered again.
- No checksum covers where a batch begins. If the first batch begins after the first acquired offset, or the last one is
  between two, a bit may have flipped, and acquired records would be lost as gaps. So what is delivered for the first
  time is released; at the second delivery it is gaps.
- No record is released on its last delivery, after which the broker would drop it: its batch is decoded record by
  record at once.
- Records that cannot be read are released once, because a bit may have flipped on the way (Java's consumer rejects
  them, and they are lost). At the second delivery the batch is decoded record by record. Each record that cannot be
  read, or the whole batch, goes to the dead letters before it is rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

from consumer_sdk.adapters.kafka.decoding.record_batches import batch_headers, oversized
from consumer_sdk.adapters.kafka.decoding.salvage import Salvaged, Unreadable, salvage
from consumer_sdk.adapters.kafka.decoding.unpacking import Batches, Unpacker
from consumer_sdk.adapters.kafka.share.messages import AcquiredRange
from consumer_sdk.records import Assignment, Message

__all__ = ["AcquiredRecords", "Taken"]

LAST_DELTA = struct.Struct(">i")
LAST_DELTA_AT = 23
"""Of a batch: the distance of its last offset from its first."""
BASE = struct.Struct(">q")
RECENT = 2
"""The format of batches whose head says where they end."""


@dataclass(slots=True)
class Taken:
    """What was taken of acquired records.

    Attributes:
        gaps: offsets without a record.
        released: offsets that are to come again.
        error: why they could not be read.
        unreadable: what comes next, if that cannot be read; clipped to what was acquired.
    """

    messages: list[Message] = field(default_factory=list)
    size: int = 0
    gaps: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    error: Exception | None = None
    unreadable: Unreadable | None = None


class AcquiredRecords:
    """The records of one partition from one answer.

    Args:
        data: record batches.
        acquired: ascending ranges, at least one.
        most: bytes that a batch may have, decompressed.
        checks: checksums are compared.

    Attributes:
        deliveries: of the offsets whose delivery is not the first.
        acquisition: which one of the partition's it is.
        losses: of the partition, when these were acquired.
        limit: deliveries that the broker makes of a record.
    """

    def __init__(
        self,
        data: bytes,
        acquired: Iterable[AcquiredRange],
        *,
        most: int,
        checks: bool = True,
        acquisition: int = 0,
        losses: int = 0,
        limit: int | None = None,
    ) -> None:
        self.acquisition = acquisition
        self.losses = losses
        self._data = data
        self._ranges = list(acquired)
        self._most = most
        self._checks = checks
        self._left = {o for first, last, _ in self._ranges for o in range(first, last + 1)}
        self._first, self._last = self._ranges[0].first, self._ranges[-1].last
        again = [each for each in self._ranges if each.delivery_count > 1]
        self.deliveries = {o: count for f, last, count in again for o in range(f, last + 1)}
        self._limit = limit
        self._given_up = 0
        """Bytes up to the end of the last batch that was given up: its head may say that it reaches farther."""
        self._doubt: Exception | None = None
        self._reader: Unpacker | Salvaged = self._open(data, self._first)
        self._misplacement = self._misplaced()

    @property
    def is_empty(self) -> bool:
        """Nothing is left."""
        return not self._left

    def __len__(self) -> int:
        """Counts the offsets that were neither handed out nor acknowledged."""
        return len(self._left)

    def _open(self, data: bytes, position: int) -> Unpacker:
        found = oversized(data, self._most)
        if found is not None:
            at, self._doubt = found
            data = data[:at]
        batches = Batches(data, position, checks=self._checks)
        return Unpacker(batches, skips_old=True)

    def _misplaced(self) -> Exception | None:
        """The error for batches that cannot lie where they say; asked of first deliveries only."""
        spans, first, last = _spans(self._data), self._first, self._last
        if not spans:
            return None
        begins_late = spans[0][0] > first and first not in self.deliveries
        is_between = spans[-1][0] > last and not any(base <= last < end for base, end in spans)
        if not begins_late and not (is_between and last not in self.deliveries):
            return None
        error: Exception = CorruptRecordException(
            f"the offsets {self._first} to {self._last} were acquired, and batches of {spans[0][0]} to {spans[-1][1] - 1} came"
        )
        return error

    # -- taking ---------------------------------------------------------------------------------

    def take(self, assignment: Assignment, max_records: int, max_bytes: int) -> Taken:
        """Returns the next records, and what is to be acknowledged of others.

        Raises:
            UnsupportedCodecError: a library is missing.
        """
        taken = Taken()
        self._release_misplaced(taken)
        while not taken.messages and taken.unreadable is None and not self.is_empty:
            if isinstance(self._reader, Salvaged) and self._reader.unreadable is not None:
                self._take_unreadable(self._reader, self._reader.unreadable, taken)
                continue
            try:
                messages, size = self._reader.take(assignment, max_records, max_bytes)
            except UnsupportedCodecError:
                raise
            except Exception as error:  # noqa: BLE001 - codecs raise whatever they like
                self._doubtful(error, taken)
                continue
            self._sort_out(messages, size, taken)
            if self._reader.is_empty:
                self._end_reader(taken)
        return taken

    def _release_misplaced(self, taken: Taken) -> None:
        """Releases what is delivered for the first time, if it may lie elsewhere."""
        if self._misplacement is not None and (doubted := self._left - self.deliveries.keys()):
            taken.error, taken.released = self._misplacement, sorted(doubted)
            self._left -= doubted

    def _sort_out(self, messages: list[Message], size: int, taken: Taken) -> None:
        """Keeps what was acquired, and finds the gaps."""
        left, reached = self._left, self._reader.next_fetch_offset
        found = [message for message in messages if message.position in left]
        left.difference_update([message.position for message in found])
        if len(found) < len(messages):
            size = sum(message.size for message in found)
        taken.messages, taken.size = found, size
        if reached > self._first:
            taken.gaps += self._pop(self._first, min(reached, self._last + 1) - 1)
            self._first = reached

    def _pop(self, first: int, last: int) -> list[int]:
        """What is left of a range."""
        left = self._left
        if not left:
            return []
        span = range(first, last + 1)
        found = (
            sorted(left.intersection(span))
            if len(span) > len(left)
            else [o for o in span if o in left]
        )
        left.difference_update(found)
        return found

    def _end_reader(self, taken: Taken) -> None:
        """What comes behind it: a batch that holds too much, what was cut off, or what lies behind a salvaged batch."""
        if self.is_empty:
            return
        if isinstance(self._reader, Salvaged):
            self._reader = self._open(self._behind(self._first), self._first)
        elif self._doubt is not None:
            error, self._doubt = self._doubt, None
            self._doubtful(error, taken)
        elif self._is_last_delivery():
            self._doubtful(OSError("the bytes end before what was acquired does"), taken)
        else:
            self._release(taken)

    def counts(self, first: int, last: int) -> list[int]:
        """Delivery counts of a range's offsets whose delivery is not the first."""
        return [count for offset, count in self.deliveries.items() if first <= offset <= last]

    def _is_last_delivery(self) -> bool:
        """Of something that is left."""
        return any(offset in self._left for offset in self._last_deliveries())

    def _last_deliveries(self) -> list[int]:
        limit = self._limit
        if limit is None:
            return []
        return [offset for offset, count in self.deliveries.items() if count >= limit]

    def keep_last_deliveries(self) -> None:
        """Hands out nothing else any more; what is left out is told of as nothing: its holder releases it."""
        self._left.intersection_update(self._last_deliveries())

    def _release(self, taken: Taken) -> None:
        taken.released += self._pop(self._first, self._last)

    # -- what cannot be read --------------------------------------------------------------------

    def _doubtful(self, error: Exception, taken: Taken) -> None:
        """Releases a range once; the second time it is taken apart."""
        if min(self._left) not in self.deliveries and not self._is_last_delivery():
            taken.error = error
            self._release(taken)
            return
        position = self._first
        found = salvage(self._behind(position), position, most=self._most)
        if found is None or (found.unreadable is not None and found.unreadable.last is None):
            found = self._all_unreadable(error)
        self._reader = found

    def _all_unreadable(self, error: Exception) -> Salvaged:
        """Up to the end of the range: the broker says that these offsets lie in the log."""
        first = min(self._left)
        last = next(last for start, last, _ in self._ranges if start <= first <= last)
        raw = self._behind(self._first)
        if (head := next(batch_headers(raw), None)) is not None:
            self._given_up = len(self._data) - len(raw) + head.end
        return Salvaged(first, [Unreadable(first, last, raw, error)], last + 1)

    def _take_unreadable(self, reader: Salvaged, found: Unreadable, taken: Taken) -> None:
        last = self._last if found.last is None else min(found.last, self._last)
        # It may say to lie behind all that was acquired, by a bit that no checksum covers: then it is all of that.
        first = max(found.first, self._first) if found.first <= self._last else self._first
        taken.gaps += self._pop(self._first, first - 1)
        offsets = self._pop(first, last)
        reader.pass_by(last + 1)
        if offsets:
            taken.unreadable = found._replace(first=offsets[0], last=offsets[-1])

    def _behind(self, position: int) -> bytes:
        """From the batch on that holds an offset, or lies behind it."""
        for at, end, magic in batch_headers(self._data):
            if at < self._given_up:
                continue
            if end > len(self._data):
                break
            is_known = magic >= RECENT and end - at >= LAST_DELTA_AT + LAST_DELTA.size
            if not is_known or _end_of(self._data, at) > position:
                return self._data[at:]
        return b""


def _spans(data: bytes) -> list[tuple[int, int]]:
    """First offset and end of each batch, the last of which may be cut off; older formats do not say."""
    spans = []
    for at, _end, magic in batch_headers(data):
        if magic < RECENT:
            return []
        if at + LAST_DELTA_AT + LAST_DELTA.size <= len(data):
            spans.append((int(BASE.unpack_from(data, at)[0]), _end_of(data, at)))
    return spans


def _end_of(data: bytes, at: int) -> int:
    (base,) = BASE.unpack_from(data, at)
    (delta,) = LAST_DELTA.unpack_from(data, at + LAST_DELTA_AT)
    return int(base + delta + 1)
