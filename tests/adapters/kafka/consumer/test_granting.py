"""What becomes of partitions that a group assigns, drops and takes back. On virtual time, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.grant_rounds import FIRST_BACKOFF, GrantRounds
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.kafka.consumer import granting as module
from consumer_sdk.adapters.kafka.consumer.granting import (
    OVERRUN,
    Failures,
    Granting,
    Holdings,
    Revoking,
)
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.fetch.cursor import Cursor
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import Assignment, Start, StartPoint
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.test_grant_rounds import Owner

BUDGET = 10.0
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PLACES = {T0: 10, T1: 11, U0: 20}
IDS = {"t": b"t" * 16, "u": b"u" * 16}


class Starter(Owner):
    """An owner that may say other starts, and pause what it is asked about.

    Attributes:
        start: of all partitions.
        answers: called before it answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.start: Start = StartPoint.EARLIEST
        self.answers: Callable[[], object] = lambda: None

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        taken = await super().assigned(assignments)
        self.answers()
        return dict.fromkeys(taken, self.start)


class Places:
    """Where grants start.

    Attributes:
        looked: called at each look-up.
        failures: what the next look-ups raise.
        groups: what was said of the group.
        gate: no look-up is answered before it is set.
        ended: how many look-ups were.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.ended = 0
        self.looked: Callable[[], object] = lambda: None
        self.failures: list[Exception] = []
        self.groups: set[bool] = set()

    async def resolve(self, grants: Sequence[Grant], *, has_group: bool) -> Mapping[Grant, int]:
        """As `Offsets` does."""
        self.groups.add(has_group)
        await asyncio.sleep(0)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        self.looked()
        if self.failures:
            raise self.failures.pop(0)
        return {g: PLACES[g.tp] for g in grants if g.start is not StartPoint.ENDED}


class Desk:
    """All that holds partitions.

    Attributes:
        opened: the cursors that were opened.
        wakes: how often whoever fetches was woken because grants were opened.
        absent: topics that there are not.
    """

    def __init__(self, *, has_group: bool = True, unread: Collection[str] = ()) -> None:
        self.owner, self.places = Starter(), Places()
        self.book = AssignmentBook[Grant]()
        self.opened: list[Cursor] = []
        self.wakes = 0
        self.absent: set[str] = set()
        self.described: list[list[str]] = []
        self.woken = 0
        self.failures = Failures(self._on_failure)
        self.rounds = GrantRounds(
            self.owner,
            self.book,
            lambda: self.granting.grant_all(),
            failed=self.failures.keep,
            budget=BUDGET,
        )
        self.revoking = Revoking(self.rounds, self.book, self.failures)
        nothing: Any = self
        self.granting = Granting(
            nothing,
            rounds=self.rounds,
            grants=self.book,
            offsets=nothing.places,
            revoking=self.revoking,
            has_group=has_group,
            opens=self.opened.append,
            opened=self._on_opened,
        )
        self.granting.known = frozenset({T0})
        self.holdings = Holdings(
            *(self.book, self.granting, self.revoking, self.failures), unread=frozenset(unread)
        )
        self._running = asyncio.create_task(self.rounds.run())

    def _on_failure(self) -> None:
        self.woken += 1

    def _on_opened(self) -> None:
        self.wakes += 1

    async def describe(self, names: list[str]) -> dict[str, Topic]:
        """As `describe_topics` does."""
        self.described.append(names)
        return {
            name: Topic(name, 3 if name in self.absent else 0, IDS[name], frozenset({0, 1}), 1)
            for name in names
        }

    async def held(self, *tps: TopicPartition) -> list[Grant]:
        """The grants of partitions that the group assigns, once they had time to open."""
        self.holdings.assign(tps)
        await asyncio.sleep(0.01)
        return [self.at(tp) for tp in tps]

    def at(self, tp: TopicPartition) -> Grant:
        """What is held of a partition."""
        found = self.book.at(tp)
        assert found is not None
        return found

    async def aclose(self) -> None:
        """Ends its task."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


Play = Callable[[Desk], Coroutine[Any, Any, None]]


def play(test: Play, **options: Any) -> None:
    """Runs a test on virtual time."""

    async def main(_: Simulation) -> None:
        desk = Desk(**options)
        try:
            await test(desk)
        finally:
            await desk.aclose()

    simulate(main)


