"""What the in-memory adapter does beyond the conformance suite: faults, budgets, URLs, speed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import pytest

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters import open_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    OutcomeKind,
    Start,
    StartPoint,
)
from consumer_sdk.testing import Faults, simulate
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker


class Owner(AssignmentOwner):
    """Grants everything from the start, and keeps what it was told."""

    def __init__(self) -> None:
        self.held: list[Assignment] = []
        self.lost_ones: list[Assignment] = []

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """Takes all."""
        self.held += assignments
        return dict.fromkeys(assignments, StartPoint.EARLIEST)

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Gives up all."""
        self.held.clear()

    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Notes it."""
        self.lost_ones += assignments
        self.held.clear()


def run(main: Coroutine[Any, Any, None]) -> None:
    """On virtual time."""
    simulate(lambda _: main)


async def opened(
    broker: MemoryBroker, group: str | None = "g", **options: Any
) -> tuple[MemoryAdapter, Owner]:
    """An adapter that holds its partitions."""
    adapter, owner = MemoryAdapter(broker, "s", group=group, **options), Owner()
    await adapter.open(owner)
    await asyncio.sleep(0.01)
    return adapter, owner


def test_commit_that_fails_after_its_effect_says_retry_and_has_landed() -> None:
    """T20: a lost reply: the outcome is RETRY, the position is there, the retry is harmless."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"1", b"2"])
        faults = Faults()
        adapter, owner = await opened(broker, faults=faults)
        flush = AckFlush(owner.held[0], 1, Checkpoint(watermark=0, resume=1))
        faults.fail_next("commit.partition", "after")
        faults.fail_next("commit", "before")
        outcomes = [(await adapter.commit([flush]))[0].kind for _ in range(3)]
        assert outcomes == [OutcomeKind.RETRY, OutcomeKind.RETRY, OutcomeKind.DURABLE]
        assert list(broker.committed("g", "s").values()) == [1]
        await adapter.aclose()

    run(main())


@pytest.mark.parametrize("size", [0, 300, 4096])
def test_commit_carries_as_many_ranges_as_fit_and_says_how_far(size: int) -> None:
    """T8: a budget drops the top ranges, says so, and never refuses the commit."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b""] * 100)
        adapter, owner = await opened(broker, metadata_size=size)
        ranges = tuple((at, at) for at in range(2, 60, 2))
        flush = AckFlush(owner.held[0], 1, Checkpoint(watermark=0, resume=1, ranges=ranges))
        (outcome,) = await adapter.commit([flush])
        assert outcome.kind is OutcomeKind.DURABLE
        (stored,) = (await adapter.committed(owner.held)).values()
        assert stored is not None
        assert stored.checkpoint.resume == 1
        kept = len(stored.checkpoint.ranges)
        assert stored.checkpoint.ranges == ranges[:kept]
        expected = {0: 0, 300: ranges[kept - 1][1] if kept else 0, 4096: None}
        assert outcome.covered == expected[size]
        await adapter.aclose()

    run(main())


def test_range_that_retention_has_cut_into_can_be_read_back() -> None:
    """A range that begins below the position to read from does not spoil the checkpoint."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b""] * 10)
        adapter, owner = await opened(broker)
        flush = AckFlush(owner.held[0], 1, Checkpoint(resume=4, ranges=((1, 4), (7, 7))))
        await adapter.commit([flush])
        (stored,) = (await adapter.committed(owner.held)).values()
        assert stored is not None
        assert (stored.checkpoint.resume, stored.checkpoint.ranges) == (4, ((1, 4), (7, 7)))
        await adapter.aclose()

    run(main())


