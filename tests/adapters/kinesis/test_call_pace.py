"""How often a shard is asked, where the calls arrive: on virtual time, on a jittery network."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.adapters.kinesis.consumer.sources import Polling
from consumer_sdk.adapters.kinesis.service.rates import Limits, ShardRates
from consumer_sdk.adapters.kinesis.service.service import Page, ThrottledError
from consumer_sdk.records import StartPoint
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, ShardLimits
from tests.adapters.kinesis.harness import shard_id

READS = 100
SLOWEST = 0.4
"""Seconds on the way to the server, and back."""


class Jittery(FakeService):
    """Calls take their time, and every so often one is refused when it arrives."""

    def __init__(self, kinesis: FakeKinesis, simulation: Simulation, refused: float) -> None:
        super().__init__(kinesis, "s")
        self._random = simulation.random.random
        self._refused = refused
        self.arrivals: list[float] = []

    async def records(self, iterator: str, limit: int) -> Page:
        # Most are quick; one in five goes over a new connection.
        await asyncio.sleep(SLOWEST if self._random() < 0.2 else 0.0)
        self.arrivals.append(asyncio.get_running_loop().time())
        if self._random() < self._refused:
            raise ThrottledError("as planned")
        page = await super().records(iterator, min(limit, 1))
        await asyncio.sleep(self._random() * 0.01)
        return page


async def _read(simulation: Simulation, refused: float) -> Jittery:
    kinesis = FakeKinesis(simulation.clock, limits=ShardLimits.none())
    kinesis.create_stream("s")
    for _ in range(READS):
        kinesis.put("s", b"v")
    service = Jittery(kinesis, simulation, refused)
    await service.open()
    rates = ShardRates(Limits(), 1.0, simulation.random.random)
    source = Polling(service, shard_id(0), rates)
    for _ in range(READS):
        try:
            await source.read(StartPoint.EARLIEST)
        except ThrottledError:
            await asyncio.sleep(rates.failed(asyncio.get_running_loop().time()))
    await service.aclose()
    return service


def _fewest_seconds(times: list[float], calls: int) -> float:
    """The shortest time in which so many have arrived."""
    return min(last - first for first, last in zip(times, times[calls - 1 :], strict=False))


@pytest.mark.parametrize("refused", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(20))
def test_calls_of_uneven_latency_arrive_five_in_any_second_at_most(
    seed: int, refused: float
) -> None:
    """Kinesis trap 22: arrivals count, not departures, and refused ones too; a drain uses all five."""

    async def main(simulation: Simulation) -> None:
        service = await _read(simulation, refused)
        assert len(service.arrivals) == READS
        assert _fewest_seconds(service.arrivals, 6) >= 1.0
        assert refused or _fewest_seconds(service.arrivals, 5) < 1.0

    simulate(main, seed=seed)
