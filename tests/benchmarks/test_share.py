"""``python -m benchmarks share``, for a short time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import share
from consumer_sdk.testing.servers import KafkaEndpoint


@pytest.mark.campaign
@pytest.mark.kafka
async def test_short_run_reaches_every_figure(
    kafka_server: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", kafka_server.bootstrap_servers)
    monkeypatch.setattr(share, "_MANY", replace(share._MANY, warmup=4_000, records=40_000))
    monkeypatch.setattr(share, "_STEADY", replace(share._STEADY, records=20_000))
    result = await share.measure(quick=True, say=lambda _: None)
    assert not result["failures"]
    assert all(result[key] > 0 for key in share.AIMS)
    page = share.tables(result)
    assert all(key in page for key in share.AIMS)
