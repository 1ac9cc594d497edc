"""One shard read ahead of its fetches, on the fake and on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk.adapters.kinesis import Limits
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.read_ahead_budget import ReadAheadBudget
from consumer_sdk.adapters.kinesis.consumer.reading import Reader
from consumer_sdk.adapters.kinesis.consumer.sources import Polling
from consumer_sdk.adapters.kinesis.service.rates import ShardRates
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    IteratorStart,
    Page,
    Shard,
    ShardGoneError,
    ThrottledError,
)
from consumer_sdk.adapters.kinesis.starts import NOTHING_LEFT, after
from consumer_sdk.errors import AdapterError, PositionOutOfRangeError, TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Run, Start, StartPoint
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, Quirks, ShardLimits
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, begin, values_of

FIVE_MINUTES = 300.0


class NotedService(FakeService):
    """Notes what it was asked for, and when.

    Attributes:
        starts: of GetShardIterator.
        calls: loop time of each GetRecords.
        refuses_trimmed: a sequence number that was trimmed is no place any more.
    """

    def __init__(self, kinesis: FakeKinesis, faults: Faults) -> None:
        super().__init__(kinesis, "s", faults)
        self.model = kinesis
        self.starts: list[IteratorStart] = []
        self.calls: list[float] = []
        self.refuses_trimmed = False

    async def iterator(self, shard: str, start: IteratorStart) -> str:
        """Notes the start."""
        self.starts.append(start)
        stored = [each.sequence for each in self.model.stream("s").shard(shard).stored()]
        if self.refuses_trimmed and start.sequence is not None and start.sequence not in stored:
            raise PositionOutOfRangeError(f"{start.sequence} is invalid")
        return await super().iterator(shard, start)

    async def records(self, iterator: str, limit: int) -> Page:
        """Notes the time."""
        self.calls.append(asyncio.get_running_loop().time())
        return await super().records(iterator, limit)


class Scene:
    """Shards of a stream ``s``, each with its reader; what is fetched is kept in ``runs``."""

    def __init__(
        self,
        simulation: Simulation,
        shards: int,
        *,
        limits: ShardLimits | None = None,
        quirks: Quirks | None = None,
        buffer: int = 1 << 20,
    ) -> None:
        self.clock = simulation.clock
        self.kinesis = FakeKinesis(simulation.clock, limits=limits, quirks=quirks)
        self.kinesis.create_stream("s", shards)
        self.error: Callable[[str], Exception] = lambda seam: TransientAdapterError(seam)
        self.faults = Faults(error=lambda seam: self.error(seam))
        self.service = NotedService(self.kinesis, self.faults)
        self.lookups: list[Shard | Exception | None] = []
        self.checks: list[Exception] = []
        self.is_listed = True
        self.ended: list[str] = []
        self.runs: list[Run] = []
        self.grants = [Grant("s", shard_id(each), 1) for each in range(shards)]
        self.room = ReadAheadBudget(lambda: self.grants, buffer)
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, start: Start = StartPoint.EARLIEST) -> Grant:
        """Starts all readers; returns the first grant."""
        for grant in self.grants:
            rates = ShardRates(Limits(), 1.0, lambda: 0.5)
            reader = Reader(
                grant,
                Polling(self.service, grant.shard, rates),
                rates,
                self.room,
                now=self.service.time,
                lookup=self.lookup,
                check=self.check,
                on_children=self.ended.append,
            )
            begin(grant, start)
            self.tasks.append(asyncio.create_task(reader.run()))
        return self.grants[0]

    async def lookup(self, shard: str) -> Shard | None:
        """What is planned, else what the stream lists."""
        if not self.lookups:
            if not self.is_listed:
                return None
            return {each.id: each for each in await self.service.shards()}.get(shard)
        answer = self.lookups.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def check(self) -> None:
        """It is the stream that was opened, unless something else is planned."""
        if self.checks:
            raise self.checks.pop(0)

    def put(self, *values: str, shard: int = 0) -> list[int]:
        """Stores records; returns their sequence numbers."""
        puts = [self.kinesis.put("s", each.encode(), shard=shard_id(shard)) for each in values]
        return [record.sequence for _, record in puts]

    def fetch(self, most: int | None = None) -> list[str]:
        """The values of all that was read; or so many at most of each shard."""
        runs: list[Run] = []
        for grant in self.grants:
            while grant.has_run:
                runs.append(grant.take(most or 1000, 1 << 30))
                if most is not None:
                    break
        self.runs += runs
        return values_of(runs)

    async def aclose(self) -> None:
        """Stops the readers."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def play(test: Callable[[Scene], Awaitable[None]], shards: int = 1, **options: Any) -> None:
    """Runs a test on virtual time; an error of a reader is the test's."""

    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation, shards, **options)
        try:
            await test(scene)
            assert not any(task.done() for task in scene.tasks)
        finally:
            await scene.aclose()

    simulate(main)


