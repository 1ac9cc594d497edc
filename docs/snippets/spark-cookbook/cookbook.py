"""Recipes for Spark. Each part below a line ``# -- name`` is a program of its own, together with the first part."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from consumer_sdk import spark_bridge

spark = SparkSession.builder.getOrCreate()


def process(rows: DataFrame, _number: int) -> None:
    """Stands for what your query does with a micro-batch."""
    rows.show()


# -- orders
ORDER = "id BIGINT NOT NULL, customer STRING, amount DOUBLE, at TIMESTAMP NOT NULL"


def read_orders(url: str, **options: Any) -> DataFrame:
    """Orders that could be decoded, in the column `decoded`."""
    rows = spark_bridge.read_stream(spark, url, startingOffsets="earliest", **options)
    return spark_bridge.from_json_value(rows, ORDER).where("decoded IS NOT NULL")


# -- upsert into a delta table
UPSERT = """
    MERGE INTO {table} t USING changes c ON t.id = c.id
    WHEN MATCHED AND c.offset > t.offset THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
"""


def upsert_into(table: str) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch`: each id's newest row is written, if it is newer than the table's."""

    def upsert(rows: DataFrame, _number: int) -> None:
        columns = f.struct("decoded.*", "offset")
        newest = rows.groupBy("decoded.id").agg(f.max_by(columns, "offset").alias("row"))
        newest.select("row.*").createOrReplaceTempView("changes")
        rows.sparkSession.sql(UPSERT.format(table=table))

    return upsert


spark.sql(f"CREATE TABLE IF NOT EXISTS orders ({ORDER}, offset BIGINT) USING DELTA")
orders = read_orders("kafka://127.0.0.1:9092/orders?group=delta")
query = (
    orders.writeStream.foreachBatch(upsert_into("orders"))
    .option("checkpointLocation", "/data/checkpoints/delta")
    .trigger(processingTime="10 seconds")
    .start()
)

# -- upsert into an iceberg table
spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
spark.sql(f"CREATE TABLE IF NOT EXISTS lake.shop.orders ({ORDER}, offset BIGINT) USING ICEBERG")
orders = read_orders("kafka://127.0.0.1:9092/orders?group=iceberg")
query = (
    orders.writeStream.foreachBatch(upsert_into("lake.shop.orders"))
    .option("checkpointLocation", "/data/checkpoints/iceberg")
    .trigger(processingTime="1 minute")
    .start()
)

# -- windows that end: watermarks
orders = read_orders("kafka://127.0.0.1:9092/orders?group=windows").select("decoded.*")
revenue = (
    orders.withWatermark("at", "10 minutes")
    .groupBy(f.window("at", "1 hour"))
    .agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
    .select("window.start", "orders", "amount")
)
query = (
    revenue.writeStream.format("parquet")
    .option("checkpointLocation", "/data/checkpoints/windows")
    .trigger(processingTime="10 seconds")
    .start("/data/revenue")
)

# -- join two streams
orders = read_orders("kafka://127.0.0.1:9092/orders?group=join").select(
    f.col("decoded.id"), f.col("decoded.amount"), f.col("decoded.at")
)
payments = spark_bridge.from_json_value(
    spark_bridge.read_stream(
        spark, "kafka://127.0.0.1:9092/payments?group=join", startingOffsets="earliest"
    ),
    "order BIGINT NOT NULL, paid TIMESTAMP NOT NULL",
).select(f.col("decoded.order"), f.col("decoded.paid"))
paid = orders.withWatermark("at", "10 minutes").join(
    payments.withWatermark("paid", "10 minutes"),
    f.expr("id = order AND paid BETWEEN at AND at + INTERVAL 1 HOUR"),
)
query = (
    paid.writeStream.format("parquet")
    .option("checkpointLocation", "/data/checkpoints/join")
    .trigger(processingTime="10 seconds")
    .start("/data/paid")
)

# -- backfill from a time to a time
begin = datetime(2026, 1, 1, 6, tzinfo=UTC)
end = datetime(2026, 1, 1, 12, tzinfo=UTC)
rows = spark_bridge.read(
    spark,
    "kafka://127.0.0.1:9092/orders",
    startingTimestamp=int(begin.timestamp() * 1000),
    endingTimestamp=int(end.timestamp() * 1000),
)
within = rows.where((f.col("timestamp") >= begin) & (f.col("timestamp") < end))
backfill = spark_bridge.from_json_value(within, ORDER).where("decoded IS NOT NULL")

# -- move a running query from formatkafka
spark_bridge.import_checkpoint("/data/checkpoints/old", "/data/checkpoints/new")
rows = (
    spark.readStream.format("consumer_sdk")
    .option("kafka.bootstrap.servers", "127.0.0.1:9092")
    .option("subscribe", "orders")
    .option("group", "billing")
    .load()
)
query = (
    rows.writeStream.foreachBatch(process)
    .option("checkpointLocation", "/data/checkpoints/new")
    .trigger(processingTime="10 seconds")
    .start()
)
# --
