"""The pictures."""

from __future__ import annotations

from pathlib import Path

from benchmarks.spark.figures import figures
from benchmarks.spark.pictures import bars
from benchmarks.spark.plots import draw
from tests.benchmarks.spark.found import found


def test_equal_figures_give_equal_pictures(tmp_path: Path) -> None:
    """A picture changes only when a measurement did."""
    report = figures(found())
    first = [path.read_bytes() for path in draw(report, tmp_path)]
    assert first == [path.read_bytes() for path in draw(report, tmp_path)]
    assert [path.name for path in draw(report, tmp_path)] == [
        f"{name}.svg" for name in bars(report)
    ]


def test_a_contest_without_runs_has_no_picture() -> None:
    """Where everybody failed there is nothing to draw."""
    broken = found()
    broken["throughput"]["batch"] = {"runs": {"ours": []}, "failures": {"ours": "x"}}
    assert "spark-batch" not in bars(figures(broken))
