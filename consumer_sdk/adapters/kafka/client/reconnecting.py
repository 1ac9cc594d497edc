"""Connects a client to brokers: at a pace, and with the reason where it cannot.

The client's own way tries again with each request, 25 times a second while a broker refuses, and
tells whoever asks that the node "is not ready", whether it is down or refuses our token.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka.client import ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import KafkaError, NodeNotReadyError

from consumer_sdk.adapters.kafka.client.faults import describe
from consumer_sdk.log_limits import REPEATS

log = logging.getLogger(__name__)

__all__ = ["Pace", "Reconnecting", "connection_options", "open_connection"]

FIRST_REST = 0.05
LONGEST_REST = 2.0
JITTER = 0.2
"""Of a rest: that clients which lost a broker together do not come back together."""

Address = tuple[str, int]


@dataclass(slots=True)
class Failure:
    """Of an address that could not be connected to.

    Attributes:
        times: in a row.
        until: when it may be tried again.
        error: the last one.
    """

    times: int
    until: float
    error: Exception


class Pace:
    """When an address may be tried again; reads no clock.

    Args:
        chance: between 0 and 1.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._failures: dict[Address, Failure] = {}

    def failed(self, address: Address, error: Exception, now: float) -> None:
        """The next try is twice as far away."""
        known = self._failures.get(address)
        times = 1 if known is None else known.times + 1
        rest = min(FIRST_REST * 2 ** min(times - 1, 16), LONGEST_REST)
        rest *= 1 + JITTER * (2 * self._chance() - 1)
        self._failures[address] = Failure(times, now + rest, error)

    def worked(self, address: Address) -> None:
        """The next failure is the first."""
        self._failures.pop(address, None)

    def rest(self, address: Address, now: float) -> float:
        """Seconds until it may be tried again; 0 if it may be now."""
        known = self._failures.get(address)
        return 0.0 if known is None else max(known.until - now, 0.0)

    def error(self, address: Address) -> Exception | None:
        """Why it could not be connected to."""
        known = self._failures.get(address)
        return None if known is None else known.error


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
        client.why_away = self.why_away

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

    def why_away(self) -> str:
        """For messages: why the brokers cannot be connected to; empty if they can."""
        found = [self._why_away(broker.nodeId) for broker in self._client.cluster.brokers()]
        return "; ".join(why for why in found if why is not None)

    def _why_away(self, node: Any) -> str | None:
        broker = self._client.cluster.broker_metadata(node)
        error = broker and self._pace.error((broker.host, broker.port))
        return f"node {node} at {broker.host}:{broker.port}: {describe(error)}" if error else None


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- connections ------------------------------------------------------------------------------


async def open_connection(host: str, port: int, **options: Any) -> AIOKafkaConnection:
    """As the client's ``create_conn``; a token that the broker refuses is an error.

    Raises:
        KafkaError, OSError, TimeoutError: there is none.
    """
    connection = _Connection(host, port, **options)
    await connection.connect()
    return connection


class _Connection(AIOKafkaConnection):  # type: ignore[misc]  # the client has no types
    def authenticator_oauth(self) -> _TokenExchange:
        return _TokenExchange(sasl_oauth_token_provider=self._sasl_oauth_token_provider)


class _TokenExchange(OAuthAuthenticator):  # type: ignore[misc]  # the client has no types
    """RFC 7628, 3.2.3: a server says by a challenge that it refuses the token.

    The client takes that for a success, and hears of it as of a connection that is closed. The
    answer below brings the server's error.
    """

    _has_answered = False

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        found: tuple[bytes, bool] | None = await super().step(payload)
        if found is None and payload and not self._has_answered:
            self._has_answered = True
            return b"\x01", True
        return found


def connection_options(client: Any) -> dict[str, Any]:
    """The client's own, as a connection takes them."""
    names = (
        "client_id",
        "request_timeout_ms",
        "ssl_context",
        "security_protocol",
        "sasl_mechanism",
        "sasl_plain_username",
        "sasl_plain_password",
        "sasl_kerberos_service_name",
        "sasl_kerberos_domain_name",
        "sasl_oauth_token_provider",
    )
    return {name: getattr(client, f"_{name}") for name in names}
