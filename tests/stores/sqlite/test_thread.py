"""The bridge to SQLite: order, cancellation, closing, and who may use it."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from consumer_sdk.errors import ConsumerClosedError, StoreError, TransientStoreError
from consumer_sdk.stores.sqlite import file as sqlite_file
from consumer_sdk.stores.sqlite.file import Database, SqliteThread

NAME = "bridge under test"
PATIENCE = 300.0


def no_check(database: Database) -> None:
    """Accepts any file."""


def make(path: Path) -> SqliteThread:
    """A bridge with a thread of a known name."""
    return SqliteThread(path / "state.db", busy_timeout=0.1, name=NAME)


def threads() -> int:
    """How many threads of ours there are."""
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _ends_its_threads() -> Iterator[None]:
    """One that was given up, or told to end, is not there any more in the next test."""
    yield
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(PATIENCE)


@pytest_asyncio.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[SqliteThread]:
    """An open one."""
    made = make(tmp_path)
    await made.open(no_check)
    yield made
    await made.aclose()


async def test_open_bridge_has_one_named_thread_until_it_is_closed(bridge: SqliteThread) -> None:
    """One thread, whose name says whose it is, and which no process waits for; and none afterwards."""
    await bridge.open(no_check)
    assert threads() == 1
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == NAME)
    await bridge.aclose()
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(PATIENCE)
    assert threads() == 0


async def test_calls_take_effect_in_the_order_in_which_they_were_made(
    bridge: SqliteThread,
) -> None:
    """Also those whose callers are cancelled at once: nothing is lost."""
    seen: list[int] = []
    tasks = [
        asyncio.create_task(bridge.run(lambda _, n=number: seen.append(n)))  # type: ignore[misc] # mypy cannot type a default
        for number in range(20)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await bridge.run(no_check)
    assert seen == list(range(20))
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_thread_that_waits_holds_no_call_that_it_has_done(bridge: SqliteThread) -> None:
    """What the last one needed is freed, also where no other one comes."""

    class Needed:
        """Whatever a call may have."""

    needed, freed = Needed(), threading.Event()
    weakref.finalize(needed, freed.set)
    await bridge.run(partial(lambda _needed, _database: None, needed))
    del needed
    assert await asyncio.to_thread(freed.wait, PATIENCE)


async def test_error_of_a_call_is_the_callers(bridge: SqliteThread) -> None:
    """What is not SQLite's flies unchanged, and the thread goes on."""

    def fail(database: Database) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await bridge.run(fail)
    assert await bridge.run(lambda _: 1) == 1


async def test_failed_transaction_writes_nothing_and_leaves_no_lock(bridge: SqliteThread) -> None:
    """All of a block or none of it."""

    def fail(database: Database) -> None:
        with database.transaction() as connection:
            connection.execute("INSERT INTO pins VALUES ('g', 's', 'x')")
            connection.execute("INSERT INTO nowhere VALUES (1)")

    def count(database: Database) -> int:
        with database.transaction() as connection:
            return int(connection.execute("SELECT count(*) FROM pins").fetchone()[0])

    with pytest.raises(StoreError, match="no such table: nowhere"):
        await bridge.run(fail)
    assert await bridge.run(count) == 0


async def test_use_while_not_open_is_a_clear_error(tmp_path: Path) -> None:
    """Before open and after aclose."""
    bridge = make(tmp_path)
    with pytest.raises(ConsumerClosedError, match="is not open"):
        await bridge.run(no_check)
    await bridge.open(no_check)
    await bridge.aclose()
    with pytest.raises(ConsumerClosedError, match="is not open"):
        await bridge.run(no_check)


async def test_closed_bridge_can_be_opened_again(bridge: SqliteThread) -> None:
    """Closing is not for ever."""
    await bridge.aclose()
    await bridge.open(no_check)
    assert await bridge.run(lambda _: 1) == 1


def test_use_from_another_event_loop_is_a_clear_error(tmp_path: Path) -> None:
    """The loop that opened it is the one that may use it; any may close it."""
    bridge = make(tmp_path)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(bridge.open(no_check))
        with pytest.raises(ConsumerClosedError, match="another event loop"):
            second.run(bridge.run(no_check))
        with pytest.raises(ConsumerClosedError, match="another event loop"):
            second.run(bridge.open(no_check))
        assert first.run(bridge.run(lambda _: 1)) == 1
        second.run(bridge.aclose())


