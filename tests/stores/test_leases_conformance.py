"""The leases of every store keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_sdk.testing.conformance.leases import LeaseSuite, StoreHarness
from tests.stores.test_local_conformance import LocalHarness
from tests.stores.test_memory import MemoryHarness


class TestMemoryLeases(LeaseSuite):
    """The contract of `Leases`, in memory."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """A memory of its own for each case."""
        return MemoryHarness()


class TestLocalLeases(LeaseSuite):
    """The contract of `Leases`, in a file."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        """A file of its own for each case."""
        return LocalHarness(tmp_path / "state.db")
