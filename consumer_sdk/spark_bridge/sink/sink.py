"""``df.write`` and ``df.writeStream`` with ``format("consumer_sdk")``: rows into Kafka and Pulsar.

At least once:

1. A task ends when the broker has acknowledged all of its rows, and fails otherwise. Spark then
   runs it again, and writes all of its rows again.
2. A commit of Spark's has nothing left to do, and an abort can take nothing back: it says so.
3. The topics of an Arrow batch are looked up, and its records made, before any of it is sent: what
   can be known to be wrong fails a task that has written nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType

from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.record_writes import Outgoing, RecordWriter
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.collector import begin_call
from consumer_sdk.spark_bridge.errors import SinkError
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.sink.options import SinkOptions
from consumer_sdk.spark_bridge.sink.rows import SinkColumns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batch_writer", "stream_writer"]

log = logging.getLogger(__name__)

LONGEST = 86_400.0
"""Seconds of one call; the writer's own limits come long before."""
ROWS = 10_000
"""Of a batch that is made of Spark's rows, where it has no Arrow for a stream's sink."""


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of ``df.write``.

    Raises:
        ConfigurationError: an option or a column is wrong, or the mode is ``overwrite``.
    """
    if overwrite:
        raise ConfigurationError(
            'rows are only added to a topic, and replace none: write with .mode("append")'
        )
    return BatchWriter(Delivery.parse(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    """The writer of ``df.writeStream``, in each output mode: all that Spark hands over is added.

    Raises:
        ConfigurationError: an option or a column is wrong.
    """
    return StreamWriter(Delivery.parse(options, schema))


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells Spark: all of its rows are acknowledged."""

    rows: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where to, and which columns. It may be pickled."""

    options: SinkOptions
    columns: SinkColumns

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: StructType) -> Delivery:
        """Checks all that can be known before a row is there."""
        found = SinkOptions.parse(options)
        types = {field.name: field.dataType.simpleString() for field in schema}
        return cls(found, SinkColumns.find(types, found.topic))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Writes all rows of a task. Without rows it connects to nothing.

        Raises:
            SinkError: not all are written, and some may be.
            ConsumerSdkError: none is written.
        """
        begin_call()
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return Written(0)
        with self._writer() as writer:
            return Written(Task(writer, self.columns, self._shown()).write(chain([first], filled)))

    @contextmanager
    def _writer(self) -> Iterator[RecordWriter]:
        process = of_this_process()
        shared = process.connections.client(self.options.identity(), self.options.open_writer)
        writer = process.loop.call(shared.__aenter__(), timeout=LONGEST)
        try:
            yield writer
        except BaseException as error:
            leaving = shared.__aexit__(type(error), error, error.__traceback__)
            process.loop.call(leaving, timeout=LONGEST)
            raise
        process.loop.call(shared.__aexit__(None, None, None), timeout=LONGEST)

    def _shown(self) -> str:
        return self.options.destination.shown

    def aborted(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Says what cannot be taken back."""
        done = [each.rows for each in messages if isinstance(each, Written)]
        log.warning(
            "writing to %s was aborted: %d rows of %d tasks are there, and maybe some of the tasks that failed; "
            "who runs it again writes them again",
            self._shown(),
            sum(done),
            len(done),
        )


@dataclass(slots=True)
class Task:
    """One task's rows on their way.

    Attributes:
        place: how errors name the destination.
        sent: how many rows were handed to the broker's client.
    """

    writer: RecordWriter
    columns: SinkColumns
    place: str
    sent: int = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Returns how many rows there were; all of them are acknowledged."""
        prepared: set[str] = set()
        try:
            for batch in batches:
                self._send([*self.columns.records_of(batch)], prepared)
            of_this_process().loop.call(self.writer.flush(), timeout=LONGEST)
        except ConsumerSdkError as error:
            if not self.sent:
                raise
            raise SinkError(
                f"{self.place}: {error}; up to {self.sent} rows of this task may be written already, and "
                f"are written again when Spark runs it again"
            ) from error
        return self.sent

    def _send(self, parts: Sequence[Outgoing], prepared: set[str]) -> None:
        loop = of_this_process().loop
        for part in parts:
            if part.topic not in prepared:
                loop.call(self.writer.prepare(part.topic), timeout=LONGEST)
                prepared.add(part.topic)
        for part, packed in [(part, self.writer.pack(part)) for part in parts]:
            self.sent += len(part)
            loop.call(self.writer.send(packed), timeout=LONGEST)


class BatchWriter(DataSourceArrowWriter):
    """The sink of a batch."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes a task's rows."""
        return self._delivery.write(iterator)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Says what is there."""
        self._delivery.aborted(messages)


# PySpark has Arrow for a stream's sink since 4.1; before, it hands over rows.
_Base: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class StreamWriter(_Base):  # type: ignore[misc]  # one of two, by PySpark's version
    """The sink of a stream."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch] | Iterator[Row]) -> WriterCommitMessage:
        """Writes a task's rows of one micro-batch."""
        first = next(iterator, None)
        if isinstance(first, Row):
            rows = chain([first], iterator)
            return self._delivery.write(record_batches(rows, self._delivery.columns.places))
        return self._delivery.write(iterator if first is None else chain([first], iterator))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Says what is there."""
        self._delivery.aborted(messages)


def record_batches(
    rows: Iterable[Any], places: Sequence[tuple[str, int]]
) -> Iterator[pa.RecordBatch]:
    """Rows of Spark's as Arrow; columns that the sink does not use are null."""
    pa = import_pyarrow()
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {"topic": pa.string(), "partition": pa.int32(), "headers": pa.list_(header)}
    source = iter(rows)
    while part := list(islice(source, ROWS)):
        columns = [pa.nulls(len(part))] * len(part[0])
        for name, place in places:
            values = [row[place] for row in part]
            columns[place] = pa.array(values, kinds.get(name, pa.binary()))
        yield pa.RecordBatch.from_arrays(columns, names=[f"{n}" for n in range(len(columns))])