@pytest.fixture(autouse=True)
def descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each desk describes the topics."""
    monkeypatch.setattr(module, "describe_topics", Desk.describe)


def virtual(test: Play) -> Callable[[], None]:
    """A test of a desk."""

    @wraps(test)
    def run() -> None:
        play(test)

    del run.__wrapped__  # pytest would ask for a fixture of its name
    return run


# -- granting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_group", [True, False])
def test_partitions_are_opened_where_they_start(*, has_group: bool) -> None:
    """With the id of their topic; those of the beginning were not discovered."""

    async def test(desk: Desk) -> None:
        grants = await desk.held(T1, T0)
        assert desk.owner.told == ["asked 01"]
        assert desk.described == [["t"]]
        assert [g.cursor.position for g in grants] == [11, 10]
        assert [g.assignment.discovered for g in grants] == [True, False]
        assert {g.state for g in grants} == {GrantState.OPEN}
        assert {(g.topic_id, g.cursor.topic_id) for g in grants} == {(IDS["t"], IDS["t"])}
        assert not any(g.cursor.paused for g in grants)
        assert desk.opened == [desk.at(T0).cursor, desk.at(T1).cursor]
        assert (desk.wakes, desk.places.groups) == (1, {has_group})
        assert desk.holdings.tps == {T0, T1}

    play(test, has_group=has_group)


@virtual
async def test_partition_that_the_owner_pauses_at_once_is_not_fetched(desk: Desk) -> None:
    """It is opened, and waits."""
    desk.owner.answers = lambda: desk.at(T0).pause()
    paused, other = await desk.held(T0, T1)
    assert (paused.state, paused.cursor.position) == (GrantState.OPEN, 10)
    assert (paused.cursor.paused, other.cursor.paused) == (True, False)


@virtual
async def test_partition_that_is_read_to_its_end_is_held_and_not_fetched(desk: Desk) -> None:
    """It has no place."""
    desk.owner.start = StartPoint.ENDED
    (grant,) = await desk.held(T0)
    assert (grant.state, grant.cursor.position) == (GrantState.OPEN, -1)
    assert (desk.opened, desk.wakes) == ([], 1)


@virtual
async def test_partition_that_is_lost_while_its_place_is_looked_up_is_not_opened(
    desk: Desk,
) -> None:
    """T1: what comes back is another assignment, with a look-up of its own."""

    def lose() -> None:
        desk.places.looked = lambda: None
        desk.holdings.lose([T0], "evicted")
        desk.holdings.assign([T0])

    desk.places.looked = lose
    desk.holdings.assign([T0, T1])
    await asyncio.sleep(0.01)
    assert desk.owner.told == ["asked 01", "lost 0", "asked 0"]
    assert [cursor.tp for cursor in desk.opened] == [T1, T0]
    assert desk.opened[1] is desk.at(T0).cursor


@virtual
async def test_place_that_nobody_tells_is_looked_up_again(desk: Desk) -> None:
    """The owner is not asked once more: it has said where to start."""
    desk.places.failures = [TransientAdapterError("no answer")]
    (grant,) = await desk.held(T0)
    assert (grant.state, desk.wakes) == (GrantState.STARTING, 0)
    await asyncio.sleep(2 * FIRST_BACKOFF)
    assert (grant.state, desk.owner.told) == (GrantState.OPEN, ["asked 0"])


@virtual
async def test_partitions_of_a_topic_that_is_gone_are_offered_when_it_is_back(desk: Desk) -> None:
    """Those of the others are granted meanwhile."""
    desk.absent = {"u"}
    gone, there = await desk.held(U0, T0)
    assert desk.owner.told == ["asked 0"]
    assert (gone.state, gone.topic_id) == (GrantState.OFFERED, None)
    assert there.state is GrantState.OPEN
    await asyncio.sleep(FIRST_BACKOFF)
    assert (len(desk.described), gone.state) == (2, GrantState.OFFERED)
    desk.absent.clear()
    await asyncio.sleep(10 * FIRST_BACKOFF)
    assert (gone.state, gone.topic_id) == (GrantState.OPEN, IDS["u"])
    assert desk.owner.told == ["asked 0", "asked 0"]


@pytest.mark.parametrize("absent", [{"u"}, set()])
def test_topic_that_is_gone_is_said(absent: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """With those that it may be."""

    async def test(desk: Desk) -> None:
        desk.absent = absent
        await desk.held(U0, T0)
        assert ("no longer exists: one of ['t', 'u']" in caplog.text) is bool(absent)
        await asyncio.sleep(1)
        assert (len(desk.described) > 1) is bool(absent)  # it is looked at again

    play(test)


@virtual
async def test_declined_partition_is_offered_again_after_a_while(desk: Desk) -> None:
    """A member cannot give back a single partition; each offer is a new epoch."""
    desk.owner.left_out = "1"
    declined, _other = await desk.held(T1, T0)
    assert desk.owner.told == ["asked 01"]
    assert (declined.attempt, declined.state) == (1, GrantState.OFFERED)
    desk.owner.left_out = ""
    await asyncio.sleep(FIRST_BACKOFF)
    assert desk.owner.told == ["asked 01", "asked 1"]
    assert desk.at(T1) is declined
    assert declined.state is GrantState.OPEN


@virtual
async def test_declined_partition_that_the_group_has_taken_back_is_not_offered_again(
    desk: Desk,
) -> None:
    """T1: it may be another member's."""
    desk.owner.left_out = "1"
    desk.owner.answers = lambda: desk.granting.give_up([T1])
    desk.holdings.assign([T0, T1])
    await asyncio.sleep(1)
    assert desk.owner.told == ["asked 01"]
    assert desk.book.at(T1) is None
    assert desk.holdings.tps == {T0}


