"""Adds up the orders of each customer in Spark."""

import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import sum as total

from consumer_sdk import spark_bridge

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")

builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

orders = spark_bridge.read_stream(spark, f"kafka://{KAFKA}/tutorial", startingOffsets="earliest")
decoded = spark_bridge.from_json_value(orders, "customer STRING, amount BIGINT")
totals = (
    decoded.groupBy("decoded.customer")
    .agg(total("decoded.amount").alias("amount"))
    .orderBy("customer")
)
query = (
    totals.writeStream.format("console").outputMode("complete").trigger(availableNow=True).start()
)
query.awaitTermination()