# -- limits and failures ------------------------------------------------------------------------


def test_shard_is_never_asked_more_often_than_it_allows() -> None:
    """Kinesis trap 22: on a shard that refuses the sixth call, none is ever refused."""

    async def test(scene: Scene) -> None:
        scene.begin()
        found: list[str] = []
        for number in range(400):
            scene.put(f"{number}")
            await asyncio.sleep(0.05)
            found += scene.fetch()
        assert found == [f"{number}" for number in range(len(found))]
        assert len(found) > 390
        assert len(scene.service.calls) > 70
        sixths = zip(scene.service.calls, scene.service.calls[5:], strict=False)
        assert all(sixth - first > 1 for first, sixth in sixths)

    play(test)


def test_shard_of_large_records_is_read_at_its_rate_without_a_refusal() -> None:
    """Kinesis trap 22: 10 MiB, then five seconds of nothing."""

    async def test(scene: Scene) -> None:
        for _ in range(40):
            scene.put("x" * (1 << 20))
        scene.begin()
        await asyncio.sleep(4.5)
        assert len(scene.service.calls) == 1
        await asyncio.sleep(20)
        assert len(scene.fetch()) >= 27
        waits = [b - a for a, b in pairwise(scene.service.calls)]
        assert min(waits[:3]) > 4.4

    play(test, buffer=1 << 30)


def test_throttled_shard_is_left_alone_and_loses_nothing() -> None:
    """Kinesis trap 22: other readers may have used up the limits; its place is kept."""

    async def test(scene: Scene) -> None:
        scene.put("a", "b")
        scene.error = ThrottledError
        scene.faults.fail_next("records", times=4)
        scene.begin()
        await asyncio.sleep(20)
        assert scene.fetch() == ["a", "b"]
        waits = [b - a for a, b in pairwise(scene.service.calls)]
        assert all(0.25 < wait < 1 for wait in waits[:4])

    play(test)


@pytest.mark.parametrize("seam", ["iterator", "records"])
@pytest.mark.parametrize("strike", ["before", "after"])
def test_request_that_fails_or_whose_answer_is_lost_is_made_again(seam: str, strike: Any) -> None:
    """Kinesis trap 25: a server's error, a connection reset; each record comes once."""

    async def test(scene: Scene) -> None:
        scene.begin()
        expected = []
        for number in range(20):
            scene.faults.fail_next(seam, strike)
            scene.put(f"{number}")
            expected.append(f"{number}")
            await asyncio.sleep(30)
        assert scene.fetch() == expected

    play(test)


def test_many_failures_in_a_row_are_told_the_user(caplog: pytest.LogCaptureFixture) -> None:
    """Not each one."""

    async def test(scene: Scene) -> None:
        scene.faults.fail_next("records", times=7)
        scene.begin()
        await asyncio.sleep(100)

    play(test)
    (told,) = [record.message for record in caplog.records]
    assert "5 reads in a row have failed" in told


def test_error_that_does_not_pass_is_a_fault_and_the_reader_rests() -> None:
    """Kinesis trap 25: access denied is asked once, and again when the owner resumes."""

    async def test(scene: Scene) -> None:
        scene.error = AdapterError
        scene.faults.fail_next("records")
        grant = scene.begin()
        await asyncio.sleep(100)
        assert len(scene.service.calls) == 1
        scene.fetch()
        assert isinstance(scene.runs[0].fault, AdapterError)
        scene.put("a")
        grant.resume()
        await asyncio.sleep(2)
        assert scene.fetch() == ["a"]

    play(test)


