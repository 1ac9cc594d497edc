"""Record writes: columns of records are written to a broker's topics, for Spark's sink.

At least once: a record is stored when the next `RecordWriter.flush` has returned. Whoever fails before that writes all
records again, and those that the broker had stored are there twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from consumer_sdk.records import Headers

__all__ = ["Outgoing", "Packed", "RecordWriter"]

Packed: TypeAlias = Any
"""Records in the form that one kind of writer sends; only that writer knows it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records for one topic, as columns in step.

    Attributes:
        topic: to write to.
        values: a ``pyarrow`` array of binary; null is a tombstone.
        keys: likewise, or None: no record has a key.
        partitions: integers; null lets the key choose, or the writer. None: all are null.
        headers: of each record, or None: no record has any.
    """

    topic: str
    values: Any
    keys: Any = None
    partitions: Any = None
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)


class RecordWriter(ABC):
    """Writes to one broker.

    Records of one topic and one key are stored in the order in which they were sent, where the
    broker has such an order.

    Concurrency: coroutines run in one event loop, the one that opened it; `pack` in any thread.
    """

    __slots__ = ()

    @abstractmethod
    async def open(self) -> None:
        """Connects.

        Raises:
            AdapterError: the broker cannot be reached, or refused.
        """

    @abstractmethod
    async def prepare(self, topic: str) -> None:
        """Asks the broker whether a topic is there and may be written to; comes before `pack`.

        Raises:
            ConfigurationError: there is no such topic.
            AdapterError: the broker cannot be reached, or refused.
        """

    @abstractmethod
    def pack(self, records: Outgoing) -> Packed:
        """Packs records for `send`; their topic was prepared. Does no I/O.

        Raises:
            ConfigurationError: a partition that the topic does not have.
            AdapterError: a record is larger than may be sent.
        """

    @abstractmethod
    async def send(self, packed: Packed) -> None:
        """Begins to send packed records; returns when the writer can take more.

        Raises:
            AdapterError: this, or something before it, was refused or not answered.
        """

    @abstractmethod
    async def flush(self) -> int:
        """Waits until the broker has acknowledged all records; returns how many there were since the last flush.

        Raises:
            AdapterError: something was refused or not answered. It stays so: make a new writer.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Idempotent and bounded. What was not flushed may be written or not."""
