"""Fixtures that give tests real servers; active wherever consumer_sdk is installed with pytest.

========================== ========= ==============================================================
fixture                    scope     gives
========================== ========= ==============================================================
``kafka_server``           session   a Kafka that all tests share: use a topic and group of your own
``kinesis_server``         session   a kinesis-local that all tests share: use a stream of your own
``kinesalite_server``      session   a kinesalite that all tests share: use a stream of your own
``pulsar_server``          session   a Pulsar that all tests share: use a topic of your own
``zookeeper_server``       session   a ZooKeeper that all tests share: use a root path of your own
``own_kafka_server``       function  a Kafka that the test may kill, restart and pause
``own_kinesis_server``     function  a kinesis-local, likewise; a restart empties it
``own_pulsar_server``      function  a Pulsar, likewise
``own_zookeeper_server``   function  a ZooKeeper, likewise
========================== ========= ==============================================================

A shared server starts when a test first asks for it, and ends with the run. With pytest-xdist it belongs to the
controller, and all workers use the same one. To give it settings of your own, implement this hook in a ``conftest.py``
at the root of your tests::

    def pytest_consumer_sdk_server(name):  # "kafka", "kinesis", "kinesalite", "pulsar" or "zookeeper"
        if name == "kafka":
            return KafkaServer(properties={"message.max.bytes": 8 << 20})

When a shared server ends during the run, the run stops and says so.

Environment: ``CONSUMER_SDK_KAFKA=host:port``, ``CONSUMER_SDK_ZOOKEEPER=host:port``,
``CONSUMER_SDK_KINESIS=http://host:port`` (for both Kinesis fixtures), and ``CONSUMER_SDK_PULSAR=host:port``
with ``CONSUMER_SDK_PULSAR_ADMIN=http://host:port`` name servers that already run; tests that would kill theirs are then skipped. A test is skipped too when there is no Java, or the
jars or npm packages cannot be had, unless ``CONSUMER_SDK_REQUIRE_SERVERS=1`` makes that a failure,
as on a CI machine. A server that is there and does not start is always an error.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

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
    from consumer_sdk.testing.servers.shared import ServerDesk, SharedServers

__all__ = [
    "kafka_server",
    "kinesalite_server",
    "kinesis_server",
    "own_kafka_server",
    "own_kinesis_server",
    "own_pulsar_server",
    "own_servers",
    "own_zookeeper_server",
    "pulsar_server",
    "zookeeper_server",
]

# So that a failing case of a conformance suite shows its values.
pytest.register_assert_rewrite("consumer_sdk.testing.conformance")

_ServerT = TypeVar("_ServerT", bound="Server")
_PLUGIN = "consumer_sdk_servers"
"""Under this name the plugin's object is registered, and a worker finds where to ask."""


class _Hooks:
    """What a ``conftest.py`` may implement."""

    @pytest.hookspec(firstresult=True)
    def pytest_consumer_sdk_server(self, name: str) -> "Server | None":
        """Return the shared server of a name, not started yet; None for the one with our settings."""


