"""A program on Spark Connect, and the server that it talks to.

``python connect_program.py serve PORT DIRECTORY`` serves until its standard input ends;
``python connect_program.py read PORT DIRECTORY URL`` prints as JSON what it has read.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def serve(port: str, directory: str) -> None:
    """Run Spark with a server of Spark Connect."""
    from pyspark.sql import SparkSession

    from tests.spark_bridge.spark_home import link_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(link_spark(Path(directory) / "home"))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.port", port)
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .getOrCreate()
    )
    print("ready", flush=True)  # noqa: T201 - for the test
    sys.stdin.read()
    spark.stop()


def stream(spark: SparkSession, frame: DataFrame, directory: Path) -> int:
    """Run a query until it has what is there; return how many rows it has written."""
    rows = str(directory / "rows")
    writer = frame.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).format("parquet").start(rows).awaitTermination()
    return spark.read.parquet(rows).count()


def read(port: str, directory: str, url: str) -> dict[str, Any]:
    """Read by each way that there is; return how many rows each has."""
    from pyspark.sql import SparkSession

    from consumer_sdk import spark_bridge

    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    found = {"read": spark_bridge.read(spark, url).count()}
    found["load"] = spark.read.format("consumer_sdk").load(url).count()
    spark.sql(f"CREATE TABLE topic USING consumer_sdk OPTIONS (url '{url}')")
    found["table"] = spark.table("topic").count()
    frame = spark_bridge.read_stream(spark, url, startingOffsets="earliest")
    found["stream"] = stream(spark, frame.select("partition", "offset"), Path(directory))
    return found


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "serve":
        serve(*arguments)
    else:
        print(json.dumps(read(*arguments)))  # noqa: T201 - for the test
