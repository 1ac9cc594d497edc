"""Queries on the orders of Kafka. Each part below a line ``# -- name`` needs only the first part."""

import os
import tempfile

from prometheus_client import REGISTRY
from pyspark.sql import DataFrame, SparkSession

from consumer_sdk import spark_bridge, telemetry

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
CHECKPOINTS = os.environ.get("CHECKPOINTS", tempfile.mkdtemp())
spark = SparkSession.builder.getOrCreate()


def process(rows: DataFrame, number: int) -> None:
    """Stands for what your query does with a micro-batch."""
    print("micro-batch", number, "rows", rows.count())


# -- pull
orders = spark_bridge.read_stream(
    spark, f"kafka://{KAFKA}/orders?group=billing", maxOffsetsPerTrigger=500_000
)
orders.writeStream.option("checkpointLocation", f"{CHECKPOINTS}/billing").format("noop").start()

# -- decode
decoded = spark_bridge.from_json_value(orders, "id BIGINT NOT NULL, amount DOUBLE")
route = spark_bridge.route_rejects(f"kafka://{KAFKA}/orders-rejects", process)
decoded.writeStream.option("checkpointLocation", f"{CHECKPOINTS}/decoded").foreachBatch(
    route
).start()

# -- metrics
queries = spark_bridge.watch(spark)
REGISTRY.register(telemetry.collector(queries))  # of prometheus_client; or telemetry.otel(queries)
spark_bridge.count_bytes(orders).writeStream.queryName("orders").format("noop").start()
# --
