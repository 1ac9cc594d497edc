"""What the pictures of ``python -m benchmarks spark`` show; drawing them is `plots`'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["LABELS", "Bars", "bars"]

LABELS = {
    "jvm": "Spark's own source",
    "ours": "ours",
    "naive": "getmany + tuples",
    "arrow_fixed": "Arrow, no broker",
    "arrow_lists": "Arrow from lists",
    "feed": "ours, by a feed",
}


class Bars(NamedTuple):
    """A picture: a bar for each contestant, the median, and a dot for each run."""

    title: str
    unit: str
    runs: Mapping[str, Sequence[float]]


def bars(result: Mapping[str, Any]) -> dict[str, Bars]:
    """The pictures by the name of their file; contestants that failed are left out."""
    runs = result["runs"]
    stream = runs["stream"] | {"feed": runs["feed"].get("feed", [])}
    latency = runs["latency"]
    found = {
        "spark-batch": Bars("A batch, to a sink that drops it", "rows/s", runs["batch"]),
        "spark-stream": Bars("A stream, from nothing to its last row", "rows/s", stream),
        "spark-latency": Bars(
            "A micro-batch of a trickle (p50)",
            "ms",
            {
                f"{LABELS[name]},\n{manager}": times
                for manager, both in latency.items()
                for name, times in both.items()
            },
        ),
    }
    return {name: plot for name, plot in found.items() if any(plot.runs.values())}
