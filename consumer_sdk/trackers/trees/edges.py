"""Edge ids: random, 64 bits, never 0, and never the same in two processes.

Two equal edges in one tree cancel each other, and the edge 0 cannot be seen: either would end a
tree too early.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from hashlib import blake2b
from itertools import chain

__all__ = ["EdgePool", "child_edge", "new_edge"]

_BLOCK = 512


class EdgePool:
    """Random numbers of the system, fetched 512 at a time: a call for each would cost more.

    Attributes:
        new_edge: makes one; the iteration runs in C.
    """

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._block = array("Q")
        self.new_edge: Callable[[], int] = filter(
            None, chain.from_iterable(iter(self._fetch, None))
        ).__next__

    def _fetch(self) -> array[int]:
        self._block = array("Q", self._random(8 * _BLOCK))
        return self._block

    def forget(self) -> None:
        """Throws away what is left of the block: in a forked child it is the parent's too."""
        del self._block[:]


_pool = EdgePool()
os.register_at_fork(after_in_child=_pool.forget)
new_edge = _pool.new_edge


def child_edge(edge: int, number: int) -> int:
    """The edge of the child ``number`` of a branch in another process.

    It follows from the parent's, so that a task that runs twice makes the same children.
    """
    text = edge.to_bytes(8, "little") + number.to_bytes(8, "little")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1
