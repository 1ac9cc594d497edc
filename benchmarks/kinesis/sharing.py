"""Groups that share a busy shard, and its five calls a second: who gets how much, and how soon.

On virtual time and on the fake, which has Kinesis' limits: what the machine is doing does not matter.
Each group reads all of the stream with default options; a fair share of a group is all that was
written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.service import Service
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.faults import FaultRates, Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService

__all__ = ["SHARING_AIMS", "Shared", "shared_shard", "sharing"]

EVERY = 0.05
"""Seconds between two records: more of them than a shard may be asked."""

SLOWEST = 0.05
"""Seconds on the way to the service, and back."""

WINDOW = 20.0
"""Seconds for which shares are counted; one begins every 5."""

WARM_UP = 20.0
"""Seconds until all have found their pace; what is written in them counts, but for the latency."""


SHARING_AIMS: dict[str, tuple[str, float]] = {
    "five_groups_worst_share": ("≥", 0.5),
    "five_groups_p99_s": ("≤", 3),
}


def sharing(*, quick: bool) -> dict[str, float]:
    """The figures of `SHARING_AIMS`, and those of two groups: the worst of some seeds."""
    seconds, seeds = (45.0, 1) if quick else (120.0, 5)
    return _figures("two", 2, seconds, seeds) | _figures("five", 5, seconds, seeds)


def _figures(name: str, groups: int, seconds: float, seeds: int) -> dict[str, float]:
    runs = [shared_shard(groups, seconds, seed) for seed in range(seeds)]
    return {
        f"{name}_groups_worst_share": round(min(run.worst_share for run in runs), 2),
        f"{name}_groups_p50_s": round(max(run.percentile(50) for run in runs), 2),
        f"{name}_groups_p99_s": round(max(run.percentile(99) for run in runs), 2),
    }


@dataclass(slots=True)
class Shared:
    """What came of some groups on one shard.

    Attributes:
        written: records.
        worst_share: of what was written in any `WINDOW`, what the group handled in that time that
            handled the least.
        latencies: seconds from the put to the handler, after the warm-up, ascending.
    """

    written: int
    worst_share: float
    latencies: list[float] = field(repr=False)

    def percentile(self, percent: float) -> float:
        """The latency that so many of a hundred are below or at."""
        return self.latencies[round(percent / 100 * (len(self.latencies) - 1))]


class _Adapter(KinesisAdapter):
    """Its service is in this process."""

    def __init__(self, service: Service, group: str) -> None:
        super().__init__("s", group=group)
        self._fake = service

    def _make_service(self, options: KinesisOptions) -> Service:  # noqa: ARG002 - of one stream
        return self._fake


def shared_shard(groups: int, seconds: float, seed: int) -> Shared:
    """Lets so many groups read one shard for so long, in virtual time."""

    async def main(simulation: Simulation) -> Shared:
        kinesis = FakeKinesis(simulation.clock)
        kinesis.create_stream("s")
        times: list[list[tuple[float, float]]] = [[] for _ in range(groups)]
        consumers = [_consumer(kinesis, simulation, number) for number in range(groups)]
        running = [
            asyncio.create_task(_read(consumer, into, simulation))
            for consumer, into in zip(consumers, times, strict=True)
        ]
        began, written = simulation.clock.wall(), round(seconds / EVERY)
        for _ in range(written):
            kinesis.put("s", repr(simulation.clock.wall()).encode())
            await asyncio.sleep(EVERY)
        for consumer in consumers:
            consumer.stop()
        await asyncio.gather(*running)
        late = sorted(late for found in times for at, late in found if at > began + WARM_UP)
        return Shared(written, _worst_share(times, began, seconds), late)

    return simulate(main, seed=seed)


def _worst_share(times: list[list[tuple[float, float]]], began: float, seconds: float) -> float:
    counts = [
        sum(since <= at < since + WINDOW for at, _ in found)
        for found in times
        for since in range(round(began), round(began + seconds - WINDOW) + 1, 5)
    ]
    return min(counts) * EVERY / WINDOW


def _consumer(kinesis: FakeKinesis, simulation: Simulation, number: int) -> Consumer:
    rates = {"records": FaultRates(delay=1.0, max_delay=SLOWEST)}
    service = FakeService(kinesis, "s", Faults(simulation.random, rates))
    adapter = _Adapter(service, f"group-{number}")
    return Consumer(adapter, store=MemoryStore(), start="earliest", clock=simulation.clock)


async def _read(
    consumer: Consumer, found: list[tuple[float, float]], simulation: Simulation
) -> None:
    async def handle(message: Message) -> None:
        now = simulation.clock.wall()
        found.append((now, now - float(message.value or b"")))

    await asyncio.sleep(3 * simulation.random.random())
    async with consumer:
        await consumer.run(handle)
