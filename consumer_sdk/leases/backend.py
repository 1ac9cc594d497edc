"""What leases need of a store: a text that is replaced as a whole, and a counter for each member beside it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["LeaseBackend", "Reading"]


class Reading(NamedTuple):
    """What is stored at one moment.

    Attributes:
        version: of the text; another one whenever it was written. 0: nothing was written yet.
        text: the leases; None: nothing was written yet.
        members: how often each has renewed.
    """

    version: int
    text: str | None
    members: Mapping[str, int]


class LeaseBackend(ABC):
    """Where the leases of one group and stream are kept.

    Every method raises:

    Raises:
        StoreError: the place cannot be read or written; transient where that may pass. A write may
            have been made, or be made later.
    """

    __slots__ = ()

    poll = 0.25
    """Seconds between two looks for changes."""

    @abstractmethod
    async def read(self) -> Reading:
        """What is stored; the members as they are after the text.

        The other way round, an owner that has joined in between would look dead.
        """

    @abstractmethod
    async def replace(self, version: int, text: str) -> bool:
        """Writes the text over that version; False: another one is stored."""

    @abstractmethod
    async def renew(self, member: str, count: int, dead: Mapping[str, int]) -> None:
        """Writes how often a member has renewed, and removes those that have not gone on."""

    @abstractmethod
    async def leave(self, member: str) -> None:
        """Removes a member."""

    async def wait(self, seconds: float) -> None:
        """Waits until a look is worth its cost."""
        await asyncio.sleep(min(self.poll, seconds))