# -- expired iterators --------------------------------------------------------------------------


@pytest.mark.parametrize("start", [StartPoint.LATEST, "time"])
def test_iterator_that_expires_before_the_first_record_leads_to_the_same_moment(start: Any) -> None:
    """Kinesis trap 23: "latest" stays what it was when it was first asked; no gap."""

    async def test(scene: Scene) -> None:
        scene.put("old")
        await asyncio.sleep(10)
        grant = scene.begin(start if start is StartPoint.LATEST else AtTime(scene.clock.wall()))
        await asyncio.sleep(0.5)
        moment = grant.cursor
        assert isinstance(moment, AtTime)
        grant.pause()
        await asyncio.sleep(100)
        scene.put("missed?")
        await asyncio.sleep(FIVE_MINUTES)
        grant.resume()
        await asyncio.sleep(5)
        assert scene.fetch() == ["missed?"]
        expected = IteratorStart("AT_TIMESTAMP", time=moment.time)
        assert scene.service.starts == [expected, expected]

    play(test)


def test_iterator_that_expires_in_mid_stream_goes_on_after_the_last_record() -> None:
    """Kinesis trap 23: a slow consumer with full buffers."""

    async def test(scene: Scene) -> None:
        _, last = scene.put("a", "b")
        grant = scene.begin()
        await asyncio.sleep(1)
        grant.pause()
        await asyncio.sleep(2)  # a call that was under way
        scene.put("c")
        await asyncio.sleep(2 * FIVE_MINUTES)
        grant.resume()
        await asyncio.sleep(5)
        assert scene.fetch() == ["a", "b", "c"]
        assert scene.service.starts[-1] == IteratorStart("AT_SEQUENCE_NUMBER", last)

    play(test)


@pytest.mark.parametrize("times", [1, 3])
def test_expiry_that_the_service_tells_at_any_time_costs_a_call_and_no_record(times: int) -> None:
    """Kinesis trap 23: also of an iterator that is young."""

    async def test(scene: Scene) -> None:
        scene.error = IteratorExpiredError
        scene.faults.fail_next("records", times=times)
        scene.put("a")
        scene.begin()
        await asyncio.sleep(5)
        assert scene.fetch() == ["a"]
        assert len(scene.service.starts) == times + 1

    play(test)


