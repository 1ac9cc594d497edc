"""The tree tracker: which messages wait for their trees, and what becomes of them.

Rules:
 1. A tree belongs to one delivery. The next delivery opens a new root, so that whatever comes
    late of an older one finds its root over.
 2. A fail ends the tree at once, and wins: nothing can finish it afterwards.
 3. An ack of another process is applied once for each branch: XOR is not idempotent, and a task
    may run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Message, Tree
from consumer_sdk.records.tokens import Anchor
from consumer_sdk.trackers.retry import Reject, Retry
from consumer_sdk.trackers.trees.edges import new_edge
from consumer_sdk.trackers.trees.receipts import Fate, Receipt
from consumer_sdk.trackers.trees.table import FIRST_EDGE, LATE, TreeTable

__all__ = ["TreeOwner", "TreeTracker"]

FEW = 16
"""Settled messages that open trees may keep."""


class TreeOwner(Protocol):
    """Whose messages have the trees."""

    def finished(self, message: Message) -> bool:
        """The message's tree is done; whether that changed something."""
        ...

    def failed(self, message: Message, error: BaseException | str) -> bool:
        """The message's tree failed; `Retry` and `Reject` choose."""
        ...

    def late(self) -> bool:
        """Counts a call that changed nothing; False."""
        ...

    def settled(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those that were settled by other means than their tree."""
        ...


class TreeTracker(TreeTable):
    """The trees of one assignment, and the `BranchHolder` of their branches.

    Args:
        owner: told what becomes of the trees.

    Attributes:
        id: random; in tokens, so that they are settled by no other tracker.
    """

    __slots__ = ("_acked", "_owner", "_settled", "id", "is_naming", "new_edge")

    def __init__(self, owner: TreeOwner) -> None:
        self.new_edge: Callable[[], int] = new_edge
        self.is_naming = False
        self._owner = owner
        self._acked = 0  # since the last sweep
        self.id = new_edge()
        # Root → edges that receipts have settled; for trees of which some branch was a token.
        self._settled: dict[int, set[int]] = {}
        super().__init__()

    def tree(self, message: Message) -> Tree:
        """Opens the tree of a delivery; ``message.root`` is its number."""
        message.root = root = self.open(message)
        # The attribute stores of `Branch.make`: a call costs as much as they do.
        tree = Tree()
        tree.holder = self
        tree.root = root
        tree.edge = FIRST_EDGE
        return tree

    def another(self, message: Message) -> Tree:
        """One more first branch of the tree that a delivery has open."""
        edge = self.new_edge()
        self.add(message.root, edge)
        return Tree.make(self, message.root, edge)

    def add(self, root: int, edge: int) -> None:
        """An edge of a tree is open from now on."""
        self.xor(root, edge)

    def release(self, message: Message) -> None:
        """The delivery is over by other means: its tree is too."""
        self.end(message.root)
        self._settled.pop(message.root, None)

    def acked(self, count: int) -> None:
        """So many messages were settled by an ack of their own, which names no tree.

        Once they are half of the open trees, a sweep finds them: constant cost for an ack.
        """
        self._acked += count
        if self._acked > FEW and self._acked > self.live // 2:
            self._acked = 0
            self.sweep()

    def sweep(self) -> None:
        """Ends the trees of messages that were settled by an ack of their own."""
        for message in self._owner.settled([owner for _root, owner in self.roots()]):
            self.release(message)

    # -- what a branch calls --------------------------------------------------------------

    def over(self, root: int, owner: Any) -> bool:
        if owner is LATE:
            return self.late()
        if self._settled:
            self._settled.pop(root, None)
        return self._owner.finished(owner)

    def late(self) -> bool:
        return self._owner.late()

    def failed(self, root: int, error: BaseException | str, delay: float | None = None) -> bool:
        if delay is not None and not isinstance(error, Reject):
            error = Retry(str(error), delay=delay)
        owner = self.end(root)
        if owner is LATE:
            return self.late()
        self._settled.pop(root, None)
        return self._owner.failed(owner, error)

    def rejected(self, root: int, reason: str) -> bool:
        return self.failed(root, Reject(reason))

    def extend(self, root: int, seconds: float) -> bool:
        owner: Message | None = self.owner(root)
        return self.late() if owner is None else owner.extend(seconds)

    def named(self, root: int, parent: int, child: int, name: str | None) -> None:
        """Nothing: see `NamingTrees`."""

    def open_branches(self, root: int) -> list[str]:
        raise ConfigurationError(
            f"the branches of tree {root} have no names: give the consumer name_branches=True"
        )

    # -- what comes from other processes --------------------------------------------------

    def settle(self, anchor: Anchor, receipt: Receipt) -> bool:
        """Applies one receipt for this tracker, unless it was before."""
        root, edge = anchor.root, anchor.edge
        if receipt.fate is Fate.OPEN:
            return False
        if receipt.fate is Fate.FAILED:
            return self.failed(root, receipt.reason)
        if receipt.fate is Fate.REJECTED:
            return self.rejected(root, receipt.reason)
        if self.owner(root) is None or edge in self._settled.get(root, ()):
            return self.late()
        self._settled.setdefault(root, set()).add(edge)
        owner = self.xor(root, receipt.value)
        return owner is None or self.over(root, owner)

    def close(self) -> None:
        super().close()
        self._settled = {}

    def invalidate_after_fork(self, forked: Any) -> None:
        """In a forked child: each use is ``forked``'s error."""
        self._chunks = forked
        self.new_edge = lambda: forked.new_edge
