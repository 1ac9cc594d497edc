"""Assignors of aiokafka in the place of ours."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
)
from consumer_sdk.adapters.kafka.groups.foreign_assignor import ForeignAssignor
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Claims,
    Subscription,
    read_claims,
)
from tests.adapters.kafka.groups.java_groups import partitions

GROUP = {name: GroupMember(Subscription(frozenset({"a", "b"}))) for name in ("m1", "m2", "m3")}


@pytest.mark.parametrize(
    "foreign, ours",
    [
        (RangePartitionAssignor, RangeAssignor()),
        (RoundRobinPartitionAssignor, RoundRobinAssignor()),
    ],
)
def test_assignor_of_aiokafka_shares_out_as_ours(foreign: object, ours: Assignor) -> None:
    """Both do what Java does."""
    theirs = ForeignAssignor(foreign)
    assert (theirs.name, theirs.is_cooperative) == (ours.name, False)
    found = theirs.assign(GROUP, {"a": 4, "b": 3})
    expected = ours.assign(GROUP, {"a": 4, "b": 3})
    assert {m: each.partitions for m, each in found.items()} == {
        m: each.partitions for m, each in expected.items()
    }


def test_assignor_that_remembers_is_told_its_assignment() -> None:
    """And tells it to the next leader."""

    class Mine(StickyPartitionAssignor):  # type: ignore[misc]  # the client has no types
        """A class of this test's own: its state is the class's."""

    sticky, wanted = ForeignAssignor(Mine), Subscription(frozenset({"a"}))
    assert sticky.subscription(wanted, Claims()).user_data == b""
    sticky.assigned(Assignment(partitions("a:0,a:2")), 5)
    said = sticky.subscription(wanted, Claims())
    assert said.topics == {"a"}
    assert read_claims(said.user_data) == Claims(partitions("a:0,a:2"), 5)
    group = {"m1": GroupMember(said), "m2": GroupMember(wanted)}
    assert sticky.assign(group, {"a": 4})["m1"].partitions == partitions("a:0,a:2")


def test_class_sees_what_aiokafka_shows_it() -> None:
    """The cluster, subscriptions and an assignment; a member that it leaves out is given nothing."""
    seen: list[Any] = []

    class Mine(AbstractPartitionAssignor):  # type: ignore[misc]  # the client has no types
        """Looks at all that it is given."""

        name = "mine"

        @classmethod
        def metadata(cls, topics: Any) -> Any:
            return ConsumerProtocolMemberMetadata(0, list(topics), b"mine")

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> Any:
            seen.append(cluster.topics())
            seen.extend(cluster.available_partitions_for_topic(topic) for topic in ("a", "gone"))
            seen.extend(cluster.partitions_for_topic(topic) for topic in ("a", "gone"))
            seen.append(
                {name: (m.version, m.subscription, m.user_data) for name, m in members.items()}
            )
            return {"m1": ConsumerProtocolMemberAssignment(0, [("a", [1])], b"")}

        @classmethod
        def on_assignment(cls, assignment: Any) -> None:
            seen.append((assignment.version, assignment.assignment))

    mine = ForeignAssignor(Mine)
    said = mine.subscription(Subscription(frozenset({"b", "a"})), Claims())
    assert (said.topics, said.user_data) == (frozenset({"a", "b"}), b"mine")
    group = {"m1": GroupMember(said), "m2": GroupMember(Subscription(frozenset({"a"})))}
    found = mine.assign(group, {"a": 2})
    assert found == {"m1": Assignment(partitions("a:1"), b"")}
    mine.assigned(found["m1"], 5)
    assert seen == [
        *({"a"}, {0, 1}, None, {0, 1}, None),
        {"m1": (0, ["a", "b"], b"mine"), "m2": (0, ["a"], None)},
        (0, [("a", [1])]),
    ]


def test_topic_that_is_gone_has_no_partitions() -> None:
    """As aiokafka's own cluster says it."""
    found = ForeignAssignor(RangePartitionAssignor).assign(GROUP, {"a": 3})
    assert all(each.partitions <= partitions("a:0,a:1,a:2") for each in found.values())


def test_error_of_the_class_flies_unchanged() -> None:
    """It is user code."""

    class Broken(AbstractPartitionAssignor):  # type: ignore[misc]
        """Cannot share out."""

        name = "broken"

        @classmethod
        def assign(cls, *_: object) -> None:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        ForeignAssignor(Broken).assign(GROUP, {})
