"""The subscription of range reads, on a real Pulsar: what it keeps, and where a commit moves it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import OutcomeKind, Partition, Position, StartPoint
from tests.adapters.pulsar.ranges.stage import Stage, consuming

if TYPE_CHECKING:
    from consumer_sdk.adapters.pulsar.ranges import PulsarRanges
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

SENT = [b"%d" % number for number in range(6)]


async def standing(ranges: PulsarRanges, partition: Partition) -> Position | None:
    """Where the subscription stands."""
    return (await ranges.positions([partition], StartPoint.BROKER))[partition]


END = b"end"
PATIENCE = 300_000
"""Milliseconds."""


async def left(stage: Stage) -> list[bytes]:
    """What a consumer of the subscription gets, acking nothing; a record is put behind it."""
    await stage.produce([END])

    def found() -> list[bytes]:
        with consuming(stage, "g") as consumer:
            return list(iter(lambda: consumer.receive(PATIENCE).data(), END))

    return await asyncio.to_thread(found)


async def test_opening_makes_the_subscription_at_the_earliest_record(stage: Stage) -> None:
    """What lies in the topic already is kept for who reads it."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        assert await standing(ranges, stage.partition) == (*places[0][:2], 0)
    assert await left(stage) == SENT


async def test_opening_leaves_a_subscription_where_it_stands(stage: Stage) -> None:
    """Opening again, also after a commit, moves nothing."""
    places = await stage.produce(SENT)
    for _ in range(2):
        async with stage.open(subscription="g") as ranges:
            await ranges.commit({stage.partition: places[3]})
    assert await left(stage) == SENT[3:]


async def test_a_subscription_that_begins_at_the_latest_has_no_backlog(stage: Stage) -> None:
    """Where the first run is to begin at the latest record, nothing older is kept."""
    await stage.produce(SENT)
    async with stage.open(subscription="g", initial_position="latest"):
        assert await stage.server.backlog(stage.topic, "g") == 0


@pytest.mark.parametrize("done", range(7))
async def test_commit_acks_exactly_what_lies_below(stage: Stage, done: int) -> None:
    """Of unbatched records: the next one to be read is the first that a consumer gets."""
    places = await stage.produce(SENT)
    after = (places[-1][0], places[-1][1] + 1, 0)
    async with stage.open(subscription="g") as ranges:
        position = [*places, after][done]
        outcome = (await ranges.commit({stage.partition: position}))[stage.partition]
        assert outcome.kind is OutcomeKind.SENT
        assert (await standing(ranges, stage.partition) or ())[:2] == position[:2]
    assert await left(stage) == SENT[done:]


async def test_commit_in_a_batch_leaves_the_batch(stage: Stage) -> None:
    """The ack never covers more than the position: a batch of which a part is done comes whole."""
    await stage.produce([b"before"])
    places = await stage.produce(SENT, batch=True)
    assert places[0][1] == places[5][1]
    async with stage.open(subscription="g") as ranges:
        await ranges.commit({stage.partition: places[4]})
        assert await standing(ranges, stage.partition) == (*places[0][:2], 0)
    assert await left(stage) == SENT


async def test_commit_behind_a_batch_leaves_nothing_of_it(stage: Stage) -> None:
    """The position after a batch's last record is the next entry's begin, and acks all of it."""
    places = await stage.produce(SENT, batch=True)
    await stage.produce([b"after"])
    async with stage.open(subscription="g") as ranges:
        await ranges.commit({stage.partition: (places[5][0], places[5][1] + 1, 0)})
    assert await left(stage) == [b"after"]


async def test_a_batch_of_which_somebody_acked_a_part_is_behind_the_position(stage: Stage) -> None:
    """The subscription stands at that batch; a commit in it keeps what nobody acked."""
    places = await stage.produce(SENT, batch=True)
    async with stage.open(subscription="g") as ranges:
        with consuming(stage, "g", batch_index_ack_enabled=True) as consumer:
            for _ in range(2):
                consumer.acknowledge(consumer.receive(PATIENCE))
        assert await standing(ranges, stage.partition) == (*places[0][:2], 0)
        await ranges.commit({stage.partition: places[4]})
        assert set(await left(stage)) >= set(SENT[2:])


async def test_commit_waits_for_one_that_holds_it_for_a_moment(stage: Stage) -> None:
    """Another process that commits or opens is no other member."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as one, stage.open(subscription="g") as other:
        found = await asyncio.gather(
            *(one.commit({stage.partition: place}) for place in places[:3]),
            *(other.commit({stage.partition: place}) for place in places[3:]),
        )
        assert {each[stage.partition].kind for each in found} == {OutcomeKind.SENT}
        assert await standing(one, stage.partition) == (*places[5][:2], 0)


async def test_commit_never_goes_back(stage: Stage) -> None:
    """An older position, also from another process, moves nothing."""
    places = await stage.produce(SENT)
    for position in (places[4], places[1]):
        async with stage.open(subscription="g") as ranges:
            outcome = (await ranges.commit({stage.partition: position}))[stage.partition]
            assert outcome.kind is OutcomeKind.SENT
            assert await standing(ranges, stage.partition) == (*places[4][:2], 0)
    assert await left(stage) == SENT[4:]


async def test_commit_at_the_begin_of_a_ledger_acks_the_ones_before(stage: Stage) -> None:
    """A stop may be a ledger's begin: all that lies below it is done, and nothing else."""
    await stage.produce(SENT[:3])
    await stage.server.unload(stage.topic)
    places = await stage.produce(SENT[3:])
    assert places[0][1] == 0
    async with stage.open(subscription="g") as ranges:
        await ranges.commit({stage.partition: (places[0][0], 0, 0)})
        assert await standing(ranges, stage.partition) == (places[0][0], 0, 0)
    assert await left(stage) == SENT[3:]


