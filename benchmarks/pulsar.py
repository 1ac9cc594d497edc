"""``python -m benchmarks pulsar``: the adapter beside the client that it is built on.

One topic of a real Pulsar, filled once. Each run is a new shared subscription from the topic's
start. Timing begins after the warm-up and ends with the last record acked; for ours, when the broker
has been sent every ack, while the client holds an ack done once it is buffered. Every contestant
shows that it has read each record of the topic once.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from statistics import median
from typing import Any

from benchmarks.contestant import Job
from benchmarks.harness import Command, Contestant, Plan, Say, Standing, compete
from benchmarks.process import Result, python_contestant
from benchmarks.pulsar_tables import AIMS, RATIOS
from benchmarks.pulsar_topic import fill
from consumer_sdk.testing.servers import PulsarEndpoint, PulsarServer, external_pulsar

__all__ = ["Scale", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Attributes:
        many: records of a run of ours, and of the bare loop.
        few: of the client's asyncio front, which takes longer for them.
        warmup: records before the clocks start.
        plan: how often.
    """

    many: int
    few: int
    warmup: int
    plan: Plan


FULL = Scale(many=400_000, few=60_000, warmup=20_000, plan=Plan(scouting=0))
QUICK = Scale(many=100_000, few=20_000, warmup=10_000, plan=Plan(rounds=1, scouting=0))

AHEAD = 2000
"""Messages that the broker sends ahead to our adapter, if it is not told otherwise."""

SPARE = 5_000
"""Records beyond those that are counted: a batch at the topic's end waits for more to come."""

ASYNCIO: dict[str, Any] = {"gc_threshold": 50_000}
UVLOOP: dict[str, Any] = {**ASYNCIO, "loop": "uvloop"}
SETUPS = {"asyncio, rare gc": ASYNCIO, "uvloop, rare gc": UVLOOP}


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, and more."""
    scale = QUICK if quick else FULL
    load = os.getloadavg()[0]
    async with _server() as server:
        topic = f"benchmark-{uuid.uuid4().hex[:8]}"
        await _fill(server, topic, scale.warmup + scale.many + SPARE, say)
        try:
            contestants = _contestants(server.service_url, topic, scale)
            standings = await compete(contestants, scale.plan, say)
        finally:
            await server.delete_topic(topic)
    report = _report(standings)
    report["versions"] = {"pulsar-client": version("pulsar-client")}
    report["load_average"] = [load, os.getloadavg()[0]]
    return {key: report[key] for key in AIMS} | report


@asynccontextmanager
async def _server() -> AsyncIterator[PulsarEndpoint]:
    """A Pulsar that already runs, where CONSUMER_SDK_PULSAR names one, else our own."""
    if external := external_pulsar():
        yield external
    else:
        async with PulsarServer(quick=False) as server:
            yield server


async def _fill(server: PulsarEndpoint, topic: str, records: int, say: Say) -> None:
    await server.create_topic(topic)
    # A topic keeps what one of its subscriptions has not acked.
    await server.create_subscription(topic, "keeper")
    say(f"producing {records:,} records of 100 bytes")
    await asyncio.to_thread(fill, server.service_url, topic, records)


def _contestants(url: str, topic: str, scale: Scale) -> list[Contestant]:
    many = Job(servers=url, topic=topic, records=scale.many, warmup=scale.warmup, concurrency=256)
    few = replace(many, records=scale.few)
    found = [
        _contestant("pulsar_asyncio", "peers.pulsar_asyncio", few),
        _contestant("ours_messages", "ours.pulsar_messages", many),
        _contestant("ours_run_noop", "ours.pulsar_run", many),
        _contestant("ours_batches", "ours.pulsar_batches", many),
        _contestant("batch_receive", "peers.pulsar_batch_receive", many),
        _contestant(
            "batch_receive_ahead", "peers.pulsar_batch_receive", replace(many, receiver_queue=AHEAD)
        ),
    ]
    if importlib.util.find_spec("uvloop") is not None:
        setup = "uvloop, rare gc"
        found += [
            _contestant("pulsar_asyncio_uvloop", "peers.pulsar_asyncio", few, setup),
            _contestant("ours_messages_uvloop", "ours.pulsar_messages", many, setup),
        ]
    return found


def _contestant(name: str, module: str, job: Job, setup: str = "asyncio, rare gc") -> Contestant:
    return Contestant(name, {setup: _command(module, replace(job, **SETUPS[setup]))})


def _command(module: str, job: Job) -> Command:
    def command(share: float) -> Sequence[str]:
        group = f"benchmark-{uuid.uuid4().hex}"
        return python_contestant(
            f"benchmarks.{module}", replace(job, group=group, records=int(job.records * share))
        )

    return command


def _report(standings: Mapping[str, Standing]) -> dict[str, Any]:
    report: dict[str, Any] = {
        key: _ratio(standings[ours], standings[theirs])
        for key, (ours, theirs) in RATIOS.items()
        if ours in standings
    }
    report["rates"] = _medians(standings, lambda run: run.rate)
    report["cpu_us"] = _medians(standings, lambda run: run.cpu_us)
    report["cpu_seconds"] = _medians(standings, lambda run: run.cpu_seconds)
    report["rss_mb"] = {name: standing.rss_mb for name, standing in standings.items()}
    report["records"] = _medians(standings, lambda run: run.records)
    report["variants"] = {name: standing.variant for name, standing in standings.items()}
    report["failures"] = {
        name: standing.failure.splitlines()[-1]
        for name, standing in standings.items()
        if standing.failure
    }
    return report


def _ratio(ours: Standing, theirs: Standing) -> float | None:
    """The median of the rounds' ratios: two runs of one round met the machine in one state."""
    if ours.failure or theirs.failure:
        return None
    pairs = zip(ours.runs, theirs.runs, strict=True)
    return round(median(mine.rate / other.rate for mine, other in pairs), 2)


def _medians(
    standings: Mapping[str, Standing], figure: Callable[[Result], float]
) -> dict[str, float | None]:
    medians = {name: standing.median(figure) for name, standing in standings.items()}
    return {name: value and round(value, 2) for name, value in medians.items()}
