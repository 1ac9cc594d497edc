"""The face that Spark sees of a pulling stream: plain methods, called one after the other.

Spark makes one in several processes and pickles it to the workers. So an instance holds the
options and nothing else until it is asked for an offset, which happens in one process only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from consumer_sdk.spark_bridge.collector import begin_run
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL
from consumer_sdk.spark_bridge.pull.reading import read_task
from consumer_sdk.spark_bridge.read_limits import SupportsTriggerAvailableNow, to_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from consumer_sdk.spark_bridge.pull.run import QueryRun

__all__ = ["PullStreamReader"]


class PullStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader of a broker's logs."""

    def __init__(self, options: PullOptions) -> None:
        self._options = options
        self._run: QueryRun | None = None

    def __reduce__(self) -> tuple[type[PullStreamReader], tuple[PullOptions]]:
        """Workers read by the options alone."""
        return PullStreamReader, (self._options,)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """A constant: Spark asks twice, and again after a crash in the first batch."""
        return INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The options' limit for one micro-batch."""
        return to_spark(self._options.limits.default_limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Reads no further than what is there now."""
        self._running().freeze()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` itself, after a short wait, if no news."""
        return self._running().latest_offset(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the logs ended when they were last asked, for progress reports."""
        return self._run.latest if self._run else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch."""
        return self._running().tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has logged that everything below ``end`` is done."""
        self._running().committed(end)

    def stop(self) -> None:
        """Makes the acks durable that still wait. Spark calls it when a method has raised."""
        if self._run is not None:
            self._run.close()

    def _running(self) -> QueryRun:
        if self._run is None:
            begin_run()
            # Workers, which run nothing, need not import it.
            from consumer_sdk.spark_bridge.pull.run import QueryRun

            self._run = QueryRun(self._options)
        return self._run
