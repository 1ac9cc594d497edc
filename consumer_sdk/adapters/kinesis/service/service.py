"""The requests that the adapter sends to Kinesis: a seam, so that the adapter also runs on a fake.

Nothing here waits between two requests or retries: the caller keeps the shard's limits.
Every method raises these errors::

    TransientAdapterError
    ├── ThrottledError            the limits of a shard, a stream or a key: wait, then try again
    ├── IteratorExpiredError      ask for another iterator at the same place
    └── SubscriptionBusyError     a subscription of the same consumer and shard is too young
    PositionOutOfRangeError       the sequence number is not one of the shard's
    ShardGoneError                the stream was deleted, or the shard's records have all expired
    AdapterError                  access denied, and all else that trying again does not fix
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from consumer_sdk.errors import AdapterError, TransientAdapterError

__all__ = [
    "FanOutConsumer",
    "IteratorExpiredError",
    "IteratorStart",
    "Page",
    "Service",
    "Shard",
    "ShardGoneError",
    "StreamFacts",
    "SubscriptionBusyError",
    "ThrottledError",
]


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard as ListShards tells of it.

    Attributes:
        parents: none, one (it came of a split), or two (of a merge, the adjacent one last).
        is_closed: it has an ending sequence number, whatever that is.
    """

    id: str
    parents: tuple[str, ...] = ()
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What DescribeStreamSummary tells of a stream.

    Attributes:
        arn: its Amazon resource name.
        created: seconds since the epoch.
    """

    arn: str
    created: float

    @property
    def identity(self) -> str:
        """Differs between streams of one name, made one after another."""
        return f"{self.arn}@{self.created:.3f}"


@dataclass(frozen=True, slots=True)
class FanOutConsumer:
    """A registered consumer of enhanced fan-out, for which AWS charges by the hour and shard.

    Attributes:
        status: CREATING, ACTIVE or DELETING.
        created: when it was registered, as text.
    """

    name: str
    status: str
    created: str


@dataclass(frozen=True, slots=True)
class IteratorStart:
    """Where a shard is to be read from, in the words of GetShardIterator and SubscribeToShard.

    Attributes:
        kind: TRIM_HORIZON, AT_TIMESTAMP, AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER.
        sequence: of the latter two.
        time: of AT_TIMESTAMP, seconds since the epoch.
    """

    kind: str
    sequence: int | None = None
    time: float | None = None


@dataclass(slots=True)
class Page:
    """Records of one shard as they were stored, in columns of one length.

    Attributes:
        sequences: sequence numbers, ascending.
        keys: partition keys.
        data: blobs, not base64. One may be an aggregate of the producer library.
        times: approximate arrival, milliseconds since the epoch.
        next: how to read on: a shard iterator, or a continuation sequence number of a
            subscription, in digits; None: this was the end of a closed shard, or so it is said.
        behind: milliseconds that the last record is behind the tip; 0 at the tip, None unknown.
        has_children: the answer names child shards.
        size: bytes of data and keys.
        is_first: no record came since the shard was asked for by a position; noted by the adapter.
    """

    sequences: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    next: str | None = None
    behind: int | None = None
    has_children: bool = False
    size: int = 0
    is_first: bool = False

    def without_first(self) -> Page:
        """All but the first record."""
        return replace(
            self,
            sequences=self.sequences[1:],
            keys=self.keys[1:],
            data=self.data[1:],
            times=self.times[1:],
            size=self.size - len(self.keys[0]) - len(self.data[0]),
        )


class Service(ABC):
    """One stream of Kinesis."""

    __slots__ = ()

    @abstractmethod
    async def open(self) -> StreamFacts:
        """Connects, and looks at the stream.

        Raises:
            ConfigurationError: there is no such stream; or the client's options cannot work.
            AdapterError: the service cannot be reached, or refused.
        """

    @abstractmethod
    async def describe(self) -> StreamFacts:
        """Looks at the stream again."""

    @abstractmethod
    async def shards(self) -> Sequence[Shard]:
        """All shards that are stored, closed ones too, whatever number of pages that takes."""

    @abstractmethod
    async def iterator(self, shard: str, start: IteratorStart) -> str:
        """A shard iterator; it lives for five minutes.

        Raises:
            PositionOutOfRangeError: the sequence number is not one of this shard's.
        """

    @abstractmethod
    async def records(self, iterator: str, limit: int) -> Page:
        """One GetRecords.

        Args:
            limit: records, 10 000 at most.

        Raises:
            ThrottledError: the shard's limits.
            IteratorExpiredError: it is older than five minutes.
        """

    @abstractmethod
    async def consumer(self, name: str) -> str:
        """The ARN of the enhanced fan-out consumer of that name, registered and active.

        Raises:
            AdapterError: it cannot be registered.
        """

    @abstractmethod
    def subscribe(
        self, consumer: str, shard: str, start: IteratorStart
    ) -> AsyncGenerator[Page, None]:
        """One SubscribeToShard: a page for each event, until it ends by itself after five minutes.

        Close the generator to unsubscribe. Empty pages come about every five seconds.

        Raises:
            SubscriptionBusyError: another subscription of the pair is not old enough to be replaced.
        """

    @abstractmethod
    async def time(self) -> float:
        """The service's clock, in seconds since the epoch; never ahead of it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Bounded and idempotent."""


# -- errors -----------------------------------------------------------------------------------


class ThrottledError(TransientAdapterError):
    """A limit was reached, perhaps by other readers of the shard."""


class IteratorExpiredError(TransientAdapterError):
    """A shard iterator was used more than five minutes after it was made."""


class SubscriptionBusyError(TransientAdapterError):
    """The same consumer has subscribed to the shard less than five seconds ago."""


class ShardGoneError(AdapterError):
    """The stream or the shard does not exist any more."""