async def test_commit_is_kept_by_an_unload(stage: Stage) -> None:
    """It moves the broker's durable cursor."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        await ranges.commit({stage.partition: places[2]})
        await stage.server.unload(stage.topic)
        assert await standing(ranges, stage.partition) == (*places[2][:2], 0)


async def test_commit_while_another_holds_it_is_fenced(stage: Stage) -> None:
    """It raises nothing, moves nothing, and works once the other is gone."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        with consuming(stage, "g"):
            outcome = (await ranges.commit({stage.partition: places[3]}))[stage.partition]
            assert outcome.kind is OutcomeKind.FENCED
            assert await standing(ranges, stage.partition) == (*places[0][:2], 0)
        outcome = (await ranges.commit({stage.partition: places[3]}))[stage.partition]
        assert outcome.kind is OutcomeKind.SENT
        assert await standing(ranges, stage.partition) == (*places[3][:2], 0)


async def test_commit_of_a_deleted_topic_is_gone(stage: Stage) -> None:
    """It is told, and does not make the topic again."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        await stage.server.delete_topic(stage.topic)
        outcome = (await ranges.commit({stage.partition: places[3]}))[stage.partition]
        assert outcome.kind is OutcomeKind.GONE
        assert stage.topic not in await stage.server.topics()


async def test_opening_while_another_holds_it_works(stage: Stage) -> None:
    """The subscription is there, which is all that opening needs."""
    with consuming(stage, "g"):
        async with stage.open(subscription="g") as ranges:
            assert await ranges.partitions() == [stage.partition]


async def test_between_commits_others_may_use_the_subscription(stage: Stage) -> None:
    """Nothing is held after a commit."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        await ranges.commit({stage.partition: places[1]})
        assert await left(stage) == SENT[1:]


async def test_commits_at_the_same_time_are_not_in_each_others_way(stage: Stage) -> None:
    """One connection's commits of a partition take turns."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        found = await asyncio.gather(
            *(ranges.commit({stage.partition: place}) for place in reversed(places))
        )
        assert {each[stage.partition].kind for each in found} == {OutcomeKind.SENT}
        assert await standing(ranges, stage.partition) == (*places[5][:2], 0)


async def test_commit_without_a_subscription_is_fenced(stage: Stage) -> None:
    """There is no position to move; nothing is raised."""
    places = await stage.produce(SENT)
    async with stage.open() as ranges:
        outcome = (await ranges.commit({stage.partition: places[1]}))[stage.partition]
        assert outcome.kind is OutcomeKind.FENCED
        with pytest.raises(ConfigurationError, match="give subscription="):
            await ranges.positions([stage.partition], StartPoint.BROKER)


async def test_commit_of_a_closed_reader_is_fenced(stage: Stage) -> None:
    """A late commit raises nothing, and moves nothing."""
    places = await stage.produce(SENT)
    async with stage.open(subscription="g") as ranges:
        pass
    outcome = (await ranges.commit({stage.partition: places[1]}))[stage.partition]
    assert outcome.kind is OutcomeKind.FENCED
    assert await left(stage) == SENT


async def test_commit_without_the_admin_url_moves_it_too(stage: Stage) -> None:
    """Only where it stands then is not known."""
    places = await stage.produce(SENT)
    async with stage.open(admin=False, subscription="g") as ranges:
        outcome = (await ranges.commit({stage.partition: places[2]}))[stage.partition]
        assert outcome.kind is OutcomeKind.SENT
    assert await left(stage) == SENT[2:]


async def test_where_it_stands_needs_the_admin_url(stage: Stage) -> None:
    """The client does not tell where a cursor is."""
    async with stage.open(admin=False, subscription="g") as ranges:
        with pytest.raises(ConfigurationError, match="give admin_url="):
            await ranges.positions([stage.partition], StartPoint.BROKER)


async def test_new_partitions_are_seen_and_kept(pulsar_server: PulsarServer) -> None:
    """Those that come later have the subscription from their first record on."""
    stage = Stage(pulsar_server)
    await stage.create(1)
    async with stage.open(subscription="g", initial_position="latest", seen_within=0.001) as ranges:
        assert await ranges.partitions() == [Partition(stage.topic, "0")]
        await stage.grow(12)
        await stage.produce([b"%d" % number for number in range(24)])
        found = await ranges.partitions()
        assert found == [Partition(stage.topic, str(number)) for number in range(12)]
        stands = await ranges.positions(found[1:], StartPoint.BROKER)
        assert all(place is not None and place[1:] == (0, 0) for place in stands.values())
