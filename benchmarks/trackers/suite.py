"""``python -m benchmarks trackers``: what tracking, acking, flushing and remembering cost.

Each probe is a process of its own in which the sides take turns (`benchmarks.trackers.timing`).
Those that count bytes run once. Those that measure time run one after the other, then all of them
again, and a figure is the median of three such rounds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.harness import Say
from benchmarks.process import ContestantError, last_line
from benchmarks.trackers.memory import STRUCTURES, TRACKERS

__all__ = ["AIMS", "Probe", "Suite", "measure"]

AIMS: dict[str, tuple[str, float]] = {
    "track_ack_vs_sortedset": ("≥", 5),
    "cumulative_records_per_s": ("≥", 20_000_000),
    "stuck_plus_million_bytes": ("≤", 150_000),
    "flush_cost_growth": ("≤", 1.5),
    "encode_cost_growth": ("≤", 1.5),
    "in_flight_cost_growth": ("≤", 1.3),
    "tree_bytes_per_root": ("≤", 20),
    "trees_per_s": ("≥", 800_000),
    "branch_trees_per_s": ("≥", 350_000),
}
"""What the figures should reach."""

_TIMED = (
    "acks.against_peers",
    "acks.by_window",
    "cumulative.rates",
    "flights.by_size",
    "flushes.flushes",
    "flushes.encodings",
    "retries.costs",
    "trees.rates",
)
_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_OPEN_ONE_IN = (1, 10, 100)
_MOST_TREES = 1_000_000
_IN_FLIGHT = 100_000
_ROUNDS = 3
_SHRINK = 50
_TIMEOUT = 600.0


class Probe(NamedTuple):
    """A function of this package, ``module.function``, and its arguments as JSON."""

    name: str
    arguments: str

    @classmethod
    def of(cls, name: str, **arguments: Any) -> Probe:
        """The probe that calls ``name`` with ``arguments``."""
        return cls(name, json.dumps(arguments))


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """Run every probe; the figures of `AIMS`, and more."""
    shrink, rounds = (_SHRINK, 1) if quick else (1, _ROUNDS)
    timed = [Probe.of(name, rounds=rounds, shrink=shrink) for name in _TIMED]
    suite = Suite(say)
    load = os.getloadavg()[0]
    for probe in [*_exact(shrink), *timed * rounds]:
        await suite.run(probe)
    report = suite.report()
    most = str(_SIZES[-1] // shrink)
    curves = report.get("curves", {})
    report["stuck_plus_million_bytes"] = curves.get("stuck", {}).get("ours, tuple", {}).get(most)
    report["tree_bytes_per_root"] = curves.get("roots", {}).get("all open", {}).get(most)
    report["load_average"] = [load, os.getloadavg()[0]]
    return {key: report.get(key) for key in AIMS} | report


def _exact(shrink: int) -> list[Probe]:
    """The probes that count, and would count the same again."""
    stuck = [
        Probe.of("memory.stuck", structure=structure, records=records // shrink)
        for structure in STRUCTURES
        for records in _SIZES
    ]
    in_flight = [
        Probe.of("memory.in_flight", tracker=tracker, records=_IN_FLIGHT // shrink)
        for tracker in TRACKERS
    ]
    roots = [
        Probe.of("tree_memory.of_table", records=records // shrink, one_in=one_in)
        for one_in in _OPEN_ONE_IN
        for records in _SIZES
        if records * one_in <= _MOST_TREES
    ]
    messages = Probe.of("tree_memory.of_messages", records=_IN_FLIGHT // shrink)
    return [*stuck, *in_flight, *roots, messages]


class Suite:
    """What the probes have found so far."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._found: dict[Probe, list[dict[str, Any]]] = {}
        self._cpu_shares: list[float] = []
        self._failures: dict[str, str] = {}

    async def run(self, probe: Probe) -> None:
        """Run a probe that has not failed before."""
        if probe.name in self._failures:
            return
        command = (sys.executable, "-m", "benchmarks.trackers.probe", *probe)
        try:
            line = json.loads(await last_line(command, timeout=_TIMEOUT))
        except ContestantError as error:
            self._failures[probe.name] = str(error).splitlines()[-1]
            self._say(f"  {probe.name} failed:\n{error}")
            return
        self._say(f"  {probe.name:24} {line['seconds']:5.1f} s  {probe.arguments}")
        self._found.setdefault(probe, []).append(line["found"])
        self._cpu_shares.append(line["cpu_share"])

    def report(self) -> dict[str, Any]:
        """The medians of all probes in one."""
        report: dict[str, Any] = {}
        for found in self._found.values():
            _merge(report, _median(found))
        report["cpu_share"] = _median(self._cpu_shares) if self._cpu_shares else None
        report["failures"] = self._failures
        return report


def _median(values: Sequence[Any]) -> Any:
    """The median of numbers, or of each figure of dicts that are alike."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _median([value[key] for value in values]) for key in first}
    middle = median(values)
    return float(f"{middle:.4g}") if isinstance(middle, float) else middle


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and key in into:
            _merge(into[key], value)
        else:
            into[key] = value
