"""What an import does to leases: ends of before are taken back, and nothing else is."""

from __future__ import annotations

from consumer_sdk.abc import Leases
from consumer_sdk.leases.stores import ended_partitions
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import Imported, MemoryStore, import_checkpoints
from tests.stores.exchange_world import AT_41, AT_99, FIRST, GROUP, SECOND, entry, own

THIRD = Partition("orders", "2")
END = Checkpoint(41, 42, ended=True)


async def member(store: MemoryStore) -> Leases:
    """Holds all partitions, and does not renew."""
    leases = store.leases(GROUP, "orders")
    await leases.sync({partition.id: () for partition in (FIRST, SECOND, THIRD)})
    await leases.take(dict.fromkeys([FIRST.id, SECOND.id, THIRD.id], 0))
    return leases


async def end(leases: Leases, *partitions: Partition) -> None:
    """All of their records are settled."""
    held = (await leases.view()).held
    await leases.release({partition.id: held[partition.id] for partition in partitions}, ended=True)


async def owned(leases: Leases) -> set[str]:
    """What somebody holds."""
    view = await leases.view()
    return {partition for partition, lease in view.leases.items() if lease.owner is not None}


async def test_end_is_of_the_checkpoint_of_before() -> None:
    """A partition is read on after an import, unless that says itself that it has ended."""
    store = MemoryStore()
    await end(await member(store), FIRST, SECOND, THIRD)
    found = [entry(AT_41), entry(END, SECOND)]
    assert await import_checkpoints(store, found) == Imported(2, 0)
    assert await ended_partitions(store, GROUP) == {SECOND, THIRD}


async def test_end_is_taken_back_by_an_import_that_is_done_again() -> None:
    """The first one was perhaps killed after it had written the checkpoint."""
    store = MemoryStore()
    await own(store, entry(AT_41))
    await end(await member(store), FIRST)
    assert await import_checkpoints(store, [entry(AT_41)]) == Imported(0, 1)
    assert await ended_partitions(store, GROUP) == set()


async def test_owner_loses_what_was_written_and_keeps_what_was_there() -> None:
    """By its lease too, so that it is granted the partition anew."""
    store = MemoryStore()
    await own(store, entry(AT_41), entry(AT_41, SECOND))
    leases = await member(store)
    found = [entry(AT_99), entry(AT_41, SECOND), entry(END, THIRD)]
    assert await import_checkpoints(store, found) == Imported(2, 1)
    assert await owned(leases) == {SECOND.id, THIRD.id}
