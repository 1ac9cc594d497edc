"""What contests on Kafka come to: ratios, rates and memory, and their tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import markdown
from benchmarks.harness import Standing
from benchmarks.markdown import figure
from benchmarks.process import Result

__all__ = ["Ratios", "ratio", "report", "tables"]

Ratios = Mapping[str, tuple[str, str]]
"""Name of a ratio → whose rate is divided by whose."""


def report(
    standings: Mapping[str, Standing], ratios: Ratios, failures: Mapping[str, str]
) -> dict[str, Any]:
    """The ratios from the first record on, and all else under names of its own.

    Args:
        failures: those of contestants that could not even be made.
    """
    rates = _medians(standings, lambda run: run.rate)
    cold = _medians(standings, lambda run: run.cold_rate)
    found: dict[str, Any] = _ratios(cold, ratios)
    found["after_warm_up"] = _ratios(rates, ratios)
    found["rates"] = cold
    found["rates_after_warm_up"] = rates
    found["cpu_us"] = _medians(standings, lambda run: run.cpu_us)
    found["rss_mb"] = {name: standing.rss_mb for name, standing in standings.items()}
    found["variants"] = {name: standing.variant for name, standing in standings.items()}
    found["tried"] = {
        name: {variant: round(rate) for variant, rate in standing.tried.items()}
        for name, standing in standings.items()
        if standing.tried
    }
    found["failures"] = {
        **failures,
        **{
            name: standing.failure.splitlines()[-1]
            for name, standing in standings.items()
            if standing.failure
        },
    }
    return found


def _medians(
    standings: Mapping[str, Standing], figure: Callable[[Result], float]
) -> dict[str, float | None]:
    medians = {name: standing.median(figure) for name, standing in standings.items()}
    return {name: value and round(value, 2) for name, value in medians.items()}


def _ratios(rates: Mapping[str, float | None], ratios: Ratios) -> dict[str, float | None]:
    return {key: ratio(rates[ours], rates.get(peer)) for key, (ours, peer) in ratios.items()}


def ratio(ours: float | None, peer: float | None) -> float | None:
    """Of two rates; None if there is none of one."""
    return round(ours / peer, 3) if ours and peer else None


def tables(result: Mapping[str, Any], aims: Mapping[str, float | None]) -> str:
    """The results in Markdown."""
    reached = [
        (
            f"`{key}`",
            figure(result[key], 2),
            figure(result["after_warm_up"][key], 2),
            f"≥ {aim:g}" if aim else "-",
        )
        for key, aim in aims.items()
    ]
    contestants = [
        (
            f"`{name}`",
            result["variants"][name],
            figure(rate, 0),
            figure(result["cpu_us"][name], 1),
            figure(result["rss_mb"][name], 0),
        )
        for name, rate in result["rates"].items()
    ]
    return "\n\n".join(
        [
            markdown.table(("ratio", "from the first record", "after a warm-up", "aim"), reached),
            markdown.table(
                ("contestant", "at its best with", "records/s", "CPU µs a record", "peak RSS, MB"),
                contestants,
            ),
        ]
    )
