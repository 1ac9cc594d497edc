"""Which process is what, and how much memory it had."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.spark.processes import Spent, between, descendants, kind_of, peak_mb, spent


@pytest.mark.parametrize(
    "command,kind",
    [
        ("/usr/lib/jvm/bin/java -cp jars org.apache.spark.deploy.SparkSubmit", "jvm"),
        ("python -m pyspark.daemon pyspark.worker", "worker"),
        ("python -m pyspark.sql.streaming.python_streaming_source_runner", "runner"),
        ("python -m benchmarks.spark.memory", None),
        ("", None),
    ],
)
def test_processes_are_told_apart_by_their_command(command: str, kind: str | None) -> None:
    """A forked worker has the command of the daemon that it was forked from."""
    assert kind_of(command) == kind


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_is_found_with_its_peak() -> None:
    """While it lives."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"  # before that it has hardly any memory
        assert child.pid in descendants(os.getpid())
        assert (peak_mb(child.pid) or 0) > 1
        child.communicate(b"\n")
    assert peak_mb(child.pid) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processor_time_is_counted_while_a_child_lives() -> None:
    """A child that is neither Java nor Spark's Python is of no kind."""
    program = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
    before = spent(os.getpid())
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        assert between(before, spent(os.getpid()))["other"] >= 0.15
        child.communicate(b"\n")


def test_what_has_ended_is_the_runner() -> None:
    """Not a daemon that nobody has used for a minute: what it had used before is no news."""
    before = {1: Spent("jvm", 0, 5.0, 1.0), 2: Spent("worker", 1, 0.5, 0.0)}
    after = {1: Spent("jvm", 0, 7.0, 1.9), 3: Spent("worker", 1, 0.25, 0.0)}
    assert between(before, after) == {"jvm": 2.0, "runner": pytest.approx(0.4), "worker": 0.25}
