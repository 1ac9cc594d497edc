"""Every error of the SDK, in one tree.

::

    ConsumerSdkError
    ├── ConfigurationError (also ValueError)   what was asked for cannot work; found before any record is fetched
    │   └── MissingExtraError                  an optional client is not installed
    ├── AdapterError                           the broker, or its client
    │   ├── TransientAdapterError              worth trying again; the runtime does
    │   ├── PartitionLostError                 the assignment is gone; the record will be delivered again
    │   └── PositionOutOfRangeError            the wanted position is no longer (or not yet) stored
    ├── StoreError                             the checkpoint store
    │   ├── TransientStoreError                worth trying again; the runtime does
    │   ├── FencedError                        another owner has taken over
    │   ├── CheckpointMismatchError            the checkpoint belongs to another stream or broker
    │   ├── CheckpointFormatError              the stored bytes are not a checkpoint
    │   └── ImportRefusedError (stores)        what would be imported is behind what is stored
    ├── TokenFormatError (also ValueError)     these bytes are no branch's token, or no receipts
    ├── FeedError (spark_bridge)               the directory that feeds Spark; has a tree of its own
    ├── ServerError (testing.servers)          a server for tests could not be started
    ├── HandlerError                           user code, or a record that could not be settled
    └── ConsumerClosedError                    the consumer is closed, or used where it cannot work

An unknown exception of user code or of a client flies unchanged.
"""

__all__ = [
    "AdapterError",
    "CheckpointFormatError",
    "CheckpointMismatchError",
    "ConfigurationError",
    "ConsumerClosedError",
    "ConsumerSdkError",
    "FencedError",
    "HandlerError",
    "MissingExtraError",
    "PartitionLostError",
    "PositionOutOfRangeError",
    "StoreError",
    "TokenFormatError",
    "TransientAdapterError",
    "TransientStoreError",
]


class ConsumerSdkError(Exception):
    """Base of every error that the SDK raises."""


class ConfigurationError(ConsumerSdkError, ValueError):
    """What was asked for cannot work; raised before any record is fetched."""


class MissingExtraError(ConfigurationError):
    """An optional client is not installed.

    Args:
        package: the module that is missing, such as ``"aiokafka"``.
        extra: the extra that installs it, such as ``"kafka"``.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the {package!r} package is not installed; "
            f"install it with: pip install 'consumer-sdk[{extra}]'"
        )
        self.package = package
        self.extra = extra


class AdapterError(ConsumerSdkError):
    """The broker or its client failed in a way that a retry does not mend."""


class TransientAdapterError(AdapterError):
    """The broker failed in a way that may pass; the runtime tries again."""


class PartitionLostError(AdapterError):
    """The assignment is gone; whatever was not durable is delivered again, perhaps elsewhere."""


class PositionOutOfRangeError(AdapterError):
    """The wanted position is not stored by the broker (any more, or yet)."""


class StoreError(ConsumerSdkError):
    """The checkpoint store failed in a way that a retry does not mend."""


class TransientStoreError(StoreError):
    """The checkpoint store failed in a way that may pass; the runtime tries again."""


class FencedError(StoreError):
    """Another owner has taken the partition over; this one may no longer write."""


class CheckpointMismatchError(StoreError):
    """The stored checkpoint belongs to another stream, broker or incarnation of the stream."""


class CheckpointFormatError(StoreError):
    """The stored bytes are not a checkpoint that this version can read."""


class TokenFormatError(ConsumerSdkError, ValueError):
    """These bytes are no token of a branch, or no receipts; nothing of them was applied."""


class HandlerError(ConsumerSdkError):
    """User code failed, or a record could be neither settled nor dead-lettered."""


class ConsumerClosedError(ConsumerSdkError):
    """The consumer is closed, or is used from another event loop or a forked child."""
