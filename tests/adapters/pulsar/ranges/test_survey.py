"""What a look at many ends costs, and which end may be read; on a real Pulsar where one is needed."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.ranges.locating import Survey, look_cost
from consumer_sdk.records import Partition, StartPoint
from consumer_sdk.testing.servers import PulsarServer
from tests.adapters.pulsar.ranges.stage import Stage

TOPIC = "persistent://public/default/t"
PARTITIONS = [Partition(TOPIC, str(number)) for number in range(3)]


@pytest.mark.pulsar
async def test_a_look_without_news_is_one_request(pulsar_server: PulsarServer) -> None:
    """However many partitions the topic has; what is new is seen at once."""
    stage = Stage(pulsar_server)
    await stage.create(12)
    async with stage.open(seen_within=60) as ranges:
        partitions = await ranges.partitions()
        await stage.produce([b"x"] * 24)
        before = await ranges.positions(partitions, StartPoint.LATEST)
        assert sum(place[1] for place in before.values() if place) == 24
        sent = ranges.admin_calls
        for _ in range(5):
            assert await ranges.partitions() == partitions
            assert await ranges.positions(partitions, StartPoint.LATEST) == before
        assert ranges.admin_calls - sent == 5
        await stage.produce([b"x"])
        after = await ranges.positions(partitions, StartPoint.LATEST)
        assert sum(before[each] != after[each] for each in partitions) == 1
        assert ranges.requests_per_look == 2


@pytest.mark.pulsar
@pytest.mark.parametrize("at", [StartPoint.EARLIEST, StartPoint.LATEST, StartPoint.BROKER])
async def test_all_partitions_at_once_stand_where_each_alone_does(
    pulsar_server: PulsarServer, at: StartPoint
) -> None:
    """With several ledgers, an unloaded topic, and partitions without a record."""
    stage = Stage(pulsar_server)
    await stage.create(4)
    for count in (1, 2):
        await stage.produce([b"x"] * count)
        await stage.server.unload(stage.topic)
    async with stage.open(subscription="g") as ranges:
        partitions = await ranges.partitions()
        together = await ranges.positions(partitions, at)
        for each in partitions:
            assert await ranges.positions([each], at) == {each: together[each]}


class Answers(Admin):
    """A broker with entries that nobody may read yet, as those of a transaction that is open."""

    def __init__(self) -> None:
        super().__init__("http://nowhere:1")
        self.written = dict.fromkeys(PARTITIONS, 4)
        self.readable = dict(self.written)
        self.asked = 0

    async def of_all(self, topic: str) -> dict[str, dict[str, Any]]:
        return {
            f"{topic}-partition-{each.id}": {"lastConfirmedEntry": f"7:{entry}"}
            for each, entry in self.written.items()
        }

    async def after_last(self, topic: str) -> Place | None:
        self.asked += 1
        number = int(topic.rpartition("-")[2])
        return 7, self.readable[PARTITIONS[number]] + 1, 0


async def test_an_end_behind_what_may_be_read_is_not_taken() -> None:
    """Else a range would end beyond a transaction's records, which come when it is committed."""
    answers = Answers()
    survey = Survey(answers, "g")
    assert await ends(survey) == [5, 5, 5]
    answers.written[PARTITIONS[1]] = 9
    for _ in range(2):
        assert await ends(survey) == [5, 5, 5]
    answers.readable[PARTITIONS[1]] = 9  # it was committed: nothing more was written
    assert await ends(survey) == [5, 10, 5]
    asked = answers.asked
    assert await ends(survey) == [5, 10, 5]
    assert answers.asked == asked
    answers.close()


async def ends(survey: Survey) -> list[int]:
    """The entry after the last of each partition."""
    found = await survey.find(PARTITIONS, StartPoint.LATEST)
    return [place[1] for place in found.values() if place]


@pytest.mark.parametrize(
    "count,topics,has_admin,cost",
    [(1, 1, True, 1), (9, 1, True, 1), (100, 1, True, 11), (3, 3, True, 3), (2, 1, False, 8)],
)
def test_a_look_costs_by_topics_or_by_partitions(
    count: int,
    topics: int,
    has_admin: bool,  # noqa: FBT001 - a column of the table
    cost: int,
) -> None:
    """The broker asks each partition for us; readers look at one each."""
    partitions = [Partition(f"t{number % topics}", str(number)) for number in range(count)]
    assert look_cost(partitions, has_admin=has_admin) == cost
