"""Has a client connect as `Connections` do: at a pace, and with the reason where it cannot."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaError, NodeNotReadyError

from consumer_sdk.adapters.kafka.client.connections import (
    CONNECTION_OPTIONS,
    Address,
    Pace,
    open_connection,
)
from consumer_sdk.adapters.kafka.client.faults import describe
from consumer_sdk.log_limits import REPEATS

log = logging.getLogger(__name__)

__all__ = ["Reconnecting", "connection_options"]


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
                **connection_options(client),
                on_close=client._on_connection_closed,
                max_idle_ms=client._connections_max_idle_ms,
            )
        except (OSError, TimeoutError, KafkaError) as error:
            log.warning("no connection to node %s: %s", key[0], describe(error), extra=REPEATS)
            self._pace.failed(address, error, _now())
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
        return self._pace.rest(address, _now())

    async def _may_try(self, address: Address) -> bool:
        """Now, or after a rest; False if there is another broker to ask meanwhile."""
        while rest := self._rest(address):
            brokers = self._client.cluster.brokers()
            if not all(self._rest((broker.host, broker.port)) for broker in brokers):
                return False
            await asyncio.sleep(rest)
        return True

    async def send(self, node: Any, request: Any, **options: Any) -> Any:
        """As the client's, with the reason in its error."""
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


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- connections ------------------------------------------------------------------------------


def connection_options(client: Any) -> dict[str, Any]:
    """The client's own, as a connection takes them."""
    return {name: getattr(client, f"_{name}") for name in CONNECTION_OPTIONS}
