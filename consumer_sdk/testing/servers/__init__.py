"""Real servers for tests, demos and benchmarks, without Docker.

::

    async with KafkaServer() as kafka:
        await kafka.create_topic("orders", partitions=3)
        ...  # clients connect to kafka.bootstrap_servers
        await kafka.kill()      # as a crash would
        await kafka.restart()   # on the same data and the same port

Java 17+ is the one thing that the system must have. Kafka's jars (44 MB) and Pulsar's (240 MB) are
fetched once into the user's cache folder, ZooKeeper's lie in the PySpark wheel. The Kinesis servers run on the Node.js of
a wheel; their npm packages (30 MB) are fetched once too. `consumer_sdk.testing.pytest_plugin` gives
servers as fixtures; ``python -m consumer_sdk.testing.servers kafka`` runs one by hand.

A new server is a subclass of `JavaServer` or `NodeServer`, or of `Server` when neither runs it.
"""

from consumer_sdk.testing.servers.cache import cache_folder
from consumer_sdk.testing.servers.errors import (
    ExternalServerError,
    JarResolutionError,
    JavaNotFoundError,
    NodePackageError,
    PortInUseError,
    ServerError,
    ServerStartError,
)
from consumer_sdk.testing.servers.external import (
    ExternalKafka,
    ExternalKinesis,
    ExternalPulsar,
    ExternalServer,
    ExternalZooKeeper,
    external_address,
    external_pulsar,
    external_url,
)
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, resolve_jars
from consumer_sdk.testing.servers.java import JavaServer, find_java
from consumer_sdk.testing.servers.kafka import KafkaEndpoint, KafkaServer
from consumer_sdk.testing.servers.kinesis.endpoint import KinesisEndpoint
from consumer_sdk.testing.servers.kinesis.servers import KinesaliteServer, KinesisServer
from consumer_sdk.testing.servers.node import NodePackage, NodeServer, find_node, install_package
from consumer_sdk.testing.servers.ports import free_ports
from consumer_sdk.testing.servers.pulsar.endpoint import PulsarEndpoint
from consumer_sdk.testing.servers.pulsar.server import PulsarServer
from consumer_sdk.testing.servers.server import Server, ServerProcess
from consumer_sdk.testing.servers.zookeeper import ZooKeeperEndpoint, ZooKeeperServer

__all__ = [
    "Artifact",
    "ExternalKafka",
    "ExternalKinesis",
    "ExternalPulsar",
    "ExternalServer",
    "ExternalServerError",
    "ExternalZooKeeper",
    "JarResolutionError",
    "JarSet",
    "JavaNotFoundError",
    "JavaServer",
    "KafkaEndpoint",
    "KafkaServer",
    "KinesaliteServer",
    "KinesisEndpoint",
    "KinesisServer",
    "NodePackage",
    "NodePackageError",
    "NodeServer",
    "PortInUseError",
    "PulsarEndpoint",
    "PulsarServer",
    "Server",
    "ServerError",
    "ServerProcess",
    "ServerStartError",
    "ZooKeeperEndpoint",
    "ZooKeeperServer",
    "cache_folder",
    "external_address",
    "external_pulsar",
    "external_url",
    "find_java",
    "find_node",
    "free_ports",
    "install_package",
    "resolve_jars",
]