def test_member_whose_session_ended_is_told_lost_and_joins_again() -> None:
    """A zombie's commits are refused; it learns that it lost everything, and comes back."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        adapter, owner = await opened(broker)
        (old,) = owner.held
        adapter.expire()
        (outcome,) = await adapter.commit([AckFlush(old, 1, Checkpoint(resume=0))])
        assert outcome.kind is OutcomeKind.FENCED
        await asyncio.sleep(1)
        assert owner.lost_ones == [old]
        assert owner.held[0].epoch > old.epoch
        await adapter.aclose()

    run(main())


def test_partition_dropped_just_before_a_rebalance_is_granted_after_it() -> None:
    """While the member drains, or waits for the others, nobody would revoke it."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s", 2)
        drained = asyncio.Event()

        class Draining(Owner):
            async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
                await drained.wait()
                self.held = [each for each in self.held if each not in assignments]

        adapter, owner = MemoryAdapter(broker, "s", group="g"), Draining()
        await adapter.open(owner)
        await asyncio.sleep(0.01)
        first, second = owner.held
        owner.held = [second]  # as the runtime does with what it drops
        adapter.drop(first)
        opening = asyncio.create_task(opened(broker))
        await asyncio.sleep(1)
        assert owner.held == [second]
        drained.set()
        other, others = await opening
        await asyncio.sleep(1)
        assert [each.partition for each in owner.held + others.held] == broker.partitions("s")
        await adapter.aclose()
        await other.aclose()

    run(main())


def test_partition_whose_session_ended_is_not_fetched_while_a_question_ends() -> None:
    """An owner that takes its time to give up a question learns at once what else is lost."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s", 2)
        broker.append_all("s", [b"1", b"2"])
        asked = asyncio.Event()

        class Slow(Owner):
            async def assigned(
                self, assignments: Sequence[Assignment]
            ) -> Mapping[Assignment, Start]:
                if len(assignments) == 1:
                    asked.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        await asyncio.sleep(0.5)
                return await super().assigned(assignments)

        adapter, owner = MemoryAdapter(broker, "s", group="g"), Slow()
        await adapter.open(owner)
        await asyncio.sleep(0.01)
        dropped, kept = owner.held
        adapter.drop(dropped)
        await asked.wait()
        adapter.expire()
        await asyncio.sleep(0.01)
        assert await adapter.fetch(max_records=9, max_bytes=99, max_wait=0.1) == []
        assert kept in owner.lost_ones
        await adapter.aclose()

    run(main())


def test_deleted_stream_answers_gone_and_one_made_again_is_another() -> None:
    """A commit for a deleted stream lands nowhere, above all not on its successor."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"1"])
        faults = Faults()
        adapter, owner = await opened(broker, faults=faults)
        (old,) = owner.held
        first = adapter.identity(old)
        broker.delete_stream("s")
        broker.create_stream("s")
        (outcome,) = await adapter.commit([AckFlush(old, 1, Checkpoint(resume=1))])
        assert outcome.kind in {OutcomeKind.GONE, OutcomeKind.FENCED}
        assert not broker.committed("g", "s")
        await asyncio.sleep(1)
        assert adapter.identity(owner.held[0]) != first
        await adapter.aclose()

    run(main())


def test_without_a_group_everything_is_read_and_nothing_kept() -> None:
    """No group: all partitions, no fence, and a commit is only ever SENT."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s", 3)
        one, first = await opened(broker, group=None)
        two, second = await opened(broker, group=None)
        assert len(first.held) == len(second.held) == 3
        assert {assignment.fence for assignment in first.held} == {None}
        assert not one.capabilities.commits
        (outcome,) = await one.commit([AckFlush(first.held[0], 1, Checkpoint(resume=0))])
        assert outcome.kind is OutcomeKind.SENT
        await one.aclose()
        await two.aclose()

    run(main())


async def taken(adapter: MemoryAdapter) -> list[Message]:
    """What a fetch brings."""
    runs = await adapter.fetch(max_records=100, max_bytes=1 << 20, max_wait=1)
    return [message for run in runs for message in run.messages]


def acks(messages: Sequence[Message], number: int = 1) -> AckFlush:
    """A flush that names them."""
    settled = [(message.position, message.native) for message in messages]
    return AckFlush(messages[0].assignment, number, Checkpoint(), settled)


def test_lost_acks_are_answered_as_sent_and_break_the_connection() -> None:
    """As Pulsar's client does: the redelivery is all that tells of the loss."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"1", b"2"])
        faults = Faults()
        adapter, _ = await opened(broker, subscription="shared", faults=faults)
        got = await taken(adapter)
        faults.fail_next("acks")
        kinds = [(await adapter.commit([acks(got)]))[0].kind for _ in range(2)]
        assert kinds == [OutcomeKind.SENT, OutcomeKind.RETRY]
        assert broker.backlog("g", "s") == 2
        again = await taken(adapter)
        assert [m.position for m in again] == [(0, 0), (1, 0)]
        assert [(await adapter.commit([acks(each)]))[0].kind for each in (got, again)] == [
            OutcomeKind.SENT
        ] * 2
        assert broker.backlog("g", "s") == 0
        await adapter.aclose()

    run(main())


