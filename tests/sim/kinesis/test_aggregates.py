"""What the simulation stores as an aggregate is one."""

from __future__ import annotations

from consumer_sdk.adapters.kinesis.service.aggregation import user_records
from tests.sim.kinesis.aggregates import aggregate


def test_aggregate_is_read_back_as_its_records() -> None:
    """In order, with keys that are shared and data that are empty."""
    records = [(b"k2", b"v"), (b"k1", b""), (b"k2", b"v" * 40)]
    assert user_records(aggregate(records)) == records
