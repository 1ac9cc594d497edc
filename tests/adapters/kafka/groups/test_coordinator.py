"""Whoever keeps a group: looked up, asked, and looked up again, on brokers that answer by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.group import HeartbeatRequest

from consumer_sdk.adapters.kafka.client import cluster as cluster_module
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import (
    Coordinator,
    GroupOffset,
    OffsetFetchResponseV9,
)
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator, Stamp
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.scripted_broker import COORDINATOR, HEARTBEAT, ScriptedBroker

HANG = 100.0
"""Seconds that only something that hangs takes."""


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    """One that keeps every group."""
    async with ScriptedBroker() as made:
        yield made


@pytest.fixture
async def coordinator(broker: ScriptedBroker) -> AsyncIterator[GroupCoordinator]:
    """Of a group, on an opened cluster."""
    cluster = Cluster({"bootstrap_servers": broker.address})
    await cluster.open(HANG)
    yield GroupCoordinator(cluster, "g")
    await cluster.aclose()


def heartbeat() -> HeartbeatRequest:
    """Any request to a coordinator."""
    return HeartbeatRequest("g", 1, "me")


async def silent(_request: Any) -> None:
    """Answers nothing."""


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for something to become true."""
    async with asyncio.timeout(HANG):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_broker_that_stands_still_is_not_asked_for_long_who_the_coordinator_is(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session would end meanwhile: another one is asked long before a request times out."""
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.05)
    async with ScriptedBroker(node=2) as second:
        broker.others = [second]
        broker.scripts[COORDINATOR] = silent
        cluster = Cluster({"bootstrap_servers": broker.address})
        await cluster.open(HANG)
        async with asyncio.timeout(HANG):
            answer = await GroupCoordinator(cluster, "g").ask(heartbeat(), 30.0)
        assert (answer.error_code, second.asked[HEARTBEAT]) == (0, 1)
        await cluster.aclose()


async def test_commits_do_not_wait_behind_a_join(
    broker: ScriptedBroker, coordinator: GroupCoordinator
) -> None:
    """A broker answers it when all members have joined, and until then nothing else of that connection."""
    broker.scripts[HEARTBEAT] = silent
    joining = asyncio.create_task(coordinator.ask(heartbeat(), HANG))
    await until(lambda: broker.asked[HEARTBEAT] == 1)
    del broker.scripts[HEARTBEAT]
    async with asyncio.timeout(HANG):
        assert (await coordinator.send(heartbeat())).error_code == 0
    assert not joining.done()
    joining.cancel()


@pytest.mark.parametrize("way", ["cancelled", "late"])
async def test_join_that_nobody_waits_for_ends_its_connection(
    broker: ScriptedBroker, coordinator: GroupCoordinator, way: str
) -> None:
    """The next one would wait behind it; and the coordinator may be another one by now."""
    broker.scripts[HEARTBEAT] = silent
    joining = asyncio.create_task(coordinator.ask(heartbeat(), HANG if way == "cancelled" else 0.1))
    await until(lambda: broker.asked[HEARTBEAT] == 1)
    if way == "cancelled":
        joining.cancel()
    with pytest.raises(asyncio.CancelledError if way == "cancelled" else TimeoutError):
        await joining
    await until(lambda: broker.open_connections == 1)
    del broker.scripts[HEARTBEAT]
    async with asyncio.timeout(HANG):
        assert (await coordinator.ask(heartbeat(), HANG)).error_code == 0
    assert broker.asked[COORDINATOR] == 2


# -- what the group has committed, on a cluster that answers by a script ---------------------------

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MOVED, UNSTABLE, FORBIDDEN = 16, 88, 29
NO_MEMBER = (22, 25, 110, 113)


class Scripted:
    """A cluster; each answer is a code of the group, and rows of partitions: number, offset, epoch, text, code."""

    def __init__(self, *answers: tuple[int, list[Any]]) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.checked: list[int] = []

    async def coordinator(self, key: Coordinator) -> int:
        """A node."""
        assert key == Coordinator("g")
        return 7

    def check_coordinator(self, key: Coordinator, code: int) -> None:
        """As `Cluster` does."""
        assert key == Coordinator("g")
        self.checked.append(code)
        if code == MOVED:
            raise NotCoordinatorForGroupError("it is looked up again")

    async def send(self, key: Coordinator, request: Any) -> Any:
        """The next answer."""
        assert key == Coordinator("g")
        self.asked.append(request.prepare({9: (1, 9)}).groups)
        code, rows = self.answers.pop(0)
        return OffsetFetchResponseV9(0, [("g", [("t", rows)], code)], {})


class Who:
    """A member: whoever is asked for as such."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.member_id = "me"


def scripted(*answers: Any, epoch: int | None = 4) -> tuple[Scripted, GroupCoordinator]:
    """The group's coordinator, asked by a member of an epoch; None: by nobody."""
    cluster: Any = Scripted(*answers)
    made = GroupCoordinator(cluster, "g")
    member: Any = None if epoch is None else Who(epoch)
    made.member = member
    return cluster, made


async def test_node_of_the_group_is_the_clusters() -> None:
    """And codes are looked at as the cluster does."""
    cluster, coordinator = scripted()
    assert await coordinator.node() == 7
    coordinator.check(0)
    assert cluster.checked == [0]


@pytest.mark.parametrize(
    "epoch, who", [(None, (None, -1)), (-1, (None, -1)), (0, ("me", 0)), (4, ("me", 4))]
)
async def test_commits_are_looked_up_as_the_member_of_now(
    epoch: int | None, who: tuple[str | None, int]
) -> None:
    """A member that is none is nobody: the coordinator answers that too."""
    cluster, coordinator = scripted((0, [(0, 5, 2, "text", 0), (1, -1, -1, "", 0)]), epoch=epoch)
    stamp = Stamp(-1, "") if epoch is None else Stamp(epoch, "me")
    assert coordinator.stamp == stamp
    found = await coordinator.committed([FIRST, SECOND])
    assert found == {FIRST: GroupOffset(5, "text", 2), SECOND: None}
    assert cluster.asked == [[("g", *who, [("t", [0, 1])])]]


@pytest.mark.parametrize("code", NO_MEMBER)
def test_look_up_of_an_old_epoch_waits_for_the_next_one(code: int) -> None:
    """The answer to a heartbeat may be on its way; other answers wake it for nothing."""

    async def main(_simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        cluster, coordinator = scripted((code, []), (0, [(0, 5, 2, "text", 0)]))
        began, looking = loop.time(), asyncio.ensure_future(coordinator.committed([FIRST]))
        await asyncio.sleep(1)
        coordinator.tell_news()
        await asyncio.sleep(1)
        assert not looking.done()
        member: Any = coordinator.member
        member.epoch = 0
        coordinator.tell_news()
        assert await looking == {FIRST: GroupOffset(5, "text", 2)}
        assert loop.time() - began == 2
        assert [groups[0][2] for groups in cluster.asked] == [4, 0]

    simulate(main)


@pytest.mark.parametrize("news", [None, -1])
@pytest.mark.parametrize("code", NO_MEMBER)
def test_look_up_of_a_member_that_is_none_may_pass(code: int, news: int | None) -> None:
    """No other epoch comes in three seconds; or the member is out of the group, and is told at once."""

    async def main(_simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        cluster, coordinator = scripted((code, []))
        began, looking = loop.time(), asyncio.ensure_future(coordinator.committed([FIRST]))
        await asyncio.sleep(1)
        if news is not None:
            member: Any = coordinator.member
            member.epoch = news
            coordinator.tell_news()
        with pytest.raises(TransientAdapterError, match=rf"group 'g' does not say .*error {code}"):
            await looking
        assert loop.time() - began == (3 if news is None else 1)
        assert len(cluster.asked) == 1

    simulate(main)


@pytest.mark.parametrize(
    "answer, error",
    [
        ((0, [(0, -1, -1, "", UNSTABLE)]), TransientAdapterError),
        ((UNSTABLE, []), TransientAdapterError),
        ((MOVED, []), NotCoordinatorForGroupError),
        ((0, [(0, -1, -1, "", MOVED)]), NotCoordinatorForGroupError),
        ((0, [(0, -1, -1, "", 113)]), TransientAdapterError),
        ((30, []), GroupAuthorizationFailedError),
        ((0, [(0, 5, 2, "text", 0), (1, -1, -1, "", FORBIDDEN)]), TopicAuthorizationFailedError),
    ],
)
async def test_position_that_is_not_told_is_an_error(
    answer: tuple[int, list[Any]], error: type[Exception]
) -> None:
    """Whoever took it for none would read all again."""
    _, coordinator = scripted(answer)
    with pytest.raises(error) as found:
        await coordinator.committed([FIRST, SECOND])
    assert error is not NotCoordinatorForGroupError or "looked up again" in str(found.value)


def test_time_for_an_answer_counts_from_when_the_coordinator_is_known() -> None:
    """A look-up that takes long leaves a join its whole time."""

    class Slow(Scripted):
        """Knows the coordinator after five seconds."""

        is_known = False

        async def coordinator(self, key: Coordinator) -> int:
            await asyncio.sleep(0 if self.is_known else 5)
            self.is_known = True
            return await super().coordinator(key)

        async def send(self, key: Coordinator, request: Any, **_channel: Any) -> Any:
            await self.coordinator(key)
            return request

    async def main(_simulation: Simulation) -> None:
        cluster: Any = Slow()
        assert await GroupCoordinator(cluster, "g").ask("join", 1.0) == "join"

    simulate(main)
