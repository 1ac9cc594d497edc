"""Round trips to the in-memory broker, and what may go wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

__all__ = ["Calls", "Seam"]

T = TypeVar("T")


class Seam(Protocol):
    """Where faults are injected; `consumer_sdk.testing.faults.Faults` is one."""

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Awaits ``call()``; may wait or fail before and after it."""
        ...

    def strike(self, seam: str) -> str | None:
        """``"before"`` or ``"after"`` its effect, or None: whether a synchronous step fails."""
        ...

    def error(self, seam: str) -> Exception:
        """What a step that fails is said to have met."""
        ...


class Calls:
    """One consumer's calls.

    Attributes:
        is_crashed: the process was killed: every call hangs.
    """

    def __init__(self, seam: Seam | None) -> None:
        self.is_crashed = False
        self._seam = seam

    async def make(self, seam: str, effect: Callable[[], T]) -> T:
        """One round trip: ``effect()`` takes place at the broker."""

        async def arrive() -> T:
            await self.alive()
            return effect()

        result = await (self._seam.around(seam, arrive) if self._seam else arrive())
        await self.alive()
        return result

    async def alive(self) -> None:
        """Hangs, if the process was killed."""
        if self.is_crashed:
            await asyncio.get_running_loop().create_future()
