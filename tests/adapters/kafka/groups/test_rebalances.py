"""Rebalances that stop only what moves, on a real Kafka: the consumer protocol, and cooperative classic groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.consumer import membership
from consumer_sdk.adapters.kafka.groups import messages, structs
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Assignment, OutcomeKind, StartPoint
from consumer_sdk.testing.conformance.adapters.harness import Member, open_member
from tests.adapters.kafka.aiokafka_member import AiokafkaMember
from tests.adapters.kafka.groups.asking import TRANSIENT, line_to
from tests.adapters.kafka.world import World, epoch_of, flush_of, numbered, runner_of, values

pytestmark = pytest.mark.kafka

CONSUMER: dict[str, Any] = {"protocol": "consumer"}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}
INCREMENTAL = pytest.mark.parametrize(
    "way", [CONSUMER, COOPERATIVE], ids=["consumer", "cooperative"]
)


def partitions(assignments: Sequence[Assignment]) -> set[int]:
    """Their numbers."""
    return {int(each.partition.id) for each in assignments}


@INCREMENTAL
async def test_what_stays_goes_on_while_what_moves_is_drained(
    world: World, way: dict[str, Any]
) -> None:
    """T18: no record twice, none left out, the same epochs, and commits land all the while."""
    topic = await world.kafka.create_stream(4)
    for partition in range(4):
        await world.kafka.append(topic, numbered(0, 3), partition)
    owner, drained = world.owner(), asyncio.Event()
    async with world.member(topic, owner, **way) as old:
        before = await old.holding(4)
        assert sorted(values(await old.read(12))) == [0] * 4 + [1] * 4 + [2] * 4
        epoch = epoch_of(old)

        async def drain(assignments: Sequence[Assignment]) -> None:
            await drained.wait()
            outcomes = await old.adapter.commit([flush_of(each, 3) for each in assignments])
            assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}

        owner.on_revoked = drain
        successor = world.owner()
        successor.start = StartPoint.BROKER
        async with world.member(topic, successor, **way) as new:
            await world.until("revoked", "member-1")
            moving = world.journal.of("revoked", "member-1")[0].assignments
            kept = [each for each in before if each not in moving]
            assert len(kept) == len(moving) == 2
            for partition in range(4):
                await world.kafka.append(topic, numbered(3, 6), partition)
            found = await old.read(6)
            assert sorted(values(found)) == [3, 3, 4, 4, 5, 5]
            assert partitions([message.assignment for message in found]) == partitions(kept)
            outcomes = await old.adapter.commit([flush_of(each, 6) for each in kept])
            assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 2
            assert not new.owner.held
            drained.set()
            assert partitions(await new.holding(2)) == partitions(moving)
            assert sorted(values(await new.read(6))) == [3, 3, 4, 4, 5, 5]
            owner.on_revoked = None
            assert set(await old.holding(2)) == set(kept)
            assert epoch_of(old) > epoch
            outcomes = await old.adapter.commit([flush_of(each, 6, 2) for each in kept])
            assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 2
        assert len(await old.holding(4)) == 4
        assert "lost" not in world.kinds("member-1")


@INCREMENTAL
async def test_member_that_is_thrown_out_loses_all_and_comes_back(
    world: World, way: dict[str, Any]
) -> None:
    """What it had is another epoch's by then; a commit for it is refused."""
    topic = await world.kafka.create_stream(2)
    async with world.member(topic, **way) as member:
        before = await member.holding(2)
        await _throw_out(world, member)
        await world.until("lost", "member-1")
        await world.until("granted", "member-1", times=2)
        after = await member.holding(2)
        assert not set(before) & set(after)
        stale = await member.adapter.commit([flush_of(each, 9) for each in before])
        assert [outcome.kind for outcome in stale] == [OutcomeKind.FENCED] * 2
        assert await world.offsets(topic) == {}


async def _throw_out(world: World, member: Member) -> None:
    known = runner_of(member)._member.member_id
    if isinstance(runner_of(member)._member, ClassicMember):
        await world.kafka.end_sessions(world.group_id, known)
    else:
        left = messages.ConsumerHeartbeat(world.group_id, known, -1)
        assert (await world.kafka.ask_group(world.group_id, left)).error == 0


@INCREMENTAL
async def test_paused_partition_stays_paused_through_a_rebalance_that_leaves_it_here(
    world: World, way: dict[str, Any]
) -> None:
    """T18: the runtime paused it for its backlog, and nobody resumes it but the runtime."""
    topic = await world.kafka.create_stream(4)
    async with world.member(topic, **way) as old:
        for each in await old.holding(4):
            old.adapter.pause(each)
        async with world.member(topic, **way) as new:
            await new.holding(2)
            kept = await old.holding(2)
            for each in kept:
                await world.kafka.append(topic, numbered(0, 2), int(each.partition.id))
            assert await old.fetch() == []
            for each in kept:
                old.adapter.resume(each)
            assert sorted(values(await old.read(4))) == [0, 0, 1, 1]


