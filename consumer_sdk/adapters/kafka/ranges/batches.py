"""Makes columns of fetched record batches, several at a time.

`numpy_decoder` reads batches of the current format. If it cannot, aiokafka's C parser makes an object for each record
while its batch is read. The rules are aiokafka's: checksums, aborted transactions, control batches, gaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from aiokafka.errors import CorruptRecordException
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from consumer_sdk.adapters.kafka.decoding.record_batches import (
    FORMAT_OF_BATCHES,
    MAX_BATCH_BYTES,
    batch_headers,
    check_batch,
)
from consumer_sdk.adapters.kafka.decoding.unpacking import AHEAD, check_place
from consumer_sdk.adapters.kafka.ranges.numpy_decoder import Stored, can_read, read_columns
from consumer_sdk.adapters.kafka.ranges.record_decoder import NO_TIMESTAMP, Part, collector_off
from consumer_sdk.range_reads import Columns
from consumer_sdk.records import Message

__all__ = ["Columnizer", "Fetched", "Sound", "columns_of", "open_batches", "sound_batches"]

MAGIC_AT, OLD_ATTRIBUTES_AT, ATTRIBUTES_AT = 16, 17, 22
TIMESTAMP_TYPE_BIT = 0x08
FIRST_OFFSET_BYTES = 8


class Fetched(NamedTuple):
    """A record batch: the client's, and its bytes as they are on the wire."""

    batch: Any
    data: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    @property
    def kind(self) -> tuple[int, int]:
        """Its format, and what its timestamps are; the same for all records."""
        magic = self.data[MAGIC_AT]
        at = ATTRIBUTES_AT if magic >= FORMAT_OF_BATCHES else OLD_ATTRIBUTES_AT
        return magic, self.data[at] & TIMESTAMP_TYPE_BIT


def open_batches(data: bytes) -> list[Fetched]:
    """The record batches; one that is cut off at the end is left out."""
    return [*_open(data)]


class Sound(NamedTuple):
    """What of an answer may be believed.

    Attributes:
        batches: in order.
        error: what is wrong with the one behind them; None: there is no such batch.
        claim: where the first batch says that it ends, if nothing else shows it; there are no
            batches then.
    """

    batches: list[Fetched]
    error: Exception | None = None
    claim: int | None = None


def sound_batches(
    data: bytes, position: int, bound: int, *, is_begin: bool, known: int | None = None
) -> Sound:
    """The record batches up to one that cannot be opened, or cannot lie where it says.

    Where a batch lies is not covered by its checksum. One that does not begin where the one before
    it ends (compaction leaves gaps, and a range may begin within a batch) may be what is wrong, and
    not the next one that seems to lie within it: both are left out then. So is one of which nothing
    shows where it ends: it comes first in the next answer.

    Args:
        position: what was asked for.
        bound: what lies before it may be read, as the answer says.
        is_begin: of the range, which may lie within a batch; what is behind another one does not.
        known: where an earlier answer has said that the first batch ends.
    """
    found: list[Fetched] = []
    due, end = position, position
    try:
        for fetched in _open(data):
            check_place(fetched.batch, end, bound + AHEAD, is_first=is_begin and not found)
            found.append(fetched)
            due, end = end, fetched.batch.next_offset
        behind = _begin_behind(found, data) if found else None
    except Exception as error:  # noqa: BLE001 - the client's C raises whatever it likes
        if is_begin and len(found) == 1 and not _is_moved(found[0], due) and end != known:
            return Sound([], claim=end)
        return Sound(found[:-1] if found and _is_moved(found[-1], due) else found, error)
    second = [each.batch.base_offset for each in found[1:2] if not _is_old(each.batch)]
    first = found[0].batch.next_offset if found else known
    if first != known and not _is_shown(found[0], position, (*second, behind)[0], bound):
        return Sound([], claim=first)
    if found[1:] and not _is_shown(found[-1], due, behind, bound):
        found.pop()
    return Sound(found)