# -- dropping --------------------------------------------------------------------------------------


@virtual
async def test_dropped_partition_is_drained_and_granted_in_a_new_epoch(desk: Desk) -> None:
    """The first time at once, then later and later."""
    first, other = await desk.held(T0, T1)
    desk.granting.drop(first)
    assert first.state is GrantState.DRAINING
    assert first.cursor.is_closed
    assert desk.granting.is_renewing([other, first])
    assert not desk.granting.is_renewing([other])
    await asyncio.sleep(0.01)
    second = desk.at(T0)
    assert desk.owner.told == ["asked 01", "revoked 0", "asked 0"]
    assert (first.state, second.state) == (GrantState.CLOSED, GrantState.OPEN)
    assert second.assignment.epoch > first.assignment.epoch
    assert not desk.granting.is_renewing([first])
    desk.granting.drop(second)
    await asyncio.sleep(FIRST_BACKOFF / 2)
    assert desk.owner.told[3:] == []
    await asyncio.sleep(FIRST_BACKOFF)
    assert desk.owner.told[3:] == ["revoked 0", "asked 0"]
    assert desk.at(T0).attempt == 2
    assert other.state is GrantState.OPEN


@virtual
async def test_partition_that_is_dropped_twice_is_granted_anew_once(desk: Desk) -> None:
    """By its owner, and because its topic was made again: the new grant stays."""
    (grant,) = await desk.held(T0)
    for _ in range(2):
        desk.granting.drop(grant)
    await asyncio.sleep(1)
    assert desk.owner.told == ["asked 0", "revoked 0", "asked 0"]
    assert not desk.granting.is_renewing([grant])


@pytest.mark.parametrize("comes_back", [True, False])
def test_dropped_partition_that_the_group_takes_is_not_granted_anew(*, comes_back: bool) -> None:
    """T1: it may be another member's; or it has come back, and has a grant already."""

    async def test(desk: Desk) -> None:
        (grant,) = await desk.held(T0)
        desk.granting.drop(grant)
        desk.holdings.lose([T0], "evicted")
        if comes_back:
            desk.holdings.assign([T0])
        await asyncio.sleep(1)
        again = ["asked 0"] if comes_back else []
        assert desk.owner.told == ["asked 0", "lost 0", *again]
        assert desk.holdings.tps == ({T0} if comes_back else set())
        assert not desk.granting.is_renewing([grant])

    play(test)


@virtual
async def test_partition_that_the_group_takes_while_its_old_epoch_ends_is_not_granted_anew(
    desk: Desk,
) -> None:
    """1. It is dropped, and drains; 2. the group takes it; 3. the drain is over."""
    grant, _other = await desk.held(T0, T1)
    drained = asyncio.Event()
    desk.owner.drain = drained.wait
    desk.granting.drop(grant)
    await asyncio.sleep(0.01)
    taken = desk.holdings.take([T0])
    assert (taken.grants, taken.ends_round) == ([grant], True)
    drained.set()
    await desk.holdings.drain(taken)
    await asyncio.sleep(1)
    assert desk.owner.told.count("asked 0") == 0
    assert desk.book.at(T0) is None


# -- what the group assigns and takes ---------------------------------------------------------------


