"""Fixtures that give tests real servers; active wherever consumer_sdk is installed with pytest.

========================== ========= ==============================================================
fixture                    scope     gives
========================== ========= ==============================================================
``kafka_server``           session   a Kafka that all tests share: use a topic and group of your own
``kinesis_server``         session   a kinesis-local that all tests share: use a stream of your own
``kinesalite_server``      session   a kinesalite that all tests share: use a stream of your own
``pulsar_server``          session   a Pulsar that all tests share: use a topic of your own
``zookeeper_server``       session   a ZooKeeper that all tests share: use a root path of your own
``own_kafka_server``       function  a Kafka to kill, restart and pause
``own_kinesis_server``     function  a kinesis-local to kill, restart (empty) and pause
``own_pulsar_server``      function  a Pulsar to kill, restart and pause
``own_zookeeper_server``   function  a ZooKeeper to kill, restart and pause
========================== ========= ==============================================================

Environment: ``CONSUMER_SDK_KAFKA=host:port``, ``CONSUMER_SDK_ZOOKEEPER=host:port``,
``CONSUMER_SDK_KINESIS=http://host:port`` (for both Kinesis fixtures), and ``CONSUMER_SDK_PULSAR=host:port``
with ``CONSUMER_SDK_PULSAR_ADMIN=http://host:port`` name servers that already run; tests that would kill theirs are then skipped. A test is skipped too when there is no Java, or the
jars or npm packages cannot be had, unless ``CONSUMER_SDK_REQUIRE_SERVERS=1`` makes that a failure,
as on a CI machine. A server that is there and does not start is always an error.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

# At run time inside the functions: pytest loads this module in every project that has the SDK
# installed, and should pay for the servers only in those that use them.
if TYPE_CHECKING:
    from consumer_sdk.testing.servers import (
        ExternalKafka,
        ExternalKinesis,
        ExternalPulsar,
        ExternalZooKeeper,
        KafkaServer,
        KinesaliteServer,
        KinesisServer,
        PulsarServer,
        Server,
        ZooKeeperServer,
    )

__all__ = [
    "kafka_server",
    "kinesalite_server",
    "kinesis_server",
    "own_kafka_server",
    "own_kinesis_server",
    "own_pulsar_server",
    "own_zookeeper_server",
    "pulsar_server",
    "zookeeper_server",
]

# So that a failing case of a conformance suite shows its values.
pytest.register_assert_rewrite("consumer_sdk.testing.conformance")

_ServerT = TypeVar("_ServerT", bound="Server")


@pytest.fixture(scope="session")
def kafka_server() -> "Iterator[KafkaServer | ExternalKafka]":
    """Give a Kafka that all tests share."""
    from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

    if address := external_address("CONSUMER_SDK_KAFKA"):
        yield ExternalKafka(address)
    else:
        with _running(KafkaServer()) as server:
            yield server


@pytest.fixture(scope="session")
def kinesis_server() -> "Iterator[KinesisServer | ExternalKinesis]":
    """Give a kinesis-local that all tests share."""
    from consumer_sdk.testing.servers import ExternalKinesis, KinesisServer, external_url

    if url := external_url("CONSUMER_SDK_KINESIS"):
        yield ExternalKinesis(url)
    else:
        with _running(KinesisServer()) as server:
            yield server


@pytest.fixture(scope="session")
def kinesalite_server() -> "Iterator[KinesaliteServer | ExternalKinesis]":
    """Give a kinesalite that all tests share."""
    from consumer_sdk.testing.servers import ExternalKinesis, KinesaliteServer, external_url

    if url := external_url("CONSUMER_SDK_KINESIS"):
        yield ExternalKinesis(url)
    else:
        with _running(KinesaliteServer()) as server:
            yield server


@pytest.fixture(scope="session")
def pulsar_server() -> "Iterator[PulsarServer | ExternalPulsar]":
    """Give a Pulsar that all tests share."""
    from consumer_sdk.testing.servers import PulsarServer, external_pulsar

    if external := external_pulsar():
        yield external
    else:
        with _running(PulsarServer(quick=True)) as server:
            yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> "Iterator[ZooKeeperServer | ExternalZooKeeper]":
    """Give a ZooKeeper that all tests share."""
    from consumer_sdk.testing.servers import ExternalZooKeeper, ZooKeeperServer, external_address

    if address := external_address("CONSUMER_SDK_ZOOKEEPER"):
        yield ExternalZooKeeper(address)
    else:
        with _running(ZooKeeperServer()) as server:
            yield server


@pytest.fixture
def own_kafka_server() -> "Iterator[KafkaServer]":
    """Give a Kafka of the test's own, to kill, restart and pause."""
    from consumer_sdk.testing.servers import KafkaServer

    _skip_when_external("CONSUMER_SDK_KAFKA")
    with _running(KafkaServer()) as server:
        yield server


@pytest.fixture
def own_kinesis_server() -> "Iterator[KinesisServer]":
    """Give a kinesis-local of the test's own, to kill, restart and pause; a restart empties it."""
    from consumer_sdk.testing.servers import KinesisServer

    _skip_when_external("CONSUMER_SDK_KINESIS")
    with _running(KinesisServer()) as server:
        yield server


@pytest.fixture
def own_pulsar_server() -> "Iterator[PulsarServer]":
    """Give a Pulsar of the test's own, to kill, restart and pause."""
    from consumer_sdk.testing.servers import PulsarServer

    _skip_when_external("CONSUMER_SDK_PULSAR")
    with _running(PulsarServer(quick=True)) as server:
        yield server


@pytest.fixture
def own_zookeeper_server() -> "Iterator[ZooKeeperServer]":
    """Give a ZooKeeper of the test's own, to kill, restart and pause."""
    from consumer_sdk.testing.servers import ZooKeeperServer

    _skip_when_external("CONSUMER_SDK_ZOOKEEPER")
    with _running(ZooKeeperServer()) as server:
        yield server


@contextmanager
def _running(server: _ServerT) -> Iterator[_ServerT]:
    from consumer_sdk.errors import MissingExtraError
    from consumer_sdk.testing.servers import (
        JarResolutionError,
        JavaNotFoundError,
        NodePackageError,
    )

    try:
        _complete(server.start())
        yield server
    except (JarResolutionError, JavaNotFoundError, MissingExtraError, NodePackageError) as error:
        _unavailable(str(error))
    finally:
        _complete(server.aclose())


def _complete(work: Coroutine[object, object, None]) -> None:
    # asyncio.run() would unset the current loop, which belongs to the test's own runner.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _skip_when_external(variable: str) -> None:
    if os.environ.get(variable):
        _unavailable(f"stops its server, and {variable} names one that is not ours to stop")


def _unavailable(reason: str) -> None:
    if os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
