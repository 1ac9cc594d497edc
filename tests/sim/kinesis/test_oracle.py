"""The simulation can fail: what is broken on purpose is found, and named, within some seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk.adapters.kinesis.consumer.discovery import Discovery
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.sources import Polling
from consumer_sdk.adapters.kinesis.service.rates import ShardRates
from consumer_sdk.adapters.kinesis.service.service import IteratorExpiredError, IteratorStart, Page
from consumer_sdk.leases import balance
from consumer_sdk.leases import table as lease_table
from consumer_sdk.leases.liveness import Liveness
from consumer_sdk.records import Checkpoint, Start
from consumer_sdk.records.leases import Lease
from consumer_sdk.runtime.dispatch.loop_watch import LoopWatch
from consumer_sdk.runtime.starts import lookup as inquiry
from consumer_sdk.testing.memory import store as memory
from consumer_sdk.trackers import decode_checkpoint
from tests.sim.kinesis.seeds import RUNNER

pytestmark = pytest.mark.sim

ENOUGH = 300
"""Seeds within which each is found; a search begins a little before the first one that finds it today."""


def first_error(first: int = 0) -> str:
    """What the first seed that fails says."""
    failures = (RUNNER.try_seed(seed) for seed in range(first, first + ENOUGH))
    return next((failure.error for failure in failures if failure), "all seeds pass")


def test_children_that_do_not_wait_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 21: children are read as soon as they are listed."""

    def is_readable(partition: str, leases: Mapping[str, Lease]) -> bool:
        return not leases[partition].ended

    monkeypatch.setattr(balance, "is_readable", is_readable)
    monkeypatch.setattr(lease_table, "is_readable", is_readable)
    assert "was settled: " in first_error()


@pytest.mark.campaign
def test_second_parent_that_nobody_waits_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 20: of a merge only one parent is known."""

    async def look(self: Discovery) -> None:
        shards = await self._listed()
        parents: dict[str, Sequence[str]] = {shard.id: shard.parents[:1] for shard in shards}
        await self._leases.sync(parents, identity=self._facts.identity)
        self._synced()

    monkeypatch.setattr(Discovery, "_look", look)
    assert "was settled: " in first_error(15)


@pytest.mark.campaign
def test_checkpoint_without_a_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 14: who was stopped writes when it goes on, over what others have written."""
    monkeypatch.setattr(memory, "judge", lambda _stored, _mine: None)
    error = first_error(75)
    assert "which" in error or "went back" in error


@pytest.mark.campaign
def test_place_that_is_lost_on_expiry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 23: an iterator that has expired is replaced by one at the tip."""

    async def read(self: Polling, cursor: Start) -> Page:
        try:
            return await self._read(cursor)
        except IteratorExpiredError:
            at = IteratorStart("AT_TIMESTAMP", time=await self._service.time())
            self._iterator = await self._service.iterator(self._shard, at)
            return await self._read(cursor)

    monkeypatch.setattr(Polling, "read", read)
    error = first_error(40)
    assert "settled" in error


def test_unread_records_that_are_forgotten_for_good_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kinesis trap 12: what a paused shard gives back for want of room is not read again."""

    def forget_unread(self: Grant) -> None:
        self._unread.clear()
        self.size = 0

    monkeypatch.setattr(Grant, "forget_unread", forget_unread)
    assert "settled" in first_error(20)


@pytest.mark.campaign
def test_calls_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 22: a shard with records is asked without a pause."""
    monkeypatch.setattr(ShardRates, "next_call", lambda self: self._ready)
    assert "times a second" in first_error()


def test_bytes_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 22: who reads alone is refused, because it has read too much."""
    answered = ShardRates.answered

    def forget(self: ShardRates, now: float, _size: int, *, is_at_tip: bool) -> None:
        answered(self, now, 0, is_at_tip=is_at_tip)

    monkeypatch.setattr(ShardRates, "answered", forget)
    assert "was refused" in first_error(350)  # few seeds read alone under a limit of few bytes


def test_settled_records_that_come_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, what was settled above a hole is handed out once more."""

    def without_ranges(text: str, **options: Any) -> Checkpoint:
        return replace(decode_checkpoint(text, **options), ranges=())

    monkeypatch.setattr(inquiry, "decode_checkpoint", without_ranges)
    error = first_error()
    assert "covers it" in error or "went back" in error


def test_open_shard_that_is_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis trap 21: whoever gives a shard up says that it has ended."""
    release = lease_table.LeaseTable.release

    def end(
        self: lease_table.LeaseTable, member: str, held: Mapping[str, int], *, ended: bool
    ) -> None:
        release(self, member, held, ended=ended or bool(held))

    monkeypatch.setattr(lease_table.LeaseTable, "release", end)
    assert "was ended, and" in first_error()


def test_woken_process_that_works_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was stopped hands out records before it has heard whose they are."""
    monkeypatch.setattr(LoopWatch, "look", lambda _self: True)
    assert "was woken" in first_error(50)


def test_dead_member_that_keeps_its_shards_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takeovers take two leases and a renewal at most."""
    made = Liveness.__init__
    monkeypatch.setattr(Liveness, "__init__", lambda self, duration: made(self, duration * 6))
    assert "are left alone" in first_error()
