"""``python -m benchmarks partitions``: what a record costs with many partitions, in CPU time.

A backlog of the in-memory broker is read by whole consumers with 10 and with 10 000 partitions, pulled
in batches and by ``run()``; one of a real Kafka with 1 and with 1 000, beside bare aiokafka. The
sides take turns; a figure is the ratio of the medians. How long one turn of the event loop takes is
measured in CPU time too, so that a busy machine changes little.
"""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from benchmarks import kafka_topic
from benchmarks.contestant import Job
from benchmarks.harness import Contestant, Plan, Say, Standing, compete
from benchmarks.markdown import figure, table
from benchmarks.process import ContestantError, last_line, python_contestant
from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

__all__ = ["AIMS", "measure", "tables"]

AIMS = {
    "cost_10000_vs_10": "≤ 1.3",
    "run_cost_10000_vs_10": "-",
    "kafka_cost_1000_vs_1": "≤ 1.5",
    "kafka_cost_1000_vs_aiokafka": "-",
    "longest_loop_hold_ms": "≤ 25",
    "rss_10000_partitions_mb": "≤ 250",
}
RATIOS = {
    "cost_10000_vs_10": ("batches_10000", "batches_10"),
    "run_cost_10000_vs_10": ("run_10000", "run_10"),
    "kafka_cost_1000_vs_1": ("kafka_1000", "kafka_1"),
    "kafka_cost_1000_vs_aiokafka": ("kafka_1000", "aiokafka_1000"),
}
HELD = 10_000
IN_FLIGHT = 100_000
RSS_RECORDS = 100_000
PULLED = Job(warmup=50_000, records=5_000_000)
HANDLED = Job(warmup=50_000, records=3_000_000, concurrency=100)
KAFKA = Job(warmup=50_000, records=900_000)
SPARE = 50_000
HOLD_TIMEOUT = 600.0


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, and CPU time and memory of each side."""
    plan = Plan(rounds=1, share=0.2, scouting=0) if quick else Plan(rounds=3, scouting=0)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic's sends are retried
    say("the in-memory broker")
    standings = await compete(_in_memory(), plan, say)
    say("10 000 partitions: memory, and turns of the event loop")
    failures: dict[str, str] = {}
    rss, holds = await _rss(failures), await _holds(failures, rounds=plan.rounds)
    async with _topics(plan, say) as (servers, topics):
        say("a real Kafka")
        standings |= await compete(_in_kafka(servers, topics), plan, say)
    return _report(standings, failures, rss, holds)


def _in_memory() -> list[Contestant]:
    return [
        _contestant(f"{name}_{partitions}", "ours.memory_partitions", job, partitions=partitions)
        for name, job in (("batches", PULLED), ("run", HANDLED))
        for partitions in (10, 1_000, HELD)
    ]


def _in_kafka(servers: str, topics: Mapping[int, str]) -> list[Contestant]:
    modules = {"aiokafka": "peers.aiokafka_getmany", "kafka": "ours.kafka_batches"}
    return [
        _contestant(f"{name}_{partitions}", module, KAFKA, servers=servers, topic=topic)
        for partitions, topic in topics.items()
        for name, module in modules.items()
    ]


def _contestant(name: str, module: str, job: Job, **options: Any) -> Contestant:
    def command(share: float) -> list[str]:
        records, warmup = int(job.records * share), int(job.warmup * share)
        group = f"benchmark-{uuid.uuid4().hex}"
        full = replace(job, records=records, warmup=warmup, group=group, **options)
        return python_contestant(f"benchmarks.{module}", full)

    return Contestant(name, {"asyncio": command})


@asynccontextmanager
async def _topics(plan: Plan, say: Say) -> AsyncIterator[tuple[str, dict[int, str]]]:
    """A topic of 1 and one of 1 000 partitions, with the same records."""
    address = external_address("CONSUMER_SDK_KAFKA")
    server = ExternalKafka(address) if address else KafkaServer()
    records = int((KAFKA.warmup + KAFKA.records) * plan.share) + SPARE
    topics = {count: f"benchmark-{uuid.uuid4().hex[:8]}" for count in (1, 1_000)}
    async with server:
        try:
            for partitions, topic in topics.items():
                say(f"writing {records:,} records to {partitions:,} partitions")
                await server.create_topic(topic, partitions=partitions)
                servers = server.bootstrap_servers
                await kafka_topic.fill(servers, topic, records, partitions=partitions)
            yield server.bootstrap_servers, topics
        finally:
            for topic in topics.values():
                await kafka_topic.delete(server.bootstrap_servers, topic)


async def _rss(failures: dict[str, str]) -> float | None:
    """The peak of a process with the broker, its records and a consumer of all partitions."""
    job = Job(warmup=1_000, records=RSS_RECORDS - 1_000, partitions=HELD)
    try:
        line = await last_line(python_contestant("benchmarks.ours.memory_partitions", job))
    except ContestantError as error:
        failures["rss"] = str(error)
        return None
    return json.loads(line)["rss_mb"]  # type: ignore[no-any-return]  # a number


async def _holds(failures: dict[str, str], *, rounds: int) -> dict[str, float]:
    """The least of some rounds, of each: what interrupts the process only makes it longer."""
    arguments = json.dumps([HELD, IN_FLIGHT])
    command = [sys.executable, "-m", "benchmarks.ours.loop_holds", arguments]
    try:
        found = [json.loads(await last_line(command, timeout=HOLD_TIMEOUT)) for _ in range(rounds)]
    except ContestantError as error:
        failures["holds"] = str(error).splitlines()[-1]
        return {}
    return {name: round(min(each[name] for each in found), 1) for name in found[0]}


def _report(
    standings: dict[str, Standing],
    failures: dict[str, str],
    rss: float | None,
    holds: dict[str, float],
) -> dict[str, Any]:
    cpu = {name: standing.median(lambda run: run.cpu_us) for name, standing in standings.items()}
    ratios = {key: _ratio(cpu[many], cpu[few]) for key, (many, few) in RATIOS.items()}
    found = ratios | {
        "longest_loop_hold_ms": max(holds.values(), default=None),
        "rss_10000_partitions_mb": rss,
    }
    return {key: found[key] for key in AIMS} | {
        "cpu_us": {name: value and round(value, 2) for name, value in cpu.items()},
        "rss_mb": {name: standing.rss_mb for name, standing in standings.items()},
        "loop_hold_ms": holds,
        "failures": failures
        | {name: each.failure.splitlines()[-1] for name, each in standings.items() if each.failure},
    }


def _ratio(many: float | None, few: float | None) -> float | None:
    return round(many / few, 3) if many and few else None


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    aims = [(f"`{key}`", figure(result[key], 2), aim) for key, aim in AIMS.items()]
    sides = [
        (f"`{name}`", figure(cpu, 2), figure(result["rss_mb"][name], 0))
        for name, cpu in result["cpu_us"].items()
    ]
    holds = [(name, figure(ms, 1)) for name, ms in result["loop_hold_ms"].items()]
    return "\n\n".join(
        [
            table(("figure", "measured", "aim"), aims),
            table(("side and partitions", "CPU µs a record", "peak RSS, MB"), sides),
            table(("of 10 000 partitions and 100 000 records", "longest turn, ms"), holds),
        ]
    )
