"""Python sources that ours is compared with: what one writes first, and what Spark can take.

Each has the columns of Spark's own Kafka source, and one task for each partition, as that has.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.kafka_topic import KEYS, PARTITIONS

__all__ = ["FixedSource", "ListsSource", "NaiveSource"]

_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_BATCH = 16_384
_NOW_US = 1_700_000_000_000_000


class Share(InputPartition):
    """The part of one task: a Kafka partition, or as many rows as one holds."""

    def __init__(self, number: int, rows: int) -> None:
        super().__init__(number)
        self.number = number
        self.rows = rows


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.servers = options["servers"]
        self.topic = options["topic"]
        self.rows = int(options["rows"])

    def partitions(self) -> Sequence[InputPartition]:
        each, rest = divmod(self.rows, PARTITIONS)
        return [Share(number, each + (number < rest)) for number in range(PARTITIONS)]


class NaiveReader(_Reader):
    """A consumer in each task, and a tuple for each record: the first thing that works."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Every record of the partition that is there when the task starts."""
        assert isinstance(partition, Share)  # noqa: S101 - our own partitions come back
        with asyncio.Runner() as runner:
            consumer, end = runner.run(self._start(partition.number))
            try:
                at = 0
                while at < end:
                    # Without a limit `getmany` is half as fast.
                    found = runner.run(consumer.getmany(timeout_ms=1000, max_records=500))
                    for record in itertools.chain(*found.values()):
                        at = record.offset + 1
                        yield _row(record)
            finally:
                runner.run(consumer.stop())

    async def _start(self, number: int) -> tuple[Any, int]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        place = TopicPartition(self.topic, number)
        consumer = AIOKafkaConsumer(bootstrap_servers=self.servers, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        return consumer, (await consumer.end_offsets([place]))[place]


def _row(record: Any) -> tuple[Any, ...]:
    time = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    place = (record.topic, record.partition, record.offset)
    return (record.key, record.value, *place, time, record.timestamp_type)


class FixedReader(_Reader):
    """One Arrow batch over and over: what Spark takes when a source costs nothing."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As many rows of the topic's shape as the partition holds."""
        assert isinstance(partition, Share)  # noqa: S101 - our own partitions come back
        batch = _batch(self.topic, partition.number, 0)
        for done in range(0, partition.rows, _BATCH):
            yield batch.slice(0, partition.rows - done)


class ListsReader(_Reader):
    """Arrow batches made of lists of ``bytes``: what a client in Python can reach at best."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As many rows of the topic's shape as the partition holds."""
        assert isinstance(partition, Share)  # noqa: S101 - our own partitions come back
        for done in range(0, partition.rows, _BATCH):
            batch = _batch(self.topic, partition.number, done)
            yield batch.slice(0, partition.rows - done)


def _batch(topic: str, partition: int, offset: int) -> pa.RecordBatch:
    keys = [b"key-%05d" % (number % KEYS) for number in range(_BATCH)]
    columns = [
        pa.array(keys, pa.binary()),
        pa.array([b"v" * 100 for _ in range(_BATCH)], pa.binary()),
        pa.repeat(pa.scalar(topic), _BATCH),
        pa.repeat(pa.scalar(partition, pa.int32()), _BATCH),
        pa.array(range(offset, offset + _BATCH), pa.int64()),
        pa.array([_NOW_US] * _BATCH, pa.timestamp("us", tz="UTC")),
        pa.repeat(pa.scalar(0, pa.int32()), _BATCH),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


class _Source(DataSource):
    kind: ClassVar[type[_Reader]]

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # nobody asks for another
        return self.kind(dict(self.options))


class NaiveSource(_Source):
    """See `NaiveReader`."""

    kind = NaiveReader


class FixedSource(_Source):
    """See `FixedReader`."""

    kind = FixedReader


class ListsSource(_Source):
    """See `ListsReader`."""

    kind = ListsReader
