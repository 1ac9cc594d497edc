"""A talkative driver of a small cluster, whose tasks are run twice, with a secret in its options.

``python -m tests.spark_bridge.pull.trap_cluster FOLDER SERVERS TOPIC SECRET`` prints its plans and
errors, and writes the rows it has read to ``FOLDER/rows``; ``FOLDER/attempts`` says who ran.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from consumer_sdk import spark_bridge
from consumer_sdk.testing.servers.ports import free_ports

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JAAS"]

ROOT = Path(__file__).parents[3]
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="reader" password="{}";'
)
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
}


LOGGING = """
rootLogger.level = info
logger.python.name = org.apache.spark.api.python.PythonGatewayServer
logger.python.level = info
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %p %c{1}: %m%n%ex
"""
"""Without a level for the class that it starts by, PySpark says warnings only."""


def start_cluster() -> str:
    """A master and two workers on hosts of their own; all end with this process' session.

    Spark runs the copy of a task on another host only: ``local-cluster`` has one.
    """
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    _start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    for host in ("127.0.0.1", "127.0.0.2"):
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        _start("worker.Worker", "--host", host, *size, url)
    return url


def _start(name: str, *arguments: str) -> None:
    program = f"{os.environ['SPARK_HOME']}/bin/spark-class"
    # Nobody waits for it: the test ends the whole session.
    subprocess.Popen([program, f"org.apache.spark.deploy.{name}", *arguments])


def session(folder: Path) -> SparkSession:
    """Two executors with one core each; driver and executors say all that they do."""
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={logging}"
    builder: Any = SparkSession.builder
    for name, value in SPECULATION.items():
        builder = builder.config(name, value)
    made: SparkSession = (
        builder.master(start_cluster())
        .appName("consumer_sdk traps")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.executor.extraJavaOptions", java)
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.local.dir", f"{folder}/scratch")
        .getOrCreate()
    )
    return made


def straggling(folder: Path) -> Any:
    """Return a function for ``mapInArrow`` whose very first attempt never ends by itself."""
    attempts = folder / "attempts"
    attempts.mkdir()

    def straggle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        name = attempts / f"{task.partitionId()}-{task.attemptNumber()}"
        is_first = not name.exists()
        name.touch()
        for batch in batches:
            yield batch
            if is_first and name.name == "0-0":
                threading.Event().wait(300)

    return straggle


def read(spark: SparkSession, options: dict[str, str], folder: Path) -> None:
    """Reads to the end, and says which rows there were, and how it is planned."""
    rows: dict[int, list[list[int]]] = {}

    def deliver(frame: DataFrame, number: int) -> None:
        rows[number] = [list(row) for row in frame.collect()]

    frame = spark.readStream.format("consumer_sdk").options(**options).load()
    frame = frame.select("partition", "offset")
    slow = frame.mapInArrow(straggling(folder), "partition int, offset bigint")
    writer = slow.writeStream.foreachBatch(deliver).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    query.awaitTermination()
    frame.explain(extended=True)
    query.explain(extended=True)
    print(query.lastProgress)  # noqa: T201 - is looked through, as the logs are
    (folder / "rows").write_text(json.dumps([row for found in rows.values() for row in found]))


def fail(spark: SparkSession, options: dict[str, str], folder: Path) -> None:
    """Fails for want of a broker that takes the secret, and of a topic; says why."""
    refused = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    stream = spark.readStream.format("consumer_sdk").options(**{**options, **refused}).load()
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/wrong").start()
    absent = {**options, "subscribe": "absent"}
    batch = spark.read.format("consumer_sdk").options(**absent).load()
    for attempt in (query.awaitTermination, batch.count):
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - whatever it is, its text is looked at
            print("failed as it should:", error, repr(error))  # noqa: T201 - likewise


def main(folder: Path, servers: str, topic: str, secret: str) -> None:
    """All of it."""
    spark = session(folder)
    spark_bridge.register(spark)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "group": topic,
        "startingOffsets": "earliest",
        "minPartitions": "2",
        "kafka.sasl.jaas.config": JAAS.format(secret),
    }
    read(spark, options, folder)
    del options["startingOffsets"], options["group"]
    fail(spark, options, folder)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
