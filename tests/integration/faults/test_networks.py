"""Minutes of random network faults between a consumer and each server: nothing is lost, and an outage costs little."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import (
    KafkaServer,
    KinesaliteServer,
    PulsarServer,
    ZooKeeperServer,
)
from tests.integration.faults.ensemble import Ensemble
from tests.integration.faults.fault_proxy import (
    Fault,
    FaultProxy,
    kafka_addresses,
    pulsar_addresses,
)
from tests.integration.faults.worlds import (
    CLASSIC,
    CONSUMER,
    KafkaWorld,
    KinesisWorld,
    Member,
    PulsarWorld,
    Usage,
    World,
)

RATE = 200
"""Records a second."""
MOST_WAITING = 20_000
"""Records: on a machine that is too busy for the member, what waits would grow until the end."""
LONGEST = 8.0
"""Seconds of a fault: longer than a session."""
OUTAGE = 30.0
MOST_MEMORY = 500.0
"""MB of a member at any time; 90 is usual."""
MOST_CONNECTIONS = 8.0
"""A second, of a member while nobody listens: one process had 25."""
MOST_PROCESSOR = 0.25
"""Of a processor, meanwhile."""
MOST_LOG = 20_000
"""Bytes of log in an outage of half a minute."""

UNDAMAGED = [each for each in Fault if each is not Fault.CORRUPT]
"""Where no checksum of the protocol finds damage, TLS has to: a bit that turns in an answer of Kinesis or ZooKeeper is
another answer. Pulsar's client acks a message whose checksum is wrong."""

CAMPAIGN = pytest.mark.campaign(minutes=10)
LONG = pytest.mark.parametrize("seconds", [pytest.param(600.0, marks=CAMPAIGN)])


async def survive(world: World, proxy: FaultProxy, faults: Sequence[Fault], seconds: float) -> None:
    """A member lives through all faults and an outage; then everything was handled, in the order of each key."""
    world.most_waiting = MOST_WAITING
    await world.create()
    async with world.members_gone():
        async with world.producing(RATE):
            member = await world.join()
            await world.until(lambda: len(world.ledger.done) > RATE, "it works", member)
            async with proxy.faulty(faults, min(LONGEST, seconds / 8)):
                await _live(world, seconds, member)
            await world.until(lambda: bool(world.ledger.done), "it lives", member)
            outage = await _outage(proxy, min(seconds / 2, OUTAGE), member)
        await world.until_all(member)
        memory = Usage(member.pid).memory
    world.ledger.check_order()
    print(  # noqa: T201 - what a campaign was run for
        f"{world.broker} {world.store.partition(':')[0]}: {seconds:.0f} s of {dict(proxy.spells)}, "
        f"{proxy.damaged} frames damaged, {len(world.ledger.produced)} records, 0 lost, "
        f"{world.ledger.repeated} handled again, {memory:.0f} MB at most; {outage}"
    )
    assert memory < MOST_MEMORY


async def _live(world: World, seconds: float, member: Member) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        member.check()
        world.ledger.read()
        await asyncio.sleep(0.2)


async def _outage(proxy: FaultProxy, seconds: float, member: Member) -> str:
    """Nobody listens for a while."""
    await proxy.become(Fault.REFUSED)
    before, connections, log = (
        Usage(member.pid),
        proxy.connections,
        member.log.stat().st_size,
    )
    await asyncio.sleep(seconds)
    after = Usage(member.pid)
    await proxy.become(Fault.NONE)
    member.check()
    tries = (proxy.connections - connections) / seconds
    processor = (after.seconds - before.seconds) / seconds
    said = member.log.stat().st_size - log
    assert tries <= MOST_CONNECTIONS
    assert processor <= MOST_PROCESSOR
    assert said <= MOST_LOG
    return (
        f"in an outage of {seconds:.0f} s {tries:.1f} connections a second, {processor:.1%} of a "
        f"processor, {said} bytes of log"
    )


