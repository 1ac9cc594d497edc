"""``python -m benchmarks stores``, with fewer partitions."""

from __future__ import annotations

import pytest

from benchmarks import stores
from consumer_sdk.testing.servers import ZooKeeperEndpoint


@pytest.mark.campaign
@pytest.mark.zookeeper
async def test_small_run_reaches_every_figure(
    zookeeper_server: ZooKeeperEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_ZOOKEEPER", zookeeper_server.hosts)
    monkeypatch.setattr(stores, "ALL", 30)
    monkeypatch.setattr(stores, "DIRTY", 20)
    result = await stores.measure(quick=True, say=lambda _: None)
    assert all(result[key] > 0 for key in stores.AIMS)
    assert result["ms"].keys() == stores.NAMES.keys()
    page = stores.tables(result)
    assert all(key in page for key in stores.AIMS)
