"""Connections to a cluster's nodes, one for each kind of request, with paced retries and errors that say why.

aiokafka tries again with each request, 25 times a second while a broker refuses. Its error says that the node "is not
ready", whether it is down or refuses our token.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from aiokafka.conn import AIOKafkaConnection, CloseReason, OAuthAuthenticator
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    NodeNotReadyError,
    RequestTimedOutError,
)

from consumer_sdk.adapters.kafka.client.cluster_metadata import Broker
from consumer_sdk.adapters.kafka.client.faults import describe
from consumer_sdk.log_limits import REPEATS, LimitedLoggers

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "CLIENT_LOGS",
    "CONNECTION_OPTIONS",
    "Channel",
    "Connections",
    "Pace",
    "ask",
    "loop_time",
    "open_connection",
    "versions_of",
]

log = logging.getLogger(__name__)

CLIENT_LOGS = LimitedLoggers("aiokafka")
"""Held by whoever has connections, from the first to the last."""

CONNECTION_OPTIONS = (
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
"""What a connection takes of a client's options."""

FIRST_REST = 0.05
LONGEST_REST = 2.0
JITTER = 0.2
"""Of a rest: that clients which lost a broker together do not come back together."""
CLOSING = 2.0
"""Seconds that closing may take."""
SILENCE = 10.0
"""Seconds without an answer after which a connection is given up, if somebody has stopped waiting for one meanwhile."""
UNBOUNDED = 10**9
"""Milliseconds: the connection's own limit for each request. Ours ends sooner, and is another for each request."""

Address: TypeAlias = tuple[str, int]


# -- when ---------------------------------------------------------------------------------------


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
        first: seconds of the first rest.
    """

    def __init__(
        self, chance: Callable[[], float] = random.random, first: float = FIRST_REST
    ) -> None:
        self._chance = chance
        self._first = first
        self._failures: dict[Address, Failure] = {}

    def failed(self, address: Address, error: Exception, now: float) -> None:
        """The next try is twice as far away."""
        known = self._failures.get(address)
        times = 1 if known is None else known.times + 1
        rest = min(self._first * 2 ** min(times - 1, 16), LONGEST_REST)
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


# -- one connection -----------------------------------------------------------------------------


async def open_connection(host: str, port: int, **options: Any) -> AIOKafkaConnection:
    """Opens a connection, as the client's ``create_conn`` does; a token that the broker refuses is an error.

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


async def ask(connection: Any, request: Any, seconds: float) -> Any:
    """The answer to a request.

    A cancelled one leaves the connection as it is: its answer is dropped when it comes. Behind one that is not answered in
    time everything else would wait, so that the connection ends.

    Raises:
        KafkaError: there is none; ``IncompatibleBrokerVersion``: the node has no version of this request.
    """
    try:
        async with asyncio.timeout(seconds):
            return await connection.send(request)
    except TimeoutError as error:
        connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
        raise RequestTimedOutError(
            f"{connection.host}:{connection.port} did not answer within {seconds:g} s"
        ) from error
    except NotImplementedError as error:  # what the client's requests say of a version
        raise IncompatibleBrokerVersion(
            f"{connection.host}:{connection.port}: {error}; update the brokers, or this package"
        ) from error


class _Told(Exception):  # noqa: N818 - it is none
    def __init__(self, versions: Mapping[int, tuple[int, int]]) -> None:
        super().__init__()
        self.versions = versions


class _Question:
    """A request that learns which versions the node knows, and is never sent."""

    @staticmethod
    def prepare(versions: Mapping[int, tuple[int, int]]) -> NoReturn:
        raise _Told(versions)


def versions_of(connection: Any) -> Mapping[int, tuple[int, int]]:
    """API key → the oldest and the newest version that the node knows, as it said when it was connected to.

    Raises:
        KafkaError: the connection is closed.
    """
    try:
        connection.send(_Question())
    except _Told as told:
        return told.versions
    raise AssertionError("a request is prepared before it is sent")


# -- connections to all nodes -------------------------------------------------------------------


