"""One of two runs of a program on a PySpark that the tests themselves do not have.

``python -m tests.spark_bridge.version_program DIRECTORY KAFKA_URL FEED_URL`` prints as JSON what it
has read; a second run with the same directory goes on from its checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 300
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
LIMITS = {"kafka": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}, "feed": {}}


def main(directory: Path, urls: dict[str, str]) -> dict[str, Any]:
    """What each way of reading and writing came to."""
    from pyspark import __version__

    from consumer_sdk import spark_bridge

    spark = session(directory)
    kafka = spark_bridge.read(spark, urls["kafka"])
    found: dict[str, Any] = {"version": __version__, "batch": kafka.count()}
    for name, url in urls.items():
        frame = spark_bridge.read_stream(spark, url, **LIMITS[name])
        found[name] = available_now(frame, directory / f"{name}-now")
        found[f"{name}_followed"] = followed(frame, directory / f"{name}-on")
    decoded = spark_bridge.from_json_value(kafka, "id BIGINT NOT NULL")
    found["rejected"] = spark_bridge.split_rejects(decoded)[1].count()
    letters = f"sqlite:///{directory}/letters.db"
    rejected = spark_bridge.split_rejects(decoded)[1]
    found["letters"] = outcome(lambda: spark_bridge.write_dead_letters(rejected, letters))
    stream = spark_bridge.read_stream(spark, urls["kafka"])
    lettered = spark_bridge.split_rejects(spark_bridge.from_json_value(stream, "id BIGINT"))[1]
    found["letter_stream"] = outcome(lambda: spark_bridge.stream_dead_letters(lettered, letters))
    found["avro"] = outcome(lambda: spark_bridge.from_avro_value(kafka, AVRO).collect())
    found["rescued"] = outcome(
        lambda: spark_bridge.from_json_value(kafka, "id BIGINT", rescued="rest").collect()
    )
    found["copied"] = copied(spark, urls["kafka"], directory)
    spark.stop()
    return found


def session(directory: Path) -> SparkSession:
    """Two cores, quiet, with processes that start fast."""
    from pyspark.sql import SparkSession

    from tests.spark_bridge.spark_home import link_spark

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(link_spark(directory / f"home-{time.time_ns()}"))
    builder: Any = SparkSession.builder
    spark: SparkSession = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def collected(frame: DataFrame, checkpoint: Path, **trigger: Any) -> tuple[Any, list[list[str]]]:
    """A query that runs, and what it delivers: a list of records for each micro-batch."""
    batches: list[list[str]] = []

    def keep(rows: DataFrame, _number: int) -> None:
        named = [f"{row[0]}:{row[1]}" for row in rows.select("partition", "offset").collect()]
        batches.extend([named] if named else [])

    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(keep)
    return (writer.trigger(**trigger) if trigger else writer).start(), batches


def available_now(frame: DataFrame, checkpoint: Path) -> list[list[str]]:
    """What a run with ``availableNow`` delivers."""
    query, batches = collected(frame, checkpoint, availableNow=True)
    assert query.awaitTermination(PATIENCE), "the run has not ended"
    return batches


def followed(frame: DataFrame, checkpoint: Path) -> list[list[str]]:
    """What a run with the default trigger delivers until it has all rows; and is stopped."""
    query, batches = collected(frame, checkpoint)
    # Until Spark has logged the last one as done, too: what it has not logged is delivered again.
    query.processAllAvailable()
    query.stop()
    return batches


def copied(spark: SparkSession, url: str, directory: Path) -> int:
    """How many records the copy of the topic has after a batch and a stream into it."""
    from consumer_sdk import spark_bridge

    copy = f"{url.partition('?')[0]}-copy"
    spark_bridge.read(spark, url).write.format("consumer_sdk").mode("append").save(copy)
    stream = spark_bridge.read_stream(spark, url, startingOffsets="earliest").writeStream
    query = (
        stream.format("consumer_sdk")
        .option("checkpointLocation", str(directory / "copied"))
        .trigger(availableNow=True)
        .start(copy)
    )
    assert query.awaitTermination(PATIENCE), "the run has not ended"
    return spark_bridge.read(spark, copy).count()


def outcome(work: Callable[[], Any]) -> str:
    """``works``, or the error of ours."""
    from consumer_sdk.errors import MissingExtraError

    try:
        work()
    except MissingExtraError as error:
        return str(error)
    return "works"


if __name__ == "__main__":
    place, kafka_url, feed_url = sys.argv[1:]
    print(json.dumps(main(Path(place), {"kafka": kafka_url, "feed": feed_url})))  # noqa: T201 - for the test
