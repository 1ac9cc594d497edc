"""Every error of the SDK, in one tree.

::

    ConsumerSdkError
    ├── ConfigurationError (also ValueError)   what was asked for cannot work; found before any record is fetched
    │   └── MissingExtraError                  an optional client is not installed
    ├── AdapterError                           the broker, or its client
    │   ├── TransientAdapterError              worth trying again; the runtime does
    │   ├── PartitionLostError                 the assignment is gone; the record will be delivered again
    │   ├── PositionOutOfRangeError            the wanted position is no longer (or not yet) stored
    │   └── UnreadableRecordError              what the broker stores there cannot be read, however often
    ├── StoreError                             the checkpoint store
    │   ├── TransientStoreError                worth trying again; the runtime does
    │   ├── FencedError                        another owner has taken over
    │   ├── CheckpointMismatchError            the checkpoint belongs to another stream or broker
    │   ├── CheckpointFormatError              the stored bytes are not a checkpoint
    │   └── ImportRefusedError (stores)        what would be imported is behind what is stored
    ├── SchemaRegistryError                    the schema registry refuses, or answers what no registry does
    │   ├── TransientSchemaRegistryError       it is away or too busy, and was at each attempt
    │   ├── SchemaRegistryAccessError          it does not take the credentials (401, 403)
    │   └── UnknownSchemaError (also LookupError)  it has no such schema, subject or version
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
    "SchemaRegistryAccessError",
    "SchemaRegistryError",
    "StoreError",
    "TokenFormatError",
    "TransientAdapterError",
    "TransientSchemaRegistryError",
    "TransientStoreError",
    "UnknownSchemaError",
    "UnreadableRecordError",
]


class ConsumerSdkError(Exception):
    """Base of every error that the SDK raises."""


class ConfigurationError(ConsumerSdkError, ValueError):
    """What was asked for cannot work; raised before any record is fetched."""


class MissingExtraError(ConfigurationError):
    """An optional client is not installed, or is too old.

    Args:
        package: the module that is missing, such as ``"aiokafka"``.
        extra: the extra that installs it, such as ``"kafka"``.
        found: the version that is installed; None for none.
        needed: the oldest version that will do, where ``found`` is too old.
    """

    def __init__(
        self, package: str, extra: str, found: str | None = None, needed: str | None = None
    ) -> None:
        super().__init__(
            f"the {package!r} package is not installed; "
            f"install it with: pip install 'consumer-sdk[{extra}]'"
            if found is None
            else f"{package} {found} is installed, and {needed} or newer is needed; "
            f"install it with: pip install '{package}>={needed}'"
        )
        self.package = package
        self.extra = extra
        self.found = found
        self.needed = needed

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:
        # Else it cannot come out of a pickle.
        return type(self), (self.package, self.extra, self.found, self.needed)


class AdapterError(ConsumerSdkError):
    """The broker or its client failed in a way that a retry does not mend."""


class TransientAdapterError(AdapterError):
    """The broker failed in a way that may pass; the runtime tries again."""


class PartitionLostError(AdapterError):
    """The assignment is gone; whatever was not durable is delivered again, perhaps elsewhere."""


class PositionOutOfRangeError(AdapterError):
    """The wanted position is not stored by the broker (any more, or yet)."""


class UnreadableRecordError(AdapterError):
    """What the broker stores at a position cannot be read, also when it is fetched again."""


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


class SchemaRegistryError(ConsumerSdkError):
    """The schema registry refuses, or answers what no registry does; says what was asked."""


class TransientSchemaRegistryError(SchemaRegistryError):
    """The schema registry is away or too busy, and was at each attempt; try again later."""


class SchemaRegistryAccessError(SchemaRegistryError):
    """The schema registry does not take the credentials, or they may not read this."""


class UnknownSchemaError(SchemaRegistryError, LookupError):
    """The schema registry has no such schema, subject or version."""


class TokenFormatError(ConsumerSdkError, ValueError):
    """These bytes are no token of a branch, or no receipts; nothing of them was applied."""


class HandlerError(ConsumerSdkError):
    """User code failed, or a record could be neither settled nor dead-lettered."""


class ConsumerClosedError(ConsumerSdkError):
    """The consumer is closed, or is used from another event loop or a forked child."""
