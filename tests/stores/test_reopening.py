"""Ends that an operator takes back: in the checkpoint and in the lease, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_sdk.abc import Leases
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.leases.stores import ended_partitions
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.stores.reopening import reopen_ended
from tests.stores.exchange_world import AT_41, GROUP, entry, own, replace_text, resigned, stored

BOTH, LEASED, SAVED, NEITHER, OTHER = (Partition("orders", name) for name in "bdace")
END = Checkpoint(41, 42, ((50, 59),), {42: (2, 1.5)}, ended=True, identity="abc")
SEVERAL = Checkpoint((7, 1), (7, 2), (((8, 0), (8, 5)),), {(7, 2): (1, 1.5)}, ended=True)


async def end(store: MemoryStore, *partitions: Partition) -> Leases:
    """Of their leases; the member that has read them lives."""
    leases = store.leases(GROUP, "orders")
    await leases.sync({partition.id: () for partition in partitions})
    fences = await leases.take(dict.fromkeys([partition.id for partition in partitions], 0))
    await leases.release(fences, ended=True)
    await leases.renew()
    return leases


async def test_partition_has_ended_by_its_lease_or_by_its_checkpoint() -> None:
    """Those that had are named in the order that was asked for; what was not asked for stays ended."""
    store = MemoryStore()
    saved = [entry(END, BOTH), entry(END, SAVED), entry(AT_41, NEITHER), entry(END, OTHER)]
    await own(store, *saved)
    await end(store, BOTH, LEASED, OTHER)
    asked = [NEITHER, BOTH, SAVED, LEASED, Partition("orders", "x"), Partition("other", "a")]
    assert await reopen_ended(store, GROUP, asked) == [BOTH, SAVED, LEASED]
    assert await ended_partitions(store, GROUP) == {OTHER}
    open_ = [entry(replace(END, ended=False), partition).text for partition in (BOTH, SAVED)]
    texts = await stored(store, [BOTH, SAVED, LEASED, NEITHER, OTHER])
    assert texts == [*open_, None, saved[2].text, saved[3].text]
    assert await reopen_ended(store, GROUP, asked) == []


async def test_partition_that_has_not_ended_keeps_its_owner() -> None:
    """It is asked for together with one that has."""
    store = MemoryStore()
    leases = await end(store, LEASED)
    await leases.sync({LEASED.id: (), NEITHER.id: ()})
    fences = await leases.take({NEITHER.id: 0})
    assert await reopen_ended(store, GROUP, [LEASED, NEITHER]) == [LEASED]
    view = await leases.view()
    assert view.leases[LEASED.id].owner is None
    assert view.leases[NEITHER.id].owner == leases.member
    assert view.leases[NEITHER.id].fence == fences[NEITHER.id]


@pytest.mark.parametrize("broker", ["kinesis", "memory"])
async def test_positions_of_several_numbers_stay_what_they_are(broker: str) -> None:
    """Of every broker, the text of a position is what its own adapter writes."""
    store = MemoryStore()
    await own(store, entry(SEVERAL, SAVED, broker=broker))
    assert await reopen_ended(store, GROUP, [SAVED]) == [SAVED]
    (text,) = await stored(store, [SAVED])
    assert text == entry(replace(SEVERAL, ended=False), SAVED, broker=broker).text


async def test_checkpoint_of_an_unknown_broker_is_refused_before_anything_changes() -> None:
    """Its positions cannot be read, so that nobody could say what was written."""
    store = MemoryStore()
    known, strange = entry(END, SAVED), entry(END, BOTH)
    strange = replace_text(strange, resigned(strange.text, broker="nats"))
    await own(store, known, strange)
    await end(store, SAVED, BOTH)
    with pytest.raises(
        CheckpointFormatError, match=r"orders/b: the positions of 'nats' are not known"
    ):
        await reopen_ended(store, GROUP, [SAVED, BOTH])
    assert await stored(store, [SAVED, BOTH]) == [known.text, strange.text]
    assert await ended_partitions(store, GROUP) == {SAVED, BOTH}
