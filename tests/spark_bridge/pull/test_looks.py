"""How often a query without news looks at the logs' ends: by what its reader says a look costs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from consumer_sdk.range_reads import RangeReader
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.planning.admission import Limit
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL
from consumer_sdk.spark_bridge.pull.planning.polling import Poller
from consumer_sdk.spark_bridge.pull.planning.stream_planner import StreamPlanner
from consumer_sdk.testing import simulate
from consumer_sdk.testing.simulation import Simulation
from tests.spark_bridge.pull.memory_ranges import Logs, MemoryRanges, MemorySource, memory_options

ALL = Limit("all")


class Costly(MemoryRanges):
    """Asks a leader for each partition."""

    @property
    def requests_per_look(self) -> int:
        return len(self.logs.values)


@dataclass(frozen=True, eq=False)
class CostlySource(MemorySource):
    """Opens `Costly` readers."""

    def open_reader(self) -> RangeReader:
        return Costly(self.logs, self.group)


@pytest.mark.parametrize("leaders,seconds", [(1, 0.25), (4, 1.0), (50, 2.0)])
def test_a_look_at_many_leaders_is_taken_less_often(leaders: int, seconds: float) -> None:
    """A quarter of a second for each request; every two seconds at least."""

    async def main(_: Simulation) -> None:
        logs = Logs.of(*[3] * leaders)
        options = replace(memory_options(logs), source=CostlySource(logs))  # type: ignore[arg-type]  # a fake
        connections = Connections()
        planner = StreamPlanner(options, connections)
        poller = Poller(planner.end, cost=lambda: planner.look_cost)
        now = asyncio.get_running_loop().time
        end = await poller.end(INITIAL, ALL, is_final=False)
        for _warm in range(50):
            end = await poller.end(end, ALL, is_final=False)
        began, asked = now(), logs.asked
        while now() < began + 60:
            assert await poller.end(end, ALL, is_final=False) == end
            await asyncio.sleep(0.01)
        assert (logs.asked - asked) * seconds == pytest.approx(60, rel=0.1)
        await poller.aclose()
        await connections.aclose()

    simulate(main)
