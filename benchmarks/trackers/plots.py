"""The curves of ``python -m benchmarks trackers`` as pictures for ``docs/performance.md``.

The same figures give the same bytes, so that a picture changes only when a measurement did.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

__all__ = ["PLOTS", "Plot", "draw"]


class Plot(NamedTuple):
    """How a curve is shown."""

    title: str
    x: str
    y: str
    has_log_y: bool = False


PLOTS: dict[str, Plot] = {
    "window": Plot("Acks in random order, by window", "records in flight", "records/s"),
    "in_flight": Plot("Acks in order, by what is in flight", "records in flight", "ns a record"),
    "flush": Plot("A flush, by holes", "holes", "ns a hole", has_log_y=True),
    "encode": Plot("Encoding a checkpoint, by holes", "holes", "ns a hole"),
    "roots": Plot("Open trees", "open trees", "bytes a tree", has_log_y=True),
    "stuck": Plot("One stuck record", "records settled behind it", "bytes kept", has_log_y=True),
}


def draw(curves: Mapping[str, Mapping[str, Mapping[str, float]]], folder: Path) -> list[Path]:
    """Write ``trackers-NAME.svg`` for each curve that was measured."""
    paths = {name: folder / f"trackers-{name.replace('_', '-')}.svg" for name in curves}
    # Text that stays text makes small files; a fixed salt and no date make equal ones.
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "consumer_sdk"}):
        for name, path in paths.items():
            figure = _figure(PLOTS[name], curves[name])
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return list(paths.values())


def _figure(plot: Plot, lines: Mapping[str, Mapping[str, float]]) -> Figure:
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    for label, points in lines.items():
        axes.plot([int(x) for x in points], list(points.values()), marker="o", ms=4, label=label)
    axes.set_xscale("log")
    if plot.has_log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * max(max(points.values()) for points in lines.values()))
    axes.set_title(plot.title, loc="left")
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    return figure
