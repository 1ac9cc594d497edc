"""Claims about how often the broker is asked, how long an answer takes, and outages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.spark_bridge.pull.planning.admission import Limit
from consumer_sdk.spark_bridge.pull.planning.polling import PATIENCE, Poller, patiently
from consumer_sdk.testing import simulate
from consumer_sdk.testing.simulation import Simulation

ALL = Limit("all")
OLD: dict[str, Any] = {"at": 1}
NEW: dict[str, Any] = {"at": 2}
ENGINE_DELAY = 0.01  # Spark's pollingDelay


class Broker:
    """Answers with the start until there is news; fails or hangs while it is down."""

    def __init__(self) -> None:
        self.asked = 0
        self.delay = 0.001
        self.has_news = False
        self.is_down = False

    async def ask(self, start: dict[str, Any], limit: Limit) -> dict[str, Any]:
        """Return where the batch ends."""
        self.asked += 1
        await asyncio.sleep(self.delay)
        if self.is_down:
            raise TransientAdapterError("down")
        return dict(NEW if self.has_news else start)


async def poll(poller: Poller, seconds: float) -> tuple[list[dict[str, Any]], float]:
    """Ask as Spark's default trigger does; return the answers and the longest call."""
    now = asyncio.get_running_loop().time
    end, longest, answers = now() + seconds, 0.0, []
    while now() < end:
        began = now()
        answers.append(await poller.end(OLD, ALL, is_final=False))
        longest = max(longest, now() - began)
        await asyncio.sleep(ENGINE_DELAY)
    return answers, longest


def test_an_idle_stream_asks_at_most_five_times_a_second() -> None:
    """Trap 15: Spark asks 90 times a second, with the identical answer each time (trap 2)."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask)
        await poll(poller, 10)
        before = broker.asked
        answers, longest = await poll(poller, 60)
        assert 3 <= (broker.asked - before) / 60 <= 5
        assert all(answer == OLD for answer in answers)
        assert longest < 0.5
        await poller.aclose()

    simulate(main)


@pytest.mark.parametrize("cost", [1, 2, 3, 8])
def test_a_look_of_several_requests_is_taken_less_often(cost: int) -> None:
    """Of several topics or leaders: together at most five requests a second; answers stay quick."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask, cost=lambda: cost)
        await poll(poller, 10)
        before = broker.asked
        answers, longest = await poll(poller, 60)
        assert 3 <= cost * (broker.asked - before) / 60 <= 5
        assert all(answer == OLD for answer in answers)
        assert longest < 0.51
        await poller.aclose()

    simulate(main)


def test_a_look_of_many_requests_is_taken_every_two_seconds() -> None:
    """News may be late by no more than that, and waiting is not an outage."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask, patience=1.5, cost=lambda: 1000)
        await poll(poller, 60)
        assert 29 <= broker.asked <= 36
        broker.has_news = True
        now = asyncio.get_running_loop().time
        began = now()
        while await poller.end(OLD, ALL, is_final=False) != NEW:
            assert now() - began < 2.1
        await poller.aclose()

    simulate(main)


def test_news_is_seen_within_a_quarter_of_a_second() -> None:
    """However long the stream was idle; while records come, without any wait."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask)
        await poll(poller, 10)
        broker.has_news = True
        now = asyncio.get_running_loop().time
        began = now()
        assert await poller.end(OLD, ALL, is_final=False) == NEW
        assert now() - began < 0.3
        began = now()
        assert await poller.end(OLD, ALL, is_final=False) == NEW
        assert now() - began < 0.01

    simulate(main)


@pytest.mark.parametrize("is_hanging", [False, True])
def test_an_outage_is_no_news_and_then_an_error(is_hanging: bool) -> None:  # noqa: FBT001 - a case
    """Each answer comes at once (trap 19); after 30 s the query fails, and says what to do."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask)
        await poll(poller, 1)
        broker.is_down, broker.delay = True, 3600.0 if is_hanging else 0.001
        answers, longest = await poll(poller, PATIENCE - 2)
        assert all(answer == OLD for answer in answers)
        assert longest < 1.0
        with pytest.raises(TransientAdapterError, match="start the query again"):
            await poll(poller, 10)
        await poller.aclose()

    simulate(main)


def test_an_outage_that_passes_is_forgotten() -> None:
    """The next one has its full time again."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask)
        for _outage in range(5):
            broker.is_down = False
            await poll(poller, 1)
            broker.is_down = True
            await poll(poller, PATIENCE - 5)
        await poller.aclose()

    simulate(main)


def test_a_final_answer_waits_for_the_truth() -> None:
    """AvailableNow: "no news" would end the run early, and leave records unread."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        broker.is_down = True
        poller = Poller(broker.ask)
        asyncio.get_running_loop().call_later(20, setattr, broker, "is_down", False)
        broker.has_news = True
        assert await poller.end(OLD, ALL, is_final=True) == NEW

    simulate(main)


def test_the_first_answer_waits_for_the_truth() -> None:
    """Trigger.Once asks once; a slow connection is not an empty topic."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        broker.delay, broker.has_news = 5.0, True
        assert await Poller(broker.ask).end(OLD, ALL, is_final=False) == NEW

    simulate(main)


def test_a_question_of_another_start_replaces_the_open_one() -> None:
    """Spark has gone on; the old answer would be of no use."""

    async def main(_: Simulation) -> None:
        broker = Broker()
        poller = Poller(broker.ask)
        await poller.end(OLD, ALL, is_final=False)
        broker.delay = 2.0
        assert await poller.end(OLD, ALL, is_final=False) == OLD
        broker.delay = 0.001
        assert await poller.end(NEW, ALL, is_final=False) == NEW
        await poller.aclose()

    simulate(main)


def test_an_error_that_cannot_pass_is_raised_at_once() -> None:
    """Waiting would not fix it."""

    async def main(_: Simulation) -> None:
        async def refuse(start: dict[str, Any], limit: Limit) -> dict[str, Any]:
            raise ConfigurationError("no such topic")

        with pytest.raises(ConfigurationError, match="no such topic"):
            await Poller(refuse).end(OLD, ALL, is_final=False)

    simulate(main)


def test_patient_work_ends_within_its_bound() -> None:
    """Also where one try never answers."""

    async def main(_: Simulation) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        with pytest.raises(TransientAdapterError, match="has not answered for 30 s"):
            await patiently(lambda: asyncio.sleep(3600))
        assert now() - began <= PATIENCE

    simulate(main)
