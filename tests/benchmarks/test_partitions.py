"""``python -m benchmarks partitions``, with fewer partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import partitions
from consumer_sdk.testing.servers import KafkaEndpoint


@pytest.mark.campaign
@pytest.mark.kafka
async def test_small_run_reaches_every_figure(
    kafka_server: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", kafka_server.bootstrap_servers)
    for name in ("PULLED", "HANDLED", "KAFKA"):
        job = getattr(partitions, name)
        monkeypatch.setattr(partitions, name, replace(job, warmup=1_000, records=200_000))
    monkeypatch.setattr(partitions, "IN_FLIGHT", 10_000)
    result = await partitions.measure(quick=True, say=lambda _: None)
    assert not result["failures"]
    assert all(result[key] > 0 for key in partitions.AIMS)
    page = partitions.tables(result)
    assert all(key in page for key in partitions.AIMS)
