"""Fan-out: a record is settled only when everything that was made from it is settled.

Storm's tuple tree. Each piece of work is an *edge* of its record's tree, a random 64-bit number,
which is XORed into the tree's state twice: when the edge is made and when it is acked. The state
is 0 only when every edge was acked, in whatever order that happened, and however many there were.

An edge that is made is kept with its parent until that is acked, and both are XORed in at once:
so a child costs no look-up, and a tree cannot be over while a parent may still make children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from consumer_sdk.errors import HandlerError
from consumer_sdk.records.tokens import Anchor, encode_token

__all__ = ["Branch", "BranchHolder", "Tree"]


class BranchHolder(Protocol):
    """What settles a branch: the trees of an assignment.

    Attributes:
        id: random; no two holders have the same.
        is_naming: it wants to know of each new branch.
    """

    id: int
    is_naming: bool

    @property
    def new_edge(self) -> Callable[[], int]:
        """Makes a random edge, never 0; an attribute, since this is the hot path."""
        ...

    def xor(self, root: int, edge: int) -> Any:
        """XORs an edge (and those of its children) into a tree; None while that is open."""
        ...

    def over(self, root: int, end: Any) -> bool:
        """What `xor` returned was not None; returns whether it changed something."""
        ...

    def failed(self, root: int, error: BaseException | str, delay: float | None = None) -> bool:
        """The tree's record is to be delivered again."""
        ...

    def rejected(self, root: int, reason: str) -> bool:
        """The tree's record is to go to the dead letters."""
        ...

    def extend(self, root: int, seconds: float) -> bool:
        """Moves the ack timeout of the tree's record."""
        ...

    def late(self) -> bool:
        """Counts a call that changed nothing; False."""
        ...

    def named(self, root: int, parent: int, child: int, name: str | None) -> None:
        """A child was made by a parent, whose edge is given as it was before."""
        ...

    def open_branches(self, root: int) -> list[str]:
        """See `Branch.open_branches`."""
        ...


class Branch:
    """A piece of work that a record's tree waits for.

    Ack or fail it once. A second time changes nothing, returns False and is counted.

    As a context manager, leaving the block acks the branch. An exception fails it and is raised on;
    `Reject` and `Retry` decide as they do in a handler. A cancellation leaves the branch open,
    because it says nothing about the work.

    Concurrency: the consumer's event loop alone, as with messages: from another thread,
    ``loop.call_soon_threadsafe(branch.ack)``. In another process: `token`.
    """

    __slots__ = ("edge", "holder", "root")

    holder: BranchHolder
    """What settles it. :meta private:"""
    root: int
    """The number of its tree. :meta private:"""
    edge: int
    """What is still to be XORed: its own edge and its children's. 0: settled. :meta private:"""

    @classmethod
    def make(cls, holder: BranchHolder, root: int, edge: int) -> Self:
        """A branch of the tree ``root``.

        :meta private:
        """
        branch = cls()
        branch.holder = holder
        branch.root = root
        branch.edge = edge
        return branch

    def branch(self, name: str | None = None) -> Branch:
        """Makes a child of this branch, for which the tree waits too.

        Args:
            name: for `open_branches`.

        Raises:
            HandlerError: this branch is settled: its tree may be over.
        """
        holder, own = self.holder, self.edge
        if not own:
            self._require_open()
        edge = holder.new_edge()
        self.edge = own ^ edge
        # The attribute stores of `make`: a call costs as much as they do.
        child = Branch()
        child.holder = holder
        child.root = self.root
        child.edge = edge
        if holder.is_naming:
            holder.named(self.root, own, edge, name)
        return child

    def ack(self) -> bool:
        """Says that this work is done. The record is settled when its whole tree is done.

        Returns:
            False if that changed nothing, because the branch was settled before or the tree is
            over.
        """
        edge = self.edge
        if not edge:
            return self.holder.late()
        self.edge = 0
        end = self.holder.xor(self.root, edge)
        return end is None or self.holder.over(self.root, end)

    def fail(
        self, reason: BaseException | str = "a branch failed", *, delay: float | None = None
    ) -> bool:
        """Fails the whole tree at once. The record is delivered again, which counts as an attempt.

        Args:
            reason: the error text of the dead letter, if the retry limit is reached. An exception
                has the effect that it has in a handler: `Reject` and `Retry` decide.
            delay: seconds until the next delivery, if there is one; the retry policy's back-off
                if None.
        """
        if not self.edge:
            return self.holder.late()
        result = self.holder.failed(self.root, reason, delay)
        self.edge = 0
        return result

    def reject(self, reason: str = "rejected") -> bool:
        """Sends the record to the dead letters, because it can never be processed. Ends the tree."""
        edge, self.edge = self.edge, 0
        return self.holder.rejected(self.root, reason) if edge else self.holder.late()

    def extend(self, seconds: float) -> bool:
        """Moves the ack timeout of the whole tree to ``seconds`` from now."""
        return self.holder.extend(self.root, seconds)

    def token(self) -> bytes:
        """Returns this branch as bytes, with which any process can settle it.

        The other process settles it in `Receipts`, and this one applies those by `Consumer.settle`.
        This object cannot settle the branch any more.

        Raises:
            HandlerError: this branch is settled or handed over already.
        """
        self._require_open()
        return encode_token(self._hand_over())

    def _hand_over(self) -> list[Anchor]:
        edge, self.edge = self.edge, 0
        return [Anchor(self.holder.id, self.root, edge)]

    def open_branches(self) -> list[str]:
        """Names of the branches of this tree that are still open, for debugging.

        Raises:
            ConfigurationError: the consumer was not made with ``name_branches=True``.
        """
        return self.holder.open_branches(self.root)

    @staticmethod
    def join(branches: Iterable[Branch]) -> Branch:
        """Makes one child of all ``branches``, of one tree or of several.

        Each of their trees waits for it, and all of them fail with it. The branches themselves
        are still to be settled.

        Raises:
            HandlerError: one of them is settled.
        """
        return Joined(branches).branch()

    @staticmethod
    def unanchored() -> Branch:
        """Makes a branch for which no tree waits. It does nothing, and neither do its children."""
        return UNANCHORED

    @property
    def is_settled(self) -> bool:
        """Whether the branch was acked, failed, rejected or handed over. Its tree may still be open."""
        return not self.edge

    def _require_open(self) -> None:
        if self.is_settled:
            raise HandlerError(
                "this branch is settled or handed over: make its children and token before that"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.fail(error)
        elif error is None and self.edge:  # what was settled in the block is not late
            self.ack()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a branch belongs to its process: send branch.token(), and settle it with Receipts"
        )


