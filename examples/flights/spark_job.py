"""The Spark job: sums up delays per week, carrier, hour and age of aircraft as flights arrive.

python -m examples.flights.spark_job --feed DIR --ledger DIR --checkpoint DIR
python -m examples.flights.spark_job --kafka HOST:PORT --topic flights --dead-letters bad \
    --journal FILE --ledger DIR --checkpoint DIR
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from consumer_sdk import spark_bridge
from examples.flights.children import report
from examples.flights.data import MISSING, planes
from examples.flights.journal import Journal
from examples.flights.ledger import write_batch
from examples.flights.topics import GROUP

SCHEMA = (
    "carrier STRING NOT NULL, hour INT NOT NULL, time_hour TIMESTAMP NOT NULL, "
    "dep_time INT NOT NULL, arr_time INT NOT NULL, dep_delay DOUBLE NOT NULL, tailnum STRING"
)
"""A flight that has flown: one that was cancelled or diverted has no times."""

Keep = Callable[[DataFrame, int], None]


def cells(flights: DataFrame, aircraft: DataFrame) -> DataFrame:
    """One row for each week, carrier, hour and decade in which the aircraft was built.

    A week is a window over the time of departure, so that each micro-batch, whatever its flights,
    adds to the same ones.

    Args:
        flights: with ``decoded``, ``partition`` and ``offset``.
        aircraft: ``tailnum`` and ``built``.
    """
    flight = flights.select("decoded.*", f.struct("partition", "offset").alias("origin"))
    week = f.window("time_hour", "7 days").alias("week")
    return (
        flight.join(f.broadcast(aircraft), "tailnum", "left")
        .groupBy(week, "carrier", "hour", "built")
        .agg(
            f.count("*").alias("flights"),
            f.sum("dep_delay").alias("minutes"),
            f.collect_list("origin").alias("origins"),
        )
        .withColumn("week", f.to_date("week.start"))
    )


def aircraft_of(spark: SparkSession) -> DataFrame:
    """Tail numbers, and the decade in which each aircraft was built."""
    table = spark.read.csv(str(planes()), header=True, nullValue=MISSING)
    year = f.col("year").cast("int")
    return table.select("tailnum", (year - year % 10).alias("built")).cache()


def keep_in(ledger: Path, aircraft: DataFrame) -> Keep:
    """Writes good flights: each micro-batch is one file of the ledger.

    So a micro-batch that runs twice counts once.
    """

    def keep(flights: DataFrame, number: int) -> None:
        write_batch(ledger, number, cells(flights, aircraft).toArrow())
        report(batch=number)

    return keep


def noting(journal: Journal, keep: Keep) -> Keep:
    """Writes what a micro-batch reads before it begins; the source returns the same rows again."""

    def run(rows: DataFrame, number: int) -> None:
        origins = rows.select("partition", "offset").toArrow()
        journal.note(
            zip(*(column.to_pylist() for column in origins), [1] * len(origins), strict=True)
        )
        keep(rows, number)

    return run


def feed(spark: SparkSession, options: argparse.Namespace, keep: Keep) -> tuple[DataFrame, Keep]:
    """Reads flights that a consumer has checked: all of them are good."""
    url = f"feed://{options.feed.resolve()}?maxRowsPerTrigger={options.at_once}"
    return spark_bridge.from_json_value(spark_bridge.read_stream(spark, url), SCHEMA), keep


def pull(spark: SparkSession, options: argparse.Namespace, keep: Keep) -> tuple[DataFrame, Keep]:
    """Reads flights as they are in Kafka: the bad ones go to the dead letters."""
    flights = spark_bridge.read_stream(
        spark,
        f"kafka://{options.kafka}/{options.topic}?group={GROUP}",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=options.at_once,
    )
    rejects = f"kafka://{options.kafka}/{options.dead_letters}"
    route = spark_bridge.route_rejects(rejects, keep, group=GROUP)
    return spark_bridge.from_json_value(flights, SCHEMA), noting(Journal(options.journal), route)


def session() -> SparkSession:
    """Spark on all cores, with workers on this Python; their default is the first in the path.

    The JVM uses only its quick compiler, which halves its work in a run this short.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[*]")
        .appName("flights")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def command_line() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="examples.flights.spark_job", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--feed", type=Path, help="the feed that the consumer writes")
    source.add_argument("--kafka", metavar="HOST:PORT", help="read Kafka itself")
    parser.add_argument("--topic", help="topic of the flights, with --kafka")
    parser.add_argument(
        "--dead-letters", metavar="TOPIC", help="topic for bad flights, with --kafka"
    )
    parser.add_argument("--journal", type=Path, help="file for a journal of reads, with --kafka")
    parser.add_argument("--at-once", type=int, default=50_000, help="flights of a micro-batch")
    parser.add_argument("--ledger", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="folder for the query's checkpoint"
    )
    return parser.parse_args()


def main() -> None:
    """Reads the command line and runs until SIGTERM."""
    options = command_line()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with session() as spark:
        report(spark=spark.version)
        keep = keep_in(options.ledger, aircraft_of(spark))
        flights, take = (feed if options.feed else pull)(spark, options, keep)
        query = (
            flights.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(options.checkpoint))
            .trigger(processingTime="1 second")
            .start()
        )
        while not stopping.is_set() and not query.awaitTermination(1):
            pass
        query.stop()


if __name__ == "__main__":
    main()
