"""A Kafka of several brokers: a controller of its own, and brokers that may be killed one by one."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, final

from consumer_sdk.testing.servers.kafka import KafkaEndpoint, KafkaServer, new_cluster_id
from consumer_sdk.testing.servers.ports import HOST

__all__ = ["KafkaBroker", "KafkaCluster"]

_PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


class _Node(KafkaServer):
    """One process of a cluster."""

    port_count = 1

    def __init__(self, cluster_id: str, properties: Mapping[str, object]) -> None:
        super().__init__(properties=properties, heap="256m")
        self._cluster_id = cluster_id

    def _all_properties(self) -> dict[str, object]:
        return {
            "listener.security.protocol.map": _PROTOCOLS,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory / "data",
            "log.retention.ms": -1,
            "offsets.topic.num.partitions": 5,
            "group.min.session.timeout.ms": 100,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            **self._properties,
            **self._place(),
        }

    def _place(self) -> dict[str, object]:
        """Return what the node is, and where it listens."""
        raise NotImplementedError

    def _identity(self) -> list[str]:
        return [f"--cluster-id={self._cluster_id}"]


@final
class _Controller(_Node):
    """Keeps the metadata; it has no records, and clients do not know it."""

    def _place(self) -> dict[str, object]:
        return {
            "process.roles": "controller",
            "node.id": 0,
            "listeners": f"CONTROLLER://{self.address}",
            "controller.quorum.bootstrap.servers": self.address,
        }

    def _identity(self) -> list[str]:
        return [*super()._identity(), "--standalone"]

    async def _is_ready(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self.ports[0])
        except OSError:
            return False
        writer.close()
        return True


@final
class KafkaBroker(_Node):
    """Keeps records, and the groups and partitions that it leads.

    Attributes:
        node_id: its number in the metadata.
    """

    def __init__(
        self, node_id: int, controller: str, cluster_id: str, properties: Mapping[str, object]
    ) -> None:
        super().__init__(cluster_id, properties)
        self.node_id = node_id
        self._controller = controller

    def _place(self) -> dict[str, object]:
        return {
            "process.roles": "broker",
            "node.id": self.node_id,
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.bootstrap.servers": self._controller,
        }


@final
class KafkaCluster(KafkaEndpoint):
    """``async with KafkaCluster() as cluster``: real brokers that share topics and groups, on 127.0.0.1.

    Each topic has a copy on each broker. A broker that dies is missed after some three seconds.

    Args:
        brokers: how many.
        properties: settings of all nodes that add to or replace ours.

    Attributes:
        brokers: each may be killed, paused and restarted.
    """

    def __init__(self, brokers: int = 2, *, properties: Mapping[str, object] | None = None) -> None:
        self.replicas = brokers
        settings = {
            "default.replication.factor": brokers,
            "offsets.topic.replication.factor": brokers,
            "transaction.state.log.replication.factor": brokers,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": brokers,
            "share.coordinator.state.topic.min.isr": 1,
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            "auto.leader.rebalance.enable": "false",
            **(properties or {}),
        }
        cluster_id = new_cluster_id()
        self._controller = _Controller(cluster_id, settings)
        self.brokers: Sequence[KafkaBroker] = [
            KafkaBroker(number, self._controller.address, cluster_id, settings)
            for number in range(1, brokers + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each broker."""
        return ",".join(broker.address for broker in self.brokers)

    def broker(self, node_id: int) -> KafkaBroker:
        """Return the broker of a number."""
        return self.brokers[node_id - 1]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start the controller, then whichever broker does not run.

        Raises:
            ServerError: a node cannot be started.
        """
        try:
            await self._controller.start()
            await asyncio.gather(*(broker.start() for broker in self.brokers))
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End all nodes and remove their folders; idempotent."""
        async with AsyncExitStack() as stack:
            for node in (self._controller, *self.brokers):
                stack.push_async_callback(node.aclose)
            for broker in self.brokers:  # asked to end, each would look for another leader
                await broker.kill()
