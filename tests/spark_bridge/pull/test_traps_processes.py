"""What is there in the processes in which Spark only plans."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[3]

PLAN = """
import json, os, sys, threading
from pyspark import cloudpickle
from pyspark.sql import types as t
from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

COLUMNS = json.loads(sys.argv[2])
schema = t.StructType([t.StructField(n, getattr(t, kind)()) for n, kind in COLUMNS])

def travelled(what):
    return cloudpickle.loads(cloudpickle.dumps(what))

source = travelled(ConsumerSdkDataSource({"url": sys.argv[1]}))
stream, batch = travelled(source.streamReader(schema)), travelled(source.reader(schema))
stream.initialOffset(), stream.getDefaultReadLimit(), stream.reportLatestOffset()
handles = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{n}")]
print(json.dumps({
    "threads": [each.name for each in threading.enumerate()],
    "sockets": [each for each in handles if each.startswith("socket:")],
    "clients": sorted({"aiokafka", "pulsar", "_pulsar", "kazoo", "asyncpg"} & sys.modules.keys()),
}))
"""

PULL = [("partition", "IntegerType"), ("offset", "LongType")]


def planned(url: str, columns: list[tuple[str, str]]) -> dict[str, object]:
    """Return what a process holds that has imported, made, pickled and asked a source."""
    command = [sys.executable, "-c", PLAN, url, json.dumps(columns)]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "url", ["kafka://nowhere:9092/t?group=g", "pulsar://nowhere:6650/t?subscription=s"]
)
def test_a_process_that_only_plans_has_no_thread_client_or_connection(url: str) -> None:
    """Trap 17: at import, after making readers, and after what Spark asks of one while planning."""
    found = planned(url, PULL)
    assert found == {"threads": ["MainThread"], "sockets": [], "clients": []}
