"""``python -m benchmarks kinesis``: the adapter beside what others read Kinesis with.

Draining is measured on a replay server (`benchmarks.kinesis.replay`), a process of its own that
hands out ready-made answers, since kinesalite ends where the clients only begin; and on kinesalite,
against a bare loop. Nobody has limits there. With the adapter's own limits: how soon a record of a
busy shard is handled, and how often a shard is asked. On virtual time: how groups share a shard.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from benchmarks.harness import Plan, Say, Standing, compete
from benchmarks.kinesis.aims import AIMS, RATIOS
from benchmarks.kinesis.calls import most_calls
from benchmarks.kinesis.drains import on_kinesalite, on_replay
from benchmarks.kinesis.latency import Latencies, busy_shard
from benchmarks.kinesis.sharing import sharing
from benchmarks.kinesis_decode import decode_vs_aiobotocore
from benchmarks.process import Result
from consumer_sdk.testing.servers import (
    ExternalKinesis,
    KinesaliteServer,
    KinesisEndpoint,
    external_url,
)

__all__ = ["Scale", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Attributes:
        replayed: records of one run on the replay server.
        stored: records of one run on kinesalite.
        replay: the plan of the former.
        kinesalite: the plan of the latter.
        busy: records of the busy shard.
        seconds: for which calls are counted.
        decoding: rounds.
    """

    replayed: int
    stored: int
    replay: Plan
    kinesalite: Plan
    busy: int
    seconds: float
    decoding: int


FULL = Scale(
    replayed=100_000,
    stored=40_000,
    replay=Plan(scouting=0.2),
    kinesalite=Plan(rounds=6, scouting=0),
    busy=420,
    seconds=10.0,
    decoding=9,
)
QUICK = Scale(
    replayed=20_000,
    stored=10_000,
    replay=Plan(rounds=1, scouting=0),
    kinesalite=Plan(rounds=1, scouting=0),
    busy=20,
    seconds=2.0,
    decoding=1,
)


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, and more."""
    scale = QUICK if quick else FULL
    load = os.getloadavg()[0]
    say("decoding")
    decoding = await decode_vs_aiobotocore(scale.decoding)
    say("draining a replay server")
    async with on_replay(scale.replayed) as contestants:
        standings = await compete(contestants, scale.replay, say)
    async with _kinesalite() as server:
        say("draining kinesalite")
        contestants = await on_kinesalite(server, _name("drain"), scale.stored)
        standings |= await compete(contestants, scale.kinesalite, say)
        say("a busy shard among idle ones")
        latencies = await busy_shard(server, _name("busy"), scale.busy)
    say("counting calls")
    calls = await most_calls(scale.seconds)
    report = _drained(standings) | _latency(latencies) | _calls(calls)
    report |= {name: round(found, 2) for name, found in decoding.items()}
    say("groups that share a shard")
    # In a thread, since it has event loops of its own.
    report |= await asyncio.to_thread(sharing, quick=quick)
    report["versions"] = {name: version(name) for name in ("async-kinesis", "aiobotocore")}
    report["load_average"] = [load, os.getloadavg()[0]]
    return {key: report[key] for key in AIMS} | report


@asynccontextmanager
async def _kinesalite() -> AsyncIterator[KinesisEndpoint]:
    """A server that already runs, where CONSUMER_SDK_KINESIS names one, else our own."""
    if url := external_url("CONSUMER_SDK_KINESIS"):
        yield ExternalKinesis(url)
    else:
        async with KinesaliteServer() as server:
            yield server


def _name(what: str) -> str:
    return f"benchmark-{what}-{uuid.uuid4().hex[:8]}"


def _drained(standings: Mapping[str, Standing]) -> dict[str, Any]:
    rates = _medians(standings, lambda run: run.rate)
    report: dict[str, Any] = {
        key: _ratio(standings[ours], standings[theirs]) for key, (ours, theirs) in RATIOS.items()
    }
    report["rates"] = rates
    report["cpu_us"] = _medians(standings, lambda run: run.cpu_us)
    report["cpu_share"] = _medians(standings, lambda run: run.cpu_seconds / run.seconds)
    report["rss_mb"] = {name: standing.rss_mb for name, standing in standings.items()}
    report["variants"] = {name: standing.variant for name, standing in standings.items()}
    report["failures"] = {
        name: standing.failure.splitlines()[-1]
        for name, standing in standings.items()
        if standing.failure
    }
    return report


def _medians(
    standings: Mapping[str, Standing], figure: Callable[[Result], float]
) -> dict[str, float | None]:
    medians = {name: standing.median(figure) for name, standing in standings.items()}
    return {name: value and round(value, 2) for name, value in medians.items()}


def _ratio(ours: Standing, theirs: Standing) -> float | None:
    """The median of the rounds' ratios: two runs of one round met the machine in one state."""
    if ours.failure or theirs.failure:
        return None
    pairs = zip(ours.runs, theirs.runs, strict=True)
    return round(median(mine.rate / other.rate for mine, other in pairs), 2)


def _latency(latencies: Latencies) -> dict[str, Any]:
    names = {"p50": 50, "p99": 99, "max": 100}
    return {
        f"busy_shard_{name}_s": round(latencies.percentile(percent), 3)
        for name, percent in names.items()
    } | {"busy_shard_records": len(latencies.times)}


def _calls(calls: Mapping[str, int]) -> dict[str, Any]:
    return {"read_calls_per_shard_per_s": max(calls.values()), "read_calls": dict(calls)}
