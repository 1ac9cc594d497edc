"""``python -m benchmarks kafka``: the SDK and its peers on one topic of a real Kafka.

Every contestant reads the topic from its start under a group of its own. Timing begins after the
warm-up (joining the group is never timed) and ends with the last record processed; ours ends when
every ack is durable.
"""

from __future__ import annotations

from typing import Any

from benchmarks import kafka_report, kafka_topic, rebalance, share
from benchmarks.harness import Plan, Say, Standing, compete
from benchmarks.kafka_contests import LONGEST, RATIOS, TARGET, Field, contests
from benchmarks.peers.parallel_consumer import ParallelConsumer
from benchmarks.process import ContestantError
from consumer_sdk.testing.servers import ExternalKafka

__all__ = ["measure"]

FULL = Plan()
QUICK = Plan(rounds=1, share=0.25, scouting=0)
_IDEAL_10MS_256 = 256 / 0.010
_SPARE = 300_000


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """Run every contest; the ratios, rates and memory under the names of the contestants."""
    plan = QUICK if quick else FULL
    parallel_consumer, failures = None, {}
    try:
        parallel_consumer = ParallelConsumer(say)
    except ContestantError as error:
        failures["parallel_consumer"] = str(error)
        say(f"Parallel Consumer is left out: {error}")
    standings: dict[str, Standing] = {}
    records = int(LONGEST * plan.share) + _SPARE
    async with kafka_topic.filled(records, say, TARGET) as (servers, topic):
        field = Field(servers, topic, parallel_consumer)
        for title, contestants in contests(field).items():
            say(title)
            standings |= await compete(contestants, plan, say)
        shared = await share.figures(servers, topic, plan, say)
        say("a member joins a group")
        joined = await rebalance.figures(ExternalKafka(servers), quick=quick, say=say)
    failures |= shared["failures"] | joined.pop("failures")
    report = _with_ideal(kafka_report.report(standings, RATIOS, failures))
    return report | joined | {key: shared[key] for key in share.AIMS} | {"share_groups": shared}


def _with_ideal(report: dict[str, Any]) -> dict[str, Any]:
    for ratios, rates in (
        (report, report["rates"]),
        (report["after_warm_up"], report["rates_after_warm_up"]),
    ):
        ideal = kafka_report.ratio(rates["ours_run_10ms_256"], _IDEAL_10MS_256)
        ratios["run_10ms_256_vs_ideal"] = ideal
    return report
