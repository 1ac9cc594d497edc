"""Leases in this process's memory: for a consumer that shares with nobody, and for `MemoryStore`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from consumer_sdk.abc import Leases
from consumer_sdk.leases.backend import LeaseBackend, Reading
from consumer_sdk.leases.member import TableLeases
from consumer_sdk.leases.stores import new_member

__all__ = ["Around", "MemoryLeaseBackend", "StoredLeases", "private_leases"]

T = TypeVar("T")


class Around(Protocol):
    """Calls an effect, with the faults of a seam around it."""

    def __call__(self, seam: str, effect: Callable[[], T], /) -> Coroutine[Any, Any, T]:
        """Returns what ``effect`` returns."""
        ...


async def _at_once(seam: str, effect: Callable[[], T]) -> T:  # noqa: ARG001 - no faults
    return effect()


@dataclass(slots=True)
class StoredLeases:
    """What outlives a crash, for one group and stream."""

    version: int = 0
    text: str | None = None
    members: dict[str, int] = field(default_factory=dict)


class MemoryLeaseBackend(LeaseBackend):
    """One handle on leases in memory.

    Args:
        stored: the leases, shared with other handles.
        around: the seams ``"lease_read"``, ``"lease_write"`` and ``"lease_renew"``.
    """

    __slots__ = ("_around", "_stored")

    def __init__(self, stored: StoredLeases, around: Around = _at_once) -> None:
        self._stored = stored
        self._around = around

    async def read(self) -> Reading:
        return await self._around("lease_read", self._read)

    def _read(self) -> Reading:
        return Reading(self._stored.version, self._stored.text, dict(self._stored.members))

    async def replace(self, version: int, text: str) -> bool:
        return await self._around("lease_write", lambda: self._replace(version, text))

    def _replace(self, version: int, text: str) -> bool:
        if self._stored.version != version:
            return False
        self._stored.version, self._stored.text = version + 1, text
        return True

    async def renew(self, member: str, count: int, dead: Mapping[str, int]) -> None:
        await self._around("lease_renew", lambda: self._renew(member, count, dead))

    def _renew(self, member: str, count: int, dead: Mapping[str, int]) -> None:
        for other, last in dead.items():
            if self._stored.members.get(other) == last:
                del self._stored.members[other]
        self._stored.members[member] = count

    async def leave(self, member: str) -> None:
        await self._around("lease_renew", lambda: self._stored.members.pop(member, None))


def private_leases(group: str, stream: str, **terms: Any) -> Leases:
    """The leases of a member that is alone in its group; see `CheckpointStore.leases`.

    Args:
        terms: ``duration``, ``handover`` and what else `TableLeases` takes.
    """
    where = f"memory: the leases of {stream!r} in group {group!r}"
    return TableLeases(MemoryLeaseBackend(StoredLeases()), where, new_member(), **terms)