def test_iterators_that_expire_at_once_are_failures_that_the_user_hears_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kinesis trap 23: not five new ones a second, for ever and in silence."""

    async def test(scene: Scene) -> None:
        scene.error = IteratorExpiredError
        scene.faults.fail_next("records", times=1000)
        scene.begin()
        await asyncio.sleep(120)
        assert len(scene.service.starts) < 25

    play(test)
    assert "5 reads in a row have failed" in caplog.text


@pytest.mark.parametrize("ahead", [0.3, 30.0, 200.0])
def test_start_that_is_yet_to_come_is_waited_for(ahead: float) -> None:
    """The service refuses it, of a host whose clock is ahead too; nothing before it is delivered."""

    async def test(scene: Scene) -> None:
        scene.begin(AtTime(scene.clock.wall() + ahead))
        await asyncio.sleep(ahead / 2)
        scene.put("early")
        await asyncio.sleep(ahead)
        scene.put("late")
        await asyncio.sleep(5)
        assert scene.fetch() == ["late"]
        assert not [run for run in scene.runs if run.fault]

    play(test)


@pytest.mark.parametrize(
    "ahead,words",
    [(3_600.0, "2023-11-1"), (8e9, "2277-05-19"), (1.0, None)],
    ids=["an hour", "centuries", "a second"],
)
def test_start_far_ahead_is_told_once(
    ahead: float, words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """With its date: a wrong time would be waited for in silence, for ever."""

    async def test(scene: Scene) -> None:
        scene.begin(AtTime(1.7e9 + ahead))
        await asyncio.sleep(3_000)

    play(test)
    told = [each.getMessage() for each in caplog.records]
    assert len(told) == (words is not None)
    assert words is None or (words in told[0] and "nothing is read for" in told[0])


# -- back-pressure ------------------------------------------------------------------------------


def test_consumer_that_is_slow_for_minutes_loses_nothing() -> None:
    """Kinesis trap 12: over 30 s, over five minutes, with full buffers."""

    async def test(scene: Scene) -> None:
        expected = [f"{number}-{'x' * 100}" for number in range(300)]
        for value in expected:
            scene.put(value)
        scene.begin()
        found: list[str] = []
        for number in range(100):
            await asyncio.sleep((1, 40, 400)[number % 3])
            found += scene.fetch(5)
        assert found == expected

    play(test, buffer=2_000)


def test_nothing_is_read_while_it_is_paused() -> None:
    """Kinesis trap 23: for an hour; not one call."""

    async def test(scene: Scene) -> None:
        grant = scene.begin()
        await asyncio.sleep(3)
        grant.pause()
        await asyncio.sleep(2)
        before = len(scene.service.calls)
        scene.put("a")
        await asyncio.sleep(3600)
        assert len(scene.service.calls) == before
        grant.resume()
        await asyncio.sleep(2)
        assert scene.fetch() == ["a"]

    play(test)


def test_shard_paused_while_it_waits_for_room_is_not_read_when_there_is_some() -> None:
    """A pause is a pause, whatever was waited for."""

    async def test(scene: Scene) -> None:
        scene.put("x" * 1000, shard=0)
        scene.begin()
        await asyncio.sleep(20)
        before = len(scene.service.calls)
        scene.grants[1].pause()
        scene.put("y", shard=1)
        scene.fetch()
        await asyncio.sleep(0.9)
        assert scene.service.calls[before:]  # the other one is
        assert scene.grants[1].size == 0

    play(test, shards=2, buffer=500)


def test_memory_of_all_shards_together_is_bounded() -> None:
    """Soft by one answer for each; what is fetched makes room for the others."""

    async def test(scene: Scene) -> None:
        for number in range(200):
            for shard in range(4):
                scene.put(f"{number}{'x' * 1000}", shard=shard)
        scene.begin()
        found: list[str] = []
        for _ in range(400):
            await asyncio.sleep(0.5)
            assert sum(grant.size for grant in scene.grants) <= 4 * 210_000
            found += scene.fetch(10)
        assert len(found) == 800

    play(test, shards=4, buffer=100_000)


def test_paused_shard_gives_its_memory_to_those_that_wait_for_it_and_reads_it_again() -> None:
    """Nobody starves for one that is held back, and it loses nothing."""

    async def test(scene: Scene) -> None:
        scene.put(*[f"{number}{'x' * 200}" for number in range(5)], shard=0)
        held_back = scene.begin()
        await asyncio.sleep(20)
        assert len(scene.fetch(1)) == 1
        scene.put("waits", shard=1)
        await asyncio.sleep(20)
        assert (held_back.size > 500, scene.grants[1].size) == (True, 0)
        held_back.pause()
        scene.room.freed()
        await asyncio.sleep(20)
        assert held_back.size == 0
        assert scene.fetch() == ["waits"]
        held_back.resume()
        await asyncio.sleep(20)
        assert [value[0] for value in scene.fetch()] == ["1", "2", "3", "4"]

    play(test, shards=2, buffer=500)


def test_page_that_was_under_way_when_its_shard_was_forgotten_is_thrown_away() -> None:
    """It follows records that are to be read again: each comes once, in order."""

    async def test(scene: Scene) -> None:
        for number in range(200):
            scene.put(f"{number}")
        grant = scene.begin()
        found: list[str] = []
        while len(found) < 200:
            await asyncio.sleep(0.07)
            found += scene.fetch(1)
            grant.forget_unread()
            grant.changed.set()
            scene.put("later")
        assert found[:200] == [f"{number}" for number in range(200)]

    play(test, limits=ShardLimits.none())


# -- ends ---------------------------------------------------------------------------------------


def test_end_of_a_shard_is_told_once_and_nothing_is_read_after_it() -> None:
    """Kinesis trap 20: a closed shard has no next iterator."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        scene.kinesis.split("s", SHARD)
        scene.begin()
        await asyncio.sleep(100)
        assert scene.fetch() == ["a"]
        assert scene.runs[0].ended
        assert scene.ended == [SHARD]
        assert len(scene.service.calls) == 1

    play(test)


