"""The runtime: fetching, dispatch, retries, flushing and shutdown; asyncio lives here."""

from consumer_sdk.runtime.consumer import Consumer
from consumer_sdk.runtime.hooks import Hooks
from consumer_sdk.runtime.lanes import Ordering
from consumer_sdk.runtime.stats import ConsumerStats

__all__ = ["Consumer", "ConsumerStats", "Hooks", "Ordering"]
