"""The Kafka adapter keeps the adapters' contract, on a real Kafka."""

from __future__ import annotations

import pytest

from consumer_sdk.testing.conformance.adapters import AdapterSuite

pytestmark = pytest.mark.kafka


class TestKafkaAdapter(AdapterSuite):
    """Every case of the suite; the harness is the fixture of this folder."""
