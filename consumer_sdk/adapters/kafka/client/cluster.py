"""One connection layer for everything that reads: a cluster's metadata, its coordinators, and requests to its nodes.

It stands on the client's connections and protocol structs alone (`aiokafka.conn`, `aiokafka.protocol`). Errors are the
client's, all of them ``KafkaError``: `faults.translate` makes the SDK's of them, and says which of them may pass.

A request that is cancelled leaves its connection as it was: the answer is dropped when it comes. One that is not answered in
its time ends the connection, since what is asked next would wait behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.cluster_metadata import ClusterMetadata, Leader
from consumer_sdk.adapters.kafka.client.topics import Topic

__all__ = ["Channel", "Cluster", "Coordinator", "CoordinatorKind", "GroupOffset"]


class Channel(Enum):
    """A connection to a node for requests of one kind: a broker answers one request of a connection after another."""

    QUESTIONS = "questions"
    COORDINATION = "coordination"
    """Heartbeats and commits, which may never wait."""
    JOINS = "joins"
    """Answered when all members have asked: a heartbeat or commit sent meanwhile would wait behind."""
    FETCHES = "fetches"
    """The broker waits for records."""


class CoordinatorKind(IntEnum):
    """As FindCoordinator has them."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Whoever coordinates a group, or a transactional id, now."""

    key: str
    kind: CoordinatorKind = CoordinatorKind.GROUP


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has committed.

    Attributes:
        epoch: of the leader, as the commit told it; -1 for none.
    """

    offset: int
    metadata: str
    epoch: int = -1


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

    metadata: ClusterMetadata
    calls: int

    def __init__(self, options: Mapping[str, Any], topics: Collection[str] | None = ()) -> None:
        raise NotImplementedError

    async def open(self, timeout: float) -> None:
        """Connects to the first bootstrap server that answers, and learns who leads what.

        Raises:
            ConfigurationError: a listener was reached that speaks another ``security_protocol``.
            AdapterError: none can be reached within ``timeout`` seconds, or it refused.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Closes every connection, in bounded time. Never raises."""
        raise NotImplementedError

    # -- metadata -------------------------------------------------------------------------------

    def watch(self, topics: Collection[str] | None) -> None:
        """Other topics to ask for, None for all; takes effect with the next refresh, which it does not ask for."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Fresh metadata of what is watched; whoever asks meanwhile waits for the same answer. Never creates a topic.

        Raises:
            KafkaError: no broker gave any.
        """
        raise NotImplementedError

    def request_refresh(self) -> None:
        """The same, soon and in the background; however often it is called, at a pace."""
        raise NotImplementedError

    def add_listener(self, listener: Callable[[ClusterMetadata], None]) -> None:
        """Has a function called after each answer that changed something."""
        raise NotImplementedError

    def remove_listener(self, listener: Callable[[ClusterMetadata], None]) -> None:
        """Ends that; idempotent."""
        raise NotImplementedError

    def leader_of(self, tp: TopicPartition) -> Leader:
        """(node, epoch) of who leads a partition, by the last metadata.

        Raises:
            KafkaError: it is not known, or there is none at the moment: `refresh`, and ask again.
        """
        raise NotImplementedError

    def is_gone(self, tp: TopicPartition) -> bool:
        """See `ClusterMetadata.is_gone`."""
        raise NotImplementedError

    def topic_id(self, topic: str) -> bytes | None:
        """See `ClusterMetadata.topic_id`."""
        raise NotImplementedError

    async def describe_topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """What a broker says of topics now, absent ones too; None: of all. `metadata` stays as it is.

        Raises:
            KafkaError: no broker answered, or it refused.
        """
        raise NotImplementedError

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
            to: a node; a coordinator, which is looked up if need be; None: any node.
            request: one of the client's ``Request``s; its newest version that the node knows is sent.
            channel: by default `COORDINATION` for a coordinator, else `QUESTIONS`.
            timeout: seconds to wait for the answer, instead of ``request_timeout_ms``.

        Raises:
            KafkaError: there is no connection, or no answer in time; or the node has no version of this request
                (``IncompatibleBrokerVersion``); or the coordinator is not known.
        """
        raise NotImplementedError

    async def coordinator(self, of: Coordinator) -> int:
        """The node that coordinates; asked once, until `forget`.

        Raises:
            KafkaError: it is not available at the moment, or this principal may not know.
        """
        raise NotImplementedError

    def forget(self, coordinator: Coordinator) -> None:
        """It is another one: an answer said so (15, 16). What is sent to it next looks it up."""
        raise NotImplementedError

    async def versions(self, to: int | Coordinator | None) -> Mapping[int, tuple[int, int]]:
        """API key → the oldest and the newest version that a node knows.

        Raises:
            KafkaError: there is no connection to it.
        """
        raise NotImplementedError

    def why_away(self) -> str:
        """For messages: why the brokers cannot be connected to; empty if they can."""
        raise NotImplementedError

    # -- offsets --------------------------------------------------------------------------------

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, level: int = 0
    ) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, Exception]]:
        """Where times lie: one request to each leader.

        Args:
            times: `EARLIEST`, `LATEST`, or milliseconds since the epoch.
            level: 1: what lies behind an open transaction does not count.

        Returns:
            offsets, None where no record is that new; and why the others' are not known. What one leader answers is kept
            when another fails.
        """
        raise NotImplementedError

    async def committed(
        self, group: str, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        """What a group has committed; None for nothing.

        Raises:
            KafkaError: the coordinator did not answer, or refused.
        """
        raise NotImplementedError
