"""A process that owns a partition, for tests that stop it in its tracks.

``python -m tests.stores.owner_child zookeeper HOSTS ROOT`` or ``… local PATH``: for each line that
it is given, it claims the partition and counts its checkpoint up until it is refused; it says how
each save ended.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore, ZooKeeperStore

FIRST = Partition("orders", "0")
SESSION_TIMEOUT = 1.0


def say(text: object) -> None:
    """Tells the parent."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def store_of(kind: str, place: str, root: str = "") -> CheckpointStore:
    """The store that parent and child share."""
    if kind == "local":
        return LocalStore(place, busy_timeout=0.2)
    return ZooKeeperStore(place, root=root, session_timeout=SESSION_TIMEOUT)


async def opened(*place: str) -> CheckpointStore:
    """A store that is open; on a busy machine that takes longer than a session lasts."""
    while True:
        store = store_of(*place)
        with suppress(TransientStoreError):
            await store.open()
            return store


async def claim(store: CheckpointStore, epoch: int) -> tuple[Assignment, int]:
    """Takes the partition over; its checkpoint is a number."""
    assignment = Assignment(FIRST, epoch)
    text = (await store.claim("g", [assignment]))[assignment]
    assert not isinstance(text, Outcome)
    return assignment, int(text or 0)


async def until_claimed(store: CheckpointStore, epoch: int) -> tuple[Assignment, int]:
    """On a busy machine a session ends now and then, as it does in life."""
    while True:
        with suppress(TransientStoreError):
            return await claim(store, epoch)


async def count_up(store: CheckpointStore, epoch: int) -> None:
    """Owns the partition until somebody else does."""
    assignment, number = await until_claimed(store, epoch)
    while True:
        number += 1
        (outcome,) = await store.save("g", [StoreItem(assignment, str(number))])
        say(f"{outcome.kind.value} {number}")
        if outcome.kind is OutcomeKind.FENCED:
            return


async def main(*place: str) -> None:
    """Owns the partition as often as it is told to."""
    store = await opened(*place)
    try:
        epoch = 0
        while await asyncio.to_thread(sys.stdin.readline):
            epoch += 1
            await count_up(store, epoch)
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
