"""What is made of the drivers' lines."""

from __future__ import annotations

from benchmarks.spark.figures import AIMS, figures
from benchmarks.spark.tables import NAMES, tables
from tests.benchmarks.spark.found import found


def test_ratios_are_medians_over_rounds() -> None:
    """Runs of one round are compared with one another: 2, 1 and 1.5 make 1.5."""
    report = figures(found())
    assert report["pull_batch_vs_jvm"] == 1.5
    assert report["pull_vs_naive"] == 4
    assert report["pull_vs_arrow_ceiling"] == 0.5
    assert report["pull_stream_vs_jvm"] == 2
    assert report["pull_stream_steady_vs_jvm"] == 3
    assert report["pull_zstd_vs_jvm"] == report["short_run_loaded_s_vs_jvm"] == 1.5
    assert report["feed_vs_pull"] == 0.8
    assert report["write_vs_jvm"] == 0.9
    assert report["latency_p50_ms_vs_jvm"] == 1.05


def test_every_promised_figure_is_there_and_first() -> None:
    """The keys of the report begin with those that have an aim."""
    assert list(figures(found()))[: len(AIMS)] == list(AIMS)


def test_requests_are_counted_by_the_second() -> None:
    """All kinds together, over the idle time."""
    assert figures(found())["idle_broker_calls_per_s"] == 4.2


def test_a_contestant_that_failed_has_no_ratio() -> None:
    """None, and the reason under its name."""
    broken = found()
    broken["throughput"]["stream"] = {"runs": {"jvm": [1.0], "ours": []}, "failures": {"ours": "x"}}
    broken["idle"]["calls"] = {}
    report = figures(broken)
    assert report["pull_stream_vs_jvm"] is None
    assert report["idle_broker_calls_per_s"] is None
    assert report["failures"] == {"stream: ours": "x"}


def test_tables_show_every_figure_and_contestant() -> None:
    """Nothing that was measured is left out of the page."""
    report = figures(found()) | {"versions": {"pyspark": "4"}, "load_average": [0.0, 1.0]}
    page = tables(report)
    assert all(f"`{key}`" in page for key in AIMS)
    assert all(name in page for name in NAMES.values())
    assert "ListOffsets 4.0" in page


def test_tables_of_a_run_that_failed_say_so() -> None:
    """A figure that is missing is "failed", not an error of the table."""
    broken = found()
    broken["throughput"] = {
        part: {"runs": {}, "failures": {}} for part in ("batch", "stream", "steady")
    }
    broken["feed"] = {"runs": {}, "failures": {}}
    report = figures(broken) | {"versions": {}, "load_average": [0.0, 1.0]}
    assert "| `pull_batch_vs_jvm` | failed |" in tables(report)