# -- which protocol -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "there, taken", [(None, "consumer"), (CONSUMER, "consumer"), ({}, "classic")]
)
async def test_auto_joins_by_what_broker_and_group_have(
    world: World, there: dict[str, Any] | None, taken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Members of one group speak one protocol; a group without members takes the newer one."""
    caplog.set_level(logging.INFO, "consumer_sdk")
    topic = await world.kafka.create_stream(2)
    auto: dict[str, Any] = {"protocol": "auto"}
    if there is None:
        async with world.member(topic, **auto) as alone:
            await alone.holding(2)
    else:
        async with world.member(topic, **there) as old:
            await old.holding(2)
            async with world.member(topic, **auto) as new:
                await new.holding(1)
    assert f"is joined by the {taken} protocol" in caplog.text


# -- refusals -------------------------------------------------------------------------------------


async def refused(adapter: KafkaAdapter, world: World, message: str) -> None:
    """Opening it is an error of the options."""
    with pytest.raises(ConfigurationError, match=message):
        await adapter.open(world.owner())


async def test_pattern_that_the_broker_cannot_evaluate_is_an_error_of_open(world: World) -> None:
    """RE2 has no look-around; `re` has, so that only the broker finds it."""
    adapter = world.adapter("", pattern="(?=orders).*", **CONSUMER)
    await refused(adapter, world, r"joining group .* RE2.*protocol='classic'")


async def test_group_of_another_type_is_an_error_of_open(world: World) -> None:
    """Kafka Connect's workers are a group, too, and share out no partitions."""
    topic = await world.kafka.create_stream()
    await _join_as_worker(world)
    await refused(world.adapter(topic, **CONSUMER), world, "the group is of another type")


@pytest.mark.parametrize("protocol", ["classic", "auto"])
async def test_members_with_another_assignor_are_an_error_that_names_it(
    world: World, protocol: str
) -> None:
    """As Java's consumers with a RangeAssignor alone."""
    topic = await world.kafka.create_stream()
    place = (world.kafka.servers, topic, world.group_id)
    async with AiokafkaMember(
        *place, partition_assignment_strategy=[RangePartitionAssignor]
    ) as other:
        async with asyncio.timeout(world.kafka.patience):
            while not other.held:
                await asyncio.sleep(0.02)
        adapter = world.adapter(topic, **COOPERATIVE, protocol=protocol)
        said = r"'cooperative-sticky'; .* members \(1\) .* by 'range': give .*=\['range'\]"
        await refused(adapter, world, said)


async def _join_as_worker(world: World) -> None:
    member_id = ""
    async with line_to(world.kafka.servers, world.group_id) as line:
        for _ in range(2):  # the first answer brings the id
            join = structs.JoinGroup(
                group=world.group_id,
                session_timeout=30_000,
                rebalance_timeout=30_000,
                member_id=member_id,
                group_instance_id=None,
                protocol_type="connect",
                group_protocols=[("default", b"")],
                reason=None,
            )
            while (answer := await line.send(join)).error_code in TRANSIENT:
                pass
            member_id = answer.member_id


async def test_session_is_the_groups_own(world: World) -> None:
    """The member trusts what it holds as long as the broker would keep it, and no longer."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, **CONSUMER) as member:
        await member.holding(1)
        left = member.adapter.held_until() - asyncio.get_running_loop().time()
        assert 0 < left <= 30.0  # the test server's; Kafka's default is 45 s


async def test_session_that_is_changed_is_heard_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker counts by the new one from the next heartbeat on."""
    monkeypatch.setattr(membership, "SESSION_AGE", 0.0)
    topic = await world.kafka.create_stream()
    async with world.member(topic, **CONSUMER) as member:
        await member.holding(1)
        await world.kafka.configure_group(world.group_id, {"consumer.session.timeout.ms": "20000"})
        session = runner_of(member)._member
        async with asyncio.timeout(world.kafka.patience):
            while session._session_timeout != 20.0:
                await asyncio.sleep(0.02)
        assert member.adapter.held_until() - asyncio.get_running_loop().time() <= 20.0


@pytest.mark.campaign
@INCREMENTAL
async def test_member_that_falls_silent_loses_its_partitions_after_a_session(
    world: World, way: dict[str, Any]
) -> None:
    """It says nothing to the broker, as a process that was killed; the other member gets all."""
    topic = await world.kafka.create_stream(2)
    silent = world.adapter(
        topic, **(way | ({"session_timeout": 6.0} if way is COOPERATIVE else {}))
    )
    if way is CONSUMER:
        await world.kafka.configure_group(world.group_id, {"consumer.session.timeout.ms": "6000"})
    async with open_member(world.kafka, world.owner(), silent) as dead:
        await dead.holding(2)
        async with world.member(topic, **way) as other:
            await dead.holding(1)
            await other.holding(1)
            task = runner_of(dead)._task
            task.cancel()
            await asyncio.wait({task})
            await other.holding(2)
            late = dead.adapter.held_until() - asyncio.get_running_loop().time()
            assert late < 6.0
            runner_of(dead)._task = None  # it cannot leave any more
