"""Makes the client and connects it, to brokers that are named and never to create a topic."""

from __future__ import annotations

import asyncio
import logging
from types import MethodType
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from consumer_sdk.adapters.kafka.client.closing import CLIENT_LOGS
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.listeners import look_at_listener
from consumer_sdk.adapters.kafka.client.reconnecting import (
    Reconnecting,
    connection_options,
    open_connection,
)
from consumer_sdk.log_limits import REPEATS

__all__ = ["adopt", "connect", "make_consumer"]

log = logging.getLogger(__name__)


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
    hosts = client.hosts
    servers = ", ".join(f"{host}:{port}" for host, port, _family in hosts)
    failure: Exception = KafkaConnectionError("there is no server")
    for host, port, _family in hosts:
        try:
            async with asyncio.timeout(timeout / len(hosts)):
                await _bootstrap(client, host, port)
        except Exception as error:  # noqa: BLE001 - translated below
            given, tls = client._security_protocol, client._ssl_context
            look = look_at_listener(
                error, host, port, given, tls=tls, patience=timeout / len(hosts)
            )
            failure = await look or error
        else:
            return
    raise translate(failure, f"connecting to bootstrap_servers {servers}") from failure


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
