"""Which message every unsettled record has, for whoever has to be told about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sortedcontainers import SortedDict

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import Message, Tracked

__all__ = ["Unsettled"]


class Unsettled:
    """Stands before a tracker's acks, and tells of each message that they settle, once.

    Without it an ack is the tracker's own bound method and knows nothing but an index; it is
    there only where hooks, or a hole budget that dead-letters, ask for the messages.

    It holds what an ack can settle: neither what is on its way to the dead letters, nor a restored
    retry that nobody has been handed yet, which a cumulative ack spares.

    Args:
        tracker: settles.
        settled: told of each message.
    """

    def __init__(self, tracker: AckTracker, settled: Callable[[Message], None]) -> None:
        self._tracker = tracker
        self._settled = settled
        self._messages: SortedDict[int, Message] = SortedDict()

    def track(self, messages: Iterable[Message], tracked: Tracked) -> None:
        """Takes in what was tracked, for its first delivery in this assignment."""
        absent = {*tracked.settled, *tracked.held}
        self._messages.update((m.index, m) for m in messages if m.index not in absent)

    def replace(self, messages: Iterable[Message]) -> None:
        """Redeliveries take the place of what was tracked, or delivered before."""
        self._messages.update((m.index, m) for m in messages if m.attempt > 1)

    def get(self, index: int) -> Message | None:
        """The latest delivery of a record; None if it is not held."""
        found: Message | None = self._messages.get(index)
        return found

    def forget(self, index: int) -> None:
        """The record was taken out of delivery: its dead letter will settle it."""
        self._messages.pop(index, None)

    def clear(self) -> None:
        """The assignment is over."""
        self._messages.clear()

    # -- what settles -----------------------------------------------------------------------

    def ack(self, index: int) -> bool:
        """See `AckTracker.ack`; so with the others."""
        if not self._tracker.ack(index):
            return False
        self._settled(self._messages.pop(index))
        return True

    def ack_all(self, indices: Sequence[int]) -> int:
        """One by one: each is told."""
        return sum(map(self.ack, indices))

    def ack_cumulative(self, index: int) -> int:
        """What was settled is all that is held up to ``index``."""
        settled = self._tracker.ack_cumulative(index)
        if settled:
            indices = list(self._messages.irange(maximum=index))
            for message in [self._messages.pop(at) for at in indices]:
                self._settled(message)
        return settled
