"""Range reads: parts of a broker's logs, without a group, for Spark and for tools.

A range is ``[start, stop)`` of one partition: ``start`` is the first position that is read, and
``stop`` lies after the last one. The same range yields the same records, however often and
wherever it is read, for as long as the broker keeps them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, overload

from consumer_sdk.records import Committed, Outcome, Partition, Position, Start

__all__ = ["ArrowColumn", "Columns", "Header", "PartitionRange", "RangeReader"]

Header: TypeAlias = tuple[str, bytes | None]
T = TypeVar("T")


class PartitionRange(NamedTuple):
    """The records of ``partition`` at or after ``start`` and before ``stop``."""

    partition: Partition
    start: Position
    stop: Position


class ArrowColumn(Sequence[T | None]):
    """An Arrow array in the place of a list; whoever wants Arrow takes it as it is.

    Attributes:
        array: a ``pyarrow.Array``.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    @overload
    def __getitem__(self, at: int) -> T | None: ...
    @overload
    def __getitem__(self, at: slice) -> ArrowColumn[T]: ...
    def __getitem__(self, at: int | slice) -> T | ArrowColumn[T] | None:
        if isinstance(at, slice):
            return ArrowColumn(self.array[at])
        value: T | None = self.array[at].as_py()
        return value

    def __len__(self) -> int:
        return len(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.array.to_pylist() == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Columns:
    """Consecutive records of one partition, column by column; all columns are of one length.

    Attributes:
        positions: ascending; a ``range`` where they are consecutive integers.
        keys: None where a record has none.
        values: likewise.
        timestamps: milliseconds since the epoch; None where a record has none.
        headers: of each record; None when no record has any, or nobody asked for them.
        timestamp_type: Kafka's: 0 for the producer's time, 1 for the broker's; None elsewhere.
    """

    positions: Sequence[Position]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int | None]
    headers: Sequence[Sequence[Header]] | None = None
    timestamp_type: int | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def cut(self, begin: int, end: int) -> Columns:
        """The rows ``begin:end``."""
        return Columns(
            self.positions[begin:end],
            self.keys[begin:end],
            self.values[begin:end],
            self.timestamps[begin:end],
            None if self.headers is None else self.headers[begin:end],
            self.timestamp_type,
        )


class RangeReader(ABC):
    """A connection to a broker that reads ranges.

    Making one does nothing but check its options; it may be pickled until it is opened.
    Everything is asked of one event loop.

    Attributes:
        broker: the broker's name, such as ``"kafka"``.
        group: whose position `commit` moves; None for nobody's.
    """

    __slots__ = ()

    broker: ClassVar[str]
    group: str | None

    @property
    def requests_per_look(self) -> int:
        """About how many requests ``positions(…, LATEST)`` of all partitions costs the broker.

        Who looks again and again for news waits the longer between two looks, the more they cost.
        """
        return 1

    @abstractmethod
    async def open(self) -> None:
        """Connects.

        Raises:
            ConfigurationError: an option or stream that cannot work.
            AdapterError: the broker cannot be reached, or refused.
        """

    @abstractmethod
    async def partitions(self) -> Sequence[Partition]:
        """All partitions of its streams, sorted; new ones are seen within seconds."""

    def is_chosen(self, partition: Partition) -> bool:  # noqa: ARG002 - for those that can tell
        """Whether the options choose a partition, be it there or not.

        One that they do not choose is not gone when `partitions` does not show it. A reader that
        cannot tell says True.
        """
        return True

    @abstractmethod
    async def positions(
        self, partitions: Collection[Partition], at: Start
    ) -> Mapping[Partition, Position | None]:
        """What a start stands for now, for each of ``partitions``.

        ``LATEST`` is the position after the last record that may be read (with read_committed:
        before the first open transaction). ``BROKER`` is where the group stands. None: there is
        none, no record is that new, or the partition is gone.

        Raises:
            AdapterError: the broker did not answer; a `TransientAdapterError` if it may later.
        """

    @abstractmethod
    async def records(self, ranges: Collection[PartitionRange]) -> Mapping[Partition, int]:
        """About how many records each range holds: never 0 unless it is known to be empty.

        Raises:
            ConfigurationError: this connection cannot tell; says which option would let it.
        """

    @abstractmethod
    async def cut(self, wanted: PartitionRange, records: int) -> Position:
        """The position about ``records`` (at least 1) after its start; at most its stop.

        Above the start, unless the range is empty; going on from there reaches the stop.

        Raises:
            ConfigurationError: as `records`.
        """

    @abstractmethod
    async def record_size(self, partitions: Collection[Partition]) -> Mapping[Partition, float]:
        """About how many stored bytes a record takes; partitions that have none are left out.

        Raises:
            ConfigurationError: as `records`.
        """

    @abstractmethod
    def read_range(
        self, wanted: PartitionRange, *, with_headers: bool = False, max_bytes: int = 8 * 2**20
    ) -> AsyncIterator[Columns]:
        """Every record of a range, once and in order, in parts of about ``max_bytes``.

        It ends when nothing below the stop is left to come: gaps (compaction, transactions) end
        it as records do. Closing the iterator early leaves the connection usable.

        Raises:
            PositionOutOfRangeError: the broker no longer has records of it, or never had its start.
            TransientAdapterError: the broker has not answered for too long; read again.
            AdapterError: a record cannot be decoded, or the broker refused.
        """

    @abstractmethod
    async def commit(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, Outcome]:
        """Moves the group's position: everything below is done. Never raises, never goes back.

        RETRY: the broker did not answer. FENCED: the group has other members, or no right.
        """

    # -- any group, for tools -------------------------------------------------------------

    async def committed(
        self,
        group: str,  # noqa: ARG002 - for those that have groups
        partitions: Collection[Partition],
    ) -> Mapping[Partition, Committed | None]:
        """All that the broker knows of where a group stands; None where it knows nothing.

        Raises:
            ConfigurationError: this connection cannot tell; says which option would let it.
            AdapterError: the broker did not answer, or refused.
        """
        return dict.fromkeys(partitions)

    async def members(
        self,
        group: str,  # noqa: ARG002 - likewise
        partitions: Collection[Partition],  # noqa: ARG002
    ) -> Sequence[str]:
        """The names of the consumers that the broker has in a group now, sorted.

        Raises:
            ConfigurationError, AdapterError: as `committed`.
        """
        return []

    async def check_group(
        self,
        group: str,  # noqa: ARG002 - likewise
    ) -> None:
        """Sees that the broker would let this client into a group. Joins nothing.

        Raises:
            AdapterError: the broker would not, or did not answer.
        """
        return

    async def reset(
        self,
        group: str,  # noqa: ARG002 - likewise
        positions: Mapping[Partition, Position],
    ) -> Mapping[Partition, Outcome]:
        """Sets a group's position in the broker, also back. Never raises.

        DURABLE: what the group knew of holes and attempts is gone, or the broker keeps no positions.
        RETRY: the broker did not answer. FENCED: the group has members, or it refused.
        """
        return dict.fromkeys(positions, Outcome.durable())

    @abstractmethod
    def encode_position(self, position: Position) -> str:
        """The position's text form, stable across versions."""

    @abstractmethod
    def decode_position(self, text: str) -> Position:
        """Reads `encode_position` back.

        Raises:
            CheckpointFormatError: ``text`` is not a position of this broker.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Disconnects; the group's position stays. Bounded and idempotent."""
