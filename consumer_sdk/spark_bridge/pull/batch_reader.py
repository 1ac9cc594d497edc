"""A batch query: everything between two ends that are resolved once, when Spark plans it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from consumer_sdk.range_reads import RangeReader
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.news import patiently
from consumer_sdk.spark_bridge.pull.planning.offsets import Offsets
from consumer_sdk.spark_bridge.pull.planning.resolving import resolved
from consumer_sdk.spark_bridge.pull.planning.starts import check_order
from consumer_sdk.spark_bridge.pull.tasks import plan_tasks, read_task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PullBatchReader"]


class PullBatchReader(DataSourceReader):
    """The batch reader of a broker's logs. It moves no group."""

    def __init__(self, options: PullOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the query."""
        patience = self._options.patience
        plan = patiently(lambda: _plan(self._options), patience)
        return of_this_process().loop.call(plan, timeout=patience + 5)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_task(self._options, partition)


async def _plan(options: PullOptions) -> list[InputPartition]:
    async with of_this_process().connections.borrowed(options) as reader:
        start, end = await _bounds(reader, options)
        return await plan_tasks(reader, start.ranges_to(end), options, start.gone_in(end))


async def _bounds(reader: RangeReader, options: PullOptions) -> tuple[Offsets, Offsets]:
    partitions = await reader.partitions()
    first, last = options.batch_bounds()
    begin = await resolved(reader, options, first, partitions)
    end = await resolved(reader, options, last, partitions)
    end = {partition: at for partition, at in end.items() if partition in begin}
    check_order(first, begin, last, end)
    return Offsets(begin), Offsets(end)
