"""Questions to the owner: what they lead to, when they fail, what ends them. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise

import pytest

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook, BaseGrant, GrantState, next_epoch
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.errors import (
    CheckpointFormatError,
    FencedError,
    TransientAdapterError,
    TransientStoreError,
)
from consumer_sdk.records import Assignment, Partition, Start, StartPoint
from consumer_sdk.testing import Simulation, simulate


class Owner(AssignmentOwner):
    """Writes down what it is told, with the partitions' ids.

    Attributes:
        told: in order.
        gate: no question is answered before it is set.
        failures: what the next questions raise.
        left_out: ids of partitions that it does not take.
        drain: awaited by each revoke.
        deadline: of the last revoke.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[BaseException] = []
        self.deadline = 0.0
        self.left_out = ""
        self.drain: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)

    def _note(self, kind: str, assignments: Sequence[Assignment]) -> None:
        self.told.append(f"{kind} {''.join(each.partition.id for each in assignments)}")

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        self._note("asked", assignments)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self._note("cancelled", assignments)
            raise
        if self.failures:
            raise self.failures.pop(0)
        taken = [each for each in assignments if each.partition.id not in self.left_out]
        return dict.fromkeys(taken, StartPoint.EARLIEST)

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        self.deadline = deadline
        self._note("revoked", assignments)
        await self.drain()

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self._note("lost", assignments)


class Desk:
    """An adapter that opens whatever has a start.

    Attributes:
        failed: what would come out of fetch.
    """

    def __init__(self) -> None:
        self.owner = Owner()
        self.book = AssignmentBook[BaseGrant]()
        self.failed: list[Exception] = []
        self.rounds = GrantRounds(
            self.owner, self.book, self._grant_all, failed=self.failed.append, budget=10.0
        )
        self._running = asyncio.create_task(self.rounds.run())

    async def _grant_all(self) -> None:
        for grant in (await self.rounds.ask(self.book)).started:
            self.book.open(grant)

    def offer(self, ids: str) -> list[BaseGrant]:
        """A grant for each letter."""
        grants = [BaseGrant(Assignment(Partition("s", each), next_epoch())) for each in ids]
        for grant in grants:
            self.book.offer(grant)
        self.rounds.wake()
        return grants

    @property
    def opened(self) -> str:
        """What is open."""
        return "".join(g.assignment.partition.id for g in self.book.within(GrantState.OPEN))

    async def aclose(self) -> None:
        """Ends its task."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


def play(test: Callable[[Desk], Awaitable[None]]) -> None:
    """Runs a test on virtual time."""

    async def main(_: Simulation) -> None:
        desk = Desk()
        try:
            await test(desk)
        finally:
            await desk.aclose()

    simulate(main)


def test_all_that_are_offered_are_one_question() -> None:
    """A round trip to the store for a thousand partitions; what comes meanwhile is the next."""

    async def test(desk: Desk) -> None:
        desk.owner.gate.clear()
        desk.offer("ab")
        await asyncio.sleep(1)
        desk.offer("c")
        await asyncio.sleep(1)
        assert desk.opened == ""
        desk.owner.gate.set()
        await asyncio.sleep(1)
        assert desk.opened == "abc"
        assert desk.owner.told == ["asked ab", "asked c"]

    play(test)


@pytest.mark.parametrize(
    "error", [TransientStoreError("down"), TransientAdapterError("down"), FencedError("other")]
)
def test_owner_that_cannot_answer_yet_is_asked_again(error: Exception) -> None:
    """Later each time; the user hears of it in the log alone."""

    async def test(desk: Desk) -> None:
        desk.owner.failures += [error] * 4
        desk.offer("a")
        await asyncio.sleep(0.2 + 0.4 + 0.8 + 1.5)
        assert desk.opened == ""
        await asyncio.sleep(0.2)
        assert desk.opened == "a"
        assert desk.failed == []

    play(test)


def test_error_that_does_not_pass_is_told_and_the_owner_is_asked_again() -> None:
    """It comes out of fetch; a caller that goes on has it granted all the same."""

    async def test(desk: Desk) -> None:
        error = CheckpointFormatError("broken")
        desk.owner.failures.append(error)
        desk.offer("a")
        await asyncio.sleep(1)
        assert desk.failed == [error]
        assert desk.opened == "a"

    play(test)


def test_owner_that_is_cancelled_by_others_is_asked_again() -> None:
    """Its own affair: it must not end the rounds, nor spin."""

    async def test(desk: Desk) -> None:
        desk.owner.failures += [asyncio.CancelledError()] * 3
        desk.offer("a")
        await asyncio.sleep(1)
        assert desk.owner.told == ["asked a"] * 3
        await asyncio.sleep(1)
        assert desk.opened == "a"

    play(test)


def test_partition_that_is_declined_is_over() -> None:
    """And is not asked for again: what follows is the adapter's."""

    async def test(desk: Desk) -> None:
        desk.owner.left_out = "a"
        declined, _ = desk.offer("ab")
        await asyncio.sleep(10)
        assert desk.opened == "b"
        assert declined.is_closed
        assert desk.owner.told == ["asked ab"]

    play(test)


