"""Makes messages from what a fetch brought.

The client's own way (a generator that builds a frozen ``ConsumerRecord`` for each record) costs
about twice what the record itself costs to parse. `FastUnpacker` reads the client's batches
itself and keeps its rules: checksums, aborted transactions, control batches, gaps. Where the
client lacks what that needs, `PlainUnpacker` goes through ``ConsumerRecord``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import Any

from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException

from consumer_sdk.records import Assignment, Message

__all__ = ["FastUnpacker", "PlainUnpacker", "Unpacker", "choose_unpacker"]

FAST_NEEDS = (
    "_aborted_producers",
    "_check_crcs",
    "_consume_aborted_up_to",
    "_contains_abort_marker",
    "_isolation_level",
    "_records",
)


class Unpacker(ABC):
    """What is left of one partition's part of a fetch response.

    It takes the place of the client's ``PartitionRecords`` in the fetch result.

    Attributes:
        next_fetch_offset: the position after what was taken; it also moves without records.
        is_empty: nothing is left.
    """

    __slots__ = ("is_empty", "next_fetch_offset")

    def __init__(self, next_fetch_offset: int) -> None:
        self.next_fetch_offset: int = next_fetch_offset
        self.is_empty = False

    @abstractmethod
    def take(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        """The next messages and their size in bytes; an error when there are none before it."""


class PlainUnpacker(Unpacker):
    """Goes through the client's own records."""

    __slots__ = ("_error", "_records")

    def __init__(self, records: Any) -> None:
        super().__init__(records.next_fetch_offset)
        self._records = records
        self._error: Exception | None = None

    def take(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        messages: list[Message] = []
        size = 0
        while len(messages) < max_records and size < max_bytes and not self.is_empty:
            message = self._next(assignment)
            if message is not None:
                messages.append(message)
                size += message.size
        if self._error is not None and not messages:
            raise self._error
        return messages, size

    def _next(self, assignment: Assignment) -> Message | None:
        """The next message; None at the end, or at an error that is raised by itself."""
        try:
            record = next(self._records)
        except StopIteration:
            self.is_empty = True
        except Exception as error:  # noqa: BLE001 - raised by take
            self._error = error
            self.is_empty = True
        else:
            self.next_fetch_offset = self._records.next_fetch_offset
            return Message.make(
                assignment,
                record.offset,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
            )
        self.next_fetch_offset = self._records.next_fetch_offset
        return None


class FastUnpacker(Unpacker):
    """Reads the client's batches directly."""

    __slots__ = ("_batch", "_batch_end", "_error", "_records")

    def __init__(self, records: Any) -> None:
        super().__init__(records.next_fetch_offset)
        self._records = records
        # The client's own generator and its records refer to one another: a megabyte that would
        # wait for the cycle collector.
        records._records_iterator = None
        self._batch: Any = None
        self._batch_end = 0
        self._error: Exception | None = None

    def take(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        messages: list[Message] = []
        size = 0
        while len(messages) < max_records and size < max_bytes and not self.is_empty:
            try:
                if self._batch is not None or self._open_batch():
                    size += self._read(assignment, messages, max_records, max_bytes - size)
            except Exception as error:  # noqa: BLE001 - raised below, after what came before it
                self._error = error
                self.is_empty = True
        if self._error is not None and not messages:
            raise self._error
        self.is_empty = self.is_empty and self._error is None
        return messages, size

    def _read(
        self, assignment: Assignment, messages: list[Message], max_records: int, max_bytes: int
    ) -> int:
        """Reads on in the open batch; returns the bytes read. This is the hot loop."""
        first = self.next_fetch_offset
        size, offset = 0, None
        make, append = Message, messages.append
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
        if offset is None:  # the batch is over; its end counts even when compaction took its last
            self._batch, offset = None, self._batch_end - 1
        self.next_fetch_offset = max(first, offset + 1)
        return size

    def _open_batch(self) -> bool:
        """Opens the next batch that has records for us; False when there was none to open."""
        records = self._records
        if not records._records.has_next():
            self.is_empty = True
            return False
        batch = records._records.next_batch()
        if records._check_crcs and not batch.validate_crc():
            raise CorruptRecordException(f"invalid checksum at offset {batch.base_offset}")
        if self._is_skipped(batch):
            self.next_fetch_offset = batch.next_offset
            return False
        # An islice of an islice: the batch itself may be iterated only once.
        self._batch = islice(batch, None)
        self._batch_end = batch.next_offset
        return True

    def _is_skipped(self, batch: Any) -> bool:
        """Control batches, and those of aborted transactions where only committed ones count."""
        records = self._records
        if records._isolation_level == READ_COMMITTED and batch.producer_id is not None:
            records._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch and records._contains_abort_marker(batch):
                records._aborted_producers.discard(batch.producer_id)
            if batch.is_transactional and batch.producer_id in records._aborted_producers:
                return True
        return bool(batch.is_control_batch)


def choose_unpacker() -> type[FastUnpacker | PlainUnpacker]:
    """The fast one, where this client has what it needs."""
    names = PartitionRecords.__init__.__code__.co_names
    has_all = all(name in names or hasattr(PartitionRecords, name) for name in FAST_NEEDS)
    return FastUnpacker if has_all else PlainUnpacker
