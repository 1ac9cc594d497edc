"""A batch query: everything between two ends that are resolved once, when Spark plans it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.offsets import Offsets
from consumer_sdk.spark_bridge.pull.planning.polling import patiently
from consumer_sdk.spark_bridge.pull.planning.starts import check_order
from consumer_sdk.spark_bridge.pull.planning.stream_planner import resolved
from consumer_sdk.spark_bridge.pull.planning.tasks import plan_tasks
from consumer_sdk.spark_bridge.pull.reading import Ranges, read_task

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
        found = of_this_process().loop.call(plan, timeout=patience + 5)
        return [Ranges(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_task(self._options, partition)


async def _plan(options: PullOptions) -> list[list[PartitionRange]]:
    async with of_this_process().connections.borrowed(options) as reader:
        start, end = await _bounds(reader, options)
        gone = start.gone_in(end)
        return await plan_tasks(reader, start.ranges_to(end), options, gone)


async def _bounds(reader: RangeReader, options: PullOptions) -> tuple[Offsets, Offsets]:
    partitions = await reader.partitions()
    first, last = options.batch_bounds()
    begin = await resolved(reader, options, first, partitions)
    end = await resolved(reader, options, last, partitions)
    end = {partition: at for partition, at in end.items() if partition in begin}
    check_order(first, begin, last, end)
    return Offsets(begin), Offsets(end)
