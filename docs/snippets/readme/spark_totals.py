"""Adds up each customer's orders. What is no order goes to the topic orders-rejects."""

import os
import tempfile

from pyspark.sql import DataFrame, SparkSession

from consumer_sdk import spark_bridge

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


def process(orders: DataFrame, _number: int) -> None:
    """Spark calls this for each micro-batch."""
    orders.groupBy("decoded.customer").sum("decoded.amount").show()


spark = SparkSession.builder.getOrCreate()
orders = spark_bridge.read_stream(
    spark, f"kafka://{KAFKA}/orders?group=totals", startingOffsets="earliest"
)
decoded = spark_bridge.from_json_value(orders, "customer STRING NOT NULL, amount BIGINT NOT NULL")
route = spark_bridge.route_rejects(f"kafka://{KAFKA}/orders-rejects", process)
writer = decoded.writeStream.option("checkpointLocation", tempfile.mkdtemp()).foreachBatch(route)
writer.trigger(availableNow=True).start().awaitTermination()