def test_partition_that_is_lost_while_the_owner_thinks_is_told_lost_twice() -> None:
    """When it is lost the owner does not hold it yet, and after its answer it would for ever."""

    async def test(desk: Desk) -> None:
        desk.owner.gate.clear()
        gone, _ = desk.offer("ab")
        await asyncio.sleep(1)
        desk.rounds.lose([gone])
        desk.owner.gate.set()
        await asyncio.sleep(1)
        assert desk.owner.told == ["asked ab", "lost a", "lost a"]
        assert desk.opened == "b"

    play(test)


def test_question_ends_before_what_it_is_about_is_revoked() -> None:
    """The others are asked for again, while the revoke takes its time."""

    async def test(desk: Desk) -> None:
        desk.owner.gate.clear()
        first, _ = desk.offer("ab")
        await asyncio.sleep(1)
        desk.owner.drain = lambda: asyncio.sleep(5)
        revoking = asyncio.create_task(desk.rounds.revoke([first]))
        await asyncio.sleep(1)
        desk.owner.gate.set()
        await asyncio.sleep(1)
        assert desk.opened == "b"
        assert await revoking == [first]
        assert desk.owner.told[:2] == ["asked ab", "cancelled ab"]
        assert sorted(desk.owner.told[2:]) == ["asked b", "revoked a"]

    play(test)


