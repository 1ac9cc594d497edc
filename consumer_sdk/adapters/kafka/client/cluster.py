"""One connection layer for everything that reads: a cluster's metadata, its coordinators, and requests to its nodes.

It uses only aiokafka's connections and protocol structs (`aiokafka.conn`, `aiokafka.protocol`). Its errors are
aiokafka's, all of them ``KafkaError``. `faults.translate` makes the SDK's errors of them, and says which are transient.

After a cancelled request its connection stays open, and the answer is dropped when it comes. A request that is not
answered in time ends the connection, because the next request would wait behind it. So does a cancelled join.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.conn import collect_hosts
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    MetadataEmptyBrokerList,
    NodeNotReadyError,
    RequestTimedOutError,
    for_code,
)

from consumer_sdk.adapters.kafka.client.cluster_metadata import ClusterMetadata, Leader
from consumer_sdk.adapters.kafka.client.connections import (
    CLIENT_LOGS,
    Channel,
    Connections,
    Pace,
    ask,
    loop_time,
    versions_of,
)
from consumer_sdk.adapters.kafka.client.faults import COORDINATOR_MOVED, check_code
from consumer_sdk.adapters.kafka.client.listeners import reach_first
from consumer_sdk.adapters.kafka.client.lookups import (
    Coordinator,
    FindCoordinator,
    GroupOffset,
    ListedOffset,
    ListOffsets,
    OffsetFetch,
    coordinator_in,
    group_offsets_in,
    listed_in,
)
from consumer_sdk.adapters.kafka.client.options import connection_options
from consumer_sdk.adapters.kafka.client.protocol import TopicDescriptions
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.log_limits import REPEATS

__all__ = ["Cluster"]

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULTS: Mapping[str, Any] = {
    "client_id": "consumer-sdk",
    "request_timeout_ms": 40_000,
    "metadata_max_age_ms": 300_000,
    "retry_backoff_ms": 100,
    "connections_max_idle_ms": 540_000,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "sasl_mechanism": "PLAIN",
}
"""As ``AIOKafkaClient`` has them."""

NOBODY = -1
PATIENCE = 5.0
"""Seconds after which a question that any node can answer is asked of the next one."""
LEAST_BACKOFF = 0.005
"""Seconds between two refreshes in the background, whatever ``retry_backoff_ms`` says."""
LONGEST_BACKOFF = 1.0
"""The same, where they bring nothing new; as Java's clients have it."""
REFRESHES = ("metadata", 0)
"""What the pace of background refreshes is kept under."""

Listener = Callable[[ClusterMetadata], None]
Offsets = dict[TopicPartition, ListedOffset | None]
Failures = dict[TopicPartition, KafkaError]


