"""`MessageQueue`: where the records of a consumer wait between the fetch and user code.

The rules of each queue are in `runtime.dispatch`; what a partition keeps of one, its lanes, is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from consumer_sdk.records import Message, Position

if TYPE_CHECKING:
    from consumer_sdk.runtime.partitions.held_partition import HeldPartition

__all__ = ["NOTHING", "Lane", "MessageQueue"]

NOTHING: frozenset[Position] = frozenset()
LONG = 8
"""Records in a lane above which its queue is a deque: most lanes have one or two, and an empty deque takes
600 bytes, ten times a list."""


class MessageQueue(ABC):
    """The records that a consumer has fetched and not handed out yet.

    A consumer has one: the pull queue for ``async for`` and ``batches()``, or the lanes of `run`.
    The fetch loop fills it, timers bring retries back into it, and a revoke empties it.

    Concurrency: every method is synchronous and runs in the consumer's event loop, so no fetch,
    retry or revoke comes between two lines of one.
    """

    __slots__ = ()

    # -- what comes in --------------------------------------------------------------------

    @abstractmethod
    def put(self, holding: HeldPartition, messages: list[Message]) -> None:
        """Queues new records, in order."""

    @abstractmethod
    def hold(self, holding: HeldPartition, message: Message) -> None:
        """Keeps the place of a restored retry that is not due yet; `put_back` brings it."""

    @abstractmethod
    def put_back(self, holding: HeldPartition, message: Message) -> None:
        """Queues a retry that is due, ahead of new records."""

    @abstractmethod
    def free(self, holding: HeldPartition, message: Message) -> None:
        """The retry of ``message`` will not come: nothing waits for it any more."""

    @abstractmethod
    def free_up_to(self, holding: HeldPartition, message: Message) -> None:
        """No retry up to ``message`` will come: a cumulative ack has settled them."""

    # -- when nothing is handed out -------------------------------------------------------

    @abstractmethod
    def set_full(self, *, is_full: bool) -> None:
        """Whether no more is fetched until something is settled: then no batch waits for more."""

    @abstractmethod
    def set_gated(self, *, is_gated: bool) -> None:
        """Whether nothing is handed out for now."""

    @abstractmethod
    def close(self) -> None:
        """The consumer stops: iterators end. Workers go on with what the drain leaves them."""

    # -- what a revoke takes out ----------------------------------------------------------

    @abstractmethod
    def purge(self, holdings: Sequence[HeldPartition]) -> Mapping[HeldPartition, list[Message]]:
        """Takes the records of draining partitions out; returns those that were waiting."""

    @abstractmethod
    def abandon(self) -> None:
        """Partitions were closed: nothing of theirs is handed out, and their handlers work in vain."""

    @abstractmethod
    def sweep(self) -> list[object]:
        """Takes out what waits for closed partitions, in one pass for all; returns it."""

    # -- looking --------------------------------------------------------------------------

    @abstractmethod
    def is_waiting(self, holding: HeldPartition, message: Message) -> bool:
        """Whether the record waits for user code to take it."""

    @abstractmethod
    def find(self, holding: HeldPartition, index: int) -> tuple[str, Message | None]:
        """What an unsettled record that is in no handler does, and its message. O(records)."""

    @abstractmethod
    def key_of(self, holding: HeldPartition, position: Position) -> bytes | None:
        """The key of a record whose retry others wait for, where that is known."""


class Lane:
    """Records to be processed one after another.

    Attributes:
        holding: the assignment that they belong to.
        key: what the lane is found by; None for a lane of a single record, and once purged.
        queue: the records, head first; those being processed stay in it until they are done.
        running: how many of them are being processed.
        awaited: positions of those that were nacked and are not due yet; the lane waits for them.
        is_parked: its head is a restored retry that is not due yet; the lane waits for it.
        blocked: how many records were counted as waiting behind a retry; a held one is a retry.
    """

    __slots__ = ("awaited", "blocked", "holding", "is_parked", "key", "queue", "running")

    def __init__(self, holding: HeldPartition, key: Hashable | None, message: Message) -> None:
        self.holding = holding
        self.key = key
        self.queue: list[Message] | deque[Message] = [message]
        self.running = 0
        self.awaited: frozenset[Position] = NOTHING
        self.is_parked = False
        self.blocked = 0

    def append(self, message: Message) -> None:
        """Queues a record behind the others."""
        self.queue.append(message)
        if len(self.queue) == LONG:
            self.queue = deque(self.queue)

    def give_back(self, kept: int) -> None:
        """Of what was taken nobody is handed more than the first: the rest waits again.

        At once, and not when those are done: the retry of one of them takes its place ahead of the rest.
        """
        if self.key is None:  # purged meanwhile: nobody will take the rest
            self.holding.discard_queued(list(islice(self.queue, kept, self.running)))
        self.running = kept