async def test_forked_child_neither_uses_nor_ends_what_its_parent_has(
    bridge: SqliteThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy has no thread: use is a clear error, closing and dropping it do nothing; the parent goes on."""
    closed, dropped = copy.copy(bridge), copy.copy(bridge)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ConsumerClosedError, match="forked, and SQLite's locks do not survive"):
            await closed.run(no_check)
        await closed.aclose()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del dropped
        assert not caught
    assert await bridge.run(lambda _: 1) == 1


def test_bridge_of_a_dead_event_loop_can_be_opened_in_a_new_one(tmp_path: Path) -> None:
    """After `asyncio.run` without aclose: a call is a clear error, open starts afresh."""
    bridge = make(tmp_path)
    asyncio.run(bridge.open(no_check))
    with pytest.raises(ConsumerClosedError, match="another event loop"):
        asyncio.run(bridge.run(no_check))

    async def again() -> int:
        await bridge.open(no_check)
        try:
            return await bridge.run(lambda _: 1)
        finally:
            await bridge.aclose()

    assert asyncio.run(again()) == 1


def test_bridge_of_a_dead_event_loop_is_not_opened_in_a_forked_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's locks do not survive the fork; the parent may go on."""
    bridge = make(tmp_path)
    asyncio.run(bridge.open(no_check))
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ConsumerClosedError, match="before this process was forked"):
            asyncio.run(bridge.open(no_check))
    asyncio.run(bridge.aclose())


def test_answer_that_finds_its_loop_closed_is_dropped(tmp_path: Path) -> None:
    """The thread outlives the loop whose call it was working on."""
    bridge = make(tmp_path)
    gate = threading.Event()

    async def leave() -> None:
        await bridge.open(no_check)
        task = asyncio.create_task(bridge.run(lambda _: gate.wait(PATIENCE)))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    gate.set()
    asyncio.run(bridge.aclose())


async def test_cancelled_open_leaves_nothing_open(tmp_path: Path) -> None:
    """The thread ends, and the bridge is as before."""
    bridge = make(tmp_path)
    gate = threading.Event()

    def wait(database: Database) -> None:
        gate.wait(PATIENCE)

    opening = asyncio.create_task(bridge.open(wait))
    await asyncio.sleep(0)
    (thread,) = (t for t in threading.enumerate() if t.name == NAME)
    opening.cancel()
    await asyncio.wait([opening])
    gate.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with pytest.raises(ConsumerClosedError):
        await bridge.run(no_check)


async def test_closing_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is bounded; what was queued behind is said not to be written, and nothing runs late."""
    monkeypatch.setattr(sqlite_file, "CLOSING_MARGIN", 0.0)
    bridge = make(tmp_path)
    await bridge.open(no_check)
    gate, ran = threading.Event(), threading.Event()
    hanging = asyncio.create_task(bridge.run(lambda _: gate.wait(PATIENCE)))
    queued = asyncio.create_task(bridge.run(lambda _: ran.set()))
    await asyncio.sleep(0)
    await bridge.aclose()
    assert "its thread is given up" in caplog.text
    gate.set()
    assert await hanging is True
    with pytest.raises(TransientStoreError, match="closed before this was written"):
        await queued
    assert not ran.is_set()


async def test_closing_waits_for_what_is_under_way(
    bridge: SqliteThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For the busy timeout and a margin: a slow disk costs nothing that was queued."""
    monkeypatch.setattr(sqlite_file, "CLOSING_MARGIN", PATIENCE)
    gate = threading.Event()
    calls = [asyncio.create_task(bridge.run(lambda _: gate.wait(PATIENCE))) for _ in range(2)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(bridge.aclose())
    for _ in range(5):
        await asyncio.sleep(0)
    gate.set()
    await closing
    assert await asyncio.gather(*calls) == [True, True]
    assert not caplog.records


async def test_statement_that_does_not_end_is_interrupted_by_closing(
    bridge: SqliteThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller hears that it may be tried again, and the thread ends."""
    monkeypatch.setattr(sqlite_file, "CLOSING_MARGIN", 0.0)
    begun = threading.Event()

    def never_end(database: Database) -> None:
        database.connection.create_function("begin", 0, begun.set)
        with database.translated():
            database.connection.execute(
                "WITH RECURSIVE n(x) AS (SELECT begin() UNION ALL SELECT x FROM n)"
                " SELECT count(*) FROM n"
            ).fetchone()

    call = asyncio.create_task(bridge.run(never_end))
    await asyncio.to_thread(begun.wait, PATIENCE)
    await bridge.aclose()
    with pytest.raises(TransientStoreError, match="closed meanwhile"):
        await call


async def test_bridge_that_is_dropped_open_warns_and_ends_its_thread(tmp_path: Path) -> None:
    """A leak is a ResourceWarning that names the file, and costs no thread."""
    bridge = make(tmp_path)
    await bridge.open(no_check)
    await bridge.run(no_check)
    (thread,) = (t for t in threading.enumerate() if t.name == NAME)
    with pytest.warns(ResourceWarning, match=r"state\.db was not closed"):
        del bridge  # the last reference: no cycle keeps it
    thread.join(PATIENCE)
    assert not thread.is_alive()
