"""``kill -9`` of what a query on Pulsar consists of: each record arrives once, and acks never lead."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import PulsarEndpoint
from tests.integration.spark_kills.campaign import LOCAL, Campaign, seeded
from tests.integration.spark_kills.pulsar_stage import PulsarStage

pytestmark = [pytest.mark.spark, pytest.mark.pulsar]


async def check_killed(
    server: PulsarEndpoint, folder: Path, targets: Sequence[str], seed: int = 1
) -> None:
    """A run on a topic of its own, and all that is claimed of it."""
    stage = PulsarStage(server, f"spark-kills-{uuid.uuid4().hex[:8]}")
    await stage.open()
    figures = await Campaign(stage, folder, LOCAL, targets, seed).run()
    figures.check()
    assert figures.failed <= figures.kills["runner"], str(figures)


@pytest.mark.campaign
async def test_worker_runner_and_driver_killed_deliver_each_record_once(
    pulsar_server: PulsarEndpoint, tmp_path: Path
) -> None:
    """Traps 4, 6, 8, 20: likewise where positions are message ids, also within batches."""
    targets = seeded(3, worker=1, runner=1, driver=1)
    await check_killed(pulsar_server, tmp_path, targets)


@pytest.mark.campaign
@pytest.mark.parametrize("target", ["worker", "runner", "driver"])
async def test_killed_five_times_delivers_each_record_once(
    pulsar_server: PulsarEndpoint, tmp_path: Path, target: str
) -> None:
    """Five of each."""
    await check_killed(pulsar_server, tmp_path, [target] * 5, seed=5)
