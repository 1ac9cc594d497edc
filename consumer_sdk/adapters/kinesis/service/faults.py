"""The errors of Kinesis.

::

    TransientAdapterError
    ├── ThrottledError            the limits of a shard, a stream or a key: wait, then try again
    ├── IteratorExpiredError      ask for another iterator at the same place
    └── SubscriptionBusyError     a subscription of the same consumer and shard is too young
    PositionOutOfRangeError       the sequence number is not one of the shard's
    ShardGoneError                the stream was deleted, or the shard's records have all expired
    AdapterError                  access denied, and all else that trying again does not mend
"""

from __future__ import annotations

from consumer_sdk.errors import AdapterError, TransientAdapterError

__all__ = [
    "IteratorExpiredError",
    "ShardGoneError",
    "SubscriptionBusyError",
    "ThrottledError",
]


class ThrottledError(TransientAdapterError):
    """A limit was reached, perhaps by other readers of the shard."""


class IteratorExpiredError(TransientAdapterError):
    """A shard iterator was used more than five minutes after it was made."""


class SubscriptionBusyError(TransientAdapterError):
    """The same consumer has subscribed to the shard less than five seconds ago."""


class ShardGoneError(AdapterError):
    """The stream or the shard does not exist any more."""