@virtual
async def test_partition_that_is_held_is_not_assigned_again(desk: Desk) -> None:
    """The group names all that a member has, each time."""
    (first,) = await desk.held(T0)
    await desk.held(T0, T1)
    assert desk.owner.told == ["asked 0", "asked 1"]
    assert desk.at(T0) is first


def test_partitions_of_topics_that_are_not_read_are_held_without_a_grant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever read Kafka's own topics would commit without end."""

    async def test(desk: Desk) -> None:
        caplog.set_level("INFO")
        desk.holdings.assign([U0, T0])
        await asyncio.sleep(0.01)
        assert desk.owner.told == ["asked 0"]
        assert desk.holdings.tps == {T0}
        assert "1 partitions of Kafka's own topics match the pattern" in caplog.text

    play(test, unread={"u"})


@virtual
async def test_partitions_that_are_taken_are_drained_and_the_others_go_on(desk: Desk) -> None:
    """Nothing of them is fetched from that moment on; their commits are valid until the end."""
    grant, other = await desk.held(T0, T1)
    taken = desk.holdings.take([T0, U0])
    assert (taken.grants, taken.ends_round) == ([grant], False)
    assert (grant.state, grant.cursor.is_closed) == (GrantState.DRAINING, True)
    assert (other.state, other.cursor.is_closed) == (GrantState.OPEN, False)
    assert desk.holdings.tps == {T1}
    await desk.holdings.drain(taken)
    assert grant.state is GrantState.CLOSED
    assert desk.owner.told == ["asked 01", "revoked 0"]
    desk.failures.raise_kept()


@virtual
async def test_partition_that_is_over_already_is_not_revoked(desk: Desk) -> None:
    """It was lost while others drained."""
    grant, other = await desk.held(T0, T1)
    taken = desk.holdings.take([T0, T1])
    desk.revoking.lose([grant])
    await desk.holdings.drain(taken)
    assert desk.owner.told == ["asked 01", "lost 0", "revoked 1"]
    assert other.is_closed


@virtual
async def test_taking_what_is_being_renewed_ends_the_round_and_begins_it_anew(desk: Desk) -> None:
    """Else the drop's own drain would go on beside that of the group; the others are granted all the same."""
    grant, _other = await desk.held(T0, T1)
    drained = asyncio.Event()
    desk.owner.drain = drained.wait
    desk.granting.drop(grant)
    desk.holdings.assign([U0])  # in the same round, behind the drain
    await asyncio.sleep(0.01)
    assert desk.owner.told[1:] == ["revoked 0"]
    taken = desk.holdings.take([T0])
    drain = asyncio.create_task(desk.holdings.drain(taken))
    await asyncio.sleep(0.01)
    assert desk.at(U0).state is GrantState.OPEN
    drained.set()
    await drain
    assert grant.is_closed
    assert desk.book.at(T0) is None


@virtual
async def test_lost_partitions_are_over_at_once(desk: Desk) -> None:
    """Whatever the owner is doing with them."""
    grant, other = await desk.held(T0, T1)
    desk.holdings.lose([T0], "evicted")
    assert (grant.is_closed, other.is_closed) == (True, False)
    assert desk.owner.told == ["asked 01", "lost 0"]
    assert desk.holdings.tps == {T1}


