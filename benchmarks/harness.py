"""Contests: who runs, how often, in which order, and what is made of it.

The rules, the same for peers and for ours:

* Every run is a fresh process (`benchmarks.process`).
* A contestant may have variants (event loops, thread counts). A shortened scouting round tries
  them all; the best of each contestant runs the rounds that count. A peer is thus measured at
  its best, and so are we.
* The contestants of a contest alternate, in opposite order in every second round, so that a
  machine that slows down slows down everybody.
* A figure is the median over the rounds. Memory is the largest peak over them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.process import ContestantError, Result, measure

__all__ = ["Contestant", "Plan", "Standing", "compete"]

Say = Callable[[str], None]
Command = Callable[[float], Sequence[str]]
"""Makes the command of a run, given the share of the full number of records."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Someone who can be measured: a name, and a command for each variant, likeliest first."""

    name: str
    variants: Mapping[str, Command]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How thoroughly to measure.

    Attributes:
        rounds: how many runs each median is made of.
        share: the share of the full number of records in each.
        scouting: the share in the scouting round; 0 to trust the first variant.
    """

    rounds: int = 3
    share: float = 1.0
    scouting: float = 0.4


@dataclass(slots=True)
class Standing:
    """What a contestant reached.

    Attributes:
        variant: the one that ran the rounds.
        runs: its results.
        tried: the rate of every variant in the scouting round.
        failure: why there are no runs.
    """

    variant: str
    runs: list[Result] = field(default_factory=list)
    tried: dict[str, float] = field(default_factory=dict)
    failure: str | None = None

    def median(self, figure: Callable[[Result], float]) -> float | None:
        """The median of a figure over the runs; None after a failure."""
        if self.failure or not self.runs:
            return None
        return statistics.median(map(figure, self.runs))

    @property
    def rss_mb(self) -> float | None:
        """The largest peak."""
        return max((run.rss_mb for run in self.runs if run.rss_mb), default=None)


async def compete(contestants: Sequence[Contestant], plan: Plan, say: Say) -> dict[str, Standing]:
    """Measure the contestants against one another."""
    standings = {each.name: Standing(next(iter(each.variants))) for each in contestants}
    if plan.scouting:
        for each in contestants:
            await _scout(each, standings[each.name], plan.scouting, say)
    for number in range(plan.rounds):
        for each in contestants[:: -1 if number % 2 else 1]:
            await _one_run(each, standings[each.name], plan.share, say)
    return standings


async def _scout(contestant: Contestant, standing: Standing, share: float, say: Say) -> None:
    if len(contestant.variants) == 1:
        return
    for variant, command in contestant.variants.items():
        try:
            result = await measure(command(share))
        except ContestantError as error:
            standing.failure = str(error)  # unless another variant runs
            say(f"  scouting  {contestant.name} ({variant}) failed:\n{error}")
            continue
        standing.tried[variant] = result.rate
        say(f"  scouting  {contestant.name:28} {variant:28} {result.rate:11,.0f}/s")
    if standing.tried:
        standing.failure = None
        standing.variant = max(standing.tried, key=standing.tried.__getitem__)


async def _one_run(contestant: Contestant, standing: Standing, share: float, say: Say) -> None:
    if standing.failure:
        return
    try:
        result = await measure(contestant.variants[standing.variant](share))
    except ContestantError as error:
        standing.failure = str(error)
        say(f"  {contestant.name} failed:\n{error}")
        return
    standing.runs.append(result)
    memory = f"{result.rss_mb:6.0f} MB" if result.rss_mb else ""
    say(
        f"  round {len(standing.runs)}   {contestant.name:28} {standing.variant:28} "
        f"{result.rate:11,.0f}/s {result.cpu_us:7.2f} µs of CPU {memory}"
    )
