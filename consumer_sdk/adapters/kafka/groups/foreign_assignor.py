"""Adapts an assignor that was written for aiokafka, by users or by aiokafka itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from consumer_sdk.adapters.kafka.groups.assignors import Assignor, GroupMember
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Claims,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)

__all__ = ["ForeignAssignor"]


class ForeignAssignor(Assignor):
    """Plays a class of the option ``partition_assignment_strategy``. It is eager: aiokafka has no other.

    What the class raises flies unchanged.

    Args:
        foreign: a subclass of aiokafka's ``AbstractPartitionAssignor``; its methods are the class's own.
    """

    def __init__(self, foreign: Any) -> None:
        self._foreign = foreign
        self.name = foreign.name

    def subscription(self, held: Subscription, given: Claims) -> Subscription:  # noqa: ARG002 - it remembers its own
        """Topics and user data as the class says them."""
        said = self._foreign.metadata(sorted(held.topics))
        data = said if isinstance(said, bytes) else said.encode()
        own = read_subscription(data, "of this consumer")
        return Subscription(own.topics, own.user_data, held.owned, held.generation, held.rack)

    def assign(
        self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]
    ) -> dict[str, Assignment]:
        """See `Assignor.assign`."""
        said = {name: _metadata(each.subscription) for name, each in members.items()}
        found = self._foreign.assign(_Cluster(partitions), said)
        return {name: _assignment(found[name], name) for name in members if name in found}

    def assigned(self, assignment: Assignment, generation: int) -> None:
        """Tells the class, as aiokafka does; ``sticky`` wants to know the generation too."""
        data = write_assignment(assignment, version=0)
        self._foreign.on_assignment(ConsumerProtocolMemberAssignment.decode(data))
        if hasattr(self._foreign, "on_generation_assignment"):
            self._foreign.on_generation_assignment(generation)


def _metadata(subscription: Subscription) -> ConsumerProtocolMemberMetadata:
    return ConsumerProtocolMemberMetadata(0, sorted(subscription.topics), subscription.user_data)


def _assignment(found: Any, member: str) -> Assignment:
    return read_assignment(found if isinstance(found, bytes) else found.encode(), member)


class _Cluster(ClusterMetadata):  # type: ignore[misc]  # the client has no types
    """As much of the cluster as an assignor asks for; each partition counts as led."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        super().__init__()
        self._counts = partitions

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:  # noqa: ARG002, FBT001, FBT002 - as aiokafka's
        return set(self._counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.partitions_for_topic(topic)
