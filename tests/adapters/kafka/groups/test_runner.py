"""The runner of a membership, with a member, a coordinator and an owner that do what a test says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
)

from consumer_sdk.adapters.kafka.groups import structs
from consumer_sdk.adapters.kafka.groups.coordinator import Stamp
from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    Event,
    Lost,
    Member,
    Refused,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.groups.messages import Answer, Heartbeat, Request
from consumer_sdk.adapters.kafka.groups.runner import MemberRunner
from consumer_sdk.errors import AdapterError, ConfigurationError

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BEAT = Heartbeat("g", 1, "me", None)


class ScriptedMember(Member):
    """Beats whenever it is asked to, and wants done what a test has written down."""

    member_id = "me"
    epoch = -1
    held_until = math.inf
    held: frozenset[TopicPartition] = frozenset()
    unknown_topic_ids: frozenset[bytes] = frozenset()
    has_left = False

    def __init__(self) -> None:
        self.due = True
        self.todo: list[Event] = []
        self.given_by_release: list[Event] = []
        self.let_go: list[frozenset[TopicPartition]] = []
        self.failures = self.answers = 0
        self.topics: list[Mapping[str, TopicInfo]] = []

    def poll(self, now: float) -> Request | None:
        due, self.due = self.due, False
        return BEAT if due else None

    def wake_at(self) -> float:
        return -math.inf if self.due else math.inf

    def answered(self, request: Request, answer: Answer, now: float) -> None:
        self.epoch = 1
        self.answers += 1

    def failed(self, request: Request, now: float) -> None:
        self.failures += 1
        self.due = self.failures < 3

    def events(self) -> list[Event]:
        todo, self.todo = self.todo, []
        return todo

    def released(self, tps: frozenset[TopicPartition], now: float) -> None:
        self.let_go.append(tps)
        self.todo += self.given_by_release

    def metadata_changed(self, topics: Mapping[str, TopicInfo], now: float) -> None:
        self.topics.append(topics)

    def leave(self, now: float) -> None:
        self.has_left = True


class ScriptedCoordinator:
    """Answers heartbeats, or raises."""

    def __init__(self) -> None:
        self.member: Any = None
        self.errors: list[Exception] = []
        self.moves = 0
        self.stamp = Stamp(1, "me")
        self.timeouts: list[float] = []

    async def ask(self, request: Any, timeout: float) -> Any:
        self.timeouts.append(timeout)
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        assert request.API_KEY == structs.HEARTBEAT
        return structs.HeartbeatResponseV4(0, 0, {})

    def moved(self) -> None:
        self.moves += 1

    def check(self, code: int) -> None:
        """It has not moved."""

    def tell_news(self) -> None:
        """Nobody waits."""


class Owner:
    """Writes down what it is told; drains when it is let."""

    def __init__(self) -> None:
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.may_end = asyncio.Event()

    def assign(self, tps: frozenset[TopicPartition]) -> None:
        self.told.append(("assign", tps))

    def take(self, tps: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        self.told.append(("take", tps))
        return tps

    async def drain(self, taken: frozenset[TopicPartition]) -> None:
        await self.may_end.wait()
        self.told.append(("drained", taken))

    def lose(self, tps: frozenset[TopicPartition], reason: str) -> None:
        self.told.append(("lose", tps))


class Bench:
    """A runner among the three."""

    def __init__(self, patience: float = 10.0) -> None:
        self.member, self.coordinator, self.owner = ScriptedMember(), ScriptedCoordinator(), Owner()
        self.wakes = 0
        coordinator: Any = self.coordinator
        cluster: Any = None
        self.runner = MemberRunner(
            self.member,
            coordinator,
            self.owner,
            group="g",
            is_classic=True,
            cluster=cluster,
            join_patience=30.0,
            patience=patience,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.wakes += 1

    async def do(self, *events: Event) -> None:
        """Has the member want these, and waits until they were applied."""
        self.member.todo += events
        self.member.due = True
        self.runner._work.set()
        async with asyncio.timeout(30):
            while self.member.todo or self.member.due:
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)

    async def until_drained(self) -> None:
        """Lets all drains end."""
        self.owner.may_end.set()
        async with asyncio.timeout(30):
            while self.runner._drains:
                await asyncio.sleep(0)


@asynccontextmanager
async def running(bench: Bench | None = None) -> AsyncIterator[Bench]:
    """A bench whose member has joined."""
    bench = bench or Bench()
    bench.runner.start({})
    try:
        await bench.runner.wait_joined(30)
        yield bench
    finally:
        bench.owner.may_end.set()
        await bench.runner.drained()
        await bench.runner.leave()


def of(*tps: TopicPartition) -> frozenset[TopicPartition]:
    """As events have them."""
    return frozenset(tps)


async def test_heartbeats_go_on_while_partitions_drain_and_only_these_are_released() -> None:
    """A drain may take longer than a session."""
    async with running() as bench:
        await bench.do(Assigned(of(A, B)), Revoked(of(A)))
        answers = bench.member.answers
        await bench.do()
        assert bench.member.answers == answers + 1
        assert bench.member.let_go == []
        await bench.until_drained()
        assert bench.member.let_go == [of(A)]
        assert bench.owner.told == [("assign", of(A, B)), ("take", of(A)), ("drained", of(A))]


async def test_what_is_lost_while_it_drains_is_not_released_in_the_next_membership() -> None:
    """The member has it again by then, and would give it away under the owner's hands."""
    async with running() as bench:
        await bench.do(Assigned(of(A, B)), Revoked(of(A, B)), Lost(of(A), "the session is over"))
        await bench.do(Assigned(of(A)))
        assert ("assign", of(A)) not in bench.owner.told  # its owner is not done with the old one
        await bench.until_drained()
        assert bench.member.let_go == [of(B)]
        assert bench.owner.told[-2:] == [("drained", of(A, B)), ("assign", of(A))]


