"""Everything that ``python -m benchmarks spark`` measures, one driver after another.

``--only streams,short,write`` measures some of it. Figures of other parts are absent then.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from benchmarks import kafka_topic
from benchmarks.harness import Say
from benchmarks.process import ContestantError, last_line
from benchmarks.spark.broker_calls import counted_kafka
from benchmarks.spark.contest import BATCHES, STREAMS, failed, stream_group
from benchmarks.spark.figures import figures
from benchmarks.spark.group_lag import group_lag
from benchmarks.spark.job import SparkJob, command
from benchmarks.spark.kinds import KINDS
from benchmarks.spark.trickling import trickling
from consumer_sdk.testing.servers import ExternalKafka, KafkaEndpoint, KafkaServer, external_address

__all__ = ["PARTS", "Scale", "measure"]

PARTS = (
    "batches",
    "streams",
    "feed",
    "mixed",
    "kinds",
    "short",
    "cpu",
    "write",
    "memory",
    "latency",
    "idle",
)
"""What can be measured alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Attributes:
        rows: of the topic.
        trigger_rows: of one micro-batch of the streams.
        rounds: how often each contestant runs.
        trickle_seconds: of one query's measured latency.
        idle_seconds: in which calls are counted.
        idle_rows: of the topic that is read before.
        is_smoke: nobody looks at the figures.
    """

    rows: int
    trigger_rows: int
    rounds: int
    trickle_seconds: float
    idle_seconds: float
    idle_rows: int
    is_smoke: bool = False


FULL = Scale(
    rows=2_000_000,
    trigger_rows=400_000,
    rounds=3,
    trickle_seconds=8.0,
    idle_seconds=10.0,
    idle_rows=10_000,
)
QUICK = Scale(
    rows=200_000,
    trigger_rows=50_000,
    rounds=1,
    trickle_seconds=2.0,
    idle_seconds=3.0,
    idle_rows=1_000,
    is_smoke=True,
)

_NO_RATES = {"batch": failed(), "stream": failed(), "steady": failed()}
PATIENCE = 900.0
"""Seconds after which a driver counts as stuck."""


async def measure(*, quick: bool, say: Say, only: Collection[str] = PARTS) -> dict[str, Any]:
    """The figures of `AIMS`, and what they are made of; of some `PARTS`, where ``only`` names them."""
    scale = QUICK if quick else FULL
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic's sends are retried
    load = os.getloadavg()[0]
    drivers = Drivers(say, only)
    async with _server() as server:
        found = await _on_one_topic(drivers, server, scale)
    found["idle"] = await _idle(drivers, scale)
    report = figures(found | {"failures": drivers.failures})
    if set(only) < set(PARTS):
        report["only"] = [*only]
    report["versions"] = {name: version(name) for name in ("pyspark", "pyarrow", "aiokafka")}
    report["load_average"] = [load, os.getloadavg()[0]]
    return report


@dataclass(slots=True)
class Drivers:
    """Runs drivers, one at a time.

    Attributes:
        say: told of each, and of what it found.
        only: the parts that run.
        failures: what went wrong with those that ended without a result.
    """

    say: Say
    only: Collection[str] = PARTS
    failures: dict[str, str] = field(default_factory=dict)

    async def run(self, part: str, module: str, job: SparkJob, *, nothing: Any) -> Any:
        """What a driver printed; ``nothing`` when it failed, or when its part does not run."""
        if part not in self.only:
            return nothing
        title = f"{module} {'/'.join(job.contestants)}"
        self.say(title)
        try:
            found = json.loads(await last_line(command(module, job), timeout=PATIENCE))
        except ContestantError as error:
            self.failures[title] = str(error)
            self.say(f"  failed:\n{error}")
            return nothing
        self.say(f"  {json.dumps(found)}")
        return found


@asynccontextmanager
async def _server() -> AsyncIterator[KafkaEndpoint]:
    """A Kafka that already runs, where CONSUMER_SDK_KAFKA names one, else our own."""
    address = external_address("CONSUMER_SDK_KAFKA")
    async with ExternalKafka(address) if address else KafkaServer(quick=False) as server:
        yield server


async def _on_one_topic(drivers: Drivers, server: KafkaEndpoint, scale: Scale) -> dict[str, Any]:
    """All that reads the large topic, and what reads the two beside it."""
    topics = topic, mixed, slow = [f"benchmark-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    servers = server.bootstrap_servers
    for name in topics:
        await server.create_topic(name, partitions=kafka_topic.PARTITIONS)
    try:
        drivers.say(f"writing {scale.rows:,} records of 100 bytes, and as many of 50 to 150")
        await kafka_topic.fill(servers, topic, scale.rows)
        if "mixed" in drivers.only:
            await kafka_topic.fill(servers, mixed, scale.rows, spread=50)
        job = SparkJob(
            servers=servers,
            topic=topic,
            rows=scale.rows,
            rounds=scale.rounds,
            trigger_rows=scale.trigger_rows,
            group=topic,
            is_smoke=scale.is_smoke,
        )
        found = await _throughput(drivers, job)
        found["mixed"] = await drivers.run(
            "mixed", "throughput", replace(job, topic=mixed, contestants=STREAMS), nothing=_NO_RATES
        )
        found["kinds"] = {name: await _kind(drivers, server, job, name) for name in KINDS}
        found |= await _short(drivers, server, job)
        found["write"] = await drivers.run(
            "write", "writing", replace(job, contestants=STREAMS), nothing=failed()
        )
        found["memory"] = await _memory(drivers, job)
        async with trickling(servers, slow):
            found["latency"] = await _latency(drivers, replace(job, topic=slow), scale)
        return found
    finally:
        for name in topics:
            await kafka_topic.delete(servers, name)


async def _throughput(drivers: Drivers, job: SparkJob) -> dict[str, Any]:
    parts = {"batches", "streams"} & set(drivers.only)
    found = await drivers.run(
        min(parts, default="batches"),
        "throughput",
        replace(
            job,
            contestants=BATCHES,
            has_batches="batches" in parts,
            has_streams="streams" in parts,
        ),
        nothing=_NO_RATES,
    )
    lag = None
    if found["stream"]["runs"].get("ours"):
        groups = [stream_group(job.group, number) for number in range(job.rounds + 1)]
        lag = await group_lag(job.servers, job.topic, kafka_topic.PARTITIONS, groups)
    feed = replace(job, contestants=("ours", "feed"))
    return {
        "throughput": found,
        "lag": lag,
        "feed": await drivers.run("feed", "feeding", feed, nothing=failed()),
    }


async def _kind(
    drivers: Drivers, server: KafkaEndpoint, small: SparkJob, name: str
) -> dict[str, Any]:
    """Batches of a topic with other records."""
    if "kinds" not in drivers.only:
        return _NO_RATES
    kind = KINDS[name]
    job = replace(
        small,
        topic=f"{small.topic}-{name}",
        rows=kind.records(small.rows),
        value_bytes=kind.value_bytes(small.rows),
        contestants=STREAMS,
        has_streams=False,
    )
    async with _topic(server, job.topic):
        drivers.say(f"writing {job.rows:,} records: {name}")
        await kafka_topic.fill(
            job.servers,
            job.topic,
            job.rows,
            values=kind.values(),
            compression=kind.compression,
        )
        found: dict[str, Any] = await drivers.run("kinds", "throughput", job, nothing=_NO_RATES)
    return found


async def _short(drivers: Drivers, server: KafkaEndpoint, job: SparkJob) -> dict[str, Any]:
    """Streams of ten records; and the processor time of streams, theirs too."""
    long = replace(job, contestants=STREAMS)
    short = replace(long, topic=f"{job.topic}-short", rows=10)
    nothing, no_cpu = {"alone": failed(), "loaded": failed()}, failed() | {"kinds": {}}
    async with _topic(server, short.topic):
        await kafka_topic.fill(short.servers, short.topic, short.rows)
        return {
            "short": await drivers.run("short", "short_runs", short, nothing=nothing),
            "cpu": {
                "stream": await drivers.run("cpu", "cpu", long, nothing=no_cpu),
                "short": await drivers.run("cpu", "cpu", short, nothing=no_cpu),
            },
        }


@asynccontextmanager
async def _topic(server: KafkaEndpoint, name: str) -> AsyncIterator[None]:
    await server.create_topic(name, partitions=kafka_topic.PARTITIONS)
    try:
        yield
    finally:
        await kafka_topic.delete(server.bootstrap_servers, name)


async def _memory(drivers: Drivers, job: SparkJob) -> dict[str, Any]:
    """Every contestant alone: what one leaves behind must not count for the next."""
    alone = {name: replace(job, contestants=(name,)) for name in ("jvm", "ours", "naive")}
    return {
        name: await drivers.run("memory", "memory", each, nothing={})
        for name, each in alone.items()
    }


async def _latency(drivers: Drivers, job: SparkJob, scale: Scale) -> dict[str, Any]:
    nothing = failed() | {"stages_ms": {}}
    found: dict[str, Any] = await drivers.run(
        "latency",
        "trickle",
        replace(job, contestants=STREAMS, seconds=scale.trickle_seconds),
        nothing={"default": nothing, "filesystem": nothing},
    )
    return found


async def _idle(drivers: Drivers, scale: Scale) -> dict[str, Any]:
    """What each source asks a broker while there is nothing to read."""
    if "idle" not in drivers.only:
        return {"seconds": scale.idle_seconds, "calls": {}}
    async with counted_kafka() as (kafka, servers, calls):
        await kafka.create_topic("idle", partitions=kafka_topic.PARTITIONS)
        await kafka_topic.fill(kafka.bootstrap_servers, "idle", scale.idle_rows)
        job = SparkJob(
            servers=servers,
            topic="idle",
            rows=scale.idle_rows,
            group="idle",
            seconds=scale.idle_seconds,
            is_smoke=scale.is_smoke,
        )
        counted = {}
        for name in STREAMS:
            span = await drivers.run(
                "idle", "idling", replace(job, contestants=(name,)), nothing={}
            )
            if name in span:
                counted[name] = dict(calls.between(span[name]["began"], span[name]["ended"]))
    return {"seconds": scale.idle_seconds, "calls": counted}
