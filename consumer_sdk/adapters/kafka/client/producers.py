"""Makes, connects and closes aiokafka's producers, in bounded time.

It connects to the named brokers, and never creates a topic by asking for it. aiokafka itself tries again with each
request, and says that a node "is not ready", whether it is down or refuses our token. Its ``stop`` may wait for long.
Here every step is isolated and bounded, and the rest is closed by force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from types import MethodType
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.metadata import MetadataRequest

from consumer_sdk.adapters.kafka.client.connections import (
    CLIENT_LOGS,
    CONNECTION_OPTIONS,
    Address,
    Pace,
    loop_time,
    open_connection,
)
from consumer_sdk.adapters.kafka.client.faults import describe, translate
from consumer_sdk.adapters.kafka.client.listeners import reach_first
from consumer_sdk.log_limits import REPEATS

__all__ = ["Reconnecting", "start_producer", "stop_producer"]

log = logging.getLogger(__name__)

STEP = 2.0
"""Seconds that one step may take."""
BOOTSTRAP = "bootstrap"
"""As the client calls the node of a connection that was made before any node was known."""


async def start_producer(timeout: float, **options: Any) -> AIOKafkaProducer:
    """A connected producer that never creates a topic by accident.

    Args:
        timeout: seconds to wait for a connection.
        options: of the client; it writes to all replicas where ``acks`` says nothing else.

    Raises:
        AdapterError: the servers cannot be reached, or refused.
    """
    producer = AIOKafkaProducer(**{"acks": "all", **options})
    adopt(producer.client)
    try:
        await connect(producer.client, timeout)
        await producer.start()
    except KafkaError as error:  # an idempotent producer is refused its id
        await stop_producer(producer)
        raise translate(error, "starting a producer") from error
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Sends what it holds, if that is quick, and closes its connections. Never raises."""
    await bounded(producer.stop(), "stopping the producer")
    close_connections(producer.client)


def close_connections(client: Any) -> None:
    """Closes whatever connection a stop has left open."""
    for connection in list(client._conns.values()):
        connection.close()
    CLIENT_LOGS.release(client)


async def bounded(step: Coroutine[Any, Any, Any], what: str) -> None:
    """Runs a step for at most `STEP` seconds, in a task that may fail or be cancelled alone."""
    task = asyncio.ensure_future(step)
    done, _pending = await asyncio.wait({task}, timeout=STEP)
    if not done:
        log.warning("%s took longer than %.0f s", what, STEP)
        task.cancel()
    await _settled(task, what)


async def _settled(task: asyncio.Task[Any], what: str = "closing") -> None:
    done, _pending = await asyncio.wait({task}, timeout=STEP)
    if done and not task.cancelled() and (error := task.exception()):
        log.warning("%s: %r", what, error)


# -- how a client connects -----------------------------------------------------------------------


def adopt(client: AIOKafkaClient) -> None:
    """Changes how a new client connects, see `Reconnecting`, and asks for metadata.

    Its requests for metadata would create the topics that they ask for. A topic that was deleted
    would come back, empty, by the next refresh, and the positions of the old one would be
    committed onto it.
    """
    client._metadata_update = MethodType(_update_metadata, client)
    Reconnecting(client)


async def _update_metadata(client: Any, cluster: Any, topics: Any) -> bool:
    """AIOKafkaClient._metadata_update, but for ``allow_auto_topic_creation=False``."""
    request = MetadataRequest(list(topics) or None, allow_auto_topic_creation=False)
    for node in _known_nodes(client):
        connection = await client._get_conn(node)
        if connection is None:
            continue
        try:
            metadata = await connection.send(request)
        except (KafkaError, TimeoutError) as error:
            log.warning("node %s gave no metadata: %r", node, error, extra=REPEATS)
            continue
        if not metadata.brokers:
            return False
        cluster.update_metadata(metadata)
        _end_bootstrap(client)
        return True
    cluster.failed_update(None)
    return False


def _known_nodes(client: Any) -> list[Any]:
    """Broker ids, the bootstrap connection last."""
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    return nodes + [node for node, _group in client._conns if node == BOOTSTRAP]


def _end_bootstrap(client: Any) -> None:
    """The bootstrap connection is kept only until the cluster's layout is known."""
    if client.cluster.brokers():
        for key in [key for key in client._conns if key[0] == BOOTSTRAP]:
            client._conns.pop(key).close()


