"""Which shards there are: found in time, however late and in whatever order they are listed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest

from consumer_sdk import Message
from consumer_sdk.abc import Leases
from consumer_sdk.adapters.kinesis.consumer import discovery
from consumer_sdk.adapters.kinesis.consumer.discovery import FRESH, Discovery
from consumer_sdk.adapters.kinesis.service.service import (
    Page,
    Service,
    Shard,
    ShardGoneError,
    StreamFacts,
)
from consumer_sdk.errors import AdapterError, TransientAdapterError
from consumer_sdk.testing import simulate
from consumer_sdk.testing.kinesis import FakeService, Quirks
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Stage, play, text_of

LATE = Quirks(names_children=False, list_lag=20.0)


async def run(stage: Stage, seconds: float, *, ends: dict[float, Any], **options: Any) -> list[str]:
    """What a consumer sees in so many seconds; ``ends`` happen at their times."""
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(text_of(message))

    async with stage.consumer(**options) as consumer:
        loop = asyncio.get_running_loop()
        for time, happens in ends.items():
            loop.call_later(time, happens)
        loop.call_later(seconds, consumer.stop)
        await consumer.run(handle)
    return seen


@pytest.mark.parametrize(
    "quirks", [Quirks(), Quirks(names_children=False), LATE], ids=["named", "unnamed", "late"]
)
def test_children_are_read_as_soon_as_they_are_listed(quirks: Quirks) -> None:
    """Kinesis trap 20: whether an answer names them, none does, or the list is behind."""

    async def test(stage: Stage) -> None:
        def split() -> None:
            stage.put("parent")
            stage.kinesis.split("s", SHARD)
            stage.put("child")

        # Between two looks at the list there is an hour.
        options = {"adapter": {"discovery_interval": 3600.0}}
        seen = await run(stage, 10 + quirks.list_lag + 5, ends={10: split}, **options)
        assert seen == ["parent", "child"]

    play(test, quirks=quirks)


def test_chain_of_splits_and_merges_is_read_parents_first() -> None:
    """Kinesis trap 20: A, B merged, split, split; all of it before the consumer began."""

    async def test(stage: Stage) -> None:
        merge, split = stage.kinesis.merge, stage.kinesis.split
        changes: list[Callable[[], object]] = [
            lambda: merge("s", shard_id(0), shard_id(1)),
            lambda: split("s", shard_id(2)),
            lambda: split("s", shard_id(3)),
            lambda: merge("s", shard_id(5), shard_id(6)),
        ]
        expected = []
        for number, change in enumerate(changes):
            expected += [f"{number}.{each}" for each in range(3)]
            stage.put(*expected[-3:])
            await asyncio.sleep(1)
            change()
        stage.put("last")
        assert await run(stage, 60, ends={}) == [*expected, "last"]

    play(test, shards=2)


def test_child_listed_before_its_parent_is_closed_waits_for_it() -> None:
    """Kinesis trap 20: a list that is not consistent for a moment; the parent's end decides."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        stage.kinesis.split("s", SHARD)
        stage.put("late")
        member.adapter._session.discovery.look("whatever")
        await asyncio.sleep(30)
        assert member.held == [SHARD]

    play(test)


def test_parent_that_is_no_longer_stored_is_not_waited_for() -> None:
    """Kinesis trap 20: it has expired, and the list names it as a parent all the same."""

    async def test(stage: Stage) -> None:
        stage.put("old")
        stage.kinesis.split("s", SHARD)
        await asyncio.sleep(100)
        stage.put("new")
        stage.kinesis.trim("s", stage.simulation.clock.wall() - 50)
        assert SHARD not in [each.id for each in stage.kinesis.shards("s")]
        assert await run(stage, 20, ends={}) == ["new"]

    play(test)


def test_closed_empty_shards_are_passed_through() -> None:
    """Kinesis trap 20: nothing was ever written to them."""

    async def test(stage: Stage) -> None:
        stage.kinesis.split("s", shard_id(0))
        stage.kinesis.split("s", shard_id(1))
        stage.kinesis.merge("s", shard_id(3), shard_id(4))
        stage.put("new")
        assert await run(stage, 20, ends={}) == ["new"]

    play(test)


