"""The runtime: fetching, dispatch, retries, flushing and shutdown; asyncio lives here."""

from consumer_sdk.runtime.consumer import Consumer
from consumer_sdk.runtime.dispatch.lanes import Ordering
from consumer_sdk.runtime.dispatch.workers import current_message
from consumer_sdk.runtime.group import Group
from consumer_sdk.runtime.hooks import Hooks
from consumer_sdk.runtime.observing.events import Event
from consumer_sdk.runtime.observing.health import Health
from consumer_sdk.runtime.observing.snapshots import PartitionSnapshot, Pinned, Snapshot
from consumer_sdk.runtime.observing.stats import ConsumerStats
from consumer_sdk.runtime.observing.timing import HistogramSnapshot

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