def test_question_is_ended_once_by_revokes_at_the_same_time() -> None:
    """A second cancellation would cut off how the owner gives its claims back; both revokes wait for that."""

    async def test(desk: Desk) -> None:
        desk.owner.gate.clear()
        first, second = desk.offer("ab")
        assigned = desk.owner.assigned

        async def slow_to_end(assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
            try:
                return await assigned(assignments)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
                desk.owner.told.append("cleaned up")
                raise

        desk.owner.assigned = slow_to_end  # type: ignore[method-assign]  # one of its own
        await asyncio.sleep(1)
        revoking = asyncio.create_task(desk.rounds.revoke([first]))
        await asyncio.sleep(0.5)
        await desk.rounds.revoke([second])
        await revoking
        assert desk.owner.told[:3] == ["asked ab", "cancelled ab", "cleaned up"]
        assert sorted(desk.owner.told[3:]) == ["revoked a", "revoked b"]

    play(test)


def test_revoke_does_not_end_a_question_about_others() -> None:
    """A handover costs nobody else a round trip."""

    async def test(desk: Desk) -> None:
        (first,) = desk.offer("a")
        await asyncio.sleep(1)
        desk.owner.gate.clear()
        desk.offer("b")
        await asyncio.sleep(1)
        await desk.rounds.revoke([first])
        desk.owner.gate.set()
        await asyncio.sleep(1)
        assert desk.owner.told == ["asked a", "asked b", "revoked a"]
        assert desk.opened == "b"

    play(test)


def test_partition_that_is_lost_while_it_is_drained_is_not_released() -> None:
    """`revoke` tells which were held to the end; the others are somebody else's by then."""

    async def test(desk: Desk) -> None:
        first, second = desk.offer("ab")
        await asyncio.sleep(1)
        desk.owner.drain = lambda: asyncio.sleep(5)
        revoking = asyncio.create_task(desk.rounds.revoke([first, second]))
        await asyncio.sleep(1)
        assert desk.book.of(first.assignment) is first  # its commits are still valid
        desk.rounds.lose([first])
        assert await revoking == [second]
        assert desk.owner.told == ["asked ab", "revoked ab", "lost a"]

    play(test)


def test_owner_that_fails_as_it_is_cancelled_stops_nothing() -> None:
    """A store may answer the cancellation with an error of its own."""

    async def test(desk: Desk) -> None:
        desk.owner.gate.clear()
        assigned = desk.owner.assigned

        async def cut_off(assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
            try:
                return await assigned(assignments)
            except asyncio.CancelledError:
                raise TransientStoreError("cut off") from None

        desk.owner.assigned = cut_off  # type: ignore[method-assign]  # one of its own
        first, _ = desk.offer("ab")
        await asyncio.sleep(1)
        assert await desk.rounds.revoke([first]) == [first]
        desk.owner.gate.set()
        await asyncio.sleep(1)
        assert desk.opened == "b"

    play(test)


def test_pause_of_a_question_that_failed_is_forgotten_when_it_is_asked_again() -> None:
    """The owner pauses what it begins to hold, and holds nothing when it fails: nobody would resume it."""

    async def test(desk: Desk) -> None:
        paused, kept = desk.offer("ab")
        assigned, tries = desk.owner.assigned, 0

        async def pausing(assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
            nonlocal tries
            tries += 1
            if tries == 1:
                paused.is_paused = True
            kept.is_paused = True
            return await assigned(assignments)

        desk.owner.assigned = pausing  # type: ignore[method-assign]  # one of its own
        desk.owner.failures.append(TransientStoreError("down"))
        await asyncio.sleep(1)
        assert desk.opened == "ab"
        assert paused.is_fetched
        assert kept.is_paused

    play(test)


def test_round_that_is_under_way_ends_with_the_adapter() -> None:
    """Its question is not answered by a consumer that has closed."""

    async def test(desk: Desk) -> None:
        desk.owner.gate.clear()
        desk.offer("a")
        await asyncio.sleep(1)
        await desk.aclose()
        assert desk.owner.told == ["asked a", "cancelled a"]

    play(test)


def test_round_that_does_not_end_holds_the_close_up_no_longer_than_the_budget() -> None:
    """And the close is no failure."""

    async def test(desk: Desk) -> None:
        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.sleep(15)
                except asyncio.CancelledError:
                    continue
                return

        rounds = GrantRounds(
            desk.owner, desk.book, stubborn, failed=desk.failed.append, budget=10.0
        )
        running = asyncio.create_task(rounds.run())
        rounds.wake()
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait({running})
        assert asyncio.get_running_loop().time() == 11
        assert running.cancelled()
        await asyncio.sleep(20)

    play(test)


def test_error_that_is_no_exception_ends_the_rounds() -> None:
    """Nobody tries again what ends the program."""

    class Stop(BaseException):
        """Such as an interrupt."""

    async def test(desk: Desk) -> None:
        desk.owner.failures.append(Stop())
        desk.offer("a")
        with pytest.raises(Stop):
            await desk._running
        assert (desk.failed, desk.opened) == ([], "")

    play(test)


def test_question_that_fails_is_asked_again_ever_later_until_something_is_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next failure begins a new series; a round without an offer asks nothing."""

    async def test(desk: Desk) -> None:
        assigned, times = desk.owner.assigned, list[float]()
        now = asyncio.get_running_loop().time

        async def timed(assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
            times.append(now())
            return await assigned(assignments)

        desk.owner.assigned = timed  # type: ignore[method-assign]  # one of its own
        desk.rounds.wake()
        await asyncio.sleep(1)
        desk.owner.failures += [TransientStoreError("down")] * 7
        desk.offer("a")
        await asyncio.sleep(49)
        desk.owner.failures.append(TransientStoreError("down"))
        desk.offer("b")
        await asyncio.sleep(10)
        gaps = [round(after - before, 3) for before, after in pairwise([0.0, *times])]
        assert gaps == [1.0, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 32.8, 0.2]
        assert (desk.failed, desk.opened) == ([], "ab")

    play(test)
    assert "partitions are not granted yet, trying again: down" in caplog.text


def test_revoke_has_the_budget_from_its_beginning() -> None:
    """The end of a question that is under way is part of it."""

    async def test(desk: Desk) -> None:
        (held,) = desk.offer("a")
        await asyncio.sleep(5)
        assert await desk.rounds.revoke([held]) == [held]
        assert desk.owner.deadline == 15

    play(test)
