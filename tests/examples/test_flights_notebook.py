"""The notebook, run as the program that it also is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.spark_bridge.spark_home import link_spark

# Spark alone takes half a minute to start when the machine is busy.
pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COMMAND = (sys.executable, "-m", "examples.flights_notebook")


@pytest.mark.campaign
def test_notebook_counts_flights_and_leaves_its_plots(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    """Batch and stream see the same flights, the query ends without lag, and plots are there."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(link_spark(tmp_path / "spark")),
        "FLIGHTS_KAFKA": kafka_server.bootstrap_servers,
        "FLIGHTS_LIMIT": "8000",
        "FLIGHTS_PLOTS": str(tmp_path / "plots"),
    }
    run = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    counted, *reasons = [line for line in run.stdout.splitlines() if not line.startswith("{")]
    assert counted == "8000 flights, 7951 of them flew"
    assert "the field dep_time is missing or null" in run.stdout
    assert any(line.startswith("7951 flights in ") for line in reasons)
    assert "the last micro-batch left 0 records" in run.stdout
    plots = {path.name: path.stat().st_size for path in (tmp_path / "plots").iterdir()}
    assert plots.keys() == {"weeks.png", "aircraft.png", "lag.png"}
    assert min(plots.values()) > 5_000
