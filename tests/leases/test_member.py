"""Leases when replies are lost, others come in between, or what is stored is not ours."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConsumerClosedError,
    TransientStoreError,
)
from consumer_sdk.leases.backend import LeaseBackend, Reading
from consumer_sdk.leases.balance import moves
from consumer_sdk.leases.member import ROUNDS, TableLeases
from consumer_sdk.stores import LocalStore, MemoryStore
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.faults import FaultRates, Faults


async def test_take_whose_reply_was_lost_is_taken_again() -> None:
    """Applied without a word: owned and not held, and nobody else's."""
    faults = Faults()
    store = MemoryStore(faults=faults)
    mine, theirs = store.leases("g", "s"), store.handle().leases("g", "s")
    await mine.sync({"a": ()})
    await mine.renew()
    faults.fail_next("lease_write", "after")
    with pytest.raises(TransientStoreError):
        await mine.take({"a": 0})
    view = await mine.view()
    assert (view.leases["a"].owner, view.held) == (mine.member, {})
    assert await mine.take(moves(view).take) == {"a": 2}
    await theirs.renew()
    assert moves(await theirs.view()).take == {}


async def test_release_whose_reply_was_lost_is_released() -> None:
    """Asked again, it changes nothing."""
    faults = Faults()
    store = MemoryStore(faults=faults)
    leases = store.leases("g", "s")
    await leases.sync({"a": ()})
    fence = await leases.take({"a": 0})
    faults.fail_next("lease_write", "after")
    with pytest.raises(TransientStoreError):
        await leases.release(fence, ended=True)
    await leases.release(fence, ended=True)
    lease = (await leases.view()).leases["a"]
    assert (lease.owner, lease.ended) == (None, True)


def test_renewal_and_take_that_overlap_lose_nothing() -> None:
    """A renewal that has read before a take was written does not take it for lost."""

    async def main(simulation: Simulation) -> None:
        rates = dict.fromkeys(("lease_read", "lease_write", "lease_renew"), FaultRates(delay=0.7))
        store = MemoryStore(faults=Faults(simulation.random, rates))
        leases = store.leases("g", "s")
        await leases.sync(dict.fromkeys("abc", ()))
        for _ in range(20):
            lost, _, taken = await asyncio.gather(
                leases.renew(), leases.view(), leases.take(dict.fromkeys("abc", 0))
            )
            assert not lost
            lost, *_ = await asyncio.gather(leases.renew(), leases.release(taken))
            assert not lost

    for seed in range(50):
        simulate(main, seed=seed)


def test_store_that_hangs_is_given_up_in_time() -> None:
    """A renewal that gets no answer ends when the leases may have run out."""

    async def main(simulation: Simulation) -> None:
        faults = Faults()
        leases = MemoryStore(faults=faults).leases("g", "s", duration=9)
        await leases.sync({"a": ()})
        await leases.renew()
        await leases.take({"a": 0})
        await asyncio.sleep(3)
        faults.die()
        started = simulation.clock.monotonic()
        assert await leases.renew() == ["a"]
        assert simulation.clock.monotonic() - started == 6
        await leases.aclose()
        assert simulation.clock.monotonic() - started == 15

    simulate(main)


class Contended(LeaseBackend):
    """A place where somebody is always faster."""

    __slots__ = ("writes",)

    def __init__(self) -> None:
        self.writes = 0

    async def read(self) -> Reading:
        """Nothing yet."""
        return Reading(self.writes, None, {})

    async def replace(self, version: int, text: str) -> bool:
        """Refused."""
        self.writes += 1
        return False

    async def renew(self, member: str, count: int, dead: object) -> None:
        """Nobody is counted."""

    async def leave(self, member: str) -> None:
        """Likewise."""


async def test_change_that_is_always_too_late_is_transient() -> None:
    """It does not go on for ever."""
    place = Contended()
    leases = TableLeases(place, "here", "me", duration=1, handover=1)
    with pytest.raises(TransientStoreError, match="here"):
        await leases.sync({"a": ()})
    assert place.writes == ROUNDS


