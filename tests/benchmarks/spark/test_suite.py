"""``python -m benchmarks spark --quick``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.spark import suite
from benchmarks.spark.figures import AIMS
from benchmarks.spark.job import SparkJob
from benchmarks.spark.tables import tables
from consumer_sdk.testing.servers import KafkaEndpoint
from tests.spark_bridge.spark_home import link_spark

TINY = replace(suite.QUICK, rows=20_000, trigger_rows=5_000, trickle_seconds=1.0)


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.kafka
def test_quick_run_reaches_every_figure(
    kafka_server: KafkaEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is in the last line, and no contestant failed."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", kafka_server.bootstrap_servers)
    monkeypatch.setenv("SPARK_HOME", str(link_spark(tmp_path / "spark")))
    monkeypatch.setattr(suite, "QUICK", TINY)
    lines: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *texts, **_: lines.append(" ".join(texts)))
    assert main(["spark", "--quick", "--json"]) == 0, lines[-1]
    result = json.loads(lines[-1])
    assert result["failures"] == {}
    assert result["group_lag_after_available_now"] == 0
    assert all(result[key] > 0 for key in AIMS if key != "group_lag_after_available_now")
    assert all(f"`{key}`" in tables(result) for key in AIMS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["spark", "--only", "streams,storms"],
        ["spark", "--only", "streams", "--write-docs"],
        ["trackers", "--only", "streams"],
        ["all", "--only", "streams"],
    ],
)
def test_parts_that_cannot_be_measured_alone_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the parts that there are, before anything starts."""
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--only streams" in capsys.readouterr().err


async def test_only_the_parts_that_are_named_run() -> None:
    """Others have no figures."""
    drivers = suite.Drivers(lambda _: None, ["short"])
    job = SparkJob(servers="nowhere:9092", topic="t")
    assert await drivers.run("write", "writing", job, nothing="nothing") == "nothing"
    assert drivers.failures == {}