class OddService(NotedService):
    """Its answers, but for the first of a shard, are changed as a broken proxy might.

    Attributes:
        odd: so many of the next ones.
        behind: what those say of the tip.
    """

    odd = 0
    behind: int | None = None

    async def records(self, iterator: str, limit: int) -> Page:
        """Nothing but ``{"Records": []}``."""
        page = await super().records(iterator, limit)
        if self.odd:
            self.odd -= 1
            return Page(behind=self.behind)
        return page


@pytest.mark.parametrize("odd", [1, 2, 6])
def test_answer_that_does_not_say_how_to_read_on_is_no_end_of_an_open_shard(odd: int) -> None:
    """Kinesis trap 20: an end is for ever; it is believed when the list of shards says so."""

    async def test(scene: Scene) -> None:
        scene.service = service = OddService(scene.kinesis, scene.faults)
        scene.begin()
        await asyncio.sleep(3)
        service.odd = odd
        scene.put("a")
        await asyncio.sleep(60)
        assert scene.fetch() == ["a"]
        assert not any(run.ended for run in scene.runs)
        assert not scene.ended

    play(test)


@pytest.mark.parametrize("missing", [1, 3])
def test_open_shard_that_is_missing_from_the_list_for_a_moment_is_not_ended(missing: int) -> None:
    """Kinesis trap 20: an odd answer, and a list without the shard, come together."""

    async def test(scene: Scene) -> None:
        scene.service = service = OddService(scene.kinesis, scene.faults)
        scene.begin()
        await asyncio.sleep(3)
        service.odd = missing
        scene.lookups += [None] * missing
        scene.put("a")
        await asyncio.sleep(60)
        assert scene.fetch() == ["a"]
        assert not any(run.ended for run in scene.runs)
        assert not scene.ended

    play(test)


def test_shard_that_was_missing_long_ago_is_looked_for_anew() -> None:
    """Kinesis trap 20: between the two times it was read."""

    async def test(scene: Scene) -> None:
        scene.service = service = OddService(scene.kinesis, scene.faults)
        scene.begin()
        for value in ("a", "b"):
            service.odd = 1
            scene.lookups.append(None)
            scene.put(value)
            await asyncio.sleep(600)
        assert scene.fetch() == ["a", "b"]
        assert not scene.ended

    play(test)


@pytest.mark.parametrize("behind", [None, 0])
@pytest.mark.parametrize("odd", [1, 2, 4])
def test_closed_shard_is_not_ended_by_odd_answers_in_the_middle_of_it(
    odd: int, behind: int | None
) -> None:
    """Kinesis trap 20: it is listed as closed, and has more to read."""

    async def test(scene: Scene) -> None:
        scene.service = service = OddService(scene.kinesis, scene.faults)
        service.behind = behind
        scene.put("a", "b")
        scene.kinesis.split("s", SHARD)
        service.odd = odd
        scene.begin()
        await asyncio.sleep(60)
        assert scene.fetch() == ["a", "b"]
        assert [run.ended for run in scene.runs] == [True]

    play(test)


def test_closed_shard_whose_end_names_neither_children_nor_the_tip_ends() -> None:
    """Kinesis trap 20: as of a server that imitates Kinesis: the same answer, again and again."""

    async def test(scene: Scene) -> None:
        scene.service = service = OddService(scene.kinesis, scene.faults)
        scene.kinesis.split("s", SHARD)
        service.odd = 1000
        scene.begin()
        await asyncio.sleep(100)
        scene.fetch()
        assert [run.ended for run in scene.runs] == [True]

    play(test, quirks=Quirks(names_children=False))


