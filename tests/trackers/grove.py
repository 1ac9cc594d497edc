"""Messages with trees, and what became of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from consumer_sdk.records import Message, Tree
from consumer_sdk.trackers import TreeTracker
from tests.trackers.building import ASSIGNMENT


class Grove:
    """A `TreeOwner` that notes what it is told.

    Attributes:
        ends: position → "finished", or why its tree failed.
        ignored: late calls.
        acked: positions that were settled without their tree.
        sweeps: how many trees were open at each sweep.
    """

    def __init__(self, kind: type[TreeTracker] = TreeTracker, seed: int = 0) -> None:
        rng = random.Random(seed)
        self.trees = kind(self)
        self.trees.new_edge = lambda: rng.getrandbits(64) or 1
        self.trees.id = self.trees.new_edge()
        self.ends: dict[Any, BaseException | str] = {}
        self.ignored = 0
        self.acked: set[Any] = set()
        self.sweeps: list[int] = []

    def message(self, position: int = 0) -> Message:
        """A message."""
        return Message.make(ASSIGNMENT, position, b"")

    def tree(self, position: int = 0) -> Tree:
        """The tree of a new message."""
        return self.trees.tree(self.message(position))

    def finished(self, message: Message) -> bool:
        """Notes it."""
        assert message.position not in self.ends
        self.ends[message.position] = "finished"
        return True

    def failed(self, message: Message, error: BaseException | str) -> bool:
        """Notes why."""
        assert message.position not in self.ends
        self.ends[message.position] = error
        return True

    def late(self) -> bool:
        """Counts."""
        self.ignored += 1
        return False

    def settled(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those that a test has put into ``acked``."""
        self.sweeps.append(len(messages))
        return [message for message in messages if message.position in self.acked]