def test_list_of_shards_that_fails_is_asked_for_again() -> None:
    """Kinesis trap 25: the service answers after a while."""

    async def test(stage: Stage) -> None:
        member = stage.actor()
        member.faults.fail_next("shards", times=5)
        await member.open()
        before = asyncio.get_running_loop().time()
        await member.holding(SHARD)
        assert asyncio.get_running_loop().time() - before < 20

    play(test)


def test_children_that_never_come_are_not_looked_for_for_ever() -> None:
    """They may have expired themselves; then the list is looked at as ever."""

    async def test(stage: Stage) -> None:
        member = await stage.member(discovery_interval=3600.0)
        await member.holding(SHARD)
        looks = count_looks(stage)
        member.adapter._session.discovery.look("shardId-gone")
        await asyncio.sleep(3000)
        assert len(looks) == 60

    play(test)


def count_looks(stage: Stage) -> list[float]:
    """The times at which the list of shards is asked for from now on."""
    listed, looks = stage.kinesis.shards, list[float]()

    def count(stream: str) -> Any:
        looks.append(asyncio.get_running_loop().time())
        return listed(stream)

    stage.kinesis.shards = count  # type: ignore[method-assign]  # counted
    return looks


def test_readers_that_ask_at_the_same_moment_share_one_look() -> None:
    """A stream that is resharded, or an endpoint that fails, would see one of each shard."""

    async def test(stage: Stage) -> None:
        member = await stage.member(discovery_interval=3600.0)
        await member.holding(SHARD)
        await asyncio.sleep(10)
        find, looks = member.adapter._session.discovery.find, count_looks(stage)
        first, *others = (asyncio.ensure_future(find(SHARD)) for _ in range(50))
        await asyncio.sleep(0)
        first.cancel()  # it was looking
        found = await asyncio.gather(*others)
        assert {each.id for each in found if each is not None} == {SHARD}
        await asyncio.sleep(FRESH / 2)
        await find(SHARD)
        assert len(looks) == 1
        await asyncio.sleep(FRESH)
        assert await find("shardId-gone") is None
        assert len(looks) == 2

    play(test)


def test_readers_that_ask_at_the_same_moment_share_an_error() -> None:
    """And ask again when they are due, all together."""

    async def test(stage: Stage) -> None:
        member = await stage.member(discovery_interval=3600.0)
        await member.holding(SHARD)
        await asyncio.sleep(10)
        find = member.adapter._session.discovery.find
        member.faults.fail_next("shards")
        results = await asyncio.gather(*(find(SHARD) for _ in range(9)), return_exceptions=True)
        assert {type(each) for each in results} == {TransientAdapterError}
        await asyncio.sleep(2 * FRESH)
        assert await find(SHARD) is not None

    play(test)


@pytest.mark.parametrize("fan_out", [None, "c"])
def test_stream_that_is_deleted_ends_the_consumer(fan_out: Any) -> None:
    """Kinesis trap 25: the message says so."""

    async def test(stage: Stage) -> None:
        member = await stage.member(fan_out=fan_out)
        await member.holding(SHARD)
        await asyncio.sleep(2)
        stage.kinesis.delete_stream("s")
        with pytest.raises(AdapterError, match="the stream 's' was deleted while it was read"):
            await member.read(100)

    play(test)


def test_stream_that_was_made_again_ends_the_consumers_of_the_old_one() -> None:
    """Kinesis trap 25: else both would sync the leases, each starting them anew for the other."""

    async def test(stage: Stage) -> None:
        old = await stage.member(discovery_interval=20.0)
        await old.holding(SHARD)
        stage.kinesis.delete_stream("s")
        stage.kinesis.create_stream("s")
        new = await stage.member(discovery_interval=20.0)
        with pytest.raises(AdapterError, match="was deleted and made again while it was read"):
            await old.read(100)
        await new.holding(SHARD)
        before = new.assignment()
        await asyncio.sleep(200)
        assert new.assignment() is before

    play(test)


