"""Messages with open trees: who settles them, and when their time is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from consumer_sdk.records import Branch, Headers, Message
from consumer_sdk.trackers import NamingTrees, TreeTracker

if TYPE_CHECKING:
    from consumer_sdk.runtime.partitions.held_partition import HeldPartition

__all__ = ["TreeHolder"]

SOON = 0.001
"""Seconds: an ack timeout that is over when its handler returns."""


class TreeHolder:
    """Takes the place of the `HeldPartition` as the holder of messages that have an open tree.

    So a message without one pays nothing. What a user calls on such a message goes on to the
    holding, which takes it back (`release`) when that ends the delivery.

    Args:
        holding: the messages' own holder.
        is_timed: there is an ack timeout.
        is_naming: `Branch.open_branches` is wanted.
    """

    __slots__ = ("_extended", "_holding", "_is_timed", "trees")

    def __init__(
        self, holding: HeldPartition, *, is_timed: bool = False, is_naming: bool = False
    ) -> None:
        self._holding = holding
        self._is_timed = is_timed
        self._extended: dict[int, float] = {}  # root → when its ack timeout is to come
        self.trees = NamingTrees(self) if is_naming else TreeTracker(self)

    # -- what a message calls -------------------------------------------------------------

    def tree(self, message: Message) -> Branch:
        """Opens a tree, or adds to the one that is open."""
        if message.holder is self:
            return self.trees.another(message)
        message.holder = self
        return self.trees.tree(message)

    def ack(self, index: int) -> bool:
        is_settled = self._holding.ack(index)
        self.trees.acked(is_settled)
        return is_settled

    def ack_all(self, messages: Sequence[Message]) -> int:
        settled = self._holding.ack_all(messages)
        self.trees.acked(settled)
        return settled

    def ack_cumulative(self, message: Message) -> bool:
        return self._holding.ack_cumulative(message)

    def nack(self, message: Message, delay: float | None, reason: str) -> bool:
        return self._holding.nack(message, delay, reason)

    def reject(self, message: Message, reason: str) -> bool:
        return self._holding.reject(message, reason)

    def extend(self, message: Message, seconds: float) -> bool:
        """Also while the handler is alive: what it asks for begins with its return."""
        if self._holding.extend(message, seconds):
            return True
        if not self._is_timed or self._holding.tracker.is_settled(message.index):
            return False
        self._extended[message.root] = self._holding.context.clock.monotonic() + seconds
        return True

    def body(self, value: bytes | None) -> Any:
        return self._holding.body(value)

    def send(
        self,
        message: Message,
        stream: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
    ) -> bool:
        return self._holding.send(message, stream, value, key, headers)

    async def durable(self) -> None:
        await self._holding.durable()

    # -- what the runtime calls -----------------------------------------------------------

    def raised(self, message: Message, error: BaseException) -> bool:
        """The handler has raised: that ends the tree."""
        return self._holding.raised(message, error)

    def returned(self, messages: Sequence[Message]) -> None:
        """The handler has returned: the trees go on, and their ack timeouts begin."""
        if self._is_timed:
            self._holding.hand_out(messages)
            for message in messages if self._extended else ():
                self._extend_now(message)
            self._holding.callbacks.reschedule(self._holding)

    def _extend_now(self, message: Message) -> None:
        due = self._extended.pop(message.root, None)
        if due is not None:
            now = self._holding.context.clock.monotonic()
            self._holding.tracker.extend(
                message.index, message.attempt, now, max(due - now, SOON), message
            )

    def find(self, index: int) -> Message | None:
        """The message of a record whose tree is open. O(open trees)."""
        messages = (message for _root, message in self.trees.roots())
        return next((message for message in messages if message.index == index), None)

    def release(self, message: Message) -> None:
        """The delivery has ended without its tree."""
        message.holder = self._holding
        self._extended.pop(message.root, None)
        self.trees.release(message)

    def close(self) -> None:
        """The assignment is over, and all of its trees."""
        self.trees.close()

    def invalidate_after_fork(self, forked: Any) -> None:
        """In a forked child: each use is ``forked``'s error."""
        self.trees.invalidate_after_fork(forked)

    # -- what the trees call --------------------------------------------------------------

    def finished(self, message: Message) -> bool:
        """Acks the message."""
        return self._holding.ack(message.index)

    def failed(self, message: Message, error: BaseException | str) -> bool:
        """Nacks or rejects the message."""
        has_failed = self._holding.raised(message, error)
        if has_failed:
            self._holding.context.hooks.tree_failed(message, error)
        return has_failed

    def late(self) -> bool:
        """Counts what a late branch did."""
        self._holding.context.totals.ignored += 1
        return False

    def settled(self, messages: Sequence[Message]) -> list[Message]:
        """Those of ``messages`` that were settled without their trees."""
        is_settled = self._holding.tracker.is_settled
        return [message for message in messages if is_settled(message.index)]