async def test_what_comes_back_and_goes_again_while_it_drains_is_never_offered() -> None:
    """Its second revocation has nothing to drain."""
    async with running() as bench:
        await bench.do(Assigned(of(A)), Revoked(of(A)), Lost(of(A), "over"))
        await bench.do(Assigned(of(A)), Revoked(of(A)))
        await bench.until_drained()
        assert [what for what, _ in bench.owner.told].count("assign") == 1
        assert bench.member.let_go == [of(A)]


async def test_answer_that_does_not_come_makes_it_look_for_the_coordinator_again() -> None:
    """With a back-off, and without an end."""
    async with running() as bench:
        bench.coordinator.errors = [KafkaConnectionError("away"), TimeoutError()]
        await bench.do()
        async with asyncio.timeout(30):
            while bench.member.answers < 2:
                await asyncio.sleep(0.01)
        assert (bench.member.failures, bench.coordinator.moves) == (2, 2)
        bench.runner.check()


@pytest.mark.parametrize(
    "error, kind, message",
    [
        (IncompatibleBrokerVersion("v0"), ConfigurationError, "protocol='classic' or 'auto'"),
        (GroupAuthorizationFailedError("g"), AdapterError, "grant this principal"),
    ],
)
async def test_what_asking_again_would_not_mend_ends_the_membership_with_what_to_do(
    error: Exception, kind: type[Exception], message: str
) -> None:
    """It comes out of open while the member joins."""
    bench = Bench()
    bench.coordinator.errors = [error]
    bench.runner.start({})
    with pytest.raises(kind, match=message):
        await bench.runner.wait_joined(30)
    await bench.runner.leave()


async def test_group_that_refuses_a_member_later_is_an_error_of_each_fetch() -> None:
    """What the member had is lost before that."""
    async with running() as bench:
        await bench.do(Assigned(of(A)), Lost(of(A), "replaced"), Refused(82, "replaced"))
        assert bench.owner.told[-1] == ("lose", of(A))
        assert bench.wakes > 0
        for _ in range(2):
            with pytest.raises(AdapterError, match="replaced"):
                bench.runner.check()


@pytest.mark.parametrize(
    "answer, said",
    [
        ((0, "g", "Stable", "consumer", "range", [("m",)]), r"strategy=\['range'\]"),
        ((69, "g", "", "", "", []), "give the partition_assignment_strategy that the others use"),
        (
            KafkaConnectionError("away"),
            "give the partition_assignment_strategy that the others use",
        ),
    ],
)
async def test_group_that_shares_out_otherwise_is_asked_how(answer: Any, said: str) -> None:
    """While nobody says, the error is a general one."""
    bench = Bench()
    coordinator: Any = bench.coordinator

    async def send(_request: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(groups=[answer])

    coordinator.send = send
    bench.member.todo = [Refused(23, "", ("cooperative-sticky",))]
    bench.runner.start({})
    with pytest.raises(ConfigurationError, match=f"offers the assignors 'coop.*{said}"):
        await bench.runner.wait_joined(30)
    await bench.runner.leave()


async def test_request_under_way_at_the_end_is_cut_short_and_the_member_leaves() -> None:
    """Another member's drain may hold a join up for a minute."""
    bench = Bench()
    asked = asyncio.Event()

    async def hang(_request: Any, _timeout: float) -> Any:
        asked.set()
        await asyncio.Event().wait()

    bench.coordinator.ask = hang  # type: ignore[assignment]  # a join that is held up
    bench.runner.start({})
    await asked.wait()
    await bench.runner.leave()
    assert bench.member.failures == 1
    assert bench.member.has_left


async def test_what_is_given_back_by_its_release_is_offered() -> None:
    """The group has given it again while it drained, or its topic was made again."""
    async with running() as bench:
        await bench.do(Assigned(of(A)), Revoked(of(A)))
        bench.member.given_by_release = [Assigned(of(A))]
        await bench.until_drained()
        await bench.do()
        assert bench.owner.told[-2:] == [("drained", of(A)), ("assign", of(A))]


async def test_heartbeat_is_given_up_while_there_is_session_left() -> None:
    """Its connection may hang, and another one not."""
    bench = Bench(patience=2.5)
    async with running(bench):
        await bench.do()
        assert set(bench.coordinator.timeouts) == {2.5}
