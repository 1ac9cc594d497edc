"""Reads a feed as a stream, and counts its records."""

import os
import tempfile

from pyspark.sql import DataFrame, SparkSession

from consumer_sdk import spark_bridge

FEED = os.environ.get("FEED", "/data/landing/orders")
spark = SparkSession.builder.getOrCreate()

# -- the stream
orders = spark_bridge.read_stream(spark, f"feed://{FEED}?retention=committed&reader=delays")


# -- the query
def process(rows: DataFrame, _number: int) -> None:
    """Spark calls this for each micro-batch."""
    print("orders", rows.count())


writer = orders.writeStream.option("checkpointLocation", tempfile.mkdtemp()).foreachBatch(process)
writer.trigger(availableNow=True).start().awaitTermination()
