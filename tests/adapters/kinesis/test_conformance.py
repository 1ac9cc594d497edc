"""The Kinesis adapter keeps the adapters' contract."""

from __future__ import annotations

import pytest

from consumer_sdk.testing.conformance.adapters import AdapterHarness, LeasedLogSuite
from tests.adapters.kinesis.harness import FakeHarness


class TestOnTheFake(LeasedLogSuite):
    """In process."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A fake of the test's own."""
        return FakeHarness()
