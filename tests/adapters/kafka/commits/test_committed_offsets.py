"""Checkpoints in the commits of a real Kafka: its limit, its tools, other programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, OffsetMetadataTooLargeError

from consumer_sdk.adapters.kafka.commits.metadata import ALPHABET, HEAD_SIZE, MOST, at_offset
from consumer_sdk.adapters.kafka.commits.structs import (
    OffsetCommitById,
    OffsetCommitByName,
    OffsetEntry,
)
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    AtPosition,
    Checkpoint,
    Committed,
    Outcome,
    Start,
    StartPoint,
)
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.conformance.adapters.harness import Member
from consumer_sdk.testing.pytest_plugin import _running, _skip_when_external
from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.groups.asking import line_to
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import World, coordinator_of, flush_of

pytestmark = pytest.mark.kafka

HOLED = Checkpoint(4, 5, ((7, 9), (12, 40)), {5: (3, 1_700_000_000.0)})
WIDE = Checkpoint(4, 5, tuple((n, n) for n in range(7, 80_007, 2)))
FAR = Checkpoint(4, 5, tuple((n * 50_021, n * 50_021 + 30_011) for n in range(1, 2_000)))
"""Its bits are so mixed that a character of them takes three bytes."""


async def read_back(member: Member, assignment: Assignment) -> Committed:
    """What the next owner would find."""
    found = (await member.adapter.committed([assignment]))[assignment]
    assert found is not None
    return found


def without_identity(committed: Committed) -> Committed:
    """As it was before it was bound to a topic's id."""
    return replace(committed, checkpoint=replace(committed.checkpoint, identity=None))


async def commit(member: Member, assignment: Assignment, checkpoint: Checkpoint) -> Outcome:
    """Commits a checkpoint of the topic as it is."""
    identity = member.adapter.identity(assignment)
    flush = AckFlush(assignment, 1, replace(checkpoint, identity=identity))
    (outcome,) = await member.adapter.commit([flush])
    return outcome


async def test_ranges_and_attempts_come_back_to_the_next_owner(world: World) -> None:
    """A restart without a store redelivers what was not settled, and counts on."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        assert await commit(member, held, HOLED) == Outcome.durable()
        assert await world.offsets(topic) == {0: 5}
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        committed = await read_back(member, held)
    assert committed.checkpoint.identity
    assert without_identity(committed) == Committed(HOLED, is_copy=False)


async def test_commit_tells_the_epoch_of_what_was_read(world: World) -> None:
    """KIP-320: Java's consumers read it, too."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, [Record(b"1"), Record(b"2")])
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await member.read(2)
        await member.adapter.commit([flush_of(held, 2)])
        tp = TopicPartition(topic, 0)
        assert (await coordinator_of(member).committed([tp]))[tp].epoch == 0


@pytest.mark.parametrize("start", [StartPoint.BROKER, AtPosition(2)])
async def test_position_of_another_past_of_the_log_is_out_of_range(
    world: World, start: Start
) -> None:
    """Its leader lost what was committed, and knows nothing of that epoch: records have come in its place."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, [Record(b"%d" % n) for n in range(4)])
    await world.commit_as_another(
        topic, {0: (2, "")}
    )  # a broker that is new has no coordinator yet
    entries = {topic: [OffsetEntry(0, 2, 7)]}
    async with line_to(world.kafka.servers, world.group_id) as line:
        request = OffsetCommitByName(world.group_id, -1, "", None, entries)
        assert (await line.send(request)).topics == [(topic, [(0, 0)])]
    owner = world.owner()
    owner.start = start
    async with world.member(topic, owner) as member:
        (held,) = await member.holding(1)
        run = await member.read_fault()
        assert isinstance(run.fault, PositionOutOfRangeError)
        member.adapter.drop(held)  # as the runtime does, if `out_of_range` lets it go on
        assert [message.value for message in await member.read(2)] == [b"2", b"3"]


async def test_brokers_that_commit_by_name_carry_checkpoints_as_well(world: World) -> None:
    """Before Kafka 4.1: the request and its fence are others, what it says is the same."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        real = coordinator_of(member).send

        async def refuse_ids(request: Any) -> Any:
            if isinstance(request, OffsetCommitById):
                raise IncompatibleBrokerVersion
            return await real(request)

        coordinator_of(member).send = refuse_ids
        assert await commit(member, held, HOLED) == Outcome.durable()
        assert without_identity(await read_back(member, held)) == Committed(HOLED, is_copy=False)


