"""Shards that are left alone for a while after they were dropped."""

from __future__ import annotations

import asyncio
import math

__all__ = ["Bench"]

FIRST = 0.1
LONGEST = 5.0
FORGIVEN = 30.0
"""Seconds after which a drop is not taken for one more of the same trouble."""


class Bench:
    """How long each is not to be taken: longer each time that it is put here again."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}

    def put(self, shard: str) -> None:
        """It was dropped."""
        now = asyncio.get_running_loop().time()
        until, pause = self._until.get(shard, (-math.inf, 0.0))
        pause = min(max(pause * 2, FIRST), LONGEST) if now - until < FORGIVEN else FIRST
        self._until[shard] = now + pause, pause

    def has(self, shard: str) -> bool:
        """It is too early to take it."""
        until, _ = self._until.get(shard, (-math.inf, 0.0))
        return asyncio.get_running_loop().time() < until

    def pause(self) -> float:
        """Seconds until the next one may be taken; infinite where there is none."""
        now = asyncio.get_running_loop().time()
        return min(
            (until - now for until, _ in self._until.values() if until > now), default=math.inf
        )
