"""Claims about acks on their way to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from consumer_sdk.records import AckFlush, Outcome, OutcomeKind, Position
from consumer_sdk.spark_bridge.pull.acks import Acks
from consumer_sdk.testing import simulate
from consumer_sdk.testing.simulation import Simulation
from tests.spark_bridge.pull.memory_ranges import at


class Group:
    """Takes what is written, after the outcomes that a test asks for."""

    def __init__(self, *faults: Outcome, delay: float = 0.001) -> None:
        self.faults = list(faults)
        self.delay = delay
        self.written: list[dict[str, Position]] = []

    async def write(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Write them, or say why not."""
        await asyncio.sleep(self.delay)
        if self.faults:
            return [self.faults.pop(0)] * len(flushes)
        self.written.append({f.assignment.partition.id: f.checkpoint.start for f in flushes})
        return [Outcome.durable()] * len(flushes)


RETRY = Outcome.retry(OSError("down"))


def test_what_is_done_becomes_durable() -> None:
    """All partitions in one write, each at its position."""

    async def main(_: Simulation) -> None:
        group = Group()
        acks = Acks(group.write)
        acks.done({at(0): 5, at(1): 7})
        assert await acks.settle(1) is None
        assert group.written == [{"0": 5, "1": 7}]

    simulate(main)


def test_an_ack_that_changes_nothing_is_not_written() -> None:
    """An idle stream says the same thing for ever."""

    async def main(_: Simulation) -> None:
        group = Group()
        acks = Acks(group.write)
        acks.done({at(0): 5})
        await acks.settle(1)
        acks.done({at(0): 5})
        assert await acks.settle(1) is None
        assert group.written == [{"0": 5}]

    simulate(main)


def test_acks_of_a_log_that_was_made_again_are_written() -> None:
    """Spark goes on from its new end, far below the old one; a write in the air changes nothing."""

    async def main(_: Simulation) -> None:
        group = Group(delay=1.0)
        acks = Acks(group.write)
        acks.done({at(0): 1000, at(1): 5})
        await asyncio.sleep(0.5)
        for position in (7, 50):
            acks.done({at(0): position, at(1): 5})
            await acks.settle(5)
        assert group.written == [{"0": 1000, "1": 5}, {"0": 7}, {"0": 50}]

    simulate(main)


def test_an_answer_is_for_the_log_that_was_written() -> None:
    """The new log is as long as the old one when the answer comes: it is written all the same."""

    async def main(_: Simulation) -> None:
        group = Group(delay=1.0)
        flushes: list[AckFlush] = []

        async def write(given: Sequence[AckFlush]) -> list[Outcome]:
            flushes.extend(given)
            return await group.write(given)

        acks = Acks(write)
        acks.done({at(0): 1000})
        await asyncio.sleep(0.5)
        for position in (7, 1000):
            acks.done({at(0): position})
        assert await acks.settle(5) is None
        acks.done({at(0): 1001})
        assert await acks.settle(5) is None
        assert group.written == [{"0": 1000}, {"0": 1000}, {"0": 1001}]
        assert [each.number for each in flushes] == [1, 1, 2]
        old, new, last = (each.assignment for each in flushes)
        assert old != new == last

    simulate(main)


def test_an_outage_holds_nobody_up_and_the_latest_ack_is_written_after_it() -> None:
    """Trap 5: a bounded wait, retries behind the scenes, one write with what came meanwhile."""

    async def main(_: Simulation) -> None:
        group = Group(*[RETRY] * 3)
        acks = Acks(group.write)
        now = asyncio.get_running_loop().time
        began = now()
        acks.done({at(0): 5})
        problem = await acks.settle(0.1)
        assert now() - began <= 0.1
        assert "down" in str(problem)
        acks.done({at(0): 9})
        await asyncio.sleep(10)
        assert group.written == [{"0": 9}]
        assert await acks.settle(0.1) is None

    simulate(main)


def test_a_refused_ack_waits_for_the_next_one() -> None:
    """A group with members refuses always: it is not asked again and again."""

    async def main(_: Simulation) -> None:
        fenced = Outcome(OutcomeKind.FENCED, error=OSError("has members"))
        group = Group(fenced)
        acks = Acks(group.write)
        acks.done({at(0): 5})
        assert "has members" in str(await acks.settle(1))
        await asyncio.sleep(100)
        assert group.written == []
        acks.done({at(0): 6})
        assert await acks.settle(1) is None
        assert group.written == [{"0": 6}]

    simulate(main)


def test_a_write_that_raises_is_a_failed_write() -> None:
    """A defect of a client, say: nothing looks durable that is not, and it is tried again."""

    async def main(_: Simulation) -> None:
        group = Group()
        left = [RuntimeError("a defect"), AttributeError("another")]

        async def write(flushes: Sequence[AckFlush]) -> list[Outcome]:
            if left:
                raise left.pop(0)
            return await group.write(flushes)

        acks = Acks(write)
        acks.done({at(0): 5})
        assert "a defect" in str(await acks.settle(0.05))
        await asyncio.sleep(10)
        assert group.written == [{"0": 5}]
        assert await acks.settle(0.05) is None

    simulate(main)


def test_one_write_is_in_the_air_at_a_time() -> None:
    """What is done meanwhile is written next, at its latest."""

    async def main(_: Simulation) -> None:
        group = Group(delay=1.0)
        acks = Acks(group.write)
        for position in range(1, 10):
            acks.done({at(0): position})
            await asyncio.sleep(0.21)
        assert await acks.settle(10) is None
        assert group.written == [{"0": 1}, {"0": 5}, {"0": 9}]

    simulate(main)


def test_closing_gives_up_what_is_not_durable() -> None:
    """And leaves no task behind, or the simulation would say so."""

    async def main(_: Simulation) -> None:
        acks = Acks(Group(*[RETRY] * 1000).write)
        acks.done({at(0): 5})
        assert await acks.settle(0.1) is not None
        began = asyncio.get_running_loop().time()
        await acks.aclose()
        assert asyncio.get_running_loop().time() == began

    simulate(main)