async def test_all_code_points_come_back_and_the_limit_is_exact(world: World) -> None:
    """4 096 characters of any 15 bits pass; one more is refused."""
    topic = await world.kafka.create_stream(8)
    texts = {p: "".join(map(chr, ALPHABET[p * MOST : (p + 1) * MOST])) for p in range(8)}
    await world.commit_as_another(topic, {p: (p, text) for p, text in texts.items()})
    assert await world.metadata(topic) == texts
    with pytest.raises(OffsetMetadataTooLargeError):
        await world.commit_as_another(topic, {0: (1, texts[0] + "Ā")})


async def test_overflow_fills_the_limit_and_the_rest_is_said_to_be_open(world: World) -> None:
    """T8: forty thousand holes: the lowest ranges are kept, the commit is not refused."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        outcome = await commit(member, held, WIDE)
        kept = (await read_back(member, held)).checkpoint.ranges
    assert outcome == Outcome.durable(kept[-1][1])
    assert kept == WIDE.ranges[: len(kept)]
    assert len(kept) > 30_000
    assert MOST - 4 <= len((await world.metadata(topic))[0]) <= MOST


async def test_ninety_partitions_full_of_holes_are_committed_at_once(world: World) -> None:
    """All metadata of a request lands in one batch of the broker's, which takes 1 MiB."""
    topic = await world.kafka.create_stream(90)
    # The loop is busy with that for longer than the suite's session, where the machine is busy too.
    async with world.member(topic, session_timeout=60.0) as member:
        held = await member.holding(90)
        outcomes = await member.adapter.commit([AckFlush(a, 1, FAR) for a in held])
        assert {outcome.kind.value for outcome in outcomes} == {"durable"}
        assert {outcome.covered is None for outcome in outcomes} == {False}
        found = await member.adapter.committed(held)
    assert all(c and len(c.checkpoint.ranges) > 1_000 for c in found.values())
    texts = (await world.metadata(topic)).values()
    assert sum(len(text.encode()) for text in texts) > 2**20


async def test_reset_by_another_program_is_foreign_and_the_next_commit_is_not(
    world: World,
) -> None:
    """Kafka's own tools write an offset without metadata."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await commit(member, held, HOLED)
    await world.commit_as_another(topic, {0: (5, "")})
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        assert await read_back(member, held) == Committed(at_offset(5), is_foreign=True)
        await member.adapter.commit([flush_of(held, 5)])
        assert await read_back(member, held) == Committed(at_offset(5), is_copy=False)


@pytest.mark.parametrize("is_copy", [False, True])
async def test_commit_says_to_the_next_owner_whether_a_store_has_it(
    world: World, *, is_copy: bool
) -> None:
    """And to people: lag tools print the word."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await member.adapter.commit([AckFlush(held, 1, at_offset(5), is_copy=is_copy)])
        assert await read_back(member, held) == Committed(at_offset(5), is_copy=is_copy)
    assert ("copy" in (await world.metadata(topic))[0]) == is_copy


async def test_commit_copied_to_another_group_or_offset_is_foreign_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Tools copy the metadata, too; its ranges are of another group, or of before the reset."""
    topic = await world.kafka.create_stream(2)
    async with world.member(topic) as member:
        held = {a.partition.id: a for a in await member.holding(2)}
        await commit(member, held["0"], HOLED)
    (text,) = (await world.metadata(topic)).values()
    await world.commit_as_another(topic, {0: (3, text), 1: (5, text)})
    await world.commit_as_another(topic, {0: (5, text)}, group="copy")
    async with world.member(topic) as member:
        held = {a.partition.id: a for a in await member.holding(2)}
        for number, offset in (("0", 3), ("1", 5)):
            caplog.clear()
            committed = await read_back(member, held[number])
            assert committed == Committed(at_offset(offset), is_foreign=True)
            (warning,) = [r for r in caplog.messages if "metadata" in r]
            assert f"{topic}/{number}" in warning
    async with world.member(topic, group="copy") as member:
        held = {a.partition.id: a for a in await member.holding(2)}
        assert await read_back(member, held["0"]) == Committed(at_offset(5), is_foreign=True)


async def test_metadata_cut_off_by_a_tool_leaves_the_offset_that_it_vouches_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """T9: the head is whole, the rest is not: ours, and one warning."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await commit(member, held, HOLED)
    text = (await world.metadata(topic))[0]
    await world.commit_as_another(topic, {0: (5, text[:-3])})
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        caplog.clear()
        assert await read_back(member, held) == Committed(
            at_offset(5), is_copy=False, is_partial=True
        )
        assert len([r for r in caplog.messages if "metadata" in r]) == 1


