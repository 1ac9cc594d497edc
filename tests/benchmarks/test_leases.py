"""``python -m benchmarks leases``, with fewer shards."""

from __future__ import annotations

import pytest

from benchmarks import leases
from consumer_sdk.testing.servers import ZooKeeperEndpoint


@pytest.mark.campaign
@pytest.mark.zookeeper
async def test_small_run_reaches_every_figure(
    zookeeper_server: ZooKeeperEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, nothing was lost, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_ZOOKEEPER", zookeeper_server.hosts)
    result = await leases.measure(quick=True, say=lambda _: None)
    assert not result["failures"]
    assert result["join_1000_leases_lost"] == 0
    page = leases.tables(result)
    assert all(key in page for key in leases.AIMS)