class Cluster:
    """Connections to a cluster's nodes.

    Args:
        options: of the client, by ``AIOKafkaClient``'s names: ``bootstrap_servers``, ``client_id``, ``request_timeout_ms``,
            ``metadata_max_age_ms``, ``connections_max_idle_ms``, ``security_protocol``, ….
        topics: of which the metadata are asked for; None: of all.

    Attributes:
        metadata: what they said last.
        calls: requests sent so far, without what setting up a connection takes.
    """

    def __init__(self, options: Mapping[str, Any], topics: Collection[str] | None = ()) -> None:
        self._options = connection_options({**DEFAULTS, **options})
        self._seconds = self._options["request_timeout_ms"] / 1000
        self._greatest_age = self._options["metadata_max_age_ms"] / 1000
        self.metadata = ClusterMetadata()
        self.calls = 0
        self._connections = Connections(
            self._options, self._seconds, lambda: self.metadata.brokers, self.request_refresh
        )
        self.watch(topics)
        self._listeners: dict[Listener, bool] = {}
        self._refreshing: asyncio.Task[KafkaError | None] | None = None
        self._asked: Collection[str] | None = None
        self._is_wanted = asyncio.Event()
        self._changes = 0
        self._tending: asyncio.Task[None] | None = None
        self._coordinators: dict[Coordinator, int] = {}
        self._lookups: defaultdict[Coordinator, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._is_closed = False

    # -- opening and closing --------------------------------------------------------------------

    async def open(self, timeout: float) -> None:
        """Connects, and learns who leads what; tries again until the time is up, if that may help.

        Raises:
            ConfigurationError: a listener was reached that speaks another ``security_protocol``.
            AdapterError: none can be reached within ``timeout`` seconds, or it refused.
        """
        await keep_trying(self.connect, timeout)

    async def connect(self, timeout: float) -> None:
        """Connects, with one try for each bootstrap server."""
        CLIENT_LOGS.hold(self)
        protocol, tls = self._options["security_protocol"], self._options["ssl_context"]
        hosts = collect_hosts(self._options["bootstrap_servers"])
        await reach_first(hosts, timeout, self._bootstrap, protocol, tls)
        if self._tending is None:
            self._tending = asyncio.create_task(self._keep_fresh())

    async def _bootstrap(self, host: str, port: int) -> None:
        connection = await self._connections.open(host, port)
        try:
            await self._learn(partial(ask, connection, seconds=self._seconds))
        except BaseException:
            connection.close()
            raise
        if not self._connections.adopt(connection):
            connection.close()

    async def aclose(self) -> None:
        """Closes every connection, in bounded time. Never raises."""
        self._is_closed = True
        tasks = {task for task in (self._tending, self._refreshing) if task is not None}
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            await self._connections.aclose()
            CLIENT_LOGS.release(self)

    # -- metadata -------------------------------------------------------------------------------

    def watch(self, topics: Collection[str] | None) -> None:
        """Sets the topics to ask for, None for all, from the next refresh on; it asks for none."""
        self._topics = None if topics is None else frozenset(topics)

    async def refresh(self) -> None:
        """Gets fresh metadata of the watched topics. Calls at the same time share one request. Never creates a topic.

        Raises:
            KafkaError: no broker gave any.
        """
        while True:
            task, asked = self._refresh_task()
            await asyncio.wait({task})  # which others may wait for, too: it is not cancelled
            if self._is_closed or task.cancelled():
                raise KafkaConnectionError("the cluster's connections are closed")
            if asked == self._topics:  # others may be watched by now
                break
        if (error := task.result()) is not None:
            why = self.why_away() or str(error)
            raise KafkaConnectionError(f"no broker told the cluster's metadata: {why}") from error

    def _refresh_task(self) -> tuple[asyncio.Task[KafkaError | None], Collection[str] | None]:
        if self._is_closed:
            raise KafkaConnectionError("the cluster's connections are closed")
        if self._refreshing is None or self._refreshing.done():
            self._asked = self._topics
            self._refreshing = asyncio.create_task(self._refresh())
        return self._refreshing, self._asked

    async def _refresh(self) -> KafkaError | None:
        """Asks one node after another, and then the configured servers, since all nodes may have moved."""

        async def learn(node: int) -> None:
            asks = partial(self._connections.ask, node, Channel.QUESTIONS, seconds=self._seconds)
            await self._learn(asks)

        try:
            await self._any(learn)
        except KafkaError as error:
            return None if await self._rebootstrapped() else error
        return None

    async def _rebootstrapped(self) -> bool:
        known = {(broker.host, broker.port) for broker in self.metadata.brokers.values()}
        for host, port, _family in collect_hosts(self._options["bootstrap_servers"]):
            if (host, port) not in known:
                with suppress(Exception):  # the nodes' own failure is told
                    await self._bootstrap(host, port)
                    return True
        return False

    async def _learn(self, asks: Callable[[Any], Any]) -> None:
        self.calls += 1
        topics = self._topics
        answer = await asks(TopicDescriptions(topics))
        if not answer.brokers:
            raise MetadataEmptyBrokerList("it names no broker yet")
        is_changed = self.metadata.take(answer, loop_time(), lists_all=topics is None)
        self._changes += is_changed
        for listener, each in list(self._listeners.items()):
            if is_changed or each:
                _tell(listener, self.metadata)

    def request_refresh(self) -> None:
        """Has metadata refreshed soon, in the background. Frequent calls cause few requests, and fewer while nothing changes."""
        self._is_wanted.set()

    async def _keep_fresh(self) -> None:
        backoff = max(self._options["retry_backoff_ms"] / 1000, LEAST_BACKOFF)
        pace, rest = Pace(first=backoff), backoff
        while True:
            await self._until_due()
            self._is_wanted.clear()
            changes = self._changes
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - nobody would refresh any more
                log.debug("no fresh metadata: %r", error)
                self._is_wanted.set()
                pace.failed(REFRESHES, error, loop_time())
                await asyncio.sleep(pace.rest(REFRESHES, loop_time()))
            else:
                pace.worked(REFRESHES)
                await asyncio.sleep(rest)
                # A leader may be away for long, and who waits for it asks again at once.
                is_vain = self._is_wanted.is_set() and self._changes == changes
                rest = min(rest * 2, max(LONGEST_BACKOFF, backoff)) if is_vain else backoff

    async def _until_due(self) -> None:
        """Waits until somebody wants fresh metadata, or the last ones are old."""
        while (left := self._greatest_age - self.metadata.age(loop_time())) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._is_wanted.wait()
                return

    def add_listener(self, listener: Listener, *, each: bool = False) -> None:
        """Has a function called after each answer that changed something, or after each of them."""
        self._listeners[listener] = each

    def remove_listener(self, listener: Listener) -> None:
        """Removes a listener. Idempotent."""
        self._listeners.pop(listener, None)

    @property
    def is_closed(self) -> bool:
        """Whatever is asked fails."""
        return self._is_closed

    @property
    def age(self) -> float:
        """Seconds since the last metadata."""
        return self.metadata.age(loop_time())

    def leader_of(self, tp: TopicPartition) -> Leader:
        """(node, epoch) of who leads a partition, by the last metadata.

        Raises:
            KafkaError: it is not known, or there is none at the moment: `refresh`, and ask again.
        """
        return self.metadata.leader_of(tp)

    def is_gone(self, tp: TopicPartition) -> bool:
        """See `ClusterMetadata.is_gone`."""
        return self.metadata.is_gone(tp, loop_time())

    def topic_id(self, topic: str) -> bytes | None:
        """See `ClusterMetadata.topic_id`."""
        return self.metadata.topic_id(topic)

    # -- requests -------------------------------------------------------------------------------

    async def send(
        self,
        to: int | Coordinator | None,
        request: Any,
        *,
        channel: Channel | None = None,
        timeout: float | None = None,
    ) -> Any:
        """A node's answer.

        Args:
            to: a node; a coordinator, which is looked up if need be; None: any node, and the next where that is slow, so
                that it may be asked twice.
            request: one of the client's ``Request``s; its newest version that the node knows is sent.
            channel: by default `COORDINATION` for a coordinator, else `QUESTIONS`.
            timeout: seconds to wait for the answer, instead of ``request_timeout_ms``; then the connection ends. Who wants
                to wait for less cancels.

        Raises:
            KafkaError: there is no connection, or no answer in time; or the node has no version of this request
                (``IncompatibleBrokerVersion``); or the coordinator is not known.
        """
        seconds = self._seconds if timeout is None else timeout
        if to is None:
            return await self._send_to_any(request, channel or Channel.QUESTIONS, seconds)
        if isinstance(to, int):
            self.calls += 1
            return await self._connections.ask(to, channel or Channel.QUESTIONS, request, seconds)
        node = await self.coordinator(to)
        self.calls += 1
        try:
            return await self._connections.ask(
                node, channel or Channel.COORDINATION, request, seconds
            )
        except KafkaError:
            self.forget(to)
            raise

    async def _send_to_any(self, request: Any, channel: Channel, seconds: float) -> Any:
        async def ask(node: int) -> Any:
            self.calls += 1
            return await self._connections.ask(node, channel, request, seconds)

        return await self._any(ask)

    async def _any(self, ask: Callable[[int], Awaitable[T]]) -> T:
        """Asks one node after another until one answers; a slow one comes after the others."""
        failure: KafkaError = NodeNotReadyError("there is no broker: connect first")
        nodes = self._connections.order()
        for node in nodes:
            try:
                async with asyncio.timeout(None if node == nodes[-1] else PATIENCE):
                    return await ask(node)
            except IncompatibleBrokerVersion:
                raise
            except TimeoutError:
                self._connections.was_slow(node)
                failure = RequestTimedOutError(f"node {node} took longer than {PATIENCE:g} s")
            except KafkaError as error:
                failure = error
            log.warning("node %s did not answer: %r", node, failure, extra=REPEATS)
        raise failure

    async def coordinator(self, of: Coordinator) -> int:
        """Looks up the node that coordinates, and remembers it until `forget`.

        Raises:
            KafkaError: it is not available at the moment, or this principal may not know.
        """
        async with self._lookups[of]:
            known = self._coordinators.get(of)
            if known is None:
                found = coordinator_in(await self.send(None, FindCoordinator(of)), of)
                self.metadata.add(found)  # the metadata may not name it yet
                known = self._coordinators[of] = found.node
        return known

    def forget(self, coordinator: Coordinator) -> None:
        """Forgets a coordinator, since an answer said that it is another one (15, 16). The next request looks it up."""
        self._coordinators.pop(coordinator, None)

    def check_coordinator(self, of: Coordinator, code: int) -> None:
        """Raises if an answer's code says that the coordinator is another one, or loading; forgets it.

        Raises:
            KafkaError: ask again.
        """
        if code in COORDINATOR_MOVED:
            self.forget(of)
            raise for_code(code)(f"{of.kind.name.lower()} {of.key!r}")

    async def versions(self, to: int | Coordinator | None) -> Mapping[int, tuple[int, int]]:
        """API key → the oldest and the newest version that a node knows.

        Raises:
            KafkaError: there is no connection to it.
        """
        if to is None:
            to = next(iter(self._connections.order()), NOBODY)
        if isinstance(to, int):
            return versions_of(await self._connections.get(to, Channel.QUESTIONS))
        node = await self.coordinator(to)
        return versions_of(await self._connections.get(node, Channel.COORDINATION))

    def why_away(self) -> str:
        """For messages: why the brokers cannot be connected to; empty if they can."""
        return self._connections.why_away()

    # -- offsets --------------------------------------------------------------------------------

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, level: int = 0
    ) -> tuple[Offsets, Failures]:
        """Looks up the offsets of times, by one request to each leader.

        Args:
            times: `EARLIEST`, `LATEST`, or milliseconds since the epoch.
            level: 1: what lies behind an open transaction does not count.

        Returns:
            offsets with the epochs of their leaders, None where no record is that new; and why the others' are not known.
            What one leader answers is kept when another fails.
        """
        found: Offsets = {}
        failures: Failures = {}
        by_node: dict[int, dict[TopicPartition, tuple[Leader, int]]] = defaultdict(dict)
        for tp, time in times.items():
            try:
                leader = self.leader_of(tp)
            except KafkaError as error:
                failures[tp] = error
            else:
                by_node[leader.node][tp] = leader, time
        asked = [self._list(node, level, some, found, failures) for node, some in by_node.items()]
        await asyncio.gather(*asked)
        return found, failures

    async def _list(
        self,
        node: int,
        level: int,
        wanted: Mapping[TopicPartition, tuple[Leader, int]],
        found: Offsets,
        failures: Failures,
    ) -> None:
        try:
            answer = await self.send(node, ListOffsets(wanted, level))
        except KafkaError as error:
            failures |= dict.fromkeys(wanted, error)
            return
        for tp, code, offset in listed_in(answer):
            try:
                check_code(code, tp)
            except KafkaError as error:
                failures[tp] = error
            else:
                found[tp] = offset

    async def committed(
        self, group: str, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        """Reads what a group has committed; None for a partition without a commit.

        Raises:
            KafkaError: the coordinator did not answer, or refused.
        """
        coordinator = Coordinator(group)
        request = OffsetFetch(group, tps, require_stable=False)
        found = group_offsets_in(await self.send(coordinator, request), tps)
        for code in (found.error, *found.errors.values()):
            self.check_coordinator(coordinator, code)
        found.check(group)
        return dict(found.offsets)


def _tell(listener: Listener, metadata: ClusterMetadata) -> None:
    try:
        listener(metadata)
    except Exception:
        log.exception("a listener of the cluster's metadata failed")
