"""``python -m benchmarks NAME``: run one benchmark, or ``all``; without a name, list them.

``--only`` names the parts of one benchmark that has parts. Progress goes to standard error. With ``--json`` the last line on standard output is one JSON
object. The exit status is 1 when a contestant failed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
from typing import Any

from benchmarks import report

BENCHMARKS = {
    "kafka": ("kafka", "a real Kafka: aiokafka, FastStream, Parallel Consumer and ours"),
    "kinesis": (
        "kinesis.suite",
        "a replay server and kinesalite: async-kinesis, bare loops and ours",
    ),
    "latency": ("latency", "a real Kafka: from a producer's send to the handler, beside aiokafka"),
    "leases": ("leases", "1 000 shards: a member joins, all shards split; ZooKeeper and SQLite"),
    "partitions": ("partitions", "10 and 10 000 partitions: CPU, turns of the loop, memory"),
    "pulsar": ("pulsar", "a real Pulsar: the client's asyncio front, its batches, and ours"),
    "rebalance": (
        "rebalance",
        "a real Kafka: a member joins, and partitions that do not move wait",
    ),
    "share": ("share", "a real Kafka's share groups: confluent-kafka, Java and ours"),
    "spark": (
        "spark.suite",
        "a real Kafka in Spark: Spark's own source, bare Python sources and ours",
    ),
    "telemetry": ("telemetry", "metrics that are scraped, spans, snapshots: what they cost"),
    "stores": ("stores", "a real ZooKeeper and a SQLite file: flushes, and loads at the start"),
    "message": ("message_cost", "what making a Message and acking it costs"),
    "trackers": ("trackers.suite", "the trackers beside the structures that others use"),
    "workers": ("workers", "a real Kafka and handlers that compute: two workers beside one"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    options = _options(arguments)
    if options.name is None:
        for name, (_, line) in BENCHMARKS.items():
            print(f"{name:10} {line}")
        return 0
    names = list(BENCHMARKS) if options.name == "all" else [options.name]
    results = {name: _measure(name, quick=options.quick, only=options.only) for name in names}
    if options.write_docs:
        report.write(results)
    if options.json:
        print(json.dumps(results[names[0]] if len(names) == 1 else results))
    else:
        for name, result in results.items():
            print(report.table(name, result))
    return 1 if any(result.get("failures") for result in results.values()) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round")
    parser.add_argument("--write-docs", action="store_true", help="rewrite docs/performance.md")
    parser.add_argument("--only", metavar="PARTS", help="parts of a benchmark: streams,short,write")
    options = parser.parse_args(arguments)
    if options.only is not None:
        options.only = _parts(parser, options)
    return options


def _parts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The parts that ``--only`` names."""
    wanted: list[str] = options.only.split(",")
    known = () if options.name in (None, "all") else getattr(_module(options.name), "PARTS", ())
    if options.write_docs or not set(wanted) <= set(known):
        parser.error(
            f"--only {options.only}: {options.name} has {', '.join(known) or 'no parts'}; "
            "tables for the documents are made of all of them"
        )
    return wanted


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{BENCHMARKS[name][0]}")


def _measure(name: str, *, quick: bool, only: list[str] | None) -> dict[str, Any]:
    began = time.monotonic()
    chosen = {} if only is None else {"only": only}
    result: dict[str, Any] = asyncio.run(_module(name).measure(quick=quick, say=_say, **chosen))
    _say(f"{name}: {time.monotonic() - began:.0f} s")
    return result


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
