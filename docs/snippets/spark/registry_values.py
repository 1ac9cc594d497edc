"""Decodes Avro values by the schemas of a registry."""

from pyspark.sql import DataFrame

from consumer_sdk import spark_bridge


def orders_of(rows: DataFrame) -> DataFrame:
    """Rows of a stream or of a batch, with the columns `decoded` and `reason`."""
    return spark_bridge.from_avro_value(
        rows,
        registry="https://registry:8081?username=reader&password=env:REGISTRY_PASSWORD",
        subject="orders-value",
    )
