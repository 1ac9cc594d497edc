"""The Spark job: sums up delays per carrier and hour as flights arrive on a feed.

python -m examples.flights.spark_job --feed DIR --ledger DIR --checkpoint DIR
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from consumer_sdk import spark_bridge
from examples.flights.children import report
from examples.flights.ledger import write_batch

ROWS_AT_ONCE = 50_000  # so that results come early
SCHEMA = "carrier string, hour int, dep_delay double"


def cells(flights: DataFrame) -> DataFrame:
    """One row for each carrier and hour: its flights, their delay in all, and their origins."""
    flight = f.from_json(f.col("value").cast("string"), SCHEMA)
    return (
        flights.select(flight.alias("flight"), f.struct("partition", "offset").alias("origin"))
        .groupBy("flight.carrier", "flight.hour")
        .agg(
            f.count("*").alias("flights"),
            f.sum("flight.dep_delay").alias("minutes"),
            f.collect_list("origin").alias("origins"),
        )
    )


def start(flights: DataFrame, ledger: Path, checkpoint: Path) -> StreamingQuery:
    """Starts the query.

    Each micro-batch is one file of the ledger, so that one that runs twice counts once.
    """

    def keep(batch: DataFrame, number: int) -> None:
        write_batch(ledger, number, cells(batch).toArrow())
        report(batch=number)

    return (
        flights.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )


def session() -> SparkSession:
    """Spark on all cores, its workers on this Python: their default is the first in the path.

    The JVM compiles quickly rather than well, which halves its work in a run this short.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[*]")
        .appName("flights")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def main() -> None:
    """Reads the command line and runs until SIGTERM."""
    parser = argparse.ArgumentParser(prog="examples.flights.spark_job", description=__doc__)
    parser.add_argument("--feed", type=Path, required=True, help="what the consumer writes")
    parser.add_argument("--ledger", type=Path, required=True, help="where the results go")
    parser.add_argument("--checkpoint", type=Path, required=True, help="the query's own folder")
    options = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with session() as spark:
        report(spark=spark.version)
        flights = spark_bridge.read_stream(
            spark, f"feed://{options.feed.resolve()}?maxRowsPerTrigger={ROWS_AT_ONCE}"
        )
        query = start(flights, options.ledger, options.checkpoint)
        while not stopping.is_set() and not query.awaitTermination(1):
            pass
        query.stop()


if __name__ == "__main__":
    main()
