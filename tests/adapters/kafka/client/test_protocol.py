"""Requests to commit: which version a broker gets, and what a real one makes of it."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters.kafka.commits.metadata import at_offset
from consumer_sdk.adapters.kafka.commits.structs import OffsetCommitByName, OffsetEntry
from consumer_sdk.records import AckFlush, OutcomeKind
from tests.adapters.kafka.world import World, coordinator_of

UNKNOWN_MEMBER, FENCED_INSTANCE = 25, 82


@pytest.mark.parametrize(
    "newest, version, topics",
    [
        (2, 2, [("t", [(0, 5, "text")])]),
        (3, 3, [("t", [(0, 5, "text")])]),
        (6, 3, [("t", [(0, 5, "text")])]),
        (7, 7, [("t", [(0, 5, 4, "text")])]),
        (8, 7, [("t", [(0, 5, 4, "text")])]),
        (9, 9, [("t", [(0, 5, 4, "text")])]),
        (10, 9, [("t", [(0, 5, 4, "text")])]),
    ],
)
def test_broker_gets_the_newest_version_by_name_that_it_knows(
    newest: int, version: int, topics: list[object]
) -> None:
    """Brokers before Kafka 2.3 have no static members, and are told of no leader's epoch."""
    request = OffsetCommitByName("g", 3, "me", "static", {"t": [OffsetEntry(0, 5, 4, "text")]})
    made = request.prepare({8: (2, newest)})
    assert (made.API_VERSION, made.topics) == (version, topics)
    assert getattr(made, "group_instance_id", None) == ("static" if version >= 7 else None)
    assert made.encode()


@pytest.mark.kafka
@pytest.mark.parametrize("instance, code", [("one", FENCED_INSTANCE), (None, UNKNOWN_MEMBER)])
async def test_commit_by_name_of_a_replaced_static_member_is_fenced(
    world: World, instance: str | None, code: int
) -> None:
    """The broker knows the place, and that somebody else has it now."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, group_instance_id="one") as member:
        await member.holding(1)
        coordinator = coordinator_of(member)
        request = OffsetCommitByName(
            f"{world.group}-{world.kafka.uid}",
            *(
                coordinator.stamp.epoch,
                "the one before",
                instance,
                {topic: [OffsetEntry(0, 5)]},
            ),
        )
        response = await coordinator.send(request)
        assert response.topics == [(topic, [(0, code)])]


@pytest.mark.kafka
async def test_static_member_commits_by_id(world: World) -> None:
    """What is fenced is the member that was replaced, not the one that did."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, group_instance_id="one") as member:
        (held,) = await member.holding(1)
        (outcome,) = await member.adapter.commit([AckFlush(held, 1, at_offset(5))])
        assert outcome.kind is OutcomeKind.DURABLE
