"""``python -m benchmarks share``: a share group of Kafka, read by confluent-kafka, by Java and by ours.

Each contestant is the only member of a group of its own, and accepts each record by itself. confluent-kafka and
Java demand that all records of a poll are acked before the next poll, so that one thread handles one record
after the other. A clock stops when the broker has all acks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks import kafka_report, kafka_topic
from benchmarks.contestant import Job
from benchmarks.harness import Contestant, Plan, Say, Standing, compete
from benchmarks.kafka_contests import SETUPS, Field
from benchmarks.peers.share_consumer import ShareConsumer
from benchmarks.process import ContestantError, python_contestant

__all__ = ["AIMS", "figures", "measure", "tables"]

AIMS: dict[str, float | None] = {
    "share_vs_confluent": 2,
    "share_10ms_vs_confluent": 10,
    "share_vs_java": 0.6,
}
_RATIOS: kafka_report.Ratios = {
    "share_vs_confluent": ("ours_share", "confluent_share"),
    "share_10ms_vs_confluent": ("ours_share_10ms", "confluent_share_10ms"),
    "share_vs_java": ("ours_share", "java_share"),
}
_MANY = Job(warmup=100_000, records=300_000)
_STEADY = Job(warmup=10_000, records=100_000, work=0.010)
_ONE_BY_ONE = Job(warmup=50, records=300, work=0.010)
_SPARE = 100_000
"""Records that clients fetch beyond the last one."""
_POLLS = (500, 2_000)
_WITHOUT_LOOP = {name: each for name, each in SETUPS.items() if each["loop"] == "asyncio"}
"""For those that have nothing on the event loop."""


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, on a Kafka of its own, and the rates, CPU time and memory behind them."""
    plan = Plan(rounds=1, share=0.25, scouting=0) if quick else Plan()
    records = int((_MANY.warmup + _MANY.records) * max(plan.share, plan.scouting)) + _SPARE
    async with kafka_topic.filled(records, say) as (servers, topic):
        return await figures(servers, topic, plan, say)


async def figures(servers: str, topic: str, plan: Plan, say: Say) -> dict[str, Any]:
    """The same, on a topic that has enough records."""
    java, failures = None, {}
    try:
        java = ShareConsumer(say)
    except ContestantError as error:
        failures["java_share"] = str(error)
        say(f"Java's share consumer is left out: {error}")
    standings: dict[str, Standing] = {}
    for title, contestants in _contests(Field(servers, topic), java).items():
        say(title)
        standings |= await compete(contestants, plan, say)
    return kafka_report.report(standings, _RATIOS, failures)


def _contests(field: Field, java: ShareConsumer | None) -> dict[str, list[Contestant]]:
    none: dict[str, dict[str, Any]] = {"": {}}
    return {
        "a share group, no work": [
            _polls(field, "ours_share", _python("ours.kafka_share_batches"), SETUPS),
            _polls(field, "confluent_share", _python("peers.confluent_share"), _WITHOUT_LOOP),
            *([_polls(field, "java_share", java.command, none)] if java else ()),
        ],
        "a share group, 10 ms of work": [
            field.python("ours_share_10ms", "ours.kafka_share_run", _STEADY, (256,)),
            Contestant(
                "confluent_share_10ms",
                {"one thread": field.command(_python("peers.confluent_share"), _ONE_BY_ONE)},
            ),
        ],
    }


def _python(module: str) -> Callable[[Job], list[str]]:
    return lambda job: python_contestant(f"benchmarks.{module}", job)


def _polls(
    field: Field,
    name: str,
    make: Callable[[Job], list[str]],
    setups: Mapping[str, Mapping[str, Any]],
) -> Contestant:
    """A variant for each set-up and each number of records in a poll."""
    variants = {
        f"{setup}, polls of {poll}".removeprefix(", "): field.command(
            make, replace(_MANY, poll=poll, **options)
        )
        for setup, options in setups.items()
        for poll in _POLLS
    }
    return Contestant(name, variants)


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    return kafka_report.tables(result, AIMS)