class Counted(LeaseBackend):
    """A place that somebody else writes to before every third write, and that counts ours."""

    __slots__ = ("reading", "writes")

    def __init__(self) -> None:
        self.reading = Reading(0, None, {})
        self.writes = 0

    async def read(self) -> Reading:
        """As it is when the answer comes."""
        await asyncio.sleep(0)
        return self.reading

    async def replace(self, version: int, text: str) -> bool:
        """Refused where it was written since."""
        self.writes += 1
        if self.writes % 3 == 0:
            self.reading = self.reading._replace(version=self.reading.version + 1)
        await asyncio.sleep(0)
        if version != self.reading.version:
            return False
        self.reading = Reading(version + 1, text, {})
        return True

    async def renew(self, member: str, count: int, dead: object) -> None:
        """Nobody is counted."""

    async def leave(self, member: str) -> None:
        """Likewise."""


async def test_changes_of_one_member_that_overlap_are_written_together() -> None:
    """A thousand releases at once, and ends among them: none of them is in another's way."""
    place = Counted()
    leases = TableLeases(place, "here", "me", duration=1, handover=1)
    await leases.sync({f"{number}": () for number in range(1000)})
    fences = await leases.take({f"{number}": 0 for number in range(1000)})
    before = place.writes
    await asyncio.gather(
        *(leases.release({p: f}, ended=bool(f % 2)) for p, f in fences.items()),
        leases.sync({**dict.fromkeys(fences, ()), "new": ()}),
    )
    view = (await leases.view()).leases
    assert all(view[p].ended == bool(f % 2) and not view[p].owner for p, f in fences.items())
    assert "new" in view
    assert place.writes - before <= 4


async def test_changes_of_others_are_made_where_one_is_cancelled_or_refused() -> None:
    """Wherever it is cancelled, also while it writes for all."""
    for turns in range(12):
        leases = TableLeases(Counted(), "here", "me", duration=1, handover=1)
        await leases.sync({"a": (), "b": (), "c": ()}, identity="s@1")
        first = asyncio.create_task(leases.take({"a": 0}))
        second = asyncio.create_task(leases.take({"b": 0}))
        wrong = asyncio.create_task(leases.sync({}, identity="other@1"))
        third = asyncio.create_task(leases.take({"c": 0}))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first, second, wrong, third])
        owners = {p: lease.owner for p, lease in (await leases.view()).leases.items()}
        assert (owners["b"], owners["c"]) == ("me", "me")
        assert isinstance(wrong.exception(), CheckpointMismatchError)


async def test_leases_that_cannot_be_read_are_left_as_they_are(tmp_path: Path) -> None:
    """Every call says where and why; nothing is written over them."""
    path = tmp_path / "state.db"
    store = LocalStore(path)
    await store.open()
    leases = store.leases("g", "s")
    await leases.sync({"a": ()})
    with closing(sqlite3.connect(path)) as shell, shell:
        shell.execute("UPDATE leases SET text = replace(text, '1', '2')")
    for call in (leases.sync({"b": ()}), leases.take({"a": 0}), leases.view(), leases.renew()):
        with pytest.raises(CheckpointFormatError, match=r"state\.db.*'s' in group 'g'.*version 2"):
            await call
    await leases.aclose()
    await store.aclose()
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("SELECT version, text LIKE '%\"a\"%' FROM leases").fetchone() == (1, 1)


async def test_dead_members_are_cleared_away(tmp_path: Path) -> None:
    """A file does not fill up with those who were killed."""

    class Fast:
        """A clock on which each look is a second later."""

        now = 0.0

        def monotonic(self) -> float:
            """One second more."""
            self.now += 1
            return self.now

        def wall(self) -> float:
            """Not asked for."""
            raise AssertionError

    store = LocalStore(tmp_path / "state.db")
    await store.open()
    for _ in range(3):
        await store.leases("g", "s").renew()
    leases = store.leases("g", "s", duration=3, clock=Fast())
    for _ in range(6):
        await leases.renew()
        await leases.view()
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "state.db")) as shell:
        assert shell.execute("SELECT member FROM members").fetchall() == [(leases.member,)]


async def test_store_that_is_closed_says_so(tmp_path: Path) -> None:
    """Leases live no longer than their store; closing them after it is no error."""
    store = LocalStore(tmp_path / "state.db")
    await store.open()
    leases = store.leases("g", "s")
    await leases.renew()
    await store.aclose()
    with pytest.raises(ConsumerClosedError, match="not open"):
        await leases.view()
    await leases.aclose()