@pytest.mark.kafka
@pytest.mark.parametrize(
    "options, seconds",
    [
        pytest.param(CLASSIC, 8.0, id="short"),
        pytest.param(CLASSIC, 600.0, id="classic", marks=CAMPAIGN),
        pytest.param(CONSUMER, 600.0, id="consumer", marks=CAMPAIGN),
    ],
)
async def test_kafka_loses_nothing(
    kafka_server: KafkaServer, tmp_path: Path, options: str, seconds: float
) -> None:
    """All faults; a batch that is damaged is fetched again."""
    async with FaultProxy(kafka_server.bootstrap_servers, kafka_addresses, seed=1) as proxy:
        world = KafkaWorld(kafka_server, tmp_path, address=proxy.address, options=options)
        await survive(world, proxy, list(Fault), seconds)


@pytest.mark.kinesis
@LONG
async def test_kinesis_loses_nothing(
    kinesalite_server: KinesaliteServer, tmp_path: Path, seconds: float
) -> None:
    """Leases and checkpoints are in a file."""
    server = kinesalite_server.endpoint_url.removeprefix("http://")
    async with FaultProxy(server, seed=3) as proxy:
        world = KinesisWorld(kinesalite_server, tmp_path, address=proxy.address)
        await survive(world, proxy, UNDAMAGED, seconds)


@pytest.mark.pulsar
@LONG
@pytest.mark.parametrize("kind", ["failover", "key_shared"])
async def test_pulsar_loses_nothing(
    pulsar_server: PulsarServer, tmp_path: Path, kind: str, seconds: float
) -> None:
    """A log and a queue."""
    server = pulsar_server.service_url.removeprefix("pulsar://")
    async with FaultProxy(server, pulsar_addresses, seed=4) as proxy:
        world = PulsarWorld(pulsar_server, tmp_path, kind, address=proxy.address)
        await survive(world, proxy, UNDAMAGED, seconds)


@pytest.mark.kinesis
@pytest.mark.zookeeper
@LONG
async def test_store_in_zookeeper_loses_nothing(
    kinesalite_server: KinesaliteServer,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    seconds: float,
) -> None:
    """The network to the leases and checkpoints is bad, that to the stream is not."""
    async with FaultProxy(zookeeper_server.hosts, seed=5) as proxy:
        world = KinesisWorld(kinesalite_server, tmp_path, f"zookeeper://{proxy.address}")
        await survive(world, proxy, UNDAMAGED, seconds)


@pytest.mark.kinesis
@pytest.mark.zookeeper
@pytest.mark.campaign
async def test_ensemble_that_loses_a_server_and_then_its_quorum_loses_nothing(
    kinesalite_server: KinesaliteServer, tmp_path: Path
) -> None:
    """One server less is not noticed; without a quorum nothing is handed out for long, and it goes on by itself."""
    async with Ensemble() as ensemble:
        world = KinesisWorld(kinesalite_server, tmp_path, f"zookeeper://{ensemble.hosts}")
        await world.create()
        async with world.members_gone():
            async with world.producing(RATE):
                member = await _joined(world)
                for turn in range(6):
                    await _goes_on(world, member)
                    first, second = (ensemble.servers[(turn + n) % 3] for n in range(2))
                    await first.kill()
                    await _goes_on(world, member)
                    await second.kill()
                    await _live(world, LONGEST * 2, member)
                    await first.restart()
                    await second.restart()
                    await ensemble.until_whole()
            await world.until_all(member)
        world.ledger.check_order()
    print(  # noqa: T201 - what a campaign was run for
        f"ensemble: 6 quorums lost, {len(world.ledger.produced)} records, 0 lost, "
        f"{world.ledger.repeated} handled again"
    )


async def _joined(world: World) -> Member:
    """One that has opened: an ensemble that elects again at that moment is an error, and whoever runs it starts it again."""
    while True:
        member = await world.join()
        await world.until(
            lambda m=member: bool(world.ledger.done) or m.process.returncode is not None,  # type: ignore[misc]
            "it works, or has ended",
        )
        if member.process.returncode is None:
            return member
        assert "TransientStoreError" in member.log.read_text()


async def _goes_on(world: World, member: Member) -> None:
    """What has been produced by now is handled."""
    wanted = set(world.ledger.produced)
    await world.until(lambda: wanted <= world.ledger.done.keys(), "it goes on", member)