class Channel(Enum):
    """A connection to a node for requests of one kind: a broker answers one request of a connection after another."""

    QUESTIONS = "questions"
    COORDINATION = "coordination"
    """Commits, which may never wait."""
    JOINS = "joins"
    """What keeps a membership. A join is answered when all members have asked: what is sent meanwhile waits behind. A
    cancelled one ends the connection."""
    FETCHES = "fetches"
    """The broker waits for records."""


Key: TypeAlias = tuple[int, Channel]


class Connections:
    """Made when they are first needed, and again when they have ended.

    A node that rests is said to be away at once while there is another to ask; where all rest,
    whoever asks waits.

    Args:
        options: of a connection, and ``connections_max_idle_ms``.
        seconds: that connecting may take.
        brokers: says where the nodes listen now.
        lost: is called when a connection broke, or there is none: the metadata may be old.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        seconds: float,
        brokers: Callable[[], Mapping[int, Broker]],
        lost: Callable[[], None],
    ) -> None:
        self._options = {name: options[name] for name in CONNECTION_OPTIONS if name in options}
        self._options |= {"request_timeout_ms": UNBOUNDED}
        self._options |= {"max_idle_ms": options["connections_max_idle_ms"]}
        self._seconds = seconds
        self._brokers = brokers
        self._lost = lost
        self._pace = Pace()
        self._made: dict[Key, Any] = {}
        self._making: dict[Key, asyncio.Task[Any]] = {}
        self._silent_since: dict[Key, float] = {}
        self._in_flight: Counter[int] = Counter()
        self._slow: set[int] = set()
        self._is_closed = False

    async def open(self, host: str, port: int) -> Any:
        """Opens a connection to an address. It belongs to the caller until `adopt`.

        Raises:
            KafkaError, OSError, TimeoutError: there is none.
        """
        async with asyncio.timeout(self._seconds):
            return await open_connection(host, port, on_close=self._on_close, **self._options)

    def adopt(self, connection: Any) -> bool:
        """Takes a connection over, for requests to the node that listens there, if there is such a node."""
        for broker in self._brokers().values():
            key = (broker.node, Channel.QUESTIONS)
            if broker[1:3] == (connection.host, connection.port) and not self._is_closed:
                if (old := self._made.get(key)) is not None:
                    old.close()
                self._made[key] = connection
                self._silent_since.pop(key, None)
                return True
        return False

    async def ask(self, node: int, channel: Channel, request: Any, seconds: float) -> Any:
        """A node's answer.

        Raises:
            KafkaError: there is none; see `ask` above.
        """
        with self._counted(node):
            connection, key, asked_at = await self.get(node, channel), (node, channel), loop_time()
            try:
                answer = await ask(connection, request, seconds)
            except asyncio.CancelledError:
                # 1. a join is cancelled; 2. the broker goes on waiting for the other members, and reads nothing more of
                # this connection; 3. the next join would wait behind it.
                if channel is Channel.JOINS:
                    connection.close()
                elif connection is self._made.get(key):
                    self._silent_since.setdefault(key, asked_at)
                raise
            self._silent_since.pop(key, None)
            self._slow.discard(node)
            return answer

    @contextmanager
    def _counted(self, node: int) -> Iterator[None]:
        self._in_flight[node] += 1
        try:
            yield
        finally:
            self._in_flight[node] -= 1

    def order(self) -> list[int]:
        """Sorts nodes by whom to ask first: one that does not rest, was not slow, is connected and has few requests."""

        def rank(broker: Broker) -> tuple[bool, bool, bool, int, float]:
            rests = self._rest(broker) > 0
            is_new = self._connected((broker.node, Channel.QUESTIONS), broker) is None
            shuffled = random.random()  # noqa: S311 - no secret
            is_slow = broker.node in self._slow
            return rests, is_slow, is_new, self._in_flight[broker.node], shuffled

        return [broker.node for broker in sorted(self._brokers().values(), key=rank)]

    def was_slow(self, node: int) -> None:
        """Puts a node behind the others until it answers a request."""
        self._slow.add(node)

    async def get(self, node: int, channel: Channel) -> Any:
        """A connection to a node.

        Raises:
            NodeNotReadyError: there is none now, and why.
        """
        key = node, channel
        while not self._is_closed:
            broker = self._broker(node)
            if (found := self._connected(key, broker)) is not None:
                return found
            if (making := self._try_under_way(key, broker)) is None:
                if await self._rested(broker):
                    continue  # whatever has happened meanwhile
                making = self._making[key] = asyncio.ensure_future(self._make(key, broker))
            is_ours = making is self._making.get(key)
            await asyncio.wait({making})  # which others may wait for, too: it is not cancelled
            if (found := self._connected(key, broker)) is not None:
                return found
            if is_ours or self._why_away(broker):
                raise NodeNotReadyError(self._why_away(broker) or f"node {node} is not connected")
        raise NodeNotReadyError("the connections are closed")

    def _try_under_way(self, key: Key, broker: Broker) -> asyncio.Task[Any] | None:
        """Returns the attempt to connect that is under way: on this channel, or on any if the node was away."""
        if self._pace.error((broker.host, broker.port)) is None:
            return self._making.get(key)
        return next((t for (node, _), t in self._making.items() if node == broker.node), None)

    def _broker(self, node: int) -> Broker:
        broker = self._brokers().get(node)
        if broker is None:  # not in the metadata (any more)
            self._lost()
            raise NodeNotReadyError(f"node {node} is not in the cluster's metadata")
        return broker

    async def _make(self, key: Key, broker: Broker) -> None:
        address = broker.host, broker.port
        try:
            self._made[key] = await self.open(*address)
            self._pace.worked(address)
        except Exception as error:  # noqa: BLE001 - a token provider raises whatever it likes
            log.warning("no connection to node %s: %s", key[0], describe(error), extra=REPEATS)
            self._pace.failed(address, error, loop_time())
            self._lost()  # the metadata are old, if they name it
        finally:
            del self._making[key]

    def _connected(self, key: Key, broker: Broker) -> Any:
        known = self._made.get(key)
        if known is None:
            return None
        is_there = known.connected() and (known.host, known.port) == broker[1:3]
        if is_there and not self._is_silent(key):
            return known
        self._made.pop(key).close()  # it is at its end, and nobody may have noticed
        self._silent_since.pop(key, None)
        return None

    def _is_silent(self, key: Key) -> bool:
        """Whether the other end may be gone without having closed the connection.

        1. A firewall forgets the connection, or the broker's machine is gone, and nobody is told; 2. whoever asks waits for
        less time than a request may take, and cancels; 3. so would each one that asks later, for a quarter of an hour.
        """
        return loop_time() - self._silent_since.get(key, math.inf) > SILENCE

    async def _rested(self, broker: Broker) -> bool:
        """Waits while all nodes rest; returns whether it has waited.

        Raises:
            NodeNotReadyError: this one rests, and another does not.
        """
        rest = self._rest(broker)
        if not rest:
            return False
        if not all(map(self._rest, self._brokers().values())):
            raise NodeNotReadyError(self._why_away(broker))
        await asyncio.sleep(rest)
        return True

    def _rest(self, broker: Broker) -> float:
        return self._pace.rest((broker.host, broker.port), loop_time())

    def why_away(self) -> str:
        """For messages: why the brokers cannot be connected to; empty if they can."""
        return "; ".join(filter(None, map(self._why_away, self._brokers().values())))

    def _why_away(self, broker: Broker) -> str:
        node, host, port, _rack = broker
        error = self._pace.error((host, port))
        return f"node {node} at {host}:{port}: {describe(error)}" if error else ""

    def _on_close(self, _connection: Any, reason: CloseReason | None) -> None:
        if reason in (CloseReason.CONNECTION_BROKEN, CloseReason.CONNECTION_TIMEOUT):
            self._lost()

    async def aclose(self) -> None:
        """Closes all connections, in bounded time. Never raises."""
        self._is_closed = True
        making = list(self._making.values())
        for task in making:
            task.cancel()
        closed = [connection.close(CloseReason.SHUTDOWN) for connection in self._made.values()]
        self._made.clear()
        if waited := {*making, *filter(None, closed)}:
            await asyncio.wait(waited, timeout=CLOSING)


def loop_time() -> float:
    """Seconds, by the event loop's clock."""
    return asyncio.get_running_loop().time()
