"""The Spark bridge: records that a consumer feeds to a directory, as a Spark stream.

Importing this package imports neither pyspark nor pyarrow: a service that writes a feed needs no
Spark, and what is missing is said when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.spark_bridge.errors import (
        FeedError,
        FeedFormatError,
        FeedRecordError,
        TransientFeedError,
    )
    from consumer_sdk.spark_bridge.feed import FeedStats, SparkFeed
    from consumer_sdk.spark_bridge.frames import read, read_stream

__all__ = [
    "FeedError",
    "FeedFormatError",
    "FeedRecordError",
    "FeedStats",
    "SparkFeed",
    "TransientFeedError",
    "read",
    "read_stream",
]

__getattr__ = lazy_names(
    __name__,
    {
        "FeedError": "consumer_sdk.spark_bridge.errors",
        "FeedFormatError": "consumer_sdk.spark_bridge.errors",
        "FeedRecordError": "consumer_sdk.spark_bridge.errors",
        "FeedStats": "consumer_sdk.spark_bridge.feed",
        "SparkFeed": "consumer_sdk.spark_bridge.feed",
        "TransientFeedError": "consumer_sdk.spark_bridge.errors",
        "read": "consumer_sdk.spark_bridge.frames",
        "read_stream": "consumer_sdk.spark_bridge.frames",
    },
)
