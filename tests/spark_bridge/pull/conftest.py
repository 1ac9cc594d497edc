"""What the tests of the pull source on a real Kafka share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from consumer_sdk import spark_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark_bridge.pull.kafka_query import Kafka, Topic


@pytest.fixture
def topic(kafka_server: Kafka, spark: SparkSession, request: pytest.FixtureRequest) -> Topic:
    """Give a topic with two partitions, named after the test."""
    from tests.spark_bridge.pull.kafka_query import Topic

    spark_bridge.register(spark)
    return Topic(kafka_server, re.sub(r"\W", "-", request.node.name)[-60:])
