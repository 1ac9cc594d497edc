"""Goes on where a query on Spark's own Kafka source has stopped, and reads what there is."""

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from consumer_sdk import spark_bridge

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
OLD = Path(os.environ.get("CHECKPOINTS", "/data/checkpoints")) / "billing"
NEW = OLD.with_name("billing-new")


def process(orders: DataFrame, _number: int) -> None:
    """Spark calls this for each micro-batch."""
    orders.selectExpr("CAST(value AS STRING) AS text", "offset").show()


if not NEW.exists():  # once
    spark_bridge.import_checkpoint(OLD, NEW)

spark = SparkSession.builder.getOrCreate()
orders = (
    spark.readStream.format("consumer_sdk")  # was "kafka"
    .option("kafka.bootstrap.servers", KAFKA)
    .option("subscribe", "from-spark-kafka")
    .option("kafka.group.id", "billing")  # whose offset follows the query
    .option("startingOffsets", "earliest")
    .load()
)
writer = orders.writeStream.option("checkpointLocation", str(NEW)).foreachBatch(process)
writer.trigger(availableNow=True).start().awaitTermination()
