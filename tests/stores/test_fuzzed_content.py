"""Damaged content by the thousand, read by whole stores: refused, or what was saved."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Assignment, Checkpoint, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore
from consumer_sdk.stores.zookeeper.tree import Znode
from consumer_sdk.trackers import decode_checkpoint, encode_checkpoint
from tests.stores.fake_zookeeper import FakeZooKeeper, store_on
from tests.stores.fuzz import VALUES, fuzzed

ORDERS = Partition("orders", "0")
PATH = "/sdk/g/orders/0"
SAVED = Checkpoint(watermark=41, resume=42, ranges=((44, 50),), attempts={43: (2, 1.5)})
TEXT = encode_checkpoint(SAVED, broker="kafka", partition=ORDERS, encode_position=str)[0]

COUNTS = [2_000, pytest.param(100_000, marks=pytest.mark.campaign)]


class Place(Protocol):
    """Where a store keeps a checkpoint, for who goes behind its back."""

    def plant(self, chaos: random.Random) -> None:
        """Writes a damaged copy of what the store wrote first."""

    def found(self) -> Any:
        """All that is stored."""


class ZnodePlace:
    """A znode."""

    def __init__(self, server: FakeZooKeeper) -> None:
        self._znodes = server.znodes
        self._server = server
        self._data = server.znodes[PATH].data

    def plant(self, chaos: random.Random) -> None:
        """Other bytes."""
        version = self._server.znodes[PATH].version + 1
        self._server.znodes[PATH] = Znode(fuzzed(self._data, chaos), version)

    def found(self) -> Any:
        """Data and version."""
        return self._server.znodes[PATH]


class RowPlace:
    """A row of SQLite."""

    def __init__(self, shell: sqlite3.Connection) -> None:
        self._shell = shell
        shell.execute("PRAGMA synchronous = OFF")

    def plant(self, chaos: random.Random) -> None:
        """Another text, or what is none; now and then another type in its stamp."""
        data = fuzzed(TEXT.encode(), chaos)
        row: list[Any] = [_decoded(data), "writer", None, 1]
        if chaos.random() < 0.1:
            odd = [v for v in (*VALUES, 2**62, b"\xff", "9" * 5000) if _is_storable(v)]
            row[chaos.randrange(1, 4)] = chaos.choice(odd)
        self._shell.execute(
            "UPDATE checkpoints SET text = ?, writer = ?, fence = ?, serial = ?", row
        )

    def found(self) -> Any:
        """The row's columns."""
        return self._shell.execute(
            "SELECT CAST(text AS BLOB), writer, fence, serial FROM checkpoints"
        ).fetchone()


def _decoded(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _is_storable(value: Any) -> bool:
    """As a column that is not null."""
    is_scalar = isinstance(value, str | bytes | int | float)
    return is_scalar and not (isinstance(value, int) and value >= 2**63)


async def survive(store: CheckpointStore, place: Place, count: int) -> None:
    """Claims as a consumer does at its start, after each damage."""
    chaos, refused = random.Random(11), 0
    for epoch in range(count):
        place.plant(chaos)
        planted, assignment = place.found(), Assignment(ORDERS, epoch)
        try:
            text = (await store.claim("g", [assignment]))[assignment]
        except CheckpointFormatError:
            assert place.found() == planted, "written over"
            refused += 1
        else:
            assert (await store.peek("g", [ORDERS]))[ORDERS] == text, "changed by a claim"
            refused += is_refused(text)
    assert refused > count * 0.5


def is_refused(text: object) -> bool:
    """Whether the text is a typed error for the consumer; if not, it is what was saved."""
    assert isinstance(text, str)
    try:
        found = decode_checkpoint(
            text, broker="kafka", partition=ORDERS, identity=None, decode_position=int
        )
    except (CheckpointFormatError, CheckpointMismatchError):
        return True
    assert found == SAVED, text
    return False


async def saved(store: CheckpointStore) -> None:
    """The first content."""
    assignment = Assignment(ORDERS, 0)
    await store.claim("g", [assignment])
    (outcome,) = await store.save("g", [StoreItem(assignment, TEXT)])
    assert outcome.kind is OutcomeKind.DURABLE


@pytest.mark.parametrize("count", COUNTS)
async def test_damaged_znode_is_refused_or_the_same(count: int) -> None:
    """A typed error and not a byte written over, or what was saved; never another position."""
    server = FakeZooKeeper()
    store = store_on(server)
    await saved(store)
    await survive(store, ZnodePlace(server), count)
    await store.aclose()


@pytest.mark.parametrize("count", COUNTS)
async def test_damaged_row_is_refused_or_the_same(tmp_path: Path, count: int) -> None:
    """The same of a SQLite file into which somebody writes."""
    store = LocalStore(tmp_path / "state.db")
    await store.open()
    await saved(store)
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as shell:
        await survive(store, RowPlace(shell), count)
    await store.aclose()
