"""The local store keeps the contract, on its own and through a few hundred random histories."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.stores import LocalStore
from consumer_sdk.stores.sqlite.file import Database
from consumer_sdk.testing.conformance.stores import StoreHarness, StoreSuite


class LocalHarness(StoreHarness):
    """Handles on one file."""

    abilities = frozenset({"outage"})

    def __init__(self, path: Path) -> None:
        self._path = path

    def make_store(self) -> CheckpointStore:
        """Another handle. On a busy machine, the other one may keep the file locked for seconds."""
        return LocalStore(self._path, busy_timeout=60.0)

    @asynccontextmanager
    async def outage(self, store: CheckpointStore) -> AsyncIterator[None]:
        """Another program holds the file's write lock, and the store does not wait long for it."""
        assert isinstance(store, LocalStore)
        await _wait_at_most(store, 50)
        with closing(sqlite3.connect(self._path, timeout=60.0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
        await _wait_at_most(store, 60_000)


async def _wait_at_most(store: LocalStore, milliseconds: int) -> None:
    def wait(database: Database) -> None:
        database.connection.execute(f"PRAGMA busy_timeout = {milliseconds}")

    await store._thread.run(wait)


class TestLocalStore(StoreSuite):
    """The contract of `CheckpointStore`."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        """A file of its own for each case."""
        return LocalHarness(tmp_path / "state.db")
