"""The state of all open trees: 8 bytes of XOR and a pointer for each.

The algorithm is Storm's acker (`Acker.java`; JStorm's alike): the XOR of the random ids of all
edges made and acked is 0 when, and but for a chance of 2^-64 only when, every edge was acked.

Theory of operation. Roots are minted here, dense and never used twice, so that a root is its own
place and its own generation: no map, and nothing to compare. A root is opened with an edge of
its own, so that its state is not 0 while it is open; a 0 means that it is over, or not opened
yet. That edge is acked together with the root's children, which is Storm's "init"; acks and
fails that come before it find the root open like any other. It is the same for all roots, since
edges have to differ within a tree only.

Chunks of 256 roots: a chunk goes when all of its roots are over, and the smaller it is, the less
a single slow tree pins.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["FIRST_EDGE", "LATE", "TreeTable"]

BITS = 8
SIZE = 1 << BITS
MASK = SIZE - 1
ZEROS = bytes(8 * SIZE)

FIRST_EDGE = 1
"""Each root's own edge: a tree is open until this is acked too."""

LATE: Final = object()
"""Instead of an owner: the tree is over, or there never was one."""


class _Chunk:
    __slots__ = ("live", "owners", "values")

    def __init__(self) -> None:
        self.values = array("Q", ZEROS)
        self.owners: list[Any] = [None] * SIZE
        self.live = 0


class TreeTable:
    """The open trees, each with its owner: any object but None.

    Attributes:
        opened: how many trees there have been; the next root.

    Concurrency: one thread. O(1) for each call.
    """

    __slots__ = ("_chunks", "_is_closed", "_tail", "opened")

    _tail: _Chunk
    """The chunk that grows; none before the first root."""

    def __init__(self) -> None:
        self.opened = 0
        self._is_closed = False
        self._chunks: dict[int, _Chunk] = {}

    def open(self, owner: Any) -> int:
        """A new tree, open until `FIRST_EDGE` and all others are acked; returns its root."""
        root = self.opened
        self.opened = root + 1
        at = root & MASK
        chunk = self._tail if at else self._grow(root)
        chunk.values[at] = FIRST_EDGE
        chunk.owners[at] = owner
        chunk.live += 1
        return root

    def _grow(self, root: int) -> _Chunk:
        self._tail = _Chunk()
        if not self._is_closed:
            self._chunks[root >> BITS] = self._tail
        return self._tail

    def xor(self, root: int, value: int) -> Any:
        """XORs edges into a tree.

        Returns:
            None while it is open; its owner if this was the last of it; `LATE`.
        """
        chunk = self._chunks.get(root >> BITS)
        if chunk is None:
            return LATE
        at = root & MASK
        old = chunk.values[at]
        if not old:
            return LATE
        chunk.values[at] = new = old ^ value
        return None if new else self._end(chunk, root)

    def end(self, root: int) -> Any:
        """Ends a tree, whatever is open of it; returns its owner, or `LATE`."""
        chunk = self._chunks.get(root >> BITS)
        if chunk is None or not chunk.values[root & MASK]:
            return LATE
        chunk.values[root & MASK] = 0
        return self._end(chunk, root)

    def _end(self, chunk: _Chunk, root: int) -> Any:
        owner = chunk.owners[root & MASK]
        chunk.owners[root & MASK] = None
        chunk.live -= 1
        if not chunk.live and root | MASK < self.opened:
            del self._chunks[root >> BITS]
        return owner

    def owner(self, root: int) -> Any:
        """The owner of an open tree; None if it is over."""
        chunk = self._chunks.get(root >> BITS)
        return None if chunk is None else chunk.owners[root & MASK]

    @property
    def live(self) -> int:
        """How many trees are open."""
        return sum(chunk.live for chunk in self._chunks.values())

    def roots(self) -> Iterator[tuple[int, Any]]:
        """The open trees and their owners, oldest first."""
        for number, chunk in self._chunks.items():
            for root, owner in enumerate(chunk.owners, number << BITS):
                if owner is not None:
                    yield root, owner

    def close(self) -> None:
        """Ends all trees; those opened from now on are over at once."""
        self._is_closed = True
        self._chunks, self._tail = {}, _Chunk()