def test_closed_shard_whose_end_lies_behind_the_tip_ends_after_its_last_record() -> None:
    """Kinesis trap 20: as kinesalite says it; the last record is asked for anew each time."""

    class Behind(NotedService):
        async def records(self, iterator: str, limit: int) -> Page:
            page = await super().records(iterator, limit)
            if page.next is None:
                page.behind = 1000
            return page

    async def test(scene: Scene) -> None:
        scene.service = Behind(scene.kinesis, scene.faults)
        scene.put("a")
        scene.kinesis.split("s", SHARD)
        scene.begin()
        await asyncio.sleep(30)
        assert scene.fetch() == ["a"]
        assert scene.runs[-1].ended

    play(test, quirks=Quirks(names_children=False, null_with_last_records=False))


def test_records_that_come_just_before_the_shard_is_closed_are_not_lost_to_an_odd_answer() -> None:
    """Kinesis trap 20: the answer was given at the tip, and the list of shards is asked later."""

    class Closing(NotedService):
        async def records(self, iterator: str, limit: int) -> Page:
            page = await super().records(iterator, limit)
            if len(self.calls) == 2:
                self.model.put("s", b"late")
                self.model.split("s", SHARD)
                page.next = None
            return page

    async def test(scene: Scene) -> None:
        scene.service = Closing(scene.kinesis, scene.faults)
        scene.begin()
        await asyncio.sleep(20)
        assert scene.fetch() == ["late"]
        assert scene.runs[-1].ended

    play(test, quirks=Quirks(names_children=False))


def test_no_record_is_lost_where_each_third_answer_lacks_the_way_on() -> None:
    """Kinesis trap 20: with records and without; each comes once, in order."""

    async def test(scene: Scene) -> None:
        scene.begin()
        expected = [f"{number}" for number in range(50)]
        for value in expected:
            scene.put(value)
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        assert scene.fetch() == expected
        assert not scene.ended

    play(test, quirks=Quirks(false_ends=3))


def test_shard_that_is_no_longer_listed_ends_aloud(caplog: pytest.LogCaptureFixture) -> None:
    """Kinesis trap 20: a closed shard whose records have all expired; its children can be read."""

    async def test(scene: Scene) -> None:
        scene.error = ShardGoneError
        scene.faults.fail_next("records", times=100)
        scene.is_listed = False
        scene.begin(AtPosition(after(10)))
        await asyncio.sleep(60)
        scene.fetch()
        assert [run.ended for run in scene.runs] == [True]
        assert scene.ended == [SHARD]

    play(test)
    assert "all records that it still had have expired" in caplog.text


def test_shard_that_is_gone_with_unsettled_records_is_out_of_range() -> None:
    """Kinesis trap 20: they are lost, which is the user's to decide upon."""

    async def test(scene: Scene) -> None:
        (first,) = scene.put("a")
        scene.error = ShardGoneError
        scene.faults.fail_next("iterator", times=100)
        scene.is_listed = False
        grant = scene.begin(AtPosition((first, 0)))
        await asyncio.sleep(60)
        scene.fetch()
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError)
        assert grant.horizon == after(first)

    play(test)


