"""Consumers and producers of the client: made, connected and closed, in bounded time.

Brokers are those that are named, and no topic is created by asking for it. The client's own ``stop``
waits for a join that another member holds up, never revokes, and gives up half way when one of its
cancelled requests raises. Here every step is isolated and bounded, and what is left is closed the hard way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from types import MethodType
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from consumer_sdk.adapters.kafka.client.connections import CLIENT_LOGS, open_connection
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.listeners import reach_first
from consumer_sdk.adapters.kafka.client.reconnecting import Reconnecting, connection_options
from consumer_sdk.log_limits import REPEATS

__all__ = [
    "adopt",
    "bounded",
    "connect",
    "make_consumer",
    "start_producer",
    "stop_client",
    "stop_producer",
]


log = logging.getLogger(__name__)

STEP = 2.0
"""Seconds that one step may take."""


def make_consumer(**options: Any) -> AIOKafkaConsumer:
    """A consumer with these options; see `adopt`."""
    consumer = AIOKafkaConsumer(**options)
    adopt(consumer._client)
    return consumer


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
    return nodes + [node for node, _group in client._conns if node == "bootstrap"]


def _end_bootstrap(client: Any) -> None:
    """The bootstrap connection is kept only until the cluster's layout is known."""
    if client.cluster.brokers():
        for key in [key for key in client._conns if key[0] == "bootstrap"]:
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
    connection = await open_connection(host, port, **connection_options(client))
    try:
        client.cluster.update_metadata(await connection.send(MetadataRequest([])))
    except BaseException:
        connection.close()
        raise
    if client.cluster.brokers():
        connection.close()
    else:  # a cluster without topics may not name its brokers yet
        client._conns["bootstrap", ConnectionGroup.DEFAULT] = connection
    if client._sync_task is None:  # an opening that is tried again connects again
        client._sync_task = asyncio.create_task(client._md_synchronizer())
    client.bootstrap = _is_bootstrapped


async def _is_bootstrapped() -> None:
    """Nothing is left for the client's start to do."""


# -- producers ----------------------------------------------------------------------------------


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


# -- closing ------------------------------------------------------------------------------------


async def stop_client(consumer: Any) -> None:
    """Closes every connection. Never raises."""
    consumer._closed = True
    if consumer._coordinator is not None:
        await bounded(consumer._coordinator.close(), "closing the coordinator")
    if consumer._fetcher is not None:
        await bounded(consumer._fetcher.close(), "closing the fetcher")
    await bounded(consumer._client.close(), "closing the connections")
    close_connections(consumer._client)


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