def _begin_behind(found: Sequence[Fetched], data: bytes) -> int | None:
    """Where the batch begins of which the answer has only the first bytes; None: there are none.

    Raises:
        CorruptRecordException: within the last one that is whole.
    """
    at, end = sum(each.size for each in found), found[-1].batch.next_offset
    head = data[at : at + FIRST_OFFSET_BYTES]
    if len(head) < FIRST_OFFSET_BYTES:
        return None
    begin = int.from_bytes(head, signed=True)
    if begin < end:
        raise CorruptRecordException(f"a batch at {begin} cannot lie behind one up to {end}")
    return begin


def _is_moved(fetched: Fetched, due: int) -> bool:
    """It does not begin where the one before it ends."""
    return not _is_old(fetched.batch) and fetched.batch.base_offset != due


def _is_shown(fetched: Fetched, due: int, behind: int | None, bound: int) -> bool:
    """Something besides the batch shows where it lies: the one before it, or what is behind it."""
    if not _is_moved(fetched, due):
        return True
    if fetched.batch.base_offset > due:
        return behind is not None
    return bool(fetched.batch.next_offset == (bound if behind is None else behind))


def _open(data: bytes) -> Iterator[Fetched]:
    # One by one: the client takes all batches for what the first is, and a log may hold several
    # formats.
    for head in batch_headers(data):
        own = data[head.at : head.end]
        records = MemoryRecords(own)
        while records.has_next():
            yield Fetched(records.next_batch(), own)


def columns_of(messages: Sequence[Message], data: bytes, *, with_headers: bool) -> Columns:
    """Single records of one batch, of which these are the bytes."""
    headers = [message.headers for message in messages] if with_headers else []
    times = (message.timestamp for message in messages)
    return Columns(
        [message.position for message in messages],
        [message.key for message in messages],
        [message.value for message in messages],
        [None if time == NO_TIMESTAMP else time for time in times],
        headers if any(headers) else None,
        1 if Fetched(None, data).kind[1] else 0,
    )