@pytest.mark.parametrize("tps, warnings", [([T0], 1), ([U0], 0)])
def test_loss_is_said_where_something_was_held(
    tps: list[TopicPartition], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason."""

    async def test(desk: Desk) -> None:
        await desk.held(T0)
        caplog.clear()
        desk.holdings.lose(tps, "evicted")
        assert caplog.text.count("1 partitions are lost") == warnings
        assert caplog.text.count("evicted") == warnings

    play(test)


@virtual
async def test_end_drains_all_and_takes_nothing_more(desk: Desk) -> None:
    """An assignment that is on its way finds it closing."""
    grants = await desk.held(T0, T1)
    await desk.holdings.end()
    desk.holdings.assign([U0])
    await asyncio.sleep(1)
    assert desk.owner.told == ["asked 01", "revoked 01"]
    assert all(grant.is_closed for grant in grants)
    assert desk.holdings.tps == frozenset()
    await desk.holdings.end()  # finds none
    assert desk.owner.told == ["asked 01", "revoked 01"]


@virtual
async def test_end_ends_a_question_first(desk: Desk) -> None:
    """What the owner is still asked about is not granted any more."""
    desk.owner.gate.clear()
    await desk.held(T0)
    await desk.holdings.end()
    assert desk.owner.told == ["asked 0", "cancelled 0", "revoked 0"]
    assert len(desk.book) == 0


@virtual
async def test_end_ends_the_round_first(desk: Desk) -> None:
    """Nothing goes on behind it, such as the look-up of a place."""
    desk.places.gate.clear()
    (grant,) = await desk.held(T0)
    assert (grant.state, desk.places.ended) == (GrantState.STARTING, 0)
    desk.owner.drain = partial(ended, desk)
    await desk.holdings.end()
    assert desk.owner.told == ["asked 0", "revoked 0"]
    assert grant.is_closed
    desk.failures.raise_kept()


async def ended(desk: Desk) -> None:
    """The look-up is over by now."""
    assert desk.places.ended == 1


# -- an owner that fails ----------------------------------------------------------------------------


@virtual
async def test_drain_that_overruns_has_lost_its_partitions(desk: Desk) -> None:
    """Half a second past the budget; it is cancelled, and the membership goes on."""
    (grant,) = await desk.held(T0)
    desk.owner.drain = asyncio.Event().wait
    time = asyncio.get_running_loop().time
    began = time()
    await desk.holdings.drain(desk.holdings.take([T0]))
    assert time() - began == pytest.approx(BUDGET + OVERRUN)
    assert grant.is_closed
    assert desk.owner.told == ["asked 0", "revoked 0", "lost 0"]
    desk.failures.raise_kept()


@pytest.mark.parametrize("is_late", [True, False])
def test_drain_that_is_late_is_said(caplog: pytest.LogCaptureFixture, *, is_late: bool) -> None:
    """With the partitions; one that ends in time is not."""

    async def test(desk: Desk) -> None:
        await desk.held(T0)
        if is_late:
            desk.owner.drain = asyncio.Event().wait
        await desk.holdings.drain(desk.holdings.take([T0]))

    play(test)
    assert ("the drain did not end in time: ['t/0']" in caplog.text) is is_late


@virtual
async def test_drain_that_fails_ends_the_partition_and_comes_out_of_fetch(desk: Desk) -> None:
    """Once."""
    (grant,) = await desk.held(T0)
    desk.owner.drain = partial(fail, ValueError("drain"))
    await desk.holdings.drain(desk.holdings.take([T0]))
    assert grant.is_closed
    assert desk.owner.told == ["asked 0", "revoked 0"]
    with pytest.raises(ValueError, match="drain"):
        desk.failures.raise_kept()
    desk.failures.raise_kept()
    assert desk.woken == 1


async def fail(error: BaseException) -> None:
    """Raises it."""
    raise error


@virtual
async def test_drain_that_cancels_itself_ends_the_partition_alone(desk: Desk) -> None:
    """Nothing that the owner does ends the membership."""
    (grant,) = await desk.held(T0)
    desk.owner.drain = partial(fail, asyncio.CancelledError())
    await desk.holdings.drain(desk.holdings.take([T0]))
    assert grant.is_closed
    desk.failures.raise_kept()


@virtual
async def test_error_of_taking_a_loss_comes_out_of_fetch(desk: Desk) -> None:
    """The partition is over all the same."""

    def lost(_assignments: Sequence[Assignment]) -> None:
        raise ValueError("loss")

    (grant,) = await desk.held(T0)
    faulty: Any = desk.owner
    faulty.lost = lost
    desk.holdings.lose([T0], "evicted")
    assert grant.is_closed
    with pytest.raises(ValueError, match="loss"):
        desk.failures.raise_kept()


@virtual
async def test_error_of_ending_a_round_comes_out_of_fetch(desk: Desk) -> None:
    """A drain never raises into the membership."""
    (grant,) = await desk.held(T0)
    faulty: Any = desk.rounds
    faulty.end = partial(fail, ValueError("end"))
    desk.granting.drop(grant)
    await desk.holdings.drain(desk.holdings.take([T0]))
    with pytest.raises(ValueError, match="end"):
        desk.failures.raise_kept()
    del faulty.end


def test_first_error_is_the_one_that_is_raised() -> None:
    """Later ones are told in the log; each wakes whoever fetches."""
    wakes: list[None] = []
    failures = Failures(lambda: wakes.append(None))
    failures.raise_kept()
    for text in ("first", "second"):
        failures.keep(ValueError(text))
    assert len(wakes) == 2
    with pytest.raises(ValueError, match="first"):
        failures.raise_kept()
    failures.raise_kept()
    failures.keep(ValueError("third"))
    with pytest.raises(ValueError, match="third"):
        failures.raise_kept()
