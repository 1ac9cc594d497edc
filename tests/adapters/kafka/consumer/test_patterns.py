"""Topics by a pattern, alone and in a group: those there are, those that come, those that go."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.adapters.kafka.world import World, numbered, values

pytestmark = pytest.mark.kafka


class Family:
    """Topics whose names begin alike, in a world of their own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.prefix = f"family-{world.kafka.uid}"
        self.options: dict[str, Any] = {"pattern": f"{self.prefix}-.*", "metadata_max_age_ms": 100}

    def name(self, rest: str) -> str:
        """The full name of a topic that the pattern matches."""
        return f"{self.prefix}-{rest}"

    async def make(self, name: str, first: int, last: int) -> str:
        """Makes a topic with numbered records."""
        await self.world.kafka.create_topic(name)
        await self.world.kafka.append(name, numbered(first, last))
        return name


@pytest.fixture
def family(world: World) -> Family:
    """Of this test's own."""
    return Family(world)


WAYS: list[dict[str, Any]] = [{"group": None}, {}]
CONSUMER: dict[str, Any] = {"protocol": "consumer"}


@pytest.mark.parametrize("way", WAYS, ids=["alone", "classic"])
async def test_whole_names_match_and_later_topics_are_read_too(
    family: Family, way: dict[str, Any]
) -> None:
    """As in Java; "x-family-…" only ends like the pattern."""
    await family.make(family.name("a"), 0, 3)
    await family.make(f"x-{family.name('a')}", 100, 103)
    async with family.world.member("", **family.options, **way) as member:
        assert [a.discovered for a in await member.holding(1)] == [False]
        assert values(await member.read(3)) == [0, 1, 2]
        await family.make(family.name("b"), 10, 13)
        found: list[int] = []
        while not {10, 11, 12} <= set(found):  # the classic group may grant "a" anew
            found += [value for run in await member.fetch() for value in values(run.messages)]
        assert set(found) <= {0, 1, 2, 10, 11, 12}
        held = {a.partition.stream: a for a in await member.holding(2)}
        assert held.keys() == {family.name("a"), family.name("b")}
        assert held[family.name("b")].discovered


@pytest.mark.parametrize("way", WAYS, ids=["alone", "classic"])
async def test_pattern_that_matches_nothing_yet_waits(
    family: Family, way: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a mistake, so that it is said."""
    async with family.world.member("", **family.options, **way) as member:
        assert "matches no topic" in caplog.text
        assert await member.fetch() == []
        await family.make(family.name("late"), 0, 2)
        assert values(await member.read(2)) == [0, 1]


async def test_broker_matches_whole_names_and_its_topics_are_found_by_their_ids(
    family: Family,
) -> None:
    """KIP-848: no member looks at the topics of the cluster."""
    await family.make(family.name("a"), 0, 3)
    await family.make(f"x-{family.name('a')}", 100, 103)
    async with family.world.member("", **family.options, **CONSUMER) as member:
        assert [a.discovered for a in await member.holding(1)] == [False]
        assert values(await member.read(3)) == [0, 1, 2]


@pytest.mark.campaign
async def test_broker_finds_later_topics_within_some_ten_seconds(family: Family) -> None:
    """It does not evaluate patterns more often."""
    await family.make(family.name("a"), 0, 3)
    async with family.world.member("", **family.options, **CONSUMER) as member:
        assert values(await member.read(3)) == [0, 1, 2]
        await family.make(family.name("b"), 10, 13)
        assert values(await member.read(3)) == [10, 11, 12]
        assert [a.discovered for a in await member.holding(2)] == [False, True]


async def test_topic_that_is_deleted_leaves_and_the_others_go_on(family: Family) -> None:
    """Alone there is no group that would take it away; its metadata would be asked for without end."""
    kept = await family.make(family.name("kept"), 0, 2)
    gone = await family.make(family.name("gone"), 10, 12)
    async with family.world.member("", group=None, **family.options) as member:
        await member.holding(2)
        assert sorted(values(await member.read(4))) == [0, 1, 10, 11]
        await family.world.kafka.delete(gone)
        await family.world.until("released", "member-1")
        (left,) = await member.holding(1)
        assert left.partition.stream == kept
        await family.world.kafka.append(kept, numbered(2, 4))
        assert values(await member.read(2)) == [2, 3]
        await family.make(gone, 20, 22)
        assert values(await member.read(2)) == [20, 21]


@pytest.mark.parametrize("way", [{"group": None}, CONSUMER], ids=["alone", "consumer"])
async def test_kafkas_own_topics_are_not_read(
    world: World, way: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A pattern for all topics is not meant for the group's offsets: each commit would be one more record."""
    caplog.set_level(logging.INFO)
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        await member.holding(1)  # so that there is a topic of offsets
    prefix = f"__consumer_.*|{topic}"
    async with world.member("", **way, pattern=prefix) as member:
        (held,) = await member.holding(1)
        assert held.partition.stream == topic
        assert len(member.owner.held) == 1
        is_held_unread = "are held, and not read" in caplog.text
        assert is_held_unread == (way is CONSUMER)