class Aborted:
    """Which batches of one fetch response belong to aborted transactions.

    Args:
        transactions: (producer, first offset) of each, as the broker lists them.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]] | None) -> None:
        self._ahead = sorted(transactions or (), key=lambda one: one[1], reverse=True)
        self._producers: set[int] = set()

    def has(self, batch: Any) -> bool:
        """The batch is one of an aborted transaction; batches are asked about in order."""
        while self._ahead and self._ahead[-1][1] <= batch.base_offset:
            self._producers.add(self._ahead.pop()[0])
        if batch.is_control_batch and _is_abort(batch):
            self._producers.discard(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._producers


def _is_abort(batch: Any) -> bool:
    return any(ControlRecord.parse(record.key) == ABORT_MARKER for record in batch)


Opened: TypeAlias = Fetched | Stored


def _is_old(batch: Any) -> bool:
    """Of a format that knows no transactions."""
    return batch.producer_id is None


class Columnizer:
    """Turns batches into columns of the records in ``[start, stop)``.

    Args:
        start: what lies before is left out: a batch may begin earlier.
        stop: what lies at or after it is left out.
        is_committed: aborted transactions are left out.
        with_headers: headers are read.
        max_bytes: about how many bytes of records a part has.
        most: bytes that a batch may have, decompressed.

    Attributes:
        reached: what lies before it was read, or is not to be read.
        data: of the batch that is being read, and maybe of the one behind it: who failed is the last.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        *,
        is_committed: bool,
        with_headers: bool,
        max_bytes: int,
        most: int = MAX_BATCH_BYTES,
    ) -> None:
        self._start = start
        self._stop = stop
        self._is_committed = is_committed
        self._with_headers = with_headers
        self._max_bytes = max_bytes
        self._most = most
        self._tries_numpy = True
        self.reached = start
        self.data = b"", b""

    def columns(
        self, batches: list[Fetched], aborted: Iterable[tuple[int, int]] | None
    ) -> Iterator[Columns]:
        """The parts, none of them empty; empties ``batches``.

        Raises:
            CorruptRecordException: a checksum does not fit; what came before was yielded.
            LargeBatchError: a batch has more bytes than it may; likewise.
            Exception: likewise, whatever a codec or the client says of what it cannot read.
        """
        self._start = max(self._start, self.reached)
        for group, end in self._groups(batches, Aborted(aborted)):
            for columns in self._read(group):
                if len(cut := self._cut(columns)):
                    yield cut
            self.reached = max(self.reached, end)

    def _groups(
        self, batches: list[Fetched], aborted: Aborted
    ) -> Iterator[tuple[list[Opened], int]]:
        """Batches that are read together, and the position behind them and what is left out."""
        group: list[Opened] = []
        alike, size, end = None, 0, self.reached
        try:
            for fetched, is_wanted in self._sound(batches, aborted):
                if is_wanted:
                    opened = self._opened(fetched)
                    kind = type(opened), fetched.kind
                    if group and (size >= self._max_bytes or kind != alike):
                        yield group, end
                        group, size = [], 0
                    group.append(opened)
                    alike = kind
                    size += opened.size
                end = fetched.batch.next_offset
        except Exception:
            data = self.data
            yield group, end  # which may fail itself, and is first
            self.data = data
            raise
        yield group, end

    def _opened(self, fetched: Fetched) -> Opened:
        can_try = self._tries_numpy and not _is_old(fetched.batch) and can_read(*fetched)
        return Stored.of(*fetched) if can_try else fetched

    def _sound(self, batches: list[Fetched], aborted: Aborted) -> Iterator[tuple[Fetched, bool]]:
        """Each, and whether it has records for us."""
        batches.reverse()
        while batches:
            fetched = batches.pop()  # let go when it is read: it may hold what it decompresses
            self.data = fetched.data, batches[-1].data if batches else b""
            batch = fetched.batch
            if not batch.validate_crc():
                raise CorruptRecordException(f"invalid checksum before offset {batch.next_offset}")
            is_wanted = self._is_wanted(batch, aborted)
            if is_wanted:
                check_batch(fetched.data, self._most)
            yield fetched, is_wanted

    def _is_wanted(self, batch: Any, aborted: Aborted) -> bool:
        if not _is_old(batch):
            if self._is_committed and aborted.has(batch):
                return False
            if batch.base_offset >= self._stop:
                return False
        return not batch.is_control_batch

    def _read(self, group: list[Opened]) -> Iterator[Columns]:
        stored = [each for each in group if isinstance(each, Stored)]
        if stored:
            columns = read_columns(stored, with_headers=self._with_headers)
            if columns is not None:
                yield columns
                return
            self._tries_numpy = False  # what comes next is likely to be alike
            stored.clear()
        group.reverse()
        error: Exception | None = None
        while group and error is None:
            with collector_off():
                part, error = self._read_objects(group)
            if len(part):
                yield part
        if error is not None:
            raise error

    def _read_objects(self, group: list[Opened]) -> tuple[Columns, Exception | None]:
        """Reads batches until there are enough records; each is let go when it is read.

        Returns:
            the records, and what is wrong with the batch behind them.
        """
        part = Part()
        while group and part.size < self._max_bytes:
            found = group.pop()
            try:
                records = list(found.batch)
            except Exception as error:  # noqa: BLE001 - codecs raise whatever they like
                self.data = found.data, b""
                return part.columns(), error
            if records:
                part.add(records, with_headers=self._with_headers)
            self.reached = max(self.reached, found.batch.next_offset)
        return part.columns(), None

    def _cut(self, columns: Columns) -> Columns:
        offsets = columns.positions
        if offsets[0] >= self._start and offsets[-1] < self._stop:
            return columns
        return columns.cut(bisect_left(offsets, self._start), bisect_left(offsets, self._stop))
