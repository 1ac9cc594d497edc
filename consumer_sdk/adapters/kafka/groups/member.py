"""A member of a consumer group as a state machine: no I/O, no clock, no event loop.

The runner sends the requests of `Member.poll`, passes the answers on, and carries out `Member.events`::

    request = member.poll(now)         one at a time; None: nothing is to be sent now
    member.answered(request, answer, now)   or member.failed(request, error, now)
    for event in member.events(): …
    member.released(tps)               when the owner of what was revoked has drained it

``now`` is in seconds of any clock that never goes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from consumer_sdk.adapters.kafka.groups.messages import Answer, Request

__all__ = [
    "Assigned",
    "CoordinatorLost",
    "Event",
    "Lost",
    "Member",
    "Refused",
    "Revoked",
    "TopicInfo",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What the cluster's metadata say of a topic."""

    topic_id: bytes
    partitions: int


# -- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member has these from now on, beside those that it keeps."""

    tps: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Revoked:
    """The owner is to drain these, then call `Member.released`; until then nobody else gets them."""

    tps: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Lost:
    """These may be another member's already: no commit, no dispatch.

    Attributes:
        reason: for the log: what has happened, and what to do.
    """

    tps: frozenset[TopicPartition]
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator is another one, or unknown: look it up before the next request."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The group does not take this member, and asking again would not help.

    Attributes:
        error: Kafka's code.
        message: the broker's own words, where it has some.
        offered: the member's assignors, where the group's members have none of these in common.
    """

    error: int
    message: str = ""
    offered: tuple[str, ...] = ()


Event: TypeAlias = Assigned | Revoked | Lost | CoordinatorLost | Refused


class Member(ABC):
    """One membership, from the first join to the leave."""

    @property
    @abstractmethod
    def member_id(self) -> str:
        """What commits carry; empty before the coordinator has given one."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The generation or member epoch that commits of *all* held partitions carry now; -1 for no member."""

    @property
    @abstractmethod
    def held_until(self) -> float:
        """When the group may have given the partitions to others; see `consumer_sdk.abc.Adapter.held_until`.

        A session begins when the last request that was answered was sent, not when its answer came.
        """

    @property
    @abstractmethod
    def held(self) -> frozenset[TopicPartition]:
        """Assigned, and neither released nor lost; those being drained count."""

    @abstractmethod
    def poll(self, now: float) -> Request | None:
        """The request to send now. While one is under way there is no other."""

    @abstractmethod
    def wake_at(self) -> float:
        """When `poll` is to be called at the latest, if nothing happens before; ``inf`` while it waits."""

    @abstractmethod
    def answered(self, request: Request, answer: Answer, now: float) -> None:
        """The coordinator answered."""

    @abstractmethod
    def failed(self, request: Request, now: float) -> None:
        """No answer came; the coordinator has carried the request out, or not."""

    @abstractmethod
    def events(self) -> list[Event]:
        """What has happened since the last call, in order."""

    @abstractmethod
    def released(self, tps: frozenset[TopicPartition], now: float) -> None:
        """The owner has drained what was revoked, or has given it up."""

    @abstractmethod
    def metadata_changed(self, topics: Mapping[str, TopicInfo], now: float) -> None:
        """The subscribed topics, as the cluster has them now; called before the first `poll`, and at each change.

        With a pattern that the client evaluates, these are those that match.
        """

    @property
    @abstractmethod
    def unknown_topic_ids(self) -> frozenset[bytes]:
        """Topics of the assignment that `metadata_changed` has not named: ask the cluster.

        Their partitions are neither assigned nor owned yet.
        """

    @property
    def group_topics(self) -> frozenset[str]:
        """Topics that only other members subscribe to, while this one shares them out as the group's leader.

        Ask the cluster for them too, and tell `group_metadata_changed`: the leader waits for that.
        """
        return frozenset()

    def group_metadata_changed(self, topics: Mapping[str, TopicInfo | None], now: float) -> None:  # noqa: B027 - where the broker leads, there are none
        """The `group_topics`, as the cluster has them now, at each change; None for one that it does not have."""

    @abstractmethod
    def leave(self, now: float) -> None:
        """Begins to leave. What is held has been drained, or counts as lost."""

    @property
    @abstractmethod
    def has_left(self) -> bool:
        """There is no more to send."""