class _RunServers:
    """The shared servers of this run, wherever they are."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._servers: SharedServers | None = None
        self._desk: ServerDesk | None = None
        self._session: Any = None

    def get(self, name: str) -> Any:
        from consumer_sdk.testing.servers.shared import ask_desk

        workerinput: dict[str, Any] = getattr(self._config, "workerinput", {})
        if _PLUGIN in workerinput:
            return ask_desk(workerinput[_PLUGIN], name)
        return self._own().get(name)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Note who can stop the run."""
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist where to ask."""
        from consumer_sdk.testing.servers.shared import ServerDesk

        self._session = self._config.pluginmanager.get_plugin("dsession")
        if self._desk is None:
            self._desk = ServerDesk(self._own())
        node.workerinput[_PLUGIN] = self._desk.address

    def pytest_runtest_logreport(self) -> None:
        """Stop the run when a server is gone: every further test would fail for this one reason."""
        ended = self._servers and self._servers.ended()
        if ended and not self._session.shouldstop:
            self._session.shouldstop = ended

    def pytest_unconfigure(self) -> None:
        """End with the run, also after Ctrl-C."""
        if self._desk is not None:
            self._desk.close()
        if self._servers is not None:
            self._servers.close()

    def _own(self) -> "SharedServers":
        from consumer_sdk.testing.servers.shared import SharedServers

        if self._servers is None:
            self._servers = SharedServers(self._make)
        return self._servers

    def _make(self, name: str) -> "Server":
        from consumer_sdk.testing.servers.shared import make_server

        made: Server | None = self._config.hook.pytest_consumer_sdk_server(name=name)
        return made or make_server(name)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Let a ``conftest.py`` say how a shared server is made."""
    pluginmanager.add_hookspecs(_Hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the run's servers where the fixtures find them."""
    config.pluginmanager.register(_RunServers(config), _PLUGIN)


@pytest.fixture(scope="session")
def kafka_server(pytestconfig: pytest.Config) -> "KafkaServer | ExternalKafka":
    """Give a Kafka that all tests share."""
    found: KafkaServer | ExternalKafka = _shared(pytestconfig, "kafka")
    return found


@pytest.fixture(scope="session")
def kinesis_server(pytestconfig: pytest.Config) -> "KinesisServer | ExternalKinesis":
    """Give a kinesis-local that all tests share."""
    found: KinesisServer | ExternalKinesis = _shared(pytestconfig, "kinesis")
    return found


@pytest.fixture(scope="session")
def kinesalite_server(pytestconfig: pytest.Config) -> "KinesaliteServer | ExternalKinesis":
    """Give a kinesalite that all tests share."""
    found: KinesaliteServer | ExternalKinesis = _shared(pytestconfig, "kinesalite")
    return found


@pytest.fixture(scope="session")
def pulsar_server(pytestconfig: pytest.Config) -> "PulsarServer | ExternalPulsar":
    """Give a Pulsar that all tests share."""
    found: PulsarServer | ExternalPulsar = _shared(pytestconfig, "pulsar")
    return found


@pytest.fixture(scope="session")
def zookeeper_server(pytestconfig: pytest.Config) -> "ZooKeeperServer | ExternalZooKeeper":
    """Give a ZooKeeper that all tests share."""
    found: ZooKeeperServer | ExternalZooKeeper = _shared(pytestconfig, "zookeeper")
    return found


@pytest.fixture
def own_kafka_server(own_servers: "OwnServers") -> "Iterator[KafkaServer]":
    """Give a Kafka that nobody else uses meanwhile, to kill, restart and pause."""
    from consumer_sdk.testing.servers import KafkaServer

    with own_servers.lent(KafkaServer, "CONSUMER_SDK_KAFKA") as server:
        yield server


@pytest.fixture
def own_kinesis_server(own_servers: "OwnServers") -> "Iterator[KinesisServer]":
    """Give a kinesis-local, likewise; a restart empties it."""
    from consumer_sdk.testing.servers import KinesisServer

    with own_servers.lent(KinesisServer, "CONSUMER_SDK_KINESIS") as server:
        yield server


@pytest.fixture
def own_pulsar_server(own_servers: "OwnServers") -> "Iterator[PulsarServer]":
    """Give a Pulsar, likewise."""
    from consumer_sdk.testing.servers import PulsarServer

    with own_servers.lent(PulsarServer, "CONSUMER_SDK_PULSAR") as server:
        yield server


@pytest.fixture
def own_zookeeper_server(own_servers: "OwnServers") -> "Iterator[ZooKeeperServer]":
    """Give a ZooKeeper, likewise."""
    from consumer_sdk.testing.servers import ZooKeeperServer

    with own_servers.lent(ZooKeeperServer, "CONSUMER_SDK_ZOOKEEPER") as server:
        yield server


@pytest.fixture(scope="session")
def own_servers() -> "Iterator[OwnServers]":
    """Give the servers that tests of this process may harm."""
    with closing(OwnServers()) as servers:
        yield servers


class OwnServers:
    """One server of a kind, lent to one test after another: a start costs up to 20 s of processor time.

    It runs when a test gets it, whatever the one before has done to it, and has the data of before.
    """

    def __init__(self) -> None:
        self._servers: dict[type[Server], Server] = {}

    @contextmanager
    def lent(self, kind: "type[_ServerT]", external: str) -> "Iterator[_ServerT]":
        from consumer_sdk.testing.servers.shared import complete

        _skip_when_external(external)
        if kind not in self._servers:
            self._servers[kind] = kind()
        server = self._servers[kind]
        assert isinstance(server, kind)
        with _skipping():
            complete(server.start())
        try:
            yield server
        finally:
            if server.is_running:
                server.resume()

    def close(self) -> None:
        from consumer_sdk.testing.servers.shared import complete

        for server in self._servers.values():
            complete(server.aclose())


def _shared(config: pytest.Config, name: str) -> Any:
    servers = config.pluginmanager.get_plugin(_PLUGIN)
    assert isinstance(servers, _RunServers)
    with _skipping():
        return servers.get(name)


@contextmanager
def _running(server: _ServerT) -> Iterator[_ServerT]:
    from consumer_sdk.testing.servers.shared import complete

    try:
        with _skipping():
            complete(server.start())
        yield server
    finally:
        complete(server.aclose())


@contextmanager
def _skipping() -> Iterator[None]:
    """Skip the test when its server cannot be had here."""
    from consumer_sdk.errors import MissingExtraError
    from consumer_sdk.testing.servers import (
        JarResolutionError,
        JavaNotFoundError,
        NodePackageError,
    )

    try:
        yield
    except (JarResolutionError, JavaNotFoundError, MissingExtraError, NodePackageError) as error:
        _unavailable(str(error))


def _skip_when_external(variable: str) -> None:
    if os.environ.get(variable):
        _unavailable(f"stops its server, and {variable} names one that is not ours to stop")


def _unavailable(reason: str) -> None:
    if os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