def test_record_of_a_stream_that_was_made_again_is_never_taken_for_one_of_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kinesis trap 25: its place is refused there, and what the last look found is of before."""
    monkeypatch.setattr(discovery, "FRESH", 1000.0)

    async def test(stage: Stage) -> None:
        stage.put("old")
        seen: list[str] = []

        async def handle(message: Message) -> None:
            seen.append(text_of(message))

        def make_again() -> None:
            stage.kinesis.delete_stream("s")
            stage.kinesis.create_stream("s")
            stage.put("new")

        async with stage.consumer(adapter={"discovery_interval": 3600.0}) as consumer:
            asyncio.get_running_loop().call_later(5, make_again)
            with pytest.raises(AdapterError, match="was deleted and made again"):
                await consumer.run(handle)
        assert seen == ["old"]

    play(test)


def test_stream_made_again_while_nobody_looked_is_read_from_its_own_beginning() -> None:
    """Kinesis trap 25: leases of the old one say nothing of the new one."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        await member.adapter.aclose()
        stage.kinesis.delete_stream("s")
        stage.kinesis.create_stream("s", 2)
        again = await stage.member()
        await again.holding(shard_id(0), shard_id(1))
        (shard, _) = (again.assignment(shard_id(each)) for each in range(2))
        assert again.adapter.identity(shard) != member.adapter.identity(shard)

    play(test)


def test_list_without_any_shard_is_no_list() -> None:
    """Kinesis trap 20: with an odd answer at the same time it would end a shard that is open."""

    class Odd(FakeService):
        odd = 0

        async def shards(self) -> Sequence[Shard]:
            return [] if self.odd % 2 else await super().shards()

        async def records(self, iterator: str, limit: int) -> Page:
            page = await super().records(iterator, limit)
            type(self).odd += 1
            return Page() if self.odd % 2 else page

    async def test(stage: Stage) -> None:
        puts = {float(time): lambda time=time: stage.put(f"{time}") for time in range(40)}
        seen = await run(stage, 300, ends=puts, service=Odd)
        assert seen == [f"{time}" for time in range(40)]

    play(test)


# -- by itself --------------------------------------------------------------------------------

GONE = ShardGoneError("the stream does not exist")
PASSING = TransientAdapterError("no answer")
FACTS = StreamFacts("arn:s", 5.0)
SPLIT = [Shard("p"), Shard("c", ("p",)), Shard("d", ("p",), is_closed=True)]