async def test_offset_does_not_survive_its_topic_and_ranges_that_do_are_dropped(
    world: World,
) -> None:
    """Written back onto the topic that was made again: of other records, whatever they settle."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await commit(member, held, HOLED)
    text = (await world.metadata(topic))[0]
    await world.kafka.recreate(topic)
    async with asyncio.timeout(world.kafka.patience):
        while await world.offsets(topic):
            await asyncio.sleep(0.02)
    await world.commit_as_another(topic, {0: (5, text)})
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        there = Committed(at_offset(5), is_copy=False, is_partial=True)
        assert await read_back(member, held) == there


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(0, marks=pytest.mark.campaign),
        48,
        pytest.param(100, marks=pytest.mark.campaign),
    ],
)
def strict_server(request: pytest.FixtureRequest) -> Iterator[tuple[KafkaServer, int]]:
    """A Kafka that takes little metadata, or none."""
    _skip_when_external("CONSUMER_SDK_KAFKA")
    properties = {"offset.metadata.max.bytes": request.param, "group.min.session.timeout.ms": 300}
    with _running(KafkaServer(properties=properties)) as server:
        yield server, request.param


@pytest.fixture
async def strict(strict_server: tuple[KafkaServer, int]) -> AsyncIterator[World]:
    """A group there."""
    async with KafkaHarness(strict_server[0].bootstrap_servers) as harness:
        yield World(harness)


async def test_broker_with_another_limit_gets_what_fits_and_is_asked_once(
    strict: World, strict_server: tuple[KafkaServer, int], caplog: pytest.LogCaptureFixture
) -> None:
    """T8: one partition's error 12 is no other's; the commit that meets it succeeds."""
    limit = strict_server[1]
    topic = await strict.kafka.create_stream(3)
    async with strict.member(topic) as member:
        held = sorted(await member.holding(3), key=lambda a: a.partition.id)
        some = zip(held, [HOLED, WIDE, at_offset(5)], strict=True)
        outcomes = await member.adapter.commit([AckFlush(a, 1, c) for a, c in some])
        assert {outcome.kind.value for outcome in outcomes} == {"durable"}
        assert [outcome.covered for outcome in outcomes][2] is None
        assert outcomes[1].covered is not None
        assert (outcomes[0].covered is None) == (limit > HEAD_SIZE)
        assert await strict.offsets(topic) == {0: 5, 1: 5, 2: 5}
        assert max(map(len, (await strict.metadata(topic)).values())) <= limit
        assert len([r for r in caplog.messages if "offset.metadata.max.bytes" in r]) == 1


async def test_broker_without_room_for_a_mark_takes_no_commit_for_a_reset(
    strict: World, strict_server: tuple[KafkaServer, int]
) -> None:
    """A store's ranges would be dropped at each restart: our own commits have no mark there."""
    is_ours = strict_server[1] < HEAD_SIZE
    topic = await strict.kafka.create_stream()
    await strict.commit_as_another(topic, {0: (5, "")})
    async with strict.member(topic) as member:
        (held,) = await member.holding(1)
        there = Committed(at_offset(5), is_foreign=not is_ours)
        assert await read_back(member, held) == there


async def test_limit_is_known_once_the_adapter_is_open(
    strict: World, strict_server: tuple[KafkaServer, int]
) -> None:
    """Whoever asks what fits a commit need not wait for the first that is refused."""
    topic = await strict.kafka.create_stream()
    async with strict.member(topic) as member:
        assert member.adapter.capabilities.metadata_size == strict_server[1]


async def test_application_without_room_is_not_taken_for_none(
    strict: World, strict_server: tuple[KafkaServer, int]
) -> None:
    """Where there is room for the mark, it says that something is missing."""
    limit = strict_server[1]
    topic = await strict.kafka.create_stream()
    async with strict.member(topic) as member:
        (held,) = await member.holding(1)
        await commit(member, held, Checkpoint(4, 5, application="v" * 200))
        committed = await read_back(member, held)
    assert committed.checkpoint == at_offset(5)
    assert committed.is_partial == (limit > HEAD_SIZE)
