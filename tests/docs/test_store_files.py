"""docs/stores.md: files that it shows are read by the stores, and its programs run."""

from __future__ import annotations

import asyncio
import runpy
import sqlite3
import subprocess
import sys
from pathlib import Path

from consumer_sdk.records import Assignment, Partition
from consumer_sdk.stores import CheckpointFile, LocalStore, ZooKeeperStore, import_checkpoints
from consumer_sdk.stores.zookeeper.tree import decode_znode
from consumer_sdk.trackers import decode_checkpoint
from tests.docs.pages import Page

PAGE = Page("stores")
ORDERS = Partition("orders", "0")
QUERY = "$ sqlite3 state.db 'SELECT partition, text, updated_at FROM checkpoints'"


async def load(path: Path) -> None:
    """A store with what billing.jsonl has."""
    store = LocalStore(path)
    await store.open()
    with (PAGE.snippets / "billing.jsonl").open("rb") as file:
        done = await import_checkpoints(store, CheckpointFile(file))
    assert done.written == 2
    await store.aclose()


async def loaded(path: Path) -> object:
    """The text of the checkpoint that a store has."""
    store = LocalStore(path)
    await store.open()
    assignment = Assignment(ORDERS, epoch=1)
    text = (await store.claim("billing", [assignment]))[assignment]
    await store.aclose()
    return text


def test_znode_of_the_page_is_one() -> None:
    """With the stamp of its writer."""
    stamp, text = decode_znode((PAGE.snippets / "znode.json").read_bytes().strip(), "znode.json")
    assert (stamp.fence, stamp.serial) == (12, 845)
    assert text is not None
    checkpoint = decode_checkpoint(
        text,
        broker="kafka",
        partition=ORDERS,
        identity="q0aVsJhzTQCIYcVxS1tXgw",
        decode_position=int,
    )
    assert (checkpoint.resume, checkpoint.ranges) == (42000, ((42001, 42003),))


def test_checkpoints_move_to_another_store(tmp_path: Path) -> None:
    """By move_checkpoints.py."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    asyncio.run(load(old))
    command = [sys.executable, str(PAGE.snippets / "move_checkpoints.py"), str(old), str(new)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert asyncio.run(loaded(new)) == asyncio.run(loaded(old))


def test_query_of_the_page_shows_the_checkpoint(tmp_path: Path) -> None:
    """On the file as it is."""
    asyncio.run(load(tmp_path / "state.db"))
    assert QUERY in PAGE.text
    connection = sqlite3.connect(tmp_path / "state.db")
    ((_partition, text, _at),) = connection.execute(QUERY.split("'")[1]).fetchall()
    connection.close()
    assert '"resume":"42000"' in text


def test_consumer_with_a_store_in_zookeeper_is_made() -> None:
    """zookeeper_store.py connects to nothing before it is run."""
    made = runpy.run_path(str(PAGE.snippets / "zookeeper_store.py"))
    assert isinstance(made["consumer"]._store, ZooKeeperStore)
