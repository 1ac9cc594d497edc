"""A real Spark cluster of two hosts that runs tasks twice and logs all that it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark_bridge.pull.kafka_query import Kafka, Topic
from tests.spark_bridge.pull.trap_query import until_acked
from tests.spark_bridge.spark_home import link_spark

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[3]
SECRET = "tr4p-s3cret-of-nobody"  # noqa: S105 - it opens nothing


@dataclass(frozen=True)
class Ran:
    """What a cluster left."""

    topic: Topic
    folder: Path
    said: str

    @property
    def logs(self) -> dict[str, str]:
        """All that driver and executors printed, by file."""
        files = (self.folder / "workers").rglob("std*")
        return {"driver": self.said, **{str(path): path.read_text() for path in files}}


@pytest.fixture(scope="module")
def cluster(kafka_server: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run one for all tests here: it takes its time to start."""
    topic = Topic(kafka_server, f"cluster-{uuid.uuid4().hex[:8]}")
    topic.send(200)
    folder = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-m", "tests.spark_bridge.pull.trap_cluster", str(folder)]
    with (folder / "driver").open("wb") as log:
        process = subprocess.Popen(
            [*command, topic.servers, topic.name, SECRET],
            cwd=ROOT,
            env=_environment(folder),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        status = process.wait(350)
    finally:
        # A JVM outlives its Python where that fails.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ran = Ran(topic, folder, (folder / "driver").read_text(errors="replace"))
    assert status == 0, ran.said[-4000:]
    return ran


def _environment(folder: Path) -> dict[str, str]:
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(link_spark(folder / "spark")),
        "SPARK_WORKER_DIR": str(folder / "workers"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": tempfile.gettempdir(),
    }
    return {**os.environ, **ours}


@pytest.mark.campaign
def test_a_task_that_spark_runs_twice_at_the_same_time_reads_each_record_once(cluster: Ran) -> None:
    """Trap 6: speculation; the copy wins, the straggler is killed, and nothing is acked twice."""
    attempts = {path.name for path in (cluster.folder / "attempts").iterdir()}
    assert {"0-0", "0-1"} <= attempts, f"nothing was speculated: {attempts}"
    rows = [tuple(row) for row in json.loads((cluster.folder / "rows").read_text())]
    assert sorted(rows) == cluster.topic.expected
    until_acked(cluster.topic)


@pytest.mark.campaign
def test_a_secret_is_in_no_log_plan_or_error(cluster: Ran) -> None:
    """Trap 22: of driver and executors at INFO, ``explain``, progress, and failed queries."""
    for expected in ("INFO MicroBatchExecution", "== Physical Plan ==", "numInputRows"):
        assert expected in cluster.said, f"{expected!r} was not said: nothing was tested"
    assert cluster.said.count("failed as it should") == 2
    assert len(cluster.logs) >= 5  # the driver's, and two of each executor
    leaks = {
        name: line
        for name, text in cluster.logs.items()
        for line in text.splitlines()
        if SECRET in line
    }
    assert leaks == {}
