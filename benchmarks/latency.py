"""``python -m benchmarks latency``: the time from a producer's send to the handler, in a real Kafka.

The sides take turns, each with a producer of its own at a steady rate, in opposite order in every
second round. A ratio is the median of the rounds' ratios; a figure is that of the worse rate.
"""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks import kafka_topic
from benchmarks.harness import Say
from benchmarks.latency_feed import Feed
from benchmarks.markdown import figure, table
from benchmarks.process import ContestantError, last_line
from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

__all__ = ["AIMS", "measure", "tables"]

AIMS = {
    "latency_p50_vs_aiokafka": "≤ 1.2",
    "latency_p99_vs_aiokafka": "≤ 1.5",
    "latency_p50_store_vs_aiokafka": "-",
    "latency_p99_store_vs_aiokafka": "≤ 2",
}
RATIOS = {
    "latency_p50_vs_aiokafka": ("ours", "p50_ms"),
    "latency_p99_vs_aiokafka": ("ours", "p99_ms"),
    "latency_p50_store_vs_aiokafka": ("ours_store", "p50_ms"),
    "latency_p99_store_vs_aiokafka": ("ours_store", "p99_ms"),
}
SIDES: dict[str, tuple[str, bool]] = {
    "aiokafka": ("peers.aiokafka_latency", False),
    "ours": ("ours.kafka_latency", False),
    "ours_store": ("ours.kafka_latency", True),
}
RATES = (1_000, 20_000)
PARTITIONS = 8
ROUNDS = 5
SECONDS = 8.0
WARMUP = 2.0

Round = dict[str, dict[str, float]]
"""By side: the percentiles."""


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, and the milliseconds of each side at each rate."""
    rounds, seconds = (1, 4.0) if quick else (ROUNDS, SECONDS)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic's sends are retried
    address = external_address("CONSUMER_SDK_KAFKA")
    server = ExternalKafka(address) if address else KafkaServer()
    found: dict[int, list[Round]] = {rate: [] for rate in RATES}
    failures: dict[str, str] = {}
    async with server:
        for rate in RATES:
            for number in range(rounds):
                order = list(SIDES)[:: -1 if number % 2 else 1]
                try:
                    found[rate].append(await _round(server, rate, seconds, order, say))
                except ContestantError as error:
                    failures[f"{rate} a second"] = str(error).splitlines()[-1]
                    say(f"failed:\n{error}")
    return _report(found) | {"failures": failures}


async def _round(
    server: KafkaServer | ExternalKafka, rate: int, seconds: float, order: list[str], say: Say
) -> Round:
    """Each side has a topic of its own: what was written before is not its to read."""
    found: Round = {}
    servers = server.bootstrap_servers
    for side in order:
        module, with_store = SIDES[side]
        topic = f"benchmark-{uuid.uuid4().hex[:8]}"
        await server.create_topic(topic, partitions=PARTITIONS)
        feed = Feed(
            servers=servers,
            topic=topic,
            partitions=PARTITIONS,
            rate=rate,
            seconds=seconds,
            warmup=WARMUP,
            with_store=with_store,
        )
        command = [sys.executable, "-m", f"benchmarks.{module}", json.dumps(asdict(feed))]
        try:
            found[side] = json.loads(await last_line(command))
        finally:
            await kafka_topic.delete(servers, topic)
        p50, p99 = found[side]["p50_ms"], found[side]["p99_ms"]
        say(f"  {rate:6,}/s  {side:12} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms")
    return found


def _report(found: Mapping[int, list[Round]]) -> dict[str, Any]:
    ratios = {
        key: {rate: _ratio(rounds, side, what) for rate, rounds in found.items()}
        for key, (side, what) in RATIOS.items()
    }
    worst = {key: max(filter(None, by.values()), default=None) for key, by in ratios.items()}
    times = {
        f"{side}_{rate}": {
            what: round(median(each[side][what] for each in rounds), 2)
            for what in ("p50_ms", "p99_ms")
        }
        for rate, rounds in found.items()
        for side in SIDES
        if rounds
    }
    return worst | {"ratios": ratios, "ms": times}


def _ratio(rounds: list[Round], side: str, what: str) -> float | None:
    ratios = [each[side][what] / each["aiokafka"][what] for each in rounds]
    return round(median(ratios), 3) if ratios else None


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    aims = [
        (
            f"`{key}`",
            figure(result[key], 2),
            *(figure(result["ratios"][key].get(rate), 2) for rate in RATES),
            aim,
        )
        for key, aim in AIMS.items()
    ]
    times = [
        (f"`{name}`", figure(ms["p50_ms"], 2), figure(ms["p99_ms"], 2))
        for name, ms in result["ms"].items()
    ]
    at = [f"at {rate:,}/s" for rate in RATES]
    return "\n\n".join(
        [
            table(("figure", "measured", *at, "aim"), aims),
            table(("side and rate", "p50, ms", "p99, ms"), times),
        ]
    )
