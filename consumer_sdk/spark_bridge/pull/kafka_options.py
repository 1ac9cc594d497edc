"""The option names of Spark's own Kafka source, as what `KafkaRanges` takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consumer_sdk.records import Partition

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = ["KafkaSource"]


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Topics and a connection.

    Attributes:
        topics: their names; none with a pattern.
        pattern: of topics' names, or None.
        partitions: the only ones that are read, or None for all.
        group: whose position is moved, or None.
        client: keyword arguments of `KafkaRanges`; secrets are still named.
        tls: what makes the TLS context.
    """

    broker = "kafka"

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] | None = None
    group: str | None = None
    client: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def open_reader(self) -> RangeReader:
        """A reader that is not open yet; secrets are looked up now."""
        raise NotImplementedError
