"""The picture: departure delays per carrier and hour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from examples.flights.data import airlines
from examples.flights.delays import HOURS, Delays

FEW = 20  # flights; a mean of fewer is left out
COOLEST, HOTTEST = 0, 40  # minutes at the ends of the colours
LINES = 4  # carriers whose weeks are drawn
INK, QUIET = "#222222", "#777777"


def draw(delays: Delays, path: Path) -> None:
    """Writes a PNG: a cell per carrier and hour, with the means of both along the edges."""
    carriers = list(delays.by_carrier())
    with mpl.rc_context({"font.size": 9, "text.color": INK, "axes.labelcolor": INK}):
        figure = Figure(figsize=(13.5, 9.6), layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1))
        axes = figure.subplot_mosaic(
            [["hours", "."], ["cells", "carriers"], ["weeks", "built"]],
            width_ratios=(5, 1),
            height_ratios=(1, 5, 2),
        )
        image = _cells(axes["cells"], delays, carriers)
        _hours(axes["hours"], delays)
        _carriers(axes["carriers"], delays, carriers)
        _weeks(axes["weeks"], delays, carriers[:LINES])
        _built(axes["built"], delays)
        figure.colorbar(
            image, ax=axes["carriers"], label="mean departure delay, minutes", extend="both"
        )
        flights = sum(cell.flights for cell in delays.cells.values())
        figure.suptitle(
            f"When to fly from New York: departure delays of {flights:,} flights in 2013",
            fontsize=15,
            fontweight="bold",
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)


def _cells(axes: Any, delays: Delays, carriers: list[str]) -> Any:
    grid = np.array([[_mean(delays, carrier, hour) for hour in HOURS] for carrier in carriers])
    image = axes.imshow(grid, cmap="YlOrRd", vmin=COOLEST, vmax=HOTTEST, aspect="auto")
    for (row, column), mean in np.ndenumerate(grid):
        if not np.isnan(mean):
            colour = "white" if mean > 0.65 * HOTTEST else INK
            axes.text(column, row, f"{round(mean)}", ha="center", va="center", color=colour)
    names = airlines()
    axes.set_yticks(range(len(carriers)), [f"{names.get(code, '')}  {code}" for code in carriers])
    axes.set_xticks(range(len(HOURS)), [f"{hour:02}" for hour in HOURS])
    axes.set_xlabel(f"scheduled hour of departure (cells of fewer than {FEW} flights are left out)")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return image


def _mean(delays: Delays, carrier: str, hour: int) -> float:
    cell = delays.cells.get((carrier, hour))
    return cell.mean if cell and cell.flights >= FEW else float("nan")


def _hours(axes: Any, delays: Delays) -> None:
    by_hour = delays.by_hour()
    means = [by_hour[hour].mean if hour in by_hour else 0 for hour in HOURS]
    bars = axes.bar(range(len(HOURS)), np.maximum(means, 0), color=_colours(means))
    axes.bar_label(bars, [f"{round(mean)}" for mean in means], padding=2, color=QUIET)
    axes.set_xlim(-0.5, len(HOURS) - 0.5)
    axes.set_title("all carriers", loc="left", color=QUIET, fontsize=9)
    _bare(axes)


def _carriers(axes: Any, delays: Delays, carriers: list[str]) -> None:
    by_carrier = delays.by_carrier()
    means = [by_carrier[carrier].mean for carrier in carriers]
    bars = axes.barh(range(len(carriers)), np.maximum(means, 0), color=_colours(means))
    texts = [
        f"{round(by_carrier[carrier].mean)}  ({by_carrier[carrier].flights:,})"
        for carrier in carriers
    ]
    axes.bar_label(bars, texts, padding=3, color=QUIET)
    axes.set_ylim(len(carriers) - 0.5, -0.5)
    axes.set_title("all day (flights)", loc="left", color=QUIET, fontsize=9)
    axes.margins(x=0.6)
    _bare(axes)


def _weeks(axes: Any, delays: Delays, carriers: list[str]) -> None:
    for carrier in carriers:
        weeks = sorted(week for who, week in delays.weeks if who == carrier)
        means = [delays.weeks[carrier, week].mean for week in weeks]
        axes.plot(np.array(weeks, dtype="datetime64[D]"), means, label=carrier, linewidth=1.2)
    axes.set_title("by weeks: the busiest carriers", loc="left", color=QUIET, fontsize=9)
    axes.legend(frameon=False, ncols=LINES, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)


def _built(axes: Any, delays: Delays) -> None:
    decades = {name: cell for name, cell in delays.by_decade().items() if cell.flights >= FEW}
    means = [cell.mean for cell in decades.values()]
    bars = axes.barh(list(decades), np.maximum(means, 0), color=_colours(means))
    axes.bar_label(bars, [f"{round(mean)}" for mean in means], padding=3, color=QUIET)
    axes.set_title("by the aircraft's age", loc="left", color=QUIET, fontsize=9)
    axes.margins(x=0.3)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)


def _bare(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _colours(means: list[float]) -> Any:
    return mpl.colormaps["YlOrRd"](np.clip(np.array(means) / HOTTEST, 0.15, 1))
