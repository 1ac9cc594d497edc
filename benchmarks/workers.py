"""``python -m benchmarks workers``: the work of two workers of ``consumer-sdk run`` beside that of one.

A real Kafka, and a handler that computes for some 200 µs: what one process of Python cannot spread. The
sides take turns; the figures are ratios of their medians: of records a second, which needs two cores that
nobody else uses, and of the CPU time of a record, which does not.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks import kafka_topic
from benchmarks.contestant import Job
from benchmarks.harness import Contestant, Plan, Say, Standing, compete
from benchmarks.markdown import figure, table
from benchmarks.process import python_contestant
from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

__all__ = ["AIMS", "measure", "tables"]

AIMS = {"two_workers_vs_one": "≥ 1.7", "cpu_two_vs_one": "-"}
JOB = Job(warmup=2_000, records=40_000)
SPARE = 160_000
"""Records more than are timed: one worker begins while the other one starts."""


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figure of `AIMS`, rates and CPU time of each side, and the load before and after."""
    plan = Plan(rounds=1, share=0.1, scouting=0) if quick else Plan(rounds=3, scouting=0)
    address = external_address("CONSUMER_SDK_KAFKA")
    server = ExternalKafka(address) if address else KafkaServer()
    topic = f"benchmark-{uuid.uuid4().hex[:8]}"
    async with server:
        records = int((JOB.records + SPARE) * max(plan.share, 0.5))
        say(f"writing {records:,} records")
        await server.create_topic(topic, partitions=kafka_topic.PARTITIONS)
        try:
            await kafka_topic.fill(server.bootstrap_servers, topic, records)
            before = os.getloadavg()[0]
            sides = [_side(count, server.bootstrap_servers, topic) for count in (1, 2)]
            standings = await compete(sides, plan, say)
        finally:
            await kafka_topic.delete(server.bootstrap_servers, topic)
    return _report(standings, [round(each, 1) for each in (before, os.getloadavg()[0])])


def _side(workers: int, servers: str, topic: str) -> Contestant:
    job = replace(JOB, servers=servers, topic=topic, workers=workers)

    def command(share: float) -> list[str]:
        group = f"benchmark-{uuid.uuid4().hex}"
        full = replace(job, records=int(job.records * share), group=group)
        return python_contestant("benchmarks.ours.kafka_workers", full)

    return Contestant(f"workers_{workers}", {"asyncio": command})


def _report(standings: Mapping[str, Standing], load: list[float]) -> dict[str, Any]:
    rates = {name: each.median(lambda run: run.rate) for name, each in standings.items()}
    cpu = {name: each.median(lambda run: run.cpu_us) for name, each in standings.items()}
    return {
        "two_workers_vs_one": _ratio(rates),
        "cpu_two_vs_one": _ratio(cpu),
        "rates": {name: rate and round(rate) for name, rate in rates.items()},
        "cpu_us": {name: each and round(each, 1) for name, each in cpu.items()},
        "load": load,
        "failures": {
            name: each.failure.splitlines()[-1] for name, each in standings.items() if each.failure
        },
    }


def _ratio(found: Mapping[str, float | None]) -> float | None:
    one, two = found["workers_1"], found["workers_2"]
    return round(two / one, 3) if one and two else None


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    aims = [(f"`{key}`", figure(result[key], 2), aim) for key, aim in AIMS.items()]
    sides = [
        (f"`{name}`", figure(rate, 0), figure(result["cpu_us"][name], 1))
        for name, rate in result["rates"].items()
    ]
    before, after = result["load"]
    return "\n\n".join(
        [
            f"The load average was {before} before, and {after} after.",
            table(("figure", "measured", "aim"), aims),
            table(("side", "records/s", "CPU µs a record"), sides),
        ]
    )
