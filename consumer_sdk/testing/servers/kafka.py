"""Apache Kafka: one KRaft node that is broker and controller, or a cluster of brokers with a controller of its own."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.errors import ServerError, ServerStartError
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, resolve_jars
from consumer_sdk.testing.servers.java import JavaServer
from consumer_sdk.testing.servers.ports import HOST, knows_a_broker

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

__all__ = [
    "KAFKA_JARS",
    "KafkaBroker",
    "KafkaCluster",
    "KafkaEndpoint",
    "KafkaServer",
    "new_cluster_id",
]

KAFKA_JARS = JarSet(
    "kafka",
    (
        Artifact(org="org.apache.kafka", name="kafka_2.13", revision="4.3.1"),
        # Kafka's jars are on slf4j 1.7: log4j-slf4j2-impl would find no one to bind to.
        Artifact(org="org.apache.logging.log4j", name="log4j-slf4j-impl", revision="2.25.4"),
    ),
)

_PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
_LEADERS = 120.0  # seconds; a single node elects in milliseconds, but for a busy machine


class KafkaEndpoint(ABC):
    """A Kafka that tests can use, started here or elsewhere."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""

    replicas = 1
    """Copies of each partition of a topic that is created."""

    async def create_topic(self, name: str, partitions: int = 1, **config: object) -> None:
        """Create a topic and wait until each of its partitions has a leader.

        Args:
            name: the topic.
            partitions: how many.
            config: topic settings, underscores for dots: ``cleanup_policy="compact"``.

        Raises:
            ServerError: Kafka refused, or there are no leaders after two minutes.
            MissingExtraError: aiokafka is not installed.
        """
        try:
            from aiokafka.admin import AIOKafkaAdminClient, NewTopic
        except ImportError as error:
            raise MissingExtraError("aiokafka", "kafka") from error
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, self.replicas, topic_configs=settings)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        try:
            for failed, code, *why in (await admin.create_topics([topic])).topic_errors:
                if code:
                    raise ServerError(f"Kafka did not create {failed!r}: error {code} {why}")
            await _until_led(admin, name, partitions)
        finally:
            await admin.close()


async def _until_led(admin: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    try:
        async with asyncio.timeout(_LEADERS):
            while not _has_leaders(await admin.describe_topics([topic]), partitions):  # noqa: ASYNC110  Kafka sends no event
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise ServerError(f"{topic!r} has no leaders after {_LEADERS:g} s") from error


def _has_leaders(topics: list[dict[str, object]], partitions: int) -> bool:
    found = topics[0]["partitions"] if topics else []
    assert isinstance(found, list)
    return len(found) == partitions and all(each["leader"] >= 0 for each in found)


class KafkaServer(JavaServer, KafkaEndpoint):
    """A real Kafka on 127.0.0.1, ready in about two seconds.

    Args:
        directory: where configuration, data and log lie; a temporary folder by default.
        port: the port for clients; a free one by default.
        properties: broker settings that add to or replace ours.
        heap: the largest Java heap, as Java writes it.
        settings: an Ivy settings file, see `resolve_jars`.
        start_timeout: seconds until a server that is not ready counts as failed.
        quick: leave out Java's second compiler, for a start with half of the work. A benchmark should
            measure what users run instead: False.
    """

    name = "Kafka"
    port_count = 2

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
        heap: str = "512m",
        settings: Path | None = None,
        start_timeout: float = 600.0,
        quick: bool = True,
    ) -> None:
        super().__init__(directory=directory, port=port, start_timeout=start_timeout, quick=quick)
        self._properties = dict(properties or {})
        self._heap = heap
        self._settings = settings

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""
        return self.address

    def _prepare(self, java: Path) -> list[str]:
        jars = resolve_jars(KAFKA_JARS, settings=self._settings)
        config = self._write_properties("server.properties", self._all_properties())
        logging = self._logging_option()
        command = [str(java), *self._java_options(), "-Xms256m", f"-Xmx{self._heap}"]
        command += [logging, "-cp", f"{jars}/*"]
        self._format(command, config)
        return [*command, "kafka.Kafka", str(config)]

    async def _is_ready(self) -> bool:
        return await knows_a_broker(HOST, self.ports[0])

    def _all_properties(self) -> dict[str, object]:
        clients, controller = self.ports
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{HOST}:{clients},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{clients}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.directory / "data",
            # Records may carry any timestamp: none is too old for a test.
            "log.retention.ms": -1,
            # One node cannot hold more than one copy.
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # What makes the first join of a group quick, and the start small.
            "offsets.topic.num.partitions": 5,
            "group.min.session.timeout.ms": 100,  # tests that kill a member need not wait 6 s
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            **self._properties,
        }

    def _format(self, java: list[str], config: Path) -> None:
        # Written by an earlier start, whose data are to be kept.
        if (self.directory / "data" / "meta.properties").exists():
            return
        command = [*java, "kafka.tools.StorageTool", "format", *self._identity(), "-c", str(config)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command line
        if result.returncode:
            said = (result.stdout + result.stderr).strip()[-2500:]
            raise ServerStartError(f"Kafka refused its configuration {config}:\n{said}")

    def _identity(self) -> list[str]:
        """Which cluster the node is of, as the tool that formats its storage wants to know it."""
        # With "=", since an id may begin with a dash and would be read as an option.
        return [f"--cluster-id={new_cluster_id()}", "--standalone"]


def new_cluster_id() -> str:
    """Return an id that no other cluster has."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


# -- a cluster of brokers ---------------------------------------------------------------------


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
