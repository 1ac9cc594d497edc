"""Branches that are settled by Spark tasks, which may fail, and run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from consumer_sdk import Message, Receipts
from tests.runtime.bench import Bench, bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # PySpark's own import, when it makes a data frame.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

RECORDS = 12
Line = tuple[bytes, bytes]


def settle_lines(lines: Iterable[Line]) -> bytes:
    """What a task does: a child for each word, and a bad word fails its record."""
    receipts = Receipts()
    for token, line in lines:
        for word in bytes(line).split():
            child = receipts.branch(token)
            receipts.fail(child, "a bad word") if word == b"bad" else receipts.ack(child)
        receipts.ack(token)
    return bytes(receipts)


def by_partitions(spark: SparkSession, lines: list[Line]) -> list[bytes]:
    """Spark's RDDs, computed twice; each task fails at its first attempt, when all is done."""

    def task(part: Iterable[Line]) -> Iterable[bytes]:
        from pyspark import TaskContext

        result = settle_lines(part)
        context = TaskContext.get()
        if context is not None and not context.attemptNumber():
            raise RuntimeError("the first attempt fails")
        yield result

    results = spark.sparkContext.parallelize(lines, 3).mapPartitions(task)
    return [*results.collect(), *results.collect()]


def by_arrow(spark: SparkSession, lines: list[Line]) -> list[bytes]:
    """Data frames, with columns of bytes that come as bytearrays."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield pa.RecordBatch.from_pydict({"receipts": [settle_lines(rows)]})

    frame = spark.createDataFrame(lines, "token binary, line binary").repartition(3)
    results = frame.mapInArrow(task, "receipts binary")
    return [row.receipts for _ in range(2) for row in results.collect()]


@pytest.mark.parametrize("run", [pytest.param(by_partitions, marks=pytest.mark.campaign), by_arrow])
def test_spark_tasks_settle_branches_though_they_run_twice(
    spark: SparkSession, run: Callable[[SparkSession, list[Line]], list[bytes]]
) -> None:
    """Each record is settled once all of its lines were, and fails with a bad one of them."""

    async def test(b: Bench) -> None:
        b.append(*["one two\nthree\n"] * (RECORDS - 1), "one\ntwo bad\nthree")
        async with b.consumer() as consumer:
            lines: list[Line] = []
            messages = aiter(consumer)
            for _ in range(RECORDS):
                message: Message = await anext(messages)
                with message.tree() as tree:
                    values = (message.value or b"").splitlines()
                    lines += [(tree.branch().token(), value) for value in values]
            results = run(spark, lines)
            for result in results:
                consumer.settle(result)
            assert consumer.settle(reduce(or_, map(Receipts.from_bytes, results))) == 0
            stats = consumer.stats()
            assert (stats.settled, stats.failed, stats.retrying) == (RECORDS - 1, 1, 1)
            again = await anext(messages)
            assert (again.attempt, again.value) == (2, b"one\ntwo bad\nthree")

    bench(test)
