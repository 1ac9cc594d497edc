"""Content that no store of ours wrote: a typed error, nothing overwritten, and a way out."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Assignment, Checkpoint, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore
from consumer_sdk.stores.fencing import Stamp
from consumer_sdk.stores.zookeeper.tree import Znode, encode_znode
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.trackers import encode_checkpoint
from tests.stores.exchange_world import opened
from tests.stores.fake_zookeeper import FakeZooKeeper, store_on
from tests.stores.zookeeper.test_znodes import HOSTILE

BAD, GOOD = Partition("orders", "0"), Partition("orders", "1")
PATH = "/sdk/g/orders/0"


async def owned(store: CheckpointStore, *partitions: Partition) -> list[Assignment]:
    """Claims and saves."""
    grants = [Assignment(partition, 1) for partition in partitions]
    await store.claim("g", grants)
    await store.save("g", [StoreItem(a, "text") for a in grants])
    return grants


# -- ZooKeeper -------------------------------------------------------------------------------


def plant(server: FakeZooKeeper, content: bytes) -> Znode:
    """Somebody writes over a checkpoint."""
    server.znodes[PATH] = Znode(content, server.znodes[PATH].version + 1)
    return server.znodes[PATH]


@pytest.mark.parametrize("content", HOSTILE)
async def test_hostile_znode_is_refused_and_untouched(content: str) -> None:
    """Claim, peek and list raise what names it; save is FENCED; delete makes it good."""
    server = FakeZooKeeper()
    store = store_on(server)
    bad, good = await owned(store, BAD, GOOD)
    planted = plant(server, HOSTILE[content])
    for call in (
        store.claim("g", [Assignment(BAD, 2), Assignment(GOOD, 2)]),
        store.peek("g", [BAD]),
        store.list("g"),
    ):
        with pytest.raises(CheckpointFormatError, match=f"{PATH} holds no checkpoint"):
            await call
    outcomes = await store.save("g", [StoreItem(bad, "over"), StoreItem(good, "on")])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.FENCED, OutcomeKind.DURABLE]
    assert server.znodes[PATH] == planted
    await store.delete("g", [BAD])
    again = Assignment(BAD, 3)
    assert await store.claim("g", [again]) == {again: None}
    await store.aclose()


async def test_hostile_pin_is_refused_and_untouched() -> None:
    """A start that cannot be read is not pinned anew before somebody has unpinned it."""
    server = FakeZooKeeper()
    store = store_on(server)
    await store.pin("g", "orders", "time:1")
    server.znodes["/sdk/g/orders"] = planted = Znode(b'{"start":7}', 5)
    for call in (store.pin("g", "orders", "time:2"), store.pins("g")):
        with pytest.raises(CheckpointFormatError, match=r"/sdk/g/orders holds no .* unpin"):
            await call
    assert server.znodes["/sdk/g/orders"] == planted
    assert await store.unpin("g", "orders")
    assert await store.pin("g", "orders", "time:2") == "time:2"
    await store.aclose()


async def test_unpinned_znode_stays_only_if_something_is_below_it() -> None:
    """What was made for the start alone goes with it."""
    server = FakeZooKeeper()
    store = store_on(server)
    await owned(store, BAD)
    for stream in ("orders", "orders@5f0c"):
        await store.pin("g", stream, "time:1")
        await store.unpin("g", stream)
    assert sorted(path for path in server.znodes if "orders" in path) == ["/sdk/g/orders", PATH]
    assert server.znodes["/sdk/g/orders"].data == b""
    await store.aclose()


async def test_foreign_znodes_are_no_partitions() -> None:
    """What somebody else keeps beside ours is not listed, and not read."""
    server = FakeZooKeeper()
    store = store_on(server)
    await owned(store, BAD)
    server.znodes |= {"/sdk/g/orders/a b": Znode(b"?", 0), "/sdk/g/%leases": Znode(b"?", 0)}
    assert await store.list("g") == [BAD]
    await store.aclose()


# -- SQLite ----------------------------------------------------------------------------------


def update(path: Path, column: str, value: object) -> tuple[Any, ...]:
    """Somebody writes into a checkpoint's row; returns the row."""
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute(f"UPDATE checkpoints SET {column} = ? WHERE partition = 'orders/0'", (value,))  # noqa: S608 - a column of ours
        return row(path)


def row(path: Path) -> tuple[Any, ...]:
    """The row as it is."""
    with closing(sqlite3.connect(path)) as shell:
        shell.text_factory = bytes
        query = "SELECT writer, fence, serial, text FROM checkpoints WHERE partition = 'orders/0'"
        found: tuple[Any, ...] = shell.execute(query).fetchone()
        return found


