"""The main job as a whole: a short run, and one that is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.spark_bridge.spark_home import link_spark
from tests.testing.servers.processes import left_after, marked

# Spark alone takes half a minute to start when the machine is busy.
pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COMMAND = (sys.executable, "-m", "examples.flights")


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Python processes start in time, also when the machine is busy."""
    monkeypatch.setenv("SPARK_HOME", str(link_spark(tmp_path / "spark")))


@pytest.mark.campaign
@pytest.mark.parametrize("source, killed", [("feed", "the consumer"), ("pull", "Spark")])
def test_short_run_with_a_kill_adds_up(tmp_path: Path, source: str, killed: str) -> None:
    """20 000 flights, who reads them is killed: each is processed once or dead-lettered."""
    picture = tmp_path / "flights.png"
    command = [*COMMAND, "--source", source, "--limit", "20000", "--picture", str(picture)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.fullmatch(
        r"produced 20 000 = processed 19 813 \+ dead-lettered 187; redelivered [\d ]+",
        run.stdout.splitlines()[-1],
    )
    assert f"{killed} is killed (kill -9)" in run.stdout
    assert ("watch the consumer live at http://127.0.0.1:" in run.stdout) == (source == "feed")
    assert "by the decade in which the aircraft was built: " in run.stdout
    assert picture.stat().st_size > 10_000


@pytest.mark.campaign
def test_interrupted_run_leaves_nothing_running(tmp_path: Path, kafka_server: KafkaServer) -> None:
    """Ctrl-C while all parts run on somebody's Kafka: status 130, and no process is left."""
    mark = f"FLIGHTS_TEST={uuid.uuid4()}"
    name, value = mark.split("=")
    # So many flights, and the kill so late, that both are far away when all parts are at work.
    options = ["--limit", "300000", "--kill-at", "0.99", "--keep", str(tmp_path / "run")]
    with subprocess.Popen(
        [*COMMAND, *options, "--kafka", kafka_server.bootstrap_servers],
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if re.search("delivered [1-9]", line):
                break
        assert len(marked(mark)) > 3
        run.send_signal(signal.SIGINT)
        run.stdout.read()
        assert run.wait() == 130
    assert not left_after(300.0, mark)
