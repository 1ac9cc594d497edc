"""The memory store: the contract, and its faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind, Partition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.conformance.stores import StoreHarness, StoreSuite
from consumer_sdk.testing.faults import Faults

T = TypeVar("T")

FIRST = Partition("orders", "0")


class Line:
    """The way to a store: it may be down, or lose one reply of a save."""

    def __init__(self) -> None:
        self.is_down = False
        self.loses_reply = False

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Awaits the call, where the line is up."""
        if self.is_down:
            raise TransientStoreError(f"{seam}: the line is down")
        result = await call()
        if seam == "save" and self.loses_reply:
            self.loses_reply = False
            raise TransientStoreError("the reply was lost")
        return result


class MemoryHarness(StoreHarness):
    """Handles on one memory, each with a line of its own."""

    abilities = frozenset({"lose_reply", "outage"})

    def __init__(self) -> None:
        self._root = MemoryStore()
        self._lines: dict[CheckpointStore, Line] = {}

    def make_store(self) -> CheckpointStore:
        """Another handle."""
        line = Line()
        store = self._root.handle(faults=line)
        self._lines[store] = line
        return store

    @asynccontextmanager
    async def outage(self, store: CheckpointStore) -> AsyncIterator[None]:
        """Inside it the line is down."""
        self._lines[store].is_down = True
        yield
        self._lines[store].is_down = False

    def lose_reply(self, store: CheckpointStore) -> None:
        """The next save's reply is lost."""
        self._lines[store].loses_reply = True


class TestMemoryStore(StoreSuite):
    """The contract of `CheckpointStore`."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """A memory of its own for each case."""
        return MemoryHarness()


async def test_save_that_failed_before_its_effect_is_retry() -> None:
    """The read-back finds its own older serial: RETRY, and the next save is written."""
    faults = Faults()
    store = MemoryStore(faults=faults)
    assignment = Assignment(FIRST, 1)
    await store.claim("g", [assignment])
    faults.fail_next("save")
    (outcome,) = await store.save("g", [StoreItem(assignment, "one")])
    assert outcome.kind is OutcomeKind.RETRY
    assert await store.peek("g", [FIRST]) == {FIRST: None}
    (outcome,) = await store.save("g", [StoreItem(assignment, "two")])
    assert outcome.kind is OutcomeKind.DURABLE


async def test_lost_reply_that_cannot_be_read_back_is_retry() -> None:
    """Applied, reply lost, store down: RETRY; saying it again is harmless."""
    faults = Faults()
    store = MemoryStore(faults=faults)
    assignment = Assignment(FIRST, 1)
    await store.claim("g", [assignment])
    faults.fail_next("save", "after")
    faults.fail_next("read_back")
    (outcome,) = await store.save("g", [StoreItem(assignment, "one")])
    assert outcome.kind is OutcomeKind.RETRY
    assert await store.peek("g", [FIRST]) == {FIRST: "one"}
    (outcome,) = await store.save("g", [StoreItem(assignment, "one")])
    assert outcome.kind is OutcomeKind.DURABLE


async def test_claim_whose_reply_was_lost_has_taken_over() -> None:
    """The owner before is fenced, and the claimer owns nothing until it has claimed again."""
    faults = Faults()
    old_store = MemoryStore()
    new_store = old_store.handle(faults=faults)
    old, new = Assignment(FIRST, 1), Assignment(FIRST, 2)
    await old_store.claim("g", [old])
    faults.fail_next("claim", "after")
    with pytest.raises(TransientStoreError, match="claim"):
        await new_store.claim("g", [new])
    for store, assignment in ((old_store, old), (new_store, new)):
        (outcome,) = await store.save("g", [StoreItem(assignment, "text")])
        assert outcome.kind is OutcomeKind.FENCED
    assert await new_store.claim("g", [new]) == {new: None}


async def test_consumers_share_one_store_object() -> None:
    """Closing it for one consumer leaves it to the other."""
    store = MemoryStore()
    one, two = Assignment(FIRST, 1), Assignment(Partition("orders", "1"), 1)
    await store.claim("g", [one])
    await store.claim("g", [two])
    await store.aclose()
    outcomes = await store.save("g", [StoreItem(one, "1"), StoreItem(two, "2")])
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}


async def test_unpin_that_failed_is_done_again() -> None:
    """Before or after its effect: with the faults of the handle, and without harm."""
    faults, store = Faults(), MemoryStore()
    handle = store.handle(faults=faults)
    await store.pin("g", "orders", "time:1")
    faults.fail_next("unpin", "before")
    with pytest.raises(TransientStoreError, match="unpin"):
        await handle.unpin("g", "orders")
    faults.fail_next("unpin", "after")
    with pytest.raises(TransientStoreError, match="unpin"):
        await handle.unpin("g", "orders")
    assert await handle.unpin("g", "orders") is False
    assert await store.pins("g") == {}