@pytest.mark.parametrize(
    "start,is_lost",
    [
        (StartPoint.EARLIEST, True),
        (AtTime(5.0), True),
        ("young", False),
        (StartPoint.LATEST, False),
    ],
    ids=str,
)
def test_shard_that_was_never_read_and_is_gone_does_not_end_in_silence(
    start: Any,
    is_lost: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Kinesis trap 20: its records may be lost; not those after a time that is less than a day ago."""

    async def test(scene: Scene) -> None:
        scene.error = ShardGoneError
        scene.faults.fail_next("iterator", times=100)
        scene.is_listed = False
        grant = scene.begin(AtTime(scene.clock.wall() - 80_000) if start == "young" else start)
        await asyncio.sleep(60)
        scene.fetch()
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError) == is_lost
        assert scene.runs[0].ended != is_lost
        assert grant.horizon == (NOTHING_LEFT if is_lost else None)

    play(test)


def test_shard_that_goes_while_its_first_record_is_looked_for_is_a_fault_of_its_own() -> None:
    """Kinesis trap 20: it does not end the consumer's other shards; and here it ends well."""

    class Going(NotedService):
        async def iterator(self, shard: str, start: IteratorStart) -> str:
            if start.kind == "TRIM_HORIZON":
                raise ShardGoneError(shard)
            raise PositionOutOfRangeError(shard)

    async def test(scene: Scene) -> None:
        scene.service = Going(scene.kinesis, scene.faults)
        scene.lookups.append(Shard(SHARD))
        scene.is_listed = False
        scene.begin(AtPosition(after(10)))
        await asyncio.sleep(60)
        scene.fetch()
        assert [(run.ended, run.fault) for run in scene.runs] == [(True, None)]

    play(test)


def test_error_while_the_first_record_is_looked_for_is_the_fault() -> None:
    """Kinesis trap 25: access denied, say; the reader goes on once it is resumed."""

    class Refusing(NotedService):
        async def iterator(self, shard: str, start: IteratorStart) -> str:
            if start.kind == "TRIM_HORIZON":
                raise AdapterError("access denied")
            raise PositionOutOfRangeError(shard)

    async def test(scene: Scene) -> None:
        scene.service = Refusing(scene.kinesis, scene.faults)
        scene.begin(AtPosition(after(10)))
        await asyncio.sleep(10)
        scene.fetch()
        assert [str(run.fault) for run in scene.runs] == ["access denied"]

    play(test)


def test_shard_that_is_gone_and_listed_all_the_same_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody knows what that means: it is neither an end nor a fault, and the user hears of it."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        scene.error = ShardGoneError
        scene.faults.fail_next("records", times=6)
        scene.begin()
        await asyncio.sleep(60)
        assert scene.fetch() == ["a"]
        assert [(run.ended, run.fault) for run in scene.runs] == [(False, None)]
        assert "it is listed all the same" in caplog.text

    play(test)


def test_lookup_that_fails_is_made_again_before_anything_is_decided() -> None:
    """Kinesis trap 25: the list of shards has limits too."""

    async def test(scene: Scene) -> None:
        scene.error = ShardGoneError
        scene.faults.fail_next("iterator", times=100)
        scene.lookups += [ThrottledError("list"), ThrottledError("list")]
        scene.is_listed = False
        scene.begin(AtPosition(after(10)))
        await asyncio.sleep(60)
        scene.fetch()
        assert [(run.ended, run.fault) for run in scene.runs] == [(True, None)]

    play(test)


@pytest.mark.parametrize("refuses", [False, True], ids=["silent", "refuses"])
def test_trimmed_place_is_out_of_range_and_the_horizon_is_found(refuses: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Kinesis trap 20: whether the service gives what is left in silence, or refuses the number."""

    async def test(scene: Scene) -> None:
        (first,) = scene.put("a")
        await asyncio.sleep(100)
        (second,) = scene.put("b")
        scene.kinesis.trim("s", scene.clock.wall() - 50)
        scene.service.refuses_trimmed = refuses
        grant = scene.begin(AtPosition((first, 0)))
        await asyncio.sleep(10)
        assert scene.fetch() == []
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError)
        assert grant.horizon == (second, 0)

    play(test)


@pytest.mark.parametrize("sub", [0, after(0)[1]], ids=["unsettled", "settled"])
def test_refused_place_of_a_shard_that_has_nothing_left_ends_it(sub: int) -> None:
    """Kinesis trap 20: children do not wait for ever; what was not settled is told first."""

    async def test(scene: Scene) -> None:
        (first,) = scene.put("a")
        await asyncio.sleep(100)
        scene.kinesis.split("s", SHARD)
        scene.kinesis.trim("s", scene.clock.wall() - 50)
        scene.service.refuses_trimmed = True
        grant = scene.begin(AtPosition((first, sub)))
        await asyncio.sleep(10)
        scene.fetch()
        is_settled = sub != 0
        assert scene.runs[0].ended == is_settled
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError) != is_settled
        assert grant.horizon == (None if is_settled else after(first))

    play(test)


@pytest.mark.parametrize("times,is_fault", [(1, False), (2, False), (3, True)])
def test_place_that_is_stored_is_refused_several_times_before_that_is_a_fault(
    times: int,
    is_fault: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Kinesis trap 25: one odd answer, of a shard that is listed, is not the consumer's end."""

    class Refusing(NotedService):
        async def iterator(self, shard: str, start: IteratorStart) -> str:
            self.starts.append(start)
            if start.sequence is not None and len(self.starts) < 2 * times:
                raise PositionOutOfRangeError(shard)
            return await FakeService.iterator(self, shard, start)

    async def test(scene: Scene) -> None:
        scene.service = Refusing(scene.kinesis, scene.faults)
        first, _ = scene.put("a", "b")
        scene.begin(AtPosition(after(first)))
        await asyncio.sleep(30)
        assert scene.fetch() == ([] if is_fault else ["b"])
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError) == is_fault

    play(test)


def test_place_that_is_refused_and_newer_than_what_comes_is_a_fault() -> None:
    """Of another stream: the tracker would take all records for settled, in silence."""

    async def test(scene: Scene) -> None:
        scene.begin(AtPosition(after(10**56)))
        await asyncio.sleep(10)
        assert not scene.fetch()
        scene.put("a")
        await asyncio.sleep(10)
        assert not scene.fetch()
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError)

    play(test)


