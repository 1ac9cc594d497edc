"""``kill -9`` of what a query on Kafka consists of: each record arrives once, and acks never lead."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.spark_kills.campaign import LOCAL, LOCAL_CLUSTER, Campaign, seeded
from tests.integration.spark_kills.figures import Figures
from tests.integration.spark_kills.kafka_stage import Kafka, KafkaStage

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KILLS = 25


async def killed(
    server: Kafka, folder: Path, targets: Sequence[str], *, master: str = LOCAL, seed: int = 1
) -> Figures:
    """The checked figures of a run on a topic of its own."""
    stage = KafkaStage(server, f"spark-kills-{uuid.uuid4().hex[:8]}")
    await stage.open()
    try:
        figures = await Campaign(stage, folder, master, targets, seed).run()
    finally:
        await stage.aclose()
    figures.check()
    return figures


@pytest.mark.campaign
async def test_worker_runner_and_driver_killed_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """Traps 4, 6, 8, 20: no kill loses or repeats a row, and acks follow Spark's log."""
    figures = await killed(kafka_server, tmp_path, seeded(2, worker=1, runner=1, driver=1))
    assert figures.failed <= 1, str(figures)  # a worker's death fails no query


@pytest.mark.campaign
async def test_workers_runners_and_drivers_killed_twice_each_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """Six kills of one query."""
    targets = seeded(2, worker=2, runner=2, driver=2)
    figures = await killed(kafka_server, tmp_path, targets)
    assert figures.failed <= 2, str(figures)  # a worker's death fails no query


@pytest.mark.campaign
async def test_executors_killed_twice_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """Trap 6: another executor reads the same ranges, and the query does not notice."""
    figures = await killed(kafka_server, tmp_path, ["executor"] * 2, master=LOCAL_CLUSTER)
    assert figures.failed == 0, str(figures)


@pytest.mark.campaign(minutes=5)
async def test_workers_killed_twenty_five_times_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """A task that loses its worker reads its ranges again; the query does not notice."""
    figures = await killed(kafka_server, tmp_path, ["worker"] * KILLS, seed=KILLS)
    assert figures.failed == 0, str(figures)


@pytest.mark.campaign(minutes=5)
async def test_runners_killed_twenty_five_times_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """Each death fails the query, which goes on from its checkpoint."""
    figures = await killed(kafka_server, tmp_path, ["runner"] * KILLS, seed=KILLS)
    assert figures.failed == KILLS, str(figures)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(KILLS // 5))
async def test_drivers_killed_five_times_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path, seed: int
) -> None:
    """The Python process, the JVM, or everything at once; also while it starts."""
    figures = await killed(kafka_server, tmp_path, ["driver"] * 5, seed=seed)
    assert figures.failed == 0, str(figures)


@pytest.mark.campaign(minutes=5)
async def test_executors_killed_twenty_five_times_deliver_each_record_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """As before, on a cluster of two."""
    targets = ["executor"] * KILLS
    figures = await killed(kafka_server, tmp_path, targets, master=LOCAL_CLUSTER, seed=KILLS)
    assert figures.failed == 0, str(figures)
