"""Ranges that are read from a replica near by, on two real brokers."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition, StartPoint
from consumer_sdk.testing.servers import KafkaServer
from consumer_sdk.testing.servers.ports import HOST, free_ports

P = Partition("replicated", "0")
RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


class SecondBroker(KafkaServer):  # no other starts two of them
    """A broker of another one's cluster, which is the only controller."""

    def __init__(self, first: KafkaServer, properties: dict[str, object]) -> None:
        (port,) = free_ports(1)
        listeners = f"PLAINTEXT://{HOST}:{port}"
        own = {"process.roles": "broker", "node.id": 2, "listeners": listeners, **properties}
        super().__init__(port=port, properties=own | {"advertised.listeners": listeners})
        self._first = first

    def _format(self, java: list[str], config: Path) -> None:
        meta = (self._first.directory / "data" / "meta.properties").read_text()
        found = re.search(r"cluster\.id=(\S+)", meta)
        assert found
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={found[1]}", "-c", str(config)]
        subprocess.run([*java, *tool, "--no-initial-controllers"], check=True, capture_output=True)


async def fill(servers: str) -> None:
    """Make a topic that node 1 leads and node 2 follows, with 500 records."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    async with asyncio.timeout(100):
        while len((await admin.describe_cluster())["brokers"]) < 2:
            await asyncio.sleep(0.1)
    await admin.create_topics([NewTopic(P.stream, -1, -1, {0: [1, 2]})])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for each in range(500):
            await producer.send(P.stream, b"%d" % each)


async def read(servers: str, nodes: list[int], rack: str) -> list[int]:
    """Read everything, and note which nodes were asked for records."""
    reader = KafkaRanges(P.stream, bootstrap_servers=servers, client_rack=rack)
    await reader.open()
    connection: Any = reader._connection
    send = connection.send

    async def noted(node: int, request: Any) -> Any:
        if request.API_KEY == 1:
            nodes.append(node)
        return await send(node, request)

    connection.send = noted  # nothing public tells
    try:
        stop = (await reader.positions([P], StartPoint.LATEST))[P]
        found: list[int] = []
        async for part in reader.read_range(PartitionRange(P, 0, stop)):
            found += part.positions
        return found
    finally:
        await reader.aclose()


@asynccontextmanager
async def cluster_of_two() -> AsyncIterator[str]:
    """Where the first of two brokers listens; they are in the racks a and b."""
    clients, controller = free_ports(2)
    quorum = {"controller.quorum.bootstrap.servers": f"{HOST}:{controller}", **RACKS}
    listeners = f"PLAINTEXT://{HOST}:{clients},CONTROLLER://{HOST}:{controller}"
    properties = {"listeners": listeners, "broker.rack": "a", **quorum}
    properties["advertised.listeners"] = f"PLAINTEXT://{HOST}:{clients}"
    first = KafkaServer(port=clients, properties=properties)
    async with first, SecondBroker(first, {"broker.rack": "b", **quorum}):
        yield first.bootstrap_servers


@pytest.mark.campaign
@pytest.mark.kafka
async def test_a_replica_in_the_readers_rack_is_read() -> None:
    """KIP-392: the leader names it; a reader of another rack, or of none, reads the leader."""
    async with cluster_of_two() as servers:
        await fill(servers)
        for rack, asked in (("b", {1, 2}), ("a", {1}), ("", {1})):
            nodes: list[int] = []
            assert await read(servers, nodes, rack) == list(range(500))
            assert set(nodes) == asked