class Tree(Branch):
    """What `Message.tree` returns: the first branch, which can end the tree at any time."""

    __slots__ = ()

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        edge = self.edge
        if error is not None or not edge:
            super().__exit__(kind, error, trace)
            return
        # `ack`, without the call: this is the hot path.
        self.edge = 0
        end = self.holder.xor(self.root, edge)
        if end is not None:
            self.holder.over(self.root, end)

    def fail(
        self, reason: BaseException | str = "the tree failed", *, delay: float | None = None
    ) -> bool:
        """Fails the whole tree, also after this branch was acked."""
        result = self.holder.failed(self.root, reason, delay)
        self.edge = 0
        return result

    def reject(self, reason: str = "rejected") -> bool:
        """Sends the record to the dead letters, also after this branch was acked."""
        self.edge = 0
        return self.holder.rejected(self.root, reason)


class Joined(Branch):
    """A child of many branches: an edge for each of them, settled together."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[Branch]) -> None:
        self._parts = tuple(parts)

    @property
    def is_settled(self) -> bool:
        return any(part.is_settled for part in self._parts)

    def branch(self, name: str | None = None) -> Branch:
        self._require_open()  # before any of them has made an edge that nobody could settle
        return Joined([part.branch(name) for part in self._parts])

    def ack(self) -> bool:
        return sum(part.ack() for part in self._parts) > 0

    def fail(
        self, reason: BaseException | str = "a branch failed", *, delay: float | None = None
    ) -> bool:
        return sum(part.fail(reason, delay=delay) for part in self._parts) > 0

    def reject(self, reason: str = "rejected") -> bool:
        return sum(part.reject(reason) for part in self._parts) > 0

    def extend(self, seconds: float) -> bool:
        return sum(part.extend(seconds) for part in self._parts) > 0

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            super().__exit__(kind, error, trace)
            return
        for part in self._parts:
            part.__exit__(None, None, None)

    def _hand_over(self) -> list[Anchor]:
        handed_over = [part._hand_over() for part in self._parts]  # noqa: SLF001 - same module
        return list(chain.from_iterable(handed_over))

    def open_branches(self) -> list[str]:
        return [name for part in self._parts for name in part.open_branches()]


UNANCHORED: Branch = Joined(())
