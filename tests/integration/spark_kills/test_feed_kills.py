"""``kill -9`` of a consumer that feeds Spark, and of the driver: each record arrives once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.spark_kills.campaign import LOCAL, Campaign, seeded
from tests.integration.spark_kills.feed_stage import FeedStage
from tests.integration.spark_kills.kafka_stage import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


async def check_killed(server: Kafka, folder: Path, targets: Sequence[str], seed: int) -> int:
    """A run on a topic and a feed of its own, and all that is claimed; the deleted segments."""
    stage = FeedStage(server, f"feed-kills-{uuid.uuid4().hex[:8]}", folder / "feed")
    await stage.open()
    try:
        figures = await Campaign(stage, folder / "query", LOCAL, targets, seed).run()
    finally:
        await stage.aclose()
    figures.check()
    assert figures.failed == 0, str(figures)
    return stage.deleted


@pytest.mark.campaign
async def test_consumer_and_driver_killed_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """Trap 23: what a dead consumer had not acked is fed again and dropped; acks never lead."""
    await check_killed(kafka_server, tmp_path, seeded(4, consumer=2, driver=1), seed=4)


@pytest.mark.campaign
async def test_consumers_killed_five_times_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """Each feeds again what its predecessor had not acked."""
    await check_killed(kafka_server, tmp_path, ["consumer"] * 5, seed=5)


@pytest.mark.campaign
async def test_drivers_killed_five_times_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """While segments that Spark has committed are deleted; no consumer lives long enough else."""
    assert await check_killed(kafka_server, tmp_path, ["driver"] * 5, seed=5) > 0
