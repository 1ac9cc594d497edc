"""Members of each kind of group are killed a hundred times, and frozen thirty times: nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import (
    KafkaServer,
    KinesaliteServer,
    PulsarServer,
    ZooKeeperServer,
)
from consumer_sdk.testing.servers.shared import complete
from tests.integration.faults.losses import freeze_members, kill_members
from tests.integration.faults.worlds import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    KafkaWorld,
    KinesisWorld,
    PulsarWorld,
    World,
)

pytestmark = pytest.mark.campaign(minutes=5)

KILLS = int(os.environ.get("KILLS", "100"))
FREEZES = int(os.environ.get("FREEZES", "30"))

Lose = Callable[[World], Awaitable[None]]
LOSSES = pytest.mark.parametrize(
    "lose",
    [
        pytest.param(partial(kill_members, kills=KILLS), id="killed"),
        pytest.param(partial(freeze_members, freezes=FREEZES), id="frozen"),
    ],
)


@pytest.fixture(scope="module")
def quick_pulsar() -> Iterator[PulsarServer]:
    """A Pulsar that soon notices that a client is frozen."""
    server = PulsarServer(properties={"keepAliveIntervalSeconds": "3"})
    complete(server.start())
    yield server
    complete(server.aclose())


@pytest.mark.kafka
@LOSSES
@pytest.mark.parametrize(
    "store, options",
    [
        pytest.param("", CLASSIC, id="no-store"),
        pytest.param("sqlite", CLASSIC, id="sqlite"),
        pytest.param("sqlite", COOPERATIVE, id="cooperative"),
    ],
)
async def test_kafka_members_lose_nothing(
    kafka_server: KafkaServer, tmp_path: Path, store: str, options: str, lose: Lose
) -> None:
    """With and without a store, by both ways of rebalancing."""
    await lose(KafkaWorld(kafka_server, tmp_path, store, options=options))


@pytest.mark.kafka
@pytest.mark.zookeeper
@LOSSES
async def test_kafka_members_with_zookeeper_lose_nothing(
    kafka_server: KafkaServer,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    lose: Lose,
) -> None:
    """The consumer protocol, with checkpoints in ZooKeeper."""
    store = f"zookeeper://{zookeeper_server.hosts}"
    world = KafkaWorld(kafka_server, tmp_path, store, options=CONSUMER)
    await lose(world)


@pytest.mark.kinesis
@LOSSES
async def test_kinesis_members_lose_nothing(
    kinesalite_server: KinesaliteServer, tmp_path: Path, lose: Lose
) -> None:
    """By leases in a file."""
    await lose(KinesisWorld(kinesalite_server, tmp_path))


@pytest.mark.pulsar
@LOSSES
@pytest.mark.parametrize(
    "kind, store",
    [("exclusive", ""), ("failover", "sqlite"), ("shared", "sqlite"), ("key_shared", "")],
)
async def test_pulsar_consumers_lose_nothing(
    quick_pulsar: PulsarServer, tmp_path: Path, kind: str, store: str, lose: Lose
) -> None:
    """All types of subscription."""
    await lose(PulsarWorld(quick_pulsar, tmp_path, kind, store))
