"""A process that shares leases with others, for tests that stop it in its tracks.

``python -m tests.leases.member_child zookeeper HOSTS ROOT`` or ``… local PATH``: while it owns the
partition it counts the checkpoint up; it says ``own FENCE``, ``durable NUMBER``, ``fenced NUMBER``
and ``lost FENCE``. It ends when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from consumer_sdk.abc import CheckpointStore, Leases, StoreItem
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.leases.balance import moves
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore, ZooKeeperStore
from tests.stores.owner_child import say

PARTITION = "a"
DURATION = 0.3


def store_of(kind: str, place: str, root: str = "") -> CheckpointStore:
    """The store that parent and children share; sessions outlive the pauses."""
    if kind == "local":
        return LocalStore(place, busy_timeout=0.2)
    return ZooKeeperStore(place, root=root, session_timeout=10.0)


class Counting:
    """What the process does with the partition."""

    def __init__(self, store: CheckpointStore, leases: Leases) -> None:
        self._store = store
        self._leases = leases
        self._assignment: Assignment | None = None
        self._number = 0

    async def turn(self) -> None:
        """Writes before it asks whether it still may."""
        if self._assignment is not None:
            await self._save(self._assignment)
        for _ in await self._leases.renew():
            await self._lose()
        view = await self._leases.view()
        todo = moves(view)
        if fence := (await self._leases.take(todo.take)).get(PARTITION):
            await self._begin(fence)
        await self._leases.release({p: view.leases[p].fence for p in todo.hand_over})

    async def _begin(self, fence: int) -> None:
        assignment = Assignment(Partition("s", PARTITION), fence, fence)
        text = (await self._store.claim("g", [assignment]))[assignment]
        if not isinstance(text, Outcome):
            self._assignment, self._number = assignment, int(text or 0)
            say(f"own {fence}")

    async def _save(self, assignment: Assignment) -> None:
        item = StoreItem(assignment, str(self._number + 1))
        (outcome,) = await self._store.save("g", [item])
        if outcome.kind is OutcomeKind.DURABLE:
            self._number += 1
        say(f"{outcome.kind.value} {item.text}")

    async def _lose(self) -> None:
        if (lost := self._assignment) is not None:
            self._assignment = None
            say(f"lost {lost.fence}")
            await self._save(lost)  # too late, as one would who did not ask before


async def work(store: CheckpointStore, ended: asyncio.Event) -> None:
    """Whole turns until the end: what is written is said."""
    leases = store.leases("g", "s", duration=DURATION, handover=10.0)
    assert leases is not None
    counting = Counting(store, leases)
    while not ended.is_set():
        with suppress(TransientStoreError):
            await leases.sync({PARTITION: ()})
            await counting.turn()
        await asyncio.sleep(DURATION / 20)


async def opened(*place: str) -> CheckpointStore:
    """A store that is open; on a busy machine another process may be in a transaction for long."""
    while True:
        store = store_of(*place)
        with suppress(TransientStoreError):
            await store.open()
            return store


async def main(*place: str) -> None:
    """Works until the parent closes its end."""
    store = await opened(*place)
    try:
        ended = asyncio.Event()
        working = asyncio.create_task(work(store, ended))
        await asyncio.to_thread(sys.stdin.read)
        ended.set()
        await working
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
