"""Spark's workers: what the garbage collector looks at after each task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]

PROGRAM = """
import gc
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.reading import Ranges, read_task

options = PullOptions.parse({"url": "kafka://nowhere:9092/t"})
for _ in range(3):
    assert not list(read_task(options, Ranges(())))
    gc.collect()  # as Spark does
    print(len(gc.get_objects()))
"""


SOURCE = """
import gc
from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

for _ in range(3):
    ConsumerSdkDataSource({"url": "kafka://nowhere:9092/t"}).schema()
    gc.collect()
    print(len(gc.get_objects()))
"""


def looked_at(program: str, **environment: str) -> list[int]:
    """How many objects the collector looks at after each of three calls."""
    command = [sys.executable, "-c", program]
    given = os.environ | environment
    done = subprocess.run(command, check=True, cwd=ROOT, env=given, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("program", [PROGRAM, SOURCE])
def test_a_process_that_is_used_again_collects_no_modules(program: str) -> None:
    """Its modules are tens of thousands of objects, and Spark collects after each task, and each plan."""
    first, *later = looked_at(program, SPARK_REUSE_WORKER="1")
    assert first > 10_000
    assert max(later) < 1_000


def test_the_collector_of_another_program_is_left_alone() -> None:
    """Who calls a reader in a process of its own decides about that itself."""
    assert min(looked_at(PROGRAM)) > 10_000


RUNNER = """
import gc, sys
from consumer_sdk.spark_bridge.collector import begin_run
sys.argv[0] = sys.argv[1]
begin_run()
print(gc.get_freeze_count() > 1_000)
"""


@pytest.mark.parametrize(
    "program, is_frozen",
    [
        ("/spark/python/pyspark/sql/streaming/python_streaming_source_runner.py", "True"),
        ("app", "False"),
    ],
)
def test_the_process_of_a_query_begins_without_sparks_modules(program: str, is_frozen: str) -> None:
    """Elsewhere the collector is the program's."""
    command = [sys.executable, "-c", RUNNER, program]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == is_frozen
