"""``python -m benchmarks latency``, for a short time."""

from __future__ import annotations

import pytest

from benchmarks import latency
from consumer_sdk.testing.servers import KafkaEndpoint


@pytest.mark.campaign
@pytest.mark.kafka
async def test_short_run_reaches_every_figure(
    kafka_server: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", kafka_server.bootstrap_servers)
    monkeypatch.setattr(latency, "RATES", (500,))
    result = await latency.measure(quick=True, say=lambda _: None)
    assert not result["failures"]
    assert all(result[key] > 0 for key in latency.AIMS)
    page = latency.tables(result)
    assert all(key in page for key in latency.AIMS)
