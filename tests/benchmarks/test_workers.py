"""``python -m benchmarks workers``, for a short time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import workers
from consumer_sdk.testing.servers import KafkaEndpoint


@pytest.mark.campaign
@pytest.mark.kafka
async def test_short_run_reaches_every_figure(
    kafka_server: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", kafka_server.bootstrap_servers)
    monkeypatch.setattr(workers, "JOB", replace(workers.JOB, warmup=100, records=10_000))
    result = await workers.measure(quick=True, say=lambda _: None)
    assert not result["failures"]
    assert all(result[key] > 0 for key in workers.AIMS)
    page = workers.tables(result)
    assert all(key in page for key in workers.AIMS)
