"""Makes messages of fetched batches.

aiokafka builds a frozen ``ConsumerRecord`` for each record, which costs about twice as much as parsing the record.
`Unpacker` reads the batches itself, by the same rules: checksums, aborted transactions, control batches, gaps.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

from aiokafka.errors import CorruptRecordException, for_code
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from consumer_sdk.records import Assignment, Message

__all__ = ["AHEAD", "Batches", "Unpacker", "check_place", "partition_names", "partition_of"]

AHEAD = 1 << 20
"""Offsets that a batch may lie above the high watermark: its own answer says what that was before
it was read."""


class Batches:
    """Record batches of one partition, as an answer has brought them.

    Args:
        data: the batches; the last may be cut off.
        position: the offset that was asked for.
        aborted: producer and first offset of each aborted transaction.
        is_committed: only committed records are wanted.
        checks: the batches' checksums are compared.
    """

    __slots__ = ("_aborted", "_is_committed", "_producers", "_records", "checks", "position")

    def __init__(
        self,
        data: bytes,
        position: int,
        aborted: Sequence[tuple[int, int]] = (),
        *,
        is_committed: bool = False,
        checks: bool = True,
    ) -> None:
        self.position = position
        self.checks = checks
        self._records = MemoryRecords(data)
        self._is_committed = is_committed
        self._aborted = sorted(aborted, key=_first_offset, reverse=True)
        self._producers: set[int] = set()

    def next(self) -> Any:
        """The next batch; None if there is none that is complete."""
        return self._records.next_batch() if self._records.has_next() else None

    def is_skipped(self, batch: Any) -> bool:
        """Control batches, and those of aborted transactions where only committed ones count.

        To be asked of each batch, in order.
        """
        if self._is_committed and batch.producer_id is not None:
            while self._aborted and self._aborted[-1][1] <= batch.base_offset:
                self._producers.add(self._aborted.pop()[0])
            if batch.is_control_batch and _is_abort(batch):
                self._producers.discard(batch.producer_id)
            if batch.is_transactional and batch.producer_id in self._producers:
                return True
        return bool(batch.is_control_batch)


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]


def _is_abort(batch: Any) -> bool:
    """Compaction leaves markers without a record, of transactions of which it has left nothing."""
    marker = next(batch, None)
    return marker is not None and bool(ControlRecord.parse(marker.key) == ABORT_MARKER)


class Unpacker:
    """What is left of one partition's part of a fetch response.

    Args:
        batches: what came.
        highwater: the broker's high watermark, as the response says.
        skips_old: batches that end before the position are passed over, as this broker sends them.
        continues: the position is where a batch has ended: the first one cannot begin before it.

    Attributes:
        next_fetch_offset: the position after what was taken; it also moves without records.
        is_empty: nothing is left.
    """

    __slots__ = (
        "_ahead",
        "_batch",
        "_batch_end",
        "_batches",
        "_error",
        "_highest",
        "_is_first",
        "_skips_old",
        "is_empty",
        "next_fetch_offset",
    )

    def __init__(
        self,
        batches: Batches,
        highwater: int | None = None,
        *,
        skips_old: bool = False,
        continues: bool = False,
    ) -> None:
        self.next_fetch_offset = batches.position
        self.is_empty = False
        self._batches = batches
        self._highest = sys.maxsize if highwater is None else highwater + AHEAD
        self._ahead: Any = None
        self._skips_old = skips_old
        self._is_first = skips_old or not continues
        self._batch: Any = None
        self._batch_end = 0
        self._error: Exception | None = None

    def take(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        """The next messages and their size in bytes.

        An error comes when there is nothing before it, and again whenever it is asked.
        """
        start = self.next_fetch_offset
        messages: list[Message] = []
        size = 0
        while len(messages) < max_records and size < max_bytes:
            # Behind an error there is nothing: the next batch would leave a gap that a commit passes.
            if self.is_empty or self._error is not None:
                break
            try:
                if self._batch is not None or self._open_batch():
                    size += self._read(assignment, messages, max_records, max_bytes - size)
            except Exception as error:  # noqa: BLE001 - raised below, after what came before it
                self._error = error
                size = sum(message.size for message in messages)
        if self._error is not None and self.next_fetch_offset == start:
            raise self._error
        return messages, size

    def _read(
        self, assignment: Assignment, messages: list[Message], max_records: int, max_bytes: int
    ) -> int:
        """Reads on in the open batch; returns the bytes read. This is the hot loop."""
        first = self.next_fetch_offset
        size, offset = 0, None
        make, append = Message, messages.append
        try:
            for record in islice(self._batch, max_records - len(messages)):
                offset = record.offset
                if offset < first:
                    continue  # a compressed batch may begin before the position asked for
                message = make()
                message.assignment = assignment
                message.position = offset
                message.key = key = record.key
                message.value = value = record.value
                message.headers = record.headers or ()
                message.timestamp = record.timestamp
                append(message)
                size += len(value or b"") + len(key or b"")
                if size >= max_bytes:
                    break
        except Exception:
            self._reached(offset)  # the record behind it cannot be read
            raise
        if offset is None:  # the batch is over; its end counts even when compaction took its last
            self._batch, offset = None, self._batch_end - 1
        self._reached(offset)
        return size

    def _reached(self, offset: int | None) -> None:
        if offset is not None:
            self.next_fetch_offset = max(self.next_fetch_offset, offset + 1)

    def _open_batch(self) -> bool:
        """Opens the next batch that has records for us; False when there was none to open."""
        batch, self._ahead = self._ahead, None
        if batch is None and (batch := self._batches.next()) is None:
            self.is_empty = True
            return False
        if self._batches.checks and not batch.validate_crc():
            raise CorruptRecordException(f"invalid checksum at offset {_first_of(batch)}")
        # Old formats have no first offset. The usual case is decided here: it counts if batches are small.
        is_old = batch.producer_id is None
        if (
            is_old
            or batch.base_offset != self.next_fetch_offset
            or batch.next_offset > self._highest
        ):
            self._check_place(batch)
        else:
            self._is_first = False
        if self._batches.is_skipped(batch):
            self._reached(batch.next_offset - 1)  # it may be an old one
            return False
        # An islice of an islice: the batch itself may be iterated only once.
        self._batch = islice(batch, None)
        self._batch_end = batch.next_offset
        return True

    def _check_place(self, batch: Any) -> None:
        """See `check_place`; one that leaves a gap, as compaction does, must not hide the next."""
        position, end = self.next_fetch_offset, batch.next_offset
        if self._skips_old and end <= position:
            return
        leaves_gap = _first_of(batch) > position
        # Compaction leaves gaps, but none where the log ends.
        highest = self._highest - AHEAD if leaves_gap else self._highest
        check_place(batch, position, highest, is_first=self._is_first)
        self._is_first = False
        if leaves_gap:
            self._ahead = self._batches.next()
            if self._ahead is not None and _first_of(self._ahead) < end:
                raise _misplaced(batch, position)


def check_place(batch: Any, position: int, highest: int, *, is_first: bool) -> None:
    """Sees that a batch can lie where it says, which the checksum does not cover.

    One bit of that, and this batch, or what follows it, would be taken for delivered already.

    Args:
        position: what was asked for, or what is behind the batch before.
        highest: what no batch reaches beyond.
        is_first: of an answer: it may begin before the position.

    Raises:
        CorruptRecordException: it cannot.
    """
    is_behind = is_first or _first_of(batch) >= position
    if not (is_behind and position < batch.next_offset <= highest):
        raise _misplaced(batch, position)


def _misplaced(batch: Any, position: int) -> CorruptRecordException:
    return CorruptRecordException(
        f"a batch of the offsets {_first_of(batch)} to {batch.next_offset - 1} cannot lie at {position}"
    )


def _first_of(batch: Any) -> int:
    """Its first offset; of the formats before Kafka 0.11, which know no producers, its last."""
    return int(batch.next_offset - 1 if batch.producer_id is None else batch.base_offset)


def partition_names(response: Any) -> Sequence[str]:
    """What a fetch response, or its class, has of each partition, in order."""
    schema = response.SCHEMA
    topics = schema.fields[schema.names.index("topics")].array_of
    names: Sequence[str] = topics.fields[topics.names.index("partitions")].array_of.names
    return names


def partition_of(response: Any) -> dict[str, Any] | None:
    """The one partition that was asked for, by the names of the response's own schema."""
    code = getattr(response, "error_code", 0)
    if code:
        raise for_code(code)("the fetch as a whole")
    for _topic, partitions in response.topics or ():
        for partition in partitions:
            return dict(zip(partition_names(response), partition, strict=True))
    return None
