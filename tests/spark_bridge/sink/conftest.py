"""What the tests of the sink on a real Kafka share."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from consumer_sdk import spark_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark_bridge.pull.kafka_query import Kafka, Topic


@pytest.fixture
def topic(kafka_server: Kafka, spark: SparkSession) -> Topic:
    """Give a topic of the test's own, with two partitions."""
    from tests.spark_bridge.pull.kafka_query import Topic

    spark_bridge.register(spark)
    return Topic(kafka_server, f"sink-{uuid.uuid4().hex[:8]}")
