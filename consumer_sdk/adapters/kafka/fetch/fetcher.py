"""Sends the cursors' requests, and gives them the answers: one request at a time for each node, and one aside.

It decides nothing: see `cursors`. The next request to a node leaves in the turn of the event loop in which the last
answer has come, before waiters for records are woken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    IncompatibleBrokerVersion,
    KafkaError,
    LeaderNotAvailableError,
)

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.connections import Channel
from consumer_sdk.adapters.kafka.decoding.record_batches import (
    Doubt,
    is_believed,
    transactions_in_doubt,
)
from consumer_sdk.adapters.kafka.fetch.cursor import Cursor
from consumer_sdk.adapters.kafka.fetch.cursors import Cursors, FetchOptions, Leaders, Plan
from consumer_sdk.adapters.kafka.fetch.session import Ask, single_request
from consumer_sdk.adapters.kafka.fetch.structs import (
    AnswerFormatError,
    FetchAnswer,
    FetchLimits,
    FetchRequest,
    PartitionAnswer,
)
from consumer_sdk.log_limits import REPEATS

__all__ = ["FetchChannel", "FetchCluster", "Fetcher"]

log = logging.getLogger(__name__)

AGAIN = 1.0
"""Seconds after which metadata that were asked for, and have not come, are asked for again."""

PATIENCE = 5.0
"""Seconds for an answer to a request aside."""


class FetchCluster(Leaders, Protocol):
    """What fetching needs of a connection to a cluster."""

    async def send(self, node: int, request: Any) -> Any:
        """A node's answer.

        Raises:
            KafkaError: there is none.
        """

    async def send_aside(self, node: int, request: Any) -> Any:
        """The same, at once, though another request waits there.

        Raises:
            KafkaError, TimeoutError: there is none.
        """

    def refresh(self) -> object:
        """Asks for fresh metadata, and waits for nothing."""

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        """Has it called whenever there are fresh metadata."""

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        """Undoes `add_listener`."""


class FetchChannel:
    """What the connection layer knows, epochs too; fetches have connections of their own.

    Args:
        cluster: opened; it watches the topics that are fetched.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def send(self, node: int, request: Any) -> Any:
        """See `FetchCluster`; so with the others."""
        return await self._cluster.send(node, request, channel=Channel.FETCHES)

    async def send_aside(self, node: int, request: Any) -> Any:
        """Sends on the connection for questions, where no request waits at the broker."""
        async with asyncio.timeout(PATIENCE):
            return await self._cluster.send(node, request)

    def leader_of(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Returns the leader, also if the metadata report an error of the topic."""
        leader = self._cluster.metadata.known_leader(tp)
        return None if leader is None or leader.node < 0 else leader

    def has_node(self, node: int) -> bool:
        """The node is in the last metadata."""
        return node in self._cluster.metadata.brokers

    def refresh(self) -> None:
        """Asks for fresh metadata in the background."""
        self._cluster.request_refresh()

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        """Of each answer: whoever has asked for fresh metadata waits for one, also where nothing has changed."""
        self._cluster.add_listener(listener, each=True)

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        """Undoes `add_listener`."""
        self._cluster.remove_listener(listener)


class Fetcher:
    """Fetches for all cursors of a client, in the background.

    Args:
        has_news: called when there is something to be handed out.

    Attributes:
        cursors: those that were added.
        answers: how many have come; whoever waits for one compares.
        error: what has ended all fetching, which is a defect; else None.
    """

    def __init__(
        self, cluster: FetchCluster, options: FetchOptions, has_news: Callable[[], None]
    ) -> None:
        self.cursors = Cursors(cluster, options)
        self.answers = 0
        self.error: BaseException | None = None
        self._cluster = cluster
        self._options = options
        self._has_news = has_news
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_kicked = False
        self._is_closed = False
        self._refreshed_at = -options.backoff
        self._is_refresh_due = False
        cluster.add_listener(self._on_metadata)

    def add(self, cursor: Cursor) -> None:
        """Fetches for a cursor, as soon as it has a position and is not paused."""
        cursor.changed = self.kick
        self.cursors.add(cursor)

    def kick(self) -> None:
        """Looks for something to do, in the loop's next turn."""
        if not self._is_kicked and not self._is_closed:
            self._is_kicked = True
            asyncio.get_running_loop().call_soon(self._look)

    def _on_metadata(self, _cluster: Any) -> None:
        self.kick()

    def _look(self) -> None:
        self._is_kicked = False
        if self._is_closed:
            return
        try:
            self._do_look(asyncio.get_running_loop().time())
        except Exception as error:
            log.exception("fetching has ended")
            self.error = error
            self._has_news()

    def _do_look(self, now: float) -> None:
        look = self.cursors.look(now)
        for plan in look.plans:
            task = asyncio.ensure_future(self._fetch(plan))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._is_refresh_due |= look.is_stale
        wake_at = self._refresh(look.wake_at, now)
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if wake_at is None else loop.call_at(wake_at, self._look)

    def _refresh(self, wake_at: float | None, now: float) -> float | None:
        """Asks for metadata if that is due, not too often; returns when to look again."""
        if not self._is_refresh_due:
            return wake_at
        again_at = self._refreshed_at + self._options.backoff
        if now < again_at:
            return again_at if wake_at is None else min(again_at, wake_at)
        self._is_refresh_due, self._refreshed_at = False, now
        self._cluster.refresh()
        return now + AGAIN if wake_at is None else min(now + AGAIN, wake_at)

    async def _fetch(self, plan: Plan) -> None:
        has_news = False
        try:
            has_news = await self._ask(plan)
        finally:
            self._look()
            if has_news:
                self._has_news()

    async def _ask(self, plan: Plan) -> bool:
        """Sends a request, and gives the answer to the cursors; returns whether records have come."""
        time = asyncio.get_running_loop().time
        try:
            send = self._cluster.send_aside if plan.is_aside else self._cluster.send
            answer = await send(plan.node, FetchRequest(plan.limits, plan.request))
            has_news = self.cursors.accept(plan, answer.read(), time())
        except asyncio.CancelledError:
            self.cursors.failed(plan, time())
            raise
        except IncompatibleBrokerVersion:
            text = f"node {plan.node} knows no fetch of Kafka 0.11 or newer: use a newer broker"
            self.cursors.unusable(plan, IncompatibleBrokerVersion(text))
            has_news = True
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("node %s answers no fetch: %r", plan.node, error, extra=REPEATS)
            self.cursors.failed(plan, time())
            return False
        except Exception as error:  # noqa: BLE001 - it would end all fetching
            log.warning("an answer of node %s cannot be used: %r", plan.node, error)
            self.cursors.unusable(plan, _unusable(error))
            has_news = True
        self.answers += 1
        return has_news

    async def fetch_alone(self, cursor: Cursor, max_wait: int) -> PartitionAnswer:
        """What lies at a cursor's position, of its leader, beside everything else.

        Args:
            max_wait: milliseconds that the broker may wait for a byte.

        Raises:
            KafkaError, OSError, TimeoutError: there is no answer, or no leader.
            AnswerFormatError: the answer is none.
        """
        tp, size = cursor.tp, self._options.max_partition_bytes
        leader = self._cluster.leader_of(tp)
        if leader is None:
            self._cluster.refresh()
            raise LeaderNotAvailableError(tp)
        ask = {tp: Ask(cursor.topic_id, leader[1], cursor.position, -1, size)}
        request = single_request(ask)
        limits = FetchLimits(max_wait, 1, size, self._options.isolation)
        before: Doubt | None = None
        while True:
            part = await self._part(leader[0], FetchRequest(limits, request), tp)
            if not self._options.isolation or len(part.records) >= size:
                return part
            doubt = transactions_in_doubt(part.records, part.aborted, part.last_stable)
            if is_believed(doubt, before):
                return part
            before = doubt

    async def _part(self, node: int, request: FetchRequest, tp: TopicPartition) -> PartitionAnswer:
        answer: FetchAnswer = await self._cluster.send(node, request)
        for part in answer.read().partitions:
            if part.partition == tp.partition:
                return part
        raise AnswerFormatError(f"node {node} does not answer of {tp.topic}[{tp.partition}]")

    async def aclose(self) -> None:
        """Ends what is under way. Never raises.

        The brokers find out by themselves that a session is over: to tell them would take until they have
        answered what is under way.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._cluster.remove_listener(self._on_metadata)
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _unusable(cause: Exception) -> Exception:
    error: Exception = CorruptRecordException(f"no answer: {cause!r}")
    error.__cause__ = cause
    return error
