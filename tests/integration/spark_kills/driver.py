"""A Spark driver in a process of its own, to be killed.

``python -m tests.integration.spark_kills.driver JSON`` runs a query from its checkpoint, starts it
again whenever it fails, and ends with its standard input, which is its parent's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from consumer_sdk import spark_bridge
from tests.integration.spark_kills.sink import Events, Row, Sink

__all__ = ["COLUMNS", "ROOT", "Job"]

ROOT = Path(__file__).parents[3]
COLUMNS = ("topic", "partitionId", "position", "value")
"""What the sink keeps of a record."""


@dataclass(frozen=True)
class Job:
    """What a driver runs.

    Attributes:
        folder: of its checkpoint, its sink and its events.
        url: what it reads.
        master: Spark's.
        options: of the source.
    """

    folder: str
    url: str
    master: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """Spark's own directory."""
        return Path(self.folder) / "checkpoint"

    @property
    def sink(self) -> Path:
        """Where the rows go."""
        return Path(self.folder) / "sink"

    @property
    def events(self) -> Events:
        """What the driver says."""
        return Events(Path(self.folder) / "events")

    def to_json(self) -> str:
        """The driver's argument."""
        return json.dumps(asdict(self))


def session(job: Job) -> SparkSession:
    """A quiet session in which tasks and executors may fail often, as they will."""
    builder: Any = SparkSession.builder
    made: SparkSession = (
        builder.master(job.master)
        .appName("consumer_sdk kills")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.task.maxFailures", "8")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.warehouse.dir", f"{job.folder}/warehouse")
        .config("spark.local.dir", f"{job.folder}/scratch")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def run(job: Job) -> None:
    """Runs the query until this process ends."""
    events = job.events
    sink = Sink(job.sink, events)
    frame = spark_bridge.read_stream(session(job), job.url, **job.options).select(*COLUMNS)

    def deliver(batch: DataFrame, number: int) -> None:
        events.say(f"begin {number}")
        rows = ((*row[:3], bytes(row[3]).decode()) for row in batch.collect())
        sink.write(number, map(Row._make, rows))
        events.say(f"end {number}")

    writer = frame.writeStream.option("checkpointLocation", str(job.checkpoint))
    while True:
        query = writer.foreachBatch(deliver).start()
        events.say("started")
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            events.say(f"failed {' '.join(str(error).split())[:300]}")


def end_with_parent() -> None:
    """The pipe ends when the parent does, however that ended."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    run(Job(**json.loads(sys.argv[1])))
