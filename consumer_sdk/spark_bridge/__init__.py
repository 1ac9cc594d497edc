"""The Spark bridge: Spark reads Kafka, Pulsar, and the feeds that consumers write.

Importing this package imports neither pyspark nor pyarrow: a service that writes a feed needs no
Spark. A missing package is an error when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.spark_bridge.checkpoint_import import import_checkpoint
    from consumer_sdk.spark_bridge.dead_letters.sink import stream_dead_letters, write_dead_letters
    from consumer_sdk.spark_bridge.decoding.avro.avro import from_avro_value
    from consumer_sdk.spark_bridge.decoding.json_values import from_json_value
    from consumer_sdk.spark_bridge.decoding.protobuf.protobuf import from_protobuf_value
    from consumer_sdk.spark_bridge.errors import (
        DataLossError,
        DeadLetterError,
        FeedError,
        FeedFormatError,
        FeedRecordError,
        OffsetFormatError,
        SinkError,
        SparkBridgeError,
        StrictAckError,
        TransientFeedError,
    )
    from consumer_sdk.spark_bridge.feed.feed import SparkFeed
    from consumer_sdk.spark_bridge.feed.stats import FeedStats
    from consumer_sdk.spark_bridge.frames import read, read_stream, register
    from consumer_sdk.spark_bridge.metrics.lag import Lag
    from consumer_sdk.spark_bridge.metrics.metrics import SourceMetrics, count_bytes, watch
    from consumer_sdk.spark_bridge.metrics.query_stats import QueryStats, SourceStats
    from consumer_sdk.spark_bridge.rejects import route_rejects, split_rejects

__all__ = [
    "DataLossError",
    "DeadLetterError",
    "FeedError",
    "FeedFormatError",
    "FeedRecordError",
    "FeedStats",
    "Lag",
    "OffsetFormatError",
    "QueryStats",
    "SinkError",
    "SourceMetrics",
    "SourceStats",
    "SparkBridgeError",
    "SparkFeed",
    "StrictAckError",
    "TransientFeedError",
    "count_bytes",
    "from_avro_value",
    "from_json_value",
    "from_protobuf_value",
    "import_checkpoint",
    "read",
    "read_stream",
    "register",
    "route_rejects",
    "split_rejects",
    "stream_dead_letters",
    "watch",
    "write_dead_letters",
]

__getattr__ = lazy_names(
    __name__,
    {
        "DataLossError": "consumer_sdk.spark_bridge.errors",
        "DeadLetterError": "consumer_sdk.spark_bridge.errors",
        "FeedError": "consumer_sdk.spark_bridge.errors",
        "FeedFormatError": "consumer_sdk.spark_bridge.errors",
        "FeedRecordError": "consumer_sdk.spark_bridge.errors",
        "FeedStats": "consumer_sdk.spark_bridge.feed.stats",
        "Lag": "consumer_sdk.spark_bridge.metrics.lag",
        "OffsetFormatError": "consumer_sdk.spark_bridge.errors",
        "QueryStats": "consumer_sdk.spark_bridge.metrics.query_stats",
        "SinkError": "consumer_sdk.spark_bridge.errors",
        "SourceMetrics": "consumer_sdk.spark_bridge.metrics.metrics",
        "SourceStats": "consumer_sdk.spark_bridge.metrics.query_stats",
        "SparkBridgeError": "consumer_sdk.spark_bridge.errors",
        "SparkFeed": "consumer_sdk.spark_bridge.feed.feed",
        "StrictAckError": "consumer_sdk.spark_bridge.errors",
        "TransientFeedError": "consumer_sdk.spark_bridge.errors",
        "count_bytes": "consumer_sdk.spark_bridge.metrics.metrics",
        "from_avro_value": "consumer_sdk.spark_bridge.decoding.avro.avro",
        "from_json_value": "consumer_sdk.spark_bridge.decoding.json_values",
        "from_protobuf_value": "consumer_sdk.spark_bridge.decoding.protobuf.protobuf",
        "import_checkpoint": "consumer_sdk.spark_bridge.checkpoint_import",
        "read": "consumer_sdk.spark_bridge.frames",
        "read_stream": "consumer_sdk.spark_bridge.frames",
        "register": "consumer_sdk.spark_bridge.frames",
        "route_rejects": "consumer_sdk.spark_bridge.rejects",
        "split_rejects": "consumer_sdk.spark_bridge.rejects",
        "stream_dead_letters": "consumer_sdk.spark_bridge.dead_letters.sink",
        "watch": "consumer_sdk.spark_bridge.metrics.metrics",
        "write_dead_letters": "consumer_sdk.spark_bridge.dead_letters.sink",
    },
)
