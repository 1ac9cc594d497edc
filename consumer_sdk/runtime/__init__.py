"""The runtime: fetching, dispatch, retries, flushing and shutdown; asyncio lives here."""

from consumer_sdk.runtime.consumer import Consumer
from consumer_sdk.runtime.events import Event
from consumer_sdk.runtime.group import Group
from consumer_sdk.runtime.health import Health
from consumer_sdk.runtime.hooks import Hooks
from consumer_sdk.runtime.lanes import Ordering
from consumer_sdk.runtime.snapshots import PartitionSnapshot, Pinned, Snapshot
from consumer_sdk.runtime.stats import ConsumerStats
from consumer_sdk.runtime.timing import HistogramSnapshot
from consumer_sdk.runtime.workers import current_message

__all__ = [
    "Consumer",
    "ConsumerStats",
    "Event",
    "Group",
    "Health",
    "HistogramSnapshot",
    "Hooks",
    "Ordering",
    "PartitionSnapshot",
    "Pinned",
    "Snapshot",
    "current_message",
]
