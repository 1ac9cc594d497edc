"""An asyncio consumer SDK: Kafka, Kinesis and Pulsar under one delivery model.

`Consumer` puts the messages of an adapter through one tracker: individual and cumulative acks,
retry limits, dead letters and checkpoints. Importing this package imports no broker client, and
its parts only when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.errors import (
    AdapterError,
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    ConsumerClosedError,
    ConsumerSdkError,
    FencedError,
    HandlerError,
    MissingExtraError,
    NoTransactionsError,
    OutputError,
    PartitionLostError,
    PositionOutOfRangeError,
    ProducerFencedError,
    StoreError,
    TokenFormatError,
    TransientAdapterError,
    TransientStoreError,
    UnreadableRecordError,
)
from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.records import AtPosition, AtTime, Batch, Branch, Message, Partition
    from consumer_sdk.runtime import (
        Consumer,
        ConsumerStats,
        Event,
        Group,
        Health,
        Hooks,
        Ordering,
        PartitionSnapshot,
        Snapshot,
        current_message,
    )
    from consumer_sdk.trackers import (
        QueueTracker,
        Receipts,
        Reject,
        Retry,
        RetryPolicy,
        TrackerOptions,
        WatermarkTracker,
    )

__all__ = [
    "AdapterError",
    "AtPosition",
    "AtTime",
    "Batch",
    "Branch",
    "CheckpointFormatError",
    "CheckpointMismatchError",
    "ConfigurationError",
    "Consumer",
    "ConsumerClosedError",
    "ConsumerSdkError",
    "ConsumerStats",
    "Event",
    "FencedError",
    "Group",
    "HandlerError",
    "Health",
    "Hooks",
    "Message",
    "MissingExtraError",
    "NoTransactionsError",
    "Ordering",
    "OutputError",
    "Partition",
    "PartitionLostError",
    "PartitionSnapshot",
    "PositionOutOfRangeError",
    "ProducerFencedError",
    "QueueTracker",
    "Receipts",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Snapshot",
    "StoreError",
    "TokenFormatError",
    "TrackerOptions",
    "TransientAdapterError",
    "TransientStoreError",
    "UnreadableRecordError",
    "WatermarkTracker",
    "__version__",
    "current_message",
]

__version__ = "1.0.0"

__getattr__ = lazy_names(
    __name__,
    {
        "AtPosition": "consumer_sdk.records",
        "AtTime": "consumer_sdk.records",
        "Batch": "consumer_sdk.records",
        "Branch": "consumer_sdk.records",
        "Message": "consumer_sdk.records",
        "Partition": "consumer_sdk.records",
        "Consumer": "consumer_sdk.runtime",
        "ConsumerStats": "consumer_sdk.runtime",
        "Event": "consumer_sdk.runtime",
        "Group": "consumer_sdk.runtime",
        "Health": "consumer_sdk.runtime",
        "Hooks": "consumer_sdk.runtime",
        "Ordering": "consumer_sdk.runtime",
        "PartitionSnapshot": "consumer_sdk.runtime",
        "Snapshot": "consumer_sdk.runtime",
        "current_message": "consumer_sdk.runtime",
        "QueueTracker": "consumer_sdk.trackers",
        "Receipts": "consumer_sdk.trackers",
        "Reject": "consumer_sdk.trackers",
        "Retry": "consumer_sdk.trackers",
        "RetryPolicy": "consumer_sdk.trackers",
        "TrackerOptions": "consumer_sdk.trackers",
        "WatermarkTracker": "consumer_sdk.trackers",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