# -- settled records that have expired ----------------------------------------------------------


@pytest.mark.parametrize("refuses", [False, True], ids=["silent", "refuses"])
@pytest.mark.parametrize("left", [[], ["b"]], ids=["idle", "busy"])
def test_settled_record_that_expired_is_told_once_and_reading_goes_on(
    refuses: bool,  # noqa: FBT001 - a parameter of the test
    left: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kinesis trap 20: what came after it may have expired too, and Kinesis does not tell."""

    async def test(scene: Scene) -> None:
        first, _ = scene.put("a", "expired")
        await asyncio.sleep(100)
        scene.put(*left)
        scene.kinesis.trim("s", scene.clock.wall() - 50)
        scene.service.refuses_trimmed = refuses
        scene.begin(AtPosition(after(first)))
        await asyncio.sleep(10)
        scene.put("c")
        await asyncio.sleep(10)
        assert scene.fetch() == [*left, "c"]
        assert not any(run.fault for run in scene.runs)

    play(test)
    (told,) = [each.getMessage() for each in caplog.records]
    assert "is settled, and has expired" in told


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_comes_in_place_of_a_record_is_not_taken_in_before_the_stream_was_looked_at(
    *, is_settled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Kinesis trap 25: a stream that was made again gives what it has, in silence."""

    async def test(scene: Scene) -> None:
        first, second = scene.put("a", "expired")
        await asyncio.sleep(100)
        scene.put("b")
        scene.kinesis.trim("s", scene.clock.wall() - 50)
        scene.checks = [TransientAdapterError("an outage"), AdapterError("it was made again")]
        scene.begin(AtPosition(after(first) if is_settled else (second, 0)))
        await asyncio.sleep(10)
        assert not scene.fetch()
        assert [str(run.fault) for run in scene.runs] == ["it was made again"]

    play(test)
    assert "has expired" not in caplog.text


def test_settled_record_that_is_stored_is_neither_told_nor_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kinesis trap 20: it comes first, by which it is known that nothing is missing."""

    async def test(scene: Scene) -> None:
        first, _ = scene.put("a", "b")
        grant = scene.begin(AtPosition(after(first)))
        await asyncio.sleep(10)
        assert scene.fetch() == ["b"]
        assert grant.cursor != AtPosition(after(first))

    play(test)
    assert not caplog.records


def test_record_that_expires_while_its_shard_is_read_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kinesis trap 20: of a quiet shard; the iterator stands where it stood."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        scene.begin()
        await asyncio.sleep(100)
        scene.kinesis.trim("s", scene.clock.wall() - 50)
        scene.put("b")
        await asyncio.sleep(10)
        assert scene.fetch() == ["a", "b"]

    play(test)
    assert not caplog.records


def test_place_that_was_never_in_the_shard_is_a_fault_without_a_horizon() -> None:
    """A checkpoint of another stream; nothing can be said of what was lost."""

    async def test(scene: Scene) -> None:
        scene.put("a")
        grant = scene.begin(AtPosition((10**56, 0)))
        await asyncio.sleep(10)
        scene.fetch()
        assert isinstance(scene.runs[0].fault, PositionOutOfRangeError)
        assert "out_of_range='earliest'" in str(scene.runs[0].fault)
        assert grant.horizon is None

    play(test)