def test_first_flush_of_a_new_subscription_gives_it_a_place() -> None:
    """A start that moves is pinned before a record is read, also where no store keeps it."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"1", b"2", b"3"])

        class Pinning(Owner):
            async def assigned(
                self, assignments: Sequence[Assignment]
            ) -> Mapping[Assignment, Start]:
                assert await adapter.committed(assignments) == dict.fromkeys(assignments)
                flushes = [AckFlush(a, 1, Checkpoint(resume=(2, 0))) for a in assignments]
                assert [o.kind for o in await adapter.commit(flushes)] == [OutcomeKind.SENT]
                return {}

        adapter = MemoryAdapter(broker, "s", group="g", subscription="failover")
        await adapter.open(Pinning())
        await asyncio.sleep(0.01)
        await adapter.aclose()
        assert broker.backlog("g", "s") == 1

    run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"subscription": "shared"},
        {"subscription": "exclusive", "group": "g"},
        {"subscription": "shared", "group": "g", "prefetch": 0},
        {"metadata_size": -1},
    ],
)
def test_option_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    """When the adapter is made."""
    with pytest.raises(ConfigurationError, match="MemoryAdapter"):
        MemoryAdapter(MemoryBroker(), "s", **options)


def test_byte_limit_is_soft_and_gives_at_least_one_record() -> None:
    """A record above the limit comes alone; small ones come up to the limit."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"x" * 1000, *[b"y" * 10] * 10])
        adapter, _ = await opened(broker)
        sizes = []
        for _ in range(4):
            (got,) = await adapter.fetch(max_records=100, max_bytes=40, max_wait=1)
            sizes.append([len(message.value or b"") for message in got.messages])
        assert sizes == [[1000], [10] * 4, [10] * 4, [10] * 2]
        await adapter.aclose()

    run(main())


def test_url_finds_the_broker_by_name() -> None:
    """``memory://name/stream?group=g`` opens a consumer of a broker in this process."""
    broker = MemoryBroker("by-name")
    adapter = open_url("memory://by-name/a,b?group=g")
    assert isinstance(adapter, MemoryAdapter)
    assert adapter.memory is broker
    assert adapter.group == "g"


@pytest.mark.parametrize(
    "url", ["memory://by-name", "memory://nobody/s", "memory://by-name/s?grop=g", "other://x/y"]
)
def test_wrong_url_is_refused(url: str) -> None:
    """A misspelt option, a missing stream or broker: an error that shows the right form."""
    broker = MemoryBroker("by-name")
    with pytest.raises(ConfigurationError, match=r"memory|did you mean group="):
        MemoryAdapter.from_url(url)
    assert broker.name == "by-name"


def test_position_of_a_group_with_members_is_not_reset() -> None:
    """They would write over it: like Kafka's tools, the broker refuses, and names them."""

    async def main() -> None:
        broker = MemoryBroker()
        broker.create_stream("s")
        (partition,) = broker.partitions("s")
        adapter, _ = await opened(broker)
        with pytest.raises(ConfigurationError, match="'g' has members: member-"):
            broker.reset("g", partition, 3)
        await adapter.aclose()
        broker.reset("g", partition, 3)
        assert broker.committed("g", "s") == {partition: 3}

    run(main())
