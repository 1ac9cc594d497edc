"""Where a micro-batch begins and how much it may take, as Spark says it, or does not.

Since PySpark 4.2 Spark tells a Python source both (admission control). PySpark 4.0 and 4.1 ask for
the latest offset and say nothing, do not tell a run with ``availableNow`` from others, and read one
micro-batch in it. Hence, there:

- The source remembers where its last micro-batch ended. Spark tells it that of a query that is
  started again by ``partitions(end, end)``, before it asks for anything.
- The first micro-batch of a run takes everything: with a limit, an ``availableNow`` run would end
  with records unread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from consumer_sdk.spark_bridge.pull.planning.admission import Limit

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ModuleNotFoundError:  # PySpark 4.0 and 4.1
        SupportsTriggerAvailableNow = object

__all__ = ["NextBatch", "SupportsTriggerAvailableNow", "from_spark", "to_spark"]

Offset = dict[str, Any]


class NextBatch:
    """The next micro-batch of one run of one query.

    Args:
        initial: gives the offset that a new query begins at.
        limit: the options'.

    Attributes:
        is_asked: ``latestOffset`` was called in this run.
    """

    def __init__(self, initial: Callable[[], Offset], limit: Limit) -> None:
        self._initial = initial
        self._start: Offset | None = None
        self._limit = limit
        self.is_asked = False

    def asked(self, start: Offset | None, limit: ReadLimit | None) -> tuple[Offset, Limit]:
        """Where it begins and its limit; the arguments are those of ``latestOffset``."""
        is_first, self.is_asked = not self.is_asked, True
        if start is not None:
            return start, Limit("all") if limit is None else from_spark(limit)
        return self._start or self._initial(), Limit("all") if is_first else self._limit

    def answered(self, end: Offset) -> None:
        """``latestOffset`` says that a micro-batch ends at ``end``."""
        self._start = end

    def planned(self, end: Offset) -> None:
        """``partitions`` is called for a micro-batch that ends at ``end``.

        That is news only before the first answer. After it Spark may plan an older micro-batch again: its
        rows were kept, and are counted while a later one is on its way.
        """
        if not self.is_asked:
            self._start = end


def to_spark(limit: Limit) -> ReadLimit:
    """Spark's form of a limit; there is none before PySpark 4.2, which asks for none."""
    from pyspark.sql.streaming import datasource

    match limit.kind:
        case "max_rows":
            return datasource.ReadMaxRows(limit.number)
        case "max_bytes":
            return datasource.ReadMaxBytes(limit.number)
        case "min_rows":
            return datasource.ReadMinRows(limit.number)
        case "max_files":
            return datasource.ReadMaxFiles(limit.number)
    return datasource.ReadAllAvailable()


def from_spark(limit: ReadLimit) -> Limit:
    """Our form of a limit of Spark's."""
    from pyspark.sql.streaming import datasource

    match limit:
        case datasource.ReadMaxRows():
            return Limit("max_rows", limit.max_rows)
        case datasource.ReadMaxBytes():
            return Limit("max_bytes", limit.max_bytes)
        case datasource.ReadMinRows():
            return Limit("min_rows", limit.min_rows)
        case datasource.ReadMaxFiles():
            return Limit("max_files", limit.max_files)
    return Limit("all")