ROWS = [
    ("text", b"\xff\x00"),
    ("text", b"{}"),
    ("writer", b"\xff"),
    ("fence", "seven"),
    ("fence", 7.5),
    ("serial", "many"),
    ("serial", b"\x01"),
    ("serial", 1.5),
]


@pytest.mark.parametrize("column, value", ROWS)
async def test_hostile_row_is_refused_and_untouched(
    tmp_path: Path, column: str, value: object
) -> None:
    """A value of another type: claim raises what names it; save is FENCED; delete fixes it."""
    path = tmp_path / "state.db"
    store = LocalStore(path)
    await store.open()
    bad, good = await owned(store, BAD, GOOD)
    planted = update(path, column, value)
    with pytest.raises(CheckpointFormatError, match=r"partition orders/0 holds no checkpoint"):
        await store.claim("g", [Assignment(GOOD, 2), Assignment(BAD, 2)])
    outcomes = await store.save("g", [StoreItem(bad, "over"), StoreItem(good, "on")])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.FENCED, OutcomeKind.DURABLE]
    assert row(path) == planted
    await store.delete("g", [BAD])
    again = Assignment(BAD, 3)
    assert await store.claim("g", [again]) == {again: None}
    await store.aclose()


@pytest.mark.parametrize("value", [b"\xff", b"time:1"])
async def test_hostile_pin_in_a_row_is_refused_and_untouched(tmp_path: Path, value: bytes) -> None:
    """Likewise: pin and pins raise what names it, unpin clears it."""
    path = tmp_path / "state.db"
    async with opened(LocalStore(path)) as store:
        await store.pin("g", "orders", "time:1")
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("UPDATE pins SET start = ?", (value,))
        for call in (store.pin("g", "orders", "time:2"), store.pins("g")):
            with pytest.raises(CheckpointFormatError, match=r"'orders' cannot be read .* unpin"):
                await call
        assert await store.unpin("g", "orders")
        assert await store.pin("g", "orders", "time:2") == "time:2"


async def test_hostile_name_of_a_partition_is_refused(tmp_path: Path) -> None:
    """A row that is no partition's is said, not skipped."""
    path = tmp_path / "state.db"
    store = LocalStore(path)
    await store.open()
    await owned(store, BAD)
    update(path, "partition", "no partition")
    with pytest.raises(CheckpointFormatError, match="no name of a partition"):
        await store.list("g")
    await store.aclose()


# -- whole consumers -------------------------------------------------------------------------


def checkpoint_of(broker: str, partition: Partition) -> str:
    """A checkpoint's text."""
    return encode_checkpoint(
        Checkpoint(watermark=1, resume=2), broker=broker, partition=partition, encode_position=str
    )[0]


TEXTS = {
    "truncated": (checkpoint_of("memory", BAD)[:-20], CheckpointFormatError),
    "another topic": (checkpoint_of("memory", Partition("other", "0")), CheckpointMismatchError),
    "another partition": (checkpoint_of("memory", GOOD), CheckpointMismatchError),
    "another broker": (checkpoint_of("kafka", BAD), CheckpointMismatchError),
    "storm-kafka's": ('{"offset":42,"topic":"orders","partition":0}', CheckpointFormatError),
    "nothing": ("", CheckpointFormatError),
    "a number": ("42", CheckpointFormatError),
    "another type": (
        checkpoint_of("memory", BAD).replace('"resume":"2"', '"resume":2'),
        CheckpointFormatError,
    ),
    "two megabytes": ("x" * 2_000_000, CheckpointFormatError),
    "another version": (
        checkpoint_of("memory", BAD).replace('"version":1', '"version":9'),
        CheckpointFormatError,
    ),
}


@pytest.mark.parametrize("content", TEXTS)
@pytest.mark.parametrize("kind", ["zookeeper", "local"])
async def test_consumer_does_not_start_on_hostile_text(
    tmp_path: Path, kind: str, content: str
) -> None:
    """It stops with the reason; no record is handed out, and the text stays as it was."""
    text, error = TEXTS[content]
    server, broker = FakeZooKeeper(), MemoryBroker()
    broker.create_stream("orders", 1)
    broker.append("orders", b"record")
    seen: list[Message] = []

    def make_store() -> CheckpointStore:
        return store_on(server) if kind == "zookeeper" else LocalStore(tmp_path / "state.db")

    async def see(message: Message) -> None:
        seen.append(message)

    async with opened(make_store()) as store:
        await owned(store, BAD)
    if kind == "zookeeper":
        plant(server, encode_znode(Stamp("writer", None, 1), text))
    else:
        update(tmp_path / "state.db", "text", text)
    consumer = Consumer(MemoryAdapter(broker, "orders", group="g"), store=make_store())
    with pytest.raises(error):
        await asyncio.wait_for(consumer.run(see), 300)
    assert not seen
    async with opened(make_store()) as store:
        assert await store.peek("g", [BAD]) == {BAD: text}