class Scene:
    """A list of shards, leases that are in step with it, and who looks them up.

    Attributes:
        listed: what the service lists.
        answers: what it says in turn, before that; an error is raised.
        facts: what it says of the stream, likewise.
        looks: when it was asked for the list.
        steps: the parents that the leases were told of, each time.
    """

    def __init__(self, *answers: Any, interval: float = 60.0) -> None:
        self.listed = SPLIT
        self.answers = list(answers)
        self.facts: list[Any] = []
        self.looks: list[float] = []
        self.steps: list[Any] = []
        self.synced = 0
        self.discovery = Discovery(
            *(cast("Service", self), cast("Leases", self), "s", FACTS),
            interval=interval,
            synced=self._count,
        )

    def _count(self) -> None:
        self.synced += 1

    async def shards(self) -> Any:
        """As the answers say."""
        self.looks.append(asyncio.get_running_loop().time())
        return self._said(self.answers) if self.answers else self.listed

    async def describe(self) -> Any:
        """The same stream, unless it is said otherwise."""
        return self._said(self.facts) if self.facts else FACTS

    def _said(self, answers: list[Any]) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def sync(self, parents: Any, *, identity: str) -> None:
        """The leases are told."""
        assert identity == FACTS.identity
        self.steps.append(parents)

    async def runs(self, seconds: float) -> None:
        """It looks for so long."""
        task = asyncio.create_task(self.discovery.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def alone(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On virtual time, which begins at 0."""
    simulate(lambda _: test())


def test_leases_are_told_of_all_shards_again_and_again() -> None:
    """A moment at least after each look, and the interval then."""

    async def test() -> None:
        scene = Scene()
        await scene.runs(125)
        assert scene.looks == [0, 61, 122]
        assert scene.steps == [{"p": (), "c": ("p",), "d": ("p",)}] * 3
        assert scene.synced == 3
        scene = Scene(interval=0.25)
        await scene.runs(1.2)
        assert len(scene.looks) == 3  # a quarter of a second at least, and another one

    alone(test)


def test_list_that_fails_is_asked_for_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Up to ten seconds apart; and as soon as at first after it has come once."""

    async def test() -> None:
        scene = Scene(*[PASSING] * 6, SPLIT, PASSING)
        await scene.runs(100)
        waits = [after - before for before, after in pairwise(scene.looks)]
        assert waits == pytest.approx([0.5, 1, 2, 4, 8, 10, 61, 0.5])
        assert "s: shards could not be looked up: no answer" in caplog.text

    alone(test)


def test_shard_that_has_ended_is_looked_up_at_once_and_then_each_second() -> None:
    """Until its children are listed."""

    async def test() -> None:
        scene = Scene()
        asyncio.get_running_loop().call_later(10, scene.discovery.look, "c")
        asyncio.get_running_loop().call_later(12.5, lambda: scene.listed.append(Shard("e", ("c",))))
        scene.listed = list(SPLIT)
        await scene.runs(70)
        assert scene.looks == [0, 10, 11, 12, 13]

    alone(test)


@pytest.mark.parametrize(
    "shard, entry",
    [
        ("p", Shard("p", is_closed=True)),
        ("c", Shard("c", ("p",))),
        ("d", Shard("d", ("p",), is_closed=True)),
        ("x", None),
    ],
)
def test_entry_of_a_shard_is_found(shard: str, entry: Shard | None) -> None:
    """One that has children is closed, also if the list does not say so."""

    async def test() -> None:
        scene = Scene()
        assert await scene.discovery.find(shard) == entry
        assert await scene.discovery.shards() == ["p", "c", "d"]
        assert len(scene.looks) == 1
        await scene.discovery.check()
        assert len(scene.looks) == 1  # it began at this very moment
        await asyncio.sleep(0.9)
        await scene.discovery.find(shard)
        assert len(scene.looks) == 1
        await scene.discovery.check()
        assert len(scene.looks) == 2

    alone(test)


def test_stream_that_is_said_to_be_gone_twice_is_asked_for_again() -> None:
    """A proxy may say so; a pause apart, and the third time it is believed."""

    async def test() -> None:
        scene = Scene(GONE, GONE)
        assert await scene.discovery.find("p") is not None
        assert scene.looks == [0, 1, 2]
        scene = Scene()
        scene.facts = [GONE, GONE]
        await scene.discovery.check()
        before = asyncio.get_running_loop().time()
        scene = Scene(GONE, GONE, GONE)
        with pytest.raises(AdapterError, match="the stream 's' was deleted") as caught:
            await scene.discovery.check()
        assert type(caught.value) is AdapterError
        assert caught.value.__cause__ is GONE
        assert asyncio.get_running_loop().time() - before == 2  # none after the last answer

    alone(test)


def test_list_of_another_stream_of_the_same_name_is_no_list() -> None:
    """Nobody is told of its shards."""

    async def test() -> None:
        scene = Scene()
        scene.facts = [StreamFacts("arn:s", 6.0)] * 2
        with pytest.raises(AdapterError, match="deleted and made again"):
            await scene.discovery.run()
        assert (scene.steps, scene.synced) == ([], 0)

    alone(test)


def test_empty_list_may_be_another_one_the_next_time() -> None:
    """Each stream has shards."""

    async def test() -> None:
        scene = Scene([])
        with pytest.raises(TransientAdapterError, match="'s' lists no shards"):
            await scene.discovery.check()
        await asyncio.sleep(0.1)
        await scene.discovery.check()

    alone(test)