async def connect(client: Any, timeout: float) -> None:
    """Connects to the first bootstrap server that answers; takes the place of ``bootstrap``.

    The client's own leaks its connection when it is cancelled, keeps the reason of a failure to
    itself, and waits for a server that hangs as long as for any request.

    Raises:
        ConfigurationError: a listener was reached that speaks another ``security_protocol``.
        AdapterError: none can be reached within ``timeout`` seconds, or it refused.
    """
    CLIENT_LOGS.hold(client)
    tls = client._ssl_context
    await reach_first(
        client.hosts, timeout, partial(_bootstrap, client), client._security_protocol, tls
    )


async def _bootstrap(client: Any, host: str, port: int) -> None:
    connection = await open_connection(host, port, **_connection_options(client))
    try:
        client.cluster.update_metadata(await connection.send(MetadataRequest([])))
    except BaseException:
        connection.close()
        raise
    if client.cluster.brokers():
        connection.close()
    else:  # a cluster without topics may not name its brokers yet
        client._conns[BOOTSTRAP, ConnectionGroup.DEFAULT] = connection
    if client._sync_task is None:  # an opening that is tried again connects again
        client._sync_task = asyncio.create_task(client._md_synchronizer())
    client.bootstrap = _is_bootstrapped


async def _is_bootstrapped() -> None:
    """Nothing is left for the client's start to do."""


class Reconnecting:
    """Takes the place of a client's ``_get_conn`` and ``send``.

    A node that rests is said to be away at once while there is another to ask; where all rest,
    whoever asks waits.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._send = client.send
        self._pace = Pace()
        client._get_conn = self.get
        client.send = self.send

    async def get(
        self,
        node: Any,
        *,
        group: ConnectionGroup = ConnectionGroup.DEFAULT,
        no_hint: bool = False,  # noqa: ARG002 - the client's signature
    ) -> Any:
        """A connection to a node; None if there is none now."""
        client, key = self._client, (node, group)
        if (found := self._connected(key)) is not None:
            return found
        broker = client.cluster.broker_metadata(node)
        if broker is None:  # not in the metadata (any more)
            client.force_metadata_update()
            return None
        address = broker.host, broker.port
        if not await self._may_try(address):
            return None
        async with client._get_conn_lock:
            # 1. two requests find no connection, and ask for the lock; 2. the first one connects, or
            # fails; 3. the second one gets the lock: it takes that connection, or leaves the address alone.
            if (found := self._connected(key)) is not None:
                return found
            if self._rest(address):
                return None
            return await self._try(key, address)

    async def _try(self, key: tuple[Any, ConnectionGroup], address: Address) -> Any:
        client = self._client
        try:
            made = await open_connection(
                *address,
                **_connection_options(client),
                on_close=client._on_connection_closed,
                max_idle_ms=client._connections_max_idle_ms,
            )
        except (OSError, TimeoutError, KafkaError) as error:
            log.warning("no connection to node %s: %s", key[0], describe(error), extra=REPEATS)
            self._pace.failed(address, error, loop_time())
            client.force_metadata_update()  # they are old, if they name it
            return None
        self._pace.worked(address)
        client._conns[key] = made
        return made

    def _connected(self, key: tuple[Any, ConnectionGroup]) -> Any:
        known = self._client._conns.get(key)
        if known is not None and not known.connected():
            self._client._conns.pop(key).close()  # it is at its end, and nobody may have noticed
            return None
        return known

    def _rest(self, address: Address) -> float:
        return self._pace.rest(address, loop_time())

    async def _may_try(self, address: Address) -> bool:
        """Now, or after a rest; False if there is another broker to ask meanwhile."""
        while rest := self._rest(address):
            brokers = self._client.cluster.brokers()
            if not all(self._rest((broker.host, broker.port)) for broker in brokers):
                return False
            await asyncio.sleep(rest)
        return True

    async def send(self, node: Any, request: Any, **options: Any) -> Any:
        """As the client's, with the reason in its error; a node that is None stands for any."""
        if node is None:
            known = self._client.get_random_node()
            node = BOOTSTRAP if known is None else known
        try:
            return await self._send(node, request, **options)
        except NodeNotReadyError as error:
            why = self._why_away(node)
            if why is None:
                raise
            raise NodeNotReadyError(why) from error

    def _why_away(self, node: Any) -> str | None:
        broker = self._client.cluster.broker_metadata(node)
        error = broker and self._pace.error((broker.host, broker.port))
        return f"node {node} at {broker.host}:{broker.port}: {describe(error)}" if error else None


def _connection_options(client: Any) -> dict[str, Any]:
    """The client's own, as a connection takes them."""
    return {name: getattr(client, f"_{name}") for name in CONNECTION_OPTIONS}
