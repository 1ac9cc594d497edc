"""How old the records are that a query has not read, asked in the background."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import StartPoint
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning import ages as module
from consumer_sdk.spark_bridge.pull.planning.ages import AgeProbe, ArrivalTimes
from tests.spark_bridge.pull.kafka_query import Kafka, Topic, complete
from tests.spark_bridge.pull.memory_ranges import Logs, at, memory_options
from tests.spark_bridge.pull.pulsar_query import PulsarTopic

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarEndpoint


class Asked:
    """Ages of logs, by a clock of the test's own."""

    def __init__(self, logs: Logs, looked: float = 50.0, group: str | None = "g") -> None:
        self.now = 100.0
        self.arrivals = ArrivalTimes()
        self.connections = Connections()
        self.ages = AgeProbe(
            memory_options(logs, group), self.connections, self.arrivals, clock=lambda: self.now
        )
        self.arrivals.look({each: logs.end(each) for each in logs.values}, looked)

    async def ask(self, *read: int) -> dict[str, float]:
        """What is known of partitions 0, 1, … that are read so far, after a round that begins."""
        places = {at(number): position for number, position in enumerate(read)}
        self.arrivals.waiting(places)
        self.ages.ask(places)
        if self.ages._round is not None:
            await asyncio.wait([self.ages._round])
        return {p.id: since for p, since in self.arrivals.waiting(places).items()}


async def test_first_unread_record_tells() -> None:
    """Of partitions that are behind; who keeps up asks nobody."""
    logs = Logs.of(30, 30)
    asked = Asked(logs)
    assert await asked.ask(30, 30) == {}
    assert logs.opened == 0
    asked.now += 10
    assert await asked.ask(7, 30) == {"0": 1.007}
    await asked.connections.aclose()


async def test_one_round_in_ten_seconds() -> None:
    """In between what is known may be too old, and never too young."""
    asked = Asked(Logs.of(30, 30))
    assert await asked.ask(7, 30) == {"0": 1.007}
    assert await asked.ask(7, 20) == {"0": 1.007}
    asked.now += 10
    assert await asked.ask(9, 20) == {"0": 1.007, "1": 1.02}
    await asked.connections.aclose()


async def test_round_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition costs a request: those of the next round come then."""
    monkeypatch.setattr(module, "_MOST_ASKED", 2)
    asked = Asked(Logs.of(5, 5, 5))
    assert len(await asked.ask(1, 1, 1)) == 2
    asked.now += 10
    assert len(await asked.ask(1, 1, 1)) == 3
    await asked.connections.aclose()


@pytest.mark.parametrize("first", [0, 20])
async def test_each_partition_has_its_turn(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one cannot be told, or is worth to be told again and again."""
    monkeypatch.setattr(module, "_MOST_ASKED", 1)
    logs = Logs.of(30, 30)
    logs.first[at(0)] = first
    asked, told = Asked(logs, looked=1000.0), []
    for read in (7, 8, 9, 10):
        told.append((await asked.ask(read, read)).get("1"))
        asked.now += 10
    assert told == [None, 1.008, 1.008, 1.01]
    await asked.connections.aclose()


@pytest.mark.parametrize("group", ["g", None])
async def test_round_has_a_connection_of_its_own(group: str | None) -> None:
    """A broker answers one request after another: who plans would wait for a read that is slow."""
    logs = Logs.of(30)
    asked = Asked(logs, group=group)
    async with asked.connections.borrowed(memory_options(logs, group)):
        assert await asked.ask(7) == {"0": 1.007}
    assert logs.openers == [group, None]
    await asked.connections.aclose()
    assert logs.closed == 2


async def test_what_goes_wrong_leaves_the_age_unknown() -> None:
    """Of that partition alone; the connection stays."""
    logs = Logs.of(30, 30)
    logs.first[at(0)] = 10  # what comes first was deleted
    asked = Asked(logs)
    assert await asked.ask(7, 7) == {"1": 1.007}
    asked.now += 10
    logs.faults = [TransientAdapterError("away")]
    assert await asked.ask(12, 7) == {"1": 1.007}
    asked.now += 10
    assert await asked.ask(12, 7) == {"0": 1.012, "1": 1.007}
    assert (logs.opened, logs.closed) == (1, 0)
    await asked.connections.aclose()


async def test_broker_that_cannot_be_reached_is_no_error_here() -> None:
    """Who plans finds out, and tells."""
    logs = Logs.of(30)
    logs.faults = [TransientAdapterError("away")]
    assert await Asked(logs).ask(7) == {}


async def test_round_ends_with_the_query() -> None:
    """However long the broker takes; a second end does nothing."""
    logs = Logs.of(30)
    asked = Asked(logs)
    logs.delay = 3600
    asked.arrivals.waiting({at(0): 7})
    asked.ages.ask({at(0): 7})
    asked.now += 3600
    asked.ages.ask({at(0): 7})  # the round is still under way
    await asyncio.sleep(0)
    await asked.ages.aclose()
    await asked.ages.aclose()
    assert asked.arrivals.vague({at(0): 7}) == [PartitionRange(at(0), 7, 30)]
    await asked.connections.aclose()
    await Asked(logs).ages.aclose()  # which never asked


async def test_slow_broker_is_not_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far it came: the next round has another connection."""
    logs = Logs.of(30)
    asked = Asked(logs)
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    logs.delay = 3600
    assert await asked.ask(7) == {}
    assert logs.opened == logs.closed
    await asked.connections.aclose()


# -- real brokers ---------------------------------------------------------------------------


async def first_times(url: str) -> list[float]:
    """Since when the first record of each partition waits, as far as it is known."""
    options, connections, arrivals = PullOptions.parse({"url": url}), Connections(), ArrivalTimes()
    async with connections.borrowed(options) as reader:
        partitions = await reader.partitions()
        starts = await reader.positions(partitions, StartPoint.EARLIEST)
        arrivals.look(await reader.positions(partitions, StartPoint.LATEST), time.time() + 3600)
    assert arrivals.waiting(starts) == {}
    ages = AgeProbe(options, connections, arrivals, time.monotonic)
    ages.ask(starts)
    assert ages._round is not None
    await ages._round
    await connections.aclose()
    return list(arrivals.waiting(starts).values())


def assert_is_now(times: list[float]) -> None:
    """Of both partitions, and by the clocks of this machine."""
    assert len(times) == 2
    assert all(abs(each - time.time()) < 1000 for each in times)


@pytest.mark.kafka
def test_kafka_tells_the_time_of_a_record(kafka_server: Kafka) -> None:
    """Of the first one in each partition."""
    topic = Topic(kafka_server, f"ages-{uuid.uuid4().hex[:8]}")
    topic.send(10)
    assert_is_now(complete(first_times(topic.url)))


@pytest.mark.pulsar
def test_pulsar_tells_the_time_of_a_record(pulsar_server: PulsarEndpoint) -> None:
    """Of the first one in each partition, by its publish time."""
    topic = PulsarTopic(pulsar_server, f"ages-{uuid.uuid4().hex[:8]}")
    topic.send(10)
    assert_is_now(complete(first_times(topic.url())))
