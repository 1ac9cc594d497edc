"""Writes orders into Kafka, and copies the topic into another one."""

import os
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
spark = SparkSession.builder.getOrCreate()

# -- a batch, and a stream
orders = spark.range(1000).select(
    f.col("id").cast("string").alias("key"),
    f.to_json(f.struct("id")).alias("value"),
)
orders.write.format("consumer_sdk").mode("append").save(f"kafka://{KAFKA}/orders")

copies = (
    spark.readStream.format("consumer_sdk")
    .option("startingOffsets", "earliest")
    .load(f"kafka://{KAFKA}/orders")
)
query = (
    copies.select("key", "value")
    .writeStream.format("consumer_sdk")
    .option("checkpointLocation", tempfile.mkdtemp())
    .start(f"kafka://{KAFKA}/copies")
)
