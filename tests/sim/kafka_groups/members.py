"""The members of a simulated group, by its protocol."""

from __future__ import annotations

import random
from collections.abc import Mapping
from uuid import UUID

from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.adapters.kafka.groups.consumer_member import ConsumerMember
from consumer_sdk.adapters.kafka.groups.member import Member, TopicPartition
from consumer_sdk.adapters.kafka.groups.subscriptions import read_assignment
from tests.sim.kafka_groups.plan import GroupPlan

__all__ = ["decode_assignment", "make_member"]


ASSIGNORS: Mapping[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def make_member(plan: GroupPlan, group: str, slot: int, chance: random.Random) -> Member:
    """A new one."""
    if plan.protocol == "consumer":
        topics, pattern = plan.subscription
        return ConsumerMember(
            group,
            topics=topics,
            pattern=pattern or None,
            rebalance_timeout=plan.rebalance_timeout,
            session_timeout=plan.session_timeout,
            instance_id=plan.instance_id(slot),
            assignor=plan.assignors[0],
            member_id=str(UUID(int=chance.getrandbits(128), version=4)),
        )
    return ClassicMember(
        group,
        [ASSIGNORS[name]() for name in plan.assignors_of(slot)],
        session_timeout=plan.session_timeout,
        rebalance_timeout=plan.rebalance_timeout,
        heartbeat_interval=plan.heartbeat_interval,
        instance_id=plan.instance_id(slot),
    )


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """What the bytes of a classic assignment say."""
    return frozenset(read_assignment(data, "the simulation").partitions) if data else frozenset()
