"""The group's position, moved by a reader that is no member."""

from __future__ import annotations

import pytest

from consumer_sdk.errors import AdapterError, ConfigurationError, PositionOutOfRangeError
from consumer_sdk.records import OutcomeKind, Partition, StartPoint
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.ranges.conftest import Opener
from tests.adapters.kafka.world import World, numbered

pytestmark = pytest.mark.kafka


def group_of(world: World) -> str:
    """The world's group, as the broker knows it."""
    return f"{world.group}-{world.kafka.uid}"


async def test_commit_moves_the_group_forward_only(world: World, ranges: Opener) -> None:
    """Trap T19: an older position is no error, and changes nothing."""
    topic = await world.kafka.create_stream(2)
    await world.kafka.append(topic, numbered(0, 10))
    reader = await ranges(topic, group=group_of(world))
    one, two = await reader.partitions()
    assert await reader.positions([one, two], StartPoint.BROKER) == {one: None, two: None}
    for position in (4, 7, 5):
        outcomes = await reader.commit({one: position, two: 0})
        assert {each.kind for each in outcomes.values()} == {OutcomeKind.DURABLE}
    assert await world.offsets(topic) == {0: 7, 1: 0}
    assert await reader.positions([one, two], StartPoint.BROKER) == {one: 7, two: 0}


async def test_commit_under_members_is_fenced(world: World, ranges: Opener) -> None:
    """The group's consumers alone say where it stands; once they have left, others may."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 10))
    reader = await ranges(topic, group=group_of(world))
    (one,) = await reader.partitions()
    async with world.member(topic) as member:
        await member.holding(1)
        outcome = (await reader.commit({one: 5}))[one]
        assert outcome.kind is OutcomeKind.FENCED
        assert "has members, who alone may commit" in str(outcome.error)
        assert isinstance(outcome.error, AdapterError)
    assert (await reader.commit({one: 5}))[one].kind is OutcomeKind.DURABLE


async def test_commit_beyond_the_end_is_refused(world: World, ranges: Opener) -> None:
    """The topic was made again: the old one's position would hide the new one's records."""
    topic = await world.kafka.create_stream(2)
    await world.kafka.append(topic, numbered(0, 3))
    reader = await ranges(topic, group=group_of(world))
    one, two = await reader.partitions()
    outcomes = await reader.commit({one: 3, two: 1})
    assert outcomes[one].kind is OutcomeKind.DURABLE
    assert outcomes[two].kind is OutcomeKind.GONE
    assert isinstance(outcomes[two].error, PositionOutOfRangeError)
    assert await world.offsets(topic) == {0: 3}


async def test_commit_of_a_topic_that_is_gone_says_so(world: World, ranges: Opener) -> None:
    """Siblings are committed; nothing creates the topic again."""
    gone, kept = await world.kafka.create_stream(), await world.kafka.create_stream()
    for topic in (gone, kept):
        await world.kafka.append(topic, numbered(0, 3))
    reader = await ranges([gone, kept], group=group_of(world))
    await world.kafka.delete(gone)
    await world.kafka.until_absent(gone)
    outcomes = await reader.commit({Partition(gone, "0"): 2, Partition(kept, "0"): 2})
    assert outcomes[Partition(gone, "0")].kind is OutcomeKind.GONE
    assert outcomes[Partition(kept, "0")].kind is OutcomeKind.DURABLE


async def test_commit_is_without_metadata(world: World, ranges: Opener) -> None:
    """Nothing is settled above it: an adapter of the group starts right there."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 10))
    reader = await ranges(topic, group=group_of(world))
    (one,) = await reader.partitions()
    await reader.commit({one: 6})
    assert await world.metadata(topic) == {0: ""}
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        committed = (await member.adapter.committed([held]))[held]
    assert committed is not None
    assert committed.checkpoint.resume == 6


async def test_without_a_group_nothing_is_committed(harness: KafkaHarness, ranges: Opener) -> None:
    """The outcome says which option is missing."""
    topic = await harness.create_stream()
    reader = await ranges(topic)
    (one,) = await reader.partitions()
    outcome = (await reader.commit({one: 0}))[one]
    assert outcome.kind is OutcomeKind.RETRY
    assert isinstance(outcome.error, ConfigurationError)
    assert await reader.positions([one], StartPoint.BROKER) == {one: None}


async def test_commit_of_nothing_is_nothing(world: World, ranges: Opener) -> None:
    """No request, no outcome."""
    topic = await world.kafka.create_stream()
    reader = await ranges(topic, group=group_of(world))
    before = reader.broker_calls
    assert await reader.commit({}) == {}
    assert reader.broker_calls == before


async def test_commit_of_a_closed_reader_is_no_error(world: World, ranges: Opener) -> None:
    """Spark trap 5: acks never fail a query."""
    topic = await world.kafka.create_stream()
    reader = await ranges(topic, group=group_of(world))
    (one,) = await reader.partitions()
    await reader.aclose()
    assert (await reader.commit({one: 0}))[one].kind is OutcomeKind.RETRY


async def test_group_that_the_broker_does_not_accept_is_no_error(
    world: World, ranges: Opener
) -> None:
    """Spark trap 5: the outcome carries it."""
    topic = await world.kafka.create_stream()
    reader = await ranges(topic, group="g" * 40_000)
    (one,) = await reader.partitions()
    outcome = (await reader.commit({one: 0}))[one]
    assert outcome.kind is not OutcomeKind.DURABLE
    assert isinstance(outcome.error, ConfigurationError)
