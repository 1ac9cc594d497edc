"""How many messages the broker sends ahead: by their number, and by their bytes.

The client knows a number only. So what a topic's messages weigh is learned: from the REST API before
the first one is read, where it is known, and then from what was read.
"""

from __future__ import annotations

from contextlib import suppress

from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.sizes import Sizes
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.records import Partition

__all__ = ["QUEUE_BYTES", "Queue", "Queues"]

QUEUE_BYTES = 32 * 2**20
"""About how much is sent ahead of each read."""

KEPT_BYTES = 4 * 2**20
"""About how much the queue of a reader may hold that is kept for the next range."""


class Queue:
    """Of one topic.

    Args:
        most: messages, whatever they weigh.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._mean: float | None = None

    @property
    def is_known(self) -> bool:
        """Something of the topic was weighed."""
        return self._mean is not None

    @property
    def length(self) -> int:
        """Messages that the next reader is sent ahead."""
        return min(self._most, max(int(QUEUE_BYTES / (self._mean or 1.0)), 1))

    def weigh(self, count: int, size: float) -> None:
        """So many messages have so many bytes."""
        self._mean = max(size / count, 1.0)

    def is_too_long(self, length: int) -> bool:
        """A reader's queue holds more than twice as much as it should."""
        return length > 2 * self.length

    def may_stay(self, length: int) -> bool:
        """A reader that nobody reads takes little memory."""
        return self._mean is not None and length * self._mean <= KEPT_BYTES


class Queues:
    """Of all topics.

    Args:
        sizes: asks the REST API, or cannot.
        most: messages.
    """

    def __init__(self, sizes: Sizes, most: int) -> None:
        self._sizes = sizes
        self._most = most
        self._queues: dict[str, Queue] = {}

    async def of(self, partition: Partition) -> Queue:
        """A topic's; what it weighs is asked once, and an answer that does not come is no error."""
        topic = topic_of(partition)
        if topic not in self._queues:
            queue = Queue(self._most)
            with suppress(AdapterError, ConfigurationError):
                if (size := await self._sizes.record_size(partition)) is not None:
                    queue.weigh(1, size)
            self._queues[topic] = queue
        return self._queues[topic]
