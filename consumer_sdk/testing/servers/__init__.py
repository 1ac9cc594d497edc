"""Real servers for tests, demos and benchmarks, without Docker.

::

    async with KafkaServer() as kafka:
        await kafka.create_topic("orders", partitions=3)
        ...  # clients connect to kafka.bootstrap_servers
        await kafka.kill()      # as a crash would
        await kafka.restart()   # on the same data and the same port

Java 17+ is the one thing that the system must have. Kafka's jars (44 MB) are fetched once into the
user's cache folder, ZooKeeper's lie in the PySpark wheel. `consumer_sdk.testing.pytest_plugin`
gives servers as fixtures; ``python -m consumer_sdk.testing.servers kafka`` runs one by hand.

One module per server: a new one (Pulsar and Kinesis come in their own modules) is a subclass of
`JavaServer`, or a class with the same methods around a `ServerProcess` when it is not Java.
"""

from consumer_sdk.testing.servers.errors import (
    ExternalServerError,
    JarResolutionError,
    JavaNotFoundError,
    PortInUseError,
    ServerError,
    ServerStartError,
)
from consumer_sdk.testing.servers.external import (
    ExternalKafka,
    ExternalServer,
    ExternalZooKeeper,
    external_address,
)
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, cache_folder, resolve_jars
from consumer_sdk.testing.servers.java import find_java
from consumer_sdk.testing.servers.kafka import KafkaEndpoint, KafkaServer
from consumer_sdk.testing.servers.ports import free_ports
from consumer_sdk.testing.servers.process import ServerProcess
from consumer_sdk.testing.servers.server import JavaServer
from consumer_sdk.testing.servers.zookeeper import ZooKeeperEndpoint, ZooKeeperServer

__all__ = [
    "Artifact",
    "ExternalKafka",
    "ExternalServer",
    "ExternalServerError",
    "ExternalZooKeeper",
    "JarResolutionError",
    "JarSet",
    "JavaNotFoundError",
    "JavaServer",
    "KafkaEndpoint",
    "KafkaServer",
    "PortInUseError",
    "ServerError",
    "ServerProcess",
    "ServerStartError",
    "ZooKeeperEndpoint",
    "ZooKeeperServer",
    "cache_folder",
    "external_address",
    "find_java",
    "free_ports",
    "resolve_jars",
]
