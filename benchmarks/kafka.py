"""``python -m benchmarks kafka``: the SDK and its peers on one topic of a real Kafka.

Every contestant reads the topic from its start under a group of its own. Timing begins after the
warm-up (joining the group is never timed) and ends with the last record processed; ours ends when
every ack is durable.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import kafka_topic, rebalance
from benchmarks.harness import Plan, Say, Standing, compete
from benchmarks.kafka_contests import LONGEST, RATIOS, TARGET, Field, contests
from benchmarks.peers.parallel_consumer import ParallelConsumer
from benchmarks.process import ContestantError, Result
from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

__all__ = ["measure"]

FULL = Plan()
QUICK = Plan(rounds=1, share=0.25, scouting=0)
_IDEAL_10MS_256 = 256 / 0.010
_SPARE = 300_000


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """Run every contest; the ratios, rates and memory under the names of the contestants."""
    plan = QUICK if quick else FULL
    logging.getLogger("aiokafka").setLevel(
        logging.CRITICAL
    )  # a new topic's first sends are retried
    parallel_consumer, failures = None, {}
    try:
        parallel_consumer = ParallelConsumer(say)
    except ContestantError as error:
        failures["parallel_consumer"] = str(error)
        say(f"Parallel Consumer is left out: {error}")
    standings: dict[str, Standing] = {}
    async with _topic(int(LONGEST * plan.share) + _SPARE, say) as (servers, topic):
        field = Field(servers, topic, parallel_consumer)
        for title, contestants in contests(field).items():
            say(title)
            standings |= await compete(contestants, plan, say)
        say("a member joins a group")
        joined = await rebalance.figures(ExternalKafka(servers), quick=quick, say=say)
    return _report(standings, failures | joined.pop("failures")) | joined


@asynccontextmanager
async def _topic(records: int, say: Say) -> AsyncIterator[tuple[str, str]]:
    """A Kafka that already runs, where CONSUMER_SDK_KAFKA names one, else our own."""
    address = external_address("CONSUMER_SDK_KAFKA")
    server = ExternalKafka(address) if address else KafkaServer(quick=False)
    topic = f"benchmark-{uuid.uuid4().hex[:8]}"
    async with server:
        servers = server.bootstrap_servers
        for name in (topic, topic + TARGET):
            await server.create_topic(name, partitions=kafka_topic.PARTITIONS)
        try:
            say(f"writing {records:,} records of 100 bytes")
            await kafka_topic.fill(servers, topic, records)
            yield servers, topic
        finally:
            await kafka_topic.delete(servers, topic, topic + TARGET)


def _report(standings: dict[str, Standing], failures: dict[str, str]) -> dict[str, Any]:
    rates = _medians(standings, lambda run: run.rate)
    cold = _medians(standings, lambda run: run.cold_rate)
    report: dict[str, Any] = _with_ideal(cold)
    report["after_warm_up"] = _with_ideal(rates)
    report["rates"] = cold
    report["rates_after_warm_up"] = rates
    report["cpu_us"] = _medians(standings, lambda run: run.cpu_us)
    report["rss_mb"] = {name: standing.rss_mb for name, standing in standings.items()}
    report["variants"] = {name: standing.variant for name, standing in standings.items()}
    report["tried"] = {
        name: {variant: round(rate) for variant, rate in standing.tried.items()}
        for name, standing in standings.items()
        if standing.tried
    }
    report["failures"] = failures | {
        name: standing.failure.splitlines()[-1]
        for name, standing in standings.items()
        if standing.failure
    }
    return report


def _medians(
    standings: dict[str, Standing], figure: Callable[[Result], float]
) -> dict[str, float | None]:
    medians = {name: standing.median(figure) for name, standing in standings.items()}
    return {name: value and round(value, 2) for name, value in medians.items()}


def _ratios(rates: dict[str, float | None]) -> dict[str, float | None]:
    return {key: _ratio(rates[ours], rates.get(peer)) for key, (ours, peer) in RATIOS.items()}


def _with_ideal(rates: dict[str, float | None]) -> dict[str, float | None]:
    ideal = _ratio(rates["ours_run_10ms_256"], _IDEAL_10MS_256)
    return _ratios(rates) | {"run_10ms_256_vs_ideal": ideal}


def _ratio(ours: float | None, peer: float | None) -> float | None:
    return round(ours / peer, 3) if ours and peer else None
